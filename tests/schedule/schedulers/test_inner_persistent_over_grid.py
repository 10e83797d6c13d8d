"""Rows over groups of blocks that meet in device memory: values in registers and in shared memory, single rows, no spill."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, REGISTER_STEP
from fuser.ir.kernel.kernel import SpinWait, walk
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.runtime.kernels.nvrtc import is_available
from fuser.schedule.cost import row_mappings
from fuser.schedule.params import InnerPersistentParams
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import (
    Definition,
    add_norm,
    arrays_for,
    assert_near,
    described,
    fusion_of,
    layer_norm,
    reference,
    shapes_of,
    softmax,
)
from tests.judging.harness import run_on
from tests.schedule.forced_rows import (
    change_proposals,
    execute_rows,
    go_over_groups,
    propose_only,
    proposed,
    run_rows,
)

D = DataType
LENGTHS = [(5, 1000, 2), (3, 1544, 3), (2, 997, 1), (3, 1001, 4)]


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16])
@pytest.mark.parametrize(("rows", "length", "groups"), LENGTHS)
@pytest.mark.parametrize("in_shared", [False, True])
def test_values(
    define: Definition,
    dtype: DataType,
    rows: int,
    length: int,
    groups: int,
    in_shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One row a group and several, more groups than rows, rows that begin anywhere."""
    if in_shared and length % 8:
        pytest.skip("such rows are not copied in whole accesses")
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    one_pass = define is not add_norm
    go_over_groups(monkeypatch, lambda m: m.in_shared == in_shared and m.one_pass == one_pass, groups)
    kernel, body = run_rows(define, dtype, rows, length)
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    exchanges = sum(isinstance(s, SpinWait) for s in walk(body.body))
    assert exchanges == 1, "maximum and sum at once, mean and variance as well"


