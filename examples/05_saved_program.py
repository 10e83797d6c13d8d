"""A program in a file: compiled here, run by a process that has no compiler.

    python examples/05_saved_program.py

The file has the host program and its kernels: on a machine with a GPU their binaries, everywhere their kernel IR, which the
simulator runs. A kernel serves every shape that its facts allow, and so does the file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import fuser
from fuser import FusionDefinition

x_array = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)

# --- here: define, compile, save
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    e = fd.ops.exp(x - fd.ops.max(x, [1], keepdim=True))
    fd.add_output(e / fd.ops.sum(e, [1], keepdim=True))

program = fd.program([x_array])
(expected,) = program.run([x_array])

# --- there: load and run
LOAD_AND_RUN = """
import sys
import numpy as np
import fuser

saved, given, result = sys.argv[1:]
program = fuser.load(saved)
(y,) = program.run([np.load(given)])
np.save(result, y)
compiler = [name for name in sys.modules if name.startswith(("fuser.schedule", "fuser.lowering", "fuser.codegen"))]
print("none of the compiler's modules was imported" if not compiler else f"imported: {compiler}")
"""

with tempfile.TemporaryDirectory() as folder:
    saved, given, result = Path(folder, "softmax.fuser"), Path(folder, "x.npy"), Path(folder, "y.npy")
    # With max_threads the file would also have the binaries for larger blocks than these inputs need.
    fuser.save(program, saved)
    np.save(given, x_array)
    print(f"{saved.name}: {saved.stat().st_size} bytes, {len(program.kernels)} kernel")
    done = subprocess.run(
        [sys.executable, "-c", LOAD_AND_RUN, saved, given, result], capture_output=True, text=True, check=True
    )
    assert np.array_equal(np.load(result), expected)
    print("the same result, and", done.stdout.strip())
