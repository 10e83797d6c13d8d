"""Block growth of one generated and one raw kernel, by asking the table of variants; nothing is launched.

`tests/gpu/test_block_growth_program.py` launches the same two from a host program.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels.variants import KernelVariants, VariantCounters
from tests.compiler.growth_programs import BLOCKS, generated_kernel, growth_program, raw_kernel


def test_one_variant_for_each_rung() -> None:
    info = DeviceInfo.preset("H200")
    generated, raw = generated_kernel(info), raw_kernel(info)
    assert generated.max_block_size == 256, "the kernel brings the binary of its first block's rung"
    assert generated.bounded
    assert not raw.bounded
    assert generated.resources is not None
    assert raw.resources is not None
    assert raw.resources.registers > 96, "compiled without a cap first"
    variants = KernelVariants()
    for turn in range(3):
        for block in BLOCKS:
            for kernel in (generated, raw):
                binary = variants.binary_for(kernel, block)
                assert binary.resources is not None
                assert binary.max_threads >= block
                assert binary.resources.registers * block <= 65536
                assert binary.resources.spill_bytes == 0 or (kernel is raw and block == 1024)
        counters = variants.counters()
        assert counters.compiles == 2, turn
        assert counters.seeded == 2
        assert counters.failures == 0
        assert counters.hits == 6 * (turn + 1) - 2
    narrow, wide = variants.binaries_of(generated)
    assert (narrow.max_threads, wide.max_threads) == (256, 1024)
    assert narrow.cubin == generated.cubin
    free, capped = variants.binaries_of(raw)
    assert free.cubin == raw.cubin
    assert capped.resources is not None
    assert capped.resources.registers <= 64
    assert capped.max_threads == 1024


def test_growth_within_a_rung_is_free() -> None:
    info = DeviceInfo.preset("H200")
    generated = generated_kernel(info)
    variants = KernelVariants()
    for block in (128, 256, 1, 129, 255):
        variants.binary_for(generated, block)
    assert variants.counters() == VariantCounters(hits=5, seeded=1)


def test_program_is_well_formed() -> None:
    """The program of the GPU test, checked and printed here."""
    info = DeviceInfo.preset("H200")
    program = growth_program(generated_kernel(info), raw_kernel(info), 128)
    assert program.inputs == ("x",)
    assert len(program.launches()) == 2
    assert 'Deallocate("y")' in repr(program) or "Deallocate('y')" in repr(program)
