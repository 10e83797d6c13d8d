# ruff: noqa: E402  (a program: the path to the packages comes before the imports)
"""Every kernel of the two corpora once, each tensor in an allocation of its own size: what the sanitizer watches.

    python3 tests/gpu/corpus.py                      run all and compare with the reference
    python3 tests/gpu/corpus.py --planted            and then the planted defects (planted.py)
    python3 tests/gpu/corpus.py --build FILE         compile only, and keep the machine code in FILE (needs no GPU)
    python3 tests/gpu/corpus.py --binaries FILE      take machine code from FILE
    python3 tests/gpu/corpus.py --only NAME ...      some of them;  --list names them

A plain program: no test framework, no torch, no memory pool (`cuMemAlloc` for each tensor, so that what lies beyond it is out
of bounds), everything on the default stream. Sizes are rounded up to 16 bytes: kernels read aligned vectors whole where a
tensor ends in the middle of one (`VectorMove.cut`). Before each fusion its name is printed: a sanitizer's report belongs to
the name above it. The devices plans for one SM, so that small tensors get the kernels of large ones.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np

from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.host_ir.build import build_host_program
from fuser.host_ir.program import HostProgram
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.integers import Symbol
from fuser.runtime import driver
from fuser.runtime.array_view import framework_dtype
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.devices.device import Allocation, Device, get_device
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from tests.devices.device_layouts import element_strides, place_all
from tests.fusions import fusion_corpus, kernel_corpus
from tests.fusions.fusion_corpus import ALIGNED, RAGGED, assert_close
from tests.judging import oracle

Array = np.ndarray[Any, Any]
SIZES = {"aligned": ALIGNED, "ragged": RAGGED}
_VECTOR = 16
"""Bytes of the widest access of a kernel."""
_BEHIND = b"\xff"
"""What lies behind a tensor, in each byte."""


# --- devices ----------------------------------------------------------------------------------------------------------


class ExactDevice(CudaDevice):
    """A GPU whose allocations are the driver's own, one for each request and less than 16 bytes larger."""

    def __init__(self) -> None:
        super().__init__(0)
        self.info = one_sm(self.info)
        self._counters: list[tuple[int, int]] = []
        self._written_behind: list[Allocation] = []

    def allocate(self, nbytes: int, stream: int) -> Allocation:
        """Memory of `nbytes` and of the rest of the vector that they end in, filled, since initcheck sees it read."""
        if nbytes == 0:
            return Allocation(0, 0)
        rest = -nbytes % _VECTOR
        allocation = Allocation(int(self._run("cuMemAlloc", nbytes + rest)), nbytes)
        if rest:
            self.fill(allocation.address + nbytes, _BEHIND, rest, stream)
        return allocation

    def release(self, allocation: Allocation, stream: int) -> None:
        """Give it back at once; the driver waits for work that uses it."""
        rest = np.empty(-allocation.nbytes % _VECTOR, np.uint8)
        if len(rest):
            self.copy_to_host(rest, allocation.address + allocation.nbytes, stream)
            self.synchronize(stream)
            if rest.tobytes() != _BEHIND * len(rest):
                self._written_behind.append(allocation)
        if allocation.address:
            self._run("cuMemFree", allocation.address)

    def semaphores(self, count: int, stream: int, *, co_resident: bool = False) -> int:
        """Zeroed counters for one launch, of their own beside others or not; `check_semaphores` looks at them afterwards."""
        del co_resident
        address = self.allocate(4 * count, stream).address
        self.fill(address, b"\0\0\0\0", count, stream)
        self._counters.append((address, count))
        return address

    def check_writes(self) -> None:
        """Nothing that was given back has been written behind its end, within the same vector, where no tool looks."""
        assert not self._written_behind, f"written behind {self._written_behind}"

    def check_semaphores(self) -> None:
        """Every launch left its counters zero."""
        for address, count in self._counters:
            left = np.empty(count, np.int32)
            self.copy_to_host(left, address, 0)
            self._run("cuMemFree", address)
            assert not left.any(), f"semaphores left at {left}"
        self._counters.clear()


def one_sm(info: DeviceInfo) -> DeviceInfo:
    """The device as if it had one SM: a few thousand elements are many."""
    return replace(info, sm_count=1)


# --- what runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One program and its arguments. `expected` gives (outputs with folded elements, updates by position)."""

    name: str
    compile: Callable[[Device | DeviceInfo], HostProgram]
    inputs: list[Any]
    outputs: list[tuple[Array, int]]
    updates: dict[int, tuple[Array, int]]


def items() -> Iterator[Item]:
    """Everything, in a fixed order."""
    for case in fusion_corpus.CORPUS:
        for label, sizes in SIZES.items():
            yield _fusion_item(case, label, sizes)
    for kernel_case in kernel_corpus.CORPUS:
        yield _kernel_item(kernel_case)


def _described(inputs: Sequence[Any]) -> list[Any]:
    return [
        TensorDescriptor(framework_dtype(v.dtype), v.shape, element_strides(v)) if isinstance(v, np.ndarray) else v
        for v in inputs
    ]


def _fusion_item(case: fusion_corpus.FusionCase, label: str, sizes: fusion_corpus.Sizes) -> Item:
    handle = case.define().fusion
    assert handle is not None
    fusion = handle.ir_fusion
    inputs = case.inputs(sizes)
    want = fusion_corpus.expected(fusion, inputs)

    def compile(device: Device | DeviceInfo) -> HostProgram:
        return compile_fusion(fusion, bind_inputs(fusion, _described(inputs)), device)

    updates = {p: (a, want.folded_updates[p]) for p, a in want.updates.items()}
    return Item(f"{case.name}-{label}", compile, inputs, list(zip(want.outputs, want.folded, strict=True)), updates)


