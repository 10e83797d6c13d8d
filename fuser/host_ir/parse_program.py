"""`parse_program`: the program of a text that `print_program` wrote."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from itertools import pairwise
from typing import get_args

from fuser.errors import DefinitionTypeError
from fuser.host_ir.instructions import expressions
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.program import HostProgram
from fuser.ir.integers import integers
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.syntax_trees import syntax_tree


def parse_program(text: str, kernels: Mapping[str, CompiledKernel]) -> HostProgram:
    """The program whose text `print_program` wrote; `HostProgram.kernels` are its kernels.

    The text is executed: read none from a source you do not trust.

    Raises DefinitionTypeError if it is no program.
    """
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
