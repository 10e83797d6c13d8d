"""Schedules and fusions that once lowered to wrong kernels, or failed other than by a SchedulingError."""

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import SchedulingError
from fuser.ir.facts import DenseStride, TensorDescriptor, UnitStride, holds, layout_facts
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import ONE, ZERO, const, symbol
from fuser.ir.kernel.kernel import Allocate, BlockBarrier, Buffer, For, Literal, Load, Store, walk
from fuser.ir.ops.dtypes import DataType as D
from fuser.ir.ops.enums import MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.ir.schedule.verify_schedule import structure_problems
from fuser.lowering.sync.insert_syncs import insert_syncs
from tests.judging.harness import check, integers, refusal

P = ParallelType


@pytest.fixture(autouse=True)
def _verified(monkeypatch):
    monkeypatch.setenv("FUSER_VERIFY", "passes,proofs")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


# --- two dims of one tensor that are the same -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 33])
def test_a_tensor_and_its_transpose(n):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.add(x, fd.ops.permute(x, [1, 0])))
        fd.add_output(fd.ops.sum(fd.ops.sub(x, fd.ops.permute(x, [1, 0])), [1]))
    array = integers((n, n))
    both, rest = fd.execute([array])
    np.testing.assert_array_equal(both, array + array.T)
    np.testing.assert_array_equal(rest, (array - array.T).sum(1))


@pytest.mark.parametrize("n", [1, 5, 300])
def test_outer_product_of_a_tensor_with_itself(n):
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True, DataType.Float)
        product = fd.ops.mul(fd.ops.broadcast(x, [False, True]), fd.ops.broadcast(x, [True, False]))
        fd.add_output(product)
        fd.add_output(fd.ops.sum(product, [0]))
    array = integers((n,))
    outer, total = fd.execute([array])
    np.testing.assert_array_equal(outer, np.outer(array, array))
    np.testing.assert_array_equal(total, np.outer(array, array).sum(0))


def with_transpose() -> Fusion:
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, -1])
    b.add_output(b.pointwise("add", [x, b.permute(x, [1, 0])], D.Float))
    return b.freeze()


def test_one_kernel_for_a_tensor_and_its_transpose_is_refused():
    assert "two dimensions of t0 are one and the same" in refusal(ScheduleBuilder(with_transpose()))
    s = ScheduleBuilder(with_transpose())
    with pytest.raises(SchedulingError, match="two of its axes are the same dimension"):
        s.transform_like("t2")


# --- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "strides", "fact"),
    [
        ((300, 1), (1, 0), UnitStride("t", 0)),
        ((300, 1), (1, 1), DenseStride("t", 0, 1)),
        ((300, 1, 4), (4, 0, 1), DenseStride("t", 0, 2)),
        ((3, 1, 1, 5), (5, 77, 99, 1), DenseStride("t", 0, 3)),
    ],
)
def test_the_stride_of_one_element_hides_no_other(sizes, strides, fact):
    described = TensorDescriptor(D.Float, sizes, strides)
    facts = layout_facts("t", described)
    assert fact in facts
    assert all(holds(f, {"t": described}, lambda e: e.value) for f in facts)


def test_a_column_with_a_stride_of_its_own_is_read_wide():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [False, False], DataType.Float)
        fd.add_output(fd.ops.add(x, 1.0))
    array = integers((300,))[:, None]
    np.testing.assert_array_equal(fd.execute([array])[0], array + 1)


# --- parallel types of shared loops -----------------------------------------------------------------------------------


def spread_sum() -> Fusion:
    """t1 = t0 + t0; t2 = sum(t1); t4 = max(t0, broadcast(t2))"""
    b = FusionBuilder()
    x = b.input_tensor(D.Int32, [-1])
    total = b.reduction("sum", b.pointwise("add", [x, x], D.Int32), [0], D.Int32)
    b.add_output(b.pointwise("maximum", [x, b.broadcast(total, [True])], D.Int32))
    return b.freeze()


@pytest.mark.parametrize("p", [P.block_x, P.block_y, P.grid_x])
def test_a_serial_reduction_in_a_parallel_loop_is_a_collective(p):
    s = ScheduleBuilder(spread_sum())
    s.parallelize("t1", 0, p)
    s.inline_most()
    check(s, [integers((16,), D.Int32)])


def test_types_that_disagree_across_a_shared_loop():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1])
    y = b.pointwise("exp", [x], D.Float)
    b.add_output(b.pointwise("neg", [y], D.Float))
    b.add_output(b.pointwise("abs", [y], D.Float))
    s = ScheduleBuilder(b.freeze())
    s.inline_most()
    s.parallelize("t2", 0, P.block_x)
    s.parallelize("t3", 0, P.block_y)
    assert "share loop 0, which is block_x for one and block_y for the other" in refusal(s)


# --- transform_like ---------------------------------------------------------------------------------------------------


