"""Values that some elements of a row share, such as weights of a group norm's channels: read before blocks meet."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import FusionDefinition
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.ir.device_info import DeviceInfo
from fuser.ir.dtypes import DataType
from fuser.ir.enums import GLOBAL_MEMORY, MemoryType, ParallelType
from fuser.ir.facts import TensorDescriptor
from fuser.ir.integers import ONE, ZERO, const, less, symbol
from fuser.ir.kernel import Allocate, Buffer, Call, For, If, Let, Literal, Load, Reduce, Role, Stmt, Store, walk
from fuser.ir.kernel_rewrites import substitute_symbols
from fuser.lowering.read_beside import MOST_VALUES, read_beside
from fuser.optimize.pipeline import optimize_fusion
from fuser.simulator.device import SimulatorDevice
from tests.harness import run_on

Float, Half = DataType.Float, DataType.Half
H200 = DeviceInfo.preset("H200")
X, W, OUT = (Buffer(name, Float, GLOBAL_MEMORY, const(1024)) for name in ("x", "w", "out"))
HELD = Buffer("held", Float, MemoryType.local, const(16))
TOTAL, WEIGHT = (Buffer(name, Float, MemoryType.local, ONE) for name in ("total", "weight"))
THREAD = symbol("thread", 0, 31)


def reduction(axes: tuple[ParallelType, ...]) -> Reduce:
    return Reduce(
        (TOTAL,),
        "add",
        (Literal(0.0, Float),),
        (ParallelType.block_x,),
        (),
        grid_broadcast=False,
        slot=ZERO,
        slots=ONE,
        name="t",
        cluster_axes=axes,
    )


def body_of(trips: int, reduce: Reduce, *, by_element: bool = False) -> tuple[Stmt, ...]:
    i, v, j = symbol("i", 0, trips - 1), symbol("v", 0, 1), symbol("j", 0, trips - 1)
    place = i * 64 + THREAD
    inside = less(place, 900)
    at = place // 7 + v if by_element else place // 7
    row = Store(HELD, j, Load(X, j * 64 + THREAD))
    weight = If(inside, (Store(WEIGHT, ZERO, Load(W, at)),), role=Role.predicate)
    product = Call("mul", (Load(HELD, i), Load(WEIGHT, ZERO)), Float, Float)
    total = Call("add", (product, Load(TOTAL, ZERO)), Float, Float)
    use = If(inside, (Store(OUT, i * 64 + THREAD * 2 + v, total),), role=Role.predicate)
    inner = (Allocate(WEIGHT), weight, use)
    return (
        Allocate(HELD),
        For(j, ZERO, const(trips), ONE, (row,), unroll=True),
        Allocate(TOTAL),
        reduce,
        For(i, ZERO, const(trips), ONE, (For(v, ZERO, const(2), ONE, inner, unroll=True),), unroll=True),
    )


def reads_of_weights(body: tuple[Stmt, ...]) -> list[str]:
    """Where weights are read, and the collective, in order."""
    found: list[str] = []
    for s in walk(body):
        if isinstance(s, Reduce):
            found.append("reduce")
        if isinstance(s, Store) and isinstance(s.value, Load) and s.value.buffer is W:
            found.append(s.buffer.name)
    return found


def test_a_value_for_each_access_is_read_before_blocks_meet() -> None:
    cluster = reduction((ParallelType.grid_y,))
    made = read_beside(body_of(3, cluster))
    assert reads_of_weights(made) == ["weight_early", "reduce"]
    assert isinstance(made[1], For)  # the row comes first


def test_what_a_name_behind_the_loads_of_the_row_chooses_stays() -> None:
    """The reads would stand in front of the name."""
    half = symbol("half", 0, 15)
    *before, reduce, last = body_of(3, reduction((ParallelType.grid_y,)))
    after = substitute_symbols((last,), {THREAD: half * 2})
    body = (*before, Let(half, THREAD // 2), reduce, *after)
    assert read_beside(body) is body


def test_what_stays() -> None:
    cluster = reduction((ParallelType.grid_y,))
    for body in (
        body_of(3, reduction(())),
        body_of(3, cluster, by_element=True),
        body_of(MOST_VALUES + 1, cluster),
    ):
        assert read_beside(body) is body


@pytest.mark.parametrize(("channels", "height", "width"), [(2, 99, 64), (3, 96, 96), (5, 128, 96)])
def test_group_norm(channels: int, height: int, width: int) -> None:
    shape = (1, channels, height, width)
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1] * 4, dtype=Half, contiguity=True)
        w, b = (fd.define_tensor(shape=[-1], dtype=Float, contiguity=True) for _ in range(2))
        o = fd.ops
        f = o.cast(x, Float)
        variance, mean = o.var_mean(f, [1, 2, 3], 0, True)
        y = o.mul(o.sub(f, mean), o.rsqrt(o.add(variance, 1e-5)))
        wide = [o.broadcast(v, [True, False, True, True]) for v in (w, b)]
        fd.add_output(o.cast(o.add(o.mul(y, wide[0]), wide[1]), Half))
    assert fd.fusion is not None
    fusion = optimize_fusion(fd.fusion.ir_fusion, lambda *_: None)
    rng = np.random.default_rng(shape)
    arrays = [rng.normal(size=shape).astype(np.float16), *(rng.normal(size=channels).astype(np.float32) for _ in "wb")]
    described = [
        TensorDescriptor(t.dtype, a.shape, tuple(s // a.itemsize for s in a.strides))
        for t, a in zip(fusion.input_tensors, arrays, strict=True)
    ]
    simulator = SimulatorDevice(info=H200)
    kernel = KernelCompiler(simulator).compile(fusion, described)
    assert kernel.plan is not None
    assert kernel.plan.cluster is not None
    assert "_early" in kernel.source
    (output,) = fusion.output_tensors
    found = run_on(simulator, kernel, fusion, arrays)[output.name].astype(np.float64)
    exact, scale, shift = (a.astype(np.float64) for a in arrays)
    axes = (1, 2, 3)
    hat = (exact - exact.mean(axes, keepdims=True)) / np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
    expected = hat * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)
    assert np.max(np.abs(found - expected) / (np.abs(expected) + 1)) < 2.0**-10
