"""Short rows of odd lengths: element by element, or all of them as one run; few rows; what is read beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.analysis.alignment import min_peeled_length
from fuser.schedule.cost.pointwise_mappings import POINTWISE
from fuser.schedule.params import Aligned, InnerPersistentParams, Params, Peeled, PointwiseParams, Unaligned
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.inner_persistent import InnerPersistentScheduler
from fuser.schedule.schedulers.pointwise import PointwiseScheduler, plan_of
from fuser.schedule.segmentation.segmentation import segment_fusion
from fuser.simulator.device import SimulatorDevice
from tests.judging.harness import check, collect_facts, integers
from tests.schedule.forced_rows import propose_only

D = DataType
H200 = DeviceInfo.preset("H200")
Define = Callable[[FusionDefinition, DataType], None]


def normalised(fd: FusionDefinition, dtype: DataType) -> None:
    """Rows less their sums, times weights and plus others, in whole numbers."""
    x = fd.define_tensor([-1, -1], dtype=dtype)
    w, b = fd.define_tensor([-1], True, dtype), fd.define_tensor([-1], True, dtype)
    wide = D.Double if dtype is D.Double else D.Float
    f = fd.ops.cast(x, wide)
    y = fd.ops.sub(f, fd.ops.sum(f, [1], keepdim=True))
    y = fd.ops.mul(y, fd.ops.cast(fd.ops.broadcast(w, [True, False]), wide))
    y = fd.ops.add(y, fd.ops.cast(fd.ops.broadcast(b, [True, False]), wide))
    fd.add_output(fd.ops.cast(y, dtype))


def biased(fd: FusionDefinition, dtype: DataType) -> None:
    x = fd.define_tensor([-1, -1], True, dtype)
    b = fd.define_tensor([-1], True, dtype)
    fd.add_output(fd.ops.add(x, fd.ops.broadcast(b, [True, False])))


def scaled_rows(fd: FusionDefinition, dtype: DataType) -> None:
    """A factor for each row, and one for each column."""
    x = fd.define_tensor([-1, -1], True, dtype)
    r, c = fd.define_tensor([-1], True, dtype), fd.define_tensor([-1], True, dtype)
    y = fd.ops.mul(x, fd.ops.broadcast(r, [False, True]))
    fd.add_output(fd.ops.add(y, fd.ops.broadcast(c, [True, False])))


def described(dtype: DataType, *sizes: int, alignment: int = 256, pad: int = 0) -> TensorDescriptor:
    return TensorDescriptor(dtype, sizes, (sizes[1] + pad, 1) if len(sizes) == 2 else (1,), alignment)


def segment_of(define: Define, dtype: DataType) -> Fusion:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    (segment,) = segment_fusion(fd.fusion.ir_fusion).segments
    return segment.fusion


def proposed(define: Define, dtype: DataType, *inputs: TensorDescriptor) -> Params:
    with FusionDefinition() as fd:
        define(fd, dtype)
    assert fd.fusion is not None
    (segment,) = segment_fusion(fd.fusion.ir_fusion).segments
    compiler = KernelCompiler(SimulatorDevice(info=H200))
    return compiler.propose(segment, bind_inputs(segment.fusion, list(inputs)))


def of_rows(dtype: DataType, rows: int, length: int, **layout: int) -> InnerPersistentParams:
    vectors = [described(dtype, length), described(dtype, length)]
    params = proposed(normalised, dtype, described(dtype, rows, length, **layout), *vectors)
    assert isinstance(params, InnerPersistentParams)
    return params


def test_short_rows_are_not_cut() -> None:
    assert (min_peeled_length(8), min_peeled_length(4), min_peeled_length(2)) == (1365, 796, 597)
    for dtype, length in ((D.BFloat16, 257), (D.Half, 1001), (D.Float, 333), (D.Double, 129)):
        params = of_rows(dtype, 30965, length)
        assert (params.vector, params.access) == (1, Aligned())
    assert isinstance(of_rows(D.BFloat16, 30965, 1401).access, Peeled)
    assert of_rows(D.BFloat16, 30965, 256).vector == 8


@pytest.mark.parametrize("length", [256, 257, 288, 1001])
def test_all_accesses_but_the_last_are_inside(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For whatever length the kernel serves."""
    propose_only(monkeypatch, lambda m: not m.in_shared and m.sharing == 1)
    params = of_rows(D.BFloat16, 30965, length)
    width = params.threads * params.vector
    ((_, _, low, high),) = params.extent_ranges
    assert high == width * params.batch
    assert low == (width * (params.batch - 1) + 1 if length < high else length)


