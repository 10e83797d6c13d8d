"""Programs in files: they run as they did, in processes without a compiler, and what is no such file is told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import FusionExecutorCache, HostProgram
from fuser.errors import FuserError, InputTypeError, InputValueError
from fuser.host_ir.saved_programs import PROGRAM_FILE
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.variants import VARIANTS
from fuser.runtime.rtc_kernel import RtcKernel
from tests.fusions.fusion_corpus import ALIGNED, RAGGED, case
from tests.runtime.variant_kernels import RAW_HUNGRY

# Between them: views, several segments, updates in place, numbers as inputs, random numbers, waits of the grid, sizes that
# are computed.
NAMES = (
    "bias_gelu",
    "layer_norm_backward",
    "clipped_to_their_norm",
    "view_read_by_two_segments",
    "dropout",
    "computed_extent",
    "cross_entropy",
    "running_sum_of_a_running_sum",
    "complex_sum",
    "scaled_by_column_sum",
)


def program_of(name: str) -> HostProgram:
    """That of a case of the corpus on the simulator."""
    fusion = case(name).define().fusion
    assert fusion is not None
    return FusionExecutorCache(fusion).program(case(name).inputs(ALIGNED, 0), device="simulator")


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_program_is_the_saved_one(name: str, tmp_path: Path) -> None:
    program = program_of(name)
    fuser.save(program, tmp_path / "saved")
    again = fuser.load(str(tmp_path / "saved"))
    assert repr(again) == repr(program)
    assert PROGRAM_FILE.to_bytes(again) == PROGRAM_FILE.to_bytes(program)
    for sizes in (ALIGNED, RAGGED):
        results: list[Any] = []
        for run in (program, again):
            inputs = case(name).inputs(sizes, 1)
            try:
                results.append([*run.run(inputs, device="simulator"), *inputs])
            except FuserError as error:
                # A kernel for aligned rows takes no others; both say the same of it.
                results.append([error.message.replace("\n", " ")])
        for a, b in zip(*results, strict=True):
            np.testing.assert_array_equal(a, b)
    assert [p.name for p in tmp_path.iterdir()] == ["saved"]


WITHOUT_A_COMPILER = """
import sys
import numpy as np
import fuser
folder = sys.argv[1]
for name in sys.argv[2:]:
    program = fuser.load(f"{folder}/{name}")
    inputs = np.load(f"{folder}/{name}.npz")
    results = program.run([inputs[k] for k in inputs], device="simulator")
    np.savez(f"{folder}/{name}.found.npz", *results)
compiler = ("schedule", "lowering", "codegen", "optimize", "frontend", "compiler", "runtime.nvrtc", "runtime.rtc_kernel")
found = [m for m in sys.modules if m.startswith(tuple(f"fuser.{part}" for part in compiler))]
assert not found, found
assert not [m for m in sys.modules if m.partition(".")[0] in ("cuda", "torch", "cupy", "jax", "sympy")]
"""


def test_it_runs_in_a_process_that_imports_no_compiler(tmp_path: Path) -> None:
    names = ("softmax", "layer_norm_backward", "view_read_by_two_segments", "cross_entropy")
    wanted: dict[str, list[Any]] = {}
    for name in names:
        inputs = case(name).inputs(ALIGNED, 2)
        np.savez(tmp_path / f"{name}.npz", *inputs)
        program = program_of(name)
        fuser.save(program, tmp_path / name)
        wanted[name] = program.run(inputs, device="simulator")
    subprocess.run([sys.executable, "-c", WITHOUT_A_COMPILER, str(tmp_path), *names], check=True)
    for name in names:
        found = np.load(tmp_path / f"{name}.found.npz")
        for a, b in zip(found.values(), wanted[name], strict=True):
            np.testing.assert_array_equal(a, b)


# --- variants -------------------------------------------------------------------------------------------------------------


def hungry_program(of: str) -> tuple[HostProgram, CompiledKernel]:
    """A raw kernel that needs another binary for large blocks. The process keeps binaries by text: each test has its own."""
    kernel = RtcKernel(f"{RAW_HUNGRY}// {of}\n", "hungry", DeviceInfo.preset("H200")).compile().kernel
    launch = fuser.LaunchParams(1, 1, 1, 128, 1, 1, shared=64)
    return HostProgram(("y", "x"), (), (fuser.LaunchKernel(kernel, ("y", "x", 7), launch),)), kernel


VARIANTS_OF_A_FILE = """
import sys
import fuser
from fuser.runtime.kernels.variants import VARIANTS
program = fuser.load(sys.argv[1])
program = fuser.load(sys.argv[1])
(kernel,) = program.kernels.values()
for threads in (128, 512, 640, 1024):
    try:
        found = VARIANTS.binary_for(kernel, threads)
        print(threads, found.max_threads, found.resources.registers, found.is_unbounded)
    except fuser.VariantUnavailableError as error:
        print(threads, "VariantUnavailableError", error.message[:70])
