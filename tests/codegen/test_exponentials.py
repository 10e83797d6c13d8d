"""Exponentials of Doubles by a table: its entries, where the text fills it, and what comes of it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks.compile_case import compile_case
from benchmarks.reduction_cases import cross_entropy
from fuser import DataType, FusionDefinition
from fuser.codegen.device_functions import function_closure, needs_function
from fuser.codegen.exponentials import BY_POWERS, EXP_TABLE, FILL_EXP_TABLE
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.approximate_ops import ROWS
from fuser.optimize.pipeline import optimize_fusion
from tests.codegen.host_prelude import HOST_PRELUDE
from tests.judging.accuracy import ulp
from tests.schedule.forced_rows import propose_only

_ENTRIES = """
extern "C" void entries(double* powers) {
  fuser_fill_exp_table();
  for (int n = -64; n < 64; ++n) powers[n + 64] = fuser_exp_power(n, 3);
}
extern "C" void negatives(const double* x, double* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = fuser_exp_of_negative_by_powers(x[i]);
}
extern "C" void summands(const double* x, double* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = fuser_exp_summand_by_powers(x[i]);
}
extern "C" void sums(const double* total, const double* x, double* out, long long n) {
  for (long long i = 0; i < n; ++i) out[i] = fuser_add_exp_by_powers(total[i], x[i]);
}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    folder: Path = tmp_path_factory.mktemp("exponentials")
    texts = function_closure([FILL_EXP_TABLE, "fuser_exp_power", *BY_POWERS.values()])
    (folder / "t.cpp").write_text("\n".join([HOST_PRELUDE, *texts, _ENTRIES]))
    flags = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
    subprocess.run([compiler, *flags, "-o", str(folder / "t.so"), str(folder / "t.cpp")], check=True)
    library = ctypes.CDLL(str(folder / "t.so"))
    unused = np.empty(128)
    library.entries(ctypes.c_void_p(unused.ctypes.data))
    return library


def test_powers_are_correctly_rounded(host: ctypes.CDLL):
    got = np.empty(128)
    host.entries(ctypes.c_void_p(got.ctypes.data))
    exact = np.exp2(np.arange(-64, 64).astype(np.longdouble) / 64) * 8
    np.testing.assert_array_equal(got, exact.astype(np.float64))


def _called(function: Callable[..., None], *inputs: np.ndarray) -> np.ndarray:
    out = np.empty_like(inputs[0])
    function(*(ctypes.c_void_p(x.ctypes.data) for x in (*inputs, out)), ctypes.c_longlong(out.size))
    return out


def test_exponentials_of_what_is_not_above_zero(host: ctypes.CDLL):
    rng = np.random.default_rng(0)
    x = -rng.uniform(0, 1, 100_000) * rng.choice([0.01, 1.0, 20.0, 745.0], 100_000)
    ends = np.array([-np.inf, np.nan, -1e300, 0.0, -0.0, -744.4])
    got = _called(host.negatives, np.append(x, ends))
    exact = np.exp(x.astype(np.longdouble))
    # Beside 2**-1022 units are those of subnormal numbers.
    unit = np.maximum(ulp(exact.astype(np.float64), DataType.Double), 2.0**-1074)
    assert np.max(np.abs(got[:-6] - exact) / unit) < 1.1
    np.testing.assert_array_equal(got[-6:], [0.0, np.nan, 0.0, 1.0, 1.0, 5e-324])


def test_summands_are_as_good_as_without_a_table(host: ctypes.CDLL):
    """The bounds of `test_device_functions.py::test_exponentials_of_what_is_not_above_zero`."""
    rng = np.random.default_rng(2)
    x = -np.concatenate([rng.uniform(0, 708.3, 40000), 10.0 ** rng.uniform(-320, 2.8, 4000), [0.0, 1e-320, 708.3]])
    exact = np.exp(x.astype(np.longdouble))
    assert np.max(np.abs(_called(host.summands, x) - exact) / ulp(exact.astype(np.float64), DataType.Double)) < 1.2
    nan = np.array([0x7FF8000000000000, -1, 0x7FFFFFFFFFFFFFFF, 0x7FF8000000000001], np.int64).view(np.float64)
    ends = np.concatenate([nan, [-np.inf, -np.finfo(float).max, -710.0, -746.0, -1e10], -rng.uniform(709, 760, 1000)])
    np.testing.assert_array_equal(_called(host.summands, ends), np.where(np.isnan(ends), np.nan, 0.0))
    # What is less than the least normal number is that, or 0.
    least = -rng.uniform(708.3, 709, 1000)
    got = _called(host.summands, least)
    assert np.all((got == 0) | (np.abs(got / np.exp(least) - 1) < 1e-15))
    assert np.all(np.exp(least[got == 0]) < np.finfo(float).tiny)


