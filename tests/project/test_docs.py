"""What the pages for people say must be so: files, make targets and options exist, tables of the architecture page and lists in
the docstrings of folders are the code's own, generated pages are up to date. A page that lags behind fails here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fuser import options
from tests.project.tools import load_tool

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/decisions/*.md")
    for path in sorted(ROOT.glob(pattern))
]
PLACES = (ROOT, ROOT / "fuser", ROOT / "tests")

# -D macros of generated text, not options
MACROS = {"FUSER_MAX_THREADS", "FUSER_MIN_BLOCKS"}


def named(page: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    names = named(page, r"`([\w./-]+/[\w.-]+\.(?:py|md|toml))`")
    assert sorted(name for name in names if not any((place / name).exists() for place in PLACES)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named(page, r"`make ([a-z-]+)") <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_options_exist(page: Path) -> None:
    assert named(page, r"\b(FUSER_[A-Z_]+)\b") <= {row.env for row in options.OPTIONS} | MACROS


def names_in(path: Path) -> set[str]:
    """Names that a module and its classes have, imported ones too; those of classes as `Class.name` and alone."""
    found: set[str] = set()

    def add(prefix: str, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(prefix + name)
                case ast.Assign(targets=targets):
                    found.update(prefix + t.id for t in targets if isinstance(t, ast.Name))
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(prefix + name)
                case ast.ImportFrom(names=names):
                    found.update(prefix + (n.asname or n.name) for n in names)
                case _:
                    pass
            if isinstance(node, ast.ClassDef) and not prefix:
                add(f"{node.name}.", node.body)

    add("", ast.parse(path.read_text(encoding="utf-8")).body)
    return found | {name.rpartition(".")[2] for name in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_in_the_files_that_pages_say(page: Path) -> None:
    said = re.findall(r"`([\w.]+)` (?:of|in)\s`([\w./-]+/\w+\.py)`", page.read_text(encoding="utf-8"))
    files = {name: next(p / name for p in PLACES if (p / name).exists()) for _, name in said}
    assert [(name, file) for name, file in said if name not in names_in(files[file])] == []


GLOSSARY = ROOT / "docs" / "GLOSSARY.md"


def glossary_terms() -> set[str]:
    """Terms with an entry, and those that an entry explains in passing, in bold."""
    groups = re.findall(r"\*\*([^*]+)\*\*", GLOSSARY.read_text(encoding="utf-8"))
    return {term.strip().lower() for group in groups for term in group.split(",")}


@pytest.mark.parametrize(
    "page", [GLOSSARY, ROOT / "docs" / "ARCHITECTURE.md", ROOT / "README.md"], ids=lambda p: p.name
)
def test_terms_in_italics_have_an_entry(page: Path) -> None:
    used = named(page, r"(?<![*\w/`])\*([A-Za-z][^*`|]*)\*(?!\*)")
    assert used
    known = glossary_terms()
    assert (
        sorted(t for t in used if not {t.lower(), t.lower().removesuffix("s"), t.lower().removesuffix("es")} & known)
        == []
    )


# --- pages that are checked against what they describe ------------------------------------------------------------------


def test_ops_page_is_what_its_generator_writes() -> None:
    assert load_tool("generate_ops_page").main(["--check"]) == 0


def test_ops_page_names_every_op() -> None:
    from fuser.frontend import ops

    page = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    assert [name for name in ops.OPS if re.search(rf"`{name}[(`]", page) is None] == []


ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"


def table(first_head: str) -> list[list[str]]:
    """Cells of the architecture page's table whose first head is this."""
    lines = ARCHITECTURE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_head} |"))
    rows: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def defined_in(path: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) of a file."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))
    return found


def code(cell: str) -> str:
    """The code in a cell that is one piece of code."""
    assert cell.startswith("`"), cell
    return cell.strip("`")


def test_architecture_stage_functions_exist() -> None:
    rows = table("#")
    assert [row[0] for row in rows] == [str(i + 1) for i in range(len(rows))]
    for _, function, file, _, _ in rows:
        assert code(function) in defined_in(ROOT / "fuser" / code(file)), (function, file)


