"""Asynchronous copies to shared memory: what they lower to, values, what is refused, and what a missing wait is reported as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.errors import InternalError, SchedulingError
from fuser.ir.fusion.fusion import Pointwise, is_copy
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    Comment,
    For,
    If,
    Stmt,
    walk,
)
from fuser.ir.kernel.verify_kernel import verify_kernel
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.checks.pass_result import Findings, PassResult
from fuser.lowering.checks.sync_checks import copies_are_waited_for
from fuser.runtime.kernels import nvrtc
from fuser.simulator.errors import Kind, SimulatorError
from tests.end_to_end.mutation import Judge, Verdict, What, describe, mutants
from tests.fusions.kernel_corpus import Case
from tests.judging.harness import check, integers, run
from tests.lowering.memory.copied_rows import changed, count, lowered, rows_in_shared_memory

GX, BX, VECTOR = ParallelType.grid_x, ParallelType.block_x, ParallelType.vectorize
Float = DataType.Float


@pytest.mark.in_turns
@pytest.mark.parametrize("blocks", [0, 1, 3, 20])
@pytest.mark.parametrize("threads", [8, 32, 96])
@pytest.mark.parametrize(("dtype", "vector"), [(Float, 4), (Float, 1), (DataType.BFloat16, 8), (DataType.BFloat16, 2)])
def test_values(blocks: int, threads: int, dtype: DataType, vector: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    s = rows_in_shared_memory(threads * vector * 3, threads, blocks=blocks, dtype=dtype, vector=vector)
    kernel = check(s, [integers((7, threads * vector * 3), dtype, low=-1, high=1)], seeds=(0, 1))
    # Rows of three pieces are read piece by piece.
    waits = 3 if blocks else 1
    assert (count(kernel, AsyncCopy), count(kernel, AsyncWait)) == (2 if blocks else 1, waits)
    assert kernel.shared_offsets["t0_cache_after_0"].value % 16 == 0


@pytest.mark.in_turns
@pytest.mark.parametrize("blocks", [1, 2, 3, 20])
@pytest.mark.parametrize(("length", "vector"), [(96, 4), (96, 1), (32, 4), (544, 4)])
def test_two_trips_ahead(blocks: int, length: int, vector: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    s = rows_in_shared_memory(length, 8, blocks=blocks, vector=vector, trips=2)
    kernel = check(s, [integers((7, length), low=-1, high=1)], seeds=(0, 1))
    assert count(kernel, AsyncCopy) == 3, "of the first two trips, and of the one after the next"
    pieces = length // (8 * vector)
    groups = pieces if 2 <= pieces <= 16 else 1
    waits = [s.pending for s in walk(kernel.body) if isinstance(s, AsyncWait)]
    assert waits == [*range(2 * groups - 1, groups - 1, -1)], "those of the next trip may be on their way"
    allocated = next(s.buffer for s in walk(kernel.body) if isinstance(s, Allocate) and s.buffer.is_shared)
    assert allocated.size.value == 2 * length


@pytest.mark.parametrize("length", [96, 32])
def test_no_copy_is_written_for_a_trip_that_there_never_is(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trips, both of which begin before the loop."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    s = rows_in_shared_memory(length, 8, blocks=3, trips=2, rows=6)
    kernel = check(s, [integers((6, length), low=-1, high=1)], seeds=(0, 1))
    assert count(kernel, AsyncCopy) == 2


def test_a_trip_in_the_place_of_another_is_reported() -> None:
    """All trips in one place: the copies of the next but one overtake the reads of the next."""
    made, inputs = lowered(rows_in_shared_memory(96, 8, blocks=2, trips=2))

    def same(s: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(s, AsyncCopy):
            return None
        return (AsyncCopy(s.dst, s.dst_index % 96, s.src, s.src_index, s.width, s.cache),)

    assert run(replace(made, kernel=changed(made.kernel, same)), inputs).error is not None


def test_a_trip_ahead_without_the_verb_waits_in_each_trip() -> None:
    s = rows_in_shared_memory(96, 8, blocks=3, ahead=False)
    kernel = check(s, [integers((7, 96))])
    assert (count(kernel, AsyncCopy), count(kernel, AsyncCommit), count(kernel, AsyncWait)) == (1, 1, 1)


def rows_of_odd_length(dtype: DataType, vector: int) -> ScheduleBuilder:
    s = rows_in_shared_memory(1001, 64, dtype=dtype, vector=vector)
    for t in s.tensors:
        expr = s.definition(t.name)
        if isinstance(expr, Pointwise) and is_copy(expr):
            s.allow_misaligned(t.name)
    return s


@pytest.mark.parametrize(("dtype", "vector"), [(Float, 4), (DataType.Double, 2)])
def test_elements_of_four_bytes_or_more_are_copied_asynchronously_wherever_they_begin(
    dtype: DataType, vector: int
) -> None:
    kernel, inputs = lowered(rows_of_odd_length(dtype, vector))
    copies = [s for s in walk(kernel.kernel.body) if isinstance(s, AsyncCopy)]
    sides = [s for s in walk(kernel.kernel.body) if isinstance(s, If) and s.orelse]
    whole = [c for s in sides for c in walk(s.then) if isinstance(c, AsyncCopy) and c.width == vector]
    assert {s.width for s in copies} == {1, vector}
    assert all(s in whole for s in copies if s.width == vector), "only of rows that begin where a vector does"
    run(kernel, inputs).check()


def test_rows_that_are_copied_by_element_are_told_of() -> None:
    """Rows of odd length begin anywhere: no vector of one is an asynchronous copy, and neither is an element of two bytes."""
    kernel, inputs = lowered(rows_of_odd_length(DataType.BFloat16, 8))
    assert count(kernel.kernel, AsyncCopy) == 0
    run(kernel, inputs).check()
    notes = [c.text for c in walk(kernel.kernel.body) if isinstance(c, Comment)]
    assert notes == [
        "t0_cache_after_0 is not copied asynchronously: its accesses begin anywhere, and each element stands under a test of "
        "its own"
    ]
    assert not any(isinstance(c, Comment) for c in walk(lowered(rows_in_shared_memory(1024, 64))[0].kernel.body))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("blocks", [0, 3])
def test_text_compiles(arch: str, blocks: int) -> None:
    kernel = lowered(rows_in_shared_memory(1024, 64, blocks=blocks))[0].kernel
    source = generate_cuda(kernel)
    assert "cp.async.cg" in source.text
    result = nvrtc.compile_to_cubin(source.text, [source.entry], arch, ["-DFUSER_MAX_THREADS=256"])
    resources = result.resources[source.entry]
    assert resources.spill_bytes == resources.stack_bytes == 0


# --- what goes wrong --------------------------------------------------------------------------------------------------


def without(kind: type[Stmt]) -> Callable[[Stmt], tuple[Stmt, ...] | None]:
    return lambda s: () if isinstance(s, kind) else None


def reported(s: ScheduleBuilder, rewrite: Callable[[Stmt], tuple[Stmt, ...] | None]) -> SimulatorError:
    made, inputs = lowered(s)
    error = run(replace(made, kernel=changed(made.kernel, rewrite)), inputs).error
    assert error is not None
    return error


@pytest.mark.parametrize("blocks", [0, 3])
def test_a_missing_wait_is_reported(blocks: int) -> None:
    error = reported(rows_in_shared_memory(96, 8, blocks=blocks), without(AsyncWait))
    assert error.kind is Kind.uninitialised_read
    assert "on its way" in str(error)
    assert error.second is not None
    assert error.second.buffer == "t0_cache_after_0"


@pytest.mark.parametrize("blocks", [0, 3])
def test_a_missing_commit_is_reported(blocks: int) -> None:
    error = reported(rows_in_shared_memory(96, 8, blocks=blocks), without(AsyncCommit))
    assert error.kind is Kind.uninitialised_read


def test_a_wait_for_too_few_groups_is_reported() -> None:
    error = reported(rows_in_shared_memory(96, 8), lambda s: (AsyncWait(1),) if isinstance(s, AsyncWait) else None)
    assert error.kind is Kind.uninitialised_read


@pytest.mark.parametrize(("blocks", "trips"), [(0, 1), (3, 1), (2, 2)])
def test_every_missing_barrier_commit_and_wait_is_reported(blocks: int, trips: int) -> None:
    def make() -> ScheduleBuilder:
        return rows_in_shared_memory(96, 8, blocks=blocks, trips=trips)

    case = Case(f"rows_in_shared_memory_{blocks}", "copies", make, (((7, 96),),))
    made, _ = lowered(make())
    judge = Judge(case, made)
    found = [m for m in mutants(made.kernel) if m.what is What.barrier]
    assert {"AsyncCommit", "AsyncWait"} <= {m.key for m in found}
    for mutant in found:
        verdict, evidence = judge.verdict(mutant)
        assert verdict is Verdict.reported, f"{evidence}\n{describe(case, mutant)}"


def test_a_copy_that_overtakes_a_read_is_reported() -> None:
    """The copy for the next row in front of the last read of this one."""

    def early(s: Stmt) -> tuple[Stmt, ...] | None:
        if (
            isinstance(s, For)
            and any(isinstance(x, AsyncCopy) for x in walk(s.body))
            and s.body[0].__class__ is not For
        ):
            copies = [x for x in s.body if any(isinstance(y, AsyncCopy) for y in walk((x,)))]
            if copies and copies[0] is not s.body[0] and not any(isinstance(x, AsyncWait) for x in s.body):
                rest = [x for x in s.body if x is not copies[0]]
                return (For(s.symbol, s.start, s.stop, s.step, (copies[0], *rest), s.unroll),)
        return None

    assert reported(rows_in_shared_memory(96, 8, blocks=3), early).kind is Kind.uninitialised_read


def test_a_copy_that_nobody_waits_for_is_reported() -> None:
    def again(s: Stmt) -> tuple[Stmt, ...] | None:
        return (s, s) if isinstance(s, AsyncCopy) else None

    made, inputs = lowered(rows_in_shared_memory(96, 8))
    copies = [s for s in walk(made.kernel.body) if isinstance(s, For) and isinstance(s.body[0], AsyncCopy)]
    kernel = replace(made.kernel, body=(*made.kernel.body, copies[0]))
    error = run(replace(made, kernel=kernel), inputs).error
    assert error is not None
    assert error.kind is Kind.lost_copy
    assert run(replace(made, kernel=changed(made.kernel, again)), inputs).error is None


def test_a_thread_that_reads_what_another_copied_needs_a_barrier() -> None:
    made, inputs = lowered(rows_in_shared_memory(96, 8))

    def shifted(s: Stmt) -> tuple[Stmt, ...] | None:
        if not isinstance(s, AsyncCopy):
            return None
        place = (s.dst_index + 4) % 96
        return (AsyncCopy(s.dst, place, s.src, (s.src_index + 4) % (7 * 96), s.width),)

    error = run(replace(made, kernel=changed(made.kernel, shifted)), inputs).error
    assert error is not None
    assert error.kind is Kind.race


def test_the_invariant_sees_a_missing_wait() -> None:
    kernel = lowered(rows_in_shared_memory(96, 8, blocks=3))[0].kernel
    for body, is_found in ((kernel.body, False), (changed(kernel, without(AsyncWait)).body, True)):
        found = Findings()
        copies_are_waited_for(PassResult(body), found)
        assert bool(found.statement_messages) is is_found


def test_the_verifier_refuses_what_is_no_copy_to_shared_memory() -> None:
    kernel = lowered(rows_in_shared_memory(96, 8))[0].kernel

    def narrow(s: Stmt) -> tuple[Stmt, ...] | None:
        return (AsyncCopy(s.dst, s.dst_index, s.src, s.src_index, 8),) if isinstance(s, AsyncCopy) else None

    with pytest.raises(InternalError, match="copies 32 bytes at once"):
        verify_kernel(changed(kernel, narrow), is_final=True)
    with pytest.raises(InternalError, match="nobody waits for this copy"):
        verify_kernel(changed(kernel, without(AsyncWait)), is_final=True)


def test_refusals() -> None:
    with pytest.raises(SchedulingError, match="2 bytes from global to shared"):
        lowered(rows_in_shared_memory(24, 8, dtype=DataType.BFloat16, vector=1))
    s = rows_in_shared_memory(96, 8)
    with pytest.raises(SchedulingError, match="is no input in device memory"):
        s.cache_after(s.fusion.output_tensors[0].name, LoadStoreOpType.cp_async)
    s.load_ahead("t0_cache_after_0")
    with pytest.raises(SchedulingError, match="cannot be copied an iteration ahead"):
        lowered(s)
    with pytest.raises(SchedulingError, match="3 iterations ahead: one in registers, two in shared memory"):
        s.load_ahead("t0_cache_after_0", iterations=3)
    s = rows_in_shared_memory(96, 8)
    s.set_memory_type("t0_cache_after_0", MemoryType.local)
    with pytest.raises(SchedulingError, match="from global to local memory"):
        lowered(s)