def test_sums_are_as_good_as_their_row_says(host: ctypes.CDLL):
    rng = np.random.default_rng(3)
    total, x = rng.uniform(0, 9, 40000), -(10.0 ** rng.uniform(-3, 3, 40000))
    error = np.abs(_called(host.sums, total, x) - (total.astype(np.longdouble) + np.exp(x.astype(np.longdouble))))
    unit = ulp(total + np.exp(x), DataType.Double)
    assert np.max(error / unit) < ROWS["add_exp_summand"].ulp[1] == 2.0
    # A total that is at least 1 in the end.
    assert np.max(error / np.maximum(unit, 2.0**-52)) < 1.2
    ends = np.array([-np.inf, np.nan, -1e300, -0.0])
    np.testing.assert_array_equal(_called(host.sums, np.full(4, 2.0), ends), [2.0, np.nan, 2.0, 3.0])


def _softmax_text(rows: int, columns: int, dtype: DataType) -> str:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
        fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))
    given = TensorDescriptor(dtype, (rows, columns), (columns, 1), 256, 0)
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)
    return KernelCompiler(H200).compile(fusion, [given]).source


@pytest.mark.parametrize(("rows", "columns"), [(38, 50257), (55, 250003), (1240, 7168)])
def test_the_table_is_filled_once_where_all_threads_come(rows: int, columns: int, monkeypatch: pytest.MonkeyPatch):
    """Of rows in shared memory, in two passes: threads with few elements, or one pass over them, read no table."""
    propose_only(monkeypatch, lambda m: m.in_shared and not m.one_pass)
    text = _softmax_text(rows, columns, DataType.Double)
    body = text[text.index('extern "C"') :]
    fills = [m.start() for m in re.finditer(rf"{FILL_EXP_TABLE}\(\)", body)]
    assert len(fills) == 1
    # Under no test or loop, and before whatever reads it.
    assert body[: fills[0]].endswith("\n  ")
    assert all(
        m.start() > fills[0] for m in re.finditer(r"fuser_(add_exp|exp_summand|exp_of_negative)_by_powers\(", body)
    )
    assert "__shared__ unsigned" in text


def _losses_text(rows: int, columns: int) -> str:
    return compile_case(cross_entropy(rows, columns, DataType.Double), with_cubin=False).launches()[0].kernel.source


def test_the_table_is_filled_while_the_first_reads_are_on_their_way():
    text = _losses_text(534, 5120)
    body = text[text.index('extern "C"') :]
    first, second = (m.start() for m in re.finditer(rf"{FILL_EXP_TABLE}\(\)", body))
    assert body[:first].endswith("\n    if (i0 == 0) ")
    read = body.rindex("const uint4*", 0, body.index("_by_powers("))
    assert read < first < body.index("_by_powers(")
    # What comes behind the loop needs it, too, where there was no trip.
    assert re.search(r"\n  if \(.* < 1\) $", body[:second])


def test_the_table_is_filled_before_reads_are_named_that_a_branch_would_wait_for():
    text = _losses_text(300, 50257)
    body = text[text.index('extern "C"') :]
    fill = body.index(f"    if (i0 == 0) {FILL_EXP_TABLE}();\n")
    assert body.rindex("const uint4*", 0, body.index("_by_powers(")) < fill
    assert fill < body.index('asm("" : "+r"')


def test_nobody_else_fills_it():
    assert EXP_TABLE not in _softmax_text(38, 50257, DataType.Float)
    assert EXP_TABLE not in _softmax_text(300, 1024, DataType.Double), "few exponentials of a thread"
    assert not needs_function(["fuser_largest", "fuser_divide_by_common"], EXP_TABLE)
    assert needs_function(["fuser_add_exp_by_powers"], EXP_TABLE)
