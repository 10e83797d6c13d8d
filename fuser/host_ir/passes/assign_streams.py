"""Launches that do not depend on each other on several streams.

    Before:  Allocate(y), k1(x, y), Allocate(z), k2(x, z), k3(y, z, w)
    After:   Allocate(y), Allocate(z), SetStream(1), SetStream(0), k1(x, y),
             SetStream(1), k2(x, z), RecordEvent(1), SetStream(0), WaitEvent(1), k3(y, z, w)

A command goes behind one that it waits for, where that is the last one of its stream; else to the stream that has the fewest.
What it waits for besides, on other streams, it waits for by events, unless others that it comes after have done so. Launches
that are made to run beside each other stay together.

Memory is made before all streams begin, and freed at the end: between them, it would have to be ordered. So a program takes
more of it than on one stream; and an event costs the host about what a launch costs. That is why nobody does this unasked.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.accesses import accesses_of
from fuser.host_ir.instructions.bodies import bodies_of
from fuser.host_ir.instructions.dependencies import Dependencies
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    CallLibrary,
    Copy,
    Deallocate,
    Fill,
    Instruction,
    LaunchKernel,
    RecordEvent,
    RequireDisjoint,
    SetStream,
    WaitEvent,
)
from fuser.host_ir.instructions.side_by_side import side_by_side


def assign_streams(instructions: Sequence[Instruction], streams: int) -> tuple[Instruction, ...]:
    """Instructions that do the same on up to so many streams; those given, if none of them can run at once.

    Raises DefinitionTypeError for a number that is none, DefinitionRuntimeError for a program that names streams itself or has
    bodies.
    """
    if type(streams) is not int or streams < 1:
        raise DefinitionTypeError(f"streams is a number from 1, got {streams!r}")
    known = (Allocate, Alias, Deallocate, Copy, Fill, RequireDisjoint, LaunchKernel, CallLibrary)
    other = next((i for i in instructions if not isinstance(i, known)), None)
    if other is not None:
        why = "has instructions with bodies" if bodies_of(other) else "has streams of its own"
        raise DefinitionRuntimeError(
            f"a program that {why} is not put on other streams: it has a {type(other).__name__}"
        )
    groups = _groups(instructions)
    waits = _waits(instructions, groups)
    placed = _placed(waits, streams)
    if not any(placed):
        return tuple(instructions)
    by_event = _by_event(waits, placed)
    recorded = {earlier for row in by_event for earlier in row}
    found: list[Instruction] = [i for i in instructions if isinstance(i, (Allocate, Alias, RequireDisjoint))]
    # All begin here, and not behind what stream 0 has when they are first used.
    found += [SetStream(stream) for stream in (*sorted({*placed} - {0}), 0)]
    current = 0
    for number, group in enumerate(groups):
        if placed[number] != current:
            current = placed[number]
            found.append(SetStream(current))
        found += [WaitEvent(earlier) for earlier in by_event[number]]
        found += group
        if number in recorded:
            found.append(RecordEvent(number))
    return tuple(found)


def _groups(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """The commands, those together that run beside each other."""
    beside = side_by_side(instructions)
    groups: list[list[Instruction]] = []
    for index, instruction in enumerate(instructions):
        if isinstance(instruction, (Copy, Fill, LaunchKernel, CallLibrary)):
            side = beside.get(index)
            if side is not None and side.starter is not None:
                groups[-1].append(instruction)
            else:
                groups.append([instruction])
    return groups


def _waits(instructions: Sequence[Instruction], groups: Sequence[Sequence[Instruction]]) -> list[tuple[int, ...]]:
    """Of each group the numbers of those before that it waits for, but for what follows from others."""
    roots: dict[str, str] = {}
    for instruction in instructions:
        if isinstance(instruction, Alias):
            roots[instruction.slot] = roots.get(instruction.of, instruction.of)
    order = Dependencies()
    places: dict[str, int] = {}

    def memory(slots: Sequence[str]) -> list[tuple[int, int]]:
        # A memory is one byte here: there is no telling parts of it apart.
        numbers = (places.setdefault(roots.get(slot, slot), len(places)) for slot in slots)
        return [(k, k + 1) for k in numbers]

    found: list[tuple[int, ...]] = []
    for group in groups:
        accesses = [accesses_of(instruction) for instruction in group]
        reads = [slot for a in accesses for slot in a.reads]
        found.append(order.add(memory(reads), memory([slot for a in accesses for slot in a.writes])))
    return found


def _placed(waits: Sequence[Sequence[int]], streams: int) -> list[int]:
    """The stream of each group."""
    last: list[int | None] = [None] * streams
    counts = [0] * streams
    placed: list[int] = []
    for number, before in enumerate(waits):
        behind = [s for s in range(streams) if last[s] in before]
        stream = behind[0] if behind else min(range(streams), key=lambda s: (counts[s], s))
        last[stream] = number
        counts[stream] += 1
        placed.append(stream)
    return placed


def _by_event(waits: Sequence[Sequence[int]], placed: Sequence[int]) -> list[list[int]]:
    """Of each group those that it waits for by an event."""
    # Of each group the last one of each stream that it comes after, itself included.
    known: list[dict[int, int]] = []
    latest: dict[int, dict[int, int]] = {}
    found: list[list[int]] = []
    for number, before in enumerate(waits):
        here = dict(latest.get(placed[number], {}))
        row: list[int] = []
        # The latest first: it may come after others.
        for earlier in sorted(before, reverse=True):
            if here.get(placed[earlier], -1) >= earlier:
                continue
            row.append(earlier)
            for stream, last in known[earlier].items():
                here[stream] = max(last, here.get(stream, -1))
        here[placed[number]] = number
        known.append(here)
        latest[placed[number]] = here
        found.append(row[::-1])
    return found
