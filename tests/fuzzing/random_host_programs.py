"""Random host programs: kernels, copies and fills over shared buffers, with every kind of hazard between them.

Buffers are vectors of one length: inputs, some of which are updated, and allocated ones. Commands work on whole buffers and on
halves and middles of them, so that ranges meet in part. `expected` computes the outputs and updated inputs in NumPy.

With several streams each command goes to some stream, behind waits for those it must come after; some of the waits are for more
than they need be. `without` leaves an instruction out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import (
    Alias,
    Allocate,
    Copy,
    DataType,
    Deallocate,
    Fill,
    ForLoop,
    HostProgram,
    If,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Switch,
    WaitEvent,
    extent,
)
from fuser.host_ir.instructions.expressions import Cond, equal, less, scalar
from fuser.host_ir.instructions.instructions import Instruction
from fuser.runtime.kernels.compiled_kernel import CompiledKernel

Array = np.ndarray[Any, Any]
LENGTH = 64
# Parts of a buffer: first element and number of elements.
PARTS = ((0, 64), (0, 32), (32, 32), (16, 32), (8, 8))


@dataclass(frozen=True)
class Work:
    """One command: what it is, the part it writes, the part it reads (of the same length), and its number."""

    kind: str
    dst: tuple[str, int, int]
    src: tuple[str, int, int] | None
    number: float


@dataclass(frozen=True)
class RandomHostProgram:
    inputs: tuple[str, ...]
    work: tuple[Work, ...]
    outputs: tuple[str, ...]
    program: HostProgram

    def arrays(self, seed: int) -> list[Array]:
        """Fresh inputs."""
        rng = np.random.default_rng(seed)
        return [rng.integers(-8, 8, LENGTH).astype(np.float32) for _ in self.inputs]

    def expected(self, arrays: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The outputs, and the inputs afterwards."""
        buffers = {name: a.copy() for name, a in zip(self.inputs, arrays, strict=True)}
        for w in self.work:
            name, first, count = w.dst
            if name not in buffers:
                buffers[name] = np.zeros(LENGTH, np.float32)
            if w.src is None:
                value: Any = np.float32(w.number)
            else:
                value = buffers[w.src[0]][w.src[1] : w.src[1] + w.src[2]].copy()
                if w.kind == "launch":
                    value = value * np.float32(w.number)
            buffers[name][first : first + count] = value
        return [buffers[name] for name in self.outputs], [buffers[name] for name in self.inputs]


class _Streams:
    """Instructions on random streams, each behind events of those that touched what it touches."""

    def __init__(self, rng: random.Random, count: int) -> None:
        self.rng = rng
        self.names: tuple[int | str, ...] = (0, 1, "side", 7)[:count]
        self.instructions: list[Instruction] = []
        self.current: int | str = 0
        # How many commands each has, and how many of the others it surely comes after.
        self.counts: dict[int | str, int] = {0: 0}
        self.known: dict[int | str, dict[int | str, int]] = {0: {}}
        self.touched: dict[str, list[tuple[int | str, int, bool]]] = {}

    def turn(self, stream: int | str) -> None:
        if stream == self.current:
            return
        self.instructions.append(SetStream(stream))
        if stream not in self.counts:
            self.counts[stream] = 0
            self.known[stream] = {0: self.counts[0]}
        self.current = stream

    def put(self, instruction: Instruction, reads: Sequence[str], writes: Sequence[str]) -> None:
        """The next command, on the stream at hand, and the buffers that it touches."""
        if len(self.names) == 1:
            self.instructions.append(instruction)
            return
        waits: dict[int | str, None] = {}
        for names, is_write in ((reads, False), (writes, True)):
            for name in names:
                for stream, number, wrote in self.touched.get(name, ()):
                    is_known = stream == self.current or self.known[self.current].get(stream, 0) > number
                    if (is_write or wrote) and not is_known:
                        waits[stream] = None
        for stream in waits:
            self.instructions.append(WaitEvent(f"on {stream}"))
            self.known[self.current][stream] = self.counts[stream]
        self.instructions += [instruction, RecordEvent(f"on {self.current}")]
        for names, is_write in ((reads, False), (writes, True)):
            for name in names:
                self.touched.setdefault(name, []).append((self.current, self.counts[self.current], is_write))
        self.counts[self.current] += 1

    def turn_anywhere(self) -> None:
        if len(self.names) > 1 and self.rng.random() < 0.6:
            self.turn(self.rng.choice(self.names))