@dataclass(frozen=True, slots=True, eq=False)
class _Segment:
    fusion: Fusion
    extent_inputs: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Segmented:
    fusion: Fusion
    segments: tuple[_Segment, ...]


def _kernel_item(case: kernel_corpus.Case) -> Item:
    schedule = case.make()
    fusion = schedule.fusion
    inputs: list[Any] = list(case.inputs(fusion, case.shapes[0], 1))
    want = oracle.evaluate(fusion, inputs)
    folded = max(int(np.prod(v.shape)) for v in inputs)

    def compile(device: Device | DeviceInfo) -> HostProgram:
        kernel = KernelCompiler(device).compile(schedule, _described(inputs))
        return build_host_program(_Segmented(fusion, (_Segment(fusion),)), (kernel,))

    updates = {fusion.inputs.index(o.alias_of): (want[o.tensor.name], folded) for o in fusion.outputs if o.alias_of}
    outputs = [(want[o.tensor.name], folded) for o in fusion.outputs if not o.hidden]
    return Item(f"kernel-{case.name}", compile, inputs, outputs, updates)


def run(item: Item, device: Device, program: HostProgram) -> None:
    """Run once, compare, and look at what is left behind."""
    _run_and_compare(item, device, program)
    if isinstance(device, ExactDevice):
        device.check_semaphores()
        device.check_writes()


def _run_and_compare(item: Item, device: Device, program: HostProgram) -> None:
    placed = place_all(device, item.inputs)
    results = program.run(placed, stream=0 if device.kind == "cuda" else None, device=device)
    for number, (result, (reference, folded)) in enumerate(zip(results, item.outputs, strict=True)):
        assert_close(result, reference, folded, f"{item.name}, output {number}")
    for position, (reference, folded) in item.updates.items():
        assert_close(placed[position], reference, folded, f"{item.name}, update of input {position}")
    device.synchronize(0)


# --- machine code kept in a file --------------------------------------------------------------------------------------

Key = tuple[str, tuple[str, ...], str, tuple[str, ...]]


class Binaries:
    """What NVRTC gave, by text, entries, architecture and options. Stands in for `nvrtc.compile_to_cubin`."""

    def __init__(self, kept: dict[Key, nvrtc.CompileResult] | None = None) -> None:
        self.kept = kept if kept is not None else {}
        self.compiled = 0
        self._compile = nvrtc.compile_to_cubin

    def __call__(
        self, source: str, entries: Sequence[str], arch: str, options: Sequence[str] = (), *, name: str = "kernel.cu"
    ) -> nvrtc.CompileResult:
        """As `nvrtc.compile_to_cubin`."""
        key = (source, tuple(entries), arch, tuple(options))
        found = self.kept.get(key)
        if found is None:
            self.compiled += 1
            found = self.kept[key] = self._compile(source, entries, arch, options, name=name)
        return found

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Be what everybody calls."""
        nvrtc.compile_to_cubin = self
        try:
            yield
        finally:
            nvrtc.compile_to_cubin = self._compile


def build(path: Path, chosen: Sequence[Item], info: DeviceInfo, workers: int) -> None:
    """Compile everything and write the file. Strided copies compile at their first launch and are not in it."""
    binaries = Binaries()
    with binaries.installed(), ThreadPoolExecutor(workers) as pool:
        for item, _ in zip(chosen, pool.map(lambda i: i.compile(info), chosen), strict=True):
            del item
    path.write_bytes(pickle.dumps(binaries.kept))
    print(f"built {len(binaries.kept)} binaries for {info.arch}", flush=True)


# --- the program ------------------------------------------------------------------------------------------------------


def run_all(chosen: Sequence[Item], device: Device) -> tuple[int, int]:
    """(kernels that ran, programs that failed). One that fails does not hide the others."""
    wrong = 0
    kernels: set[CompiledKernel] = set()
    for item in chosen:
        print(f"== {item.name}", flush=True)
        try:
            program = item.compile(device)
            kernels.update(program.kernels.values())
            run(item, device, program)
        except Exception as error:
            wrong += 1
            print(f"!! {item.name}: {type(error).__name__}: {error}", flush=True)
    return len(kernels), wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 if everything ran and agreed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--planted", action="store_true", help="run the planted defects at the end")
    parser.add_argument("--build", type=Path, metavar="FILE")
    parser.add_argument("--binaries", type=Path, metavar="FILE")
    parser.add_argument("--only", nargs="+", default=(), metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--simulator", action="store_true", help="on the simulator instead of a GPU")
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    chosen = [i for i in items() if not options.only or any(name in i.name for name in options.only)]
    if options.list:
        print("\n".join(i.name for i in chosen))
        return 0
    if options.build is not None:
        has_gpu = driver.device_count() > 0
        info = CudaDevice(0).info if has_gpu else DeviceInfo.preset("H200")
        build(options.build, chosen, one_sm(info), options.workers)
        return 0
    binaries = Binaries(pickle.loads(options.binaries.read_bytes()) if options.binaries else None)
    device: Device = get_device("simulator", 0) if options.simulator else ExactDevice()
    with binaries.installed():
        kernels, wrong = run_all(chosen, device)
    seconds = time.monotonic() - started
    names = len({i.name for i in chosen})
    print(
        f"== corpus: {names} programs, {kernels} kernels, {wrong} wrong, {binaries.compiled} compiled here, "
        f"{seconds:.1f} s",
        flush=True,
    )
    if options.planted:
        from tests.gpu.planted import run_planted

        assert isinstance(device, ExactDevice)
        run_planted(device)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
