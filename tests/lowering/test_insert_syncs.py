"""Barriers of generated kernels: the simulator finds a race as soon as any of them is taken away, and none with all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from fuser import Allocate, DataType, FusionDefinition, HostProgram, KernelCompiler, LaunchKernel, extent
from fuser.ir.kernel import BlockBarrier, Kernel, Stmt, map_body, walk
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import get_device
from fuser.simulator.errors import SimulatorError


def softmax(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    e = fd.ops.exp(x - fd.ops.max(x, dim=1, keepdim=True))
    fd.add_output(e / fd.ops.sum(e, dim=1, keepdim=True))


def layer_norm(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    variance, mean = fd.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
    fd.add_output((x - mean) * fd.ops.rsqrt(variance + 1e-5))


def columns(fd: FusionDefinition) -> None:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    fd.add_output(x - fd.ops.sum(x, dim=0, keepdim=True))


X = np.random.default_rng(0).standard_normal((70, 500)).astype(np.float32)


def compiled(define: Callable[[FusionDefinition], None]) -> CompiledKernel:
    with FusionDefinition() as fd:
        define(fd)
    return KernelCompiler(get_device("simulator")).compile(fd.fusion, [X])


def barriers(kernel: Kernel) -> int:
    return sum(isinstance(s, BlockBarrier) for s in walk(kernel.body))


def without(kernel: Kernel, number: int) -> Kernel:
    """The kernel less one of its barriers, counted in the order of the text."""
    seen = -1

    def drop(s: Stmt) -> tuple[Stmt, ...] | None:
        nonlocal seen
        if isinstance(s, BlockBarrier):
            seen += 1
            return () if seen == number else None
        return None

    return dataclasses.replace(kernel, body=map_body(kernel.body, drop))


def run(kernel: CompiledKernel) -> None:
    rows, cols = extent("x", 0), extent("x", 1)
    instructions = (Allocate("y", (rows, cols), DataType.Float), LaunchKernel(kernel, ("x", "y")))
    HostProgram(("x",), ("y",), instructions).run([X], device="simulator")


@pytest.mark.parametrize(("define", "count"), [(softmax, 3), (layer_norm, 1), (columns, 1)])
def test_every_barrier_is_needed(define: Callable[[FusionDefinition], None], count: int) -> None:
    kernel = compiled(define)
    assert kernel.kernel_ir is not None
    assert barriers(kernel.kernel_ir) == count
    run(kernel)
    for number in range(count):
        fewer = without(kernel.kernel_ir, number)
        assert barriers(fewer) == count - 1
        with pytest.raises(SimulatorError, match="race"):
            run(dataclasses.replace(kernel, kernel_ir=fewer, content_hash=f"{kernel.content_hash}-{number}"))


def test_a_barrier_says_which_pair_needs_it() -> None:
    source = compiled(softmax).source
    lines = [line.strip() for line in source.splitlines() if "__syncthreads" in line]
    assert all(" before " in line and "//" in line for line in lines)
