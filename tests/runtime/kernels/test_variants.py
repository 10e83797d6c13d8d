"""Register limits and block growth, by asking the table of variants; nothing is launched."""

import dataclasses
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fuser.errors import CompilationError, LaunchError, VariantUnavailableError
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.compiled_kernel import Resources
from fuser.runtime.kernels.nvrtc import CompileResult, NvrtcUnavailableError
from fuser.runtime.kernels.variants import KernelVariants, VariantCounters, bound_options, largest_block, rung_of
from tests.runtime.variant_kernels import HUNGRY, ONLY_TO_512, RAW_HUNGRY, SMALL, kernel_of


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """Results (or exceptions) of `work` in threads that start together."""
    barrier = threading.Barrier(count)
    results: list[object] = []

    def one() -> None:
        barrier.wait()
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    threads = [threading.Thread(target=one) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# --- rungs ---


def test_ladder() -> None:
    ladder = {
        **dict.fromkeys((1, 32, 33, 128, 129, 256), (256, 255)),
        **dict.fromkeys((257, 384), (384, 168)),
        **dict.fromkeys((385, 512), (512, 128)),
        **dict.fromkeys((513, 640), (640, 96)),
        **dict.fromkeys((641, 768), (768, 80)),
        **dict.fromkeys((769, 896), (896, 72)),
        **dict.fromkeys((897, 1000, 1024), (1024, 64)),
    }
    assert {block: rung_of(block) for block in ladder} == ladder
    assert all(registers * block <= 65536 for block in range(1, 1025) for registers in [rung_of(block)[1]])


@pytest.mark.parametrize("block", [0, -1, 1025])
def test_block_that_no_device_holds(block: int) -> None:
    with pytest.raises(LaunchError, match=f"a block has 1 to 1024 threads, not {block}"):
        rung_of(block)


def test_largest_block() -> None:
    assert [largest_block(r) for r in (1, 64, 65, 72, 80, 96, 97, 128, 168, 169, 255, 256)] == [
        1024, 1024, 896, 896, 768, 640, 512, 512, 384, 256, 256, 0,
    ]  # fmt: skip


def test_options() -> None:
    assert bound_options(256) == ("-DFUSER_MAX_THREADS=256",)
    assert bound_options(512, min_blocks=2) == ("-DFUSER_MAX_THREADS=512", "-DFUSER_MIN_BLOCKS=2")
    assert bound_options(1024, register_cap=40) == ("-DFUSER_MAX_THREADS=1024", "-DFUSER_MAX_REGISTERS=40")
    assert bound_options(512, bounded=False) == ("-DFUSER_MAX_THREADS=512", "--maxrregcount=128")
    assert bound_options(256, bounded=False, uncapped=True) == ("-DFUSER_MAX_THREADS=256",)


# --- growth ---


def test_growth_compiles_once_per_rung() -> None:
    variants = KernelVariants()
    kernel = kernel_of(HUNGRY, "hungry")
    narrow = variants.binary_for(kernel, 128)
    assert narrow.resources is not None
    assert narrow.resources.registers > 100
    assert narrow.resources.spill_bytes == 0
    assert variants.counters().compiles == 1

    wide = variants.binary_for(kernel, 1024)
    assert wide.resources is not None
    assert wide.resources.registers <= 64
    assert variants.counters().compiles == 2

    for _ in range(499):
        assert variants.binary_for(kernel, 128) is narrow
        assert variants.binary_for(kernel, 1024) is wide
    assert variants.counters() == VariantCounters(compiles=2, hits=998)


def test_smaller_and_equal_blocks_never_compile() -> None:
    variants = KernelVariants()
    kernel = kernel_of(SMALL, "small")
    first = variants.binary_for(kernel, 128)
    assert variants.binary_for(kernel, 256) is first
    assert variants.binary_for(kernel, 64) is first
    assert variants.binary_for(kernel, 1) is first
    assert variants.counters().compiles == 1


def test_a_larger_binary_serves_smaller_blocks() -> None:
    variants = KernelVariants()
    kernel = kernel_of(SMALL, "small")
    wide = variants.binary_for(kernel, 1024)
    assert variants.binary_for(kernel, 128) is wide
    assert variants.binary_for(kernel, 512) is wide
    assert variants.counters().compiles == 1


def test_eight_threads_ask_for_a_cold_rung() -> None:
    variants = KernelVariants()
    kernel = kernel_of(HUNGRY, "hungry")
    variants.binary_for(kernel, 128)
    results = in_threads(8, lambda: variants.binary_for(kernel, 1024))
    assert len({id(r) for r in results}) == 1
    counters = variants.counters()
    assert counters.compiles == 2
    assert counters.waits + counters.hits == 7


def test_own_binary_is_put_in_at_first_use() -> None:
    result = nvrtc.compile_to_cubin(HUNGRY, ("hungry",), "sm_90a", bound_options(256))
    kernel = kernel_of(
        HUNGRY, "hungry", cubin=result.cubin, resources=result.resources["hungry"], max_block_size=256, log=result.log
    )
    variants = KernelVariants()
    assert variants.binary_for(kernel, 256).cubin == result.cubin
    assert variants.counters() == VariantCounters(hits=1, seeded=1)
    variants.binary_for(kernel, 1024)
    assert variants.counters().compiles == 1
    # An equal kernel (unpickled, say) finds the same binaries.
    twin = pickle.loads(pickle.dumps(kernel))
    assert twin is not kernel
    assert variants.binaries_of(twin) == variants.binaries_of(kernel)
    assert len(variants.binaries_of(twin)) == 2


def test_everything_but_the_rung_is_in_the_key() -> None:
    variants = KernelVariants()
    kernel = kernel_of(SMALL, "small")
    variants.binary_for(kernel, 128)
    for changes in (
        {"source": SMALL + "\n"},
        {"options": ("--fmad=false",)},
        {"arch": "sm_80"},
        {"min_blocks": 2},
        {"register_cap": 40},
        {"nvrtc_version": (1, 2)},
    ):
        variants.binary_for(dataclasses.replace(kernel, **changes), 128)
    assert variants.counters().compiles == 7


def test_added_binary_serves() -> None:
    donor = KernelVariants()
    kernel = kernel_of(SMALL, "small")
    binary = donor.binary_for(kernel, 1024)
    variants = KernelVariants(refuse_to_compile)
    variants.add(kernel, binary)
    assert variants.binary_for(kernel, 700) is binary


def refuse_to_compile(*_: object, **__: object) -> CompileResult:
    raise AssertionError("nothing is to be compiled")


# --- min blocks and caps ---


def test_min_blocks_limits_registers() -> None:
    variants = KernelVariants()
    binary = variants.binary_for(kernel_of(HUNGRY, "hungry", min_blocks=4), 256)
    assert binary.resources is not None
    assert binary.resources.registers <= 64


def test_cap_takes_effect_and_is_one_binary() -> None:
    variants = KernelVariants()
    kernel = kernel_of(HUNGRY, "hungry", register_cap=64)
    binary = variants.binary_for(kernel, 128)
    assert binary.resources is not None
    assert binary.resources.registers <= 64
    assert "-DFUSER_MAX_REGISTERS" not in binary.log
    assert variants.binary_for(kernel, 1024) is binary
    assert variants.counters().compiles == 1


def test_block_that_a_cap_cannot_hold() -> None:
    variants = KernelVariants()
    kernel = kernel_of(HUNGRY, "hungry", register_cap=120)
    assert variants.binary_for(kernel, 512).max_threads == 512
    for _ in range(2):
        with pytest.raises(LaunchError) as caught:
            variants.binary_for(kernel, 1024)
        assert str(caught.value) == (
            "kernel hungry: a block of 1024 threads can have 64 registers a thread, and with maxrregcount=120 the kernel "
            "uses 120. Use a smaller block or a lower cap"
        )
    assert variants.counters().compiles == 1


@pytest.mark.parametrize("changes", [{"register_cap": 120}, {"bounded": False, "fixed_bounds": 512}])
def test_own_binary_without_a_thread_bound_is_the_only_one(changes: dict[str, Any]) -> None:
    first = KernelVariants().binary_for(kernel_of(HUNGRY, "hungry", register_cap=120), 128)
    kernel = kernel_of(HUNGRY, "hungry", cubin=first.cubin, resources=first.resources, max_block_size=256, **changes)
    variants = KernelVariants(refuse_to_compile)
    assert variants.binary_for(kernel, 512).cubin == first.cubin
    with pytest.raises(LaunchError, match="a block of 1024 threads"):
        variants.binary_for(kernel, 1024)


def test_own_raw_binary_is_not_compiled_again_before_the_capped_one() -> None:
    first = KernelVariants().binary_for(kernel_of(RAW_HUNGRY, "hungry", bounded=False), 128)
    kernel = kernel_of(
        RAW_HUNGRY,
        "hungry",
        bounded=False,
        cubin=first.cubin,
        resources=first.resources,
        max_block_size=first.max_threads,
    )
    variants = KernelVariants()
    variants.binary_for(kernel, 1024)
    assert variants.counters() == VariantCounters(compiles=1, seeded=1)


# --- raw sources without bounds ---


def test_raw_source_is_compiled_free_first_and_capped_when_the_block_grows() -> None:
    variants = KernelVariants()
    kernel = kernel_of(RAW_HUNGRY, "hungry", bounded=False)
    free = variants.binary_for(kernel, 128)
    assert free.resources is not None
    assert free.resources.registers > 100
    assert free.max_threads == largest_block(free.resources.registers)
    assert variants.binary_for(kernel, free.max_threads) is free
    capped = variants.binary_for(kernel, 1024)
    assert capped.resources is not None
    assert capped.resources.registers <= 64
    assert variants.counters().compiles == 2
    for _ in range(50):
        variants.binary_for(kernel, 128)
        variants.binary_for(kernel, 1024)
    assert variants.counters().compiles == 2


def test_raw_source_that_uses_few_registers_serves_every_block() -> None:
    variants = KernelVariants()
    source = 'extern "C" __global__ void small(float* y) { y[threadIdx.x] = 1.0f; }'
    kernel = kernel_of(source, "small", bounded=False)
    binary = variants.binary_for(kernel, 1024)
    assert binary.max_threads == 1024
    assert variants.binary_for(kernel, 32) is binary
    assert variants.counters().compiles == 1


def test_fixed_bounds_are_an_error_above() -> None:
    source = 'extern "C" __global__ void __launch_bounds__(128) small(float* y) { y[threadIdx.x] = 1.0f; }'
    kernel = kernel_of(source, "small", bounded=False, fixed_bounds=128)
    variants = KernelVariants()
    assert variants.binary_for(kernel, 128).max_threads == 128
    with pytest.raises(LaunchError, match="a block of 129 threads is above the launch bounds of its source, 128"):
        variants.binary_for(kernel, 129)
    assert variants.counters().compiles == 1


# --- failures ---


def test_failed_variant_leaves_the_others_serving() -> None:
    variants = KernelVariants()
    kernel = kernel_of(ONLY_TO_512, "small")
    served = variants.binary_for(kernel, 512)
    for threads in (1024, 1024, 1000):
        with pytest.raises(CompilationError) as caught:
            variants.binary_for(kernel, threads)
        assert str(caught.value).startswith(
            f"kernel small: no binary for a block of {threads} threads (64 registers a thread, compiled for blocks up to 1024)"
        )
        assert '#error directive: "too many threads"' in str(caught.value)
        assert '#error directive: "too many threads"' in caught.value.log
        assert variants.binary_for(kernel, 512) is served
    counters = variants.counters()
    assert (counters.compiles, counters.failures, counters.repeated_failures) == (1, 1, 2)


def test_failure_reaches_every_waiting_thread() -> None:
    variants = KernelVariants()
    kernel = kernel_of(ONLY_TO_512, "small")
    results = in_threads(8, lambda: variants.binary_for(kernel, 1024))
    assert all(isinstance(r, CompilationError) and "too many threads" in r.log for r in results)
    assert len({id(r) for r in results}) == 8
    assert variants.counters().failures == 1


def test_limit_that_takes_no_effect_is_an_error() -> None:
    def lie(source: str, entries: tuple[str, ...], arch: str, options: tuple[str, ...]) -> CompileResult:
        return CompileResult(
            b"", {entries[0]: Resources(65, 0, 0, 0)}, {entries[0]: entries[0]}, "the log", (12, 9), arch
        )

    with pytest.raises(
        CompilationError, match="the register limit of 64 did not take effect: the entry uses 65"
    ) as caught:
        KernelVariants(lie).binary_for(kernel_of(SMALL, "small"), 1024)
    assert caught.value.log == "the log"


def test_interrupted_build_is_taken_over() -> None:
    asked = 0

    def interrupted_once(*args: Any, **options: Any) -> CompileResult:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise KeyboardInterrupt
        return nvrtc.compile_to_cubin(*args, **options)

    variants = KernelVariants(interrupted_once)
    kernel = kernel_of(SMALL, "small")
    with pytest.raises(KeyboardInterrupt):
        variants.binary_for(kernel, 128)
    assert variants.binary_for(kernel, 128).max_threads == 256


def test_without_nvrtc() -> None:
    present = False

    def maybe(*args: Any, **options: Any) -> CompileResult:
        if not present:
            raise NvrtcUnavailableError("no NVRTC library was found")
        return nvrtc.compile_to_cubin(*args, **options)

    variants = KernelVariants(maybe)
    kernel = kernel_of(SMALL, "small")
    with pytest.raises(VariantUnavailableError) as caught:
        variants.binary_for(kernel, 300)
    assert str(caught.value) == (
        "kernel small: a block of 300 threads needs a binary for blocks up to 384, and it cannot be compiled: "
        "no NVRTC library was found"
    )
    present = True
    assert variants.binary_for(kernel, 300).max_threads == 384


def test_nvrtc_is_imported_on_a_miss_only() -> None:
    program = (
        "import sys\n"
        "from fuser.runtime.kernels.variants import KernelVariants, Binary\n"
        "from fuser.runtime.kernels.compiled_kernel import CompiledKernel\n"
        "rest = (None, 256, 255, (), (12, 9), '')\n"
        "kernel = CompiledKernel('text', 'k', 'sm_90a', b'cubin', None, (), None, frozenset(), *rest)\n"
        "assert KernelVariants().binary_for(kernel, 200).cubin == b'cubin'\n"
        "assert 'fuser.runtime.kernels.nvrtc' not in sys.modules\n"
        "assert not any(name.startswith('cuda') for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
