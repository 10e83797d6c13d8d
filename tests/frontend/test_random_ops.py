"""uniform, normal, rand_like, randn_like: what they define, print, draw and refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionError, InputRuntimeError
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion import fusion as ir
from fuser.ir.fusion.fusion import Distribution
from fuser.ir.fusion.random_numbers import random_values
from tests.frontend.building import define, lines, rebuild

D = DataType


def ordinals(fd: FusionDefinition) -> dict[str, int]:
    """Ordinal of each random expr by its result."""
    assert fd.fusion is not None
    return {e.output.name: e.ordinal for e in fd.fusion.ir_fusion.exprs if isinstance(e, ir.Random)}


def drawn(seed: int, offset: int, shape: tuple[int, ...], dtype: DataType = D.Float) -> Any:
    """Uniform numbers in [0, 1)."""
    index = np.arange(int(np.prod(shape))).reshape(shape)
    return random_values(Distribution.uniform, seed, offset, index, (0.0, 1.0), dtype)


# --- text -------------------------------------------------------------------------------------------------------------


def test_text() -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, 1, 4], True, D.Half)
        seed = fd.define_scalar(D.Int)
        offset = fd.define_tensor([], dtype=D.Int)
        a = fd.ops.rand_like(x)
        b = fd.ops.normal(1, 2.5, [x.size(0), 3], rng_seed=seed, rng_offset=offset, dtype=D.Double)
        return a, b, fd.ops.randn_like(x), fd.ops.uniform(0, 1, [2], rng_seed=-7, rng_offset=2**40)

    assert lines(define(body)) == [
        "tv0 = fd.define_tensor(shape=[-1, 1, 4], contiguity=[True, None, True], dtype=DataType.Half, is_cpu=False)",
        "c1 = fd.define_scalar(None, dtype=DataType.Int)",
        "tv2 = fd.define_tensor(shape=[], contiguity=[], dtype=DataType.Int, is_cpu=False)",
        "c3 = fd.ops.size(tv0, dim=0)",
        "tv8 = fd.ops.uniform(0.00000, 1.00000, shape=[c3, 1, 4], dtype=DataType.Half)",
        "tv11 = fd.ops.normal(1.00000, 2.50000, shape=[c3, 3], rng_seed=c1, rng_offset=tv2, dtype=DataType.Double)",
        "tv14 = fd.ops.normal(0.00000, 1.00000, shape=[c3, 1, 4], dtype=DataType.Half)",
        "tv19 = fd.ops.uniform(0.00000, 1.00000, shape=[2], rng_seed=-7, rng_offset=1099511627776, dtype=DataType.Float)",
        "fd.add_output(tv8)",
        "fd.add_output(tv11)",
        "fd.add_output(tv14)",
        "fd.add_output(tv19)",
    ]


def two_draws(fd: FusionDefinition) -> Any:
    """Three random ops of which one is dead, made in another order than the outputs need them."""
    x = fd.define_tensor([-1, 8])
    a = fd.ops.rand_like(x)
    fd.ops.rand_like(x)
    b = fd.ops.randn_like(x)
    return fd.ops.add(b, x), a


def test_ordinals_follow_the_text() -> None:
    fd = define(two_draws)
    assert [e.distribution for e in sorted(random_exprs(fd), key=lambda e: e.ordinal)] == [
        Distribution.normal,
        Distribution.uniform,
    ]
    again = rebuild(fd)
    assert again.fusion is not None
    assert fd.fusion is not None
    assert again.fusion.ir_fusion == fd.fusion.ir_fusion
    assert repr(rebuild(again)) == repr(again)
    assert fd.fusion.ir_fusion.draws == again.fusion.ir_fusion.draws == 2
    x = np.zeros((3, 8), np.float32)
    for one, other in zip(
        evaluate_fusion(fd.fusion.ir_fusion, [x], (5, 7)),
        evaluate_fusion(again.fusion.ir_fusion, [x], (5, 7)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def random_exprs(fd: FusionDefinition) -> list[ir.Random]:
    """Live random exprs."""
    assert fd.fusion is not None
    return [e for e in fd.fusion.ir_fusion.exprs if isinstance(e, ir.Random)]


def test_ordinals_follow_later_outputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4])
        a, b = fd.ops.rand_like(x), fd.ops.rand_like(x)
        fd.add_output(b)
        assert ordinals(fd)[b.node.name] == 0
        assert fd.fusion is not None
        fd.add_output(a, x)
    assert ordinals(fd) == {b.node.name: 0, a.node.name: 1}


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": D.Double},
        {"rng_seed": 1, "rng_offset": 3},
        {"rng_seed": 2, "rng_offset": 2},
        {"minval": 0.5},
        {"shape": [5]},
        {"rng_seed": None, "rng_offset": None},
    ],
)
def test_what_makes_fusions_differ(change: dict[str, Any]) -> None:
    def made(**given: Any) -> Any:
        base: dict[str, Any] = {"minval": 0.0, "maxval": 1.0, "shape": [4], "rng_seed": 1, "rng_offset": 2}
        fusion = define(lambda fd: fd.ops.uniform(**{**base, **given})).fusion
        assert fusion is not None
        return fusion.ir_fusion

    assert made() == made()
    assert hash(made()) == hash(made())
    assert made() != made(**change)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uniform", "normal"])
@pytest.mark.parametrize(
    ("keywords", "kind", "text"),
    [
        ({"rng_seed": 1}, RuntimeError, "rng_seed and rng_offset must be provided together!"),
        ({"rng_offset": 1}, RuntimeError, "rng_seed and rng_offset must be provided together!"),
        ({"dtype": D.Int}, RuntimeError, "Random distributions only create floating point types"),
        ({"dtype": D.ComplexFloat}, RuntimeError, "Random distributions only create floating point types"),
        ({"dtype": D.Float8_e4m3fn}, RuntimeError, "Random distributions only create floating point types"),
        ({"dtype": 3}, TypeError, "dtype must be a DataType"),
        ({"rng_seed": 0.5, "rng_offset": 1}, TypeError, "rng_seed must be an integer, got float"),
        ({"rng_seed": 1, "rng_offset": True}, TypeError, "rng_offset must be an integer, got bool"),
        ({"rng_seed": 2**63, "rng_offset": 1}, TypeError, "does not fit 64 bits"),
        ({"seed": 1}, TypeError, r"\(\): incompatible function arguments"),
    ],
)
def test_keyword_errors(name: str, keywords: dict[str, Any], kind: type[Exception], text: str) -> None:
    with FusionDefinition() as fd:
        with pytest.raises(kind, match=text) as caught:
            getattr(fd.ops, name)(0.0, 1.0, [4], **keywords)
        assert isinstance(caught.value, DefinitionError)


def test_state_tensors_are_integers_of_rank_0() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([4], dtype=D.Int)
        f = fd.define_tensor([], dtype=D.Float)
        i = fd.define_tensor([], dtype=D.Int)
        with pytest.raises(RuntimeError, match="rng_seed must be a scalar or a tensor of rank 0, got rank 1"):
            fd.ops.uniform(0.0, 1.0, [4], rng_seed=x, rng_offset=i)
        with pytest.raises(RuntimeError, match="rng_offset must be an integer, got dtype Float"):
            fd.ops.uniform(0.0, 1.0, [4], rng_seed=i, rng_offset=f)


# --- execution --------------------------------------------------------------------------------------------------------


def simulated(fd: FusionDefinition, *inputs: Any) -> list[Any]:
    """Outputs on the simulator."""
    return [np.asarray(r.numpy() if hasattr(r, "numpy") else r) for r in fd.execute(list(inputs), device="simulator")]


def test_executions_continue_the_generator() -> None:
    """The i-th execution after seeding draws what the explicit form gives for offset i."""
    fd = define(lambda fd: fd.ops.uniform(0.0, 1.0, [6, 7]))
    fuser.manual_seed(123)
    for i in range(3):
        np.testing.assert_array_equal(simulated(fd)[0], drawn(123, i, (6, 7)))
    fuser.manual_seed(123)
    np.testing.assert_array_equal(simulated(fd)[0], drawn(123, 0, (6, 7)))
    explicit = define(lambda fd: fd.ops.uniform(0.0, 1.0, [6, 7], rng_seed=123, rng_offset=1))
    np.testing.assert_array_equal(simulated(explicit)[0], drawn(123, 1, (6, 7)))
    # A state of its own leaves the generator alone.
    np.testing.assert_array_equal(simulated(fd)[0], drawn(123, 1, (6, 7)))


def test_every_op_of_a_call_has_an_offset_of_its_own() -> None:
    fd = define(lambda fd: [fd.ops.uniform(0.0, 1.0, [5]) for _ in range(3)])
    fuser.manual_seed(-1)
    for call in range(2):
        for j, result in enumerate(simulated(fd)):
            np.testing.assert_array_equal(result, drawn(-1, 3 * call + j, (5,)))


def test_executions_compile_once() -> None:
    fd = define(lambda fd: fd.ops.add(fd.define_tensor([-1]), fd.ops.uniform(0.0, 1.0, [16])))
    x = np.zeros(16, np.float32)
    fuser.manual_seed(0)
    results = [simulated(fd, x)[0] for _ in range(3)]
    assert not np.array_equal(results[0], results[1])
    assert fd.fec.counters()["kernels_compiled"] == 1
    assert fd.fec.counters()["exact_hits"] == 2


def test_replays_draw_anew() -> None:
    """The launcher's kept steps take the state like any number that sizes do not depend on."""
    from fuser.runtime.arrays.device_tensor import DeviceTensor
    from fuser.runtime.devices.device import get_device

    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1, 8])))
    x = DeviceTensor.from_numpy(np.zeros((4, 8), np.float32), get_device("simulator", 0))
    fuser.manual_seed(77)
    for i in range(4):
        np.testing.assert_array_equal(fd.execute([x])[0].numpy(), drawn(77, i, (4, 8)))
    assert fd.fec.program([x]).counters()["replays"] == 3


