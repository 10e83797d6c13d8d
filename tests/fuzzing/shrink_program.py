"""Make a failing random program small: `python -m tests.fuzzing.shrink_program SEED`.

Runs and outputs are left out, values become inputs, and steps that nothing reads go, for as long as the program fails; then its
definition is printed, with the layouts of its arguments. `--verify` asks for checks of every pass, as the tests do; `--host`
passes NumPy arrays, as the tests do for even seeds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from fuser.errors import FuserError
from tests.devices.device_layouts import element_strides
from tests.devices.small_simulator import small_simulator
from tests.fuzzing.random_programs import Program, arguments_of, build, failure, generate
from tests.fuzzing.random_steps import Step, input_step


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program found that still fails. `program` does."""
    while True:
        smaller = next((p for p in _smaller(program) if fails(p)), None)
        if smaller is None:
            return program
        program = smaller


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with a little less, the largest cuts first."""
    if len(program.runs) > 1:
        # One of the runs fails by itself, maybe; else two of them do.
        yield from (replace(program, runs=(run,)) for run in program.runs)
        if len(program.runs) > 2:
            yield from (
                replace(program, runs=(*program.runs[:k], *program.runs[k + 1 :])) for k in range(len(program.runs))
            )
    for i in program.outputs:
        if len(program.outputs) > 1:
            yield without_unread(replace(program, outputs=(i,), update=None))
    if program.update is not None:
        yield without_unread(replace(program, update=None))
    for k in range(len(program.outputs) if len(program.outputs) > 1 else 0):
        kept = tuple(i for j, i in enumerate(program.outputs) if j != k)
        yield without_unread(replace(program, outputs=kept))
    if program.update is None and len(program.outputs) == 1:
        # An operand fails by itself, maybe.
        for i in program.steps[program.outputs[0]].operands:
            if program.steps[i].argument is None:
                yield without_unread(replace(program, outputs=(i,)))
    for k, step in reversed(list(enumerate(program.steps))):
        if step.argument is None and step.operands and k not in program.outputs:
            runs = tuple((*run[:k], _as_input(run[k]), *run[k + 1 :]) for run in program.runs)
            yield without_unread(replace(program, runs=runs))


def _as_input(step: Step) -> Step:
    """An input of the step's numbers."""
    declared = [1 if one else -1 for one in step.ones]
    return input_step(step.wide.astype(step.dtype.numpy), step.dtype, declared)


def without_unread(program: Program) -> Program:
    """The program without steps that nothing reads."""
    needed = {*program.outputs, *(program.update or ())}
    for k in reversed(range(len(program.steps))):
        if k in needed:
            needed.update(program.steps[k].operands)
    kept = sorted(needed)
    at = {k: i for i, k in enumerate(kept)}
    update = None if program.update is None else (at[program.update[0]], at[program.update[1]])
    return Program(
        program.seed,
        tuple(tuple(replace(r[k], operands=tuple(at[i] for i in r[k].operands)) for k in kept) for r in program.runs),
        tuple(at[i] for i in program.outputs),
        update,
    )


def describe(program: Program, problem: str | None) -> str:
    """The definition, the arguments and what is wrong."""
    layouts = [
        f"    # run {k}, argument {i}: "
        + (f"{a.dtype} {a.shape}, strides {element_strides(a)}" if isinstance(a, np.ndarray) else repr(a))
        for k, steps in enumerate(program.runs)
        for i, a in enumerate(arguments_of(steps))
    ]
    try:
        text = repr(build(program))
    except FuserError as error:
        text = str(error)
    return "\n".join([text, *layouts, f"    # {problem}"])


def main() -> None:
    """Shrink the program of a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--verify", action="store_true", help="check every pass, and take refused proposals for errors")
    parser.add_argument("--host", action="store_true", help="pass NumPy arrays, to a device of usual size")
    given = parser.parse_args()
    if given.verify:
        os.environ["FUSER_VERIFY"] = "passes"

    def problem(program: Program) -> str | None:
        return failure(program, None if given.host else small_simulator())

    program = generate(given.seed)
    if problem(program) is None:
        print(f"nothing is wrong with the program of seed {given.seed}")
        return
    small = shrink(program, lambda p: problem(p) is not None)
    print(describe(small, problem(small)))


if __name__ == "__main__":
    main()
