"""`fuser tune SCRIPT` and the commands that move records between machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fuser import cache, tune
from fuser.__main__ import main
from fuser.compiler import tuning
from fuser.compiler.segment_trial import Trial
from fuser.compiler.tuning_record import SCHEMA, TABLE

SCRIPT = """
import sys
import numpy as np
from fuser import DataType, FusionDefinition
with FusionDefinition() as fd:
    x = fd.define_tensor([-1], dtype=DataType.Float)
    fd.add_output(x * 3.0)
(y,) = fd.execute([np.ones(65536, np.float32)])
print(sys.argv[1:], float(y.sum()))
sys.exit(int(sys.argv[1]))
"""


class Clock:
    """More elements for a thread are faster."""

    def times(self, trials: Sequence[Trial]) -> list[float]:
        return [8.0 / getattr(t.params, "unroll", 1) for t in trials]


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A simulator with times, and a cache of the test's own."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSER_TUNE", "use")
    monkeypatch.setattr(tuning, "tuning_asked", lambda _: tuning.Tuning(timer=Clock()))
    TABLE.forget()
    yield
    TABLE.forget()


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, "utf-8")
    return str(path)


def test_a_script_is_run_and_tuned(script: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tune", script, "0", "more"]) == 0
    told = capsys.readouterr()
    assert told.out == "['0', 'more'] 196608.0\n"
    assert "us proposed, " in told.err
    assert f"fuser tune: 1 tuning record, kept in {tmp_path / 'cache'}\n" in told.err
    (made,) = TABLE.made()
    assert made.segments[0].winner > 0
    # There is a record now.
    assert tune.main([script, "0"]) == 1
    assert "nothing was measured" in capsys.readouterr().err


def test_what_the_script_exits_with(script: str) -> None:
    assert tune.main([script, "3"]) == 3


def test_misuse(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, wrong in (
        ([], "say which script to run"),
        (["--fast"], "there is no option '--fast'"),
        ([str(tmp_path / "none.py")], f"there is no file {tmp_path / 'none.py'}"),
    ):
        assert tune.main(arguments) == 2
        assert capsys.readouterr().err.startswith(f"fuser tune: {wrong}\nusage: fuser tune SCRIPT")
    assert tune.main(["--help"]) == 0


def test_records_go_to_another_machine(
    script: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "records")
    assert cache.main(["export", file]) == 1
    assert capsys.readouterr().err.startswith("fuser cache: there are no tuning records")
    tune.main([script, "0"])
    assert cache.main(["export", file]) == 0
    capsys.readouterr()
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path / "elsewhere"))
    TABLE.forget()
    assert cache.main(["import", file]) == 0
    assert capsys.readouterr().out == f"1 tuning record of {file}\n"
    assert cache.main(["info"]) == 0
    shown = capsys.readouterr().out
    assert f"          tuning-{SCHEMA}: 1\n" in shown
    assert "tuned     1 for H200\n" in shown
    assert cache.main(["verify"]) == 0
    assert cache.main(["import"]) == 2
    assert capsys.readouterr().err.startswith("fuser cache: import takes one FILE, got ''\n")
    # The script finds it.
    assert tune.main([script, "0"]) == 1
    assert TABLE.made() == ()
