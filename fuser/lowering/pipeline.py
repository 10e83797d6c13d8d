"""The order of the lowering passes: from a scheduled fusion and its facts to a verified kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

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
from fuser.lowering.loop_nests.build_loop_nests import LoweredBody, NestBuilder
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
_Body: TypeAlias = tuple[Stmt, ...]


class LoweringObserver(Protocol):
    """Told of every pass's result; may replace it (a planted fault)."""

    def passed(self, name: str, body: _Body) -> _Body: ...


@dataclass(slots=True, eq=False)
class _Lowering:
    """A fusion on its way to a kernel: the body that the passes so far have left, and what else they have found.

    shared_within_block   names of device-memory buffers through which threads of one block pass values; known with `layout`
    """

    scheduled: ScheduleBuilder
    context: LoweringContext
    lowered: LoweredBody
    body: _Body = ()
    expanded: Expanded = field(default_factory=lambda: Expanded(()))
    layout: SharedLayout | None = None
    shared_within_block: frozenset[str] = frozenset()

    @property
    def thread_private(self) -> set[str]:
        """Shared buffers that need no barrier: a thread reads what it wrote, or has waited for itself."""
        return self.lowered.thread_private | self.expanded.signalled

    def finished(self, name: str) -> Kernel:
        """The kernel of the body; of an unfinished one, as if it were complete."""
        layout = self.layout or SharedLayout({}, ZERO)
        return finish_kernel(name, self.body, self.context, self.lowered, self.expanded, layout)


def _prefetch_loads(s: _Lowering) -> _Body:
    ahead, required = _prefetched_tensors(s.scheduled, MemoryType.local)
    return prefetch_loads(s.body, ahead, required)


def _partial_residency(s: _Lowering) -> _Body:
    context = s.context
    return partial_residency(
        s.body, s.scheduled.kept_iterations, s.lowered.thread_private, context.threads, context.sizes
    )


def _pipeline_copies(s: _Lowering) -> _Body:
    ahead, required = _prefetched_tensors(s.scheduled, MemoryType.shared)
    states = s.scheduled.states
    requested = frozenset(n for n, state in states.items() if state.op_type is LoadStoreOpType.cp_async)
    double_buffered = frozenset(n for n in ahead if states[n].iterations_ahead == 2)
    return pipeline_copies(s.body, ahead, required, s.lowered.thread_private, requested, double_buffered)


def _expand_collectives(s: _Lowering) -> _Body:
    s.expanded = expand_collectives(s.body, s.context.threads, s.context.sizes, s.scheduled.cluster)
    return s.expanded.body


def _allocate_shared(s: _Lowering) -> _Body:
    s.layout = allocate_shared(s.body)
    workspaces = (b.name for b in s.lowered.workspaces)
    s.shared_within_block = _shared_within_block(s.lowered.thread_private, s.lowered.arguments, workspaces, s.context)
    return s.body


def _insert_syncs(s: _Lowering) -> _Body:
    assert s.layout is not None
    body = insert_syncs(
        s.body, s.layout.offsets, s.thread_private, s.shared_within_block, one_thread=s.context.one_thread
    )
    s.lowered.in_place = in_place_outputs(s.context, body, s.lowered.arguments)
    return body


_PASSES: dict[str, Callable[[_Lowering], _Body]] = {
    "build_loop_nests": lambda s: s.lowered.body,
    "prefetch_loads": _prefetch_loads,
    "partial_residency": _partial_residency,
    "pipeline_copies": _pipeline_copies,
    "insert_grid_barriers": lambda s: insert_grid_barriers(s.body, s.lowered.shared_across_blocks),
    "expand_collectives": _expand_collectives,
    "allocate_shared": _allocate_shared,
    "insert_syncs": _insert_syncs,
    "peel_loops": lambda s: peel_loops(s.body, s.context.proofs),
    "unswitch_loops": lambda s: unswitch_loops(s.body, s.context.proofs),
    "merge_predicates": lambda s: merge_predicates(s.body),
    "sink_into_branches": lambda s: sink_into_branches(s.body),
}

PASSES = (*_PASSES, "finish_kernel")
"""Names of the passes in order: dumps, faults and errors use them."""


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

    context = LoweringContext(scheduled, facts, proofs)
    lowered = _named("build_loop_nests", NestBuilder(context).build)
    state = _Lowering(scheduled, context, lowered)
    checks = _Checks(state) if verifies else None
    for pass_name, run in _PASSES.items():
        state.body = _named(pass_name, partial(run, state))
        if observer is not None:
            state.body = observer.passed(pass_name, state.body)
        if checks is not None:
            checks.check_pass(pass_name)
    kernel = _named("finish_kernel", lambda: state.finished(name))
    if observer is not None:
        kernel = replace(kernel, body=observer.passed("finish_kernel", kernel.body))
    verify_kernel(kernel, "finish_kernel", is_final=True)
    if proofs is not None:
        check_proofs(proofs)
    return kernel


class _Checks:
    """Checks what each pass left: what it ensures, and the rules of kernel IR."""

    def __init__(self, state: _Lowering) -> None:
        self._state = state
        # What was checked last: after which pass, its body, and all that the checks looked at.
        self._known: tuple[str, _Body, object] | None = None

    def check_pass(self, pass_name: str) -> None:
        """Raise InternalError for what is wrong after a pass."""
        from fuser.lowering.checks.invariants import check_invariants
        from fuser.lowering.checks.pass_result import PassResult

        s = self._state
        result = PassResult(
            s.body,
            None if s.layout is None else s.layout.offsets,
            s.thread_private,
            s.shared_within_block,
            s.context.one_thread,
            s.lowered.shared_across_blocks,
        )
        # Most passes leave most bodies as they are, which are right still.
        looked_at = (result, s.expanded.workspaces, s.expanded.semaphores, s.layout)
        known = self._known
        known_after = known[0] if known is not None and known[1] is s.body and known[2] == looked_at else None
        check_invariants(pass_name, result, known_after)
        if known_after is None:
            verify_kernel(s.finished("unfinished"), pass_name)
        self._known = pass_name, s.body, looked_at


def _prefetched_tensors(scheduled: ScheduleBuilder, memory: MemoryType) -> tuple[frozenset[str], frozenset[str]]:
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
