"""Mutants of lowered kernels: each lacks one barrier, wait or commit of copies, fence, acquisition, term of a predicate,
initialisation or semaphore reset.

A mutant ends in one class
    reported      the simulator names the defect: kind, buffer and the accesses
    wrong output  the simulator is silent, and for some input, shape and block order the outputs differ
    equivalent    neither, on all of them
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from fuser.errors import FuserError
from fuser.ir.integers.integers import AllOf, Cond, all_of
from fuser.ir.kernel.kernel import (
    AsyncCommit,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Fence,
    For,
    If,
    Kernel,
    Role,
    SpinWait,
    Stmt,
    Store,
    WarpBarrier,
)
from fuser.ir.kernel.print_kernel import print_kernel
from fuser.simulator.errors import Kind, SimulatorError
from tests.fusions.kernel_corpus import Case
from tests.judging.harness import Lowered, Outcome, run
from tests.judging.oracle import Array

INPUTS = 20
ORDERS = 8
LISTED_INPUTS = 5
LISTED_ORDERS = 2
"""For a mutant on file as equivalent, which runs all of its inputs in all of its orders: a reason stands beside it."""


class What(Enum):
    """What a mutant lacks."""

    barrier = "barrier"
    fence = "fence"
    predicate = "predicate"
    initialise = "initialisation"
    semaphore_reset = "semaphore reset"


class Verdict(Enum):
    reported = "reported"
    wrong_output = "wrong output"
    equivalent = "equivalent"


# Only these may go unreported: what the others keep in order is memory, which the simulator watches.
MAY_BE_SILENT = (What.predicate, What.initialise)


@dataclass(frozen=True, slots=True, eq=False)
class Mutant:
    """`key` names the removed thing: stable as long as the kernel is."""

    what: What
    key: str
    kernel: Kernel


def mutants(kernel: Kernel) -> Iterator[Mutant]:
    """Every mutant of a kernel."""
    counts: dict[str, int] = {}
    for what, text, body in _mutated(kernel.body):
        number = counts[text] = counts.get(text, 0) + 1
        yield Mutant(what, f"{text} #{number}" if number > 1 else text, replace(kernel, body=body))


def _mutated(body: tuple[Stmt, ...]) -> Iterator[tuple[What, str, tuple[Stmt, ...]]]:
    for i, stmt in enumerate(body):
        before, after = body[:i], body[i + 1 :]
        match stmt:
            case AsyncCommit() | AsyncWait():
                yield What.barrier, type(stmt).__name__, (*before, *after)
            case BlockBarrier() | WarpBarrier():
                yield What.barrier, f"barrier ({stmt.reason})", (*before, *after)
            case Fence():
                yield What.fence, "fence", (*before, *after)
            case AtomicAdd(acquire=True) | SpinWait(acquire=True):
                key = f"acquisition by {type(stmt).__name__} of {stmt.buffer.name}[{stmt.index}]"
                yield What.fence, key, (*before, replace(stmt, acquire=False), *after)
            case AtomicAdd() if stmt.wrap is not None:
                key = f"reset of {stmt.buffer.name}[{stmt.index}]"
                yield What.semaphore_reset, key, (*before, replace(stmt, wrap=None), *after)
            case Store(role=Role.initialise):
                yield What.initialise, f"initialisation of {stmt.buffer.name}", (*before, *after)
            case Store(role=Role.semaphore_reset):
                yield What.semaphore_reset, f"reset of {stmt.buffer.name}[{stmt.index}]", (*before, *after)
            case If():
                terms = _terms(stmt.condition)
                for k, term in enumerate(terms):
                    rest = all_of(*terms[:k], *terms[k + 1 :])
                    # Declarations inside stay visible after the test is gone, which nothing minds.
                    kept = (If(rest, stmt.then, stmt.orelse, stmt.role),) if rest is not all_of() else stmt.then
                    yield What.predicate, f"{stmt.role.value} {term}", (*before, *kept, *after)
                for what, text, inner in _mutated(stmt.then):
                    yield what, text, (*before, If(stmt.condition, inner, stmt.orelse, stmt.role), *after)
                for what, text, inner in _mutated(stmt.orelse):
                    yield what, text, (*before, If(stmt.condition, stmt.then, inner, stmt.role), *after)
            case For():
                for what, text, inner in _mutated(stmt.body):
                    made = For(stmt.symbol, stmt.start, stmt.stop, stmt.step, inner, stmt.unroll, stmt.unswitch)
                    yield what, text, (*before, made, *after)
            case _:
                pass


def _terms(condition: Cond) -> Sequence[Cond]:
    return condition.arguments if isinstance(condition, AllOf) else (condition,)


class Judge:
    """Runs the mutants of one case; `expected` results of the unmutated kernel are kept."""

    def __init__(self, case: Case, lowered: Lowered) -> None:
        self.case = case
        self.lowered = lowered
        self._known: dict[tuple[int, int], tuple[list[Array], dict[str, Array]]] = {}

    def launch(self, shape: int, number: int) -> tuple[list[Array], dict[str, Array]]:
        """Inputs of launch `number` at a shape, and the right outputs, bit by bit."""
        found = self._known.get((shape, number))
        if found is None:
            inputs = self.case.inputs(self.lowered.fusion, self.case.shapes[shape], number)
            outputs = run(self.lowered, inputs, checks=False).check()
            found = self._known[shape, number] = (inputs, outputs)
        return found

    def verdict(self, mutant: Mutant, is_listed: bool = False) -> tuple[Verdict, str]:
        """The class of a mutant, and what showed it."""
        changed = Lowered.from_kernel(self.lowered.fusion, mutant.kernel)
        for number in range(LISTED_INPUTS if is_listed else INPUTS):
            for shape in range(len(self.case.shapes)):
                inputs, expected = self.launch(shape, number)
                for order in range(LISTED_ORDERS if is_listed else ORDERS):
                    try:
                        outcome = run(changed, inputs, seed=order)
                    except FuserError as error:
                        return Verdict.reported, f"{type(error).__name__}: {error}"
                    shown = _difference(outcome, expected)
                    if shown is not None:
                        return shown
        return Verdict.equivalent, ""


def _difference(outcome: Outcome, expected: dict[str, Array]) -> tuple[Verdict, str] | None:
    error = outcome.error
    if error is not None and outcome.report is not None and outcome.report.error is error:
        check_report(error)
        return Verdict.reported, error.kind.value
    if error is not None:
        return Verdict.wrong_output, str(error)
    for name, value in outcome.outputs.items():
        if value.tobytes() != expected[name].tobytes():
            return Verdict.wrong_output, f"{name} differs at {np.argwhere(value != expected[name])[:1].tolist()}"
    return None


def check_report(error: SimulatorError) -> None:
    """A report names its buffer and both accesses, or the access and its index."""
    text = str(error)
    if error.kind is Kind.race:
        assert error.buffer, text
        assert error.first is not None, text
        assert error.second is not None, text
    elif error.kind in (Kind.out_of_bounds, Kind.uninitialised_read, Kind.misaligned):
        assert error.buffer, text
        assert error.second is not None, text
        assert error.second.index is not None, text
    else:
        assert error.buffer or error.second is not None, text


def describe(case: Case, mutant: Mutant) -> str:
    """The mutant's kernel, for a message."""
    return f"{case.name}: without {mutant.key}\n{print_kernel(mutant.kernel)}"
