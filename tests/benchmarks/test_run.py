"""A run from its arguments to its files, with workers that report what they are told to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import run
from benchmarks.everyday import everyday_cases
from tests.benchmarks.result_rows import GOOD

NAMES = [c.name for c in everyday_cases()]


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Workers measure GOOD for every case; what was compiled ahead."""
    found: list[tuple[Any, ...]] = []

    def supervise(
        module: str, arguments: Sequence[str], names: Sequence[str], timeout: float
    ) -> Iterator[dict[str, Any]]:
        yield {"name": run.ENVIRONMENT, "environment": {"gpu": "X"}, "empty": {"median": 2.5}}
        for name in names:
            yield {"name": name, "row": json.loads(json.dumps(asdict(replace(GOOD, name=name))))}

    def compile_ahead(*arguments: Any) -> None:
        found.append((*arguments, os.environ.get("FUSER_CACHE_DIR")))

    monkeypatch.setattr(run, "missing", str)
    monkeypatch.setattr(run, "supervise", supervise)
    monkeypatch.setattr(run, "compile_ahead", compile_ahead)
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "FUSER_CACHE_DIR"):
        monkeypatch.setenv(name, "kept")
        monkeypatch.delenv(name)
    return found


def test_parts_of_a_set_merge_to_the_files_of_one_run(ahead: list[tuple[Any, ...]], tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    for part in ("1/2", "2/2"):
        assert run.main(["--set", "everyday", "--part", part, "--out", str(parts), "--jobs", "3"]) == 0
    files = [str(f) for f in sorted(parts.glob("*.json"))]
    assert run.main(["--set", "everyday", "--merge", *files, "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "everyday.json").read_text())["rows"]
    assert [r["name"] for r in rows] == NAMES
    assert "the worst 10 against the copy:" in (tmp_path / "everyday.txt").read_text()
    assert (tmp_path / "everyday.svg").read_text().count("<rect") == len(NAMES) + 1
    assert [(a[0], len(a[1]), *a[2:4]) for a in ahead] == [
        ("everyday", len(NAMES[0::2]), "compile", 3),
        ("everyday", len(NAMES[1::2]), "compile", 3),
    ]
    assert all(a[-1] for a in ahead)


def test_the_public_set_compiles_nothing_ahead(ahead: list[tuple[Any, ...]], tmp_path: Path) -> None:
    assert run.main(["--case", "softmax", "--out", str(tmp_path)]) == 0
    assert {f.name for f in tmp_path.iterdir()} == {"public.txt", "public.json", "public.svg"}
    assert ahead == []
    assert "FUSER_CACHE_DIR" not in os.environ
