"""`import fuser` loads nothing heavy. Judged by what gets loaded, not by a clock: the budget (at most twice the time of
`import numpy`) holds as long as nothing here creeps in, and a loaded machine does not make the test fail."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Loaded on first need, each in one named place (tests/project/test_layers.py). `cuda` covers the driver's and NVRTC's bindings.
HEAVY = ("cuda", "sympy", "mpmath", "ml_dtypes", "torch", "cupy", "jax", "jaxlib", "scipy", "triton", "hypothesis")

# Parts of the standard library that take milliseconds and that `import numpy` does not pay for.
SLOW_STANDARD = (
    "argparse",
    "asyncio",
    "concurrent.futures",
    "email",
    "hashlib",
    "http",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib",
    "uuid",
    "zipfile",
)


@cache
def loaded_by(statement: str) -> frozenset[str]:
    """Names of the modules in sys.modules after a fresh interpreter ran `statement`."""
    script = (
        "import json, sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


def within(names: frozenset[str], package: str) -> list[str]:
    return sorted(name for name in names if name == package or name.startswith(package + "."))


@pytest.mark.parametrize("package", HEAVY)
def test_heavy_package_stays_out(package: str) -> None:
    assert within(loaded_by("import fuser"), package) == []


@pytest.mark.parametrize("package", SLOW_STANDARD)
def test_slow_standard_module_stays_out(package: str) -> None:
    if within(loaded_by("import numpy"), package):
        pytest.skip("this numpy loads it anyway")
    assert within(loaded_by("import fuser"), package) == []


def test_numpy_parts_are_those_of_import_numpy() -> None:
    extra = [name for name in loaded_by("import fuser") - loaded_by("import numpy") if name.startswith("numpy")]
    assert extra == []


def test_no_third_package_is_loaded() -> None:
    standard = sys.stdlib_module_names | {"fuser", "numpy"}
    tops = {name.partition(".")[0] for name in loaded_by("import fuser")}
    # Editable installs put a finder of their own there.
    third = {top for top in tops - standard if not top.startswith("__editable__")}
    assert third == set()


TEXT = """
from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.ir.facts import TensorDescriptor
from fuser.simulator.device import SimulatorDevice
with FusionDefinition() as fd:
    x = fd.define_tensor([-1, -1], True, DataType.Float)
    fd.add_output(x - fd.ops.max(x, [1], True))
fusion = fd.fusion.ir_fusion
bound = bind_inputs(fusion, [TensorDescriptor(DataType.Float, (64, 512), (512, 1), 256)])
"""


def test_a_kernel_is_hashed_without_openssl() -> None:
    before = loaded_by(TEXT)
    assert "hashlib" not in loaded_by(f"{TEXT}compile_fusion(fusion, bound, SimulatorDevice())") - before
