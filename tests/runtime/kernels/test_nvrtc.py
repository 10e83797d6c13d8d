"""Compilation, errors, the choice of library, threads."""

import sys
import threading
from pathlib import Path

import pytest

from fuser.errors import CompilationError
from fuser.runtime import driver
from fuser.runtime.kernels import nvrtc

SOURCE = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }'


def test_cubin_and_report() -> None:
    result = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
    assert result.cubin[:4] == b"\x7fELF"
    assert result.arch == "sm_90a"
    assert not result.is_ptx
    assert result.lowered == {"k": "k"}
    assert result.version == nvrtc.version()
    assert "Compiling entry function 'k' for 'sm_90a'" in result.log


def test_same_text_gives_the_same_bytes() -> None:
    first = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
    second = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a", name="other.cu")
    assert first.cubin == second.cubin


def test_error_quotes_the_line_with_a_caret() -> None:
    source = 'extern "C" __global__ void k(float* y) {\n    y[0] = foo + 1;\n}\n'
    with pytest.raises(CompilationError) as caught:
        nvrtc.compile_to_cubin(source, ("k",), "sm_90a", name="scale.cu")
    major, minor = nvrtc.version()
    assert str(caught.value) == (
        f"NVRTC {major}.{minor} refused scale.cu for sm_90a (entry k):\n"
        'scale.cu(2): error: identifier "foo" is undefined\n'
        "      y[0] = foo + 1;\n"
        "             ^\n"
        "\n"
        '1 error detected in the compilation of "scale.cu".'
    )
    assert "foo" in caught.value.log


def test_ptxas_error_is_told() -> None:
    source = 'extern "C" __global__ void k() { asm volatile("bogus.op;"); }'
    with pytest.raises(CompilationError, match="Not a name of any known instruction: 'bogus'"):
        nvrtc.compile_to_cubin(source, ("k",), "sm_90a")


def test_unknown_option_and_missing_entry() -> None:
    with pytest.raises(CompilationError, match="unrecognized option --bogus"):
        nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a", ("--bogus",))
    with pytest.raises(CompilationError, match="absent"):
        nvrtc.compile_to_cubin(SOURCE, ("absent",), "sm_90a")


def test_nul_in_the_source() -> None:
    with pytest.raises(CompilationError, match="NUL character at offset 3"):
        nvrtc.compile_to_cubin("abc\0", (), "sm_90a")


def test_architectures() -> None:
    assert 90 in nvrtc.supported_archs()
    with pytest.raises(CompilationError, match="'gfx90' is not an architecture"):
        nvrtc.compile_to_cubin(SOURCE, ("k",), "gfx90")
    with pytest.raises(CompilationError, match=r"compiles for sm_\d+ and newer, not for sm_35"):
        nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_35")


def test_unknown_newer_gpu_gets_ptx_of_the_newest_known_architecture() -> None:
    result = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_190a")
    newest = nvrtc.supported_archs()[-1]
    assert result.is_ptx
    assert result.arch == f"compute_{newest}"
    assert f".target sm_{newest}".encode() in result.cubin
    assert result.cubin.endswith(b"\0")
    assert result.resources == {}


def test_eight_threads_compile_at_once() -> None:
    results: dict[int, bytes] = {}

    def compile_one(i: int) -> None:
        results[i] = nvrtc.compile_to_cubin(SOURCE.replace("1.0f", f"{i}.0f"), ("k",), "sm_90a").cubin

    threads = [threading.Thread(target=compile_one, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results.values())) == 8


# --- the choice of library ---


@pytest.fixture
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSER_NVRTC", raising=False)
    monkeypatch.setattr(nvrtc, "_chosen", None)


def _wheel(folder: Path, name: str, major: int, minor: int) -> str:
    lib = folder / "nvidia" / name / "lib"
    lib.mkdir(parents=True)
    (lib / f"libnvrtc.so.{major}").touch()
    (lib / f"libnvrtc-builtins.so.{major}.{minor}").touch()
    (lib / f"libnvrtc.alt.so.{major}").touch()
    return str(lib / f"libnvrtc.so.{major}")


@pytest.mark.usefixtures("fresh_choice")
@pytest.mark.parametrize(
    ("driver_version", "expected"),
    [((0, 0), "declared"), ((12, 2), "declared"), ((13, 0), "thirteen"), ((13, 3), "thirteen"), ((14, 0), "thirteen")],
)
def test_newest_that_the_driver_runs(
    driver_version: tuple[int, int], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = {"declared": _wheel(tmp_path, "cuda_nvrtc", 12, 9), "thirteen": _wheel(tmp_path, "cu13", 13, 0)}
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(driver, "driver_version", lambda: driver_version)
    assert nvrtc._choose() == paths[expected]


@pytest.mark.usefixtures("fresh_choice")
def test_nothing_that_the_driver_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _wheel(tmp_path, "cu13", 13, 0)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(nvrtc, "SEARCHED_MAJORS", ())
    monkeypatch.setattr(driver, "driver_version", lambda: (12, 8))
    with pytest.raises(nvrtc.NvrtcUnavailableError, match="the driver runs CUDA 12, and every NVRTC found is newer"):
        nvrtc._choose()


@pytest.mark.usefixtures("fresh_choice")
def test_no_library_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(()))
    assert not nvrtc.is_available()
    with pytest.raises(nvrtc.NvrtcUnavailableError, match="pip install nvidia-cuda-nvrtc-cu12"):
        nvrtc.version()


def test_explicit_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = nvrtc.library_path()
    monkeypatch.setenv("FUSER_NVRTC", path)
    assert nvrtc.library_path() == path
    monkeypatch.setenv("FUSER_NVRTC", str(tmp_path / "libnvrtc.so.12"))
    with pytest.raises(nvrtc.NvrtcUnavailableError, match="cannot be loaded"):
        nvrtc.version()
