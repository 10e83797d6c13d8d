"""Rows in registers, of a block and of a cluster: correctness at ragged lengths, one read of the data, few kernels."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import H200, DeviceInfo
from fuser.ir.integers.number_trace import NumberTrace
from fuser.ir.kernel.kernel import BlockBarrier, ClusterWait, ExchangeWait, Shuffle, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.optimize.pipeline import optimize_fusion
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.nvrtc import is_available
from fuser.schedule.cost import mapping_search
from fuser.schedule.cost.mapping_search import MAX_EXPLAINED
from fuser.schedule.cost.row_mappings import RowMapping
from fuser.schedule.cost.row_search import ROWS
from fuser.schedule.cost.row_space import RowSpace
from fuser.schedule.scheduler import Refused
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler, _best
from fuser.simulator.device import SimulatorDevice
from tests.fusions.rows import (
    Definition,
    add_norm,
    arrays_for,
    assert_near,
    batch_norm,
    described,
    fusion_of,
    group_norm,
    inputs_for,
    layer_norm,
    reference,
    shapes_of,
    softmax,
)
from tests.judging.harness import run_on
from tests.schedule.forced_rows import change_proposals, execute_rows, propose_only, proposed, run_rows
from tests.schedule.random_row_work import random_row_work

BFloat16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double


def in_registers(m: RowMapping) -> bool:
    """Of one block."""
    return not m.in_shared and m.sharing == 1


def kernel_for(define: Definition, rows: int, length: int, dtype: DataType = Float) -> CompiledKernel:
    inputs = [described(dtype, *s) for s in shapes_of(define, rows, length)]
    return KernelCompiler(SimulatorDevice(info=H200)).compile(fusion_of(define, dtype), inputs)


def check(define: Definition, rows: int, length: int, dtype: DataType = Float) -> None:
    arrays = arrays_for(define, dtype, rows, length)
    found, _ = execute_rows(define, arrays, dtype)
    assert_near(found, reference(define, arrays), dtype)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize(
    ("rows", "length"),
    [(1, 1), (3, 2), (5, 31), (7, 33), (2, 257), (9, 64), (2, 1000), (3, 1024), (133, 40), (2, 4099)],
)
def test_rows_of_any_length(define: Definition, rows: int, length: int) -> None:
    check(define, rows, length)


@pytest.mark.parametrize("define", [softmax, layer_norm, add_norm])
@pytest.mark.parametrize("length", [8, 136, 1001])
def test_sixteen_bit_rows(define: Definition, length: int) -> None:
    check(define, 5, length, BFloat16)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("define", "one_pass", "inputs_only"),
    [
        (softmax, False, False),
        (softmax, True, False),
        (softmax, False, True),
        (layer_norm, False, False),
        (layer_norm, True, False),
        (add_norm, False, False),
    ],
)
@pytest.mark.parametrize(("length", "threads"), [(60, 8), (250, 32), (1000, 64), (1001, 32)])
def test_rows_in_registers(
    define: Definition, length: int, threads: int, *, one_pass: bool, inputs_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several rows of a block, one of a warp, one of a block; statistics in one pass or two; with what several stages need,
    or with what they compute it from."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(
        monkeypatch,
        lambda m: in_registers(m) and (m.rows > 1) == (threads < 32) and (m.threads, m.one_pass) == (threads, one_pass),
    )
    change_proposals(monkeypatch, lambda p: replace(p, inputs_only=inputs_only))
    kernel, _ = run_rows(define, BFloat16 if inputs_only else Float, 37, length)
    assert kernel.plan is not None
    assert (kernel.plan.block[1].value > 1) == (threads < 32)


@pytest.mark.parametrize("sharing", [1, 2])
@pytest.mark.parametrize(("dtype", "length"), [(Float, 1000), (Float, 1001), (BFloat16, 4099)])
def test_weights_are_read_before_the_first_exchange(
    sharing: int, dtype: DataType, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    propose_only(monkeypatch, lambda m: m.load_all_first and m.sharing == sharing)
    _, kernel = run_rows(layer_norm, dtype, 5, length)
    order = list(walk(kernel.body))
    exchanged = next(i for i, s in enumerate(order) if isinstance(s, Shuffle))
    late = [b for s in order[exchanged:] for b, _ in stmt_reads(s) if b.is_global]
    assert not late


def test_rows_fill_the_places_of_a_processor() -> None:
    """Of what takes about as long: blocks of a warp leave half of the places for warps empty, unless registers do."""
    params = proposed(fusion_of(softmax, Float), (100000, 256), dtype=Float)
    assert params.threads == 32
    assert params.rows > 1


def test_moments_of_rows_far_from_zero() -> None:
    rng = np.random.default_rng(1)
    x = (rng.normal(size=(3, 515)) + 3e3).astype(np.float32)
    with FusionDefinition() as fd:
        layer_norm(fd)
    found = fd.execute([x, np.ones(515, np.float32)], device="simulator")[0]
    exact = x.astype(np.float64)
    expected = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    # The mean is 3e3: half an ulp of it is 1.2e-4 of a deviation of 1, and that is all that is lost.
    np.testing.assert_allclose(found, expected, atol=1.5e-4)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 8, 16)])
def test_two_reduced_dims(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(7).normal(size=shape).astype("f4")
    found, _ = execute_rows(group_norm, [x], Float)
    assert_near(found, reference(group_norm, [x]), Float)


def test_nan_and_infinity_stay_in_their_row() -> None:
    x = np.random.default_rng(2).normal(size=(4, 65)).astype(np.float32)
    x[1, 64] = np.nan
    x[2, 0] = -np.inf
    with FusionDefinition() as fd:
        softmax(fd)
    found = np.asarray(fd.execute([x], device="simulator")[0])
    assert np.isnan(found[1]).all()
    assert found[2, 0] == 0
    assert np.isfinite(found[[0, 2, 3]]).all()


def test_the_data_is_read_once_in_wide_accesses(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, in_registers)
    kernel = kernel_for(softmax, 4096, 4096, BFloat16)
    assert kernel.source.count("&t0[") == 1
    assert kernel.source.count("reinterpret_cast<const uint4*>(&t0[") == 1


def test_a_row_in_a_warp_needs_no_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: in_registers(m) and m.threads <= 32 and m.rows > 1)
    kernel = kernel_for(softmax, 4096, 512, BFloat16)
    assert kernel.kernel_ir is not None
    assert not any(isinstance(s, BlockBarrier) for s in walk(kernel.kernel_ir.body))
    assert kernel.plan is not None
    assert kernel.plan.block[1].value > 1, "rows share a block"


def test_a_row_that_fills_the_threads_is_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    propose_only(monkeypatch, lambda m: in_registers(m) and m.threads == 256)
    exact, ragged = kernel_for(softmax, 4096, 4096), kernel_for(softmax, 4096, 4092)
    assert exact.source.count("if (") < ragged.source.count("if (")


def norm_of_a_single_row(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor(shape=[1, -1], dtype=dtype, contiguity=[None, True])
    w = fd.define_tensor(shape=[-1], dtype=dtype, contiguity=True)
    f = fd.ops.cast(x, DataType.Float)
    variance, mean = fd.ops.var_mean(f, [1], 0, True)
    y = fd.ops.mul(fd.ops.sub(f, mean), fd.ops.rsqrt(fd.ops.add(variance, 1e-5)))
    fd.add_output(fd.ops.cast(fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), DataType.Float)), dtype))


@pytest.mark.parametrize("length", [257, 1024, 50257, 250003])
@pytest.mark.parametrize("dtype", [DataType.BFloat16, DataType.Float])
def test_what_a_single_row_has_one_of_is_computed_outside_of_its_loops(length: int, dtype: DataType) -> None:
    fusion = fusion_of(norm_of_a_single_row, dtype)
    bound = bind_inputs(fusion, [described(dtype, 1, length), described(dtype, length)])
    (launch,) = compile_fusion(fusion, bound, SimulatorDevice(info=H200)).launches()
    _, body = launch.kernel.source.split('extern "C"')
    (root,) = [line for line in body.splitlines() if "rsqrt" in line]
    assert len(root) - len(root.lstrip()) == 2, root


def test_rows_too_long_go_to_the_next_scheduler() -> None:
    fusion = fusion_of(softmax)
    small = replace(H200, registers_per_sm=2048, max_threads_per_block=64, shared_per_block_optin=2048)
    answer = InnerPersistentScheduler().propose(fusion, inputs_for(fusion, described(Float, 4, 100_000)), small)
    assert isinstance(answer, Refused)
    assert "100000 elements" in answer.reason
    kernel = KernelCompiler(SimulatorDevice(info=small)).compile(fusion, [described(Float, 4, 100_000)])
    assert kernel.source.count("&t0[") > 1, "the next one reads the row for each stage"


def test_one_kernel_for_many_row_counts() -> None:
    fusion = fusion_of(layer_norm, BFloat16)
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    sources = {
        compiler.compile(fusion, [described(BFloat16, m, 1024), described(BFloat16, 1024)]).source
        # A single row is a fact of its kernel, and has one of its own.
        for m in (2, 3, 7, 50, 131, 132, 133, 500, 1000, 4096, 16383, 100_003)
    }
    assert len(sources) <= 4


def test_params_explain_themselves() -> None:
    params = proposed(fusion_of(softmax), (64, 1000), dtype=Float)
    assert any("registers" in r for r in params.reasons)
    assert any(" us (memory " in r for r in params.reasons)
    assert hash(params) == hash(replace(params, reasons=()))


def test_nothing_is_put_into_words_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(mapping_search, "estimate", lambda *_: pytest.fail("estimated for a text"))
        params = proposed(fusion_of(softmax), (64, 1000), dtype=Float)
    assert len(params.reasons) == 1 + MAX_EXPLAINED
    assert params.reasons[1:] == tuple(params.reasons)[1:]


def random_asked(rng: random.Random) -> RowSpace:
    """Rows at random, and which mappings of them are asked for."""
    row = random_row_work(rng)
    if rng.random() < 0.1:
        row = replace(row, vector=1, is_misaligned=False, may_use_shared=False)
        return replace(row, may_use_block_groups=False, is_interleaved=True)
    return replace(row, may_use_block_groups=rng.random() < 0.9)


def some_rows(rng: random.Random) -> list[int]:
    return [1, 2, rng.randint(3, 300), rng.randint(300, 100_000), rng.randint(100_000, 10_000_000)]


@pytest.mark.parametrize("seed", range(80))
def test_what_surely_takes_longer_is_no_proposal(seed: int) -> None:
    """The proposal is what it would be if the time of each mapping was asked for, whatever rows came before."""
    rng = random.Random(seed)
    template = random_asked(rng)
    device = rng.choice((H200, H200, DeviceInfo.preset("sm_80"), DeviceInfo.preset("sm_120")))
    for rows in (template.rows, *some_rows(rng)):
        asked = replace(template, rows=rows)
        best = _best(asked, device)
        ranked = ROWS.ranked(asked, device)
        assert best == (ranked[0][1] if ranked else None)


@pytest.mark.parametrize("seed", range(40))
def test_the_trace_of_a_choice_repeats_it_for_other_rows(seed: int) -> None:
    """Where its guards hold, which they do for the rows it was recorded for."""
    rng = random.Random(seed)
    template = random_asked(rng)
    for rows in some_rows(rng):
        trace = NumberTrace()
        best = _best(replace(template, rows=trace.leaf(rows)), H200)
        find = trace.function(None if best is None else tuple(best))
        for other in (rows, rows + 1, rows + 7, 2 * rows, *some_rows(rng)):
            found = find([other])
            assert found is None or found == _best(replace(template, rows=other), H200), other
        assert best is None or find([rows]) is not None


@pytest.mark.parametrize(("length", "blocks"), [(600, 2), (2049, 8), (4100, 16)])
@pytest.mark.parametrize(
    ("define", "one_pass"),
    [(softmax, False), (softmax, True), (layer_norm, False), (layer_norm, True), (add_norm, False)],
)
def test_rows_over_clusters(
    define: Definition, length: int, blocks: int, *, one_pass: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(
        monkeypatch, lambda m: not m.in_shared and not m.groups and (m.sharing, m.one_pass) == (blocks, one_pass)
    )
    kernel, body = run_rows(define, Float, 3, length)
    assert kernel.plan is not None
    assert kernel.plan.cluster == (1, blocks, 1)
    if one_pass:
        waits = [s for s in walk(body.body) if isinstance(s, (ClusterWait, ExchangeWait))]
        assert len(waits) == 2, "one for the start, one for the exchange"


@pytest.mark.parametrize("length", [600, 1000])
@pytest.mark.parametrize("in_shared", [False, True])
def test_infinities_and_nan_of_rows_that_meet_once(
    length: int, in_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maximum and sum of exponentials in one exchange of the cluster; rows with nothing but -infinity, with nan, far apart."""
    propose_only(monkeypatch, lambda m: m.one_pass and m.sharing == 2 and not m.groups and m.in_shared == in_shared)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(6, length)).astype(np.float32)
    x[1] = -np.inf
    x[2, ::3] = -np.inf
    x[3, 7] = np.nan
    x[4] *= 60
    x[5, -1] = np.inf
    fusion = fuse_exp_sums(fusion_of(softmax))
    kernel = KernelCompiler(SimulatorDevice(info=H200)).compile(fusion, [described(Float, *x.shape)])
    assert kernel.plan is not None
    assert kernel.plan.cluster is not None
    found = run_on(SimulatorDevice(info=H200), kernel, fusion, [x])
    (want,) = reference(softmax, [x])
    np.testing.assert_allclose(found[fusion.output_tensors[0].name], want, rtol=2e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [Float, BFloat16])
