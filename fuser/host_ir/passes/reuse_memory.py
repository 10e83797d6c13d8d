"""Memory that was given back serves slots that are made later in the same program.

    Before:  Allocate(a), k1(x, a), Allocate(b), k2(a, b), Deallocate(a), Allocate(c), k3(b, c), Deallocate(b), ...
    After:   Allocate(a), k1(x, a), Allocate(b), k2(a, b), Alias(c, a),                k3(b, c), Deallocate(b), ...

An allocator hands such memory out again by itself, but asks for time at each call; and a graph, whose memory is taken once for
all launches, has no allocator. `c` gets the memory of `a` where

- both are of one element type, row major, and `c` is not longer than `a` for any sizes
- neither goes out, where it would outlive the program
- whatever touches `a` comes before what first touches `c` by the data that passes between them, so that no order is added:
  branches of a graph that may run at once still may

Programs with several streams or with bodies stay as they are. What is freed is said by those who make a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from fuser.host_ir.instructions.accesses import accesses_of
from fuser.host_ir.instructions.bodies import bodies_of
from fuser.host_ir.instructions.dependencies import Dependencies
from fuser.host_ir.instructions.expressions import Size
from fuser.host_ir.instructions.instructions import Alias, Allocate, Deallocate, Instruction, SetStream
from fuser.ir.integers.integers import ONE, Int, prove_less_equal
from fuser.ir.ops.dtypes import DataType


@dataclass(slots=True)
class _Free:
    """Memory that was given back: `at` is the place of its Deallocate in what is written so far."""

    root: str
    dtype: DataType
    count: Int
    at: int


def reuse_memory(outputs: Sequence[str], instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Instructions that do the same with fewer allocations. They are to be those of a program that is well formed."""
    if not any(isinstance(i, Deallocate) for i in instructions):
        return tuple(instructions)
    if any(isinstance(i, SetStream) or bodies_of(i) for i in instructions):
        return tuple(instructions)
    use = _Use(instructions)
    going_out = {use.roots.get(name, name) for name in outputs}
    written: list[Instruction | None] = []
    # Row-major memory that was made; of a slot whose memory is another one's, whose; what may be taken.
    made: dict[str, Allocate] = {}
    hosts: dict[str, str] = {}
    free: list[_Free] = []
    for instruction in instructions:
        match instruction:
            case Allocate(slot, shape, dtype, None) if slot not in going_out:
                found = next(
                    (f for f in reversed(free) if _fits(f, shape, dtype) and use.is_behind(slot, f.root)), None
                )
                if found is None:
                    made[slot] = instruction
                    written.append(instruction)
                    continue
                free.remove(found)
                written[found.at] = None
                hosts[slot] = found.root
                use.add(found.root, slot)
                written.append(Alias(slot, found.root, shape))
            case Deallocate(slot):
                root = hosts.get(slot, slot)
                maker = made.get(root)
                if maker is not None:
                    free.append(_Free(root, maker.dtype, _count(maker.shape), len(written)))
                written.append(Deallocate(root))
            case _:
                written.append(instruction)
    return tuple(i for i in written if i is not None)


def _fits(free: _Free, shape: Sequence[Size], dtype: DataType) -> bool:
    return free.dtype is dtype and prove_less_equal(_count(shape), free.count)


def _count(shape: Sequence[Size]) -> Int:
    """Elements of row-major memory."""
    return reduce(lambda product, n: product * n, shape, ONE)


class _Use:
    """Which commands touch which memory, and which of them come after which."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.roots: dict[str, str] = {}
        self._order = Dependencies()
        # The numbers of the commands, ascending.
        self._users: dict[str, list[int]] = {}
        places: dict[str, int] = {}
        count = 0
        for instruction in instructions:
            if isinstance(instruction, Alias):
                self.roots[instruction.slot] = self.roots.get(instruction.of, instruction.of)
            accesses = accesses_of(instruction)
            if isinstance(instruction, (Allocate, Deallocate)) or not (accesses.reads or accesses.writes):
                continue
            ranges: list[list[tuple[int, int]]] = []
            for slots in (accesses.reads, accesses.writes):
                roots = [self.roots.get(slot, slot) for slot in slots]
                for root in roots:
                    self._users.setdefault(root, []).append(count)
                # A memory is one byte here: there is no telling parts of it apart.
                ranges.append([(k, k + 1) for k in (places.setdefault(root, len(places)) for root in roots)])
            self._order.add(*ranges)
            count += 1

    def is_behind(self, later: str, earlier: str) -> bool:
        """Whether all that touches a memory comes after all that touches another one."""
        users = self._users.get(later)
        return bool(users) and all(
            self._order.comes_after(user, other) for user in users for other in self._users.get(earlier, ())
        )

    def add(self, root: str, slot: str) -> None:
        """What touches a slot touches that memory from now on."""
        self._users.setdefault(root, []).extend(self._users.get(slot, ()))
