"""Divisions by divisors of a launch: the host's factor and the device's arithmetic give quotients and remainders exactly."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fuser.codegen.device_functions import function_closure
from fuser.ir.integers.integers import symbol
from fuser.ir.kernel.kernel import DivisorParameter
from fuser.runtime.kernels.pack import ArgumentLayout
from tests.codegen.host_prelude import HOST_PRELUDE

LARGEST = 2**31 - 1
_ENTRY = """
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
FUNCTIONS
extern "C" void divide(const int* x, int* quotients, int* remainders, const fuser_divisor* d, long long n) {
  for (long long i = 0; i < n; ++i) { quotients[i] = fuser_div(x[i], *d); remainders[i] = fuser_mod(x[i], *d); }
}
"""


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The device functions as the host's compiler makes them."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder: Path = tmp_path_factory.mktemp("division")
    text = HOST_PRELUDE + _ENTRY.replace("FUNCTIONS", "\n".join(function_closure(["fuser_div", "fuser_mod"])))
    (folder / "division.cpp").write_text(text)
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", folder / "division.so", folder / "division.cpp"], check=True)
    return ctypes.CDLL(str(folder / "division.so"))


def cell_of(divisor: int) -> bytes:
    """What a launch writes for a divisor of that value."""
    cells = ArgumentLayout([DivisorParameter(symbol("n", 0))], 32, "k").make_cells()
    cells.write([divisor])
    return cells.contents()[:12]


def divisors() -> list[int]:
    powers = [2**k + more for k in range(32) for more in (-1, 0, 1)]
    drawn = np.random.default_rng(5).integers(1, LARGEST, 300) >> np.random.default_rng(6).integers(0, 31, 300)
    return sorted({d for d in (*powers, *range(1, 300), *map(int, drawn), LARGEST - 1) if 1 <= d <= LARGEST})


def test_quotients_and_remainders_are_exact(device: ctypes.CDLL) -> None:
    """Where a quotient that is a unit too large or too small would show: at multiples of the divisor and just below them."""
    draw = np.random.default_rng(7)
    for d in divisors():
        most = LARGEST // d
        multiples = np.unique(np.concatenate([[1, 2, most // 2, most - 1, most], draw.integers(0, most + 1, 60)])) * d
        around = np.concatenate([multiples - 1, multiples, multiples + 1, [0, LARGEST - 1, LARGEST]])
        x = around[(around >= 0) & (around <= LARGEST)].astype(np.int32)
        quotients, remainders = np.full_like(x, -7), np.full_like(x, -7)
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, quotients, remainders))
        device.divide(*pointers, cell_of(d), ctypes.c_longlong(len(x)))
        np.testing.assert_array_equal(quotients, x // d, err_msg=str(d))
        np.testing.assert_array_equal(remainders, x % d, err_msg=str(d))