def two_levels() -> Fusion:
    """t1 = sum(t0, [0, 1]); t2 = broadcast(t1); t3 = t0 + t2"""
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [31, 6])
    total = b.reduction("max", x, [0, 1], D.Float)
    b.add_output(b.pointwise("add", [x, b.broadcast(total, [True, True])], D.Float))
    return b.freeze()


def test_a_dim_that_is_already_split_is_not_followed_as_a_whole():
    s = ScheduleBuilder(two_levels())
    s.split("t1", 0, 4)
    before = {n: list(state.loop) for n, state in s.states.items()}
    with pytest.raises(SchedulingError, match="is already split or merged in another way there"):
        s.transform_like("t2")
    assert {n: list(state.loop) for n, state in s.states.items()} == before


def test_reduced_and_kept_dims_merged():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [4, -1, 13])
    y = b.pointwise("neg", [x], D.Float)
    b.add_output(b.reduction("min", y, [0, 1], D.Float))
    s = ScheduleBuilder(b.freeze())
    s.merge("t1", 0)
    s.merge("t1", 0)
    s.transform_like("t1")
    assert structure_problems(s) == []
    assert len(s.state("t2").loop) == 3


# --- rfactor ----------------------------------------------------------------------------------------------------------


def matrix_sum() -> Fusion:
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [2, -1])
    b.add_output(b.reduction("sum", b.pointwise("neg", [x], D.Float), [0, 1], D.Float))
    return b.freeze()


def test_rfactor_takes_the_parallel_types_along():
    s = ScheduleBuilder(matrix_sum())
    s.parallelize("t2", 1, P.block_z)
    s.rfactor("t2", [1])
    assert structure_problems(s) == []
    assert s.state("t2_rfactor_0").parallel_type(s.state("t2_rfactor_0").loop[1]) is P.block_z


def test_caches_of_stages_of_stages():
    s = ScheduleBuilder(matrix_sum())
    s.split("t2", 0, 1)
    first = s.rfactor("t2", [1, 2])
    assert isinstance(first, str)
    second = s.rfactor(first, [1])
    assert isinstance(second, str)
    s.cache_before(second)
    assert structure_problems(s) == []


def test_two_stages_over_blocks():
    b = FusionBuilder()
    x = b.input_tensor(D.Int32, [-1, -1])
    b.add_output(b.pointwise("neg", [b.reduction("sum", x, [0], D.Int32)], D.Int32))
    s = ScheduleBuilder(b.freeze())
    s.reorder("t1", {1: 0})
    s.split("t1", 1, 7)
    s.split("t1", 1, 16)
    first = s.rfactor("t1", [3])
    assert isinstance(first, str)
    s.parallelize(first, 1, P.grid_x)
    s.parallelize(first, 3, P.grid_y)
    s.parallelize("t1", 1, P.grid_x)
    s.inline_most()
    check(s, [integers((40, 2), D.Int32)])


# --- predicates, promotion --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduced", [False, True])
def test_a_part_of_one_element_is_split_again(reduced):
    b = FusionBuilder()
    x = b.input_tensor(D.Int32, [4])
    y = b.reduction("sum", x, [0], D.Int32) if reduced else b.pointwise("neg", [x], D.Int32)
    b.add_output(y)
    s = ScheduleBuilder(b.freeze())
    s.split("t1", 0, 8)
    s.split("t1", 0, 4)
    check(s, [integers((4,), D.Int32)])


def test_a_broadcast_axis_does_not_become_a_dim_that_the_tensor_has():
    b = FusionBuilder()
    x, y = b.input_tensor(D.Float, [3]), b.input_tensor(D.Float, [-1, 3])
    column = b.pointwise("relu", [b.broadcast(x, [True, False])], D.Float)
    b.add_output(b.pointwise("add", [column, y], D.Float))
    s = ScheduleBuilder(b.freeze())
    s.reorder("t4", {0: 1, 1: 0})
    s.parallelize("t2", 0, P.block_y)
    s.set_memory_type("t3", MemoryType.shared)
    s.inline_most()
    assert s.state("t3").inline_at == 0
    check(s, [integers((3,)), integers((8, 3))])


# --- shared memory and barriers ---------------------------------------------------------------------------------------


def test_shared_memory_of_a_symbolic_size():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1])
    y = b.pointwise("exp", [x], D.Float)
    b.add_output(b.pointwise("floor", [b.pointwise("add", [y, y], D.Float)], D.Float))
    s = ScheduleBuilder(b.freeze())
    s.set_memory_type("t1", MemoryType.shared)
    s.set_memory_type("t2", MemoryType.shared)
    for name in ("t1", "t2", "t3"):
        s.parallelize(name, 0, P.block_x)
    check(s, [integers((33,))])


