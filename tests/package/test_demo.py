"""`fuser demo` on the simulator: right results, an exit code that says if one is not, and clear words for unusable input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, demo
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device


@pytest.fixture(autouse=True)
def on_the_simulator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "dump"))


def saved(folder: Path, array: np.ndarray) -> str:
    np.save(folder / "x.npy", array)
    return str(folder / "x.npy")


def test_three_fusions_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main([]) == 0
    text = capsys.readouterr().out
    assert text.startswith("runs on      the simulator")
    assert text.endswith("3 of 3 results are right\n")
    for case in demo.CASES:
        source = tmp_path / "dump" / "demo" / f"{case.name}.cu"
        assert f"source      {source}" in text
        assert "__global__" in source.read_text(encoding="utf-8")
    for target in demo.TARGETS:
        assert text.count(f"  {target} ") == 3
    assert text.count("0 bytes spilled") == 9


@pytest.mark.parametrize(
    "array",
    [
        np.linspace(-3, 3, 5 * 33).reshape(5, 33),
        np.linspace(-3, 3, 7, dtype=np.float16).reshape(7, 1),
        np.asfortranarray(np.linspace(-1e14, 1e14, 60, dtype=np.float32).reshape(3, 20)),
        np.zeros((2, 2)),
    ],
    ids=["ragged", "one column", "column major", "zeros"],
)
def test_own_input(array: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--input", saved(tmp_path, array)]) == 0
    assert f"bias + GELU, BFloat16, {array.shape[0]} x {array.shape[1]}" in capsys.readouterr().out


def test_large_input_is_cut_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "SIMULATED_ELEMENTS", 40)
    assert demo.main(["--input", saved(tmp_path, np.ones((10, 8)))]) == 0
    assert "takes        the first 5 of 10 rows: the simulator is slow, a GPU takes all" in capsys.readouterr().out


NAN = np.ones((3, 3))
NAN[1, 2] = np.nan


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.zeros((2, 2, 2)), "expected 2 dimensions (rows, columns), got shape (2, 2, 2)"),
        (np.zeros((2, 2), int), "expected float16, float32 or float64, got int64"),
        (np.zeros((0, 4)), "the array is empty, its shape is (0, 4)"),
        (NAN, "1 of 9 values are nan, infinite or above 1e+15 in magnitude; the first is nan at [1, 2]"),
        (
            np.full((1, 2), 1e16),
            "2 of 2 values are nan, infinite or above 1e+15 in magnitude; the first is 1e+16 at [0, 0]",
        ),
        (np.array([[{}]], dtype=object), "is not a .npy file of numbers"),
    ],
    ids=["rank", "dtype", "empty", "nan", "too large", "objects"],
)
def test_unusable_array(array: np.ndarray, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, array)
    assert demo.main(["--input", path]) == 2
    assert capsys.readouterr().err.startswith(f"fuser demo: --input {path}: {complaint}")


def test_unusable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, cut, archive = tmp_path / "text.npy", tmp_path / "cut.npy", tmp_path / "x.npz"
    text.write_text("1 2 3")
    np.save(cut, np.ones((100, 100)))
    cut.write_bytes(cut.read_bytes()[:500])
    np.savez(archive, np.ones((2, 2)))
    for path, complaint in (
        (tmp_path / "none.npy", "there is no such file"),
        (tmp_path, "cannot be read: Is a directory"),
        (text, "is not a .npy file of numbers"),
        (cut, "is not a .npy file of numbers"),
        (archive, "is an archive of several arrays; save one with numpy.save"),
    ):
        assert demo.main(["--input", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"fuser demo: --input {path}: {complaint}")


def test_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--inptu", "x.npy"]) == 2
    assert "unrecognized arguments" in capsys.readouterr().err
    assert demo.main(["--help"]) == 0


def test_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "file"))
    assert demo.main([]) == 2
    assert "set FUSER_DUMP_DIR to another folder" in capsys.readouterr().err


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def without_gelu(fd: FusionDefinition) -> None:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
        bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
        fd.add_output(fd.ops.cast(x + fd.ops.broadcast(bias, [True, False]), DataType.BFloat16))

    case = demo.CASES[0]
    wrong = demo.Case(case.name, case.title, without_gelu, case.arguments, case.reference)
    monkeypatch.setattr(demo, "CASES", (wrong, *demo.CASES[1:]))
    assert demo.main([]) == 1
    text = capsys.readouterr().out
    assert text.count("WRONG") == 1
    assert text.endswith("2 of 3 results are right\n")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_result_that_is_no_number_is_wrong(bad: float) -> None:
    result = np.array([1.0, bad])
    right, text = demo.describe_error(result, np.ones(2), np.ones(2))
    assert not right
    assert "worst element [1]" in text


def test_a_result_of_another_shape_is_wrong() -> None:
    right, text = demo.describe_error(np.ones(3), np.ones(2), np.ones(2))
    assert not right
    assert text == "the result has shape (3,), expected (2,)"


def test_times_are_printed_beside_those_of_a_plain_copy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a stand-in whose events are one microsecond further apart every time."""
    simulator = get_device("simulator")

    class Timed:
        kind, index, info = simulator.kind, simulator.index, simulator.info
        milliseconds = 0.05

        def __getattr__(self, name: str) -> Any:
            return getattr(simulator, name)

        def allocate(self, nbytes: int, stream: int) -> Any:
            return simulator.allocate(min(nbytes, 1 << 20), stream)

        def fill(self, *ignored: object) -> None: ...

        copy = record_event = destroy_event = fill

        def create_event(self) -> object:
            return object()

        def elapsed_ms(self, first: object, second: object) -> float:
            self.milliseconds += 0.001
            return self.milliseconds

    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor(shape=[-1, -1], contiguity=True) * 2.0)
    x = np.ones((100, 1000), np.float32)
    program = fd.program([x])
    monkeypatch.setattr(program.__class__, "run", lambda self, tensors: [DeviceTensor.from_numpy(x * 2, simulator)])
    result = demo.time_on_gpu(program, [x], Timed())  # type: ignore[arg-type]
    assert (result == 2).all()
    assert capsys.readouterr().out == (
        "  time        69.0 us, median of 31 with a cold L2 (quartiles 16.0 apart); "
        "12 GB/s for 0.8 MB read and written\n"
        "  plain copy  103.0 us for as many bytes; 8 GB/s for 0.8 MB read and written\n"
    )
