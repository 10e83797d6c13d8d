"""The order of lowering: scheduled fusion and facts in, verified kernel out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from fuser import options
from fuser.errors import FuserError, InternalError
from fuser.ir.facts import Facts
from fuser.ir.fusion.fusion import tensor_inputs
from fuser.ir.integers.integers import ZERO
from fuser.ir.integers.proofs import ProofLog, check_proofs
from fuser.ir.kernel.kernel import Kernel, Stmt
from fuser.ir.kernel.verify_kernel import verify_kernel
from fuser.ir.ops.enums import LoadStoreOpType, MemoryType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.collectives.expand_collectives import Expanded, expand_collectives
from fuser.lowering.context import LoweringContext
from fuser.lowering.finish_kernel import finish_kernel
from fuser.lowering.loop_nests.build_loop_nests import NestBuilder
from fuser.lowering.memory.allocate_shared import SharedLayout, allocate_shared
from fuser.lowering.memory.in_place import in_place_outputs
from fuser.lowering.memory.partial_residency import partial_residency
from fuser.lowering.memory.pipeline_copies import pipeline_copies
from fuser.lowering.memory.prefetch_loads import prefetch_loads
from fuser.lowering.predicates.merge_predicates import merge_predicates
from fuser.lowering.predicates.peel_loops import peel_loops
from fuser.lowering.predicates.sink_into_branches import sink_into_branches
from fuser.lowering.predicates.unswitch_loops import unswitch_loops
from fuser.lowering.sync.insert_grid_barriers import insert_grid_barriers
from fuser.lowering.sync.insert_syncs import insert_syncs

_T = TypeVar("_T")

# Names of the passes in order: dumps, faults and errors use them.
PASSES = (
    "build_loop_nests",
    "prefetch_loads",
    "partial_residency",
    "pipeline_copies",
    "insert_grid_barriers",
    "expand_collectives",
    "allocate_shared",
    "insert_syncs",
    "peel_loops",
    "unswitch_loops",
    "merge_predicates",
    "sink_into_branches",
    "finish_kernel",
)


class LoweringObserver(Protocol):
    """Told of every pass's result; may replace it (a planted fault)."""

    def passed(self, name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]: ...


