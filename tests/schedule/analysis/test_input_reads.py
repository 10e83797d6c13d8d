"""How inputs are read: displaced reads by name and dims, the widest access they allow, and kernels that use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel import Kernel, LoadIndex, VectorMove, walk
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.layouts import row_major
from fuser.schedule.analysis.input_reads import dims_without_loop, displaced_intermediate, input_reads, read_width
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.segmentation.registry import scheduler_by_type
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.judging.harness import check

D = DataType
H200 = DeviceInfo.preset("H200")


def fusion_of(build: Callable[[FusionDefinition], Any]) -> Fusion:
    with FusionDefinition() as fd:
        fd.add_output(build(fd))
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)


def half(fd: FusionDefinition, *shape: int) -> Any:
    return fd.define_tensor(list(shape), True, D.Half)


def kernel_of(fusion: Fusion, sizes: dict[int, tuple[int, ...]] | None = None, alignment: int = 256) -> Kernel:
    """The one kernel of a fusion of static (or the given) sizes."""
    (segment,) = segment_fusion(fusion).segments
    described = []
    for i, t in enumerate(fusion.input_tensors):
        shape = (sizes or {}).get(i) or tuple(d.extent.value for d in t.visible)
        described.append(TensorDescriptor(t.dtype, shape, row_major(shape), alignment))
    kernel = KernelCompiler(H200).compile(segment.fusion, described).kernel_ir
    assert kernel is not None
    return kernel


def widths(kernel: Kernel, tensor: str) -> list[int]:
    """Elements of the vector accesses that read (or write) an argument."""
    moves = [s for s in walk(kernel.body) if isinstance(s, VectorMove)]
    return [m.width for m in moves if tensor in (m.src.tensor, m.dst.tensor) and (m.src.is_global or m.dst.is_global)]


def test_reads_are_listed() -> None:
    def build(fd: FusionDefinition) -> Any:
        x, i = half(fd, 64, 32), fd.define_tensor([16], True, D.Int)
        part = fd.ops.slice(x, [0, 16], [16, 32])
        return part * 2.0 + fd.ops.slice(fd.ops.index_select(x, i, 0), [0, 8], [16, 24])

    fusion = fusion_of(build)
    assert displaced_intermediate(fusion) is None
    sliced, gathered, index = input_reads(fusion)
    assert sliced.name.startswith("t0@")
    assert [w.offset.value for w in sliced.windows] == [0, 16]
    assert gathered.dims[0] is None, "gathered rows are no neighbours"
    assert gathered.dims[1] is not None
    assert gathered.windows[1].offset.value == 8
    assert index.name == "t1"
    x = fusion.input_tensors[0]
    # No loop runs over all of the columns: the gather reads a part of them as well.
    assert dims_without_loop(fusion) == set(x.visible)


def test_a_dim_that_is_squeezed_is_read_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a slice along it: what is kept of the input has that dim, behind those of the reduction."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1, -1], False, D.Float)
        o = fd.ops
        fd.add_output(o.sum(o.squeeze(x, [2]), [0, 1]))
        part = o.slice(x, [0, 0, 0], [o.size(x, 0), o.size(x, 1), 1], manual_normalization=True)
        fd.add_output(o.squeeze(part, [2]))
    given = np.random.default_rng(0).normal(size=(4, 8, 1)).astype("f4")
    total, found = fd.execute([given], device="simulator")
    np.testing.assert_allclose(np.asarray(total), given.astype("f8").sum(), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(found), given[..., 0])


@pytest.mark.parametrize(
    ("start", "end", "width"),
    [(0, 64, 8), (64, 128, 8), (8, 40, 8), (4, 68, 4), (2, 34, 2), (1, 33, 1), (0, 60, 4), (0, 63, 1)],
)
def test_width_of_a_slice(start: int, end: int, width: int) -> None:
    def build(fd: FusionDefinition) -> Any:
        return fd.ops.abs(fd.ops.slice(half(fd, 65536, 128), [0, start], [65536, end]))

    fusion = fusion_of(build)
    (read,) = input_reads(fusion)
    described = TensorDescriptor(D.Half, (65536, 128), (128, 1), 256)
    assert read_width(read, described, 1, 8, lambda e: e.value) == width
    found = widths(kernel_of(fusion), "t0")
    assert found == ([width] if width > 1 else [])


@pytest.mark.parametrize(("strides", "alignment", "width"), [((128, 1), 8, 4), ((132, 1), 256, 4), ((129, 1), 256, 1)])
def test_width_follows_the_layout(strides: tuple[int, int], alignment: int, width: int) -> None:
    fusion = fusion_of(lambda fd: fd.ops.abs(fd.ops.slice(half(fd, 64, 128), [0, 64], [64, 128])))
    (read,) = input_reads(fusion)
    described = TensorDescriptor(D.Half, (64, 128), strides, alignment)
    assert read_width(read, described, 1, 8, lambda e: e.value) == width


def test_one_narrow_slice_does_not_narrow_the_other() -> None:
    """Halves of 24 elements from 0 and from 25: only the first starts at a multiple."""

    def build(fd: FusionDefinition) -> Any:
        x = half(fd, 65536, 64)
        return fd.ops.cast(fd.ops.slice(x, [0, 0], [65536, 24]) * fd.ops.slice(x, [0, 25], [65536, 49]), D.Half)

    kernel = kernel_of(fusion_of(build))
    (width,) = widths(kernel, "t0")
    assert width == max(m.width for m in walk(kernel.body) if isinstance(m, VectorMove) and m.dst.is_global) > 1


def test_a_cat_of_whole_vectors_is_wide() -> None:
    def build(fd: FusionDefinition) -> Any:
        rows = 1 << 17
        x = half(fd, rows, 128)
        first, second = fd.ops.slice(x, [0, 0], [rows, 64]), fd.ops.slice(x, [0, 64], [rows, 128])
        return fd.ops.cast(x * fd.ops.cat([fd.ops.cast(fd.ops.neg(second), D.Half), first], 1), D.Half)

    kernel = kernel_of(fusion_of(build))
    assert widths(kernel, "t0") == [8, 8, 8]
    (stored,) = [s for s in walk(kernel.body) if isinstance(s, VectorMove) and s.dst.is_global]
    assert stored.width == 8


def test_a_cat_across_a_vector_is_narrow() -> None:
    def build(fd: FusionDefinition) -> Any:
        return fd.ops.cat([fd.ops.neg(half(fd, 8192, 63)), fd.ops.neg(half(fd, 8192, 65))], 1)

    kernel = kernel_of(fusion_of(build))
    assert not [m for m in walk(kernel.body) if isinstance(m, VectorMove) and m.src.is_global]


def test_gathered_rows_are_wide_and_gathered_columns_are_not() -> None:
    def rows(fd: FusionDefinition) -> Any:
        return fd.ops.abs(fd.ops.index_select(half(fd, 512, 128), fd.define_tensor([8192], True, D.Int), 0))

    assert widths(kernel_of(fusion_of(rows)), "t0") == [8]

    def columns(fd: FusionDefinition) -> Any:
        return fd.ops.abs(fd.ops.index_select(half(fd, 8192, 128), fd.define_tensor([64], True, D.Int32), 1))

    assert widths(kernel_of(fusion_of(columns)), "t0") == []


def test_symbolic_extents() -> None:
    """Rows from an offset that no fact knows are read by vectors that begin anywhere, whole rows as wide as the input."""

    def build(fd: FusionDefinition) -> Any:
        x, n = half(fd, -1, 128), fd.define_scalar(D.Int)
        return fd.ops.relu(fd.ops.slice(x, [n, 0], [x.size(0), 128]))

    kernel = kernel_of_rows(fusion_of(build))
    assert widths(kernel, "t0") == [8], "the offset is of rows: every row starts at a multiple"

    def shifted(fd: FusionDefinition) -> Any:
        x, n = half(fd, -1, 128), fd.define_scalar(D.Int)
        return fd.ops.relu(fd.ops.slice(x, [0, n], [x.size(0), 128]))

    assert widths(kernel_of_rows(fusion_of(shifted)), "t0") == [4]


def kernel_of_rows(fusion: Fusion) -> Kernel:
    described = TensorDescriptor(D.Half, (1 << 17, 128), (128, 1), 256)
    bound = bind_inputs(fusion, [described, 8])
    (segment,) = segment_fusion(fusion).segments
    kernel = KernelCompiler(H200).compile_segment(segment, bound)[0].kernel_ir
    assert kernel is not None
    return kernel


def test_an_index_is_read_once_per_thread() -> None:
    def rows(fd: FusionDefinition) -> Any:
        return fd.ops.abs(fd.ops.index_select(half(fd, 512, 128), fd.define_tensor([8192], True, D.Int), 0))

    kernel = kernel_of(fusion_of(rows))
    assert sum(isinstance(s, LoadIndex) for s in walk(kernel.body)) == 1


def test_slices_of_one_input_in_one_kernel() -> None:
    """Halves that are no dims of each other, and a whole that is: on the simulator, without a copy."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 48], True, D.Float)
        first = fd.ops.slice(x, [0, 0], [x.size(0), 24])
        second = fd.ops.slice(x, [0, 24], [x.size(0), 48])
        fd.add_output(first * second)
        fd.add_output(first + fd.ops.slice(x, [0, 7], [x.size(0), 31]))
    data = np.random.default_rng(0).standard_normal((5, 48)).astype(np.float32)
    product, total = fd.execute([data], device="simulator")
    np.testing.assert_array_equal(product, data[:, :24] * data[:, 24:])
    np.testing.assert_array_equal(total, data[:, :24] + data[:, 7:31])
    assert len(fd.fec.kernels([data], device="simulator")) == 1


def test_stages_of_a_reduction_recompute_a_slice() -> None:
    """Each stage reads the slice again, in the same loops: equal windows are one dim."""

    def build(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, 40], True, D.Float)
        part = fd.ops.slice(x, [0, 8], [x.size(0), 40])
        return fd.ops.div(part, fd.ops.sum(fd.ops.sub(part, fd.ops.max(part, [1], True)), [1], True))

    fusion = fusion_of(build)
    scheduler = scheduler_by_type(SchedulerType.reduction)
    assert scheduler is not None
    data = np.random.default_rng(0).integers(-8, 9, (33, 40)).astype(np.float32)
    bound = bind_inputs(fusion, [data])
    params = scheduler.propose(fusion, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert not isinstance(params, Refused)
    kernel = check(scheduler.apply(fusion, params), [data], tolerance=1e-6)
    assert widths(kernel, "t0"), "every stage reads wide"
