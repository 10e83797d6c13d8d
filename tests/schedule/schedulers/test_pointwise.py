"""The loops that the pointwise scheduler chooses, the text they give, and results for odd sizes and layouts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.layouts import row_major
from fuser.schedule.cost import pointwise_space
from fuser.schedule.params import Aligned, Peeled, PointwiseParams, Unaligned
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler
from fuser.schedule.segmentation.segment import Segment
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place
from tests.judging.harness import run_on
from tests.schedule.analysis.cell_programs import accesses, sources

H200 = DeviceInfo.preset("H200")
Array = np.ndarray[Any, Any]
Define = Callable[[FusionDefinition], None]
BFloat16, Float, Half, Bool, Double = (
    DataType.BFloat16,
    DataType.Float,
    DataType.Half,
    DataType.Bool,
    DataType.Double,
)


def tensor(dtype: DataType, *shape: int, strides: Sequence[int] = (), alignment: int = 256) -> TensorDescriptor:
    return TensorDescriptor(dtype, shape, tuple(strides) or row_major(shape), alignment)


def segment_inputs(fusion: Fusion, inputs: Sequence[TensorDescriptor]) -> SegmentInputs:
    bound = bind_inputs(fusion, inputs)
    return SegmentInputs(bound.tensors, bound.evaluate)


def compiled(define: Define, *inputs: TensorDescriptor) -> tuple[CompiledKernel, PointwiseParams]:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    segment = Segment(fusion, PointwiseScheduler(), ())
    kernel, params = KernelCompiler(H200).compile_segment(segment, bind_inputs(fusion, inputs))
    assert isinstance(params, PointwiseParams)
    assert kernel.resources is not None
    assert (kernel.resources.spill_bytes, kernel.resources.stack_bytes) == (0, 0)
    return kernel, params


def body(kernel: CompiledKernel) -> str:
    return kernel.source[kernel.source.index('extern "C"') :]


def row_bias(fd: FusionDefinition) -> None:
    x, b = fd.define_tensor([-1, -1], True, BFloat16), fd.define_tensor([-1], True, BFloat16)
    fd.add_output(fd.ops.tanh(x + fd.ops.broadcast(b, [True, False])))


def column_scale(fd: FusionDefinition) -> None:
    x, s = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1], True, Float)
    fd.add_output(x * fd.ops.broadcast(s, [False, True]))


def mixed(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1], True, BFloat16), fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.cast(fd.ops.cast(x, Float) + y, BFloat16))


def swapped_middle(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1] * 4, True, BFloat16)
    fd.add_output(fd.ops.neg(fd.ops.permute(x, [0, 2, 1, 3])))


def added(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.relu(x + y))


def test_a_row_operand_is_read_once_for_several_rows_and_nothing_is_divided() -> None:
    kernel, params = compiled(row_bias, tensor(BFloat16, 16384, 8192), tensor(BFloat16, 8192))
    assert params.merged_dims == ((1,), (1,))
    assert params.unroll > 1
    text = body(kernel)
    assert "%" not in text
    assert set(re.findall(r"/ \w+", text)) <= {f"/ {params.vector}"}, "only the number of vectors of a row"
    assert text.count("&t1[") == 1
    loads = [m.start() for m in re.finditer(r"reinterpret_cast<const uint[24]\*>\(&t[01]\[", text)]
    assert len(loads) == 2
    assert max(loads) < text.index("tanh"), "all loads come before the first use"


def test_a_column_operand_is_read_once_a_row() -> None:
    kernel, params = compiled(column_scale, tensor(Float, 8192, 8192), tensor(Float, 8192))
    assert params.merged_dims == ((1,), (1,))
    assert "= t1[bid_y];" in body(kernel)


def test_the_output_is_walked_as_it_lies_where_no_input_has_all_of_its_dims() -> None:
    """More rows are gathered than the table has elements: the indices are the largest input."""

    def gathered(fd: FusionDefinition) -> None:
        table, rows = fd.define_tensor([-1, -1], True, Half), fd.define_tensor([-1], True, DataType.Int)
        fd.add_output(fd.ops.neg(fd.ops.index_select(table, rows, 0)))

    _, params = compiled(gathered, tensor(Half, 1000, 64), tensor(DataType.Int, 100_003))
    assert params.order == (0, 1)
    assert dict(params.vector_widths).keys() == {"t0@t2", "t4"}


def looked_up(fd: FusionDefinition) -> list[Any]:
    """Rows of two tables beside one another, and beside a tensor."""
    wide, narrow = (fd.define_tensor([-1, n], True, Half) for n in (64, 32))
    i, j = (fd.define_tensor([-1], True, DataType.Int) for _ in range(2))
    x = fd.define_tensor([-1, 32], True, Half)
    parts = [fd.ops.index_select(wide, i, 0), fd.ops.index_select(narrow, j, 0), x]
    return [fd.ops.neg(fd.ops.cat(parts, 1))]


def test_rows_looked_up_beside_one_another_are_read_by_vectors() -> None:
    rows = [tensor(DataType.Int, 10_003)] * 2
    described = [tensor(Half, 1000, 64), tensor(Half, 500, 32), *rows, tensor(Half, 10_003, 32)]
    (text,) = sources(looked_up, described)
    loads, stores = accesses(text)
    assert sorted(loads) == [0, 0, 8, 8, 8]  # both indices by element
    assert stores == [16]


@pytest.mark.parametrize("count", [1, 37])
def test_rows_looked_up_beside_one_another_are_right(count: int) -> None:
    numbers = np.random.default_rng(0)
    tables = [numbers.integers(-9, 10, (n, d)).astype("f2") for n, d in ((7, 64), (5, 32))]
    places = [numbers.integers(0, len(t), count) for t in tables]
    x = numbers.integers(-9, 10, (count, 32)).astype("f2")
    with FusionDefinition() as fd:
        for t in looked_up(fd):
            fd.add_output(t)
    (y,) = fd.execute([*tables, *places, x], device="simulator")
    expected = np.concatenate([t[at] for t, at in zip(tables, places, strict=True)] + [x], 1)
    np.testing.assert_array_equal(y, -expected)


def test_one_run_takes_one_index() -> None:
    kernel, params = compiled(added, tensor(Float, 8192, 8192), tensor(Float, 8192, 8192))
    assert (params.merged_dims, params.vector, params.block_shape[1], params.unroll) == (((2,),), 4, 1, 1)
    assert "%" not in body(kernel)
    assert body(kernel).count("if (") == 1, "one test for the whole thread"


def test_every_type_takes_sixteen_bytes() -> None:
    kernel, params = compiled(mixed, tensor(BFloat16, 8192, 8192), tensor(Float, 8192, 8192))
    assert params.vector == 8
    assert dict(params.vector_widths) == {"t0": 8, "t1": 4, "t4": 8}
    assert body(kernel).count("uint4") == 6


def test_what_is_less_aligned_does_not_stop_the_others() -> None:
    inputs = tensor(BFloat16, 8192, 8192), tensor(Float, 8192, 8192, alignment=4)
    params = compiled(mixed, *inputs)[1]
    assert dict(params.vector_widths) == {"t0": 8, "t1": 4, "t4": 8}
    assert not isinstance(params.access, Aligned)
    inputs = tensor(BFloat16, 8192, 8192), tensor(Float, 8192, 8192, alignment=8)
    assert dict(compiled(mixed, *inputs)[1].vector_widths) == {"t0": 8, "t1": 2, "t4": 8}
    inputs = tensor(BFloat16, 8192, 8192), tensor(Float, 8192, 8192, strides=(8194, 1))
    assert dict(compiled(mixed, *inputs)[1].vector_widths) == {"t0": 8, "t1": 2, "t4": 8}


def test_threads_follow_a_short_inner_dim() -> None:
    kernel, params = compiled(swapped_middle, tensor(BFloat16, 16, 4096, 32, 128))
    assert (params.merged_dims, params.block_shape[0], params.grid_axes) == (((1,),) * 4, 0, 3)
    assert params.block_shape[1] * (128 // params.vector) >= 64
    assert "%" not in body(kernel)
    assert "/" not in body(kernel).split("{", 1)[1]


@pytest.mark.parametrize(
    "shape", [(70000, 8, 32, 128), (1 << 21, 3, 5, 8), (3, 1 << 20, 2, 64), (1 << 17, 1 << 6, 1, 8)]
)
def test_more_blocks_than_an_axis_counts_share_one_axis(shape: tuple[int, ...]) -> None:
    """Or are no more, as each has several rows: that takes no divisions."""
    _, params = compiled(swapped_middle, tensor(BFloat16, *shape))
    # The output's dims are those of the input with the middle ones swapped.
    sizes = iter([(shape[0], shape[2], shape[1], shape[3])[d] for d in params.order])
    counts = [math.prod(next(sizes) for _ in range(sum(loop))) for loop in params.merged_dims][:-1]
    if counts and params.grid_axes == 3:
        counts[-1] = -(-counts[-1] // params.block_shape[1])
        counts[-params.unroll_loop] = -(-counts[-params.unroll_loop] // params.unroll)
        by_y_and_z = counts if params.block_shape[0] else counts[:-1]
        assert max(math.prod(by_y_and_z[:-1]), *by_y_and_z[-1:], 1) <= 65535


def table_scale(fd: FusionDefinition) -> None:
    """A table that all batches share, whose rows some padding keeps apart."""
    x, table = fd.define_tensor([-1, -1, -1], True, Double), fd.define_tensor([-1, -1], [False, True], Double)
    fd.add_output(x * fd.ops.broadcast(table, [True, False, False]))


@pytest.mark.parametrize("shape", [(5, 7, 24), (3, 33, 600), (8, 2, 16)])
def test_results_of_a_shared_table(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    x, table = rng.standard_normal(shape), np.zeros((shape[1], shape[2] + 2))[:, : shape[2]]
    table[:] = rng.standard_normal(table.shape)
    np.testing.assert_array_equal(run(table_scale, [x, table])[0], x * table)


def test_tiny_runs_do_not_make_tiny_blocks() -> None:
    """A run of five elements, and three or sixty-four of them to a block."""
    _, params = compiled(swapped_middle, tensor(BFloat16, 4096, 64, 3, 5))
    wide, high = params.block_shape
    assert (wide or 5) * high >= 64


def test_the_last_vector_of_one_run_may_be_cut() -> None:
    _, params = compiled(added, tensor(Float, 8191, 8191), tensor(Float, 8191, 8191))
    assert (params.vector, params.access) == (4, Unaligned())


def test_rows_are_cut_where_the_output_is_aligned() -> None:
    _, params = compiled(column_scale, tensor(Float, 8191, 8191), tensor(Float, 8191))
    assert (params.vector, params.access) == (4, Peeled("t3"))


def test_rows_that_are_cut_share_a_row_operand() -> None:
    """Each row is cut at places of its own: what all have in common is read for each of them, whatever is proposed or tried."""

    def define(fd: FusionDefinition) -> None:
        x, b, s = fd.define_tensor([-1, -1], True, Float), *(fd.define_tensor([-1], True, Float) for _ in range(2))
        row, column = fd.ops.broadcast(fd.ops.exp(b), [True, False]), fd.ops.broadcast(fd.ops.exp(s), [False, True])
        fd.add_output(x * row + column)

    inputs = [tensor(Float, 4099, 5003), tensor(Float, 5003), tensor(Float, 4099)]
    assert isinstance(compiled(define, *inputs)[1].access, Peeled)
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, inputs)
    found = list(PointwiseScheduler().candidates(fusion, segment_inputs(fusion, inputs), H200))
    assert len(found) > 4
    for params in found[:5]:
        KernelCompiler(H200).compile_segment(Segment(fusion, PointwiseScheduler(), ()), bound, params)


def halves(width: int) -> Define:
    """Product of the halves of rows of 2 * width."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], [None, True], BFloat16)
        first = fd.ops.slice(x, [0, 0], [1 << 20, width])
        second = fd.ops.slice(x, [0, width], [1 << 20, 2 * width])
        fd.add_output(fd.ops.cast(first * second, BFloat16))

    return define


