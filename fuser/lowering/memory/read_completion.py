"""Whether a read is complete before a store to the same element runs, considering program order, barriers and waits.

A load is complete for its own thread at once, and for other threads of the block after a barrier. An asynchronous copy is
complete once its thread has waited for its group.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.integers.integers import Symbol, prove_less
from fuser.ir.kernel.kernel import AsyncCommit, AsyncCopy, AsyncWait, BlockBarrier, ClusterWait, For, If, Stmt
from fuser.records import record

_DONE = -1
_ITERATIONS = 4
"""Of a loop that are followed: copies are waited for in the next one or the one after it."""


@record
class _ReadState:
    """How far a read is.

    groups    how many groups of copies were complete since it started, its own included; or _DONE: the thread has the value
    matters   whether a store can already be to this element; for a conflict that a loop carries: from its next iteration on
    """

    groups: int
    matters: bool


def is_read_complete_before_writes(
    body: Sequence[Stmt], read: Stmt, writes: frozenset[Stmt], after: Symbol | None, *, needs_barrier: bool
) -> bool:
    """Whether a read is complete on every way from it to one of the stores `writes`.

    after           the loop that must have come to another iteration for a store to be to the element; None: any may be
    needs_barrier   whether the store is another thread's: a block barrier must follow the read
    """
    ways = _ReadDataflow(read, writes, after, needs_barrier)
    ways.walk(body, frozenset())
    return ways.are_done


class _ReadDataflow:
    """Follows all ways from a read on, and asks at every store whether the read is done by then."""

    def __init__(self, read: Stmt, writes: frozenset[Stmt], after: Symbol | None, needs_barrier: bool) -> None:
        self.read = read
        self.writes = writes
        self.after = after
        self.needs_barrier = needs_barrier
        self.are_done = True

    def walk(self, body: Sequence[Stmt], states: frozenset[_ReadState]) -> frozenset[_ReadState]:
        """How far the read may be after a statement list."""
        for stmt in body:
            match stmt:
                case For():
                    states = self._loop(stmt, states)
                case If():
                    states = self.walk(stmt.then, states) | self.walk(stmt.orelse, states)
                case BlockBarrier() | ClusterWait():
                    states = frozenset(s for s in states if s.groups != _DONE)
                case AsyncCommit():
                    states = frozenset(
                        _ReadState(s.groups if s.groups == _DONE else s.groups + 1, s.matters) for s in states
                    )
                case AsyncWait(pending):
                    states = frozenset(_ReadState(_DONE, s.matters) if s.groups > pending else s for s in states)
                case _:
                    if stmt is self.read:
                        states |= {_ReadState(0 if isinstance(stmt, AsyncCopy) else _DONE, self.after is None)}
                    if stmt in self.writes and any(
                        s.matters and (self.needs_barrier or s.groups != _DONE) for s in states
                    ):
                        self.are_done = False
        return states

    def _loop(self, loop: For, states: frozenset[_ReadState]) -> frozenset[_ReadState]:
        found = self.walk(loop.body, states)
        for _ in range(_ITERATIONS):
            start = frozenset(_ReadState(s.groups, s.matters or loop.symbol is self.after) for s in found)
            more = found | self.walk(loop.body, start)
            if more == found:
                break
            found = more
        return found if prove_less(loop.start, loop.stop) else found | states
