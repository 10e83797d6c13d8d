"""Tiles turned in shared memory: what is taken, how lanes meet banks, what the text issues first, and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.recorder import KeepingRecorder
from fuser.ir.device_info import DeviceInfo
from fuser.ir.fact_collection import collect_facts
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.kernel.kernel import (
    BlockBarrier,
    Buffer,
    For,
    If,
    Kernel,
    Load,
    Role,
    Stmt,
    Store,
    Value,
    VectorMove,
    walk,
)
from fuser.ir.ops.enums import SchedulerType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.layouts import row_major
from fuser.schedule.params import Access, Aligned, Peeled, TransposeParams
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.schedulers.transpose import TransposeScheduler
from fuser.schedule.segmentation.segment import Segment, choose_scheduler
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place
from tests.fusions.transposes import (
    Array,
    BFloat16,
    Bool,
    Define,
    Double,
    Float,
    Half,
    Int32,
    added,
    both_ways,
    channels_last,
    mixed,
    reversed_dims,
    rounded_plus,
    turned,
    whole,
)
from tests.judging.harness import Lowered
from tests.judging.harness import run as simulate

H200 = DeviceInfo.preset("H200")


def tensor(dtype: DataType, *shape: int, strides: Sequence[int] = (), alignment: int = 256) -> TensorDescriptor:
    return TensorDescriptor(dtype, shape, tuple(strides) or row_major(shape), alignment)


def turned_plus(dtype: DataType) -> Define:
    def define(fd: FusionDefinition) -> None:
        x, y = fd.define_tensor([-1, -1], True, dtype), fd.define_tensor([-1, -1], True, dtype)
        fd.add_output(fd.ops.add(fd.ops.permute(x, [1, 0]), y))

    return define


def fusion_of(define: Define) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def slices_both_ways(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
    a, b = fd.ops.slice(x, [0, 16], [32, 48]), fd.ops.slice(y, [16, 0], [48, 32])
    fd.add_output(fd.ops.add(a, fd.ops.permute(b, [1, 0])))


def compiled(define: Define, *inputs: TensorDescriptor) -> tuple[CompiledKernel, TransposeParams]:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    scheduler, refusals = choose_scheduler(fusion)
    assert scheduler is not None
    kernel, params = KernelCompiler(H200).compile_segment(
        Segment(fusion, scheduler, refusals), bind_inputs(fusion, inputs)
    )
    assert isinstance(params, TransposeParams)
    assert kernel.resources is not None
    assert (kernel.resources.spill_bytes, kernel.resources.stack_bytes) == (0, 0)
    return kernel, params


# --- what is taken ----------------------------------------------------------------------------------------------------


def answer(define: Define, *inputs: TensorDescriptor) -> str:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    accepted = TransposeScheduler().accepts(fusion)
    if isinstance(accepted, Refused) or not inputs:
        return accepted.reason if isinstance(accepted, Refused) else ""
    bound = bind_inputs(fusion, inputs)
    params = TransposeScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    return params.reason if isinstance(params, Refused) else ""


def test_refusals() -> None:
    swapped = lambda fd: fd.add_output(fd.ops.neg(fd.ops.permute(fd.define_tensor([-1] * 3, True, Float), [1, 0, 2])))  # noqa: E731
    assert "have the same fastest one" in answer(swapped)
    assert "is reduced" in answer(lambda fd: fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True, Float), [0])))
    assert "different fastest dimensions" in answer(slices_both_ways, *[tensor(Float, 64, 64)] * 2)
    assert "has only 3 elements" in answer(turned(Float), tensor(Float, 3, 4096))
    assert "same fastest dimension" in answer(added, tensor(Float, 64, 64, strides=(1, 64)), tensor(Float, 64, 64))


def test_sizes_that_are_refused_go_to_the_pointwise_scheduler() -> None:
    with FusionDefinition() as fd:
        added(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    scheduler, refusals = choose_scheduler(fusion)
    assert scheduler is not None
    assert scheduler.type is SchedulerType.transpose
    inputs = [tensor(Float, 3, 4096), tensor(Float, 4096, 3)]
    params = KernelCompiler(H200).propose(Segment(fusion, scheduler, refusals), bind_inputs(fusion, inputs))
    assert type(params).__name__ == "PointwiseParams"


def test_a_schedule_replays() -> None:
    with FusionDefinition() as fd:
        both_ways(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [tensor(Float, 64, 96), tensor(Float, 96, 64), tensor(Float, 64), tensor(Float, 96)])
    params = TransposeScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, TransposeParams)
    first = TransposeScheduler().apply(fusion, params)
    again = ScheduleBuilder(fusion)
    again.replay(first.records)
    assert again.records == first.records
    assert {n: s.swizzles for n, s in again.states.items()} == {n: s.swizzles for n, s in first.states.items()}
    assert any("swizzle" in str(r) for r in first.records)


# --- banks ------------------------------------------------------------------------------------------------------------


def shared_accesses(kernel: Kernel) -> Iterator[tuple[str, Buffer, Int, int]]:
    """(read or write, buffer, index, elements) of every access to shared memory."""

    def loads(value: Value) -> Iterator[tuple[Buffer, Int]]:
        if isinstance(value, Load):
            yield value.buffer, value.index
        for operand in getattr(value, "args", ()) or [v for v in [getattr(value, "value", None)] if v is not None]:
            if not isinstance(operand, (int, float, bool, complex)):
                yield from loads(operand)

    for stmt in walk(kernel.body):
        if isinstance(stmt, VectorMove):
            if stmt.dst.is_shared:
                yield "write", stmt.dst, stmt.dst_index, stmt.width
            if stmt.src.is_shared:
                yield "read", stmt.src, stmt.src_index, stmt.width
        elif isinstance(stmt, Store):
            if stmt.buffer.is_shared:
                yield "write", stmt.buffer, stmt.index, 1
            yield from (("read", b, i, 1) for b, i in loads(stmt.value) if b.is_shared)


def conflict_degree(kernel: Kernel, buffer: Buffer, index: Int, width: int, block: int) -> int:
    """Most 4-byte words of one bank that lanes of a phase ask for. A phase is what 128 bytes serve: 8 lanes of 16 bytes, 16
    of 8, else a warp."""
    nbytes = width * buffer.dtype.itemsize
    lanes = min(32, 128 // nbytes)
    start = kernel.shared_offsets[buffer.name].evaluate({})
    loops = {s.symbol for s in walk(kernel.body) if isinstance(s, For)}
    worst = 0
    for turn in range(4):
        fixed: dict[Symbol, int] = {s: turn % ((s.hi or 0) + 1) for s in index.symbols & loops}
        for first in range(0, block, lanes):
            banks: dict[int, set[int]] = {}
            for lane in range(first, first + lanes):
                values = {s: fixed.get(s, lane if s.name == "threadIdx.x" else 0) for s in index.symbols}
                address = start + index.evaluate(values) * buffer.dtype.itemsize
                for word in range(address // 4, (address + nbytes + 3) // 4):
                    banks.setdefault(word % 32, set()).add(word)
            worst = max(worst, *(len(words) for words in banks.values()))
    return worst


@pytest.mark.parametrize("dtype", [Bool, BFloat16, Half, Float, Int32, Double])
def test_no_two_lanes_meet_in_a_bank(dtype: DataType) -> None:
    kernel, params = compiled(turned(dtype), tensor(dtype, 4096, 4096))
    assert kernel.kernel_ir is not None
    found = list(shared_accesses(kernel.kernel_ir))
    assert {kind for kind, *_ in found} == {"read", "write"}
    for kind, buffer, index, width in found:
        assert conflict_degree(kernel.kernel_ir, buffer, index, width, params.block_threads) == 1, f"{kind} at {index}"


def test_no_conflicts_with_operands_of_two_types_and_two_outputs() -> None:
    cases = [
        (mixed, [tensor(BFloat16, 4096, 4096), tensor(Float, 4096, 4096)]),
        (both_ways, [tensor(Float, 4096, 4096), tensor(Float, 4096, 4096), tensor(Float, 4096), tensor(Float, 4096)]),
    ]
    for define, inputs in cases:
        kernel, params = compiled(define, *inputs)
        assert kernel.kernel_ir is not None
        for kind, buffer, index, width in shared_accesses(kernel.kernel_ir):
            assert conflict_degree(kernel.kernel_ir, buffer, index, width, params.block_threads) == 1, (
                f"{kind} at {index}"
            )


def test_without_a_swizzle_lanes_would_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScheduleBuilder, "swizzle", lambda *_: None)
    kernel, params = compiled(turned(Float), tensor(Float, 4096, 4096))
    assert kernel.kernel_ir is not None
    degrees = [
        conflict_degree(kernel.kernel_ir, b, i, w, params.block_threads)
        for _, b, i, w in shared_accesses(kernel.kernel_ir)
    ]
    assert max(degrees) == 8


# --- text -------------------------------------------------------------------------------------------------------------


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """In order; of an unswitched loop the side without tests."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from statements(stmt.body)
        elif isinstance(stmt, If):
            yield from statements(stmt.then)
            if stmt.role is not Role.unswitch:
                yield from statements(stmt.orelse)
        else:
            yield stmt


