"""Binaries on disk: every way to a kernel finds those of earlier processes, and no other."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.errors import CompilationError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.runtime.cache.disk_cache import DiskCache
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.nvrtc import CompileResult, NvrtcCounters
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.rtc_kernel import RtcKernel
from tests.runtime.variant_kernels import SMALL, kernel_of

SOURCE = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f; }'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, turned on."""
    monkeypatch.setenv("FUSER_CACHE", "on")
    monkeypatch.setenv("FUSER_CACHE_DIR", str(tmp_path))
    return tmp_path


class Counted:
    """What happened inside of a with block."""

    def __enter__(self) -> Counted:
        self.before = nvrtc.counters()
        return self

    def __exit__(self, *_: object) -> None:
        after = nvrtc.counters()
        compiled, read = after.compiled - self.before.compiled, after.from_disk - self.before.from_disk
        self.counters = NvrtcCounters(compiled, read)


def entries(folder: Path) -> list[Path]:
    return [e.path for e in DiskCache(folder, 1).entries()]


def by_dsl() -> Any:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.sum(fd.ops.exp(x), [1]))
    assert fd.fusion is not None
    bound = bind_inputs(fd.fusion.ir_fusion, [TensorDescriptor(DataType.Float, (64, 512), (512, 1), 256)])
    (kernel,) = compile_fusion(fd.fusion.ir_fusion, bound, DeviceInfo.preset("H200")).kernels.values()
    return kernel.cubin, kernel.resources, kernel.log, kernel.nvrtc_version, kernel.content_hash


def by_variant() -> Any:
    binary = KernelVariants().binary_for(kernel_of(SMALL, "small"), 512)
    return binary.cubin, binary.entry, binary.resources, binary.max_threads, binary.log


def by_raw_kernel() -> Any:
    source = "template <class T> __global__ void twice(T* y) { y[threadIdx.x] *= T(2); }"
    kernel = RtcKernel(source, "twice<double>", DeviceInfo.preset("H200")).compile().kernel
    return kernel.cubin, kernel.entry, kernel.parameters, kernel.resources, kernel.log


@pytest.mark.parametrize("make", [by_dsl, by_variant, by_raw_kernel])
def test_every_door(make: Any, folder: Path) -> None:
    with Counted() as cold:
        made = make()
    with Counted() as warm:
        again = make()
    assert cold.counters.compiled == len(entries(folder)) > 0
    assert warm.counters == NvrtcCounters(0, cold.counters.compiled)
    assert again == made, "a hit tells as much as a compilation"


def test_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_CACHE", "0")
    with Counted() as twice:
        nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
        nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
    assert twice.counters == NvrtcCounters(2, 0)
    assert entries(folder) == []


