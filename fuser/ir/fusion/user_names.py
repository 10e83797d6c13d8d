"""What the user's program calls the values of a fusion, for messages: `bias` rather than `t1`.

A value knows the line that made it (`location`). The names are read off that line when a message needs them, so that a
definition pays nothing for them:

    x = fd.define_tensor([-1])                                  x
    x, y = fd.define_tensor([4]), fd.define_tensor([5])         x and y
    a, b = (fd.define_tensor([-1]) for _ in range(2))           a and b
    sizes = fd.define_vector(2)                                 sizes[0] and sizes[1]
    y = fd.ops.exp(x) * 2.0                                     y, for the product

Where the source cannot be read or says nothing, a value has the name it has in the fusion.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Sequence

from fuser.ir.fusion.fusion import Fusion, Val, expr_outputs
from fuser.ir.integers.integers import Int
from fuser.source_location import SourceLocation
from fuser.syntax_trees import syntax_tree

_DEFINING = ("define_tensor", "define_scalar", "define_vector", "from_array", "from_pytorch")


def input_name(fusion: Fusion, position: int) -> str:
    """The user's name of a fusion input, or else the fusion's."""
    spec = fusion.inputs[position]
    return _users_name_of_input(fusion, position) or spec.name


def input_label(fusion: Fusion, position: int) -> str:
    """`input 1, bias`, or `input 1` where the user's program has no name for it."""
    name = _users_name_of_input(fusion, position)
    return f"input {position}" if name is None else f"input {position}, {name}"


def input_subject(fusion: Fusion, position: int) -> str:
    """`input_label` where a verb follows: `input 1, bias,` or `input 1`."""
    label = input_label(fusion, position)
    return f"{label}," if "," in label else label


def input_list(fusion: Fusion) -> str:
    """All inputs in order: `x, bias, input 2`."""
    names = (_users_name_of_input(fusion, i) or f"input {i}" for i in range(len(fusion.inputs)))
    return ", ".join(names) or "none"


def value_name(fusion: Fusion, value: Val) -> str:
    """The user's name of any value of a fusion, with the fusion's in parentheses, or that alone."""
    if value in fusion.inputs:
        return input_name(fusion, fusion.inputs.index(value))
    location = value.location
    if location is None:
        return value.name
    here = [v for e in fusion.exprs for v in expr_outputs(e) if _same_line(v.location, location)]
    statement = _statement_at(location)
    if not here or here[-1].name != value.name or not isinstance(statement, ast.Assign) or not _is_op(statement.value):
        return value.name
    (*_, target) = statement.targets
    return f"{ast.unparse(target)} ({value.name})" if isinstance(target, (ast.Name, ast.Attribute)) else value.name


def extent_text(fusion: Fusion, extent: Int) -> str:
    """An extent with the sizes of inputs as the user would write them: `x.size(0)*x.size(1)//5`."""

    def written(found: re.Match[str]) -> str:
        return f"{_by_name(fusion).get(found[1], found[1])}.size({found[2]})"

    text = re.sub(r"\b(\w+)_size(\d+)\b", written, str(extent))
    return re.sub(r"\bc\d+\b", lambda found: _by_name(fusion).get(found[0], found[0]), text)


def _by_name(fusion: Fusion) -> dict[str, str]:
    return {spec.name: input_name(fusion, i) for i, spec in enumerate(fusion.inputs)}


# --- reading the source -----------------------------------------------------------------------------------------------


def _users_name_of_input(fusion: Fusion, position: int) -> str | None:
    location = fusion.inputs[position].location
    if location is None:
        return None
    made_here = [i for i, v in enumerate(fusion.inputs) if _same_line(v.location, location)]
    names = _defined_names(_statement_at(location), location.lineno, len(made_here))
    return names[made_here.index(position)] if len(names) == len(made_here) else None


def _same_line(one: SourceLocation | None, other: SourceLocation) -> bool:
    return one is not None and (one.filename, one.lineno) == (other.filename, other.lineno)


def _statement_at(location: SourceLocation) -> ast.stmt | None:
    """The innermost statement at a line; None if the source cannot be read, or the line has several."""
    text = "".join(linecache.getlines(location.filename))
    try:
        tree = syntax_tree(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return None
    found: list[ast.stmt] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= location.lineno <= (node.end_lineno or node.lineno):
            # Nodes come outermost first. A body's statement replaces what holds it.
            found = [s for s in found if not any(child is node for child in ast.walk(s))]
            found.append(node)
    return found[0] if len(found) == 1 else None


def _defined_names(statement: ast.stmt | None, line: int, count: int) -> list[str]:
    """The names that a statement gives to `count` inputs that one of its lines defines; [] if it does not tell."""
    match statement:
        case ast.Assign(targets=[*_, target], value=value):
            names = _bound_names(target, value, line, count)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            names = _bound_names(target, value, line, count)
        case _:
            return []
    return names if len(names) == count else []


def _bound_names(target: ast.expr, value: ast.expr, line: int, count: int) -> list[str]:
    match value:
        case ast.Call() if _is_call_of(value, _DEFINING):
            if not value.lineno <= line <= (value.end_lineno or line):
                return []
            if _is_call_of(value, ("define_vector",)):
                return _item_names(target, count)
            return [ast.unparse(target)] if _is_name(target) else []
        case ast.Tuple(elts=values) | ast.List(elts=values):
            targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else None
            if targets is None or len(targets) != len(values):
                return []
            return [n for t, v in zip(targets, values, strict=True) for n in _bound_names(t, v, line, 1)]
        case ast.ListComp(elt=ast.Call() as made) | ast.GeneratorExp(elt=ast.Call() as made):
            return _item_names(target, count) if _is_call_of(made, _DEFINING) else []
        case _:
            return []


def _item_names(target: ast.expr, count: int) -> list[str]:
    """The names of the items of what is assigned to a target."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return [ast.unparse(t) for t in target.elts] if all(map(_is_name, target.elts)) else []
    return [f"{ast.unparse(target)}[{i}]" for i in range(count)] if _is_name(target) else []


def _is_name(target: ast.expr) -> bool:
    match target:
        case ast.Name():
            return True
        case ast.Attribute(value=owner):
            return _is_name(owner)
        case ast.Subscript(value=owner, slice=ast.Constant()):
            return _is_name(owner)
        case _:
            return False


def _is_call_of(call: ast.Call, names: Sequence[str]) -> bool:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in names
        case _:
            return False


def _is_op(value: ast.expr) -> bool:
    """Whether an expression's own value is the last that its line makes: an operator or a call of `fd.ops`."""
    match value:
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="ops") | ast.Name(id="ops"))):
            return True
        case _:
            return False