def test_all_loads_stand_before_the_one_barrier() -> None:
    kernel, _ = compiled(added, tensor(Float, 8192, 8192), tensor(Float, 8192, 8192))
    assert kernel.kernel_ir is not None
    order = list(statements(kernel.kernel_ir.body))
    barriers = [i for i, s in enumerate(order) if isinstance(s, BlockBarrier)]
    assert len(barriers) == 1
    moves = [(i, s) for i, s in enumerate(order) if isinstance(s, VectorMove)]
    loads = [i for i, s in moves if s.src.is_global]
    stores = [i for i, s in moves if s.dst.is_global]
    assert len(loads) == 2
    assert max(loads) < min(i for i, s in moves if s.dst.is_shared) < barriers[0] < min(stores)


def test_every_access_to_device_memory_is_sixteen_bytes() -> None:
    for dtype in (BFloat16, Float, Double):
        kernel, params = compiled(turned(dtype), tensor(dtype, 4096, 4096))
        assert params.vectors == (16 // dtype.itemsize,) * 2
        assert kernel.kernel_ir is not None
        moves = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, VectorMove)]
        assert {s.width * dtype.itemsize for s in moves if s.src.is_global or s.dst.is_global} == {16}


def test_each_side_is_vectorized_alone() -> None:
    _, params = compiled(turned(Float), tensor(Float, 4098, 4096))
    assert params.vectors == (4, 2)
    _, params = compiled(turned(Float), tensor(Float, 4096, 4095))
    assert params.vectors[0] == 1 < params.vectors[1]
    assert params.tile_threads[0] == 32, "what is read by element comes in lines of a warp"


