"""Host programs as Python: the text rebuilds the program, given its kernels (`parse_program.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fuser.host_ir.instructions.bodies import bodies_of, body_numbers, numbered, walk
from fuser.host_ir.instructions.instructions import ForLoop, If, Instruction, Switch
from fuser.host_ir.instructions.print_instruction import print_head, print_instruction, print_tuple
from fuser.host_ir.passes.verified_program import VerifiedProgram

_INDENT = "    "


def print_program(program: VerifiedProgram) -> str:
    """The program as Python."""
    labels = {id(kernel): label for label, kernel in program.kernels.items()}
    lines = [
        "HostProgram(",
        f"{_INDENT}inputs={print_tuple([repr(s) for s in program.inputs])},",
        f"{_INDENT}outputs={print_tuple([repr(s) for s in program.outputs])},",
        f"{_INDENT}instructions=(",
        *(f"{_INDENT * 2}{line}" for line in _print_lines(program, program.instructions, 0, labels)),
        f"{_INDENT}),",
        ")",
    ]
    return "\n".join(lines)


def _print_lines(
    program: VerifiedProgram, body: Sequence[Instruction], first: int, labels: Mapping[int, str]
) -> list[str]:
    """A body as lines, one for each instruction that has no bodies itself."""
    lines: list[str] = []
    for index, instruction in numbered(body, first):
        if not isinstance(instruction, (If, Switch, ForLoop)):
            lines.append(f"{print_instruction(instruction, labels)},{_beside(program, index)}")
            continue
        lines.append(f"{print_head(instruction)},")
        inner = [
            ["("] + [f"{_INDENT}{line}" for line in _print_lines(program, nested, start, labels)] + ["),"]
            for nested, start in zip(bodies_of(instruction), body_numbers(index, instruction), strict=True)
        ]
        if isinstance(instruction, Switch):
            cases = [f"{_INDENT}{line}" for lines_of in inner[:-1] for line in lines_of]
            inner = [["(", *cases, "),"], inner[-1]]
        lines += [f"{_INDENT}{line}" for lines_of in inner for line in lines_of]
        lines.append("),")
    return lines


def _beside(program: VerifiedProgram, index: int) -> str:
    """A comment for a launch whose kernel is made to run beside the one before it."""
    side = program.side_by_side.get(index)
    if side is None:
        return ""
    if side.starter is not None:
        return "  # beside the launch before it"
    if side.between is None:
        return "  # by itself: no launch before it lets another start"
    between = next(i for k, i in enumerate(walk(program.instructions)) if k == side.between)
    return f"  # behind the launch before it: {type(between).__name__} stands between"
