"""The benchmark of kernel texts sees each thing that a kernel is made of, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.kernel_texts import all_cases, differences, hash_of, main, texts_of
from fuser.ir.device_info import DeviceInfo


@pytest.fixture(scope="module")
def name() -> str:
    return next(n for n in all_cases(["public/softmax"]))


def test_there_are_the_public_cases_and_three_lists() -> None:
    names = list(all_cases())
    assert {n.split("/")[0] for n in names} == {"public", "sweep0", "sweep2", "sweep4"}
    assert len(names) > 700


def test_texts_are_those_of_a_kernel(name: str) -> None:
    texts = texts_of(all_cases([name])[name], DeviceInfo.preset("H200"))
    assert {"kernel.cu", "params.py", "host.py", "s0.plan.txt"} <= set(texts)
    assert "__global__" in texts["kernel.cu"]
    assert "grid" in texts["s0.plan.txt"]


def test_hashes_of_other_texts_do_not_count() -> None:
    assert hash_of('kernels["fuser_kernel_0123abcd"]') == hash_of('kernels["fuser_kernel_fedc4567"]')
    assert hash_of("x + 1") != hash_of("x + 2")


def test_differences_are_named() -> None:
    before = {"a": {"kernel.cu": "1", "params.py": "2"}, "b": {"kernel.cu": "3"}, "c": {"kernel.cu": "4"}}
    after = {"a": {"kernel.cu": "5", "params.py": "2"}, "b": {"kernel.cu": "3", "s1.kernel.cu": "6"}, "d": {}}
    assert differences(before, after) == ["a: kernel.cu", "b: s1.kernel.cu", "c: only before", "d: only after"]
    assert differences(before, before) == []


def test_hashes_are_those_of_another_process(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "before.json"
    assert main(["--write", str(file), "--case", name, "--texts", str(tmp_path / "texts")]) == 0
    assert "__global__" in (tmp_path / "texts" / name / "kernel.cu").read_text()
    assert main(["--compare", str(file), "--case", name]) == 0
    found = json.loads(file.read_text())
    found[name]["kernel.cu"] = "another"
    file.write_text(json.dumps(found))
    assert main(["--compare", str(file), "--case", name]) == 1
    assert f"{name}: kernel.cu" in capsys.readouterr().out
