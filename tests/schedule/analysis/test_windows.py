"""Pointwise kernels with windows: indices that are tested belong to loops, and clamps go where extents allow it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import ExtentWithin, TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.params import PointwiseParams
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler

Float, BFloat16, Int = DataType.Float, DataType.BFloat16, DataType.Int


def rotary(fd: Any, length: int, width: int) -> None:
    """q * cos + rotated(q) * sin of [batch, length, width]."""
    half = width // 2
    q = fd.define_tensor([-1, -1, -1], True, BFloat16)
    cos, sin = (fd.define_tensor([-1, -1], True, BFloat16) for _ in range(2))
    first = fd.ops.slice(q, [0, 0, 0], [64, length, half])
    second = fd.ops.slice(q, [0, 0, half], [64, length, width])
    turned = fd.ops.cat([fd.ops.cast(-second, BFloat16), first], -1)
    wide = fd.ops.cast(q, Float) * fd.ops.cast(cos, Float) + fd.ops.cast(turned, Float) * fd.ops.cast(sin, Float)
    fd.add_output(fd.ops.cast(wide, BFloat16))


def optimized(define: Callable[[Any], None]) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)


def dense(*sizes: int, dtype: DataType = BFloat16) -> TensorDescriptor:
    strides = [int(np.prod(sizes[k + 1 :])) for k in range(len(sizes))]
    return TensorDescriptor(dtype, sizes, tuple(strides), 256, 0)


def compiled(fusion: Fusion, inputs: list[TensorDescriptor]) -> CompiledKernel:
    return KernelCompiler(DeviceInfo.preset("H200")).compile(fusion, inputs)


def proposed(fusion: Fusion, inputs: list[TensorDescriptor]) -> PointwiseParams:
    bound = bind_inputs(fusion, inputs)
    params = PointwiseScheduler().propose(
        fusion, SegmentInputs(bound.tensors, bound.evaluate), DeviceInfo.preset("H200")
    )
    assert isinstance(params, PointwiseParams)
    return params


def test_rotary_embedding_divides_no_index_and_clamps_no_extent() -> None:
    fusion = optimized(lambda fd: rotary(fd, 4096, 128))
    kernel = compiled(fusion, [dense(64, 4096, 128), dense(4096, 128), dense(4096, 128)])
    body = kernel.source[kernel.source.index('extern "C"') :]
    assert "%" not in body
    assert " ? " not in body
    assert any(isinstance(f, ExtentWithin) and f.low == 128 for f in kernel.facts)


def test_shorter_inputs_keep_their_clamps() -> None:
    """An input that ends before the slices do: a kernel of its own, without the fact."""
    fusion = optimized(lambda fd: rotary(fd, 4096, 128))
    kernel = compiled(fusion, [dense(64, 1000, 128), dense(1000, 128), dense(1000, 128)])
    assert not any(isinstance(f, ExtentWithin) and f.low == 4096 for f in kernel.facts)


@pytest.mark.parametrize("lengths", [(3, 17), (64, 50)])
def test_rotary_embedding_on_the_simulator(lengths: tuple[int, int]) -> None:
    batch, length = lengths
    with FusionDefinition() as fd:
        rotary(fd, 40, 32)
    rng = np.random.default_rng(1)
    q = rng.normal(0, 1, (batch, min(length, 40), 32)).astype(ml_dtypes.bfloat16)
    cos, sin = (rng.uniform(-1, 1, q.shape[1:]).astype(ml_dtypes.bfloat16) for _ in range(2))
    (found,) = fd.execute([q, cos, sin], device="simulator")
    wide = q.astype(np.float32)
    turned = np.concatenate([-wide[..., 16:], wide[..., :16]], -1)
    want = wide * cos.astype(np.float32) + turned * sin.astype(np.float32)
    np.testing.assert_array_equal(np.asarray(found), want.astype(ml_dtypes.bfloat16))


def test_zeros_outside_a_window_are_a_vector() -> None:
    """A pad reads a vector or takes zeros for it, whole registers in both cases."""

    def padded(fd: Any) -> None:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        fd.add_output(fd.ops.cast(fd.ops.exp(fd.ops.pad(x, [8, 8])), BFloat16))

    source = compiled(optimized(padded), [dense(4096, 4096)]).source
    assert '"+r"(read.x), "+r"(read.y), "+r"(read.z), "+r"(read.w)' in source
    assert "fuser_bfloat16{0x0000}" not in source


def test_rows_that_share_a_broadcast_are_one_thread_s() -> None:
    fusion = optimized(lambda fd: rotary(fd, 4096, 128))
    params = proposed(fusion, [dense(64, 4096, 128), dense(4096, 128), dense(4096, 128)])
    assert (params.merged_dims, params.block_shape[0], params.unroll_loop) == (((1,),) * 3, 0, 2)
    assert params.unroll > 1


def test_gathered_rows_are_under_way_together() -> None:
    def embedding(fd: Any) -> None:
        table, index = fd.define_tensor([-1, -1], True, BFloat16), fd.define_tensor([-1], True, Int)
        fd.add_output(fd.ops.cast(fd.ops.cast(fd.ops.embedding_fwd(index, table), Float) * 2.0, BFloat16))

    params = proposed(optimized(embedding), [dense(32000, 4096), dense(16384, dtype=Int)])
    assert params.unroll > 1
    few = proposed(optimized(embedding), [dense(32000, 4096), dense(64, dtype=Int)])
    assert few.unroll == 1
