"""Which instructions of a program come after which, and whether that is enough for the memory that they touch.

Two instructions must be in order if they touch the memory of one slot, or of aliases of one, and not both to read it: read
after write, write after read, write after write, as between the commands of a graph (`dependencies.py`), but by slots, since
a program's bytes are not known before it runs.

What is known of the order is, of each stream and each event, the instructions that it does *not* come after. A wait leaves
those that the stream and the event have in common. Behind bodies of which one runs it is what is not known after each of them;
a loop is walked twice, since two turns that follow each other meet in every way that any two do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fuser.host_ir.instructions.accesses import accesses_of
from fuser.host_ir.instructions.bodies import bodies_of, body_numbers, numbered, walk
from fuser.host_ir.instructions.instructions import (
    ForLoop,
    If,
    Instruction,
    RecordEvent,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
)
from fuser.host_ir.instructions.print_instruction import print_instruction
from fuser.records import record

Name = int | str
"""Of a stream or an event, as the program calls it."""


@record(eq=False)
class Touch:
    """One access of a slot: by which instruction, on which stream."""

    index: int
    instruction: Instruction
    stream: Name
    slot: str
    is_write: bool


@record
class Hazard:
    """Two accesses of one memory that no order parts, in program order."""

    first: Touch
    second: Touch

    def __str__(self) -> str:
        first, second = self.first, self.second
        same = f"slot {second.slot!r}"
        if first.slot != second.slot:
            same = f"slot {second.slot!r}, the memory of {first.slot!r},"
        return (
            f"{same} is {_done(second)} on stream {second.stream!r}, and nothing orders that after instruction "
            f"{first.index}, {print_instruction(first.instruction)}, which {_does(first)} it on stream {first.stream!r}: put "
            f"a RecordEvent behind that one and a WaitEvent before this one"
        )


# Memory that was made in a body ends with it.
_ENDING = ("Deallocate", "If", "Switch", "ForLoop")


def _does(touch: Touch) -> str:
    what = type(touch.instruction).__name__
    if not touch.is_write:
        return "reads"
    return {"Allocate": "makes", **dict.fromkeys(_ENDING, "ends")}.get(what, "writes")


def _done(touch: Touch) -> str:
    what = type(touch.instruction).__name__
    if not touch.is_write:
        return "read"
    return {"Allocate": "made", **dict.fromkeys(_ENDING, "ended")}.get(what, "written")


def streams_of(instructions: Sequence[Instruction]) -> tuple[Name, ...]:
    """The streams of a program, that of the caller first, in the order in which it turns to them."""
    return tuple(dict.fromkeys((0, *(i.stream for i in walk(instructions) if isinstance(i, SetStream)))))


def find_hazard(
    instructions: Sequence[Instruction], roots: Mapping[str, str], ends: Mapping[int, tuple[tuple[str, ...], ...]]
) -> Hazard | None:
    """The first instruction that is not in order with one before it; None if there is none.

    roots   of each slot which memory is its own: slots of one root are the same memory
    ends    by number of an instruction with bodies: of each body the memory that ends with it
    """
    if len(streams_of(instructions)) == 1:
        return None
    order = _Order(roots, ends)
    try:
        order.put_all(instructions, 0)
    except _FoundError as found:
        return found.hazard
    return None


class _FoundError(Exception):
    def __init__(self, hazard: Hazard) -> None:
        self.hazard = hazard


@dataclass(slots=True)
class _Open:
    """Of one memory: the last writes, and the reads since."""

    writes: list[Touch] = field(default_factory=list)
    reads: list[Touch] = field(default_factory=list)


@dataclass(slots=True)
class _State:
    """What each stream and each event does not come after. A stream of `unsure` has begun on some ways here and not on all."""

    current: Name = 0
    streams: dict[Name, set[Touch]] = field(default_factory=dict)
    events: dict[Name, set[Touch]] = field(default_factory=dict)
    memory: dict[str, _Open] = field(default_factory=dict)
    unsure: set[Name] = field(default_factory=set)


def _merged(states: Sequence[_State]) -> _State:
    """What holds whichever of these it is, in new sets."""
    made = _State(states[0].current)
    for state in states:
        for stream, behind in state.streams.items():
            made.streams.setdefault(stream, set()).update(behind)
        for event, behind in state.events.items():
            made.events.setdefault(event, set()).update(behind)
        for root, touched in state.memory.items():
            memory = made.memory.setdefault(root, _Open())
            memory.writes += [t for t in touched.writes if t not in memory.writes]
            memory.reads += [t for t in touched.reads if t not in memory.reads]
        made.unsure |= state.unsure
    made.unsure |= {stream for stream in made.streams if any(stream not in state.streams for state in states)}
    return made


class _Order:
    """The state while a program is walked."""

    def __init__(self, roots: Mapping[str, str], ends: Mapping[int, tuple[tuple[str, ...], ...]]) -> None:
        self._roots = roots
        self._ends = ends
        self._here = _State(streams={0: set()})
        # That of a later turn stands for those before, which are on its stream: what comes after it comes after them.
        self._touches: dict[tuple[int, Name, str, bool], Touch] = {}

    def put_all(self, body: Sequence[Instruction], first: int) -> None:
        """The next instructions. Raises _FoundError at the first hazard."""
        for index, instruction in numbered(body, first):
            self._put(index, instruction)

    def _put(self, index: int, instruction: Instruction) -> None:
        here = self._here
        match instruction:
            case SetStream(stream):
                # It begins behind what is on stream 0; where it had begun, what was on it is before.
                if stream not in here.streams or stream in here.unsure:
                    new = {touch for touch in here.streams[0] if touch.stream != stream}
                    here.streams.setdefault(stream, set()).update(new)
                    here.unsure.discard(stream)
                here.current = stream
            case RecordEvent(event):
                here.events[event] = set(here.streams[here.current])
            case WaitEvent(event):
                here.streams[here.current] &= here.events[event]
            case Synchronize():
                for behind in (*here.streams.values(), *here.events.values()):
                    behind.clear()
            case If() | Switch():
                self._touch(index, instruction, accesses_of(instruction).reads, is_write=False)
                left: list[_State] = []
                for which in range(len(bodies_of(instruction))):
                    self._here = _merged([here])
                    self._body(index, instruction, which)
                    left.append(self._here)
                self._here = _merged(left)
            case ForLoop():
                # What one turn leaves meets the next one; or there is none.
                none = _merged([here])
                self._body(index, instruction, 0)
                once = _merged([self._here])
                self._body(index, instruction, 0)
                self._here = _merged([none, once, self._here])
            case _:
                accesses = accesses_of(instruction)
                self._touch(index, instruction, accesses.reads, is_write=False)
                self._touch(index, instruction, accesses.writes, is_write=True)

    def _body(self, index: int, instruction: Instruction, which: int) -> None:
        self.put_all(bodies_of(instruction)[which], list(body_numbers(index, instruction))[which])
        self._touch(index, instruction, self._ends[index][which], is_write=True)

    def _touch(self, index: int, instruction: Instruction, slots: Sequence[str], *, is_write: bool) -> None:
        here = self._here
        unordered = here.streams[here.current]
        for slot in slots:
            key = (index, here.current, slot, is_write)
            touch = self._touches.get(key)
            if touch is None:
                touch = self._touches[key] = Touch(index, instruction, here.current, slot, is_write)
            memory = here.memory.setdefault(self._roots[slot], _Open())
            for earlier in (*memory.writes, *(memory.reads if is_write else ())):
                if earlier in unordered:
                    raise _FoundError(Hazard(earlier, touch))
            if is_write:
                memory.writes, memory.reads = [touch], []
            elif touch not in memory.reads:
                memory.reads.append(touch)
            for other, behind in here.streams.items():
                if other != here.current:
                    behind.add(touch)
            for behind in here.events.values():
                behind.add(touch)
