"""The instructions of one program as a part of another.

    Before:  HostProgram(("x",), ("y",), (Allocate("t"), a(x, t), Allocate("y"), b(t, y), Deallocate("t")))
    After:   Allocate("p.t"), a(rows, p.t), b(p.t, out), Deallocate("p.t")      on ("rows",), into ("out",), behind "p."

So what the compiler makes of a definition for some sizes may be a case of a Switch, or the body of a loop. Outputs are written
straight into the slots that are given where the program allocates them by itself, row major; else they are copied there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, assert_never

from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.bodies import walk
from fuser.host_ir.instructions.expressions import Cond, Size, sources_of, symbol_of
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Argument,
    CallLibrary,
    Copy,
    Deallocate,
    Fill,
    ForLoop,
    If,
    Instruction,
    LaunchKernel,
    RecordEvent,
    RequireDisjoint,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
)
from fuser.host_ir.passes.stream_order import Name
from fuser.host_ir.passes.verified_program import VerifiedProgram
from fuser.ir.integers.integers import Int

_S = TypeVar("_S", Int, Cond)


def inline_program(
    program: VerifiedProgram, inputs: Sequence[str], outputs: Sequence[str], prefix: str
) -> tuple[Instruction, ...]:
    """What `HostProgram.inlined` gives, whose errors these are."""
    _check("inputs", program.inputs, inputs)
    _check("outputs", program.outputs, outputs)
    if not isinstance(prefix, str) or not prefix:
        raise DefinitionTypeError(f"inlined() takes a prefix for names, a text that is not empty, got {prefix!r}")
    names = dict(zip(program.inputs, inputs, strict=True))
    own = {slot for slot in (*program.facts.roots, *_indices(program.instructions)) if slot not in names}
    names |= {slot: f"{prefix}{slot}" for slot in own}
    made = {i.slot for i in program.instructions if isinstance(i, Allocate) and i.strides is None}
    often = Counter(program.outputs)
    direct = {
        name: given
        for name, given in zip(program.outputs, outputs, strict=True)
        if name in made and often[name] == 1 and given not in inputs and outputs.count(given) == 1
    }
    names |= direct
    rename = _Rename(names, prefix)
    instructions = [
        rename.instruction(i) for i in program.instructions if not (isinstance(i, Allocate) and i.slot in direct)
    ]
    for name, given in zip(program.outputs, outputs, strict=True):
        if names[name] != given:
            instructions.append(Copy(given, names[name]))
    return tuple(instructions)


def _check(what: str, of: Sequence[str], given: Sequence[str]) -> None:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise DefinitionTypeError(f"inlined() takes a sequence of names of slots as {what}, got {given!r}")
    if len(of) != len(given):
        raise DefinitionRuntimeError(
            f"the program that is inlined has {len(of)} {what} ({', '.join(of)}), and {len(given)} are given "
            f"({', '.join(given)})"
        )


def _indices(instructions: Sequence[Instruction]) -> set[str]:
    return {i.index for i in walk(instructions) if isinstance(i, ForLoop)}


class _Rename:
    """Instructions with other names."""

    def __init__(self, slots: Mapping[str, str], prefix: str) -> None:
        self._slots = slots
        self._prefix = prefix

    def size(self, value: _S) -> Any:
        found = {symbol_of(s): symbol_of(s._replace(slot=self._slots[s.slot])) for s in sources_of(value)}
        return value.substitute(found)

    def sizes(self, values: Sequence[Size]) -> tuple[Size, ...]:
        return tuple(self.size(value) if isinstance(value, Int) else value for value in values)

    def argument(self, value: Argument) -> Argument:
        if isinstance(value, str):
            return self._slots[value]
        return self.size(value) if isinstance(value, Int) else value

    def decider(self, value: Any) -> Any:
        """What decides: a slot, a size or a condition."""
        if isinstance(value, str):
            return self._slots[value]
        return value if isinstance(value, int) else self.size(value)

    def other(self, name: Name) -> Name:
        """A stream or an event; the caller's stream is that of the whole."""
        return 0 if name == 0 else f"{self._prefix}{name}"

    def body(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        return tuple(map(self.instruction, instructions))

    def instruction(self, instruction: Instruction) -> Instruction:
        slots = self._slots
        match instruction:
            case Allocate(slot, shape, dtype, strides):
                return Allocate(slots[slot], self.sizes(shape), dtype, None if strides is None else self.sizes(strides))
            case Deallocate(slot):
                return Deallocate(slots[slot])
            case Alias(slot, of, sizes, strides, offset):
                shape = None if sizes is None else self.sizes(sizes)
                layout = None if strides is None else self.sizes(strides)
                return Alias(slots[slot], slots[of], shape, layout, self.sizes((offset,))[0])
            case Copy(dst, src):
                return Copy(slots[dst], slots[src])
            case Fill(slot, value):
                return Fill(slots[slot], value)
            case RequireDisjoint(given, others):
                return RequireDisjoint(tuple(slots[slot] for slot in given), tuple(slots[slot] for slot in others))
            case LaunchKernel(kernel, args, launch):
                return LaunchKernel(kernel, tuple(map(self.argument, args)), launch)
            case CallLibrary(op, outputs, arguments):
                given = {name: None if value is None else self.argument(value) for name, value in arguments}
                return CallLibrary(op, tuple(slots[slot] for slot in outputs), given)
            case SetStream(stream):
                return SetStream(self.other(stream))
            case RecordEvent(event):
                return RecordEvent(f"{self._prefix}{event}")
            case WaitEvent(event):
                return WaitEvent(f"{self._prefix}{event}")
            case Synchronize():
                return instruction
            case If(condition, then, otherwise):
                return If(self.decider(condition), self.body(then), self.body(otherwise))
            case Switch(selector, cases, default):
                return Switch(self.decider(selector), tuple(map(self.body, cases)), self.body(default))
            case ForLoop(index, start, stop, step, body):
                first, last, by = self.sizes((start, stop, step))
                return ForLoop(slots[index], first, last, by, self.body(body))
            case _:
                assert_never(instruction)
