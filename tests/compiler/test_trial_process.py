"""First runs in a process of their own: what dies, hangs or fails there is told, and the rest is run all the same."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import HostProgram, LaunchKernel
from fuser.compiler.trial_child import serve
from fuser.compiler.trial_process import Outcome, TrialProcess
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.host_ir.kernels import scale_kernel

CHILD = """
import json, os, sys, time
for line in sys.stdin:
    for number in json.loads(line)["programs"]:
        print("begin", number, flush=True)
        what = %r.get(str(number))
        if what == "die":
            os._exit(7)
        if what == "hang":
            time.sleep(600)
        print(f"failed {number} RuntimeError: bad" if what == "fail" else f"done {number}", flush=True)
    print("end", flush=True)
"""


def scale(out: str = "y") -> HostProgram:
    return HostProgram(("x", out), (), (LaunchKernel(scale_kernel(), ("x", out, 2.0)),))


def slots(device: SimulatorDevice, n: int = 64) -> dict[str, DeviceTensor]:
    x = DeviceTensor.from_numpy(np.arange(64, dtype=np.float32), device)
    return {"x": x, "y": DeviceTensor.empty(device, [n], DataType.Float)}


def run(command: Sequence[str], programs: dict[int, HostProgram], limit_s: float = 60.0) -> dict[int, Outcome]:
    device = SimulatorDevice()
    with TrialProcess(device, command) as process:
        return process.run(programs, slots(device), ["y"], limit_s)


def test_what_dies_or_fails_is_told_and_the_rest_is_run() -> None:
    child = [sys.executable, "-c", CHILD % {"1": "die", "2": "fail", "4": "die"}]
    assert run(child, dict.fromkeys(range(6), scale())) == {
        1: Outcome("its process ended with 7", is_slow=False),
        2: Outcome("RuntimeError: bad", is_slow=False),
        4: Outcome("its process ended with 7", is_slow=False),
    }


def test_what_hangs_is_ended() -> None:
    child = [sys.executable, "-c", CHILD % {"1": "hang"}]
    found = run(child, dict.fromkeys(range(3), scale()), limit_s=0.5)
    assert found == {1: Outcome("still running after 0.5 s", is_slow=True)}


def test_a_child_that_does_not_begin_puts_all_out() -> None:
    found = run([sys.executable, "-c", "raise SystemExit(3)"], {0: scale(), 5: scale()})
    assert found == dict.fromkeys((0, 5), Outcome("its process ended with 3", is_slow=False))


def test_the_very_child_runs_saved_programs() -> None:
    """On the simulator, in another process."""
    device = SimulatorDevice()
    with TrialProcess(device) as process:
        process.start()
        assert process.run({0: scale(), 1: scale()}, slots(device), ["y"], 60.0) == {}
        # The same child serves the next segment.
        (outcome,) = process.run({3: scale()}, slots(device, n=8), ["y"], 60.0).values()
    assert not outcome.is_slow
    assert "Error" in outcome.why


def test_the_child_has_values_as_they_were(tmp_path: Path) -> None:
    from fuser.compiler.trial_process import _write  # pyright: ignore[reportPrivateUsage]

    device, told = SimulatorDevice(), io.StringIO()
    given = slots(device)
    given["x"] = given["x"].view((31,), (2,), 1)
    _write(tmp_path, given, ["y"])
    kept: dict[str, Any] = json.loads((tmp_path / "values.json").read_text())
    assert kept["x"] == {"dtype": "Float", "sizes": [31], "strides": [2], "shift": 4, "file": "0.bytes"}
    assert kept["y"]["file"] is None
    np.testing.assert_array_equal(np.fromfile(tmp_path / "0.bytes", np.float32)[::2], np.arange(1, 63, 2))
    serve(device, {"folder": str(tmp_path), "programs": []}, told)
    assert told.getvalue() == "end\n"


def test_values_that_cannot_be_placed_put_all_out(tmp_path: Path) -> None:
    told = io.StringIO()
    serve(SimulatorDevice(), {"folder": str(tmp_path / "none"), "programs": [1]}, told)
    assert told.getvalue().startswith("broken FileNotFoundError: ")
    child = [sys.executable, "-c", "import sys\nfor line in sys.stdin: print('broken MemoryError: 1 GiB', flush=True)"]
    why = "the trial process has no values: MemoryError: 1 GiB"
    assert run(child, {0: scale(), 1: scale()}) == dict.fromkeys((0, 1), Outcome(why, is_slow=False))


@pytest.mark.parametrize("tuned_apart", [True, False])
def test_tuning_asks_it(monkeypatch: pytest.MonkeyPatch, *, tuned_apart: bool) -> None:
    from fuser import Tuning
    from fuser.compiler import tuning
    from fuser.compiler.tuning_record import TABLE, Fate
    from tests.compiler.given_times import Clock, first_is_slow, is_neighbour, rows, softmax

    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    TABLE.forget()
    child = [sys.executable, "-c", CHILD % {"1": "hang", "2": "die"}]
    monkeypatch.setattr(tuning, "TrialProcess", lambda device: TrialProcess(device, child))
    x, asked = rows(), Tuning(timer=Clock(first_is_slow), apart=tuned_apart, limit_s=1.0)
    fd = softmax()
    (want,) = fd.execute([x])
    (got,) = fd.execute([x], tune=asked)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    (segment,) = TABLE.made()[-1].segments
    fates = [c.fate for c in segment.candidates[1:3]]
    assert fates == ([Fate.slow, Fate.failed] if tuned_apart else [Fate.measured] * 2)
    beating = [k for k, c in enumerate(segment.candidates) if c.fate is Fate.measured and is_neighbour(c.params)]
    assert segment.winner == beating[0] >= (3 if tuned_apart else 1)
    TABLE.forget()