def test_slices_begin_anywhere() -> None:
    wide = tensor(BFloat16, 4096, 10240, strides=(10241, 1), alignment=2)
    kernel, params = compiled(halves(5120), wide)
    assert (params.vector, params.access) == (8, Unaligned())
    assert "fuser_realign" in body(kernel)
    cut = compiled(halves(5003), tensor(BFloat16, 4096, 10006))[1]
    assert (cut.vector, cut.access) == (8, Peeled("t21"))
    # What lies beside a pad is no element of the row.
    assert compiled(padded, tensor(BFloat16, 4096, 5120, strides=(5121, 1), alignment=2))[1].access == Aligned()


@pytest.mark.parametrize("dim", [0, 1])
def test_vectors_do_not_lie_across_pieces(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along a row the second copy of a tensor begins inside a vector, across rows it does not."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        fd.add_output(fd.ops.neg(fd.ops.cat([x, x], dim)))

    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    joined = optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)
    params = PointwiseScheduler().propose(joined, segment_inputs(joined, [tensor(BFloat16, 4096, 5003)]), H200)
    assert isinstance(params.access, Aligned) == (dim == 1)
    x = np.random.default_rng(0).integers(-8, 9, (3, 517)).astype(BFloat16.numpy)
    np.testing.assert_array_equal(run(define, [x])[0], -np.concatenate([x, x], dim))


