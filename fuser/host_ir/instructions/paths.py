"""Which bodies of a program run, as a call's numbers decide it.

Extents that are compared with numbers are those of inputs, so that the key of a call has them; what is left is a function of
the numbers. The decisions of two calls of one key that are alike lead to the same steps.

A path has the decisions that are reached, in the order of reading. What is not reached is not asked: `m // n` in a body that
runs for `n != 0` alone has no value for other calls, and numbers that nothing asks for tell no calls apart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from fuser.errors import InputRuntimeError, InputTypeError
from fuser.host_ir.instructions.bodies import (
    Choice,
    bodies_of,
    body_numbers,
    choice_of,
    chosen_bodies,
    decisions_of,
    numbered,
    selector_of,
)
from fuser.host_ir.instructions.instructions import Instruction
from fuser.ir.integers.integers import Int, Symbol, as_int, compile_function
from fuser.runtime.arrays.arrays import known_kind
from fuser.runtime.scalars import python_number


class Path:
    """The choices of instructions with bodies, for calls of one key.

    deciding   numbers of instructions of which numbers decide (`KeyNeeds.deciding`)
    known      extents and strides of inputs, by their leaves
    positions  of inputs that are numbers, by their leaves
    """

    __slots__ = ("_body",)

    def __init__(
        self,
        instructions: Sequence[Instruction],
        deciding: Collection[int],
        known: Mapping[Symbol, int],
        positions: Mapping[Symbol, int],
    ) -> None:
        self._body = _Body.of(instructions, 0, deciding, known, positions)

    def of(self, inputs: Sequence[Any]) -> tuple[Choice, ...]:
        """The choices of a call. Raises an error where the program cannot be run with these numbers."""
        found: list[Choice] = []
        if self._body is not None:
            self._body.choose(inputs, found)
        return tuple(found)


class _Body:
    """Those of one body, which are reached together. `compute` is None where extents do not fit what is asked of them."""

    __slots__ = ("_compute", "_positions", "_rows")

    def __init__(
        self,
        rows: Sequence[tuple[Instruction, int, tuple[_Body | None, ...]]],
        compute: Callable[..., tuple[int, ...]] | None,
        positions: Sequence[int],
    ) -> None:
        self._rows = tuple(rows)
        self._compute = compute
        self._positions = tuple(positions)

    @classmethod
    def of(
        cls,
        instructions: Sequence[Instruction],
        first: int,
        deciding: Collection[int],
        known: Mapping[Symbol, int],
        positions: Mapping[Symbol, int],
    ) -> _Body | None:
        """None where numbers decide nothing in a body."""
        rows: list[tuple[Instruction, int, tuple[_Body | None, ...]]] = []
        decisions: list[Int] = []
        for number, instruction in numbered(instructions, first):
            starts = body_numbers(number, instruction)
            inner = tuple(
                cls.of(body, start, deciding, known, positions)
                for body, start in zip(bodies_of(instruction), starts, strict=True)
            )
            if number in deciding or any(body is not None for body in inner):
                sizes = decisions_of(instruction)
                rows.append((instruction, len(sizes), inner))
                decisions += map(as_int, sizes)
        if not rows:
            return None
        asked = {leaf: positions[leaf] for d in decisions for leaf in d.symbols if leaf in positions}
        try:
            compute = compile_function([d.substitute(known) for d in decisions], list(asked))
        except (ArithmeticError, ValueError):
            compute = None
        return cls(rows, compute, list(asked.values()))

    def choose(self, inputs: Sequence[Any], found: list[Choice]) -> None:
        """Add the choices of this body, and of those that they choose."""
        if self._compute is None:
            raise InputRuntimeError("what decides which bodies run has no value for tensors of these shapes")
        values = self._compute(*[_integer(inputs[i]) for i in self._positions])
        at = 0
        for instruction, count, inner in self._rows:
            if selector_of(instruction) is None:
                choice = choice_of(instruction, values[at : at + count])
                found.append(choice)
                chosen = chosen_bodies(choice)
            else:
                # Whatever a tensor will choose, all bodies are bound.
                chosen = range(len(inner))
            at += count
            for which in chosen:
                body = inner[which]
                if body is not None:
                    body.choose(inputs, found)


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    number = python_number(value.item() if known_kind(type(value)) is not None else value)
    if not isinstance(number, int):
        raise InputTypeError(f"a number that decides what is run must be an integer, got {number}")
    return int(number)
