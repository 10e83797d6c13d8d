"""Host programs as Python: the text rebuilds the program, given its kernels.

Kernels are named `kernels["<entry>_<first 8 digits of the content hash>"]`; `HostProgram.kernels` is that dictionary and
`parse_program` evaluates a text.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never, get_args

from fuser.errors import DefinitionTypeError
from fuser.host_ir.bodies import bodies_of, body_numbers, numbered, walk
from fuser.host_ir.expressions import Size
from fuser.host_ir.instructions import (
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
    LibraryArgument,
    RecordEvent,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
)
from fuser.ir.integers import Int, Truth
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.syntax_trees import syntax_tree

if TYPE_CHECKING:
    from fuser.host_ir.program import HostProgram

_INDENT = "    "


def kernel_label(kernel: CompiledKernel) -> str:
    """Short name of a kernel: entry and the start of its content hash."""
    return f"{kernel.entry}_{kernel.content_hash[:8]}"


def label_kernels(instructions: Sequence[Instruction]) -> dict[str, CompiledKernel]:
    """Each different kernel of a program by a name; equal labels of different kernels are told apart by a number."""
    found: dict[str, CompiledKernel] = {}
    known: set[int] = set()
    for instruction in walk(instructions):
        if isinstance(instruction, LaunchKernel) and id(instruction.kernel) not in known:
            known.add(id(instruction.kernel))
            label = base = kernel_label(instruction.kernel)
            number = 1
            while label in found:
                number += 1
                label = f"{base}_{number}"
            found[label] = instruction.kernel
    return found


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _sizes(sizes: Sequence[Size]) -> str:
    return _tuple([str(s) for s in sizes])


def print_instruction(instruction: Instruction, labels: Mapping[int, str] | None = None) -> str:
    """One instruction as Python. `labels` maps the id of a kernel to its name; without, the short name is used.

    Of an instruction with bodies it is the head: `If(extent('x', 0) < 4, ...)`.
    """
    match instruction:
        case Allocate(slot, shape, dtype, strides):
            more = "" if strides is None else f", {_sizes(strides)}"
            return f"Allocate({slot!r}, {_sizes(shape)}, {dtype!r}{more})"
        case Deallocate(slot):
            return f"Deallocate({slot!r})"
        case Alias(slot, of, sizes, strides, offset):
            parts = [repr(slot), repr(of)]
            if sizes is not None:
                parts.append(_sizes(sizes))
            if strides is not None:
                parts.append(f"strides={_sizes(strides)}")
            if not (isinstance(offset, int) and offset == 0):
                parts.append(f"offset={offset}")
            return f"Alias({', '.join(parts)})"
        case Copy(dst, src):
            return f"Copy({dst!r}, {src!r})"
        case Fill(slot, value):
            return f"Fill({slot!r}, {_number(value)})"
        case LaunchKernel(kernel, args, launch):
            label = kernel_label(kernel) if labels is None else labels[id(kernel)]
            more = "" if launch is None else f", {launch!r}"
            words = _tuple([_argument(a) for a in args])
            return f'LaunchKernel(kernels["{label}"], {words}{more})'
        case CallLibrary(op, outputs, arguments):
            given = ", ".join(f"{name!r}: {_library_argument(value)}" for name, value in arguments)
            return f"CallLibrary({op!r}, {_tuple([repr(s) for s in outputs])}, {{{given}}})"
        case SetStream(name) | RecordEvent(name) | WaitEvent(name):
            return f"{type(instruction).__name__}({name!r})"
        case Synchronize():
            return "Synchronize()"
        case If() | Switch() | ForLoop():
            return f"{_head(instruction)}, ...)"
        case _:
            assert_never(instruction)


def _head(instruction: If | Switch | ForLoop) -> str:
    """The text of an instruction up to its bodies."""
    match instruction:
        case If(str() as slot) | Switch(str() as slot):
            return f"{type(instruction).__name__}({slot!r}"
        case If(condition):
            # True is what `a == b` of two expressions is, and refused.
            return f"If({int(condition.value) if isinstance(condition, Truth) else condition}"
        case Switch(selector):
            return f"Switch({selector}"
        case ForLoop(index, start, stop, step):
            return f"ForLoop({index!r}, {start}, {stop}, {step}"
        case _:
            assert_never(instruction)


def _print_lines(program: HostProgram, body: Sequence[Instruction], first: int, labels: Mapping[int, str]) -> list[str]:
    """A body as lines, one for each instruction that has no bodies itself."""
    lines: list[str] = []
    for index, instruction in numbered(body, first):
        if not isinstance(instruction, (If, Switch, ForLoop)):
            lines.append(f"{print_instruction(instruction, labels)},{_beside(program, index)}")
            continue
        lines.append(f"{_head(instruction)},")
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


def _argument(value: Argument) -> str:
    if isinstance(value, Int):
        return str(value)
    return repr(value) if isinstance(value, str) else _number(value)


def _library_argument(value: LibraryArgument) -> str:
    return "None" if value is None else _argument(value)


def _number(value: bool | int | float | complex) -> str:
    text = repr(value)
    # inf and nan have no literals.
    return (
        text if isinstance(value, int) or not ("inf" in text or "nan" in text) else f"{type(value).__name__}({text!r})"
    )


def print_program(program: HostProgram) -> str:
    """The program as Python."""
    labels = {id(kernel): label for label, kernel in program.kernels.items()}
    lines = [
        "HostProgram(",
        f"{_INDENT}inputs={_tuple([repr(s) for s in program.inputs])},",
        f"{_INDENT}outputs={_tuple([repr(s) for s in program.outputs])},",
        f"{_INDENT}instructions=(",
        *(f"{_INDENT * 2}{line}" for line in _print_lines(program, program.instructions, 0, labels)),
        f"{_INDENT}),",
        ")",
    ]
    return "\n".join(lines)


def _beside(program: HostProgram, index: int) -> str:
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


def parse_program(text: str, kernels: Mapping[str, CompiledKernel]) -> HostProgram:
    """The program that `print_program` wrote. The text is executed: read none from a source you do not trust.

    Raises DefinitionTypeError if it is no program.
    """
    from fuser.host_ir import expressions
    from fuser.host_ir.program import HostProgram
    from fuser.ir import integers
    from fuser.ir.dtypes import DataType
    from fuser.runtime.launch_params import LaunchParams

    classes = (HostProgram, *get_args(Instruction), LaunchParams, DataType)
    names = {c.__name__: c for c in classes}
    functions = {
        "extent": expressions.extent,
        "stride": expressions.stride,
        "scalar": expressions.scalar,
        "min": integers.minimum,
        "max": integers.maximum,
        "select": integers.select,
        "float": float,
        "complex": complex,
    }
    tree = ast.fix_missing_locations(_Conditions().visit(syntax_tree(text, "eval")))
    code = compile(tree, "<program>", "eval")
    program = eval(code, {"__builtins__": {}, **names, **functions, **_conditions(), "kernels": dict(kernels)})
    if not isinstance(program, HostProgram):
        raise DefinitionTypeError(f"expected the text of a HostProgram, got that of a {type(program).__name__}")
    return program


_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}


def _conditions() -> dict[str, object]:
    from fuser.ir import integers

    return {name: getattr(integers, name) for name in (*_COMPARISONS.values(), "all_of", "any_of")}


class _Conditions(ast.NodeTransformer):
    """Comparisons of expressions are conditions, not truth values: a <= b is less_equal(a, b)."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        operands = [node.left, *node.comparators]
        tests: list[ast.expr] = []
        for (left, right), operator in zip(pairwise(operands), node.ops, strict=True):
            name = _COMPARISONS.get(type(operator))
            if name is None:
                raise DefinitionTypeError(f"{ast.unparse(node)} is no condition of a host program")
            tests.append(_called(name, [left, right]))
        return tests[0] if len(tests) == 1 else _called("all_of", tests)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return _called("all_of" if isinstance(node.op, ast.And) else "any_of", node.values)


def _called(name: str, operands: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), operands, [])
