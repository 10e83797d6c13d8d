"""Rows that begin anywhere: wide accesses at every misalignment of rows and bases, right at both ends of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.kernel.kernel import If, Role, VectorMove, walk
from fuser.schedule.cost.row_mappings import RowMapping
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import laid_out
from tests.schedule.forced_rows import propose_only

D = DataType
Array = np.ndarray
Define = Callable[[FusionDefinition, DataType], None]
H200 = DeviceInfo.preset("H200")


def softmax(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    f = fd.ops.cast(x, D.Float)
    e = fd.ops.exp(fd.ops.sub(f, fd.ops.max(f, [1], keepdim=True)))
    fd.add_output(fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)), dtype))


def scaled(fd: FusionDefinition, dtype: DataType) -> None:
    """Rows over their sums, times weights along the row: whole numbers where rows sum up to 1."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    w = fd.define_tensor(shape=[-1], dtype=dtype)
    f = fd.ops.cast(x, D.Float)
    y = fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True))
    y = fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), D.Float))
    fd.add_output(fd.ops.cast(y, dtype))


def residual(fd: FusionDefinition, dtype: DataType) -> None:
    """Two full-size inputs and two outputs."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    r = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    h = fd.ops.add(x, r)
    f = fd.ops.cast(h, D.Float)
    fd.add_output(fd.ops.cast(fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True)), dtype))
    fd.add_output(h)


def row_sums(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.sum(fd.ops.cast(x, D.Float), [1]))


def column_sums(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.sum(fd.ops.cast(x, D.Float), [0]))


def variances(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.var_mean(fd.ops.cast(x, D.Float), [1], 0, False)[0])


def column_variances(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.var_mean(fd.ops.cast(x, D.Float), [0], 0, False)[0])


def added(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    r = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.relu(fd.ops.add(x, r)))


def biased(fd: FusionDefinition, dtype: DataType) -> None:
    """A narrow and a wide output, and values along the row."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    w = fd.define_tensor(shape=[-1], dtype=dtype)
    y = fd.ops.mul(x, fd.ops.broadcast(w, [True, False]))
    fd.add_output(fd.ops.cast(y, D.Float))
    fd.add_output(y)


def expected(define: Define, arrays: Sequence[Array]) -> list[Array]:
    x = arrays[0].astype(np.float64)
    if define is softmax:
        e = np.exp(x - x.max(1, keepdims=True))
        return [e / e.sum(1, keepdims=True)]
    if define is scaled:
        return [(x - x.sum(1, keepdims=True)) * arrays[1].astype(np.float64)]
    if define is all_sums:
        return [x.sum()]
    if define is running:
        return [x.cumsum(1)]
    if define is added:
        return [np.maximum(x + arrays[1].astype(np.float64), 0)]
    if define is biased:
        return [x * arrays[1].astype(np.float64)] * 2
    if define is residual:
        h = x + arrays[1].astype(np.float64)
        return [h - h.sum(1, keepdims=True), h]
    if define in (variances, column_variances):
        return [x.var(1 if define is variances else 0)]
    return [x.sum(1 if define is row_sums else 0)]


def check(define: Define, dtype: DataType, rows: int, columns: int, offsets: Sequence[int], padding: int = 0) -> None:
    rng = np.random.default_rng(columns)
    shapes = [(rows, columns)] * (2 if define in (residual, added) else 1) + [(columns,)] * (define in (scaled, biased))
    arrays = [rng.integers(-1, 2, s).astype(dtype.numpy) for s in shapes]
    inputs = [laid_out(a, columns + padding, offsets[i % len(offsets)]) for i, a in enumerate(arrays)]
    with FusionDefinition() as fd:
        define(fd, dtype)
    found = fd.execute(inputs, device="simulator")
    for got, want in zip(found, expected(define, arrays), strict=True):
        if define in (softmax, variances, column_variances):
            tolerance = {D.BFloat16: 1e-2, D.Half: 2e-3}.get(dtype, 1e-5)
            np.testing.assert_allclose(np.asarray(got).astype(np.float64), want, rtol=tolerance, atol=1e-6)
        else:
            np.testing.assert_array_equal(
                np.asarray(got).astype(np.float64), want.astype(dtype.numpy).astype(np.float64)
            )


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, scaled, residual])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "offsets", "padding"),
    [
        (D.BFloat16, 9, 257, (0,), 0),  # every misalignment of a row
        (D.BFloat16, 9, 257, (1,), 0),
        (D.BFloat16, 3, 263, (0, 3), 0),
        (D.BFloat16, 5, 257, (5, 0), 6),  # rows of the input and of the output begin at different places
        (D.BFloat16, 3, 264, (1,), 0),
        (D.BFloat16, 2, 4099, (0,), 0),
        (D.Float, 5, 129, (0,), 0),
        (D.Float, 5, 131, (3, 1), 2),
        (D.Float, 3, 132, (1, 0), 0),
        (D.Double, 3, 65, (0,), 0),
        (D.BFloat16, 9, 1369, (0,), 0),  # long enough to be cut
        (D.BFloat16, 9, 1369, (1,), 0),
        (D.BFloat16, 5, 1369, (5, 0), 6),
        (D.Float, 5, 801, (0,), 0),
        (D.Float, 5, 803, (3, 1), 2),
        (D.Double, 3, 601, (0,), 0),
    ],
)
def test_rows_in_registers(
    define: Define, dtype: DataType, rows: int, columns: int, offsets: Sequence[int], padding: int
) -> None:
    if dtype is D.Double and define is softmax:
        dtype = D.Half
    check(define, dtype, rows, columns, offsets, padding)


