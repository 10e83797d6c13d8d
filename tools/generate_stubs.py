"""Write the stubs that tell type checkers and editors what the package offers.

    python tools/generate_stubs.py            writes them
    python tools/generate_stubs.py --check    exit code 1 if one differs

    fuser/__init__.pyi            the names of the package, which are loaded on first use
    fuser/frontend/ops.pyi        every op, from the texts of its overloads
    fuser/frontend/handles.pyi    tensors and scalars: `handles.py` without bodies, and what `complete_handles.py` puts on its
                                  classes: operators, subscripts, verbs, and the ops as methods

A test runs the check, so an op that was added or changed appears in them.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fuser
from fuser.frontend import handles, ops
from fuser.frontend.methods import METHODS, PROPERTIES
from fuser.frontend.operators import OPERATORS, UNARY
from fuser.frontend.signatures import parsed
from fuser.frontend.subscripts import subscript
from fuser.frontend.verbs import AXIS_VERBS, VERBS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "fuser"

NOTE = "Written by `tools/generate_stubs.py`: not by hand."

# What annotations in the texts of overloads are called in stubs. Names of builtins are those of ops too.
ARGUMENTS = {"number": "Number", "int": "SupportsIndex", "bool": "Flag", "float": "Number", "DataType": "Dtype"}
EXTENTS = {"Val | int": "Extent", "Val | number": "Operand", "TensorView | Val | number": "Operand"}
EITHER = "TensorView | Val"


# --- annotations ------------------------------------------------------------------------------------------------------


class _Renamed(ast.NodeTransformer):
    """An annotation with other names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        text = ast.unparse(node)
        for union, name in EXTENTS.items():
            if text == union or text == f"{union} | None":
                return ast.parse(text.replace(union, name), mode="eval").body
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self.names.get(node.id, node.id), mode="eval").body


def renamed(annotation: ast.expr | None, names: dict[str, str]) -> ast.expr | None:
    if annotation is None:
        return None
    return _Renamed(names).visit(ast.parse(ast.unparse(annotation), mode="eval").body)


def every_argument(args: ast.arguments) -> list[ast.arg]:
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found if args.vararg is None else [*found, args.vararg]


