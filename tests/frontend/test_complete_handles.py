"""The classes of handles are complete wherever users get one, and each member is written once."""

import ast
import inspect
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fuser import IterDomain, TensorView, Val
from fuser.frontend import handles
from fuser.frontend.methods import METHODS, PROPERTIES
from fuser.frontend.operators import OPERATORS
from fuser.frontend.verbs import AXIS_VERBS, VERBS

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(
    "program",
    [
        "from fuser import TensorView; members = dir(TensorView)",
        "from fuser import Fusion, FusionGuard, define_tensor\n"
        "with FusionGuard(Fusion()):\n    x = define_tensor([2, 3])\n    y = (1.0 - x[0] @ x[1]) < 2\nmembers = dir(x)",
        "from fuser import Fusion, FusionGuard, ops\n"
        "with FusionGuard(Fusion()):\n    x = -ops.iota(3)\nmembers = dir(x)",
    ],
    ids=["class", "define_tensor", "ops"],
)
def test_members_are_there_at_first(program: str) -> None:
    """In a fresh interpreter, however a program gets at a handle."""
    check = f"{program}\nassert {{'exp', 'split', 'mean', 'T', 'shape'}} <= set(members), members"
    done = subprocess.run([sys.executable, "-W", "error", "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("cls", "tables"),
    [(Val, [OPERATORS]), (TensorView, [VERBS, METHODS, PROPERTIES]), (IterDomain, [AXIS_VERBS])],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_member_is_written_twice(cls: type, tables: list[dict[str, object]]) -> None:
    tree = ast.parse(inspect.getsource(handles))
    (written,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__]
    own = [member.name for member in written.body if isinstance(member, ast.FunctionDef)]
    assert [name for name, n in Counter([*own, *(name for table in tables for name in table)]).items() if n > 1] == []
    assert all(name in vars(cls) for table in tables for name in table)


def test_methods_are_named_by_their_class() -> None:
    assert TensorView.split.__qualname__ == "TensorView.split"
    assert str(inspect.signature(TensorView.split)) == (
        "(self: 'TensorView', axis: 'int', factor: 'int', inner_split: 'bool' = True) -> 'TensorView'"
    )
