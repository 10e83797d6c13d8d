"""Programs on disk: another process compiles nothing, and finds nothing that was made for anything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, FusionExecutorCache
from fuser.compiler import program_cache, stored_programs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.cache.disk_cache import DiskCache
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place_all
from tests.fusions.fusion_corpus import ALIGNED, RAGGED, case

X = np.random.default_rng(0).standard_normal((6, 48)).astype(np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, turned on."""
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    return tmp_path


def stored(folder: Path) -> int:
    return sum(e.path.parent.parent.name.startswith("program-") for e in DiskCache(folder, 1).entries())


def executor(name: str) -> FusionExecutorCache:
    """One that has compiled nothing."""
    fusion = case(name).define().fusion
    assert fusion is not None
    return FusionExecutorCache(fusion)


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """To schedule or to lower is an error from here on."""

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("something is compiled")

    monkeypatch.setattr(program_cache, "plan_fusion", refused)
    monkeypatch.setattr(KernelCompiler, "propose", refused)
    monkeypatch.setattr(KernelCompiler, "start_segment", refused)


@pytest.mark.parametrize(
    "name",
    [
        "bias_gelu",
        "layer_norm_backward",
        "clipped_to_their_norm",
        "cross_entropy",
        "computed_extent",
        "dropout",
        "complex_sum",
    ],
)
def test_what_was_compiled_before_is_not_compiled_again(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = executor(name)
    wanted = cold.execute(case(name).inputs(ALIGNED, 0), device="simulator")
    assert cold.counters()["programs_from_disk"] == 0
    assert stored(folder) == 1
    forbid(monkeypatch)
    warm = executor(name)
    for seed in (0, 1):
        found = warm.execute(case(name).inputs(ALIGNED, seed), device="simulator")
        if seed == 0:
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    counters = warm.counters()
    assert (counters["programs_from_disk"], counters["kernels_compiled"], counters["exact_hits"]) == (1, 0, 1)
    assert len(warm.kernels(case(name).inputs(ALIGNED, 0), device="simulator")) == len(
        cold.kernels(case(name).inputs(ALIGNED, 0), device="simulator")
    )
    assert stored(folder) == 1


def test_other_shapes_are_asked_for_where_nothing_is_compiled_yet(folder: Path) -> None:
    cold = executor("outer_sum")
    for sizes in (ALIGNED, RAGGED):
        cold.execute(case("outer_sum").inputs(sizes, 0), device="simulator")
    warm = executor("outer_sum")
    for sizes in (ALIGNED, RAGGED):
        warm.execute(case("outer_sum").inputs(sizes, 0), device="simulator")
    assert warm.counters()["programs_from_disk"] == stored(folder) > 0


def test_new_shapes_of_a_known_kernel_are_not_written(folder: Path) -> None:
    """A loop over lengths would write without an end."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.neg(x))
    for rows in range(5, 40):
        fd.execute([np.ones((rows, 64), np.float32)], device="simulator")
    counters = fd.fec.counters()
    assert counters["kernels_compiled"] < 5
    assert stored(folder) <= counters["kernels_compiled"]


# --- the key --------------------------------------------------------------------------------------------------------------


def pointwise(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.add(x, 1.0))


def other_constant(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.add(x, -1.0))


def other_op(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.sub(x, 1.0))


def other_type(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.cast(fd.ops.add(x, 1.0), DataType.Half))


def other_dims(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.sum(x, [0]))


def more_dims(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.sum(x, [1]))


def halves(fd: FusionDefinition) -> None:
    """Resolved for the shape at hand: dims that were made by splits."""
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.sum(fd.ops.reshape(x, [-1, 2, fd.ops.size(x, 1)]), [1]))


def thirds(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.sum(fd.ops.reshape(x, [-1, 3, fd.ops.size(x, 1)]), [1]))


def in_place(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True)
    fd.add_output(fd.ops.add(x, 1.0), x)


DEFINITIONS: tuple[Callable[[FusionDefinition], None], ...] = (
    pointwise,
    other_constant,
    other_op,
    other_type,
    other_dims,
    more_dims,
    halves,
    thirds,
    in_place,
)


def made(define: Callable[[FusionDefinition], None]) -> FusionDefinition:
    with FusionDefinition() as fd:
        define(fd)
    return fd


def test_each_definition_has_its_own(folder: Path) -> None:
    results: list[list[Any]] = []
    for turn in range(2):
        for k, define in enumerate(DEFINITIONS):
            fd = made(define)
            x = X.copy()
            found = [*fd.execute([x], device="simulator"), x]
            assert fd.fec.counters()["programs_from_disk"] == turn
            if turn == 0:
                results.append(found)
            for a, b in zip(found, results[k], strict=True):
                np.testing.assert_array_equal(a, b)
    assert stored(folder) == len(DEFINITIONS)


def test_what_inputs_look_like_and_options_and_devices_are_in_the_key(folder: Path) -> None:
    wide = np.zeros((6, 96), np.float32)
    small = SimulatorDevice(info=replace(DeviceInfo.preset("H200"), sm_count=2))
    calls: list[tuple[Any, dict[str, Any]]] = [
        (X, {}),
        (X[:5], {}),
        (wide[:, ::2], {}),
        (np.asfortranarray(X), {}),
        (wide[:, 1:49], {}),
        (X, {"_enable_options": ["fast_math"]}),
    ]
    for turn in range(2):
        for x, more in calls:
            fd = made(pointwise)
            (y,) = fd.execute([x], device="simulator", **more)
            np.testing.assert_array_equal(y, x + 1)
            assert fd.fec.counters()["programs_from_disk"] == turn, (x.shape, x.strides, more)
        fd = made(pointwise)
        (on_small,) = fd.execute(place_all(small, [X]))
        np.testing.assert_array_equal(on_small.numpy(), X + 1)
        assert fd.fec.counters()["programs_from_disk"] == turn
    assert stored(folder) == len(calls) + 1


def test_inputs_that_overlap(folder: Path) -> None:
    """Where one is updated a kernel may rest on their not doing so."""

    def update(fd: FusionDefinition) -> None:
        x, y = (fd.define_tensor([-1], True) for _ in range(2))
        fd.add_output(fd.ops.add(x, y), x)

    for turn in range(2):
        for shift in (64, 0, 1):
            memory = np.arange(200, dtype=np.float32)
            x, y = memory[:64], memory[shift : shift + 64]
            wanted = x + y
            fd = made(update)
            fd.execute([x, y], device="simulator")
            np.testing.assert_array_equal(x, wanted)
            assert fd.fec.counters()["programs_from_disk"] == turn
    assert stored(folder) == 3


def test_another_text_of_the_package_finds_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(pointwise).execute([X], device="simulator")
    monkeypatch.setattr(stored_programs, "package_version", lambda: "another")
    fd = made(pointwise)
    fd.execute([X], device="simulator")
    assert fd.fec.counters()["programs_from_disk"] == 0
    assert stored(folder) == 2


def test_the_version_is_that_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fuser" / "compiler").mkdir(parents=True)
    one = tmp_path / "fuser" / "compiler" / "stored_programs.py"
    two = tmp_path / "fuser" / "two.py"
    for path in (one, two):
        path.write_text("x = 1\n")
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(stored_programs, "__file__", str(one))
    version = stored_programs.package_version.__wrapped__
    # These files have been there since before.
    monkeypatch.setattr(stored_programs, "IMPORTED_NS", 3 * 10**18)
    seen = {version()}
    os.utime(two, (1e9 + 1, 1e9 + 1))
    seen.add(version())
    two.write_text("x = 10\n")
    os.utime(two, (1e9, 1e9))
    seen.add(version())
    two.rename(tmp_path / "fuser" / "three.py")
    seen.add(version())
    (tmp_path / "fuser" / "two.txt").write_text("no code")
    seen.add(version())
    assert len(seen) == 4
    one.write_text("x = 2\n")
    os.utime(one, (4e9, 4e9))
    with pytest.raises(OSError, match="have changed since it was imported"):
        version()
    # A copy that keeps the times of the text.
    os.utime(one, (1e9, 1e9))
    version()
    monkeypatch.setattr(stored_programs, "IMPORTED_NS", one.stat().st_ctime_ns - 1)
    with pytest.raises(OSError, match="have changed since it was imported"):
        version()


EDITED = """
import time
import fuser
now = time.time_ns()
from fuser.compiler import stored_programs
assert stored_programs.IMPORTED_NS < now
"""


def test_what_is_edited_before_the_first_compilation_is_seen() -> None:
    """Modules of the compiler are imported one by one: the time that counts is that of the first."""
    subprocess.run([sys.executable, "-c", EDITED], check=True, timeout=60)


def test_a_key_that_cannot_be_told_is_said_once_for_each_call(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unlowered: list[str]
) -> None:
    def unknown() -> str:
        raise OSError("no files")

    monkeypatch.setattr(stored_programs, "package_version", unknown)
    (y,) = made(pointwise).execute([X], device="simulator")
    np.testing.assert_array_equal(y, X + 1)
    assert stored(folder) == 0
    assert set(unlowered) == {"programs of this fusion are not kept on disk: no files"}
    unlowered.clear()


KEYS = """
import sys
from fuser.compiler.stored_programs import StoredPrograms
from tests.compiler.test_stored_programs import DEFINITIONS, made
for define in DEFINITIONS:
    print(StoredPrograms(made(define).fusion.ir_fusion)._key((), type("Device", (), {"kind": "simulator"})))
"""


def test_keys_are_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[str] = set()
    for seed in ("1", "2"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.add(subprocess.run([sys.executable, "-c", KEYS], capture_output=True, text=True, check=True).stdout)
    (keys,) = found
    assert len(set(keys.split())) == len(DEFINITIONS)


# --- what is not kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"), [("FUSER_CACHE", "off"), ("FUSER_DUMP", "kernel.cu"), ("FUSER_VERIFY", "passes")]
)
def test_who_looks_at_stages_compiles(
    name: str, value: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made(pointwise).execute([X], device="simulator")
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "dump"))
    fd = made(pointwise)
    fd.execute([X], device="simulator")
    assert fd.fec.counters()["kernels_compiled"] == 1
    assert stored(folder) == 1


def test_a_compilation_that_met_a_bug_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, unlowered: list[str], tmp_path: Path
) -> None:
    """Each process warns of it."""
    monkeypatch.setenv("FUSER_DUMP_DIR", str(tmp_path / "dump"))
    whole = KernelCompiler.start_segment

    def fails_on_several(self: KernelCompiler, segment: Any, *more: Any) -> Any:
        if len(segment.fusion.tensor_exprs) > 1:
            from fuser.compiler.segment_failures import failed

            raise failed(segment.fusion, segment.scheduler.type, "a pass fails", RuntimeError("planted"))
        return whole(self, segment, *more)

    monkeypatch.setattr(KernelCompiler, "start_segment", fails_on_several)
    for _ in range(2):
        fd = made(lambda fd: fd.add_output(fd.ops.exp(fd.ops.neg(fd.define_tensor([-1, -1], True)))))
        fd.execute([X], device="simulator")
        assert fd.fec.counters()["kernels_compiled"] == 2
        assert "planted" in unlowered[0]
        unlowered.clear()
    assert stored(folder) == 0


@pytest.mark.parametrize("damage", [b"", b"fuser program 1 0 00\n"])
def test_a_damaged_program_is_compiled_again(folder: Path, damage: bytes, unlowered: list[str]) -> None:
    made(pointwise).execute([X], device="simulator")
    (entry,) = DiskCache(folder, 1).entries()
    entry.path.write_bytes(damage)
    fd = made(pointwise)
    (y,) = fd.execute([X], device="simulator")
    np.testing.assert_array_equal(y, X + 1)
    assert fd.fec.counters()["kernels_compiled"] == 1
    assert len(unlowered) == 1
    unlowered.clear()
    again = made(pointwise)
    again.execute([X], device="simulator")
    assert again.fec.counters()["programs_from_disk"] == 1