def with_argument_types(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function with the types of its arguments as stubs call them."""
    for arg in every_argument(function.args):
        arg.annotation = renamed(arg.annotation, ARGUMENTS)
    return function


# --- functions --------------------------------------------------------------------------------------------------------


def docstring(doc: str | None, indent: str) -> str:
    """The docstring as a statement, its long lines wrapped."""
    if not doc:
        return ""
    lines: list[str] = []
    for line in inspect.cleandoc(doc).replace("\\", "\\\\").splitlines():
        start = " " * (len(line) - len(line.lstrip()))
        lines += textwrap.wrap(line, 116 - len(indent), subsequent_indent=start) or [""]
    end = "" if len(lines) == 1 else "\n" + indent
    text = "\n".join(indent + line if line and i else line for i, line in enumerate(lines))
    return f'{indent}"""{text}{end}"""\n'


def stub(
    function: ast.FunctionDef, doc: str | None = None, *, indent: str = "", decorator: str = "", note: str = ""
) -> str:
    """The text of a function without its body."""
    head = f"{indent}@{decorator}\n" if decorator else ""
    result = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    line = f"{indent}def {function.name}({ast.unparse(function.args)}){result}:"
    if not doc:
        return f"{head}{line} ...{note}\n"
    return f"{head}{line}{note}\n{docstring(doc, indent + '    ')}"


def overloads_of(text: str) -> Iterator[ast.FunctionDef]:
    """The overloads that a text stands for: an op of operands that may all be scalars gives a tensor if one is a tensor."""
    plain = with_argument_types(parsed(text))
    returns = ast.unparse(plain.returns) if plain.returns is not None else ""
    if returns != EITHER:
        yield plain
        return
    operands = [
        i
        for i, a in enumerate(every_argument(parsed(text).args))
        if a.annotation and EITHER in ast.unparse(a.annotation)
    ]
    for tensor in [*operands, None]:
        function = with_argument_types(parsed(text))
        if tensor is not None:
            every_argument(function.args)[tensor].annotation = ast.Name("TensorView")
        function.returns = ast.Name("Val" if tensor is None else "TensorView")
        yield function


def as_method(function: ast.FunctionDef) -> ast.FunctionDef:
    """The method of an op's function: the first argument is the tensor itself."""
    args = function.args
    positional = args.posonlyargs or args.args
    positional[0] = ast.arg("self")
    if args.posonlyargs and len(args.posonlyargs) == 1:
        args.args, args.posonlyargs = [*args.posonlyargs, *args.args], []
    return function


# --- ops.pyi ----------------------------------------------------------------------------------------------------------


def ops_stub() -> str:
    parts = [
        f'"""The ops of the DSL. {NOTE}"""\n\n',
        "from collections.abc import Callable, Sequence\n",
        "from typing import Any, NoReturn, SupportsIndex, overload\n\n",
        "from fuser.frontend.argument_types import Dtype, Flag, Number\n",
        "from fuser.frontend.handles import Extent, Operand, TensorView, Val\n",
        "from fuser.ir.ops.dtypes import DataType\n\n",
        *(f"{name}: dict[str, {kind}]\n" for name, kind in (("OPS", "Callable[..., Any]"), ("UNSUPPORTED", "str"))),
        "ELEMENTWISE: dict[str, Callable[..., Val]]\n\n",
    ]
    for name in sorted(ops.OPS):
        op = ops.OPS[name]
        if name in ops.UNSUPPORTED:
            function = parsed(f"{name}(*args: object, **kwargs: object) -> NoReturn")
            parts.append(stub(function, op.__doc__))
            continue
        parts.append(overloaded([f for text in op.__dict__["overloads"] for f in overloads_of(text)], op.__doc__))
    return "".join(parts)


def overloaded(functions: list[ast.FunctionDef], doc: str | None, indent: str = "") -> str:
    """A function, or its overloads, of which the first has the docstring."""
    decorator = "overload" if len(functions) > 1 else ""
    return "".join(
        stub(f, doc if i == 0 else None, indent=indent, decorator=decorator) for i, f in enumerate(functions)
    )


# --- handles.pyi ------------------------------------------------------------------------------------------------------

HANDLES_HEAD = f'''"""What a user holds: handles of the values, axes and exprs of one fusion. {NOTE}"""

import builtins
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, ClassVar, NoReturn, Protocol, Self, SupportsIndex, TypeAlias, overload

from fuser.frontend.argument_types import Dtype, Flag, Number
from fuser.ir.fusion import fusion as ir
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, LoadStoreOpType, MemoryType, ParallelType
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.integers.integers import Int
from fuser.ir.schedule.schedule import ScheduleBuilder

'''

# Methods that are called otherwise, or by the interpreter alone.
HIDDEN = {"__getattr__", "__dir__", "__repr__", "__str__", "__hash__"}
BUILTINS = {name: f"builtins.{name}" for name in ("int", "bool", "float", "complex")}
COMPARISONS = ("__eq__", "__ne__")
OVERRIDES = "  # type: ignore[reportIncompatibleMethodOverride]"


def is_shown(name: str) -> bool:
    return name not in HIDDEN and (not name.startswith("_") or name.endswith("__"))


def signature_of_method(function: ast.FunctionDef) -> ast.FunctionDef:
    for arg in every_argument(function.args):
        if arg.annotation is not None:
            names = BUILTINS if ast.unparse(arg.annotation).startswith("Mapping") else ARGUMENTS
            arg.annotation = renamed(arg.annotation, names)
    function.returns = renamed(function.returns, BUILTINS)
    return function


def written_method(method: Callable[..., Any]) -> str:
    """The stub of a function that is a method: its first parameter is the handle."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(method)))).body
    assert isinstance(function, ast.FunctionDef)
    function.args.args[0] = ast.arg("self")
    return stub(signature_of_method(function), inspect.getdoc(method), indent="    ")


def class_stub(cls: ast.ClassDef, source: list[str]) -> str:
    bases = ", ".join(ast.unparse(b) for b in cls.bases)
    parts = [f"class {cls.name}{f'({bases})' if bases else ''}:\n", docstring(ast.get_docstring(cls), "    ")]
    for member in cls.body:
        if isinstance(member, ast.AnnAssign):
            parts.append("    " + source[member.lineno - 1].strip() + "\n")
        if not isinstance(member, ast.FunctionDef) or not is_shown(member.name):
            continue
        doc = ast.get_docstring(member)
        if member.name == "__pos__":
            member.returns = ast.Name("Self")
        decorator = "property" if member.decorator_list else ""
        # What handles ask of a fusion is called by this package alone, with the types that it has.
        shown = member if bases == "Protocol" else signature_of_method(member)
        parts.append(stub(shown, doc, indent="    ", decorator=decorator))
    match cls.name:
        case "Val":
            parts += value_members()
        case "TensorView":
            parts += tensor_members()
        case "IterDomain":
            parts += map(written_method, AXIS_VERBS.values())
        case _:
            pass
    if len(parts) == 2:
        parts.append("" if parts[1] else "    ...\n")
    return "".join(parts) + "\n"


BINARY_METHODS = [name for name in OPERATORS if name.strip("_") not in UNARY]


def value_members() -> list[str]:
    parts = [text for name in BINARY_METHODS for text in operator_of_scalars(name)]
    parts += [f"    def __{name}__(self) -> Self: ...\n" for name in UNARY]
    parts.append("    def __array_function__(self, function: object, *_: object) -> NoReturn: ...\n")
    parts.append("    def __hash__(self) -> builtins.int: ...\n")
    parts.append("    __array_ufunc__: ClassVar[None]\n")
    return parts


def operator_of_scalars(name: str) -> list[str]:
    note = OVERRIDES if name in COMPARISONS else ""
    return [
        f"    @overload\n    def {name}(self, other: TensorView, /) -> TensorView: ...\n",
        f"    @overload\n    def {name}(self, other: Operand, /) -> Val: ...{note}\n",
    ]


def tensor_members() -> list[str]:
    function = parsed("__getitem__(self, key: Subscript | tuple[Subscript, ...]) -> TensorView")
    parts = [stub(function, inspect.getdoc(subscript), indent="    "), *map(written_method, VERBS.values())]
    for name in BINARY_METHODS:
        parts.append(f"    def {name}(self, other: Operand, /) -> TensorView: ...\n")
    parts.append("    def __hash__(self) -> builtins.int: ...\n")
    parts.append("    def __bool__(self) -> NoReturn: ...\n")
    for name, getter in PROPERTIES.items():
        function = parsed(f"{name}(self) -> TensorView")
        parts.append(stub(function, getter.__doc__, indent="    ", decorator="property"))
    for name in sorted(METHODS):
        parts.append(method_stub(METHODS[name]))
    return parts


def method_stub(method: Callable[..., Any]) -> str:
    overloads: tuple[str, ...] = method.__dict__["overloads"]
    functions: list[ast.FunctionDef] = []
    for text in overloads:
        function = as_method(with_argument_types(parsed(text)))
        if function.returns is not None and ast.unparse(function.returns) == EITHER:
            function.returns = ast.Name("TensorView")
        functions.append(function)
    return overloaded(functions, method.__doc__, "    ")


def handles_stub() -> str:
    text = Path(handles.__file__).read_text()
    tree, source = ast.parse(text), text.splitlines()
    parts = [HANDLES_HEAD]
    for node in tree.body:
        match node:
            case ast.ClassDef():
                parts.append(class_stub(node, source))
            case ast.FunctionDef() if is_shown(node.name):
                parts.append(stub(node, ast.get_docstring(node)) + "\n")
            case ast.AnnAssign():
                parts.append(ast.unparse(node) + "\n")
            case _:
                pass
    return "".join(parts)


# --- __init__.pyi -----------------------------------------------------------------------------------------------------


def package_stub() -> str:
    lines = [f'"""{inspect.cleandoc(fuser.__doc__ or "")}\n\n{NOTE}\n"""', ""]

    for name, module in fuser.EXPORTS.items():
        lines.append(f"from {module} import {name} as {name}")
    for name, module in fuser.SUBMODULES.items():
        lines.append(f"from {module.rpartition('.')[0]} import {module.rpartition('.')[2]} as {name}")
    lines += ["", "EXPORTS: dict[str, str]", "SUBMODULES: dict[str, str]", ""]
    lines += [f"__all__ = {sorted([*fuser.EXPORTS, *fuser.SUBMODULES])!r}", ""]
    return "\n".join(lines)


STUBS: dict[Path, Callable[[], str]] = {
    PACKAGE / "__init__.pyi": package_stub,
    PACKAGE / "frontend" / "ops.pyi": ops_stub,
    PACKAGE / "frontend" / "handles.pyi": handles_stub,
}


def formatted(text: str, path: Path) -> str:
    """The text as `make format` leaves it."""
    ruff = [sys.executable, "-m", "ruff"]
    name = f"--stdin-filename={path}"
    for command in (["check", "--quiet", "--select=I", "--fix-only", name, "-"], ["format", "--quiet", name, "-"]):
        done = subprocess.run([*ruff, *command], input=text, capture_output=True, text=True, check=True, cwd=ROOT)
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write the stubs, or compare with them."""
    code = 0
    for path, write in STUBS.items():
        text = formatted(write(), path)
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.name} is not what its generator writes: python tools/generate_stubs.py", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
