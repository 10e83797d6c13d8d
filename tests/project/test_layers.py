"""Import rules, read off the source: downward only, siblings apart, heavy packages each in their named places.

`lint-imports` checks the layers from pyproject.toml as well; here they are checked without that tool, and with what it
does not see: `from fuser import x` below the top, imports by name (`import_module("fuser.x")`), and imports at module
level of packages that must stay lazy. So are the contracts for the files of one folder.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "fuser"

# From the top down; names in one row are siblings, which never import each other.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("doctor", "demo", "cache", "tune"),
    ("ops",),
    ("frontend",),
    ("compiler",),
    ("host_ir", "simulator"),
    ("optimize", "schedule", "lowering", "codegen"),
    ("runtime",),
    ("ir",),
    ("missing_names",),
    ("tracebacks",),
    ("options", "release", "unbound_calls"),
    ("errors",),
    ("source_location", "records", "syntax_trees", "generated_code"),
    ("import_time", "locks"),
)
DEPTH = {name: depth for depth, row in enumerate(LAYERS) for name in row}

# The package itself (`fuser/__init__.py`) is the public face: it may name the frontend and what stands below.
FACE_DEPTH = DEPTH["frontend"] - 0.5

# Packages that are heavy or may be absent: the modules that may import them. Everywhere else it is a mistake.
HEAVY: dict[str, frozenset[str]] = {
    "cuda": frozenset({"fuser.runtime.driver"}),
    "torch": frozenset({f"fuser.runtime.arrays.torch_{part}" for part in ("arrays", "library", "captures")}),
    "cupy": frozenset({"fuser.runtime.arrays.cupy_arrays", "fuser.runtime.arrays.cupy_library"}),
    "jax": frozenset({"fuser.runtime.arrays.jax_arrays"}),
    "sympy": frozenset({"fuser.ir.integers.integer_code", "fuser.ir.integers.proofs"}),
    "ml_dtypes": frozenset({"fuser.ir.ops.dtypes"}),
}

# Modules that may import their heavy package at module level: they are themselves imported inside functions only.
LAZILY_IMPORTED = frozenset(
    {"fuser.runtime.arrays.torch_arrays", "fuser.runtime.arrays.cupy_arrays", "fuser.runtime.arrays.jax_arrays"}
)


class Import(NamedTuple):
    """An import statement: `line` of module `source` imports module `target`."""

    source: str
    target: str
    line: int
    at_module_level: bool


def modules() -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found: dict[str, Path] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(name: str, path: Path, known: set[str]) -> Iterator[Import]:
    """Every import in a file, inside functions and TYPE_CHECKING blocks too.

    `from package import module` counts as an import of the module, if it is one of the `known` ones.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    run_at_import = set(_nodes_run_at_import(tree))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        top = node in run_at_import
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield Import(name, alias.name, node.lineno, top)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = module or ""
                if level:
                    ancestors = package.split(".")
                    base = ".".join([*ancestors[: len(ancestors) - level + 1], *([module] if module else [])])
                for alias in aliases:
                    target = f"{base}.{alias.name}"
                    yield Import(name, target if target in known else base, node.lineno, top)
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(target)), *_]):
                yield Import(name, target, node.lineno, top)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(target)), *_]):
                yield Import(name, target, node.lineno, top)
            case _:
                pass


def _nodes_run_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: not function bodies, not `if TYPE_CHECKING:`."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                continue
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=orelse):
                pending.extend(orelse)
            case _:
                pending.extend(ast.iter_child_nodes(node))


def layer_of(module: str) -> str | None:
    """The layer's name in LAYERS; None for the package itself."""
    return module.split(".")[1] if "." in module else None


def violation(edge: Import) -> str | None:
    """Why this import breaks the rules, or None."""
    if edge.target.split(".")[0] != "fuser":
        return None
    source, target = layer_of(edge.source), layer_of(edge.target)
    source_depth = FACE_DEPTH if source is None else DEPTH[source]
    if target is None:
        return (
            None if source_depth <= FACE_DEPTH else f"{source} imports the package itself, whose face stands above it"
        )
    if target not in DEPTH:
        return f"{edge.target} is in no layer"
    if source == target:
        return None
    if DEPTH[target] == source_depth:
        return f"{source} and {target} are siblings"
    if DEPTH[target] < source_depth:
        return f"{target} stands above {source or 'the package face'}"
    return None


MODULES = modules()


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    """Every import of the package: seconds of reading, which collecting the tests does not take."""
    return [edge for name, path in MODULES.items() for edge in imports_of(name, path, set(MODULES))]


def test_every_module_has_a_layer() -> None:
    assert {layer_of(name) for name in MODULES} - {None} <= set(DEPTH), (
        "add the new folder to LAYERS and pyproject.toml"
    )


