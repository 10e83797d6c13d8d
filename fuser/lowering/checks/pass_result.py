"""What a lowering pass left, and what a check found wrong about it (`invariants`)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fuser.ir.integers import Int
from fuser.ir.kernel import (
    Stmt,
)
from fuser.records import record


@record
class PassResult:
    """What a pass left.

    offsets     place of each shared buffer, None before allocate_shared
    private     names of buffers whose elements never cross threads
    exchanged   names of device-memory buffers through which threads of one block pass values
    one_thread  a block has a single thread
    crossing    names of device-memory buffers through which blocks pass values
    """

    body: tuple[Stmt, ...]
    offsets: Mapping[str, Int] | None = None
    private: AbstractSet[str] = frozenset()
    exchanged: AbstractSet[str] = frozenset()
    one_thread: bool = False
    crossing: AbstractSet[str] = frozenset()


@dataclass(slots=True)
class Findings:
    """What a check found wrong: words about statements (by id), and about the whole body."""

    marks: dict[int, str] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def mark(self, stmt: Stmt, message: str) -> None:
        """Something about a statement."""
        self.marks.setdefault(id(stmt), message)