def test_manual_execution() -> None:
    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1, 5])))
    fuser.manual_seed(4)
    x = np.zeros((3, 5), np.float32)
    for i in range(2):
        np.testing.assert_array_equal(np.asarray(fd.manual_execute([x])[0]), drawn(4, i, (3, 5)))


def test_several_kernels_share_the_state() -> None:
    """The offsets do not depend on how the fusion is cut."""

    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1])
        a = fd.ops.rand_like(x)
        b = fd.ops.rand_like(x)
        total = fd.ops.sum(fd.ops.add(x, a), [0])
        return fd.ops.segment_set(a), b, fd.ops.permute(fd.ops.mul(b, 2.0), [1, 0]), total, fd.ops.sum(b, [1])

    fd = define(body)
    x = np.zeros((6, 10), np.float32)
    fuser.manual_seed(9)
    a, b, transposed, total, rows = simulated(fd, x)
    expected = {i: drawn(9, i, (6, 10)) for i in range(2)}
    first = 0 if np.array_equal(a, expected[0]) else 1
    np.testing.assert_array_equal(a, expected[first])
    np.testing.assert_array_equal(b, expected[1 - first])
    np.testing.assert_array_equal(transposed, 2 * b.T)
    np.testing.assert_allclose(total, a.sum(0), rtol=1e-6)
    np.testing.assert_allclose(rows, b.sum(1), rtol=1e-6)
    assert len(fd.fec.kernels([x], device="simulator")) > 1


