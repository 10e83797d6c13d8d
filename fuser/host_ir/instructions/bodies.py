"""Instructions that have instructions: which bodies one has, which of them run, and in what order.

The only place that tells If, Switch and ForLoop apart for those who run them. What decides are sizes (`decisions_of`), their
values make a choice (`choice_of`), and a choice is bodies one after another, with numbers of their own (`turns`). Or a tensor
decides (`selector_of`): then each body may be the one, whatever the sizes are.

Instructions are numbered as they are read: one, then those of its bodies, then the next one. In a program without bodies that
is their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from fuser.errors import InputRuntimeError
from fuser.host_ir.instructions.expressions import Size, as_condition
from fuser.host_ir.instructions.instructions import CallLibrary, Fill, ForLoop, If, Instruction, LaunchKernel, Switch
from fuser.ir.integers.integers import select
from fuser.ir.ops.dtypes import DataType

Body: TypeAlias = tuple[Instruction, ...]
Choice: TypeAlias = int | range
"""The number of a body, or the numbers for which the only one runs."""


def bodies_of(instruction: Instruction) -> tuple[Body, ...]:
    """Those of an instruction, none for most."""
    match instruction:
        case If(_, then, otherwise):
            return then, otherwise
        case Switch(_, cases, default):
            return (*cases, default)
        case ForLoop():
            return (instruction.body,)
        case _:
            return ()


def selector_of(instruction: Instruction) -> str | None:
    """The tensor that decides which body runs, None where sizes do."""
    match instruction:
        case If(str() as slot) | Switch(str() as slot):
            return slot
        case _:
            return None


def is_selector_type(dtype: DataType) -> bool:
    """Whether a value of that type decides which body runs."""
    return dtype.is_integral or dtype is DataType.Bool


def decisions_of(instruction: Instruction) -> tuple[Size, ...]:
    """The sizes that decide which bodies run, none where a tensor does."""
    if selector_of(instruction) is not None:
        return ()
    match instruction:
        case If(condition):
            assert not isinstance(condition, str)
            return (select(as_condition(condition, "If"), 0, 1),)
        case Switch(selector):
            assert not isinstance(selector, str)
            return (selector,)
        case ForLoop(_, start, stop, step):
            return start, stop, step
        case _:
            return ()


def choice_of(instruction: Instruction, values: Sequence[int]) -> Choice:
    """What is decided by these values. Raises InputRuntimeError for a loop with steps of 0."""
    if isinstance(instruction, ForLoop):
        if values[2] == 0:
            raise InputRuntimeError(
                f"a loop cannot be run: its steps are {instruction.step}, which is 0 for these inputs"
            )
        return range(*values)
    (which,) = values
    last = len(bodies_of(instruction)) - 1
    return which if 0 <= which < last else last


def turns(instruction: Instruction, choice: Choice) -> Iterator[tuple[int, dict[str, int]]]:
    """Bodies in the order in which they run, by number, and the numbers that are theirs alone."""
    if isinstance(choice, int):
        yield choice, {}
    elif isinstance(instruction, ForLoop):
        for value in choice:
            yield 0, {instruction.index: value}


def chosen_bodies(choice: Choice) -> tuple[int, ...]:
    """The numbers of the bodies that run at all."""
    if isinstance(choice, int):
        return (choice,)
    return (0,) if choice else ()


def walk(instructions: Sequence[Instruction]) -> Iterator[Instruction]:
    """All there are, as they are read."""
    for instruction in instructions:
        yield instruction
        for body in bodies_of(instruction):
            yield from walk(body)


def equal_bodies(instruction: Instruction) -> list[int]:
    """Of each body the number of the first that is equal to it."""
    bodies = [(body, _numbers_in(body)) for body in bodies_of(instruction)]
    # Not by hash: launch sizes may be changed, and have none.
    return [bodies.index(body) for body in bodies]


def _numbers_in(body: Body) -> tuple[str, ...]:
    """The numbers that instructions of a body have, as text: 0.0 and -0.0 are equal and not the same."""
    found: list[object] = []
    for instruction in walk(body):
        match instruction:
            case LaunchKernel(_, args):
                found += [arg for arg in args if isinstance(arg, (bool, int, float, complex))]
            case CallLibrary(_, _, arguments):
                found += [arg for _, arg in arguments if isinstance(arg, (bool, int, float, complex))]
            case Fill(_, value):
                found.append(value)
            case _:
                pass
    return tuple(map(repr, found))


def numbered(instructions: Sequence[Instruction], first: int = 0) -> Iterator[tuple[int, Instruction]]:
    """The instructions of a body with their numbers; `first` is that of the first one."""
    for instruction in instructions:
        yield first, instruction
        first += 1 + sum(_count(body) for body in bodies_of(instruction))


def body_numbers(number: int, instruction: Instruction) -> Iterator[int]:
    """Of each body of an instruction the number that its first instruction has."""
    number += 1
    for body in bodies_of(instruction):
        yield number
        number += _count(body)


def _count(body: Body) -> int:
    return sum(1 + sum(_count(inner) for inner in bodies_of(instruction)) for instruction in body)
