"""Where tests lie: in rooms that mirror the folders of fuser/, and in those that CONTRIBUTING.md lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("*.py"))


def listed_rooms() -> set[str]:
    """Rooms without a folder of fuser/, from the table in CONTRIBUTING.md."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `tests/(\w+)/` \|", text, re.MULTILINE))


def folders(root: Path) -> set[str]:
    """Folders with modules in them, directly or below, as paths from `root`."""
    above = {parent for path in root.rglob("*.py") for parent in path.relative_to(root).parents}
    return {str(folder) for folder in above} - {"."}


def test_the_root_holds_no_module_but_conftest() -> None:
    assert [path.name for path in TESTS.iterdir() if path.is_file()] == ["conftest.py"]


def test_every_folder_of_the_package_has_a_room_and_every_other_room_is_listed() -> None:
    rooms, package = ({f for f in folders(root) if "/" not in f} for root in (TESTS, ROOT / "fuser"))
    assert rooms == package | listed_rooms()
    assert not package & listed_rooms()


def test_rooms_mirror_the_folders_of_the_package() -> None:
    package = folders(ROOT / "fuser")
    mirrored = {f for f in folders(TESTS) if f.partition("/")[0] in package}
    assert sorted(mirrored - package) == []


def imported(text: str) -> Iterator[str]:
    """Names of modules, and of what is taken from them, that a file with this text imports anywhere."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (n.name for n in names)
            case ast.ImportFrom(module=module, names=names):
                yield from (f"{module or ''}.{n.name}" for n in names)
            case _:
                pass


def test_no_module_imports_a_test_module() -> None:
    """What tests share is in a module without tests, named after what it holds: a test module can be moved or split alone."""
    modules = [*MODULES, *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    names = {".".join(p.relative_to(ROOT).with_suffix("").parts) for p in MODULES if p.name.startswith("test_")}
    last = {name.rpartition(".")[2] for name in names}
    # Few files say the name of a test module at all: the others need not be parsed.
    texts = {p: text for p in modules if not last.isdisjoint(re.findall(r"\w+", text := p.read_text(encoding="utf-8")))}
    found = [
        (str(p.relative_to(ROOT)), i)
        for p, text in texts.items()
        for i in imported(text)
        if i in names or i.rpartition(".")[0] in names
    ]
    assert found == []
