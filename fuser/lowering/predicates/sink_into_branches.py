"""Sink what only one branch of a test needs into that branch.

Before: a = sigmoid(x); b = exp(y); if (i < 4) { z = a } else { z = b }
After:  if (i < 4) { a = sigmoid(x); z = a } else { b = exp(y); z = b }

An element of a concatenation comes from one operand, but every operand is computed above the test: of boxes whose first four
channels are computed in different ways, each thread would compute all five kinds. NVRTC does not move these computations into
the branches.

Only pure computations on registers whose results are used in one branch alone are moved. Loads stay, so that all are in
flight together. Values of a few instructions stay as well: they are done before a branch is taken. So do values under tests
of the counter of an unrolled loop, which are known when the source is compiled.

Requires merged tests: statements of one list are executed by the same threads. Last: no other pass looks for values of a list
in its branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace

from fuser.ir.fusion.op_instructions import op_instructions
from fuser.ir.integers.integers import Symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    Call,
    For,
    If,
    Role,
    Stmt,
    Store,
    Value,
    map_child_bodies,
    value_operands,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_reads, stmt_writes

MIN_INSTRUCTIONS = 16
"""Instructions that a branch must save: what it takes to split the threads of a warp and to join them again, about."""


def sink_into_branches(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The body with values computed in the branches that need them."""
    if not any(map(_is_branch, walk(body))):
        return body
    return _Sink(*_accesses(body)).sunk(body, frozenset())


def _accesses(body: Sequence[Stmt]) -> tuple[Counter[Buffer], Counter[Buffer]]:
    """How many statements read and write each buffer."""
    reads, writes = Counter[Buffer](), Counter[Buffer]()
    for stmt in walk(tuple(body)):
        reads.update({b for b, _ in stmt_reads(stmt)})
        writes.update({b for b, _ in stmt_writes(stmt)})
    return reads, writes


def _is_branch(stmt: Stmt) -> bool:
    return isinstance(stmt, If) and stmt.role is Role.predicate and bool(stmt.orelse)


class _Sink:
    """The pass, with how many statements read and write each buffer: of the kernel, or of the list that allocates it. Of an
    unswitched loop there are two, and each allocates the buffers that are its own."""

    def __init__(self, reads: Counter[Buffer], writes: Counter[Buffer]) -> None:
        self.reads, self.writes = reads, writes

    def sunk(self, body: Sequence[Stmt], counters: Set[Symbol]) -> tuple[Stmt, ...]:
        """A list of statements. `counters`: of the unrolled loops around it."""
        stmts = list(body)
        own = {s.buffer for s in stmts if isinstance(s, Allocate)}
        if own:
            for all_of_kernel, here in zip((self.reads, self.writes), _accesses(stmts), strict=True):
                all_of_kernel.update({b: here[b] - all_of_kernel[b] for b in own})
        at = len(stmts) - 1
        while at >= 0:
            stmt = stmts[at]
            if isinstance(stmt, If) and _is_branch(stmt) and not counters >= frozenset(stmt.condition.symbols):
                for is_then in (True, False):
                    moved = self._movable(stmts, at, is_then)
                    if sum(_instructions(s.value) for s in moved) >= MIN_INSTRUCTIONS:
                        branch = (*moved, *(stmt.then if is_then else stmt.orelse))
                        stmt = replace(stmt, then=branch) if is_then else replace(stmt, orelse=branch)
                        stmts[at] = stmt
                        stmts = [s for s in stmts if s not in moved]
                        at -= len(moved)
            at -= 1
        return tuple(self._inside(s, counters) for s in stmts)

    def _inside(self, stmt: Stmt, counters: Set[Symbol]) -> Stmt:
        inside = counters | {stmt.symbol} if isinstance(stmt, For) and stmt.unroll else counters
        return map_child_bodies(stmt, lambda body: self.sunk(body, inside))

    def _movable(self, stmts: Sequence[Stmt], at: int, is_then: bool) -> list[Store]:
        """Statements before the test at a place that nothing but one of its branches needs, in order."""
        choice = stmts[at]
        assert isinstance(choice, If)
        needed = Counter[Buffer]()
        for stmt in walk(choice.then if is_then else choice.orelse):
            needed.update({b for b, _ in stmt_reads(stmt)})
        written = set[Buffer]()
        found: list[Store] = []
        for stmt in reversed(stmts[:at]):
            if (
                isinstance(stmt, Store)
                and stmt.buffer.is_register
                and stmt.role is Role.plain
                and self.writes[stmt.buffer] == 1
                and self.reads[stmt.buffer] == needed[stmt.buffer] > 0
                and all(b.is_register and b not in written for b, _ in stmt_reads(stmt))
            ):
                found.insert(0, stmt)
                needed.update({b for b, _ in stmt_reads(stmt)})
            else:
                written.update(b for s in walk((stmt,)) for b, _ in stmt_writes(s))
        return found


def _instructions(value: Value) -> int:
    own = op_instructions(value.op, value.compute) if isinstance(value, Call) else 0
    return own + sum(map(_instructions, value_operands(value)))