@pytest.mark.parametrize("channel", [0, 1, 2])
@pytest.mark.parametrize("length", [17, 33])
def test_rows_of_another_channel_are_cut_with_those_of_the_result(channel: int, length: int) -> None:
    """A channel read beside all of them begins anywhere in the vectors of each."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, -1, -1], True, BFloat16)
        one = x[:, channel].unsqueeze(1)
        fd.add_output(fd.ops.cast(fd.ops.add(x, one), BFloat16))

    _, params = compiled(define, tensor(BFloat16, 64, 3, 331, 331))
    assert isinstance(params.access, Peeled)
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion, device = fd.fusion.ir_fusion, SimulatorDevice()
    x = np.random.default_rng(0).integers(-8, 9, (3, 3, length, 31)).astype(BFloat16.numpy)
    bound = bind_inputs(fusion, [tensor(BFloat16, *x.shape)])
    kernel, _ = KernelCompiler(device).compile_segment(Segment(fusion, PointwiseScheduler(), ()), bound, params)
    (result,) = run_on(device, kernel, fusion, [x]).values()
    np.testing.assert_array_equal(result, x + x[:, channel : channel + 1])


def padded(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], [None, True], BFloat16)
    fd.add_output(fd.ops.neg(fd.ops.pad(x, [8, 8])))


def test_scalar_accesses_are_several_a_thread() -> None:
    _, params = compiled(added, tensor(Float, 1 << 24, 3, strides=(4, 1)), tensor(Float, 1 << 24, 3, strides=(5, 1)))
    assert (params.vector, params.access) == (1, Aligned())


def run(define: Define, arrays: Sequence[Array], shift: int = 0) -> list[Any]:
    """Results on a simulated device of one SM, where small tensors get the kernels of large ones.

    shift   elements that the first array lies behind an aligned address
    """
    device = SimulatorDevice(info=replace(H200, sm_count=1, max_threads_per_sm=64))
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    placed = [
        place(device, x, [s // x.itemsize for s in x.strides], shift * x.itemsize if i == 0 else 0)
        for i, x in enumerate(arrays)
    ]
    return [np.asarray(r) for r in FusionExecutorCache(fd.fusion).execute(placed)]


SIZES = [(1, 1), (7, 8), (33, 64), (64, 33), (130, 24), (31, 130), (5, 1032), (257, 3)]


@pytest.mark.parametrize("is_read", [False, True])
def test_stores_of_a_thread_are_one_access(is_read: bool) -> None:
    """Two accesses of a thread to an output would be two stores of half sectors each."""

    def outer(fd: FusionDefinition) -> None:
        x, y = fd.define_tensor([-1], True, Float), fd.define_tensor([-1], True, BFloat16)
        t = fd.ops.broadcast(x, [False, True]) * fd.ops.broadcast(fd.ops.cast(y, Float), [True, False])
        fd.add_output(t + fd.ops.cast(fd.define_tensor([-1, -1], True, BFloat16), Float) if is_read else t)

    given = [tensor(Float, 65536), tensor(BFloat16, 1024), *([tensor(BFloat16, 65536, 1024)] if is_read else [])]
    assert compiled(outer, *given)[1].vector == 4
    # Two loads of one are no such loss.
    assert compiled(mixed, tensor(BFloat16, 8192, 8192), tensor(Float, 8192, 8192))[1].vector == 8


@pytest.mark.parametrize("size", SIZES)
def test_results_of_odd_sizes(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    n, m = size
    x, y = rng.integers(-8, 8, (n, m)).astype(np.float32), rng.integers(-8, 8, (n, m)).astype(np.float32)
    row, column = x[0].copy(), x[:, 0].copy()
    np.testing.assert_array_equal(run(added, [x, y])[0], np.maximum(x + y, 0))
    padded = np.zeros((n, m + 3), np.float32)
    padded[:, :m] = y
    np.testing.assert_array_equal(run(added, [x, padded[:, :m]])[0], np.maximum(x + y, 0))
    np.testing.assert_array_equal(run(column_scale, [x, column])[0], x * column[:, None])
    half = BFloat16.numpy
    found = run(row_bias, [x.astype(half), row.astype(half)])[0].astype(np.float32)
    np.testing.assert_allclose(found, np.tanh(x + row), rtol=1e-2)
    found = run(mixed, [x.astype(half), y])[0].astype(np.float32)
    np.testing.assert_array_equal(found, x + y)
    np.testing.assert_array_equal(run(added, [x, y], shift=1)[0], np.maximum(x + y, 0))
    np.testing.assert_array_equal(run(mixed, [x.astype(half), y], shift=2)[0].astype(np.float32), x + y)


@pytest.mark.in_turns
@pytest.mark.parametrize(("rows", "width"), [(3, 512), (5, 1400), (2, 2051), (9, 131), (7, 1369)])
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_results_of_halves_that_begin_anywhere(rows: int, width: int, shift: int) -> None:
    x = np.random.default_rng(1).integers(-8, 8, (rows, 2 * width)).astype(np.float32)
    wanted = x[:, :width] * x[:, width:]
    for pad in (0, 1, 3):
        wide = np.zeros((rows, 2 * width + pad), BFloat16.numpy)
        wide[:, : 2 * width] = x
        found = run(halves(width), [wide[:, : 2 * width]], shift)[0]
        np.testing.assert_array_equal(found.astype(np.float32), wanted)


@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 8), (3, 5, 2, 24), (2, 9, 17, 1), (1, 1, 1, 1), (2, 33, 3, 5), (3, 4, 5, 520)]
)
def test_results_of_permuted_dims(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-8, 8, shape).astype(BFloat16.numpy)
    found = run(swapped_middle, [x])[0]
    np.testing.assert_array_equal(found.astype(np.float32), -x.transpose(0, 2, 1, 3).astype(np.float32))


def joined(*columns: int) -> tuple[Define, list[TensorDescriptor]]:
    def define(fd: FusionDefinition) -> None:
        parts = [fd.define_tensor([-1, -1], True, Float) for _ in columns]
        fd.add_output(fd.ops.neg(fd.ops.cat(parts, 1)))

    return define, [tensor(Float, 4096, n) for n in columns]


@pytest.mark.parametrize(
    ("columns", "width"),
    [((4096, 1024), 4), ((1028, 4096, 512), 4), ((4096, 1022), 2), ((1022, 4096), 2), ((1023, 4096), 1)],
)
def test_parts_of_unequal_extents_are_read_by_vectors(columns: tuple[int, ...], width: int) -> None:
    """No vector is of two parts where all parts' extents are multiples of it, as the kernel asks."""
    define, inputs = joined(*columns)
    _, params = compiled(define, *inputs)
    assert params.vector == width
    assert {w for _, w in params.vector_widths} == ({width} if width > 1 else set())
    if width > 1:
        assert len(params.vector_widths) == len(columns) + 1
        assert {d for _, _, d in params.extent_multiples} == {width}


