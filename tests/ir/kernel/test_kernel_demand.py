"""What a thread of a kernel asks for is read off its loops; a segment whose kernel asks more than there is, is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.cases import select_cases
from benchmarks.compile_case import TextOnly, compile_case
from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import SchedulingError
from fuser.ir.device_info import H200, INSTRUCTION_BYTES
from fuser.ir.facts import TensorDescriptor
from fuser.ir.integers.integers import Symbol, as_int, symbol
from fuser.ir.kernel.kernel import Allocate, BlockBarrier, Buffer, Call, For, Load, Stmt, Store, VectorMove
from fuser.ir.kernel.kernel_demand import Demand, demand_of
from fuser.ir.ops.enums import GLOBAL_MEMORY, MemoryType

ZERO, ONE = as_int(0), as_int(1)
Float, Half, Double = DataType.Float, DataType.Half, DataType.Double


def array(name: str, size: int, dtype: DataType = Float, memory: MemoryType = MemoryType.local) -> Buffer:
    return Buffer(name, dtype, memory, as_int(size))


def loop(name: str, count: int, *body: Stmt, unroll: bool = False) -> For:
    index = symbol(name)
    assert isinstance(index, Symbol)
    return For(index, ZERO, as_int(count), ONE, body, unroll)


def added(to: Buffer, what: Buffer, op: str = "add") -> Store:
    compute = to.dtype
    return Store(to, ZERO, Call(op, (Load(to, ZERO), Load(what, ZERO)), compute, compute))


@pytest.mark.parametrize(("dtype", "words"), [(Half, 2), (Float, 4), (Double, 8), (DataType.Bool, 1)])
def test_what_an_iteration_leaves_behind_is_live(dtype: DataType, words: int) -> None:
    total, inside, out = array("total", 4, dtype), array("inside", 4, dtype), array("out", 4, dtype, GLOBAL_MEMORY)
    step = (Allocate(inside), Store(inside, ZERO, Load(out, ZERO)), added(total, inside))
    body = (
        Allocate(total),
        Store(total, ZERO, Load(out, ZERO)),
        loop("i", 8, *step),
        Store(out, ZERO, Load(total, ZERO)),
    )
    assert demand_of(body).registers == words
    # An unrolled loop ends nowhere: the compiler may order its work as it likes.
    unrolled = (*body[:2], loop("i", 8, *step, unroll=True), body[3])
    assert demand_of(unrolled).registers == 0


def test_what_is_needed_behind_a_barrier_is_live() -> None:
    out = array("out", 64, Float, GLOBAL_MEMORY)
    held, done = array("held", 5), array("done", 7)
    body = (
        *(Allocate(b) for b in (held, done)),
        *(Store(b, ZERO, Load(out, ZERO)) for b in (held, done)),
        Store(out, ZERO, Load(done, ZERO)),
        BlockBarrier(),
        Store(out, ZERO, Load(held, ZERO)),
    )
    assert demand_of(body).registers == 5


def test_loads_on_their_way_are_live() -> None:
    out, total, read = array("out", 64, Float, GLOBAL_MEMORY), array("total", 1), array("read", 16)
    step = (Allocate(read), VectorMove(read, ZERO, out, ZERO, 4), added(total, read))
    body = (
        Allocate(total),
        Store(total, ZERO, Load(out, ZERO)),
        loop("i", 8, *step),
        Store(out, ZERO, Load(total, ZERO)),
    )
    assert demand_of(body).registers == 17


def test_unrolled_loops_repeat_their_text() -> None:
    total, other = array("total", 1), array("other", 1)
    pows = added(total, other, "pow")
    one = demand_of((pows,)).instructions
    assert one > 50
    assert demand_of((loop("i", 8, pows),)).instructions == one
    inner = loop("j", 4, pows, unroll=True)
    assert demand_of((loop("i", 8, inner, unroll=True),)).instructions == 32 * one


# --- segments that ask too much ---------------------------------------------------------------------------------------

Each = Callable[[FusionDefinition, Any], list[Any]]


def reduced(op: str, dims: list[int]) -> Each:
    def each(fd: FusionDefinition, x: Any) -> list[Any]:
        result = getattr(fd.ops, op)(x, dims)
        return list(result) if isinstance(result, tuple) else [result]

    return each


def sines(dims: list[int]) -> Each:
    summed = reduced("sum", dims)
    return lambda fd, x: summed(fd, fd.ops.sin(x))


MANY: dict[str, tuple[int, Each]] = {
    "sums": (70, reduced("sum", [0, 1])),
    "sums of rows": (70, reduced("sum", [1])),
    "maxima": (64, reduced("max", [0, 1])),
    "maxima of rows": (64, reduced("max", [1])),
    "variances": (20, reduced("var_mean", [0, 1])),
    "sums of sines": (160, sines([0, 1])),
    "sines": (320, lambda fd, x: [fd.ops.sin(x)]),
}


def many(count: int, each: Each) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        for k in range(count):
            for result in each(fd, x * float(k + 1)):
                fd.add_output(result)
    return fd


@pytest.mark.in_turns
@pytest.mark.parametrize(("count", "each"), MANY.values(), ids=MANY.keys())
def test_kernels_that_ask_too_much_are_cut(count: int, each: Each) -> None:
    """None keeps more than a thread may have, and each fits the instruction cache."""
    fusion = many(count, each).fusion
    assert fusion is not None
    device: Any = TextOnly()
    described = TensorDescriptor(Float, (64, 64), (64, 1))
    program = compile_fusion(fusion.ir_fusion, bind_inputs(fusion.ir_fusion, [described]), device)
    demands: list[Demand] = []
    for kernel in program.kernels.values():
        assert kernel.kernel_ir is not None
        demands.append(demand_of(kernel.kernel_ir.body))
    assert 1 < len(demands) <= count // 2
    assert max(d.registers for d in demands) <= H200.registers_per_thread
    assert max(d.instructions for d in demands) <= H200.instruction_cache_bytes // INSTRUCTION_BYTES
    with pytest.raises(SchedulingError, match=r"a thread of the kernel that .* proposes keeps"):
        KernelCompiler(device).compile(fusion.ir_fusion, [described])


def test_parts_of_a_segment_that_asks_too_much_are_right() -> None:
    """They are no fault of a stage: nothing is logged."""
    fd = many(70, reduced("sum", [1]))
    x = np.random.default_rng(0).standard_normal((5, 129)).astype("f4")
    for k, found in enumerate(fd.execute([x], device="simulator")):
        np.testing.assert_allclose(np.asarray(found), (x.astype("f8") * (k + 1)).sum(1), rtol=1e-5, atol=1e-4)
    segments = fd.explain([x], file=False).stages["segments.py"]
    assert "a thread of the kernel that reduction proposes keeps" in segments
    assert segments.count("# segment ") == 2


@pytest.mark.slow
def test_parts_of_a_segment_that_asks_too_much_do_not_spill() -> None:
    fusion = many(40, reduced("sum", [1])).fusion
    assert fusion is not None
    bound = bind_inputs(fusion.ir_fusion, [TensorDescriptor(Float, (64, 64), (64, 1))])
    for kernel in compile_fusion(fusion.ir_fusion, bound, H200).kernels.values():
        assert kernel.resources is not None
        assert kernel.resources.spill_bytes == 0


@pytest.mark.parametrize(
    "name", ["layernorm_bwd_bf16_16384x4096", "batchnorm_cl_bf16_64x256x64x64", "var_mean_outer_bf16"]
)
def test_kernels_that_are_right_for_their_sizes_are_far_from_it(name: str) -> None:
    for case in select_cases([name]):
        program = compile_case(case, with_cubin=False)
        assert len(program.kernels) == 1
        for kernel in program.kernels.values():
            assert kernel.kernel_ir is not None
            demand = demand_of(kernel.kernel_ir.body)
            assert 0 < demand.registers < 128
            assert demand.instructions < 4096
