"""The device functions of random numbers, compiled for the host, against NumPy: what a GPU computes, without one.

Nothing in them is particular to a GPU but a few functions, which a header of the test's own stands in for.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fuser.codegen.device_functions import function_closure
from fuser.ir.fusion.fusion import Distribution
from fuser.ir.fusion.random_numbers import random_values
from fuser.ir.ops.dtypes import DataType

D = DataType
COMPILER = shutil.which("g++") or shutil.which("clang++")
COUNT = 1 << 16
SEED, OFFSET = -5, (1 << 33) | 7
LOW, HIGH = -1.5, 2.25

HEADER = r"""
#include <cmath>
#include <cstdio>
#include <cstring>
#define __device__
#define __forceinline__ inline
static inline int __float_as_int(float x) { int r; memcpy(&r, &x, 4); return r; }
static inline float __int_as_float(int x) { float r; memcpy(&r, &x, 4); return r; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline void sincospi(double x, double* s, double* c) { *s = sin(M_PI * x); *c = cos(M_PI * x); }
"""
# C type, function, its parameters behind the lane.
CALLS = [
    ("float", "fuser_standard_uniform_float", ""),
    ("float", "fuser_uniform_float", f", {LOW}f, {HIGH}f"),
    ("float", "fuser_standard_normal_float", ""),
    ("float", "fuser_normal_float", f", {LOW}f, {HIGH}f"),
    ("double", "fuser_standard_uniform_double", ""),
    ("double", "fuser_uniform_double", f", {LOW}, {HIGH}"),
    ("double", "fuser_standard_normal_double", ""),
    ("double", "fuser_normal_double", f", {LOW}, {HIGH}"),
]


def program() -> str:
    """Writes COUNT numbers of each function, one function after another."""
    loops: list[str] = []
    for c_type, function, parameters in CALLS:
        lanes = 4 if c_type == "float" else 2
        words = f"fuser_philox({SEED}ll, {OFFSET}ll, i / {lanes})"
        loops.append(
            f"for (int i = 0; i < {COUNT}; ++i) {{ {c_type} x = {function}({words}, i % {lanes}{parameters}); "
            "fwrite(&x, sizeof x, 1, stdout); }"
        )
    texts = function_closure(["fuser_philox", *(function for _, function, _ in CALLS)])
    return "\n".join([HEADER, *texts, "int main() {", *loops, "}"])


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, npt.NDArray[Any]]:
    """What the functions give, by name."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("random")
    (folder / "main.cpp").write_text(program(), encoding="utf-8")
    command = [COMPILER, "-std=c++17", "-O1", "-ffp-contract=off", "-o", str(folder / "main"), str(folder / "main.cpp")]
    subprocess.run(command, check=True, capture_output=True)
    written = subprocess.run([str(folder / "main")], check=True, capture_output=True).stdout
    found: dict[str, npt.NDArray[Any]] = {}
    start = 0
    for c_type, function, _ in CALLS:
        dtype = np.dtype(np.float32 if c_type == "float" else np.float64)
        found[function] = np.frombuffer(written, dtype, COUNT, start)
        start += COUNT * dtype.itemsize
    assert start == len(written)
    return found


def reference(distribution: Distribution, dtype: DataType, *, standard: bool) -> npt.NDArray[Any]:
    """The same by NumPy."""
    parameters = (0.0, 1.0) if standard else (LOW, HIGH)
    return random_values(distribution, SEED, OFFSET, np.arange(COUNT), parameters, dtype)


@pytest.mark.parametrize("standard", [True, False])
@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=lambda d: d.name)
def test_uniform_numbers_are_equal(values: dict[str, npt.NDArray[Any]], dtype: DataType, standard: bool) -> None:
    name = f"fuser_{'standard_' if standard else ''}uniform_{dtype.name.lower()}"
    expected = reference(Distribution.uniform, dtype, standard=standard)
    np.testing.assert_array_equal(values[name], expected)


@pytest.mark.parametrize("standard", [True, False])
@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=lambda d: d.name)
def test_normal_numbers_are_close(values: dict[str, npt.NDArray[Any]], dtype: DataType, standard: bool) -> None:
    name = f"fuser_{'standard_' if standard else ''}normal_{dtype.name.lower()}"
    expected = reference(Distribution.normal, dtype, standard=standard)
    eps = float(np.finfo(expected.dtype).eps)
    np.testing.assert_allclose(
        values[name], expected, rtol=4 * eps, atol=0 if standard and dtype is D.Float else 8 * eps
    )