def without(program: HostProgram, index: int) -> HostProgram:
    """A program without one of its instructions. Raises what a program raises that is not well formed then."""
    left = (*program.instructions[:index], *program.instructions[index + 1 :])
    return HostProgram(program.inputs, program.outputs, left)


def generate(seed: int, scale: CompiledKernel, streams: int = 1) -> RandomHostProgram:
    """`scale` is a kernel y[i] = x[i] * alpha of Float vectors."""
    rng = random.Random(seed)
    inputs = tuple(f"x{k}" for k in range(rng.randrange(1, 4)))
    order = _Streams(rng, streams)
    instructions = order.instructions
    work: list[Work] = []
    live = list(inputs)
    made = 0
    aliases = 0
    unreturned: list[str] = []
    # Allocated on another stream than the caller's, so that they cannot go out.
    private: list[str] = []

    def part(name: str, first: int, count: int) -> str:
        nonlocal aliases
        if (first, count) == (0, LENGTH):
            return name
        aliases += 1
        slot = f"part{aliases}"
        instructions.append(Alias(slot, name, (count,), (1,), first))
        return slot

    for _ in range(rng.randrange(2, 14)):
        if rng.random() < 0.35 or made == 0:
            name = f"t{made}"
            made += 1
            if streams > 1:
                order.turn(0 if made == 1 else rng.choice(order.names))
            order.put(Allocate(name, (LENGTH,), DataType.Float), (), (name,))
            (unreturned if order.current == 0 else private).append(name)
            order.put(Fill(name, 0.0), (), (name,))
            work.append(Work("fill", (name, 0, LENGTH), None, 0.0))
            live.append(name)
        order.turn_anywhere()
        kind = rng.choice(["launch", "launch", "launch", "copy", "fill"])
        first, count = rng.choice(PARTS)
        dst = rng.choice(live)
        number = float(rng.choice([-2, -1, 2, 3]))
        if kind == "fill":
            order.put(Fill(part(dst, first, count), number), (), (dst,))
            work.append(Work(kind, (dst, first, count), None, number))
            continue
        src = rng.choice(live)
        starts = [f for f, n in PARTS if n == count]
        start = rng.choice(starts)
        overlap = src == dst and start < first + count and first < start + count
        if kind == "launch" and overlap and start != first:
            continue  # a kernel may not read what another of its threads has written
        if kind == "copy" and overlap and start == first:
            continue  # refused: nothing is copied
        to, of = part(dst, first, count), part(src, start, count)
        command = LaunchKernel(scale, (of, to, number)) if kind == "launch" else Copy(to, of)
        order.put(command, (src,), (dst,))
        work.append(Work(kind, (dst, first, count), (src, start, count), number))
        if len(unreturned) > 2 and rng.random() < 0.2:
            gone = unreturned.pop(rng.randrange(len(unreturned)))
            live.remove(gone)
            order.turn_anywhere()
            order.put(Deallocate(gone), (), (gone,))
        elif len(private) > 1 and rng.random() < 0.4:
            gone = private.pop(rng.randrange(len(private)))
            live.remove(gone)
            order.turn_anywhere()
            order.put(Deallocate(gone), (), (gone,))
    outputs = tuple(rng.sample(unreturned, rng.randrange(1, len(unreturned) + 1)))
    return RandomHostProgram(inputs, tuple(work), outputs, HostProgram(inputs, outputs, tuple(instructions)))


# --- programs with bodies ----------------------------------------------------------------------------------------------

Buffers = dict[str, Array]
Numbers = dict[str, int]
Step = Callable[[Buffers, Numbers], None]


@dataclass(frozen=True)
class NestedHostProgram:
    """Conditions and loops over two numbers that are inputs, `n` and `m`, beside one vector `x`.

    With choices of the device there are two more inputs, tensors of one element: `p`, an Int of 0 or 1, and `q`, a Bool.
    """

    program: HostProgram
    steps: tuple[Step, ...]

    def arrays(self, seed: int) -> list[Array]:
        return [np.random.default_rng(seed).integers(-8, 8, LENGTH).astype(np.float32)]

    def expected(self, arrays: Sequence[Array], n: int, m: int, p: int = 0, q: int = 0) -> list[Array]:
        """The output, and the input afterwards."""
        buffers = {"x": arrays[0].copy(), "out": np.zeros(LENGTH, np.float32)}
        for step in self.steps:
            step(buffers, {"n": n, "m": m, "p": p, "q": q})
        return [buffers["out"], buffers["x"]]


