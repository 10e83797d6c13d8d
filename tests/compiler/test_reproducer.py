"""A bug of the compiler names its pass, shows the IR around it and leaves a script that shows it again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuser import FusionDefinition
from fuser.errors import InputValueError, InternalError
from fuser.lowering.pipeline import PASSES
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, case

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where reproducers go; the simulator is the device."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    return tmp_path


def planted(
    name: str, fault: str, monkeypatch: pytest.MonkeyPatch, fd: FusionDefinition | None = None
) -> InternalError:
    """The error of an execution with a fault in a pass."""
    monkeypatch.setenv("FUSER_FAULT", fault)
    fd = fd if fd is not None else case(name).define()
    with pytest.raises(InternalError) as caught:
        fd.execute(case(name).inputs(ALIGNED))
    monkeypatch.delenv("FUSER_FAULT")
    return caught.value


def run_script(path: str) -> subprocess.CompletedProcess[str]:
    """Run a reproducer as a user would, with nothing in the environment that names the fault."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FUSER_")} | {"FUSER_CACHE": "off"}
    environment["PYTHONPATH"] = str(ROOT)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment, check=False)


@pytest.mark.in_turns
@pytest.mark.parametrize("fault", PASSES)
def test_every_pass(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = planted("layer_norm", fault, monkeypatch)
    assert error.pass_name == fault
    assert f"is malformed after {fault}" in error.message
    assert "is neither a parameter nor allocated before" in error.message
    assert any(line.startswith("> ") for line in error.message.splitlines()), "the statement is marked"
    assert f"This is a bug of fuser, in pass {fault}. To see it again: python {error.reproducer}" in error.message
    assert error.reproducer is not None
    assert Path(error.reproducer).parent == folder
    again = run_script(error.reproducer)
    assert again.returncode == 1
    assert f"is malformed after {fault}" in again.stderr
    assert "is neither a parameter nor allocated before" in again.stderr


# One of each way a segment gets its inputs and schedule.
REPRODUCED = [
    "bias_gelu",
    "scale_and_shift",
    "full_sum",
    "outer_sum",
    "batch_norm",
    "layer_norm_backward",
    "expand_by_a_scalar",
    "full_of_a_scalar",
    "computed_extent",
    "cross_entropy",
    "adam_step",
    "scaled_by_column_sum",
    "channels_last",
    "welford_triple",
    "forced_boundary",
]


@pytest.mark.parametrize("name", REPRODUCED)
def test_scripts_rebuild_what_failed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script of every kind of fusion raises the same error, and without the fault it compiles."""
    del folder
    error = planted(name, "insert_syncs", monkeypatch)
    assert error.reproducer is not None
    text = Path(error.reproducer).read_text()
    monkeypatch.delenv("FUSER_DEVICE")
    with pytest.raises(InternalError, match="malformed after insert_syncs"):
        exec(compile(text, error.reproducer, "exec"), {"__name__": "reproducer"})
    monkeypatch.delenv("FUSER_FAULT")  # the script set it
    healthy = "\n".join(line for line in text.splitlines() if "FUSER_FAULT" not in line)
    exec(compile(healthy, error.reproducer, "exec"), {"__name__": "reproducer"})


def test_nothing_partial_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure the same definition compiles and runs."""
    del folder
    fd = case("softmax").define()
    planted("softmax", "expand_collectives", monkeypatch, fd)
    assert fd.fec.counters()["kernels_compiled"] == 0
    fd.execute(case("softmax").inputs(ALIGNED))


def test_unknown_pass(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    monkeypatch.setenv("FUSER_FAULT", "inline_everything")
    with pytest.raises(InputValueError) as caught:
        case("softmax").define().execute(case("softmax").inputs(ALIGNED))
    message, place, *_ = str(caught.value).splitlines()
    assert message == f"FUSER_FAULT=inline_everything names no pass; the passes are {', '.join(PASSES)}"
    assert "test_reproducer.py" in place


def test_manual_execution_leaves_a_reproducer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    monkeypatch.setenv("FUSER_FAULT", "finish_kernel")
    with pytest.raises(InternalError, match=r"in pass finish_kernel\. To see it again: python"):
        case("add_two").define().manual_execute(case("add_two").inputs(ALIGNED))


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [c.name for c in CORPUS])
def test_without_a_fault_every_pass_verifies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel of the corpus satisfies what its passes ensure."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    case(name).define().execute(case(name).inputs(ALIGNED))


def test_a_folder_that_cannot_be_written_hides_no_bug(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "file"
    file.write_text("")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(file))
    error = planted("layer_norm", "insert_syncs", monkeypatch)
    assert error.reproducer is None
    assert "is malformed after insert_syncs" in error.message
    assert error.message.endswith(
        f"cannot be written to {file} (File exists): set FUSER_DUMP_DIR to a folder that can be written"
    )