print(program.launches()[0].launch, VARIANTS.counters().compiles)
"""


def variants_of(path: Path, nvrtc: str) -> list[str]:
    """What another process finds in a file."""
    run = [sys.executable, "-c", VARIANTS_OF_A_FILE, str(path)]
    environment = {**os.environ, "FUSER_NVRTC": nvrtc}
    return subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_a_file_has_the_variants_that_were_there(tmp_path: Path) -> None:
    program, kernel = hungry_program("the variants that were there")
    VARIANTS.binary_for(kernel, 640)
    fuser.save(program, tmp_path / "present")
    assert variants_of(tmp_path / "present", "/nowhere/libnvrtc.so") == [
        *_lines(kernel, (128, 512, 640)),
        "1024 VariantUnavailableError kernel hungry: a block of 1024 threads needs a binary for blocks up to",
        f"{program.launches()[0].launch!r} 0",
    ]


def test_and_those_that_were_asked_for(tmp_path: Path) -> None:
    program, kernel = hungry_program("those that were asked for")
    fuser.save(program, tmp_path / "all", max_threads=1024)
    lines = variants_of(tmp_path / "all", "/nowhere/libnvrtc.so")
    assert lines == [*_lines(kernel, (128, 512, 640, 1024)), f"{program.launches()[0].launch!r} 0"]


def _lines(kernel: CompiledKernel, blocks: tuple[int, ...]) -> list[str]:
    """What this process has for blocks."""
    lines: list[str] = []
    for threads in blocks:
        found = VARIANTS.binary_for(kernel, threads)
        assert found.resources is not None
        lines.append(f"{threads} {found.max_threads} {found.resources.registers} {found.is_unbounded}")
    return lines


def test_a_program_of_the_simulator_gets_binaries_on_request(tmp_path: Path) -> None:
    program = program_of("bias_gelu")
    (kernel,) = program.kernels.values()
    fuser.save(program, tmp_path / "none")
    assert VARIANTS.binaries_of(kernel) == ()
    fuser.save(program, tmp_path / "two", max_threads=384)
    (again,) = fuser.load(tmp_path / "two").kernels.values()
    assert [b.max_threads for b in VARIANTS.binaries_of(again)] == [256, 384]
    assert (tmp_path / "two").stat().st_size > (tmp_path / "none").stat().st_size


# --- what is refused ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    program = program_of("bias_gelu")
    path = tmp_path / "saved"
    for what, text in [
        (
            case("bias_gelu").define(),
            "save() takes a HostProgram, as fd.program(inputs) gives it, and a path, got FusionDefinition",
        ),
        (None, "save() takes a HostProgram, as fd.program(inputs) gives it, and a path, got NoneType"),
    ]:
        with pytest.raises(InputTypeError) as caught:
            fuser.save(what, path)  # type: ignore[arg-type]
        assert caught.value.message == text
    for threads in (0, 1025, 2.0, True):
        with pytest.raises(InputValueError) as value:
            fuser.save(program, path, max_threads=threads)  # type: ignore[arg-type]
        assert value.value.message == f"max_threads is a number of threads from 1 to 1024, got {threads!r}"
    with pytest.raises(FileNotFoundError):
        fuser.save(program, tmp_path / "no" / "folder")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    program = program_of("bias_gelu")
    path = tmp_path / "saved"
    fuser.save(program, path)
    whole = path.read_bytes()
    (kernel,) = program.kernels.values()
    kernel.save(tmp_path / "kernel")
    for data, text in [
        (b"", "it is no file of fuser"),
        (b"\x80\x04\x95", "it is no file of fuser"),
        (whole[:-1] + b"?", "its checksum is wrong"),
        (whole.replace(b" 1 ", b" 7 ", 1), "it has format 7, and this version of fuser reads format 1"),
        ((tmp_path / "kernel").read_bytes(), "it holds a kernel, not a program"),
        (PROGRAM_FILE.to_bytes(5), "it holds something else"),
    ]:
        path.write_bytes(data)
        with pytest.raises(InputValueError) as caught:
            fuser.load(path)
        assert caught.value.message == f"{path} cannot be loaded as a program: {text}"
    with pytest.raises(FileNotFoundError):
        fuser.load(tmp_path / "nothing")


def test_a_program_that_is_not_well_formed_is_not_loaded(tmp_path: Path) -> None:
    """Under a right checksum: it is verified as if it were built by hand."""
    from fuser.host_ir.saved_programs import SavedProgram

    program = program_of("bias_gelu")
    data = PROGRAM_FILE.to_bytes(SavedProgram(program, ()))
    # Its launch names a slot that nothing defines.
    assert "'t0'" in repr(program)
    broken = _resealed(data, b'"t0"', b'"tX"')
    (tmp_path / "broken").write_bytes(broken)
    with pytest.raises(InputValueError, match="cannot be loaded as a program: its contents make no sense"):
        fuser.load(tmp_path / "broken")


def _resealed(data: bytes, old: bytes, new: bytes) -> bytes:
    """A file whose last occurrence of `old` is another, with the checksum of that."""
    from hashlib import sha256

    head, _, rest = data.partition(b"\n")
    at = rest.rindex(old)
    rest = rest[:at] + new + rest[at + len(old) :]
    words = head.split(b" ")
    return b" ".join([*words[:-1], sha256(rest).hexdigest().encode()]) + b"\n" + rest
