"""What FUSER_DUMP writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler.recorder import all_stages
from fuser.errors import InputValueError


@pytest.fixture(autouse=True)
def dumps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path))
    return tmp_path


def written(dumps: Path) -> list[str]:
    return sorted(f.name for f in dumps.rglob("*") if f.is_file())


def doubled() -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x * 2.0)
    return fd


def test_stages_that_come_to_be_are_written(
    monkeypatch: pytest.MonkeyPatch, dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FUSER_DUMP", "kernel.cu,insert_syncs,s1.params.py")
    fd = doubled()
    fd.execute([np.ones((4096, 24), np.float32)])
    first = written(dumps)
    assert [name for name in first if "insert_syncs" not in name] == ["kernel.cu"]
    assert len(first) == 2
    (folder,) = dumps.iterdir()
    assert capsys.readouterr().err == f"fuser: wrote 2 stages to {folder}\n"
    # The kernel serves this shape as well; a view needs none.
    fd.execute([np.ones((4100, 24), np.float32)])
    with FusionDefinition() as view:
        view.add_output(view.ops.permute(view.define_tensor([-1, -1]), [1, 0]))
    view.execute([np.ones((3, 4), np.float32)])
    assert written(dumps) == first
    assert len(list(dumps.iterdir())) == 1
    assert capsys.readouterr().err == ""


def test_all_stages_are_those_of_a_compilation(monkeypatch: pytest.MonkeyPatch, dumps: Path) -> None:
    monkeypatch.setenv("FUSER_DUMP", "all")
    monkeypatch.setenv("FUSER_VERIFY", "proofs")
    doubled().execute([np.ones((3, 4), np.float32)])
    # The simulator has no binaries, and nothing was measured.
    assert written(dumps) == sorted(set(all_stages()) - {"kernel.cubin", "tuning.txt"})


def test_unknown_stage(monkeypatch: pytest.MonkeyPatch, dumps: Path) -> None:
    monkeypatch.setenv("FUSER_DUMP", "kernel.ptx")
    with pytest.raises(
        InputValueError,
        match=r"'kernel\.ptx'; did you mean 'kernel\.cu'\? the stages are fusion\.py, ",
    ):
        doubled().execute([np.ones((3, 4), np.float32)])
    assert written(dumps) == []


def test_a_folder_that_cannot_be_written_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, dumps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = dumps / "file"
    file.write_text("")
    monkeypatch.setenv("FUSER_DUMP", "kernel.cu")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(file))
    (out,) = doubled().execute([np.ones((3, 4), np.float32)])
    assert (out == 2).all()
    said = capsys.readouterr().err
    assert said.startswith(f"fuser: FUSER_DUMP cannot write to {file}/")
    assert said.endswith(": Not a directory; set FUSER_DUMP_DIR to a folder that can be written\n")
