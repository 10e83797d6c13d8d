"""Rows that begin anywhere, in shared memory, one or several of a thread at once: values at every phase, at both ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.kernel import AsyncCopy, Kernel, Store, VectorMove, walk
from fuser.ir.kernel_accesses import stmt_reads
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.cost.peeled_rows import choose_peeled_shape
from fuser.schedule.params import InnerPersistentParams, Params, Refused, SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from tests.schedule.analysis.test_alignment import laid_out
from tests.schedule.schedulers.test_inner_persistent import (
    Definition,
    add_norm,
    fusion_of,
    layer_norm,
    reference,
    softmax,
)

D = DataType


def force(
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    batch: int,
    cluster: int,
    funnel_shifted: tuple[str, ...] = (),
    *,
    one_pass: bool = False,
) -> None:
    """Rows of every proposal lie in shared memory, spread like this."""
    propose = InnerPersistentScheduler.propose

    def changed(self: InnerPersistentScheduler, segment: Any, *arguments: Any) -> Params | Refused:
        params = propose(self, segment, *arguments)
        assert isinstance(params, InnerPersistentParams)
        cut = params.vector - 1 if params.aligned_to else 0
        capacity = threads * batch * cluster * params.vector - cut
        return replace(
            params,
            threads=threads,
            rows=1,
            batch=batch,
            cluster=cluster,
            inputs_only=True,
            in_shared=tuple(t.name for t in segment.input_tensors if t.ndim == 2),
            funnel_shifted=funnel_shifted,
            one_pass=one_pass or params.one_pass,
            blocks=0,
            in_grid=0,
            bounds=tuple((name, dim, 1, capacity) for name, dim, _, _ in params.bounds),
        )

    monkeypatch.setattr(InnerPersistentScheduler, "propose", changed)


def check(define: Definition, dtype: DataType, rows: int, columns: int) -> Kernel:
    rng = np.random.default_rng(columns)
    shapes = [(rows, columns)] * (1 + (define is add_norm)) + [(columns,)] * (define is layer_norm)
    arrays = [rng.normal(size=s).astype(dtype.numpy) for s in shapes]
    inputs = [laid_out(a, columns, 0) for a in arrays]
    with FusionDefinition() as fd:
        define(fd, dtype)
    found = fd.execute(inputs, device="simulator")
    (launch,) = fd.program(inputs).launches()
    assert launch.kernel.kernel_ir is not None
    wide = [s for s in walk(launch.kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert wide
    assert all(s.width * dtype.itemsize >= 8 for s in wide), "whole accesses but for the ends of a row"
    assert any(s.cut for s in wide), "what an end cuts comes in one access, too"
    alone = [b for s in walk(launch.kernel.kernel_ir.body) if isinstance(s, Store) for b, _ in stmt_reads(s)]
    assert not {s.src for s in wide}.intersection(alone)
    reads = [s for s in walk(launch.kernel.kernel_ir.body) if isinstance(s, VectorMove) and s.src.is_shared]
    rows_read = [b for s in walk(launch.kernel.kernel_ir.body) for b, _ in stmt_reads(s) if b in {r.src for r in reads}]
    assert len(rows_read) == len(reads), "what lies in shared memory is read whole, ends of a row and all"
    tolerance = {D.BFloat16: 1.2e-2, D.Half: 2e-3}.get(dtype, 2e-5)
    for got, expected in zip(found, reference(define, arrays), strict=True):
        scale = np.maximum(np.abs(expected), np.sqrt(np.mean(expected**2)))
        assert np.all(np.abs(np.asarray(got).astype(np.float64) - expected) <= tolerance * scale + 1e-6)
    return launch.kernel.kernel_ir


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "threads", "batch", "cluster"),
    [
        (D.BFloat16, 9, 1401, 32, 6, 1),
        (D.BFloat16, 9, 1401, 32, 3, 2),
        (D.BFloat16, 9, 1401, 64, 5, 1),
        (D.Half, 9, 1515, 64, 4, 1),
        (D.Float, 5, 1001, 64, 4, 1),
    ],
)
def test_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    columns: int,
    threads: int,
    batch: int,
    cluster: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, threads, batch, cluster)
    check(define, dtype, rows, columns)


def scaled(fd: FusionDefinition, dtype: DataType) -> None:
    """A row over its sum, of an input that need not be dense."""
    x = fd.define_tensor(shape=[-1, -1], dtype=dtype)
    f = fd.ops.cast(x, D.Float)
    fd.add_output(fd.ops.cast(fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True)), dtype))


@pytest.mark.parametrize(
    ("dtype", "columns", "padding", "offset", "shape"),
    [
        (D.BFloat16, 1401, 3, 0, (32, 6, 1)),
        (D.BFloat16, 1401, 0, 5, (32, 3, 2)),
        (D.Float, 901, 1, 1, (32, 8, 1)),
        (D.Double, 130, 1, 0, (32, 3, 1)),
        (D.Double, 601, 0, 1, (32, 10, 1)),
    ],
)
def test_rows_of_another_phase_pass_through_registers(
    dtype: DataType,
    columns: int,
    padding: int,
    offset: int,
    shape: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, *shape, funnel_shifted=("t0",))
    rng = np.random.default_rng(columns)
    x = rng.integers(-1, 2, (9, columns)).astype(dtype.numpy)
    with FusionDefinition() as fd:
        scaled(fd, dtype)
    (found,) = fd.execute([laid_out(x, columns + padding, offset)], device="simulator")
    wide = x.astype(np.float64)
    want = wide - wide.sum(1, keepdims=True)
    np.testing.assert_array_equal(np.asarray(found).astype(np.float64), want.astype(dtype.numpy).astype(np.float64))


def softmax_of_doubles(fd: FusionDefinition) -> None:
    """Of an input that need not be dense."""
    x = fd.define_tensor(shape=[-1, -1], dtype=D.Double)
    e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], keepdim=True)))
    fd.add_output(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)))


def norm_of_doubles(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], dtype=D.Double)
    w = fd.define_tensor(shape=[-1], dtype=D.Double, contiguity=True)
    variance, mean = fd.ops.var_mean(x, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(x, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    fd.add_output(fd.ops.mul(y, fd.ops.broadcast(w, [True, False])))


DOUBLES: dict[Any, Any] = {softmax_of_doubles: softmax, norm_of_doubles: layer_norm}


def run_doubles(define: Any, rows: int, columns: int, padding: int, offset: int) -> list[AsyncCopy]:
    """The asynchronous copies of the kernel, whose results are compared."""
    kernel = kernel_of_doubles(define, rows, columns, padding, offset)
    return [s for s in walk(kernel.body) if isinstance(s, AsyncCopy)]


def kernel_of_doubles(define: Any, rows: int, columns: int, padding: int, offset: int) -> Kernel:
    """The kernel, whose results are compared."""
    rng = np.random.default_rng(columns)
    shapes = [(rows, columns)] + [(columns,)] * (define is norm_of_doubles)
    arrays = [rng.normal(size=s) for s in shapes]
    with FusionDefinition() as fd:
        define(fd)
    inputs = [laid_out(a, columns + padding, offset) if a.ndim == 2 else a for a in arrays]
    (found,) = fd.execute(inputs, device="simulator")
    (launch,) = fd.program(inputs).launches()
    assert launch.kernel.kernel_ir is not None
    np.testing.assert_allclose(np.asarray(found), reference(DOUBLES[define], arrays)[0], rtol=1e-13, atol=1e-13)
    return launch.kernel.kernel_ir


@pytest.mark.parametrize("define", list(DOUBLES))
@pytest.mark.parametrize(("columns", "padding", "offset"), [(600, 1, 0), (601, 0, 1), (601, 2, 0), (130, 3, 1)])
def test_doubles_of_another_phase_are_copied_one_by_one(
    define: Any, columns: int, padding: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asynchronously, so that no thread waits for its loads. Of rows that may begin at a place of the same kind as what they
    are cut by, those that do come by whole accesses."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, 32, 5, 2)
    copies = run_doubles(define, 9, columns, padding, offset)
    assert {s.width for s in copies} == ({1} if offset else {1, 2})


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half])
@pytest.mark.parametrize(("columns", "shape"), [(1401, (32, 3, 2)), (2807, (32, 6, 2)), (1515, (32, 2, 4))])
def test_exponentials_in_one_pass(
    dtype: DataType, columns: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exchange of a cluster for the largest and the sum."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, *shape, one_pass=True)
    check(softmax, dtype, 5, columns)


@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "expected"),
    [(D.Half, 83, 250_003, True), (D.BFloat16, 900, 128_257, True), (D.Float, 700, 50_257, False)],
)
def test_sixteen_bits_take_one_pass(dtype: DataType, rows: int, columns: int, expected: bool) -> None:
    fusion = optimize_fusion(fusion_of(softmax, dtype), lambda *_: None)
    described = [TensorDescriptor(dtype, (rows, columns), (columns, 1), 256, 0)]
    bound = bind_inputs(fusion, described)
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    params = InnerPersistentScheduler().propose(fusion, inputs, DeviceInfo.preset("H200"))
    assert isinstance(params, InnerPersistentParams)
    assert params.in_shared
    assert params.one_pass is expected


@pytest.mark.parametrize(("columns", "padding", "offset"), [(1001, 4, 0), (1001, 8, 4), (998, 3, 0), (1003, 4, 2)])
def test_rows_that_happen_to_be_in_phase_are_copied_whole(
    columns: int, padding: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are is asked of each row: pitches that differ by a whole number of accesses, all rows, others some."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    force(monkeypatch, 32, 5, 2)
    x = np.random.default_rng(columns).normal(size=(9, columns)).astype(np.float32)
    with FusionDefinition() as fd:
        rows = fd.define_tensor(shape=[-1, -1], dtype=D.Float)
        e = fd.ops.exp(fd.ops.sub(rows, fd.ops.max(rows, [1], keepdim=True)))
        fd.add_output(fd.ops.div(e, fd.ops.sum(e, [1], keepdim=True)))
    inputs = [laid_out(x, columns + padding, offset)]
    (found,) = fd.execute(inputs, device="simulator")
    np.testing.assert_allclose(np.asarray(found), reference(softmax, [x])[0], rtol=1e-5, atol=1e-7)
    (launch,) = fd.program(inputs).launches()
    assert launch.kernel.kernel_ir is not None
    copies = [s for s in walk(launch.kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert {s.width for s in copies} == ({1} if offset % 4 else {1, 4})


def test_claims_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "proofs")
    force(monkeypatch, 32, 6, 1)
    check(layer_norm, D.BFloat16, 9, 1401)


@pytest.mark.parametrize(
    ("length", "rows", "vector", "loaded", "beside", "exchanges", "shape"),
    [
        (50257, 1903, 8, 2, 4, 2, (640, 10, 1)),  # layer_norm, weights of 16 bits: 140 us, 146 with 544 threads
        (50257, 3560, 8, 4, 0, 1, (640, 5, 2)),  # gradient of softmax: 291 us, 375 over four blocks
        (16385, 12000, 8, 2, 4, 2, (256, 9, 1)),  # layer_norm: 289 us, 275 with 224 threads, 360 over two blocks
        (250003, 198, 8, 2, 2, 1, (512, 8, 8)),  # rms_norm: 73 us, 89 over sixteen blocks, 90 over four
        (250003, 42, 4, 2, 8, 2, (384, 21, 8)),  # layer_norm of few rows: 30 us
        (250003, 42, 4, 2, 8, 1, (384, 21, 8)),  # in one pass: 26.4 us, 27.2 with 448 threads
        (250003, 536, 4, 2, 8, 1, (384, 21, 8)),  # 232 us, 255 with 512 threads, 253 over sixteen blocks
        (250003, 21, 4, 2, 8, 1, (512, 8, 16)),  # fewer rows: 19.6 us, 25.1 with 384 threads
    ],
)
def test_shapes_that_were_best_on_an_h200(
    length: int,
    rows: int,
    vector: int,
    loaded: int,
    beside: int,
    exchanges: int,
    shape: tuple[int, int, int],
) -> None:
    found = choose_peeled_shape(
        length + vector - 1, rows, vector, loaded, beside, exchanges, 2, DeviceInfo.preset("H200")
    )
    assert found is not None
    assert (found.threads, found.batch, found.cluster) == shape


@pytest.mark.parametrize("length", [5000, 8191, 33000, 128256, 1_000_003])
@pytest.mark.parametrize("loaded", [2, 4, 8, 16])
@pytest.mark.parametrize("beside", [0, 4])
def test_shapes_fit(length: int, loaded: int, beside: int) -> None:
    device = DeviceInfo.preset("H200")
    shape = choose_peeled_shape(length, 1000, 4, loaded, beside, 2, 2, device)
    if shape is None:
        assert length * loaded > 8 * device.shared_per_block_optin
        return
    assert shape.threads * shape.batch * shape.cluster * 4 >= length
    assert shape.in_flight == shape.resident * shape.threads * shape.batch * 4 * loaded
    assert shape.in_flight <= device.shared_per_sm
