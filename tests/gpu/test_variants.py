"""Register limits and block growth with real launches."""

import threading

import numpy as np
import pytest

from fuser.errors import CompilationError, LaunchError
from fuser.runtime.devices.cuda_device import CudaDevice
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.launch import Launch
from tests.runtime.variant_kernels import HUNGRY, ONLY_TO_512, RAW_HUNGRY, SMALL, kernel_of

POINTERS = (
    RawParameter("y", "float*", RawKind.pointer, "float32", 8, 8, 4),
    RawParameter("x", "const float*", RawKind.pointer, "float32", 8, 8, 4, 1, True),
)
COUNT = RawParameter("n", "int", RawKind.scalar, "int32", 4, 4)


class Fixture:
    """A device with a table of its own, and input and output for the kernels of tests/runtime/kernels/test_variants.py."""

    def __init__(self) -> None:
        self.variants = KernelVariants()
        self.device = CudaDevice(0, self.variants)
        self.x = np.random.default_rng(0).normal(size=(96, 1024)).astype(np.float32)
        self.input = self.device.allocate(self.x.nbytes, 0)
        self.output = self.device.allocate(self.x.nbytes, 0)
        self.device.copy_from_host(self.input.address, self.x, 0)

    def hungry(self, **changes: object) -> CompiledKernel:
        source = changes.pop("source", HUNGRY)
        return kernel_of(str(source), "hungry", arch=self.device.info.arch, parameters=(*POINTERS, COUNT), **changes)

    def small(self, source: str) -> CompiledKernel:
        return kernel_of(source, "small", arch=self.device.info.arch, parameters=POINTERS[:1])

    def run_hungry(self, kernel: CompiledKernel, threads: int) -> None:
        arguments = (self.output.address, self.input.address, threads)
        self.device.launch(kernel, Launch((1, 1, 1), (threads, 1, 1)), arguments, 0)

    def run_small(self, kernel: CompiledKernel, threads: int) -> None:
        self.device.launch(kernel, Launch((1, 1, 1), (threads, 1, 1)), (self.output.address,), 0)

    def check(self, threads: int) -> None:
        result = np.empty_like(self.x)
        self.device.copy_to_host(result, self.output.address, 0)
        v = self.x[:, :threads].astype(np.float64)
        t = (v * v[(np.arange(96) * 37 + 11) % 96]).sum(0)
        np.testing.assert_allclose(result[:, :threads], v * t + v[(np.arange(96) + 55) % 96], rtol=1e-3, atol=1e-3)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def test_alternating_blocks_compile_twice(fixture: Fixture) -> None:
    kernel = fixture.hungry()
    for _ in range(500):
        fixture.run_hungry(kernel, 128)
        fixture.run_hungry(kernel, 1024)
    fixture.check(1024)
    assert fixture.variants.counters().compiles == 2
    narrow, wide = fixture.variants.binaries_of(kernel)
    assert narrow.resources is not None
    assert wide.resources is not None
    assert narrow.resources.registers > 100
    assert wide.resources.registers <= 64


@pytest.mark.parametrize("threads", [32, 256, 384, 512, 640, 768, 896, 1024])
def test_every_rung_launches(fixture: Fixture, threads: int) -> None:
    fixture.run_hungry(fixture.hungry(), threads)
    fixture.check(threads)


def test_smaller_blocks_compile_nothing(fixture: Fixture) -> None:
    kernel = fixture.hungry()
    for threads in (128, 256, 64):
        fixture.run_hungry(kernel, threads)
        fixture.check(threads)
    assert fixture.variants.counters().compiles == 1


def test_eight_threads_launch_a_cold_rung(fixture: Fixture) -> None:
    kernel = fixture.small(SMALL)
    fixture.run_small(kernel, 128)
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        fixture.run_small(kernel, 1024)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fixture.device.synchronize(0)
    assert fixture.variants.counters().compiles == 2


def test_failed_variant_leaves_the_others_serving(fixture: Fixture) -> None:
    kernel = fixture.small(ONLY_TO_512)
    fixture.run_small(kernel, 512)
    for _ in range(3):
        with pytest.raises(CompilationError, match="too many threads"):
            fixture.run_small(kernel, 1024)
        fixture.run_small(kernel, 512)
    fixture.device.synchronize(0)


def test_raw_source_grows(fixture: Fixture) -> None:
    kernel = fixture.hungry(source=RAW_HUNGRY, bounded=False)
    for threads in (128, 1024, 128, 1024):
        fixture.run_hungry(kernel, threads)
        fixture.check(threads)
    assert fixture.variants.counters().compiles == 2


def test_cap(fixture: Fixture) -> None:
    fixture.run_hungry(fixture.hungry(register_cap=64), 1024)
    fixture.check(1024)
    with pytest.raises(LaunchError, match="Use a smaller block or a lower cap"):
        fixture.run_hungry(fixture.hungry(register_cap=120), 1024)