def test_what_is_read_as_it_is_asks_for_no_extents() -> None:
    """A pad by constants, and a slice of which the begin is one, say themselves where vectors may begin."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(fd.ops.neg(fd.ops.pad(x, [8, 8, 0, 0])))

    _, params = compiled(define, tensor(Float, 4096, 4096))
    assert params.vector == 4
    assert params.extent_multiples == ()


def test_a_wider_output_alone_is_no_reason_to_ask() -> None:
    """Rows of what is sliced begin anywhere: reads by element of the threads of vectors would lie apart."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], [False, True], Double)
        left, right = fd.ops.slice(x, [0, 0], [1557, 1000]), fd.ops.slice(x, [0, 1000], [1557, 2000])
        fd.add_output(left * right)

    _, params = compiled(define, tensor(Double, 1557, 2000, strides=(2001, 1)))
    assert params.extent_multiples == ()


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(24))
def test_random_joined_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts, pads and slices of rows of any extents, then of others with the same definition."""
    monkeypatch.setattr(pointwise_space, "MIN_THREADS", 0)
    rng = np.random.default_rng(seed)
    count, step = int(rng.integers(2, 4)), int(rng.choice([2, 4, 8]))
    pads = [int(n) * step for n in rng.integers(0, 2, 2)]
    cut = step * int(rng.integers(0, 2))
    with FusionDefinition() as fd:
        parts = [fd.define_tensor([-1, -1], True, Float) for _ in range(count)]
        t = fd.ops.cat([fd.ops.pad(parts[0], [*pads, 0, 0]), *parts[1:]], 1)
        fd.add_output(fd.ops.neg(t))
        if cut:
            size = fd.ops.size(parts[1], 1)
            fd.add_output(fd.ops.neg(fd.ops.slice(parts[1], [0, cut], [fd.ops.size(parts[1], 0), size])))
    for odd in (0, 0, 1):
        columns = [step * int(n) + odd for n in rng.integers(2, 6, count)]
        values = [rng.integers(-4, 5, (3, n)).astype(np.float32) for n in columns]
        found = fd.execute(values, device="simulator")
        padded = np.pad(values[0], ((0, 0), (pads[0], pads[1])))
        np.testing.assert_array_equal(np.asarray(found[0]), -np.concatenate([padded, *values[1:]], 1))
        if cut:
            np.testing.assert_array_equal(np.asarray(found[1]), -values[1][:, cut:])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 1, 3, 2), (3, 0, 1, 2)], ids=str)
@pytest.mark.parametrize("columns", [1, 2, 3])
@pytest.mark.parametrize("negated", [False, True])
def test_short_rows_padded_along_both_dims(
    order: tuple[int, ...], columns: int, negated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has whole rows of the result, and a read has one element of each: its vectors are along what is around them."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    x = np.random.default_rng(0).integers(-9, 9, (16, 8, 8, columns)).astype(np.float32)

    def define(fd: FusionDefinition) -> None:
        stored = fd.define_tensor([-1] * 4, True, Float)
        padded = fd.ops.pad(fd.ops.permute(stored, [order.index(d) for d in range(4)]), [1, 1, 4, 4])
        fd.add_output(fd.ops.neg(padded) if negated else padded)

    wanted = np.pad(x, [(0, 0), (0, 0), (4, 4), (1, 1)])
    (found,) = run(define, [np.ascontiguousarray(np.transpose(x, order))])
    np.testing.assert_array_equal(found, -wanted if negated else wanted)


def test_candidates_ask_only_for_extents_that_hold() -> None:
    define, inputs = joined(4100, 1028)
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    found = list(PointwiseScheduler().candidates(fusion, segment_inputs(fusion, inputs), H200))
    divisors = {d for p in found if isinstance(p, PointwiseParams) for *_, d in p.extent_multiples}
    assert 4 in divisors
    assert all(4100 % d == 1028 % d == 0 for d in divisors)


@pytest.mark.parametrize("computed", [True, False])
def test_what_is_squeezed_and_spread_over_threads_is_no_bug(computed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that is read as one, and without its dim of one element: other threads would hold it."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        column = fd.define_tensor([-1, 1], contiguity=True)
        a = fd.ops.exp(column) if computed else column
        spread = fd.ops.broadcast(fd.ops.sin(fd.ops.squeeze(a, [1])), [False, True])
        fd.add_output(x * spread + a)
    rng = np.random.default_rng(0)
    x, column = rng.random((7, 300), np.float32), rng.random((7, 1), np.float32)
    a = np.exp(column) if computed else column
    (found,) = fd.execute([x, column], device="simulator")
    np.testing.assert_allclose(found, x * np.sin(a) + a, rtol=1e-5)


# --- rows in turn -----------------------------------------------------------------------------------------------------


def gated(fd: FusionDefinition, dtype: DataType, dims: int) -> None:
    """Rows scaled by much that is the same for all of them."""
    x, w = fd.define_tensor([-1] * dims, True, dtype), fd.define_tensor([-1], True, dtype)
    h, a = fd.ops.cast(x, DataType.Float), fd.ops.cast(w, DataType.Float)
    weight = fd.ops.log1p(fd.ops.exp(fd.ops.neg(fd.ops.abs(a))))
    fd.add_output(fd.ops.cast(fd.ops.exp(fd.ops.sigmoid(h) * weight), dtype))
    fd.add_output(fd.ops.sigmoid(h) + weight)


def proposed_for_gated(shape: Sequence[int], dtype: DataType) -> PointwiseParams:
    with FusionDefinition() as fd:
        gated(fd, dtype, len(shape))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [tensor(dtype, *shape), tensor(dtype, shape[-1])])
    return PointwiseScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)


def test_what_rows_share_is_computed_once_where_instructions_are_the_limit() -> None:
    params = proposed_for_gated((8, 1023, 2560), DataType.BFloat16)
    assert params.unroll >= 2
    # Few threads are better all at once.
    assert proposed_for_gated((64, 2560), DataType.BFloat16).unroll == 1


def test_what_iterations_share_is_computed_before_them() -> None:
    for sequential in (False, True):
        with FusionDefinition() as fd:
            gated(fd, DataType.BFloat16, 2)
        assert fd.fusion is not None
        fusion = fd.fusion.ir_fusion
        bound = bind_inputs(fusion, [tensor(BFloat16, 8192, 2560), tensor(BFloat16, 2560)])
        params = PointwiseParams((0, 1), ((1,), (1,)), 1, (), (256, 1), unroll=4, sequential=sequential)
        kernel, _ = KernelCompiler(H200).compile_segment(Segment(fusion, PointwiseScheduler(), ()), bound, params)
        text = body(kernel)
        assert text.count("fuser_log1p(") == 1
        assert text.index("fuser_log1p(") < text.index("fuser_sigmoid(")


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.BFloat16, DataType.Double])
@pytest.mark.parametrize("shape", [(5, 33), (64, 128), (3, 7, 40), (2, 9, 256), (130, 8)])
@pytest.mark.parametrize("count", [2, 4])
def test_rows_in_turn(shape: tuple[int, ...], count: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    propose = PointwiseScheduler.propose
    seen: list[PointwiseParams] = []

    def in_turn(self: PointwiseScheduler, *arguments: Any) -> PointwiseParams:
        found = propose(self, *arguments)
        if len(found.merged_dims) > 1 and isinstance(found.access, Aligned):
            found = replace(found, unroll=count, sequential=True)
            seen.append(found)
        return found

    monkeypatch.setattr(PointwiseScheduler, "propose", in_turn)
    with FusionDefinition() as fd:
        gated(fd, dtype, len(shape))
    rng = np.random.default_rng(0)
    arrays: list[Any] = [rng.normal(size=n).astype(dtype.numpy) for n in (shape, shape[-1:])]
    found = [np.asarray(t, np.float64) for t in fd.execute(arrays, device="simulator")]
    x, w = (np.asarray(a, np.float64) for a in arrays)
    weight = np.log1p(np.exp(-np.abs(w)))
    s = 1 / (1 + np.exp(-x))
    tolerance = 1e-2 if dtype is DataType.BFloat16 else 1e-5
    np.testing.assert_allclose(found[0], np.exp(s * weight), rtol=tolerance)
    np.testing.assert_allclose(found[1], s + weight, rtol=tolerance)
    assert seen or shape not in ((64, 128), (2, 9, 256))


def scaled(fd: FusionDefinition, dims: int = 2) -> None:
    """x * 0.9 ** s, of one number s."""
    x, s = fd.define_tensor([-1] * dims, True, Float), fd.define_tensor([1], True, Float)
    number = fd.ops.pow(0.9, s)
    fd.add_output(x * fd.ops.broadcast(number, [True] * (dims - 1) + [False]))


@pytest.mark.parametrize("width", [4096, 4099])
def test_one_element_is_read_and_computed_once_a_thread(width: int) -> None:
    """Outside of the loops over its own elements, and behind the loads of others."""
    kernel, params = compiled(scaled, tensor(Float, 4096, width), tensor(Float, 1))
    text = body(kernel)
    assert params.vector > 1
    assert text.count("powf(") == text.count("t1[") == 1
    assert re.search(r"\n  t\d+ = powf\(0\.9f, t1_cache_after_0\);", text), "in no loop"
    assert text.index("&t0[") < text.index("powf(")


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1, 300), (257, 33), (2, 3, 4), (64, 1, 7)])
def test_results_of_one_element(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (result,) = run(lambda fd: scaled(fd, len(shape)), [x, np.asarray([2.0], np.float32)])
    np.testing.assert_allclose(result, x * np.float32(0.9) ** np.float32(2.0), rtol=1e-6)
