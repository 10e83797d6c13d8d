"""Tests that need not be written, since nothing but registers would differ: values that nobody looks at where a test fails.

    if (all inside) { for (i) { e[i] = exp(x[i] - m); } } else { for (i) { if (i inside) { e[i] = exp(x[i] - m); } } }
    for (i) { e[i] = exp(x[i] - m); }

A warp at the end of a row goes both ways of a hoisted test, the second of them element by element. Where a branch only computes
registers from registers, the way without tests does no harm for any thread: what it leaves elsewhere is read under the same
tests, as a register that was never written may not be read. So both ways are one, where they differ in tests alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.integers.integers import Int, const
from fuser.ir.kernel.kernel import (
    Allocate,
    Buffer,
    Call,
    Cast,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    Role,
    Stmt,
    Store,
    Value,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_writes
from fuser.ir.kernel.print_kernel import print_stmt
from fuser.records import record


def untested_values(body: Sequence[Stmt]) -> frozenset[If]:
    """Hoisted tests of loops that may run for all threads."""
    found = _Found({}, {}, [])
    found.add(body, (), None)
    return frozenset(filter(found.is_free, found.tests))


@record
class _Found:
    """What a kernel has: registers with the loops around them, their writes with those and with the hoisted test around them,
    and hoisted tests that only compute registers."""

    loops: dict[Buffer, tuple[For, ...]]
    writes: dict[Buffer, list[tuple[Int, tuple[For, ...], If | None]]]
    tests: list[If]

    def add(self, body: Sequence[Stmt], loops: tuple[For, ...], test: If | None) -> None:
        for stmt in body:
            match stmt:
                case Allocate(buffer):
                    self.loops[buffer] = loops
                case For():
                    self.add(stmt.body, (*loops, stmt), test)
                case If():
                    is_outer = test is None and stmt.role is Role.unswitch
                    if is_outer and _is_harmless(stmt.then) and _untested(stmt.orelse) == _untested(stmt.then):
                        self.tests.append(stmt)
                    self.add((*stmt.then, *stmt.orelse), loops, stmt if is_outer else test)
                case _:
                    for buffer, index in stmt_writes(stmt):
                        if buffer.is_register:
                            self.writes.setdefault(buffer, []).append((index, loops, test))

    def is_free(self, test: If) -> bool:
        """Whether what is written under a test holds nothing else where that fails: no other statement writes it, and no other
        iteration of a loop around the test."""
        inside = {s.buffer for s in walk((test,)) if isinstance(s, Allocate)}
        for buffer in {b for s in walk((test,)) for b, _ in stmt_writes(s)} - inside:
            depth = len(self.loops.get(buffer, ()))
            own, others = (
                [_elements(index, at[depth:]) for index, at, under in self.writes[buffer] if (under is test) is mine]
                for mine in (True, False)
            )
            if None in own or any(
                theirs is None or not all(theirs.isdisjoint(e or ()) for e in own) for theirs in others
            ):
                return False
        return True


def _elements(index: Int, loops: Sequence[For]) -> frozenset[int] | None:
    """The elements that an index takes in unrolled loops, another one in each iteration; None if it is otherwise."""
    values = [index]
    for loop in loops:
        steps = loop.values if loop.unroll else None
        if steps is None:
            return None
        values = [v.substitute({loop.symbol: const(k)}) for v in values for k in steps]
    found = frozenset(v.value for v in values if v.is_const)
    return found if len(found) == len(values) else None


def _is_harmless(body: Sequence[Stmt]) -> bool:
    """Whether statements compute registers from registers, and nothing else."""
    for stmt in walk(tuple(body)):
        match stmt:
            case Store(buffer, _, value) if buffer.is_register and _is_of_registers(value):
                pass
            case Allocate(buffer) if buffer.is_register:
                pass
            case For() if stmt.values is not None:
                pass
            case If():
                pass
            case _:
                return False
    return True


def _untested(body: Sequence[Stmt]) -> list[str] | None:
    """The text of statements without tests, loop by loop. None where a test has two sides: it chooses between values."""
    found: list[str] = []
    for stmt in body:
        match stmt:
            case If(_, then, ()):
                inner = _untested(then)
            case If():
                return None
            case For():
                inner = _untested(stmt.body)
                found.append(f"for {stmt.symbol} in {stmt.start} .. {stmt.stop} step {stmt.step}")
            case _:
                inner = [print_stmt(stmt)]
        if inner is None:
            return None
        found += inner
    return found


def _is_of_registers(value: Value) -> bool:
    match value:
        case Literal() | IndexValue():
            return True
        case Load(buffer):
            return buffer.is_register
        case Cast(inner):
            return _is_of_registers(inner)
        case Call(_, args):
            return all(map(_is_of_registers, args))
        case _:
            return False