def lower_fusion(
    scheduled: ScheduleBuilder,
    facts: Facts,
    *,
    name: str = "fuser_kernel",
    observer: LoweringObserver | None = None,
    proofs: ProofLog | None = None,
) -> Kernel:
    """Lower a scheduled fusion to a kernel that is right for all inputs for which `facts` hold.

    With FUSER_VERIFY=passes (or a planted fault) the schedule and every pass's result are checked. `proofs` (a new one with
    FUSER_VERIFY=proofs) records every claim that lowering relies on; SymPy proves them again.
    Raises SchedulingError for a schedule that cannot be lowered, InternalError for a bug of a pass.
    """
    wanted = options.VERIFY.get()
    if proofs is None and "proofs" in wanted:
        proofs = ProofLog()
    verifies = "passes" in wanted or options.FAULT.get() is not None
    if verifies:
        from fuser.ir.schedule.verify_schedule import verify_schedule

        verify_schedule(scheduled)

    # What was checked last: after which pass, its body, and what else the checks looked at.
    checked: tuple[str, tuple[Stmt, ...], object] | None = None

    def seen(pass_name: str, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        nonlocal checked
        body = observer.passed(pass_name, body) if observer is not None else body
        if verifies:
            offsets = layout.offsets if is_placed else None
            thread_private, shared_across_blocks = (
                lowered.private_buffers | expanded.signalled,
                lowered.shared_across_blocks,
            )
            from fuser.lowering.checks.invariants import check_invariants
            from fuser.lowering.checks.pass_result import PassResult

            result = PassResult(
                body, offsets, thread_private, shared_within_block, context.one_thread, shared_across_blocks
            )
            # Most passes leave most bodies as they are, which are right still.
            beside = (result, expanded.workspaces, expanded.semaphores, layout)
            is_known = checked is not None and checked[1] is body and checked[2] == beside
            known_after = checked[0] if checked is not None and is_known else None
            check_invariants(pass_name, result, known_after)
            if known_after is None:
                # The rules of kernel IR too. Parameters and plan are as if the body were complete.
                verify_kernel(finish_kernel("unfinished", body, context, lowered, expanded, layout), pass_name)
            checked = pass_name, body, beside
        return body

    def step(pass_name: str, run: Callable[[], tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
        return seen(pass_name, _named(pass_name, run))

    context = LoweringContext(scheduled, facts, proofs)
    expanded, layout, shared_within_block, is_placed = Expanded(()), SharedLayout({}, ZERO), frozenset[str](), False
    builder = NestBuilder(context)
    lowered = _named("build_loop_nests", builder.build)
    body = seen("build_loop_nests", lowered.body)
    ahead, required = _loads_ahead(scheduled, MemoryType.local)
    body = step("prefetch_loads", lambda: prefetch_loads(body, ahead, required))
    body = step(
        "partial_residency",
        lambda: partial_residency(
            body, scheduled.kept_iterations, lowered.private_buffers, context.threads, context.sizes
        ),
    )
    recycled, must = _loads_ahead(scheduled, MemoryType.shared)
    asked = frozenset(n for n, s in scheduled.states.items() if s.op_type is LoadStoreOpType.cp_async)
    twice = frozenset(n for n in recycled if scheduled.states[n].iterations_ahead == 2)
    body = step("pipeline_copies", lambda: pipeline_copies(body, recycled, must, lowered.private_buffers, asked, twice))
    body = step("insert_grid_barriers", lambda: insert_grid_barriers(body, lowered.shared_across_blocks))
    expanded = _named(
        "expand_collectives",
        lambda: expand_collectives(
            body,
            context.threads,
            context.sizes,
            scheduled.cluster,
        ),
    )
    body = seen("expand_collectives", expanded.body)
    layout = _named("allocate_shared", lambda: allocate_shared(body))
    is_placed = True
    workspaces = (b.name for b in lowered.workspaces)
    shared_within_block = _shared_within_block(lowered.private_buffers, lowered.arguments, workspaces, context)
    body = seen("allocate_shared", body)
    # Signalled values need no barrier either: every thread waits for them itself.
    thread_private, one_thread = lowered.private_buffers | expanded.signalled, context.one_thread
    body = step(
        "insert_syncs",
        lambda: insert_syncs(body, layout.offsets, thread_private, shared_within_block, one_thread=one_thread),
    )
    lowered.in_place = _named("insert_syncs", lambda: in_place_outputs(context, body, lowered.arguments))
    body = step("peel_loops", lambda: peel_loops(body, proofs))
    body = step("unswitch_loops", lambda: unswitch_loops(body, proofs))
    body = step("merge_predicates", lambda: merge_predicates(body))
    body = step("sink_into_branches", lambda: sink_into_branches(body))
    kernel = _named("finish_kernel", lambda: finish_kernel(name, body, context, lowered, expanded, layout))
    if observer is not None:
        kernel = replace(kernel, body=observer.passed("finish_kernel", kernel.body))
    verify_kernel(kernel, "finish_kernel", is_final=True)
    if proofs is not None:
        check_proofs(proofs)
    return kernel


def _loads_ahead(scheduled: ScheduleBuilder, memory: MemoryType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the tensors in a memory that are to be loaded an iteration ahead, and of those that must be."""
    states = [(n, s) for n, s in scheduled.states.items() if s.loads_ahead and s.memory is memory]
    return frozenset(n for n, _ in states), frozenset(n for n, s in states if s.must_load_ahead)


def _named(pass_name: str, run: Callable[[], _T]) -> _T:
    """Run a pass; what escapes it unforeseen is a bug of that pass."""
    try:
        return run()
    except FuserError:
        raise
    except Exception as error:
        raise InternalError(f"{pass_name} failed: {type(error).__name__}: {error}", pass_name=pass_name) from error


def _shared_within_block(
    thread_private: set[str], arguments: Iterable[str], workspaces: Iterable[str], context: LoweringContext
) -> frozenset[str]:
    """Device-memory tensors that the kernel both writes and reads through other threads of the block."""
    candidates = {*arguments, *workspaces}
    read = {t.name for e in context.builder.exprs for t in tensor_inputs(e)}
    return frozenset(n for n in candidates & read if n not in thread_private and n not in context.builder.input_names)
