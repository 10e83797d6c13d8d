"""Which instructions of a program come after which, and whether that is enough for the memory that they touch.

Two instructions must be in order if they touch the memory of one slot, or of aliases of one, and not both to read it: read
after write, write after read, write after write, as between the commands of a graph (`dependencies.py`), but by slots, since
a program's bytes are not known before it runs.

What is known of the order is, of each stream and each event, the instructions that it does *not* come after. A wait leaves
those that the stream and the event have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fuser.host_ir.accesses import accesses_of
from fuser.host_ir.instructions import Instruction, RecordEvent, SetStream, Synchronize, WaitEvent
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
        from fuser.host_ir.print import print_instruction

        first, second = self.first, self.second
        same = f"slot {second.slot!r}"
        if first.slot != second.slot:
            same = f"slot {second.slot!r}, the memory of {first.slot!r},"
        return (
            f"{same} is {_done(second)} on stream {second.stream!r}, and nothing orders that after instruction "
            f"{first.index}, {print_instruction(first.instruction)}, which {_does(first)} it on stream {first.stream!r}: put "
            f"a RecordEvent behind that one and a WaitEvent before this one"
        )


def _does(touch: Touch) -> str:
    what = type(touch.instruction).__name__
    return {"Allocate": "makes", "Deallocate": "ends"}.get(what, "writes" if touch.is_write else "reads")


def _done(touch: Touch) -> str:
    what = type(touch.instruction).__name__
    return {"Allocate": "made", "Deallocate": "ended"}.get(what, "written" if touch.is_write else "read")


def streams_of(instructions: Sequence[Instruction]) -> tuple[Name, ...]:
    """The streams of a program, that of the caller first, in the order in which it turns to them."""
    return tuple(dict.fromkeys((0, *(i.stream for i in instructions if isinstance(i, SetStream)))))


def find_hazard(instructions: Sequence[Instruction], roots: Mapping[str, str]) -> Hazard | None:
    """The first instruction that is not in order with one before it; None if there is none.

    `roots` says of each slot which memory is its own: slots of one root are the same memory.
    """
    if len(streams_of(instructions)) == 1:
        return None
    order = _Order(roots)
    for index, instruction in enumerate(instructions):
        found = order.put(index, instruction)
        if found is not None:
            return found
    return None


@dataclass(slots=True)
class _Open:
    """Of one memory: the last writes, and the reads since."""

    writes: list[Touch] = field(default_factory=list)
    reads: list[Touch] = field(default_factory=list)


class _Order:
    """What each stream and each event does not come after, while a program is walked."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._roots = roots
        self._current: Name = 0
        self._streams: dict[Name, set[Touch]] = {0: set()}
        self._events: dict[Name, set[Touch]] = {}
        self._memory: dict[str, _Open] = {}

    def put(self, index: int, instruction: Instruction) -> Hazard | None:
        """The next instruction, and the hazard that it has with one before."""
        match instruction:
            case SetStream(stream):
                # It begins behind what is on stream 0.
                self._streams.setdefault(stream, set(self._streams[0]))
                self._current = stream
            case RecordEvent(event):
                self._events[event] = set(self._streams[self._current])
            case WaitEvent(event):
                self._streams[self._current] &= self._events[event]
            case Synchronize():
                for behind in (*self._streams.values(), *self._events.values()):
                    behind.clear()
            case _:
                return self._touch(index, instruction)
        return None

    def _touch(self, index: int, instruction: Instruction) -> Hazard | None:
        accesses = accesses_of(instruction)
        unordered = self._streams[self._current]
        for is_write, slots in ((False, accesses.reads), (True, accesses.writes)):
            for slot in slots:
                touch = Touch(index, instruction, self._current, slot, is_write)
                memory = self._memory.setdefault(self._roots[slot], _Open())
                for earlier in (*memory.writes, *(memory.reads if is_write else ())):
                    if earlier in unordered:
                        return Hazard(earlier, touch)
                if is_write:
                    memory.writes, memory.reads = [touch], []
                else:
                    memory.reads.append(touch)
                for other, behind in self._streams.items():
                    if other != self._current:
                        behind.add(touch)
                for behind in self._events.values():
                    behind.add(touch)
        return None