def test_validation_uses_the_numbers_of_the_execution() -> None:
    fd = define(two_draws)
    fd.validate([np.ones((4, 8), np.float32)], device="simulator")
    fuser.validate_with_auto_inferred_outputs(
        fd.fusion, fd.execute([np.ones((4, 8), np.float32)], device="simulator"), [np.ones((4, 8), np.float32)]
    )
    assert fd.fusion is not None
    with pytest.raises(InputRuntimeError, match="draws from the generator"):
        evaluate_fusion(fd.fusion.ir_fusion, [np.ones((4, 8), np.float32)])


def test_sizes_of_one_and_none() -> None:
    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1, -1], dtype=D.Half)))
    fuser.manual_seed(1)
    for i, shape in enumerate([(1, 1), (0, 4), (3, 1), (1, 9)]):
        result = simulated(fd, np.zeros(shape, np.float16))[0]
        np.testing.assert_array_equal(result, drawn(1, i, shape, D.Half))


def test_a_scalar_for_every_argument() -> None:
    def body(fd: FusionDefinition) -> Any:
        low, high, n, seed, offset = (fd.define_scalar(d) for d in (D.Double, D.Int, D.Int, D.Int, D.Int))
        return fd.ops.uniform(low, high, [n, 3], rng_seed=seed, rng_offset=offset)

    result = simulated(define(body), -0.5, 3, 4, 2**62, -5)[0]
    index = np.arange(12).reshape(4, 3)
    np.testing.assert_array_equal(result, random_values(Distribution.uniform, 2**62, -5, index, (-0.5, 3.0), D.Float))


