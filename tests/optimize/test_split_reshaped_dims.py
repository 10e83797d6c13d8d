"""split_reshaped_dims: what becomes of reshapes, how many kernels are left, and where memory order comes from."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, ParallelType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import concrete_fusion, plan_fusion
from fuser.compiler.recorder import Recorder
from fuser.errors import SchedulingError
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Reshape, Resize
from fuser.ir.fusion.reshape_dims import Run, resolve
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.ir.ops.enums import SchedulerType
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from tests.frontend.building import define, evaluate

D = DataType


def schedulers(fd: FusionDefinition, *arrays: Any) -> list[str]:
    """Schedulers of the segments for these inputs."""
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    concrete = concrete_fusion(fusion, bind_inputs(fusion, arrays, check_extents=False))
    return [s.scheduler.type.name for s in plan_fusion(concrete, Recorder()).segments]


def kernels(fd: FusionDefinition, *arrays: Any) -> list[str]:
    """The same without views."""
    return [s for s in schedulers(fd, *arrays) if s != SchedulerType.no_op.name]


def check(fd: FusionDefinition, *arrays: Any, tolerance: float = 0.0) -> list[Any]:
    """Execute on the simulator and compare with the reference."""
    found = fd.execute(list(arrays), device="simulator")
    for made, expected in zip(found, evaluate(fd, *arrays), strict=True):
        np.testing.assert_allclose(np.asarray(made, np.float64), np.asarray(expected, np.float64), atol=tolerance)
    return found


def values(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(3).normal(size=shape).astype(dtype)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_runs() -> None:
    def runs(a: list[int], b: list[int]) -> Any:
        found = resolve(a, b, [True] * len(a), [True] * len(b))
        return None if found is None else [(r.inputs, r.outputs) for r in found.runs]

    assert runs([4, 1, 6], [24]) == [((0, 1), (0,))]
    assert runs([64, 256, 7], [64, 32, 8, 7]) == [((0,), (0,)), ((1,), (1, 2)), ((2,), (3,))]
    assert runs([4, 6], [6, 4]) == [((0, 1), (0, 1))]
    assert runs([1, 1], [1]) == []
    assert runs([4, 6], [5, 5]) is None
    found = resolve([4, 6], [6, 4], [False, True], [True, True])
    assert found is not None
    assert found.runs == (Run((0, 1), (0, 1), ((4, 6), (6, 4))),)


# Dims of one extent, static or not, declared or made: (declared extents, shape of the input, what is flattened).
def neg(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.neg(x)


def squared(fd: FusionDefinition, x: Any) -> Any:
    """[.., n] -> [.., n, n]: both dims are one symbol."""
    flags = [False] * x.ndim
    return fd.ops.broadcast(x, [*flags, True]) - fd.ops.broadcast(x, [*flags[1:], True, False])


def expanded(fd: FusionDefinition, x: Any) -> Any:
    """[.., n, 1] -> [.., n, n]."""
    return fd.ops.neg(fd.ops.expand(x, [-1] * (x.ndim - 1) + [x.size(x.ndim - 2)]))


def filled(fd: FusionDefinition, x: Any) -> Any:
    n = x.size(0)
    return fd.ops.full([n, n, n], 1.0, D.Float)


REPEATED = [
    (neg, [-1, -1, 3, 3], (4, 6, 3, 3)),
    (neg, [-1, 5, 5], (3, 5, 5)),
    (neg, [-1, -1, -1, 5, 5], (3, 3, 3, 5, 5)),
    (neg, [3, 3, -1, 3], (3, 3, 2, 3)),
    (squared, [-1], (8,)),
    (squared, [-1, -1], (3, 5)),
    (squared, [-1, 3, 3], (2, 3, 3)),
    (expanded, [-1, 1], (8, 1)),
    (expanded, [-1, -1, 1], (4, 6, 1)),
    (filled, [-1], (3,)),
]


@pytest.mark.in_turns
@pytest.mark.parametrize(("made", "declared", "shape"), REPEATED)
@pytest.mark.parametrize("also", ["alone", "unflattened", "argument", "both"])
def test_flattening_dims_of_one_extent(made: Any, declared: list[int], shape: tuple[int, ...], also: str) -> None:
    """One kernel, also where the values are returned unflattened; the argument flattened is a view, or a copy of its own."""

    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor(declared, [True if n != 1 else None for n in declared])
        y = made(fd, x)
        found = [fd.ops.reshape(y, [-1])]
        found += [y] if also in ("unflattened", "both") else []
        found += [fd.ops.reshape(x, [-1])] if also in ("argument", "both") else []
        return tuple(found)

    fd = define(body)
    gap = values(*shape[:-1], shape[-1] + 2)[..., : shape[-1]]
    for x in (values(*shape), gap):
        check(fd, x)
        if also in ("alone", "unflattened"):
            assert len(kernels(fd, x)) == 1


def test_rows_of_dims_of_one_extent() -> None:
    """Parts that two reshapes ask for, of dims that have one extent in common."""

    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1, 3, 3], True)
        rows = fd.ops.reshape(x, [x.size(0), -1])
        return fd.ops.sum(rows * rows, [1]), fd.ops.reshape(x, [-1]), fd.ops.reshape(fd.ops.neg(rows), [-1, 3])

    check(define(body), values(4, 6, 3, 3), tolerance=1e-5)


def test_parts_of_dims_that_are_one_another_end() -> None:
    """Each of three dims is a reshape of the next: they take the simplest of their extents and keep it."""

    def body(fd: FusionDefinition) -> Any:
        x, y, z = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        sources = [fd.ops.reshape(t, [-1, 2, 2]) for t in (x, y, z)]
        one = fd.ops.reshape(sources[0], [y.size(0), 4]) * y
        two = fd.ops.reshape(sources[1], [z.size(0), 4]) * z
        three = fd.ops.reshape(sources[2], [x.size(0), 4]) * x
        return one, two, three, fd.ops.reshape(one, [-1]), fd.ops.reshape(three, [-1, 2, 2])

    check(define(body), *(values(6, 4) for _ in range(3)))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("cut", [0, 1])
def test_a_scanned_dim_is_whole(dim: int, cut: int) -> None:
    """A scan goes along a whole dim, whatever is made of that before or after; its other dims may be cut."""

    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1], True)
        y = fd.ops.cumsum(fd.ops.neg(x), dim)
        shapes = [[3, 2, 8], [6, 2, 4]]
        return fd.ops.exp(fd.ops.reshape(y, shapes[cut])), fd.ops.cumsum(
            fd.ops.reshape(fd.ops.reshape(x, [2, 24]), [6, 8]), dim
        )

    check(define(body), values(6, 8), tolerance=1e-3)


# --- kernels ----------------------------------------------------------------------------------------------------------


def group_norm(fd: FusionDefinition, groups: int, dtype: DataType, shape: tuple[int, ...]) -> Any:
    x = fd.define_tensor([-1] * 4, True, dtype)
    w, b = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
    n, c, *rest = shape
    wide = fd.ops.reshape(fd.ops.cast(x, D.Float), [n, groups, c // groups, *rest])
    variance, mean = fd.ops.var_mean(wide, [2, 3, 4], 0, True)
    normal = fd.ops.reshape((wide - mean) * fd.ops.rsqrt(variance + 1e-5), list(shape))
    w, b = (fd.ops.broadcast(t, [True, False, True, True]) for t in (w, b))
    return fd.ops.cast(normal * w + b, dtype)


@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels_last"])
@pytest.mark.parametrize("shape", [(2, 16, 4, 8), (3, 6, 5, 7)])
def test_group_norm_is_one_kernel(shape: tuple[int, ...], last: bool) -> None:
    fd = define(lambda fd: group_norm(fd, 2, D.Float, shape))
    x = values(*shape)
    if last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    arrays = x, values(shape[1]), values(shape[1])
    assert len(kernels(fd, *arrays)) == 1
    check(fd, *arrays, tolerance=2e-5)


def test_group_norm_keeps_rows_in_registers() -> None:
    shape = (2, 16, 4, 8)
    fd = define(lambda fd: group_norm(fd, 2, D.BFloat16, shape))
    x = values(*shape).astype(D.BFloat16.numpy)
    arrays = x, values(16), values(16)
    assert schedulers(fd, *arrays) == ["no_op", "inner_persistent", "no_op"]
    (found,) = check(fd, *arrays, tolerance=2e-2)
    assert np.asarray(found).flags.c_contiguous


@pytest.mark.parametrize("new_shape", [[24], [2, 2, 6], [4, 3, 2], [2, 12], [8, 3], [1, 4, 6, 1], [-1, 3]])
def test_a_reshape_between_ops_costs_no_kernel(new_shape: list[int]) -> None:
    fd = define(lambda fd: fd.ops.exp(fd.ops.reshape(fd.ops.neg(fd.define_tensor([-1, -1], True)), new_shape)))
    x = values(4, 6)
    assert kernels(fd, x) == ["pointwise"]
    check(fd, x, tolerance=1e-5)


def test_dims_without_common_parts_cut() -> None:
    fd = define(lambda fd: fd.ops.exp(fd.ops.reshape(fd.ops.neg(fd.define_tensor([-1, -1], True)), [6, 4])))
    assert schedulers(fd, values(4, 6)) == ["pointwise", "no_op", "pointwise"]
    check(fd, values(4, 6), tolerance=1e-5)


def test_a_slice_of_a_dim_that_is_cut_is_a_segment_of_its_own() -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.ops.exp(fd.ops.reshape(fd.define_tensor([4, 6], True), [24]))
        return fd.ops.slice(x, [1], [23])

    check(define(body), values(4, 6), tolerance=1e-5)


def test_reductions_over_merged_and_split_dims() -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1], True)
        split = fd.ops.reshape(fd.ops.abs(x), [4, 3, 8])
        merged = fd.ops.reshape(split, [12, 8])
        return fd.ops.sum(split, [1]), fd.ops.max(merged, [0]), fd.ops.reshape(fd.ops.sum(merged, [1]), [2, 6])

    check(define(body), values(4, 24), tolerance=1e-5)


def test_symbolic_merges_serve_every_shape_with_one_kernel() -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1, -1], True)
        return fd.ops.exp(fd.ops.reshape(x, [-1, x.size(2)]))

    fd = define(body)
    for shape in [(4, 6, 32), (8, 10, 64), (2, 16, 96), (6, 22, 32)]:
        check(fd, values(*shape), tolerance=1e-5)
    assert fd.fec.counters()["kernels_compiled"] == 1


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [True, False])
def test_a_returned_reshape_is_a_view(declared: bool) -> None:
    """It is one if the elements lie so, whatever was declared."""
    fd = define(lambda fd: fd.ops.reshape(fd.define_tensor([-1, -1], declared), [24]))
    dense = values(4, 6)
    assert schedulers(fd, dense) == ["no_op"]
    check(fd, dense)
    turned = np.asfortranarray(dense)
    assert schedulers(fd, turned) != ["no_op"]
    check(fd, turned)
    # Dims that are not merged need not be neighbours.
    split = define(lambda fd: fd.ops.reshape(fd.define_tensor([-1, -1], declared), [2, 2, 6]))
    assert schedulers(split, turned) == ["no_op"]
    check(split, turned)


def test_a_value_and_a_reshape_of_it_are_two_arrays() -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.ops.neg(fd.define_tensor([4, 6], True))
        return x, fd.ops.reshape(x, [24]), fd.ops.reshape(x, [6, 4])

    found = check(define(body), values(4, 6))
    for i, a in enumerate(found):
        for b in found[i + 1 :]:
            assert not np.shares_memory(np.asarray(a), np.asarray(b))


def test_update_of_an_input_through_reshapes() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = fd.ops.reshape(fd.ops.exp(fd.ops.reshape(x, [2, 2, 6])), [4, 6])
        fd.add_output(y, x)
        fd.add_output(fd.ops.reshape(x, [24]) * 2.0)
    a = values(4, 6)
    given = a.copy()
    (doubled,) = fd.execute([given], device="simulator")
    np.testing.assert_allclose(doubled, 2 * a.reshape(24))
    np.testing.assert_allclose(given, np.exp(a), rtol=1e-6)


# --- memory order -----------------------------------------------------------------------------------------------------


def test_dims_of_outputs_stay_in_place() -> None:
    """What a reshape makes of a dim has its place in the memory order of the reference."""
    x = np.asfortranarray(values(4, 6))

    def order(new_shape: list[int], *more: list[int]) -> tuple[int, ...]:
        with FusionDefinition() as fd:
            t = fd.ops.neg(fd.define_tensor([4, 6], True, stride_order=[0, 1]))
            for shape in (new_shape, *more):
                t = fd.ops.reshape(t, shape)
            fd.add_output(t)
        (found,) = check(fd, x)
        return tuple(s // 4 for s in np.asarray(found).strides)

    assert order([4, 6]) == (1, 4)
    assert order([2, 2, 6]) == (2, 1, 4)
    assert order([4, 3, 2]) == (1, 8, 4)
    assert order([4, 3, 2], [4, 6]) == (1, 4)


# --- schedules by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new_shape", [[24], [2, 2, 6], [6, 4], [4, 3, 2]])
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_schedule_propagates_over_a_reshape(new_shape: list[int], scheduled: bool) -> None:
    with FusionDefinition() as fd:
        z = fd.ops.exp(fd.ops.reshape(fd.ops.neg(fd.define_tensor([4, 6], True)), new_shape))
        fd.add_output(z)
        if scheduled:
            for _ in range(len(new_shape) - 1):
                z.merge(0)
            z.split(0, 8)
            fd.sched.transform_like(z)
            z.axis(0).parallelize(ParallelType.grid_x)
            z.axis(1).parallelize(ParallelType.block_x)
            fd.sched.parallelize_like(z)
            fd.sched.inline_most()
    x = values(4, 6)
    np.testing.assert_allclose(fd.manual_execute([x])[0], np.exp(-x.reshape(new_shape)), rtol=1e-6)


def test_threads_do_not_read_each_others_registers_through_a_reshape() -> None:
    with FusionDefinition() as fd:
        z = fd.ops.exp(fd.ops.reshape(fd.ops.neg(fd.define_tensor([4, 6], True)), [6, 4]))
        fd.add_output(z)
        z.axis(0).parallelize(ParallelType.block_x)
    with pytest.raises(SchedulingError, match="kept in registers"):
        fd.manual_execute([values(4, 6)])


def test_every_reshape_of_the_optimized_fusion_is_a_view_between_kernels() -> None:
    fd = define(lambda fd: group_norm(fd, 2, D.Float, (2, 16, 4, 8)))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [values(2, 16, 4, 8), values(16), values(16)], check_extents=False)
    segments = plan_fusion(concrete_fusion(fusion, bound), Recorder()).segments
    for s in segments:
        has_reshape = any(isinstance(e, Reshape) for e in s.fusion.tensor_exprs)
        assert has_reshape is (s.scheduler.type is SchedulerType.no_op)


def test_a_window_that_reaches_the_end_does_so_by_the_new_name_of_the_extent() -> None:
    """Parts of an expanded dim are called as the input's dim is; nothing is tested along those that are not padded."""

    def body(fd: FusionDefinition) -> Any:
        x = fd.ops.neg(fd.define_tensor([-1, -1], True))
        pairs = fd.ops.pad(fd.ops.broadcast_in_dim(x, [4, 6, 1], [0, 1]), [0, 1])
        return fd.ops.reshape(pairs, [4, 12])

    fusion = define(body).fusion
    assert fusion is not None
    windows = [
        (w.end, d.extent)
        for e in split_reshaped_dims(fusion.ir_fusion).exprs
        if isinstance(e, Resize)
        for w, d in zip(e.windows[:-1], e.output.visible[:-1], strict=True)
    ]
    assert len(windows) == 2
    assert all(end is extent for end, extent in windows)


