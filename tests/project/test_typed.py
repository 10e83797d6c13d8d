"""What a strict type checker says of users' programs: nothing of right ones, and the mistake of wrong ones.

basedpyright in its mode "strict", which has pyright's rules; from outside of the package, by its stubs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fuser.frontend import ops
from fuser.frontend.handles import TensorView
from fuser.frontend.methods import METHODS, PROPERTIES
from tests.project.tools import load_tool

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ROOT / "tests" / "project" / "typed" / "programs.py"
# Not called .py, so that the project's own checks leave it alone.
MISTAKES = ROOT / "tests" / "project" / "typed" / "mistakes.py.txt"


def check(folder: Path, *files: Path) -> list[dict[str, Any]]:
    """The checker's errors and warnings, with a configuration of the user's own."""
    config = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "include": [str(f) for f in files]}
    config["extraPaths"] = [str(ROOT)]
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--outputjson",
        "--project",
        str(folder),
        "--pythonpath",
        sys.executable,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)["generalDiagnostics"]


@pytest.mark.slow
def test_programs_of_users(tmp_path: Path) -> None:
    mistakes = tmp_path / "mistakes.py"
    mistakes.write_text(MISTAKES.read_text())
    found = check(tmp_path, PROGRAMS, mistakes)
    said = [f for f in found if Path(f["file"]) == PROGRAMS]
    assert not said, said

    expected: dict[int, str] = {}
    for number, line in enumerate(MISTAKES.read_text().splitlines()):
        if match := re.search(r"# (report\w+)$", line):
            expected[number] = match[1]
    rules: dict[int, set[str]] = {}
    for f in found:
        if Path(f["file"]) == mistakes:
            rules.setdefault(f["range"]["start"]["line"], set()).add(f.get("rule", ""))
    assert set(rules) == set(expected), (rules, found)
    assert all(expected[line] in rules[line] for line in expected), rules


def test_programs_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is right as well."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    subprocess.run([sys.executable, "-W", "error", PROGRAMS], check=True, cwd=ROOT, capture_output=True)


def test_stubs_are_what_their_generator_writes() -> None:
    assert load_tool("generate_stubs").main(["--check"]) == 0


def test_stubs_have_every_name() -> None:
    """Whatever the generator does: each op, method and property can be found in a stub."""
    text = (ROOT / "fuser" / "frontend" / "ops.pyi").read_text()
    assert set(re.findall(r"^def (\w+)\(", text, re.MULTILINE)) == set(ops.OPS)
    text = (ROOT / "fuser" / "frontend" / "handles.pyi").read_text()
    tensor = text.partition("class TensorView")[2].partition("\nclass ")[0]
    names = set(re.findall(r"^    def (\w+)\(", tensor, re.MULTILINE))
    assert {*METHODS, *PROPERTIES} <= names
    assert {n for n in vars(TensorView) if not n.startswith("_")} <= names | {"node"}