@pytest.mark.parametrize(("n", "m"), [(16384, 1667), (128256, 213), (1000, 255), (80, 85), (8192, 8192), (3000, 48)])
@pytest.mark.parametrize("dtype", [BFloat16, Float, Double])
def test_tiles_are_full_and_enough(n: int, m: int, dtype: DataType) -> None:
    """Few elements of tiles lie beyond the runs, every SM has tiles if there are elements for them, no block is tiny."""
    _, params = compiled(turned(dtype), tensor(dtype, n, m))
    tiles = [-(-length // t) for length, t in zip((m, n), params.tile, strict=True)]
    asked = tiles[0] * params.tile[0] * tiles[1] * params.tile[1]
    assert asked <= (1.35 if min(m, n) > 64 else 2) * m * n
    assert tiles[0] * tiles[1] >= min(0.9 * H200.sm_count, m * n // 2048)
    assert params.block_threads >= min(64, m * n // 256)
    assert shared_bytes_of(params, dtype) <= H200.shared_per_block


def shared_bytes_of(params: TransposeParams, dtype: DataType) -> int:
    return params.tile[0] * params.tile[1] * dtype.itemsize * len(params.via_shared)


def test_many_rows_that_begin_anywhere_are_cut() -> None:
    def access(dtype: DataType, m: int, n: int, **y: Any) -> Access:
        return compiled(rounded_plus(dtype), tensor(dtype, n, m), tensor(dtype, m, n, **y))[1].access

    assert access(BFloat16, 269, 50257) == Peeled("t6")
    assert access(Float, 1447, 5003) == Peeled("t4")
    assert access(BFloat16, 1024, 50257) == Peeled("t6"), "though rows of x could be read by vectors"
    assert access(Float, 269, 50257, strides=(50258, 1)) == Peeled("t4"), (
        "Floats at any address are read by element in any case"
    )
    # An access of four Doubles is too wide, 16 bits at other places are shifted there.
    assert access(Double, 269, 50257) == Aligned()
    assert access(BFloat16, 269, 50257, alignment=2) == Aligned()
    assert access(BFloat16, 269, 50257, strides=(50258, 1)) == Aligned()


# --- results ----------------------------------------------------------------------------------------------------------


def run(define: Define, arrays: Sequence[Array]) -> list[Any]:
    """Results on a simulated device of one SM, where small tensors get the kernels of large ones."""
    device = SimulatorDevice(info=replace(H200, sm_count=1))
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    placed = [place(device, x, [s // x.itemsize for s in x.strides]) for x in arrays]
    return [np.asarray(r) for r in FusionExecutorCache(fd.fusion).execute(placed)]


@pytest.mark.parametrize("dtype", [BFloat16, Double])
@pytest.mark.parametrize("size", [(33, 300), (300, 33), (70, 517)])
def test_forced_parameters(size: tuple[int, int], dtype: DataType) -> None:
    """Blocks that go across, and tiles that are longer along one run."""
    fusion = fusion_of(turned_plus(dtype))
    x, y = whole(size, dtype), whole((size[1], size[0]), dtype)
    bound = bind_inputs(fusion, [x, y])
    params = TransposeScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, TransposeParams)
    for tile, threads in (((32, 32), 64), ((64, 32), 128), ((32, 128), 256)):
        plain = replace(
            params, tile=tile, block_threads=threads, vectors=(1, 1), tile_threads=(32, 32), vector_widths=()
        )
        for block_order in ((0, 1), (1, 0)):
            scheduled = TransposeScheduler().apply(fusion, replace(plain, block_order=block_order))
            lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
            (out,) = simulate(lowered, [x, y], seed=1).check().values()
            np.testing.assert_array_equal(out, x.T + y)


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [BFloat16, Float, Double])
@pytest.mark.parametrize("size", [(33, 301), (301, 33), (70, 517), (35, 64), (67, 130)])
def test_rows_cut_where_the_output_is_aligned(size: tuple[int, int], dtype: DataType) -> None:
    """Vectors of rows that begin anywhere: the ends of each row are moved by element."""
    fusion = fusion_of(rounded_plus(dtype))
    x, y = whole(size, dtype), whole((size[1], size[0]), dtype)
    bound = bind_inputs(fusion, [x, y])
    params = TransposeScheduler().propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert isinstance(params, TransposeParams)
    (out,) = (t.name for t in fusion.output_tensors)
    plain = replace(params, tile=(32, 64), block_threads=64, vectors=(1, 1), tile_threads=(32, 16), vector_widths=())
    for vector in (2, 4, 8):
        if vector * dtype.itemsize > 16:
            continue
        cut = replace(
            plain,
            vectors=(1, vector),
            tile_threads=(32, 8),
            vector_widths=(("t1", vector), (out, vector)),
            access=Peeled(out),
        )
        for block_order in ((0, 1), (1, 0)):
            scheduled = TransposeScheduler().apply(fusion, replace(cut, block_order=block_order))
            lowered = Lowered.of(scheduled, collect_facts(scheduled, bound.tensors, bound.evaluate))
            (found,) = simulate(lowered, [x, y], seed=1).check().values()
            np.testing.assert_array_equal(found, x.T + y)


SIZES = [(64, 64), (130, 72), (33, 65), (40, 17), (96, 200), (16, 16), (1, 50)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [Bool, BFloat16, Float, Double])
def test_turned(size: tuple[int, int], dtype: DataType) -> None:
    x = whole(size, dtype)
    np.testing.assert_array_equal(run(turned(dtype), [x])[0], x.T)


@pytest.mark.parametrize("size", SIZES)
def test_operands_of_both_layouts(size: tuple[int, int]) -> None:
    n, m = size
    x, y, row, column = whole((n, m)), whole((m, n)), whole((n,)), whole((m,))
    want = x.T * 2 + y + row + column[:, None]
    first, second = run(both_ways, [x, y, row, column])
    np.testing.assert_array_equal(first, want)
    np.testing.assert_array_equal(second, want.T * 3)
    np.testing.assert_array_equal(run(mixed, [x.astype(BFloat16.numpy), y])[0], x.T + y)
    np.testing.assert_array_equal(run(added, [np.asfortranarray(x), np.asfortranarray(y)])[0], x.T + y)


@pytest.mark.parametrize("shape", [(2, 32, 8, 8), (3, 17, 5, 7), (2, 48, 3, 40), (1, 64, 4, 16)])
def test_channels_last(shape: tuple[int, ...]) -> None:
    x = whole(shape, Half)
    np.testing.assert_array_equal(run(channels_last, [x])[0], -x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("shape", [(20, 3, 40), (4, 6, 50), (50, 2, 3), (33, 34, 35), (2, 3, 4)])
def test_short_runs_take_in_their_neighbours(shape: tuple[int, ...]) -> None:
    x = whole(shape)
    np.testing.assert_array_equal(run(reversed_dims, [x])[0], -x.transpose(2, 1, 0))


def test_an_output_turned_beside_rows_that_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tiles are filled by vectors that are cut where the other output is aligned, which ends of a row cut, too."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    device = SimulatorDevice(info=replace(H200, sm_count=1))
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], True)
        b = fd.define_tensor([-1, 1, -1], True)
        fd.add_output(fd.ops.reshape(fd.ops.permute(x, [2, 0, 1]), [-1]))
        fd.add_output(fd.ops.add(x, b))
    arrays = [whole((4, 40, 517)), whole((4, 1, 517))]
    given = [place(device, a) for a in arrays]
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    recorder = KeepingRecorder()
    compile_fusion(fusion, bind_inputs(fusion, given), device, recorder=recorder)
    assert "via_shared=('t" in recorder.stages["s0.params.py"]
    assert "access=Peeled(at='t" in recorder.stages["s0.params.py"]
    found = [o.numpy() for o in fd.execute(given)]
    np.testing.assert_array_equal(found[0], arrays[0].transpose(2, 0, 1).reshape(-1))
    np.testing.assert_array_equal(found[1], arrays[0] + arrays[1])


# --- slices and pads --------------------------------------------------------------------------------------------------


@pytest.fixture
def turned_tiles(monkeypatch: pytest.MonkeyPatch) -> list[TransposeParams]:
    """The tiles that are made from now on."""
    seen: list[TransposeParams] = []
    apply = TransposeScheduler.apply

    def noted(self: TransposeScheduler, segment: Fusion, params: Any) -> ScheduleBuilder:
        seen.append(params)
        return apply(self, segment, params)

    monkeypatch.setattr(TransposeScheduler, "apply", noted)
    return seen


def channels_apart(dtype: DataType, shape: Sequence[int], first: int) -> Define:
    """Channels come last, the first of them computed otherwise, with other inputs."""
    b, c, n = shape

    def define(fd: FusionDefinition) -> None:
        x = fd.ops.cast(fd.define_tensor([-1] * 3, True, dtype), Float)
        at = fd.ops.broadcast_in_dim(fd.define_tensor([-1], True), [b, n, 1], [1])
        last = fd.ops.permute(x, [0, 2, 1])
        parts = [fd.ops.slice(last, [0, 0, k], [b, n, k + 1]) * float(k + 2) + at for k in range(first)]
        rest = fd.ops.slice(last, [0, 0, first], [b, n, c]) - 1.0
        fd.add_output(fd.ops.stride_order(fd.ops.cast(fd.ops.cat([*parts, rest], 2), dtype), [2, 1, 0]))

    return define


def test_slices_are_read_along_their_rows_and_what_is_made_of_them_is_turned() -> None:
    shape = (16, 85, 6400)
    with FusionDefinition() as fd:
        channels_apart(Half, shape, 4)(fd)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    recorder = KeepingRecorder()
    bound = bind_inputs(fusion, [tensor(Half, *shape), tensor(Float, 6400)])
    device: Any = SimulatorDevice(info=H200)
    compile_fusion(fusion, bound, device, recorder=recorder)
    ((name, params),) = [(n, t) for n, t in recorder.stages.items() if n.endswith("params.py")]
    assert params.startswith("# transpose")
    assert params.count("('t0@") == 5  # by vectors
    body = recorder.stages[name.replace("params.py", "kernel.cu")]
    assert body.count("__syncthreads();") == 1


@pytest.mark.parametrize("dtype", [Half, Float, Double])
@pytest.mark.parametrize("shape", [(2, 85, 96), (3, 33, 61), (1, 40, 200), (2, 19, 130)])
@pytest.mark.parametrize("first", [1, 3])
def test_channels_apart(
    shape: tuple[int, int, int], first: int, dtype: DataType, turned_tiles: list[TransposeParams]
) -> None:
    x, at = whole(shape, dtype), whole(shape[2:])
    last = x.astype(np.float64).transpose(0, 2, 1)
    parts = [last[..., k] * (k + 2) + at for k in range(first)]
    expected = np.concatenate([np.stack(parts, -1), last[..., first:] - 1], -1)
    np.testing.assert_array_equal(run(channels_apart(dtype, shape, first), [x, at])[0], expected)
    assert turned_tiles


@pytest.mark.parametrize("shape", [(70, 130), (64, 96), (33, 517)])
@pytest.mark.parametrize("low", [0, 1, 16])
def test_a_part_of_a_matrix_is_turned(shape: tuple[int, int], low: int, turned_tiles: list[TransposeParams]) -> None:
    m, n = shape

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True)
        turned = fd.ops.permute(fd.ops.slice(x, [low, low], [m, n]), [1, 0]) * 2.0
        fd.add_output(fd.ops.stride_order(turned, [1, 0]))
        fd.add_output(fd.ops.pad(fd.ops.slice(x, [low, low], [m, n]), [low, 0, low, 0]) + x)

    x = whole(shape)
    part = np.zeros_like(x)
    part[low:, low:] = x[low:, low:]
    found = run(define, [x])
    np.testing.assert_array_equal(found[0], x[low:, low:].T * 2)
    np.testing.assert_array_equal(found[1], part + x)
    assert turned_tiles


@pytest.mark.parametrize("shape", [(40, 70), (33, 96)])
def test_padded_and_looked_up_rows_are_turned(shape: tuple[int, int], turned_tiles: list[TransposeParams]) -> None:
    def define(fd: FusionDefinition) -> None:
        x, index = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True, DataType.Int)
        padded = fd.ops.pad(x, [3, 5, 2, 1])
        rows = fd.ops.index_select(x, index, 0)
        fd.add_output(fd.ops.stride_order(fd.ops.permute(padded * 2.0, [1, 0]), [1, 0]))
        fd.add_output(fd.ops.stride_order(fd.ops.permute(rows + 1.0, [1, 0]), [1, 0]))

    x, index = whole(shape), np.arange(64, dtype=np.int64) * 7 % shape[0]
    padded = np.pad(x, ((2, 1), (3, 5)))
    found = run(define, [x, index])
    np.testing.assert_array_equal(found[0], padded.T * 2)
    np.testing.assert_array_equal(found[1], x[index].T + 1)
    assert turned_tiles


def test_an_index_is_looked_up_by_and_computed_with(
    turned_tiles: list[TransposeParams], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread has the places that it reads at and computes with: what is looked up stands where they are."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")

    def define(fd: FusionDefinition) -> None:
        x, index = fd.define_tensor([-1, -1], True), fd.define_tensor([-1], True, DataType.Int)
        chosen = fd.ops.index_select(x, index, 1)
        fd.add_output(chosen + fd.ops.broadcast(fd.ops.cast(index, DataType.Float), [True, False]))
        fd.add_output(fd.ops.stride_order(fd.ops.permute(chosen * 2.0, [1, 0]), [1, 0]))

    x, index = whole((40, 70)), np.arange(64, dtype=np.int64) * 7 % 70
    found = run(define, [x, index])
    np.testing.assert_array_equal(found[0], x[:, index] + index)
    np.testing.assert_array_equal(found[1], x[:, index].T * 2)
    assert turned_tiles


@pytest.mark.parametrize("dtype", [Half, Float])
@pytest.mark.parametrize("shape", [(2, 33, 61, 2), (1, 130, 35, 4), (3, 16, 96, 2), (2, 17, 40, 3)])
def test_parts_of_short_runs_are_turned(
    shape: tuple[int, ...], dtype: DataType, turned_tiles: list[TransposeParams]
) -> None:
    """Neighbours along a row of pairs are two elements apart: a sector has several of them."""

    def define(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1] * 4, True, dtype)
        parts = [fd.ops.squeeze(fd.ops.slice(x, [0, 0, 0, k], [*shape[:3], k + 1]), [3]) for k in range(shape[3])]
        t = fd.ops.cast(fd.ops.permute(parts[0] - parts[1], [0, 2, 1]), dtype)
        fd.add_output(fd.ops.stride_order(t, [2, 1, 0]))

    x = whole(shape, dtype)
    found = run(define, [x])
    np.testing.assert_array_equal(found[0], (x[..., 0] - x[..., 1]).transpose(0, 2, 1))
    assert turned_tiles