def test_few_rows_have_many_threads() -> None:
    for length in (257, 1024):
        few, many = of_rows(D.BFloat16, 90, length), of_rows(D.BFloat16, 30965, length)
        assert few.threads * few.cluster > many.threads * many.cluster
        assert many.threads * many.rows >= 32, "warps are full"


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [D.BFloat16, D.Half, D.Float, D.Double])
@pytest.mark.parametrize(("rows", "length"), [(1, 257), (9, 288), (7, 257), (133, 33), (5, 65)])
@pytest.mark.parametrize("rows_of_block", [1, 4])
def test_rows_by_element(dtype: DataType, rows: int, length: int, rows_of_block: int) -> None:
    batch = -(-length // 32)
    params = replace(
        of_rows(dtype, 30965, 257),
        threads=32,
        batch=batch,
        rows=rows_of_block,
        cluster=1,
        inputs_only=False,
        one_pass=False,
        in_shared=(),
        vector=1,
        vectorized=(),
        extent_ranges=(("t0", 1, 32 * (batch - 1) + 1, 32 * batch),),
    )
    s = InnerPersistentScheduler().apply(segment_of(normalised, dtype), params)
    arrays = [(integers(shape) % 3).astype(dtype.numpy) for shape in ((rows, length), (length,), (length,))]
    check(s, arrays, facts=collect_facts(s.fusion, arrays) | frozenset(s.required_facts))


def flat(define: Define, dtype: DataType, rows: int, length: int, **layout: int) -> PointwiseParams:
    vectors = [described(dtype, length)] if define is biased else [described(dtype, rows), described(dtype, length)]
    params = proposed(define, dtype, described(dtype, rows, length, **layout), *vectors)
    assert isinstance(params, PointwiseParams)
    return params


def of_one_run(define: Define, dtype: DataType) -> PointwiseParams:
    """The parameters of the plan that takes all rows as one run, whether it is the one that should be fastest or not."""
    segment = segment_of(define, dtype)
    sizes = [(100_003, 129), (129,)] if define is biased else [(100_003, 129), (100_003,), (129,)]
    bound = bind_inputs(segment, [described(dtype, *s) for s in sizes])
    _, order, space = plan_of(segment, SegmentInputs(bound.tensors, bound.evaluate), H200)
    assert space is not None
    (plan,) = [p for p in space.plans() if p.row is not None]
    return space.params_of(order, plan, POINTWISE.ranked(plan.work, H200)[0][1])


def test_rows_beside_short_vectors_are_one_run() -> None:
    params = flat(biased, D.Half, 100_003, 257)
    assert (params.merged_dims, params.access) == (((2,),), Unaligned())
    assert params.vector == 4, "of the output's elements, which are wider"
    assert dict(params.vector_widths).keys() == {"t0", "t3"} or len(params.vector_widths) == 2
    assert params.extent_ranges[0][2] == params.vector
    assert flat(scaled_rows, D.Float, 100_003, 129).merged_dims == ((2,),)
    assert flat(biased, D.Half, 100_003, 256).merged_dims == ((1,), (1,)), "aligned rows"
    assert isinstance(flat(biased, D.Half, 100_003, 4097).access, Peeled), "long rows are cut"


def test_rows_that_are_no_run_are_read_by_element() -> None:
    for layout in ({"pad": 2}, {"alignment": 2}):
        params = flat(biased, D.Half, 100_003, 257, **layout)
        assert params.vector == 1
        assert params.unroll >= 4


@pytest.mark.parametrize("define", [biased, scaled_rows])
@pytest.mark.parametrize("dtype", [D.Half, D.Float])
@pytest.mark.parametrize(
    ("rows", "length", "unroll"), [(2, 257, 1), (37, 257, 2), (100, 9, 1), (11, 8, 2), (3, 1001, 1)]
)
def test_one_run(define: Define, dtype: DataType, rows: int, length: int, unroll: int) -> None:
    params = replace(of_one_run(define, dtype), unroll=unroll)
    s = PointwiseScheduler().apply(segment_of(define, dtype), params)
    vectors = [(length,)] if define is biased else [(rows,), (length,)]
    arrays = [(integers(shape) % 5).astype(dtype.numpy) for shape in ((rows, length), *vectors)]
    check(s, arrays, facts=collect_facts(s.fusion, arrays) | frozenset(s.required_facts))