def test_imports_go_downward(imports: list[Import]) -> None:
    wrong = [f"{e.source}:{e.line} imports {e.target}: {why}" for e in imports if (why := violation(e))]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_imported_in_their_named_places(imports: list[Import]) -> None:
    wrong = [
        f"{e.source}:{e.line} imports {e.target}; it belongs to {', '.join(sorted(HEAVY[package])) or 'no module yet'}"
        for e in imports
        if (package := e.target.split(".")[0]) in HEAVY and e.source not in HEAVY[package]
    ]
    assert not wrong, "\n".join(wrong)


def test_heavy_packages_are_imported_lazily(imports: list[Import]) -> None:
    wrong = [
        f"{e.source}:{e.line} imports {e.target} at module level"
        for e in imports
        if e.at_module_level and e.target.split(".")[0] in HEAVY and e.source not in LAZILY_IMPORTED
    ]
    assert not wrong, "\n".join(wrong)


def test_lazily_imported_modules_are_imported_inside_functions(imports: list[Import]) -> None:
    wrong = [
        f"{e.source}:{e.line} imports {e.target} at module level"
        for e in imports
        if e.at_module_level and e.target in LAZILY_IMPORTED and e.source not in LAZILY_IMPORTED
    ]
    assert not wrong, "\n".join(wrong)


def test_pyproject_states_the_same_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == "layers"]
    stated = tuple(tuple(part.strip().strip("()") for part in row.split("|")) for row in contract["layers"])
    assert stated == LAYERS


def contracts_of_folders() -> list[dict[str, Any]]:
    """The contracts of pyproject.toml for the layers within one folder."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return [c for c in contracts if c["type"] == "layers" and c["containers"] != ["fuser"]]


@pytest.mark.parametrize("contract", contracts_of_folders(), ids=lambda contract: contract["id"])
def test_files_of_a_folder_import_downward(contract: dict[str, Any], imports: list[Import]) -> None:
    (folder,) = contract["containers"]

    def part_of_folder(module: str) -> str | None:
        """The file or room of the folder in which a module lies."""
        head = f"{folder}."
        return head + module.removeprefix(head).split(".")[0] if module.startswith(head) else None

    # Files of one row import each other where `:` stands between them, and not where `|` does.
    rows = [(row, ":" in row) for row in contract["layers"]]
    place = {
        f"{folder}.{part.strip()}": (depth, open_row)
        for depth, (row, open_row) in enumerate(rows)
        for part in row.split(":" if open_row else "|")
    }
    assert sorted(place) == sorted({p for name in MODULES if (p := part_of_folder(name))}), "each file has one place"
    wrong: list[str] = []
    for e in imports:
        here, there = part_of_folder(e.source), part_of_folder(e.target)
        if here is not None and there is not None and here != there:
            (source, is_open), (target, _) = place[here], place[there]
            if target < source or (target == source and not is_open):
                wrong.append(f"{e.source}:{e.line} imports {e.target}, which does not stand below it")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("fuser.compiler.driver", "fuser.ir.fusion.fusion", None),
        ("fuser.ir.fusion.fusion", "fuser.compiler", "compiler stands above ir"),
        ("fuser.codegen.generate", "fuser.lowering.pipeline", "codegen and lowering are siblings"),
        ("fuser.simulator.device", "fuser.host_ir.program", "simulator and host_ir are siblings"),
        ("fuser.runtime.kernels.nvrtc", "fuser", "runtime imports the package itself, whose face stands above it"),
        ("fuser", "fuser.frontend.definition", None),
        ("fuser", "fuser.doctor", "doctor stands above the package face"),
        ("fuser.ir.fusion.fusion", "fuser.extras", "fuser.extras is in no layer"),
        ("fuser.ir.fusion.fusion", "numpy", None),
    ],
)
def test_violation_wording(source: str, target: str, expected: str | None) -> None:
    assert violation(Import(source, target, 1, at_module_level=True)) == expected


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import torch\n"
        "def f():\n    from fuser.ir.fusion import fusion\n    from .sibling import g\n"
        "    importlib.import_module('fuser.compiler')\n"
        "class C:\n    import jax\n"
        "try:\n    import cupy\nexcept ImportError:\n    pass\n"
    )
    found = {(e.target, e.at_module_level) for e in imports_of("fuser.ir.module", source, {"fuser.ir.fusion.fusion"})}
    assert found == {
        ("typing", True),
        ("torch", False),
        ("fuser.ir.fusion.fusion", False),
        ("fuser.ir.sibling", False),
        ("fuser.compiler", False),
        ("jax", True),
        ("cupy", True),
    }