def test_architecture_stage_names_are_those_of_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from fuser import FusionDefinition

    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(shape=[-1]) * 2.0)
    stages = fd.explain([np.ones(3, np.float32)], file=False).stages
    families = {re.sub(r"\.\d\d-\w+\.py$", ".<nn>-<pass>.py", name) for name in stages}
    named_on_page = {code(row[4]) for row in table("#") if row[4]}
    # A cubin is made for GPUs only; the launches are how the program would run, no stage of its making.
    assert named_on_page - {"kernel.cubin"} == families - {"launches"}


def test_architecture_is_one_page() -> None:
    # What explains one folder belongs to the docstring of its package.
    assert ARCHITECTURE.stat().st_size <= 20 * 1024


def folder_docstring(folder: str) -> str:
    """What the package of a folder says about itself."""
    found = ast.get_docstring(ast.parse((ROOT / "fuser" / folder / "__init__.py").read_text(encoding="utf-8")))
    assert found is not None, f"fuser/{folder} has no docstring"
    return found


def passes_section(folder: str) -> str:
    """The list of passes in a folder's docstring."""
    section = re.search(r"^Passes.*\n((?: +.*\n)+)", folder_docstring(folder), re.MULTILINE)
    assert section is not None
    return section[1]


FOLDERS = sorted(path.parent.name for path in (ROOT / "fuser").glob("*/__init__.py"))


SUB_PACKAGES = sorted(str(path.parent.relative_to(ROOT / "fuser")) for path in (ROOT / "fuser").glob("*/*/__init__.py"))


@pytest.mark.parametrize("folder", FOLDERS + SUB_PACKAGES)
def test_files_named_by_folders_exist(folder: str) -> None:
    names = re.findall(r"(?<![\w./-])([\w/.-]+\.(?:py|md))\b", folder_docstring(folder))
    places = (ROOT / "fuser" / folder, (ROOT / "fuser" / folder).parent, *PLACES)
    # `segments.py` is a stage of a compilation.
    assert [n for n in names if n != "segments.py" and not any((place / n).exists() for place in places)] == []


def test_lowering_lists_its_passes_in_order() -> None:
    from fuser.lowering.pipeline import PASSES

    assert tuple(re.findall(r"^    (\w+)  ", passes_section("lowering"), re.MULTILINE)) == PASSES
    for name in PASSES:
        assert [*(ROOT / "fuser" / "lowering").rglob(f"{name}.py")]


@pytest.mark.parametrize("package", SUB_PACKAGES)
def test_sub_packages_list_their_files(package: str) -> None:
    files = {path.name for path in (ROOT / "fuser" / package).glob("*.py")} - {"__init__.py"}
    assert sorted(name for name in files if not re.search(rf"(?<![\w/]){name}\b", folder_docstring(package))) == []


def test_optimize_lists_its_passes() -> None:
    from fuser.optimize.pipeline import PASSES

    listed = re.findall(r"\w+_\w+", passes_section("optimize"))
    assert sorted(listed) == sorted(run.__name__ for run in PASSES)


def test_architecture_schedulers_are_those_of_the_registry() -> None:
    from fuser.schedule.segmentation.registry import SCHEDULERS

    rows = table("scheduler")
    assert [code(row[0]) for row in rows] == [s.type.name for s in SCHEDULERS]
    for row, scheduler in zip(rows, SCHEDULERS, strict=True):
        assert type(scheduler).__name__ in defined_in(ROOT / "fuser" / code(row[1]))


def test_architecture_folders_are_those_of_the_package() -> None:
    assert sorted(code(row[0]).rstrip("/") for row in table("folder")) == FOLDERS


def test_grammar_of_host_programs_has_every_instruction() -> None:
    from typing import get_args

    from fuser.host_ir.instructions import instructions

    listed = re.search(r"instruction := (.*?)\n +body +:=", instructions.__doc__ or "", re.DOTALL)
    assert listed is not None
    kinds = re.findall(r"(?:^|\| )(\w+)\(", listed[1])
    assert kinds == [kind.__name__ for kind in get_args(instructions.Instruction)]


def test_architecture_names_folders_that_exist() -> None:
    names = named(ARCHITECTURE, r"`([\w./-]+/)`")
    assert [n for n in names if not any((place / n).is_dir() for place in PLACES)] == []


def test_decisions_are_numbered_without_gaps() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert [name[:4] for name in names] == [f"{i + 1:04}" for i in range(len(names))]
    for name in names:
        text = (ROOT / "docs" / "decisions" / name).read_text(encoding="utf-8")
        assert text.startswith(f"# {int(name[:4])}. ")
