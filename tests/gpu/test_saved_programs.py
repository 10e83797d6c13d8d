"""Saved programs on a GPU: what was compiled here runs from the file, and a grown block finds its variant there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import fuser
from fuser import FusionDefinition
from fuser.runtime.devices.device import get_device
from fuser.runtime.kernels.variants import VARIANTS
from tests.compiler.growth_programs import ROWS, generated_kernel, growth_program, mixed, raw_kernel

FROM_A_FILE = """
import sys
import numpy as np
import fuser
folder = sys.argv[1]
x = np.load(f"{folder}/x.npy")
for name in sys.argv[2:]:
    (y,) = fuser.load(f"{folder}/{name}").run([x], device="cuda")
    np.save(f"{folder}/{name}.npy", y)
assert not [m for m in sys.modules if m.startswith(("fuser.schedule", "fuser.lowering", "fuser.runtime.kernels.nvrtc"))]
"""


def run_from(folder: Path, *names: str) -> list[np.ndarray]:
    """The results of files in a process that has no NVRTC."""
    environment = {**os.environ, "FUSER_NVRTC": "/nowhere/libnvrtc.so"}
    subprocess.run([sys.executable, "-c", FROM_A_FILE, str(folder), *names], env=environment, check=True)
    return [np.load(folder / f"{name}.npy") for name in names]


def test_in_a_process_without_a_compiler(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((96, 1000)).astype(np.float32)
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True)
        e = fd.ops.exp(t - fd.ops.max(t, [1], True))
        fd.add_output(e / fd.ops.sum(e, [1], True))
    (wanted,) = fd.execute([x], device="cuda")
    fuser.save(fd.fec.program([x], device="cuda"), tmp_path / "softmax")
    np.save(tmp_path / "x.npy", x)
    (found,) = run_from(tmp_path, "softmax")
    np.testing.assert_array_equal(found, wanted)


def test_blocks_that_grew(tmp_path: Path) -> None:
    device = get_device("cuda", 0)
    generated, raw = generated_kernel(device), raw_kernel(device)
    for kernel in (generated, raw):
        VARIANTS.binary_for(kernel, 1024)
    x = np.random.default_rng(0).standard_normal((ROWS, 1024)).astype(np.float32)
    fuser.save(growth_program(generated, raw, 1024), tmp_path / "grown")
    np.save(tmp_path / "x.npy", x)
    (found,) = run_from(tmp_path, "grown")
    np.testing.assert_allclose(found, mixed(x * np.float32(0.5)), rtol=2e-3, atol=2e-3)
