"""Which bodies of a program run, as a call's numbers decide it.

Extents that are compared with numbers are those of inputs, so that the key of a call has them; what is left is a function of
the numbers. The decisions of two calls of one key that are alike lead to the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fuser.errors import InputTypeError
from fuser.host_ir.bodies import Choice, choice_of, decisions_of
from fuser.host_ir.instructions import Instruction
from fuser.ir.integers import Symbol, as_int, compile_function
from fuser.runtime.arrays import known_kind, python_number


class Path:
    """The choices of instructions with bodies, for calls of one key.

    known      extents and strides, by their leaves
    positions  of inputs that are numbers, by their leaves
    """

    __slots__ = ("_compute", "_counts", "_deciding", "_positions")

    def __init__(
        self, deciding: Sequence[Instruction], known: Mapping[Symbol, int], positions: Mapping[Symbol, int]
    ) -> None:
        decisions = [[as_int(d).substitute(known) for d in decisions_of(i)] for i in deciding]
        self._deciding = tuple(deciding)
        self._counts = tuple(len(row) for row in decisions)
        self._positions = tuple(positions.values())
        self._compute: Callable[..., tuple[int, ...]] = compile_function(
            [d for row in decisions for d in row], list(positions)
        )

    def of(self, inputs: Sequence[Any]) -> tuple[Choice, ...]:
        """The choices of a call. Raises InputTypeError for a number that is no integer."""
        values = self._compute(*(_integer(inputs[i]) for i in self._positions))
        found: list[Choice] = []
        at = 0
        for instruction, count in zip(self._deciding, self._counts, strict=True):
            found.append(choice_of(instruction, values[at : at + count]))
            at += count
        return tuple(found)


def _integer(value: Any) -> int:
    if type(value) is int:
        return value
    number = python_number(value.item() if known_kind(type(value)) is not None else value)
    if not isinstance(number, int):
        raise InputTypeError(f"a number that decides what is run must be an integer, got {number}")
    return int(number)
