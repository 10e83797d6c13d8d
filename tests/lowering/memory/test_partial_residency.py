"""Rows kept in shared memory between two passes: the same results, fewer loads, and errors for loops that do not match."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fuser.errors import SchedulingError
from fuser.ir.fusion.fusion import GatherKind
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.kernel.kernel import Kernel, VectorMove, walk
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp
from fuser.ir.schedule.schedule import ScheduleBuilder
from tests.fusions.kernel_corpus import BX, GX, VECTOR
from tests.judging.harness import check

Float = DataType.Float


def two_passes(*, backwards: bool = True) -> tuple[ScheduleBuilder, str, str]:
    """x minus the sum of its column: rows in iterations of three, a thread has four columns. The two copies of x."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 64], contiguity=(True, True))
    total = b.reduction("sum", x, [0], Float)
    out = b.pointwise("sub", [x, b.broadcast(total, [True, False])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    copy = s.cache_after(x.name)
    again = s.recompute(copy, [out.name])
    spread(s, total.name, out.name, copy, again, backwards=backwards)
    return s, copy, again


def chosen_in_two_passes() -> tuple[ScheduleBuilder, str, str]:
    """The same of the elements of a table that x chooses, which are read in both passes."""
    b = FusionBuilder()
    table = b.input_tensor(Float, [-1, 64], contiguity=(True, True))
    x = b.input_tensor(DataType.Int32, [-1, 64], contiguity=(True, True))
    chosen = b.gather(GatherKind.take_along_axis, table, x, 0)
    total = b.reduction("sum", chosen, [0], Float)
    out = b.pointwise("sub", [chosen, b.broadcast(total, [True, False])], Float)
    b.add_output(out)
    s = ScheduleBuilder(b.freeze())
    copy = s.cache_after(x.name)
    again = s.recompute(copy, [s.recompute(chosen.name, [out.name])])
    spread(s, total.name, out.name, copy, again, backwards=True)
    return s, copy, again


def spread(s: ScheduleBuilder, total: str, out: str, copy: str, again: str, *, backwards: bool) -> None:
    s.cache_before(out)
    s.split(total, 1, 4)
    s.split(total, 1, 8)
    s.split(total, 0, 3)
    s.reorder(total, {2: 0, 3: 1, 0: 2, 1: 3})  # columns / 32, columns / 4 % 8, rows / 3, rows % 3, columns % 4
    s.transform_like(total)
    s.parallelize(total, 0, GX)
    s.parallelize(total, 1, BX)
    s.parallelize_like(total)
    for name in (copy, again, out):
        s.parallelize(name, 4, VECTOR)
    s.inline_most([n for n in s.states if n not in (copy, again, *s.input_names)])
    s.inline_at(total, 3, True, [copy])
    s.inline_at(out, 3, True, [again])
    if backwards:
        s.run_backwards(out, 2)


def moves(kernel: Kernel, wanted: Callable[[VectorMove], bool]) -> int:
    return sum(isinstance(s, VectorMove) and wanted(s) for s in walk(kernel.body))


@pytest.mark.parametrize("rows", [2, 3, 7, 30])
@pytest.mark.parametrize("iterations", [0, 1, 2, 20])
@pytest.mark.parametrize("in_registers", [False, True])
def test_what_is_kept_is_not_loaded_again(rows: int, iterations: int, in_registers: bool) -> None:
    s, copy, again = two_passes()
    if not iterations and not in_registers:
        return
    s.keep_iterations(copy, again, iterations, in_registers)
    x = np.random.default_rng(rows).integers(-9, 10, (rows, 64)).astype("f4")
    kernel = check(s, [x], seeds=(0, 1))
    assert kernel.plan.shared_bytes.value == iterations * 3 * 4 * 4 * 8
    assert moves(kernel, lambda m: m.dst.is_shared) == (iterations > 0)
    assert moves(kernel, lambda m: m.src.is_shared) == (iterations > 0)
    kept = moves(kernel, lambda m: m.cache is CacheOp.streaming)
    assert kept == (iterations > 0) + in_registers, "what is kept needs no place in the cache"
    filled = {m.dst.name for m in walk(kernel.body) if isinstance(m, VectorMove) and m.src.is_global}
    assert filled == ({copy} if in_registers else {copy, again}), "one array for both loops"
    replayed = ScheduleBuilder(s.fusion)
    replayed.replay(s.records)
    assert str(replayed) == str(s)


def test_loops_in_the_same_order_are_refused() -> None:
    s, copy, again = two_passes(backwards=False)
    s.keep_iterations(copy, again, 2)
    with pytest.raises(SchedulingError, match="do not load the same in opposite order"):
        check(s, [np.ones((7, 64), np.float32)])


def test_only_copies_of_one_input_are_kept() -> None:
    s, copy, _ = two_passes()
    out = s.fusion.output_tensors[0].name
    with pytest.raises(SchedulingError, match="they are no copies of one input in registers"):
        s.keep_iterations(copy, out, 2)
    with pytest.raises(SchedulingError, match="cannot keep 0 iterations"):
        s.keep_iterations(*two_passes()[1:], 0)


def test_indices_are_kept_for_what_they_choose() -> None:
    """What is kept may be used in any way, here to choose elements of a table in each pass."""
    s, copy, again = chosen_in_two_passes()
    s.keep_iterations(copy, again, 1, True)
    rng = np.random.default_rng(0)
    table, x = rng.integers(-9, 10, (5, 64)).astype("f4"), rng.integers(0, 5, (7, 64)).astype("i4")
    kernel = check(s, [table, x], seeds=(0,))
    filled = {m.dst.name for m in walk(kernel.body) if isinstance(m, VectorMove) and m.src.is_global}
    assert filled == {copy}
