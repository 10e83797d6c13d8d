"""The benchmark of graphs on a driver that does nothing: every step is measured where its counter says so."""

from __future__ import annotations

import pytest

from benchmarks import graph_time


def test_a_line_for_each_number_of_nodes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuser.runtime.driver.device_count", lambda: 0)
    assert graph_time.main(["--nodes", "1", "3"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[1:-1] == list(graph_time.STEPS)
    assert [line.split()[0] for line in lines] == ["1", "3"]
    for line in lines:
        cells = dict(zip(graph_time.STEPS, line.split()[1:], strict=True))
        assert cells.pop("driver") == "-"
        assert all(float(cell) > 0 for cell in cells.values())
