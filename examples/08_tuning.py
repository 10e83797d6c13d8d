"""Tuning: parameters by measuring, records of what was found, and a file that takes them to another machine.

On a GPU `tune=True` is all there is to it, or `python -m fuser tune SCRIPT` for a script as it is. The simulator has no times
of its own: there this example measures how long the simulator takes, which says nothing about a GPU.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fuser
from fuser import DataType, FusionDefinition, Tuning


class WallClock:
    """What a Tuning asks: microseconds of one run of each trial. A run is complete when it returns, on the simulator."""

    def times(self, trials: Sequence[Any]) -> list[float]:
        found: list[float] = []
        for trial in trials:
            begin = time.perf_counter()
            trial.run()
            found.append(1e6 * (time.perf_counter() - begin))
        return found


def rms_norm() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float)
        mean = (x * x).mean(1, keepdim=True)
        fd.add_output(x * fd.ops.rsqrt(mean + 1e-6))
    return fd


x = np.random.default_rng(0).standard_normal((256, 2048)).astype(np.float32)
expected = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6)

# --- one call measures ------------------------------------------------------------------------------------------------

fd = rms_norm()
(plain,) = fd.execute([x])
on_gpu = all(kernel.cubin is not None for kernel in fd.program([x]).kernels.values())
tuning = True if on_gpu else Tuning(timer=WallClock(), rounds=3)

# The call returns what any call returns. Candidates ran on `x`, and wrote to memory of their own.
(tuned,) = fd.execute([x], tune=tuning)
np.testing.assert_allclose(tuned, expected, rtol=1e-5, atol=1e-5)

# Who won, who lost, and by how much.
print(fd.explain([x], file=False).stage("tuning.txt"))

# --- later calls take the winner --------------------------------------------------------------------------------------

# Without any option, those of other definitions of the same program too. FUSER_TUNE=off ignores records.
(again,) = rms_norm().execute([x])
assert np.array_equal(tuned, again)

# A record is for exact sizes: others run with what the scheduler proposes until they are tuned themselves.
rms_norm().execute([x[:100]])

# --- another machine --------------------------------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "rms_norm.tuning"
    count = fuser.export_tuning(file)
    print(f"{count} record in a file of {file.stat().st_size} bytes; on another machine:")
    # There it is checked: what is of another GPU, or becomes another kernel by now, is not used, and the log says why.
    print(f"fuser.import_tuning took over {fuser.import_tuning(file)}")