class _Nested:
    def __init__(self, rng: random.Random, scale: CompiledKernel, *, streams: bool, device: bool) -> None:
        self.rng = rng
        self.scale = scale
        self.streams = streams
        self.device = device
        # How many choices of the device the body at hand is in.
        self.chosen = 0
        self.made = 0

    def name(self, what: str) -> str:
        self.made += 1
        return f"{what}{self.made}"

    def command(self, buffers: list[str], loops: list[str]) -> tuple[list[Instruction], list[Step]]:
        """A launch, a copy or a fill of part of a buffer; which part may depend on the turn of a loop."""
        rng = self.rng
        dst, src = rng.choice(buffers), rng.choice(buffers)
        loop = rng.choice(loops) if loops and rng.random() < 0.7 else None
        first = rng.randrange(4) * 8
        to, of = self.name("to"), self.name("of")
        moved = first if loop is None else first + scalar(loop) * 8
        instructions: list[Instruction] = [Alias(to, dst, (8,), (1,), moved), Alias(of, src, (8,), (1,), 56)]

        def at(numbers: Numbers) -> int:
            return first + (0 if loop is None else numbers[loop] * 8)

        kind = rng.randrange(3)
        if kind == 0:
            value = float(rng.randrange(5))
            instructions.append(Fill(to, value))
            return instructions, [lambda b, k: b[dst].__setitem__(slice(at(k), at(k) + 8), value)]
        if kind == 1 or dst == src:
            # Times the turn of the loop, as a name or as a size.
            factor = 2 if loop is None else rng.choice([loop, scalar(loop) + 1])
            instructions.append(LaunchKernel(self.scale, (to, to, factor)))

            def times(k: Numbers) -> int:
                return 2 if loop is None else k[loop] + (not isinstance(factor, str))

            def multiply(b: Buffers, k: Numbers) -> None:
                b[dst][at(k) : at(k) + 8] *= times(k)

            return instructions, [multiply]
        instructions.append(Copy(to, of))
        return instructions, [lambda b, k: b[dst].__setitem__(slice(at(k), at(k) + 8), b[src][56:64])]

    def elsewhere(self, instructions: list[Instruction]) -> list[Instruction]:
        """Them on another stream, between two events."""
        there, back = self.name("there"), self.name("back")
        stream = self.rng.choice([1, "side"])
        return [
            *(RecordEvent(there), SetStream(stream), WaitEvent(there)),
            *instructions,
            *(RecordEvent(back), SetStream(0), WaitEvent(back)),
        ]

    def body(self, buffers: list[str], loops: list[str], depth: int) -> tuple[list[Instruction], list[Step]]:
        rng = self.rng
        buffers = list(buffers)
        instructions: list[Instruction] = []
        steps: list[Step] = []
        for _ in range(rng.randrange(1, 4)):
            kinds = ["if", "switch", "loop", "make", "alike"] + (["choice", "test", "same"] if self.device else [])
            kind = rng.choice(kinds) if depth and rng.random() < 0.6 else ""
            if kind in ("choice", "test", "same"):
                choice, step = self.choice(kind, buffers, loops, depth - 1)
                instructions.append(choice)
                steps.append(step)
                if kind == "same":
                    buffers.append(f"t{self.made}")
                continue
            if kind in ("make", "alike"):
                name = self.name("t")
                made: list[Instruction] = [Allocate(name, (LENGTH,), DataType.Float), Fill(name, float(self.made))]
                value = float(self.made)
                if kind == "alike":
                    test, truth = self.condition(loops)
                    other = [Allocate(name, (LENGTH,), DataType.Float), Fill(name, -1.0)]
                    made = [If(test, tuple(made), tuple(other))]
                else:
                    truth = _always
                instructions += made
                steps.append(_making(name, truth, value))
                buffers.append(name)
                continue
            if kind == "if":
                (then, do), (otherwise, other) = (self.body(buffers, loops, depth - 1) for _ in range(2))
                if rng.random() < 0.3:
                    otherwise, other = [], []
                test, truth = self.condition(loops)
                new: list[Instruction] = [If(test, tuple(then), tuple(otherwise))]
                steps.append(_choosing(lambda k, truth=truth: 0 if truth(k) else 1, [do, other]))
            elif kind == "switch":
                cases = [self.body(buffers, loops, depth - 1) for _ in range(rng.randrange(1, 4))]
                number = rng.choice(["n", "m", *loops])
                *bodies, default = [tuple(c) for c, _ in cases]
                new = [Switch(scalar(number) - 1, tuple(bodies), default)]
                last = len(cases) - 1
                steps.append(
                    _choosing(
                        lambda k, number=number, last=last: k[number] - 1 if 0 <= k[number] - 1 < last else last,
                        [s for _, s in cases],
                    )
                )
            elif kind == "loop":
                index = self.name("i")
                inner, do = self.body(buffers, [*loops, index], depth - 1)
                start, step = rng.choice([(0, 1), (0, 2), (1, 1)])
                by_number = rng.random() < 0.5
                new = [ForLoop(index, start, scalar("n") if by_number else extent("x", 0) // 32, step, tuple(inner))]
                steps.append(_repeating(index, start, None if by_number else LENGTH // 32, step, do))
            else:
                new, more = self.command(buffers, loops)
                steps += more
                if self.streams and not self.chosen and rng.random() < 0.4:
                    new = self.elsewhere(new)
            instructions += new
        return instructions, steps

    def choice(self, kind: str, buffers: list[str], loops: list[str], depth: int) -> tuple[Instruction, Step]:
        """A choice of the device; "same": all bodies make one slot, the latest."""
        self.chosen += 1
        count = 2 if kind == "test" else self.rng.randrange(2, 5)
        bodies = [self.body(buffers, loops, depth) for _ in range(count)]
        if kind == "same":
            name = self.name("t")
            for k, (instructions, steps) in enumerate(bodies):
                instructions[:0] = [Allocate(name, (LENGTH,), DataType.Float), Fill(name, float(k))]
                steps.insert(0, _making(name, _always, float(k)))
        elif self.rng.random() < 0.3:
            bodies[-1] = bodies[0] if self.rng.random() < 0.5 else ([], [])
        self.chosen -= 1
        made = [tuple(instructions) for instructions, _ in bodies]
        run = [steps for _, steps in bodies]
        if kind == "test":
            return If("q", made[0], made[1]), _choosing(lambda k: 0 if k["q"] else 1, run)
        *cases, default = made if count > 2 else (*made, made[0])
        return Switch("p", tuple(cases), default), _choosing(lambda k: k["p"], run)

    def condition(self, loops: list[str]) -> tuple[Cond, Callable[[Numbers], bool]]:
        name = self.rng.choice(["n", "m", *loops])
        bound = self.rng.randrange(4)
        if self.rng.random() < 0.3:
            return less(extent("x", 0), 16 * bound + 16), lambda _: 16 * bound + 16 > LENGTH
        if self.rng.random() < 0.5:
            return less(scalar(name), bound), lambda k: k[name] < bound
        return equal(scalar(name), bound), lambda k: k[name] == bound


def _always(_: Numbers) -> bool:
    return True


def _making(name: str, truth: Callable[[Numbers], bool], value: float) -> Step:
    def run(buffers: Buffers, numbers: Numbers) -> None:
        buffers[name] = np.full(LENGTH, value if truth(numbers) else -1.0, np.float32)

    return run


def _choosing(which: Callable[[Numbers], int], bodies: list[list[Step]]) -> Step:
    def run(buffers: Buffers, numbers: Numbers) -> None:
        for step in bodies[which(numbers)]:
            step(buffers, numbers)

    return run


def _repeating(index: str, start: int, stop: int | None, by: int, body: list[Step]) -> Step:
    def run(buffers: Buffers, numbers: Numbers) -> None:
        for k in range(start, numbers["n"] if stop is None else stop, by):
            for step in body:
                step(buffers, {**numbers, index: k})

    return run


def generate_nested(
    seed: int, scale: CompiledKernel, *, streams: bool = False, device: bool = False
) -> NestedHostProgram:
    """A program whose numbers are from 0 to 3. `device`: there are choices of the device, too."""
    made = _Nested(random.Random(seed), scale, streams=streams, device=device)
    instructions, steps = made.body(["x", "out"], [], 3)
    first = [Allocate("out", (LENGTH,), DataType.Float), Fill("out", 0.0)]
    inputs = ("x", "n", "m", *(("p", "q") if device else ()))
    return NestedHostProgram(HostProgram(inputs, ("out",), (*first, *instructions)), tuple(steps))