def test_all_that_decides_a_binary_is_in_the_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = SOURCE + SOURCE.replace("k(", "other(")
    calls: list[tuple[Any, ...]] = [
        (SOURCE, ("k",), "sm_90a", ()),
        (SOURCE + " ", ("k",), "sm_90a", ()),
        (SOURCE, ("k",), "sm_80", ()),
        (SOURCE, ("k",), "sm_90a", ("-DA",)),
        (SOURCE, ("k",), "sm_90a", ("-DA", "-DB")),
        (SOURCE, ("k",), "sm_90a", ("-DB", "-DA")),
        (two, ("k",), "sm_90a", ()),
        (two, ("k", "other"), "sm_90a", ()),
    ]
    with Counted() as cold:
        made = [nvrtc.compile_to_cubin(*call) for call in calls]
        made.append(nvrtc.compile_to_cubin(*calls[0], name="named.cu"))
        made.append(nvrtc.compile_to_ptx(*calls[0]))
    assert cold.counters == NvrtcCounters(10, 0)
    assert len(entries(folder)) == 10
    with Counted() as warm:
        assert [nvrtc.compile_to_cubin(*call) for call in calls] == made[:-2]
    assert warm.counters == NvrtcCounters(0, 8)
    # Another build of the library.
    monkeypatch.setattr(nvrtc, "_toolchain", lambda path: "12.9 of 7 bytes")
    with Counted() as other:
        nvrtc.compile_to_cubin(*calls[0])
    assert other.counters == NvrtcCounters(1, 0)


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ('#include "a.h"\n', ()),
        ("#  /* why */ include <a.h>\n", ()),
        ("# inc\\\nlude <a.h>\n", ()),
        ("%: include <a.h>\n", ()),
        ("// built at __DATE__\n", ()),
        ("", ("--pre-include=a.h",)),
        ("", ("-include", "a.h")),
    ],
)
def test_what_may_read_other_files_is_not_kept(
    source: str, options: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their contents may change."""
    made = CompileResult(b"", {}, {}, "", (12, 9), "sm_90a")
    monkeypatch.setattr(nvrtc, "_compiled", lambda *_: made)
    assert nvrtc.compile_to_cubin(source + SOURCE, ("k",), "sm_90a", options) is made
    assert entries(folder) == []
    nvrtc.compile_to_cubin("// include: this is not\n" + SOURCE, ("k",), "sm_90a")
    assert len(entries(folder)) == 1


def test_a_refused_text_is_not_kept(folder: Path) -> None:
    for _ in range(2):
        with Counted() as counted, pytest.raises(CompilationError, match="foo"):
            nvrtc.compile_to_cubin("foo", ("k",), "sm_90a")
        assert counted.counters == NvrtcCounters(0, 0)
    assert entries(folder) == []


def test_a_planted_binary_is_not_loaded(folder: Path, unlowered: list[str]) -> None:
    made = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
    (path,) = entries(folder)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(made.cubin, bytes(len(made.cubin))))
    with Counted() as counted:
        assert nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a").cubin == made.cubin
    assert counted.counters == NvrtcCounters(1, 0)
    assert unlowered.pop().endswith("its checksum is wrong")
    assert nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a").cubin == made.cubin, "the right one has taken its place"


def test_threads_that_want_the_same_compile_it_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nvrtc._compiled  # pyright: ignore[reportPrivateUsage]
    arrived = threading.Event()

    def held(*arguments: Any) -> CompileResult:
        """Until all others have come to wait for it."""
        arrived.wait(30)
        return plain(*arguments)

    monkeypatch.setattr(nvrtc, "_compiled", held)
    found: list[CompileResult] = []
    ask = [
        threading.Thread(target=lambda: found.append(nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")))
        for _ in range(4)
    ]
    with Counted() as counted:
        for thread in ask:
            thread.start()
        arrived.set()
        for thread in ask:
            thread.join()
    assert counted.counters == NvrtcCounters(1, 3)
    assert [f == found[0] for f in found] == [True] * 4


def test_a_failure_holds_nobody_up(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(CompilationError):
            nvrtc.compile_to_cubin("foo", ("k",), "sm_90a")
    assert nvrtc._under_way == {}  # pyright: ignore[reportPrivateUsage]


ANOTHER_PROCESS = """
import sys
from fuser.runtime.kernels import nvrtc
made = nvrtc.compile_to_cubin(sys.argv[1], ("k",), "sm_90a")
print(len(made.cubin), nvrtc.counters(), sorted(nvrtc._loaded))
"""


def test_another_process_loads_no_library(folder: Path) -> None:
    made = nvrtc.compile_to_cubin(SOURCE, ("k",), "sm_90a")
    if " of " not in nvrtc._toolchain(nvrtc.library_path()):  # pyright: ignore[reportPrivateUsage]
        pytest.skip("the files of this NVRTC do not tell its version")
    run = [sys.executable, "-c", ANOTHER_PROCESS, SOURCE]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout == f"{len(made.cubin)} NvrtcCounters(compiled=0, from_disk=1) []\n"