@pytest.mark.parametrize("define", [row_sums, column_sums, variances, column_variances])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "offset", "padding"),
    [
        (D.BFloat16, 9, 257, 0, 0),
        (D.BFloat16, 7, 1001, 3, 0),
        (D.BFloat16, 3, 264, 1, 0),
        (D.Float, 5, 131, 1, 1),
        (D.Float, 40, 129, 0, 0),
        (D.Half, 3, 4099, 7, 4),
    ],
)
def test_reductions(define: Define, dtype: DataType, rows: int, columns: int, offset: int, padding: int) -> None:
    check(define, dtype, rows, columns, (offset,), padding)


def all_sums(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.sum(fd.ops.cast(x, D.Float), [0, 1]))


@pytest.mark.parametrize(("columns", "offset", "padding"), [(1001, 0, 0), (1001, 3, 0), (1001, 0, 7), (1000, 1, 0)])
def test_rows_that_are_summed_as_one(columns: int, offset: int, padding: int) -> None:
    """Padded rows are no run of memory: no vector may lie across the end of one."""
    check(all_sums, D.BFloat16, 3, columns, (offset,), padding)


@pytest.mark.parametrize("define", [added, biased])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "offsets", "padding"),
    [
        (D.BFloat16, 40, 1001, (0,), 0),
        (D.BFloat16, 40, 1001, (1, 0), 0),
        (D.BFloat16, 40, 1001, (3, 5), 3),
        (D.BFloat16, 40, 1000, (0, 1), 0),
        (D.Float, 40, 1001, (0, 2), 0),
        (D.Float, 9, 4099, (1,), 0),
        (D.Half, 100, 300, (7, 0), 1),
        (D.Double, 30, 1001, (0,), 0),
        (D.BFloat16, 40, 1401, (0,), 0),
        (D.BFloat16, 40, 1401, (3, 5), 3),
    ],
)
def test_pointwise(
    define: Define, dtype: DataType, rows: int, columns: int, offsets: Sequence[int], padding: int
) -> None:
    check(define, dtype, rows, columns, offsets, padding)


