"""Rows in shared memory, aligned or peeled at alignment: values, one read of the data in whole accesses, no spill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType
from fuser.codegen.generate import generate_cuda
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.kernel.kernel import AsyncCopy, AsyncWait, Kernel, Store, VectorMove, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.runtime.kernels import nvrtc
from fuser.schedule.cost.row_mappings import RowMapping
from fuser.schedule.params import InnerPersistentParams, Peeled
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import (
    Definition,
    add_norm,
    arrays_for,
    assert_near,
    described,
    fusion_of,
    inputs_for,
    laid_out,
    layer_norm,
    less_its_sum,
    padded_norm,
    padded_softmax,
    reference,
    shapes_of,
    softmax,
)
from tests.schedule.forced_rows import change_proposals, execute_rows, propose_only, proposed, run_rows

D = DataType


def in_shared(threads: int = 0, sharing: int = 1, *, one_pass: bool = False) -> Callable[[RowMapping], bool]:
    """Of one block, or of a cluster. `threads`: 0 for any number."""

    def kind(m: RowMapping) -> bool:
        return (
            m.in_shared
            and not m.groups
            and m.threads == (threads or m.threads)
            and (m.sharing, m.one_pass) == (sharing, one_pass)
        )

    return kind


# ---------------------------------------------------------------- whole accesses


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16])
@pytest.mark.parametrize(("rows", "length"), [(3, 1032), (33, 1544)])
@pytest.mark.parametrize(("threads", "sharing"), [(64, 1), (32, 1), (32, 2)])
def test_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    length: int,
    threads: int,
    sharing: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One block a row and several, whole and ragged accesses."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(threads, sharing))
    params = proposed(fusion_of(define, dtype), *shapes_of(define, rows, length), dtype=dtype)
    assert params.in_shared == tuple(t.name for t in fusion_of(define, dtype).input_tensors if t.ndim == 2)
    run_rows(define, dtype, rows, length)


@pytest.mark.parametrize("define", [softmax, layer_norm])
@pytest.mark.parametrize("sharing", [1, 2])
def test_values_in_one_pass(define: Definition, sharing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(32, sharing, one_pass=True))
    run_rows(define, D.BFloat16, 5, 1544)


def test_the_data_is_read_once_and_copied_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: in_shared(64)(m) and m.batch == 2)
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion_of(softmax, D.BFloat16), [described(D.BFloat16, 33, 1024)]
    )
    assert kernel.kernel_ir is not None
    copies = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert [s.width for s in copies] == [8]
    waits = [s.pending for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncWait)]
    assert waits == [0]
    assert kernel.source.count("&t0[") == 1


def test_groups_load_the_next_row_while_they_work_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: m.in_shared and m.groups > 0 and m.batch == 4)
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(
        fusion_of(softmax, D.BFloat16), [described(D.BFloat16, 4000, 1 << 16)]
    )
    assert kernel.kernel_ir is not None
    copies = [s for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncCopy)]
    assert [s.width for s in copies] == [8, 8], "the first row, and the next one"
    waits = [s.pending for s in walk(kernel.kernel_ir.body) if isinstance(s, AsyncWait)]
    assert waits == [3, 2, 1, 0], "the pieces of a row are waited for one after the other"
    assert kernel.source.count("&t0[") == 2


@pytest.mark.skipif(not nvrtc.is_available(), reason="no NVRTC")
@pytest.mark.parametrize(
    ("define", "rows", "length", "sharing"),
    [
        (softmax, 2048, 65536, 1),
        (softmax, 64, 1 << 20, 16),
        (layer_norm, 2048, 65536, 2),
        (add_norm, 2048, 65536, 8),
    ],
)
def test_a_block_of_any_size_does_not_spill(
    define: Definition, rows: int, length: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(monkeypatch, in_shared(sharing=sharing))
    shapes = [described(D.BFloat16, *s) for s in shapes_of(define, rows, length)]
    made = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(define, D.BFloat16), shapes)
    assert made.kernel_ir is not None
    source = generate_cuda(made.kernel_ir)
    result = nvrtc.compile_to_cubin(source.text, [source.entry], "sm_90a", ["-DFUSER_MAX_THREADS=1024"])
    resources = result.resources[source.entry]
    assert resources.spill_bytes == resources.stack_bytes == 0


def test_what_cannot_be_copied_while_threads_go_on_stays_in_registers() -> None:
    old = replace(DeviceInfo.preset("sm_75"), max_cluster=16, cluster_share=H200.cluster_share)
    for length in (1024, 16384, 65536):
        assert not proposed(fusion_of(softmax, D.BFloat16), (2048, length), dtype=D.BFloat16, device=old).in_shared


# ---------------------------------------------------------------- rows that begin anywhere


def test_how_rows_that_begin_anywhere_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: m.in_shared and not m.groups)
    cut = proposed(fusion_of(softmax, D.BFloat16), (2048, 65537), dtype=D.BFloat16)
    assert cut.in_shared == ("t0",), "whole but for the ends of a row"
    assert isinstance(cut.access, Peeled)
    assert not cut.funnel_shifted
    fusion = fusion_of(padded_softmax, D.BFloat16)
    padded = TensorDescriptor(D.BFloat16, (2048, 65537), (65540, 1))
    elsewhere = InnerPersistentScheduler().propose(fusion, inputs_for(fusion, padded), H200)
    assert isinstance(elsewhere, InnerPersistentParams)
    assert elsewhere.funnel_shifted == elsewhere.in_shared == ("t0",)


def check(define: Definition, dtype: DataType, rows: int, columns: int) -> Kernel:
    """The kernel of dense rows, whose results are compared: rows are read once, in whole accesses."""
    arrays = arrays_for(define, dtype, rows, columns)
    found, kernel = execute_rows(define, [laid_out(a, columns, 0) for a in arrays], dtype)
    wide = [s for s in walk(kernel.body) if isinstance(s, AsyncCopy)]
    assert wide
    assert all(s.width * dtype.itemsize >= 8 for s in wide), "whole accesses but for the ends of a row"
    assert any(s.cut for s in wide), "what an end cuts comes in one access, too"
    alone = [b for s in walk(kernel.body) if isinstance(s, Store) for b, _ in stmt_reads(s)]
    assert not {s.src for s in wide}.intersection(alone)
    reads = [s for s in walk(kernel.body) if isinstance(s, VectorMove) and s.src.is_shared]
    rows_read = [b for s in walk(kernel.body) for b, _ in stmt_reads(s) if b in {r.src for r in reads}]
    assert len(rows_read) == len(reads), "what lies in shared memory is read whole, ends of a row and all"
    assert_near(found, reference(define, arrays), dtype)
    return kernel


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns", "threads", "sharing"),
    [
        (D.BFloat16, 9, 1401, 32, 1),
        (D.BFloat16, 9, 1401, 32, 2),
        (D.BFloat16, 9, 1401, 64, 1),
        (D.Half, 9, 1515, 64, 1),
        (D.Float, 5, 1001, 64, 1),
    ],
)
def test_peeled_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    columns: int,
    threads: int,
    sharing: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(threads, sharing))
    check(define, dtype, rows, columns)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm])
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half])
@pytest.mark.parametrize(("columns", "sharing"), [(1401, 2), (2807, 2), (4113, 8)])
def test_peeled_values_in_one_pass(
    define: Definition, dtype: DataType, columns: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One exchange of a cluster for the largest and the sum."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(32, sharing, one_pass=True))
    check(define, dtype, 5, columns)


@pytest.mark.parametrize(
    ("dtype", "columns", "padding", "offset", "sharing"),
    [
        (D.BFloat16, 1401, 3, 0, 1),
        (D.BFloat16, 1401, 0, 5, 2),
        (D.Half, 1515, 1, 3, 2),
        (D.Float, 901, 1, 1, 1),
        (D.Double, 130, 1, 0, 1),
        (D.Double, 601, 0, 1, 1),
    ],
)
def test_rows_of_another_phase_pass_through_registers(
    dtype: DataType, columns: int, padding: int, offset: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Funnel-shifted; wider elements are where they are told to be."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(32, sharing))
    if dtype.itemsize > 2:
        change_proposals(monkeypatch, lambda p: replace(p, funnel_shifted=("t0",)))
    x = np.random.default_rng(columns).integers(-1, 2, (9, columns)).astype(dtype.numpy)
    found, kernel = execute_rows(less_its_sum, [laid_out(x, columns + padding, offset)], dtype)
    assert not any(isinstance(s, AsyncCopy) for s in walk(kernel.body))
    (want,) = reference(less_its_sum, [x])
    np.testing.assert_array_equal(found[0].astype(np.float64), want.astype(dtype.numpy).astype(np.float64))


@pytest.mark.parametrize("define", [padded_softmax, padded_norm])
@pytest.mark.parametrize(
    ("columns", "padding", "offset", "sharing"), [(600, 1, 0, 2), (601, 0, 1, 2), (601, 2, 0, 2), (130, 3, 1, 1)]
)
def test_doubles_of_another_phase_are_copied_one_by_one(
    define: Definition, columns: int, padding: int, offset: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asynchronously, so that no thread waits for its loads. Of rows that may begin at a place of the same kind as what they
    are cut by, those that do come by whole accesses."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(32, sharing))
    arrays = arrays_for(define, D.Double, 9, columns)
    given = [laid_out(a, columns + padding, offset) if a.ndim == 2 else a for a in arrays]
    found, kernel = execute_rows(define, given, D.Double)
    np.testing.assert_allclose(found[0], reference(define, arrays)[0], rtol=1e-13, atol=1e-13)
    copies = [s for s in walk(kernel.body) if isinstance(s, AsyncCopy)]
    assert {s.width for s in copies} == ({1} if offset else {1, 2})


@pytest.mark.parametrize(("columns", "padding", "offset"), [(1001, 4, 0), (1001, 8, 4), (998, 3, 0), (1003, 4, 2)])
def test_rows_that_happen_to_be_in_phase_are_copied_whole(
    columns: int, padding: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are is asked of each row: strides that differ by a whole number of accesses, all rows, others some."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, in_shared(32, 2))
    (x,) = arrays_for(padded_softmax, D.Float, 9, columns)
    found, kernel = execute_rows(padded_softmax, [laid_out(x, columns + padding, offset)], D.Float)
    assert_near(found, reference(padded_softmax, [x]), D.Float)
    copies = [s for s in walk(kernel.body) if isinstance(s, AsyncCopy)]
    assert {s.width for s in copies} == ({1} if offset % 4 else {1, 4})


def test_claims_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "proofs")
    propose_only(monkeypatch, in_shared(32))
    check(layer_norm, D.BFloat16, 9, 1401)