@pytest.mark.parametrize("in_shared", [False, True])
def test_two_passes_meet_twice(in_shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    go_over_groups(monkeypatch, lambda m: m.in_shared == in_shared and not m.one_pass)
    _, body = run_rows(layer_norm, D.BFloat16, 3, 1544)
    assert sum(isinstance(s, SpinWait) for s in walk(body.body)) == 2, "mean, and variance"


@pytest.mark.parametrize("inputs_only", [False, True])
def test_what_is_kept_in_registers(inputs_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several stages need, or what they compute it from."""
    go_over_groups(monkeypatch, lambda m: not m.in_shared)
    change_proposals(monkeypatch, lambda p: replace(p, inputs_only=inputs_only))
    run_rows(softmax, D.BFloat16, 3, 1544)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("length", "sharing"),
    [(40, "block"), (999, "block"), (50_001, "cluster"), (50_001, "group"), (100_000, "cluster"), (100_000, "group")],
)
@pytest.mark.parametrize("dtype", [D.Float, D.BFloat16])
def test_single_rows(
    define: Definition, length: int, sharing: str, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row alone is taken, too, though nothing tells its elements from weights: by a block, by a cluster or by a group."""
    propose_only(
        monkeypatch,
        lambda m: ("group" if m.groups else "cluster" if m.sharing > 1 else "block") == sharing and not m.in_shared,
    )
    arrays = arrays_for(define, dtype, 1, length)
    found, _ = execute_rows(define, arrays, dtype)
    assert_near(found, reference(define, arrays), dtype)


@pytest.mark.in_turns
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [100_000, 50_001])
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Double])
def test_rows_over_the_whole_device(
    define: Definition, length: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights that are loaded before the blocks meet, where accesses are whole."""
    propose_only(monkeypatch, lambda m: m.groups > 0)
    kernel, _ = run_rows(define, dtype, 2, length)
    assert kernel.plan is not None
    assert kernel.plan.cooperative


def test_weights_along_a_part_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group norm: a weight for each channel, of which a row has several."""
    propose_only(monkeypatch, lambda m: m.groups > 0)

    def define(fd: FusionDefinition, dtype: DataType) -> None:
        x = fd.define_tensor(shape=[-1, -1, -1, -1], dtype=dtype, contiguity=True)
        w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
        f = fd.ops.cast(x, D.Float)
        variance, mean = fd.ops.var_mean(f, [1, 2, 3], 0, True)
        y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
        wide = fd.ops.broadcast(fd.ops.cast(w, D.Float), [True, False, True, True])
        fd.add_output(fd.ops.cast(fd.ops.mul(y, wide), dtype))

    device, shapes, fusion = SimulatorDevice(info=H200), ((2, 3, 64, 96), (3,)), fusion_of(define, D.Half)
    kernel = KernelCompiler(device).compile(fusion, [described(D.Half, *s) for s in shapes])
    assert kernel.plan is not None
    assert kernel.plan.cooperative
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(np.float16) for s in shapes]
    found = run_on(device, kernel, fusion, arrays)
    x, w = (a.astype(np.float64) for a in arrays)
    want = (x - x.mean((1, 2, 3), keepdims=True)) / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], want * w[:, None, None], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", [D.BFloat16, D.Float], ids=lambda d: d.name)
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm], ids=lambda d: d.__name__)
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("in_shared", [False, True])
def test_few_long_rows_can_be_lowered(
    rows: int, define: Definition, dtype: DataType, in_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row is a fact of its kernel: no loop over rows is left, and no next row to copy."""
    if rows == 1 and in_shared:
        pytest.skip("nothing tells a single row from what all rows would share")
    propose_only(monkeypatch, lambda m: m.groups > 0 and m.in_shared == in_shared)
    shapes = [described(dtype, *s) for s in shapes_of(define, rows, 1 << 20)]
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fuse_exp_sums(fusion_of(define, dtype)), shapes)
    assert kernel.plan is not None
    assert kernel.plan.cooperative


def assert_all_are_resident(params: InnerPersistentParams, registers: int) -> None:
    """With what their threads were given."""
    assert params.groups is not None
    assert 0 < params.cluster * params.groups.count <= params.groups.resident * H200.sm_count
    taken = -(-registers // REGISTER_STEP) * REGISTER_STEP * params.threads * params.groups.resident
    assert taken <= H200.registers_per_sm


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("define", [softmax, add_norm, layer_norm])
@pytest.mark.parametrize(
    ("rows", "length", "dtype"),
    [
        (64, 1 << 20, D.BFloat16),
        (1, 1_000_003, D.BFloat16),
        (2, 250_003, D.Double),
        (9, 128_256, D.BFloat16),
        (5, 1_000_000, D.Float),
        (3, 4_000_000, D.BFloat16),
    ],
)
def test_registers_of_a_few_long_rows_suffice(
    rows: int, length: int, dtype: DataType, define: Definition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All blocks are there at once, and nothing spills."""
    propose_only(monkeypatch, lambda m: m.groups > 0)
    fusion, shapes = fuse_exp_sums(fusion_of(define, dtype)), shapes_of(define, rows, length)
    params = proposed(fusion, *shapes, dtype=dtype)
    kernel = KernelCompiler(H200).compile(fusion, [described(dtype, *s) for s in shapes])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == kernel.resources.stack_bytes == 0
    assert_all_are_resident(params, kernel.resources.registers)


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [3_900_000, 4_000_000, 4_000_003, 4_100_000])
def test_what_is_compiled_for_a_few_rows_does_not_spill(length: int, define: Definition) -> None:
    """Where threads of the largest blocks have too few registers, the next mapping is taken."""
    fusion, shapes = fuse_exp_sums(fusion_of(define, D.Float)), shapes_of(define, 3, length)
    kernel = KernelCompiler(H200).compile(fusion, [described(D.Float, *s) for s in shapes])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0


@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize(("rows", "length"), [(8, 128_256), (4, 128_256), (16, 50_256), (2, 250_000)])
@pytest.mark.parametrize("has_gradient", [False, True], ids=["rms_norm", "softmax_bwd"])
def test_several_blocks_of_sums_of_doubles_share_a_processor(
    rows: int, length: int, has_gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registers were counted as of exponentials: one block a processor at most, or rows in the shared memory of clusters."""

    def define(fd: FusionDefinition, dtype: DataType) -> None:
        x = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
        if has_gradient:
            y = fd.define_tensor(shape=[-1, -1], dtype=dtype, contiguity=True)
            fd.add_output(y * (x - fd.ops.sum(x * y, [1], keepdim=True)))
        else:
            fd.add_output(x * fd.ops.rsqrt(fd.ops.sum(x * x, [1], keepdim=True) + 1e-6))

    monkeypatch.setattr(row_mappings, "GROUP_THREADS", (128, 256))
    propose_only(monkeypatch, lambda m: m.groups > 0 and not m.in_shared and m.resident > 1)
    fusion = fusion_of(define, D.Double)
    shapes = [(rows, length)] * len(fusion.input_tensors)
    params = proposed(fusion, *shapes, dtype=D.Double)
    kernel = KernelCompiler(H200).compile(fusion, [described(D.Double, *s) for s in shapes])
    assert kernel.resources is not None
    assert kernel.resources.spill_bytes == 0
    assert params.groups is not None
    assert params.groups.resident > 1
    assert_all_are_resident(params, kernel.resources.registers)
