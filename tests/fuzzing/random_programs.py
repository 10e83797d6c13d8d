"""Random definitions of the whole surface, from a seed: mixed dtypes, views, windows, indices, scans, norms, late extents.

    program = generate(seed)                 what NumPy makes of its inputs, step by step (tests/fuzzing/random_steps.py)
    made = build(program)                    the definition and its arguments
    problem = failure(program, device)       what is wrong with it, or None

Grammar
    program := input{1,3} (op | index input | scalar input){2,14} output{1,6} [in-place update of an input]

The other generators (random_fusions, random_reshapes, random_resizes) go deeper where they look; this one mixes everything.
`python -m tests.fuzzing.shrink_program SEED` makes a failing program small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fuser import FusionDefinition
from fuser.errors import FuserError
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import Device
from tests.devices.device_layouts import element_strides, place
from tests.fusions.fusion_corpus import host_array
from tests.fuzzing.random_draws import Draws, Unfit
from tests.fuzzing.random_step_ops import flatten, turned
from tests.fuzzing.random_steps import Array, Step, Steps


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A definition and the inputs that it is run on, one after the other.

    runs      the steps, with the operands of each before it, and what they make of the inputs of each run
    outputs   the steps that are shown
    update    (input, new value) of an in-place update
    """

    seed: int
    runs: tuple[tuple[Step, ...], ...]
    outputs: tuple[int, ...]
    update: tuple[int, int] | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Those of the first run."""
        return self.runs[0]

    @property
    def arguments(self) -> list[Any]:
        """What is passed in the first run, in the order of definition."""
        return arguments_of(self.steps)


def arguments_of(steps: Sequence[Step]) -> list[Any]:
    """What is passed for the inputs among some steps."""
    return [s.argument for s in steps if s.argument is not None]


def generate(seed: int) -> Program:
    """The program of a seed. An op that refuses its operands is an error here: all of them are right.

    It is run again on inputs of other layouts, and on inputs of other extents if all of its ops take those.
    """
    first = Steps(seed)
    program = _grown(first)
    text = repr(build(program))
    runs = list(program.runs)
    for run in (1, 2):
        try:
            again = _grown(Steps(seed, first.draws.log, run=run, resized=run == 2))
        except (Unfit, FuserError, ValueError, IndexError):
            continue
        if repr(build(again)) == text:
            runs.extend(again.runs)
    return replace(program, runs=tuple(runs))


def _grown(steps: Steps) -> Program:
    rng = steps.rng
    for _ in range(rng.randint(1, 3)):
        steps.input()
    wanted = len(steps.steps) + rng.randint(2, 14)
    for _ in range(3 * wanted):
        if len(steps.steps) >= wanted:
            break
        steps.grow()
    tensors = [i for i, s in enumerate(steps.steps) if s.argument is None or isinstance(s.argument, np.ndarray)]
    # What nothing reads would be left out.
    read = {i for s in steps.steps for i in s.operands}
    unread = [i for i in tensors if i not in read]
    outputs = rng.sample(unread, min(len(unread), rng.randint(2, 5))) + rng.sample(tensors, rng.choice((0, 0, 0, 1)))
    if rng.random() < 0.1:
        outputs.append(outputs[0])
    update = _update(rng, steps.steps, tensors) if rng.random() < 0.3 else None
    if update is not None:
        target, _ = update
        steps.steps[target] = _writable(steps.steps[target], steps.steps)
        # It shows what the input was before.
        view = rng.choice((turned, flatten, None, None))
        made = view(steps, target) if view is not None else None
        outputs += [] if made is None else [made]
    return Program(steps.seed, (tuple(steps.steps),), tuple(outputs), update)


def _update(rng: Draws, steps: Sequence[Step], tensors: Sequence[int]) -> tuple[int, int] | None:
    """An input that can be written, and what may be written there; a normalisation more often than not."""
    found = [
        (i, k)
        for i in tensors
        for k in tensors
        if steps[i].argument is not None
        and i != k
        and (steps[i].shape, steps[i].ones, steps[i].dtype) == (steps[k].shape, steps[k].ones, steps[k].dtype)
    ]
    rounded = [(i, k) for i, k in found if steps[k].error]
    return rng.choice(rounded if rounded and rng.random() < 0.6 else found) if found else None


def _writable(step: Step, steps: Sequence[Step]) -> Step:
    """The input with elements that are each written once, and that no other input has."""
    argument = step.argument
    is_shared = sum(s.argument is argument for s in steps) > 1
    return replace(step, argument=argument.copy()) if is_shared or 0 in argument.strides else step


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
    except FuserError as error:
        return f"{type(error).__name__}: {error}"
    for number, steps in enumerate(program.runs):
        problem = _failure(fd, program, steps, device)
        if problem is not None:
            return f"run {number}: {problem}"
    return None


def _failure(fd: FusionDefinition, program: Program, steps: Sequence[Step], device: Device | None) -> str | None:
    """What is wrong with the results for the inputs of one run."""
    given = arguments_of(steps)
    shared = {id(a): _passed(a, device) for a in given}
    arguments = [shared[id(a)] for a in given]
    on_host = not any(isinstance(a, DeviceTensor) for a in arguments)
    try:
        results = fd.execute(arguments, device="simulator" if on_host else None)
    except FuserError as error:
        return f"{type(error).__name__}: {error}"
    wanted = [steps[i] for i in program.outputs]
    if program.update is not None:
        target, value = (steps[i] for i in program.update)
        # An output that is the updated input shows what it is now.
        wanted = [value if w is target else w for w in wanted]
        position = [a is target.argument for a in given].index(True)
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
