"""Kernels in hand-written IR that run on the simulator and on a GPU."""

from __future__ import annotations

from fuser.codegen.generate import generate_cuda
from fuser.ir.integers.integers import as_int, ceil_div, less, symbol
from fuser.ir.kernel.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
    Buffer,
    Call,
    ExtentParameter,
    If,
    Kernel,
    Load,
    ScalarArgument,
    ScalarParameter,
    Store,
    TensorParameter,
)
from fuser.ir.kernel.launch_plan import Binding, ExtentOf, LaunchPlan, StrideOf
from fuser.ir.ops.dtypes import DataType, widen
from fuser.ir.ops.enums import GLOBAL_MEMORY, ParallelType
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, content_hash


def scale_kernel(dtype: DataType = DataType.Float, arch: str = "sm_90a", block: int = 128) -> CompiledKernel:
    """y[i] = x[i] * alpha for a vector x of any stride and a dense y."""
    n, s = symbol("n"), symbol("s")
    index = (
        THREAD_SYMBOLS[ParallelType.grid_x] * SIZE_SYMBOLS[ParallelType.block_x] + THREAD_SYMBOLS[ParallelType.block_x]
    )
    x = Buffer("x", dtype, GLOBAL_MEMORY, n * s, "x")
    y = Buffer("y", dtype, GLOBAL_MEMORY, n, "y")
    product = Call("mul", (Load(x, index * s), ScalarArgument("alpha", dtype)), widen(dtype), dtype)
    plan = LaunchPlan(
        tensor_arguments=("x", "y"),
        scalar_arguments=("alpha",),
        bindings=(Binding(n, ExtentOf(0, 0)), Binding(s, StrideOf(0, 0))),
        scalars=(),
        grid=(ceil_div(n, block), as_int(1), as_int(1)),
        block=(as_int(block), as_int(1), as_int(1)),
        shared_bytes=as_int(0),
        output_shapes=((n,),),
        output_strides=((as_int(1),),),
    )
    kernel = Kernel(
        name="scale",
        parameters=(
            TensorParameter(x, "x", 0, False),
            TensorParameter(y, "y", 1, True),
            ExtentParameter(n),
            ExtentParameter(s),
            ScalarParameter("alpha", dtype),
        ),
        body=(If(less(index, n), (Store(y, index, product),)),),
        plan=plan,
    )
    source = generate_cuda(kernel).text
    return CompiledKernel(
        source=source,
        entry="scale",
        arch=arch,
        cubin=None,  # made by the table of variants where a GPU launches it
        kernel_ir=kernel,
        parameters=kernel.parameters,
        plan=plan,
        facts=frozenset(),
        resources=None,
        max_block_size=0,
        register_limit=255,
        options=(),
        nvrtc_version=None,
        content_hash=content_hash(source, (), arch, None, "scale"),
    )