@pytest.mark.parametrize(("rows", "length"), [(1, 6144), (40, 4096), (20, 7168)])
def test_a_row_of_a_block_in_one_pass_has_one_barrier(
    rows: int, length: int, dtype: DataType, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose_only(monkeypatch, lambda m: in_registers(m) and m.one_pass and m.threads > 32)
    assert kernel_for(layer_norm, rows, length, dtype).source.split("fuser_kernel(")[1].count("__syncthreads()") == 1


def test_what_has_a_part_of_a_row_is_not_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of a row need the same element of it: each reads it where it is used."""

    def define(fd: FusionDefinition, dtype: DataType) -> None:
        x, w = fd.define_tensor([-1, -1, -1], True, dtype), fd.define_tensor([-1, 1, -1], True, dtype)
        y = fd.ops.mul(x, w)
        fd.add_output(fd.ops.sub(y, fd.ops.sum(y, [1, 2], keepdim=True)))

    propose_only(monkeypatch, lambda m: m.in_shared and m.sharing > 1 and not m.groups)
    fusion, shapes = fusion_of(define), ((40, 32, 2048), (40, 1, 2048))
    assert proposed(fusion, *shapes, dtype=Float).in_shared == ("t0",)
    KernelCompiler(SimulatorDevice(info=H200)).compile(fusion, [described(Float, *s) for s in shapes])


# ---------------------------------------------------------------- parts of rows that lie apart


def images(dtype: DataType, shape: tuple[int, ...], device: DeviceInfo | SimulatorDevice = H200) -> CompiledKernel:
    """Batch norm of them."""
    fusion = optimize_fusion(fusion_of(batch_norm, dtype), lambda *_: None)
    return KernelCompiler(device).compile(fusion, [described(dtype, *shape), described(Float, shape[1])])


@pytest.mark.parametrize("dtype", [Float, BFloat16])
@pytest.mark.parametrize("shape", [(2, 3, 28, 32), (8, 5, 7, 7), (3, 2, 40, 56), (2, 4, 31, 33)])
def test_batch_norm_of_images(dtype: DataType, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    image = (rng.normal(size=shape) + 3).astype(dtype.numpy)
    weight = rng.normal(size=shape[1]).astype(np.float32)
    fusion, simulator = optimize_fusion(fusion_of(batch_norm, dtype), lambda *_: None), SimulatorDevice(info=H200)
    found = run_on(simulator, images(dtype, shape, simulator), fusion, [image, weight])
    assert_near([found[fusion.output_tensors[0].name]], reference(batch_norm, [image, weight]), dtype)


@pytest.mark.in_turns
@pytest.mark.skipif(not is_available(), reason="no NVRTC")
@pytest.mark.parametrize("dtype", [Float, BFloat16])
@pytest.mark.parametrize("shape", [(8, 5, 300, 301), (8, 5, 300, 300), (4, 9, 200, 201), (16, 20, 112, 112)])
def test_nothing_of_images_spills(dtype: DataType, shape: tuple[int, ...]) -> None:
    """Rows that lie apart and begin anywhere: each access has an address of its own."""
    resources = images(dtype, shape).resources
    assert resources is not None
    assert resources.spill_bytes == resources.stack_bytes == 0


def test_images_of_a_known_size_are_found_without_long_divisions() -> None:
    body = images(BFloat16, (8, 5, 7, 7), SimulatorDevice(info=H200)).source.split("fuser_kernel(")[1]
    assert "/ 49" in body
    assert "% 49" in body
    assert "t0_size2" not in body, "a fact"


@pytest.mark.parametrize("dtype", [BFloat16, Float, Double])
@pytest.mark.parametrize("blocks", [2, 16])
def test_blocks_of_a_cluster_exchange_once(dtype: DataType, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for one another to run, and for the exchange."""
    propose_only(monkeypatch, lambda m: not m.in_shared and not m.groups and m.one_pass and m.sharing == blocks)
    kernel = images(dtype, (2, 3, 112, 112), SimulatorDevice(info=H200))
    assert kernel.plan is not None
    assert kernel.plan.cluster == (1, blocks, 1)
    body = kernel.source.split("fuser_kernel(")[1]
    assert body.count("barrier.cluster.wait") + body.count("fuser_wait_bytes(") == 2
