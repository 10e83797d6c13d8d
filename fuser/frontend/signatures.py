"""Signatures of ops, from the text that errors show to what `inspect.signature` and `help` read.

    "sum(arg: TensorView, dims: Sequence[int], keepdim: bool = False) -> TensorView"

The text is the one place where the parameters of an op are written down; `fuser/frontend/ops.pyi` comes from it too.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from functools import cache

from fuser.ir.ops.dtypes import DataType
from fuser.syntax_trees import syntax_tree
from fuser.unbound_calls import Annotation


def name_of(text: str) -> str:
    """The name of the op."""
    return text.partition("(")[0]


def parsed(text: str) -> ast.FunctionDef:
    """The signature as a function without a body."""
    (statement,) = syntax_tree(f"def {text}: ...").body
    assert isinstance(statement, ast.FunctionDef)
    return statement


def merged_signature(texts: Sequence[str]) -> inspect.Signature:
    """The signature of an op with overloads: the last one, in which what others do not take may be left out, and what only
    others take by keyword.
    """
    signature = _signature(texts[-1].partition("(")[2])
    others = [_signature(t.partition("(")[2]).parameters for t in texts[:-1]]
    known = signature.parameters
    parameters = [
        p.replace(default=None)
        if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and any(p.name not in other for other in others)
        else p
        for p in known.values()
    ]
    more = {
        p.name: p.replace(kind=p.KEYWORD_ONLY, default=None)
        for other in others
        for p in other.values()
        if p.name not in known
    }
    return signature.replace(parameters=[*parameters, *more.values()])


@cache
def _signature(parameters: str) -> inspect.Signature:
    """The signature `op(parameters`: many ops share one."""
    function = parsed(f"op({parameters}")
    args = function.args
    kinds = inspect.Parameter
    found: list[inspect.Parameter] = []
    positional = [
        *((a, kinds.POSITIONAL_ONLY) for a in args.posonlyargs),
        *((a, kinds.POSITIONAL_OR_KEYWORD) for a in args.args),
    ]
    missing = len(positional) - len(args.defaults)
    for i, (arg, kind) in enumerate(positional):
        found.append(_parameter(arg, kind, args.defaults[i - missing] if i >= missing else None))
    if args.vararg is not None:
        found.append(_parameter(args.vararg, kinds.VAR_POSITIONAL, None))
    for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        found.append(_parameter(arg, kinds.KEYWORD_ONLY, default))
    returned = inspect.Signature.empty if function.returns is None else Annotation(ast.unparse(function.returns))
    return inspect.Signature(found, return_annotation=returned)


def _parameter(arg: ast.arg, kind: inspect._ParameterKind, default: ast.expr | None) -> inspect.Parameter:  # type: ignore[reportPrivateUsage] - the type has no public name
    annotation = inspect.Parameter.empty if arg.annotation is None else Annotation(ast.unparse(arg.annotation))
    value: object = inspect.Parameter.empty if default is None else _default(default)
    return inspect.Parameter(arg.arg, kind, default=value, annotation=annotation)


def _default(expression: ast.expr) -> object:
    text = ast.unparse(expression)
    owner, _, member = text.partition(".")
    if owner == "DataType":
        return DataType[member]
    return Annotation(text) if member.isidentifier() else ast.literal_eval(expression)
