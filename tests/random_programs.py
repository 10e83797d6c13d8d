"""Random definitions of the whole surface, from a seed: mixed dtypes, views, windows, indices, scans, norms, late extents.

    program = generate(seed)                 what NumPy makes of it, step by step (tests/random_steps.py)
    made = build(program)                    the definition and its arguments
    problem = failure(program, device)       what is wrong with it, or None

Grammar
    program := input{1,3} (op | index input | scalar input){2,14} output{1,6} [in-place update of an input]

The other generators (random_fusions, random_reshapes, random_resizes) go deeper where they look; this one mixes everything.
`python -m tests.shrink_program SEED` makes a failing program small.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import FusionDefinition
from fuser.errors import FuserError
from fuser.runtime.device import Device
from fuser.runtime.device_tensor import DeviceTensor
from tests.device_layouts import element_strides, place
from tests.fusion_corpus import host_array
from tests.random_steps import Array, Step, Steps


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Steps with the operands of each before it, those shown as outputs, and (input, new value) of an in-place update."""

    seed: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    update: tuple[int, int] | None = None

    @property
    def arguments(self) -> list[Any]:
        """What is passed, in the order of definition."""
        return [s.argument for s in self.steps if s.argument is not None]


def generate(seed: int) -> Program:
    """The program of a seed. An op that refuses its operands is an error here: all of them are right."""
    steps = Steps(seed)
    rng = steps.rng
    for _ in range(rng.randint(1, 3)):
        steps.input()
    wanted = len(steps.steps) + rng.randint(2, 14)
    for _ in range(3 * wanted):
        if len(steps.steps) >= wanted:
            break
        steps.grow()
    made = tuple(steps.steps)
    tensors = [i for i, s in enumerate(made) if s.argument is None or isinstance(s.argument, np.ndarray)]
    # What nothing reads would be left out.
    read = {i for s in made for i in s.operands}
    unread = [i for i in tensors if i not in read]
    outputs = rng.sample(unread, min(len(unread), rng.randint(2, 5))) + rng.sample(tensors, rng.choice((0, 0, 0, 1)))
    if rng.random() < 0.1:
        outputs.append(outputs[0])
    return Program(seed, made, tuple(outputs), _update(rng, made, tensors) if rng.random() < 0.25 else None)


def _update(rng: random.Random, steps: Sequence[Step], tensors: Sequence[int]) -> tuple[int, int] | None:
    """An input that can be written, each element once, and what may be written there."""
    found = [
        (i, k)
        for i in tensors
        for k in tensors
        if steps[i].argument is not None
        and (0 not in steps[i].argument.strides or not steps[i].wide.size)
        and i != k
        and (steps[i].shape, steps[i].dtype) == (steps[k].shape, steps[k].dtype)
    ]
    return rng.choice(found) if found else None


def build(program: Program) -> FusionDefinition:
    """The definition of a program."""
    with FusionDefinition() as fd:
        tensors: list[Any] = []
        for step in program.steps:
            tensors.append(step.define(fd, *(tensors[i] for i in step.operands)))
        for i in program.outputs:
            fd.add_output(tensors[i])
        if program.update is not None:
            target, value = program.update
            fd.add_output(tensors[value], tensors[target])
    return fd


def failure(program: Program, device: Device | None = None) -> str | None:
    """What is wrong with the results, or with the refusal to make them; None if nothing is.

    `device`: where arguments are put; None: NumPy arrays are passed, and copied to a simulator and back.
    """
    try:
        fd = build(program)
        arguments = [_passed(a, device) for a in program.arguments]
        on_host = not any(isinstance(a, DeviceTensor) for a in arguments)
        results = fd.execute(arguments, device="simulator" if on_host else None)
    except FuserError as error:
        return f"{type(error).__name__}: {error}"
    wanted = [program.steps[i] for i in program.outputs]
    if program.update is not None:
        target, value = (program.steps[i] for i in program.update)
        # An output that is the updated input shows what it is now.
        wanted = [value if w is target else w for w in wanted]
        position = [a is target.argument for a in program.arguments].index(True)
        results, wanted = [*results, arguments[position]], [*wanted, value]
    if len(results) != len(wanted):
        return f"{len(results)} results, expected {len(wanted)}"
    compared = (_difference(host_array(r), w) for r, w in zip(results, wanted, strict=True))
    return next((f"result {k}: {text}" for k, text in enumerate(compared) if text), None)


def _passed(argument: Any, device: Device | None) -> Any:
    """An argument on the device, in its own layout where that has no steps back; without one a copy of what may be written."""
    if not isinstance(argument, np.ndarray):
        return argument
    if device is None:
        return argument if 0 in argument.strides else argument.copy(order="K")
    if min((0, *argument.strides)) < 0:
        argument = argument.copy()
    return place(device, argument, element_strides(argument))


def _difference(result: Array, wanted: Step) -> str | None:
    """How a result differs from the value of a step by more than its error, or None."""
    if result.shape != wanted.shape or result.dtype != wanted.dtype.numpy:
        return f"{result.dtype} {result.shape}, expected {wanted.dtype.numpy} {wanted.shape}"
    off = np.abs(result.astype(np.float64) - wanted.wide.astype(np.float64))
    largest = float(np.max(off, initial=0))
    if largest <= 4 * wanted.error:
        return None
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    return f"{result[at]} at {[int(i) for i in at]}, expected {wanted.wide[at]} within {4 * wanted.error:.2g}"
