"""How far reductions and pointwise kernels unroll follows from the length of what they compute and the instruction cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.compile_case import TextOnly
from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.ir.device_info import H200, INSTRUCTION_BYTES, DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.kernel.kernel_demand import Demand, demand_of
from fuser.runtime.kernels.compiled_kernel import BlocksBy
from fuser.schedule.analysis.data_passes import computing_pass_counts, empty_schedule
from fuser.schedule.cost.instruction_cache import element_instructions, max_unrolled_elements
from fuser.schedule.params import PointwiseParams, ReductionParams
from fuser.schedule.segmentation.segment import Segment, choose_scheduler
from tests.compiler.min_blocks import asking_for_four_blocks

Float, Double = DataType.Float, DataType.Double


def results(op: str, count: int, dims: Sequence[int] | None, dtype: DataType = Float) -> Fusion:
    """`count` results of an op, summed over `dims` unless that is None."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, dtype)
        for k in range(count):
            y = getattr(fd.ops, op)(x * float(k + 2))
            fd.add_output(y if dims is None else fd.ops.sum(y, dims))
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def params_of(fusion: Fusion, rows: int, columns: int, device: DeviceInfo = H200) -> ReductionParams | PointwiseParams:
    scheduler, refusals = choose_scheduler(fusion)
    assert scheduler is not None
    bound = bind_inputs(fusion, [TensorDescriptor(fusion.input_tensors[0].dtype, (rows, columns), (columns, 1))])
    params = KernelCompiler(device).propose(Segment(fusion, scheduler, refusals), bound)
    assert isinstance(params, (ReductionParams, PointwiseParams))
    return params


def demands(fusion: Fusion, rows: int, columns: int) -> list[Demand]:
    """Of every kernel of the fusion's program."""
    bound = bind_inputs(fusion, [TensorDescriptor(fusion.input_tensors[0].dtype, (rows, columns), (columns, 1))])
    program = compile_fusion(fusion, bound, TextOnly())  # type: ignore[arg-type]
    kernels = [i.kernel.kernel_ir for i in program.instructions if isinstance(i, LaunchKernel)]
    return [demand_of(k.body) for k in kernels if k is not None]


@pytest.mark.parametrize("dims", [None, [0], [1], [0, 1]])
@pytest.mark.parametrize("dtype", [Float, Double])
def test_what_is_computed_for_an_element_is_counted(dims: list[int] | None, dtype: DataType) -> None:
    one, two = (element_instructions(results("sin", n, dims, dtype)) for n in (1, 2))
    assert two == 2 * one
    assert one > element_instructions(results("neg", 1, dims, dtype))


def test_without_reductions_nothing_is_computed_in_several_stages() -> None:
    """So that nobody has to make a schedule to ask."""
    assert computing_pass_counts(empty_schedule(results("sin", 3, None))) == {}


def test_what_stages_compute_anew_is_counted_for_each() -> None:
    def lengths(again: bool) -> int:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True, Float)
            y = fd.ops.sin(x)
            total = fd.ops.sum(y, [0], keepdim=True)
            fd.add_output(total)
            # The other dims of a value count for nothing: it is computed once for many elements.
            fd.add_output(fd.ops.tan(total))
            if again:
                fd.add_output(fd.ops.mul(y, total))
        assert fd.fusion is not None
        return element_instructions(fd.fusion.ir_fusion)

    assert lengths(again=True) > 2 * lengths(again=False) - 10


@pytest.mark.in_turns
@pytest.mark.parametrize("dims", [None, [0], [1], [0, 1]])
@pytest.mark.parametrize(
    ("op", "dtype", "shape"), [("sin", Float, (64, 64)), ("sin", Float, (4096, 4096)), ("log1p", Double, (64, 64))]
)
def test_many_long_results_are_few_kernels(
    op: str, dtype: DataType, shape: tuple[int, int], dims: list[int] | None
) -> None:
    """Forty of them, of which a kernel that unrolls as for short ones would have two."""
    found = demands(results(op, 40, dims, dtype), *shape)
    assert len(found) <= 4
    assert max(d.instructions for d in found) * INSTRUCTION_BYTES <= H200.instruction_cache_bytes


@pytest.mark.parametrize("dims", [None, [0], [1], [0, 1]])
def test_short_ops_are_repeated_as_memory_wants(dims: list[int] | None) -> None:
    fusion = results("neg", 1, dims)
    plenty = replace(H200, instruction_cache_bytes=1 << 30)
    assert params_of(fusion, 4096, 4096) == params_of(fusion, 4096, 4096, plenty)


@pytest.mark.parametrize("dims", [None, [0], [1], [0, 1]])
def test_a_smaller_cache_holds_shorter_loops(dims: list[int] | None) -> None:
    fusion = results("sin", 4, dims)
    for size in (1 << 30, 1 << 16, 1 << 14, 1 << 10):
        device = replace(H200, instruction_cache_bytes=size)
        params = params_of(fusion, 4096, 4096, device)
        if dims is None:
            # Vectors of what is written stay: they are few elements.
            assert params.unroll == 1 or params.unroll * params.vector <= max_unrolled_elements(fusion, device)
        else:
            assert params.unroll * params.vector <= max_unrolled_elements(fusion, device)


def test_blocks_for_which_a_kernel_must_spill_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schedule asks for more of them than leave room for what each thread adds up."""
    asking_for_four_blocks(monkeypatch)
    fusion = results("neg", 20, [0, 1])
    kernel = KernelCompiler(H200).compile(fusion, [TensorDescriptor(Float, (64, 64), (64, 1))])
    assert kernel.kernel_ir is not None
    of_block = 256 * demand_of(kernel.kernel_ir.body).registers
    assert kernel.kernel_ir.min_blocks * of_block > H200.registers_per_sm
    assert kernel.blocks_by is BlocksBy.spills
    assert all(blocks * of_block <= H200.registers_per_sm for blocks in kernel.spilled_with)
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert "because it spills with" in kernel.blocks_text[0]
