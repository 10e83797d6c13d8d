"""The result of a lowering pass, and the findings of a check about it (invariants.py)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fuser.ir.integers.integers import Int
from fuser.ir.kernel.kernel import (
    Stmt,
)
from fuser.records import record


@record
class PassResult:
    """The result of a pass.

    offsets               offset of each shared buffer, None before allocate_shared
    thread_private        names of buffers each of whose elements one thread alone accesses
    shared_within_block   names of global-memory buffers through which threads of one block pass values
    one_thread            a block has a single thread
    shared_across_blocks  names of global-memory buffers through which blocks pass values
    """

    body: tuple[Stmt, ...]
    offsets: Mapping[str, Int] | None = None
    thread_private: AbstractSet[str] = frozenset()
    shared_within_block: AbstractSet[str] = frozenset()
    one_thread: bool = False
    shared_across_blocks: AbstractSet[str] = frozenset()


@dataclass(slots=True)
class Findings:
    """What a check found wrong: messages about statements (by id), and about the whole body."""

    statement_messages: dict[int, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def mark(self, stmt: Stmt, message: str) -> None:
        """Something about a statement."""
        self.statement_messages.setdefault(id(stmt), message)