# --- reads at indices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbolic", [False, True])
def test_codes_of_a_word_are_looked_up_in_one_kernel(symbolic: bool) -> None:
    """Codes are unpacked, flattened, looked up, and seen as rows again: nothing of that is in memory."""
    n, k = 6, 5
    with FusionDefinition() as fd:
        words = fd.define_tensor([-1, -1] if symbolic else [n, k], True, D.Int32)
        table, scale = fd.define_tensor([-1], True), fd.define_tensor([-1, -1], True)
        shifts = fd.ops.iota(8, 0, 4, D.Int32)
        codes = fd.ops.bitwise_and(
            fd.ops.bitwise_right_shift(
                fd.ops.broadcast(words, [False, False, True]), fd.ops.broadcast(shifts, [True, True, False])
            ),
            15,
        )
        found = fd.ops.index_select(table, fd.ops.reshape(codes, [8 * n * k]), 0)
        scaled = fd.ops.reshape(found, [n, k, 8]) * fd.ops.broadcast(scale, [False, False, True])
        fd.add_output(fd.ops.reshape(scaled, [n, 8 * k]))
    arrays = [np.arange(n * k, dtype=np.int32).reshape(n, k) * 7654321, values(16), values(n, k)]
    assert kernels(fd, *arrays) == ["pointwise"]
    check(fd, *arrays)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_rows_beside_looked_up_ones_are_parts(dim: int, rank: int) -> None:
    """Dims of the table beside the gathered one, and those of the index, are cut as those of any other tensor."""
    shape = [4, 6, 8]
    length = 12 if rank else 1
    kept = [s for d, s in enumerate(shape) if d != dim]
    with FusionDefinition() as fd:
        table, index = fd.define_tensor(shape, True), fd.define_tensor([length] if rank else [], [True] * rank, D.Int)
        rows = fd.ops.exp(table) if dim else fd.ops.neg(table)
        made = fd.ops.index_select(rows, fd.ops.add(index, 1), dim)
        cut = [c for d in range(3) for c in ((length // 3, 3) if rank else (1,)) * (d == dim) or (shape[d] // 2, 2)]
        parts = fd.ops.reshape(made, cut)
        fd.add_output(fd.ops.reshape(parts + parts, [length * kept[0] * kept[1]]))
    index_values = np.arange(length, dtype=np.int64) % 3 if rank else np.array(2, np.int64)
    assert len(kernels(fd, values(*shape), index_values)) == 1
    check(fd, values(*shape), index_values, tolerance=1e-6)


@pytest.mark.parametrize("name", ["take_along_axis", "gather"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_looked_up_where_a_flow_says(name: str, channels: int) -> None:
    """Positions of pixels are computed by row and column, flattened for the lookup, and what is found is an image again."""
    n, h, w = 2, 4, 6
    with FusionDefinition() as fd:
        o = fd.ops
        image, flow = fd.define_tensor([-1] * 4, True), fd.define_tensor([-1] * 3, True)
        row = o.clamp(o.broadcast(o.cast(o.iota(h), D.Float), [True, False, True]) + flow, 0.0, h - 1.0)
        position = o.cast(row, D.Int) * w + o.broadcast(o.iota(w), [True, True, False])
        flat, index = o.reshape(image, [n, channels, h * w]), o.reshape(position, [n, 1, h * w])
        if name == "gather":
            index = o.expand(index, [n, channels, h * w])
        found = o.reshape(getattr(o, name)(flat, index, 2), [n, channels, h, w])
        fd.add_output(o.mul(found, o.broadcast(flow, [False, True, False, False])))
    arrays = values(n, channels, h, w), values(n, h, w) * 3
    assert kernels(fd, *arrays) == ["pointwise"]
    check(fd, *arrays)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_parts_of_each_dim_of_a_lookup(dim: int) -> None:
    """The gathered dim of what is looked up stays whole, and stands beside the parts of the index."""
    shape = [4, 6, 8]
    with FusionDefinition() as fd:
        o = fd.ops
        table, index = fd.define_tensor(shape, True), fd.define_tensor(shape, True, D.Int)
        found = o.take_along_axis(o.neg(table), o.bitwise_and(index, 3), dim)
        parts = o.reshape(found, [2, 2, 3, 2, 4, 2])
        fd.add_output(parts + parts)
    arrays = values(*shape), np.arange(4 * 6 * 8, dtype=np.int64).reshape(shape) * 7 % 29
    assert len(kernels(fd, *arrays)) == 1
    check(fd, *arrays, tolerance=1e-6)


def test_several_extents_with_a_constant_product_are_known() -> None:
    """Rows of a flattened tensor whose number of elements is a constant: what is made of it again has the same dims."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1, 8], True) for _ in range(2))
        flat = fd.ops.reshape(fd.ops.exp(x), [240])
        again = fd.ops.reshape(flat, [6, 5, 8])
        fd.add_output(again * y)
    arrays = values(6, 5, 8), values(6, 5, 8)
    assert schedulers(fd, *arrays) == ["pointwise"]
    check(fd, *arrays)
    # Other shapes with that product are other programs.
    check(fd, values(5, 6, 8), values(6, 5, 8))


def rolled(o: Any, x: Any, shift: int, axis: int) -> Any:
    """torch.roll(x, -shift, axis)."""
    starts, ends = [0] * x.ndim, [x.size(d) for d in range(x.ndim)]
    later, sooner = [[shift if d == axis else e for d, e in enumerate(known)] for known in (starts, ends)]
    return o.cat([o.slice(x, later, ends), o.slice(x, starts, sooner)], axis)


def centered(o: Any, x: Any) -> Any:
    return x - o.max(x, -1, True)


READS: dict[str, Callable[[Any, Any], Any]] = {
    "a window partition of a roll": lambda o, x: (
        rolled(o, rolled(o, x, 3, 1), 2, 2).reshape(2, 3, 4, 2, 3, 8).permute(0, 1, 3, 2, 4, 5) * 2.0
    ),
    "patches behind a first token": lambda o, x: o.exp(o.slice(x, [0, 3, 0, 0], [2, 12, 6, 8])).reshape(2, 3, 3, 6, 8),
    "heads of a part": lambda o, x: o.slice(x, [0, 0, 0, 4], [2, 12, 6, 8]).reshape(2, 12, 6, 2, 2) * 2.0,
    "heads of two parts": lambda o, x: o.mul(*(o.slice(x, [0, 0, 0, k], [2, 12, 6, k + 4]) for k in (0, 4))).reshape(
        2, 12, 6, 2, 2
    ),
    "a filled part": lambda o, x: o.pad(x, [0, 0, 0, 0, 1, 3]).reshape(2, 4, 4, 6, 8) * 2.0,
    "a sum over a part": lambda o, x: o.sum(o.slice(x, [0, 3, 0, 0], [2, 12, 6, 8]).reshape(2, 3, 3, 6, 8), [2]),
    "a part of rows": lambda o, x: centered(o, o.slice(x, [0, 0, 0, 4], [2, 12, 6, 8]).reshape(2, 12, 6, 2, 2)),
    "an output": lambda o, x: o.slice(x, [0, 3, 0, 0], [2, 12, 6, 8]).reshape(2, 3, 3, 6, 8),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", READS)
def test_what_is_read_of_an_input_is_cut(name: str, symbolic: bool) -> None:
    """The result of a window is parts of dims that are whole in the input: one kernel reads and computes it."""
    x = np.random.default_rng(0).integers(-3, 4, (2, 12, 6, 8)).astype(np.float64)
    with FusionDefinition() as fd:
        given = fd.define_tensor([-1] * 4 if symbolic else list(x.shape), True, D.Double)
        fd.add_output(READS[name](fd.ops, given))
    check(fd, x, tolerance=1e-12)
    assert len(kernels(fd, x)) == 1


@pytest.mark.parametrize("name", READS)
def test_values_of_what_is_read_are_the_same_after_the_pass(name: str) -> None:
    x = np.arange(2 * 12 * 6 * 8, dtype=np.float64).reshape(2, 12, 6, 8) / 500
    with FusionDefinition() as fd:
        fd.add_output(READS[name](fd.ops, fd.define_tensor(list(x.shape), True, D.Double)))
    assert fd.fusion is not None
    before = join_pieces(fd.fusion.ir_fusion)
    after = split_reshaped_dims(before)
    verify_fusion(after)
    np.testing.assert_array_equal(evaluate_fusion(after, [x])[0], evaluate_fusion(before, [x])[0])


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_a_roll_of_a_value_seen_as_other_dims(axis: int) -> None:
    """Its dims are whole, and its pieces stay."""
    x = values(2, 12, 6, 8)
    with FusionDefinition() as fd:
        y = rolled(fd.ops, fd.define_tensor(list(x.shape), True, D.Float) * 2.0, 3, axis)
        fd.add_output(y.reshape(2, 3, 4, 6, 2, 4))
    check(fd, x)


@pytest.mark.parametrize("seed", range(40))
def test_random_windows_seen_as_other_dims(seed: int) -> None:
    """Slices, rolls, pads and sums of parts of an input of any layout, then a dim cut in two, in any order of dims."""
    rng = random.Random(seed)
    shape = [rng.choice((2, 3, 7, 8, 12, 16, 24, 33, 60)) for _ in range(rng.randint(2, 3))]
    axis, dtype = rng.randrange(len(shape)), rng.choice((D.Half, D.Float, D.Double))
    x = np.random.default_rng(seed).integers(-4, 5, [*shape[:-1], shape[-1] + rng.choice((0, 0, 1, 8))])
    x = x.astype(dtype.numpy)[..., : shape[-1]]
    count, symbolic = shape[axis], rng.random() < 0.5
    with FusionDefinition() as fd:
        o = fd.ops
        t = fd.define_tensor([-1] * x.ndim if symbolic else shape, bool(x.flags.c_contiguous), dtype)
        t = t * 2.0 if rng.random() < 0.3 else t

        def part(begin: int, end: int) -> Any:
            starts = [begin if d == axis else 0 for d in range(x.ndim)]
            return o.slice(t, starts, [end if d == axis else n for d, n in enumerate(shape)])

        at = rng.randint(1, count - 1)
        kind = rng.choice(("slice", "roll", "pad", "two"))
        match kind:
            case "slice":
                made, count = part(at, count), count - at
            case "roll":
                made = o.cat([part(at, count), part(0, at)], axis)
            case "pad":
                widths = [2 if d == axis else 0 for d in reversed(range(x.ndim)) for _ in "lr"]
                made, count = o.pad(t, widths), count + 4
            case _:
                made, count = part(0, count // 2) + part(count - count // 2, count), count // 2
        cut = rng.choice([d for d in range(1, count + 1) if count % d == 0])
        whole = [*shape[:axis], cut, count // cut, *shape[axis + 1 :]]
        seen = o.permute(o.reshape(made, whole), rng.sample(range(len(whole)), len(whole)))
        results = (lambda: seen, lambda: seen * 3.0, lambda: o.sum(seen, [0]), lambda: seen - o.max(seen, -1, True))
        fd.add_output(o.cast(rng.choice(results)(), dtype))
    check(fd, x)


def test_accesses_reach_across_parts_of_a_slice(caplog: pytest.LogCaptureFixture) -> None:
    """Runs of four halfwords, read and written as one access of eight: what divides all parts is known of their product."""
    x = np.random.default_rng(0).integers(-4, 5, (512, 320)).astype(np.float16)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, D.Half)
        fd.add_output(t[:, 160:].reshape(512, 5, 8, 4))
    check(fd, x)
    assert caplog.messages == []
    assert len(fd.program([x]).launches()) == 1