def test_a_host_tensor_as_the_seed() -> None:
    def body(fd: FusionDefinition) -> Any:
        seed = fd.define_tensor([], dtype=D.Int, is_cpu=True)
        return fd.ops.uniform(0.0, 1.0, [9], rng_seed=seed, rng_offset=fd.ops.add(fd.define_scalar(D.Int), 1))

    result = simulated(define(body), np.asarray(31, np.int64), 6)[0]
    np.testing.assert_array_equal(result, drawn(31, 7, (9,)))


# --- schedules --------------------------------------------------------------------------------------------------------


def split_and_swap(fd: FusionDefinition, out: Any) -> None:
    """Columns outside, rows across the block, both split by what does not divide them."""
    out.reorder({0: 1})
    out.split(0, 5)
    out.split(2, 4)
    out.axis(0).parallelize(fuser.ParallelType.grid_x)
    out.axis(2).parallelize(fuser.ParallelType.block_x)
    fd.sched.transform_like(out)
    fd.sched.parallelize_like(out)
    fd.sched.inline_most()


def flat(fd: FusionDefinition, out: Any) -> None:
    """One dimension, as the pointwise scheduler has it, unrolled by 3."""
    out.merge(0, 1)
    out.split(0, 3)
    out.split(0, 32)
    out.axis(0).parallelize(fuser.ParallelType.grid_x)
    out.axis(1).parallelize(fuser.ParallelType.block_x)
    out.axis(2).parallelize(fuser.ParallelType.unroll)
    fd.sched.transform_like(out)
    fd.sched.parallelize_like(out)
    fd.sched.inline_most()


def serial(fd: FusionDefinition, out: Any) -> None:
    """No schedule: one thread."""


@pytest.mark.parametrize("dtype", [D.Float, D.Double, D.BFloat16], ids=lambda d: d.name)
def test_schedules_draw_the_same(dtype: DataType) -> None:
    """A number follows from the logical index alone: three schedules, an output in column-major order, and NumPy agree."""
    x = np.zeros((11, 14), np.float32)
    expected = drawn(6, 1, x.shape, dtype)

    def made(schedule: Any, *, turned: bool = False) -> FusionDefinition:
        with FusionDefinition() as fd:
            t = fd.define_tensor([-1, -1])
            out = fd.ops.uniform(0.0, 1.0, t.shape(), rng_seed=6, rng_offset=1, dtype=dtype)
            out = fd.ops.permute(out, [1, 0]) if turned else fd.ops.set(out)
            fd.add_output(out)
            if schedule is not None:
                schedule(fd, out)
        return fd

    for schedule in (split_and_swap, flat, serial):
        result = np.asarray(made(schedule).manual_execute([x])[0])
        np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8), err_msg=schedule.__name__)
    np.testing.assert_array_equal(simulated(made(None), x)[0], expected)
    np.testing.assert_array_equal(simulated(made(None, turned=True), x)[0], expected.T)