A = Buffer("a", D.Float, MemoryType.shared, const(32))
TARGET = Buffer("r", D.Float, MemoryType.local, ONE)
TID = symbol("threadIdx.x", 0, 31)
WRITE, READ = Store(A, TID, Literal(0.0, D.Float)), Store(TARGET, ZERO, Load(A, ZERO))


def barriers(*body) -> int:
    synced = insert_syncs((Allocate(A), Allocate(TARGET), *body), {"a": ZERO}, frozenset(), frozenset())
    return sum(isinstance(s, BlockBarrier) for s in walk(synced))


def test_a_loop_that_may_not_run_parts_nothing():
    inside = (BlockBarrier("given"),)
    n, i, j = symbol("n"), symbol("i", below=symbol("n")), symbol("j", 0, 3)
    assert barriers(WRITE, For(i, ZERO, n, ONE, inside), READ) == 2
    assert barriers(WRITE, For(j, ZERO, const(4), ONE, inside), READ) == 1


def test_a_barrier_deep_inside_loops_stays():
    i, j = symbol("i", 0, 3), symbol("j", 0, 3)
    inner = For(j, ZERO, const(4), ONE, (BlockBarrier("given"),))
    assert barriers(For(i, ZERO, const(4), ONE, (inner,))) == 1


# --- nothing ----------------------------------------------------------------------------------------------------------


def test_a_dim_that_is_statically_empty_is_merged():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], [False, False], DataType.Double)
        fd.add_output(fd.ops.set(fd.ops.expand(fd.ops.broadcast(x, [True, False, False]), [17, 0, 3])))
        fd.add_output(fd.ops.set(x))
    wide, same = fd.execute([np.zeros((0, 3))])
    assert wide.shape == (17, 0, 3)
    assert same.shape == (0, 3)


def test_an_output_of_one_element_beside_wide_ones():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], [False], DataType.Float)
        one = fd.ops.add(fd.ops.sum(x, [0], keepdim=True), 1.0)
        fd.add_output(fd.ops.add(fd.ops.set(one), x))
        fd.add_output(one)
    for n in (2, 8, 4096):
        array = integers((n,))
        wide, single = fd.execute([array])
        np.testing.assert_array_equal(wide, array + array.sum() + 1)
        np.testing.assert_array_equal(single, [array.sum() + 1])


# --- collectives and waits --------------------------------------------------------------------------------------------


def test_reductions_do_not_meet_across_a_wait_of_the_grid():
    """The second sum over z stood behind the wait for what the first one's block writes, and drew the first past it."""
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1])
    total = b.reduction("sum", x, [0], D.Float)
    y = b.pointwise("add", [x, b.broadcast(total, [True])], D.Float)
    b.add_output(total)
    b.add_output(b.reduction("min", y, [0], D.Float))
    fusion = b.freeze()
    first, second = (t.name for t in fusion.output_tensors)
    s = ScheduleBuilder(fusion)
    s.split(first, 0, 4)
    s.transform_like(first)
    parts = [s.rfactor(name, [1]) for name in (first, second)]
    for name in (*parts, y.name):
        s.parallelize(name, 0, P.grid_y)
        s.parallelize(name, 1, P.grid_z)
    for name in (first, second):
        s.parallelize(name, 0, P.grid_y)
    s.inline_most()
    check(s, [integers((11,))], seeds=(0, 1, 2))


@pytest.mark.parametrize("columns", [5, 17])
def test_blocks_of_unknown_size_join_many_threads(columns):
    """Joining in two steps took the number of threads for a constant."""
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, -1])
    r = b.reduction("sum", x, [0], D.Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split(r.name, 1, 4)
    s.split(r.name, 0, 16)
    for axis, kind in ((1, P.block_y), (2, P.block_x)):
        s.parallelize(r.name, axis, kind)
    check(s, [integers((37, columns))])


# --- rows cut at their own aligned places -----------------------------------------------------------------------------


def test_a_value_per_place_of_all_rows_is_refused():
    """Column sums were those of diagonals: place 0 of a part is another column in each row."""
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, -1])
    r = b.reduction("sum", x, [0], D.Float)
    b.add_output(b.pointwise("add", [x, b.broadcast(r, [True, False])], D.Float))
    s = ScheduleBuilder(b.freeze())
    s.split_aligned(r.name, 1, 4, x.name)
    s.reorder(r.name, {1: 0, 0: 1})
    s.transform_like(r.name)
    s.inline_most()
    assert "has a value for each place of a row" in refusal(s, frozenset([UnitStride(x.name, 1)]))


def test_parts_of_a_sum_of_everything_may_belong_to_any_column():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, -1])
    r = b.reduction("sum", x, [0, 1], D.Float)
    b.add_output(r)
    s = ScheduleBuilder(b.freeze())
    s.split_aligned(r.name, 1, 4, x.name)
    s.rfactor(r.name, [0, 1])
    check(s, [integers((5, 17))])