def updated_rows(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    e = fd.ops.sub(x, fd.ops.sum(x, [1], keepdim=True))
    fd.add_output(e, x)


def updated(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    r = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.add(x, r), x)


def outer_norm(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.sub(x, fd.ops.sum(x, [0], keepdim=True)))


@pytest.mark.parametrize("define", [updated_rows, updated])
@pytest.mark.parametrize(("columns", "offset", "padding"), [(1001, 0, 0), (1001, 3, 0), (1000, 1, 0), (1001, 0, 7)])
def test_updates_in_place(define: Define, columns: int, offset: int, padding: int) -> None:
    rng = np.random.default_rng(0)
    x, r = (
        laid_out(rng.integers(-1, 2, (40, columns)).astype(np.float32), columns + padding, offset) for _ in range(2)
    )
    want = x + r if define is updated else x - x.sum(1, keepdims=True)
    with FusionDefinition() as fd:
        define(fd, D.Float)
    fd.execute([x, r] if define is updated else [x], device="simulator")
    np.testing.assert_array_equal(x, want)


def test_stores_that_no_cut_aligns_are_not_vectors() -> None:
    """Rows of columns that all threads walk down, and updates of what lies off by an element."""
    x = described(D.Float, 4096, 50257)
    assert not any(m.dst.is_global for m in moves_of(outer_norm, D.Float, x))
    off = described(D.Float, 4096, 50257, alignment=4)
    assert not moves_of(updated, D.Float, off, off)
    found = {m.src.name: m.aligned for m in moves_of(updated, D.Float, x, off) if m.src.is_global}
    assert found == {"t0": True, "t1": False}


def test_rows_of_a_thread_have_vectors_of_their_own() -> None:
    """Heavy ops and weights: rows would share a thread, if their weights were at the same places."""

    def weighted(fd: FusionDefinition, dtype: DataType) -> None:
        x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
        w = fd.define_tensor(shape=[-1], dtype=dtype)
        fd.add_output(fd.ops.tanh(fd.ops.add(x, fd.ops.broadcast(w, [True, False]))))

    for dtype in (D.BFloat16, D.Float):
        found = moves_of(weighted, dtype, described(dtype, 40960, 50257), described(dtype, 50257))
        assert [m.aligned for m in found if m.src.is_global].count(True) >= 1


def running(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    fd.add_output(fd.ops.cast(fd.ops.cumsum(fd.ops.cast(x, D.Float), 1), dtype))


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "offset", "padding"),
    [
        (D.BFloat16, 9, 257, 0, 0),
        (D.BFloat16, 3, 1001, 3, 0),
        (D.Half, 3, 264, 1, 0),
        (D.Float, 5, 131, 1, 1),
        (D.Float, 2, 9001, 0, 0),
        (D.Float, 1, 9000, 1, 0),
    ],
)
def test_scans(dtype: DataType, rows: int, columns: int, offset: int, padding: int) -> None:
    check(running, dtype, rows, columns, (offset,), padding)


def described(dtype: DataType, *sizes: int, alignment: int = 256) -> TensorDescriptor:
    strides = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        strides[d] = strides[d + 1] * sizes[d + 1]
    return TensorDescriptor(dtype, sizes, tuple(strides), alignment)


def moves_of(define: Define, dtype: DataType, *inputs: TensorDescriptor) -> list[VectorMove]:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    made = KernelCompiler(SimulatorDevice(info=H200)).compile(fd.fusion.ir_fusion, list(inputs))
    assert made.kernel_ir is not None
    return [s for s in walk(made.kernel_ir.body) if isinstance(s, VectorMove)]


def in_registers(m: RowMapping) -> bool:
    """Of one block."""
    return not m.in_shared and m.sharing == 1


def test_rows_that_follow_the_output_are_aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, in_registers)
    found = moves_of(softmax, D.BFloat16, described(D.BFloat16, 4096, 5001))
    assert [(m.width, m.aligned, m.src.is_global) for m in found] == [(8, True, True), (8, True, False)]


def test_what_lies_elsewhere_is_read_from_any_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights begin at one address whatever the row, and a base may be off by an element."""
    propose_only(monkeypatch, in_registers)
    x, w = described(D.BFloat16, 4096, 5001), described(D.BFloat16, 5001)
    found = {m.src.name: (m.width, m.aligned) for m in moves_of(scaled, D.BFloat16, x, w) if m.src.is_global}
    assert found == {"t0": (8, True), "t1": (8, False)}
    x = described(D.BFloat16, 4096, 5001, alignment=2)
    assert [(m.width, m.aligned) for m in moves_of(softmax, D.BFloat16, x) if m.src.is_global] == [(8, False)]


def test_what_is_only_read_is_cut_at_its_own_places() -> None:
    """No store asks for others, and the base of an input may be off by an element."""
    x = described(D.Float, 4096, 8192, alignment=4)
    found = moves_of(row_sums, D.Float, x)
    assert {(m.width, m.aligned) for m in found if m.src.is_global} == {(4, True)}


def test_rows_without_stores_are_cut_at_their_own_places() -> None:
    found = moves_of(row_sums, D.BFloat16, described(D.BFloat16, 4096, 5001, alignment=2))
    assert {(m.width, m.aligned) for m in found if m.src.is_global} == {(8, True)}


def test_aligned_rows_are_not_cut() -> None:
    x = described(D.BFloat16, 4096, 4096)
    with FusionDefinition() as fd:
        softmax(fd, D.BFloat16)
    assert fd.fusion is not None
    made = KernelCompiler(SimulatorDevice(info=H200)).compile(fd.fusion.ir_fusion, [x])
    assert made.kernel_ir is not None
    assert not any(isinstance(s, If) and s.role in (Role.predicate, Role.unswitch) for s in walk(made.kernel_ir.body))
