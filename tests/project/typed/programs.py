"""Programs as users write them, which type checkers in strict mode have nothing to say about. Run by test_typed.py."""

from collections.abc import Sequence
from typing import Any, assert_type

import numpy as np

import fuser
from fuser import (
    Alias,
    Allocate,
    DataType,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    LaunchKernel,
    ParallelType,
    TensorView,
    Val,
    extent,
)
from fuser.ops import exp


def softmax(x: np.ndarray[Any, np.dtype[np.float32]]) -> Any:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], contiguity=True, dtype=np.float32)
        assert_type(t, TensorView)
        m = fd.ops.max(t, -1, keepdim=True)
        assert_type(m, TensorView)
        e = exp(t - m)
        assert_type(e, TensorView)
        fd.add_output(e / fd.ops.sum(e, dims=[-1], keepdim=True))
    return fd(x)


def bias_gelu_dropout(x: Any, bias: Any, rate: float) -> tuple[Any, Any]:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, "bfloat16")
        b = fd.define_tensor([-1], True, DataType.BFloat16)
        h = (t + b).float()
        assert_type(h, TensorView)
        y = 0.5 * h * (1.0 + fd.ops.erf(h * np.float32(0.5**0.5)))
        assert_type(y, TensorView)
        kept = fd.ops.uniform(0.0, 1.0, y.shape) >= rate
        assert_type(kept, TensorView)
        fd.add_output(fd.ops.where(kept, y / (1.0 - rate), 0.0).to("bfloat16"))
        fd.add_output(kept)
    out, mask = fd.execute([x, bias])
    return out, mask


def group_norm(x: Any, weight: Any, bias: Any, groups: int) -> Any:
    with FusionDefinition() as fd:
        t = fd.define_tensor(shape=(-1, -1, -1, -1), contiguity=True, dtype="float16")
        w, b = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        eps = fd.define_scalar(DataType.Double)
        assert_type(eps, Val)
        n, c, height, width = t.shape
        assert_type(n, Val)
        g = t.float().reshape(n, groups, c // groups, height, width)
        var, mean = fd.ops.var_mean(g, [2, 3, 4], correction=0, keepdim=True)
        assert_type(mean, TensorView)
        y = ((g - mean) * fd.ops.rsqrt(var + eps)).reshape(t.shape)
        y = y * w[:, None, None] + b[None, :, None, None]
        fd.add_output(y.half())
    return fd(x, weight, bias, 1e-5)


def slices(x: Any, ids: Any) -> Sequence[Any]:
    with fuser.FusionDefinition() as fd:
        t = fd.define_tensor([-1, 8])
        i = fd.define_tensor([-1], dtype=int)
        k = fd.define_scalar(2)
        assert_type(t[1:, ::1], TensorView)
        assert_type(t[-1, None, ..., k], TensorView)
        assert_type(t.T + t.mT, TensorView)
        assert_type(t == 2, TensorView)
        assert_type(2 * k, Val)
        assert_type(k * t, TensorView)
        assert_type(t.size(0), Val)
        assert_type(t.dtype, DataType)
        assert_type(t.sum(1), TensorView)
        assert_type(t.mean(), TensorView)
        assert_type(t.var_mean((0, 1)), tuple[TensorView, TensorView])
        assert_type(t.transpose(0, np.int64(1)), TensorView)
        assert_type(-t, TensorView)
        assert_type(abs(k), Val)
        assert_type(fd.ops.add(k, 1), Val)
        assert_type(fd.ops.add(k, t), TensorView)
        assert_type(fd.ops.clamp(t, None, 1), TensorView)
        assert_type(fd.ops.shape(t), list[Val])
        fd.add_output(fd.ops.where((i != 0) & (i < 3), t[:, 0], np.float32(0)))
        fd.add_output(fd.ops.cat([t[:1], t[1:]], dim=0))
    return fd.execute([x, ids], device="simulator")


def schedule() -> None:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1])
        y = t.relu()
        fd.add_output(y)
    y.split(0, 128).axis(1).parallelize(ParallelType.block_x)
    names = {t: "in", y: "out"}
    assert names[y] == "out"
    KernelCompiler().compile(fd, [np.ones(3, np.float32)])
    assert fd.fusion is not None
    print(fd.fusion.print_math(), fd.sched, fuser.schedule, fuser.version())


def chain(x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1], True)
        fd.add_output(t * t)
    square = KernelCompiler().compile(fd, [x])
    shape = [extent("x", 0)]
    program = HostProgram(
        inputs=["x"],
        outputs=["z"],
        instructions=[
            Allocate("y", shape, DataType.Float),
            Allocate("z", [*x.shape], DataType.Float, strides=np.ones(1, np.int64).tolist()),
            Alias("w", "y", sizes=[np.int64(4)], offset=np.int64(0)),
            LaunchKernel(square, ["x", "y"]),
            LaunchKernel(square, ["y", "z"]),
        ],
    )
    # Which library the outputs are of is said by the reader's own type.
    z: np.ndarray[Any, np.dtype[np.float32]] = program.run([x])[0]
    print(type(z), z.shape)
    return z


def main() -> None:
    x = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    np.testing.assert_allclose(softmax(x).sum(1), 1, rtol=1e-6)
    half = x.astype(DataType.BFloat16.numpy)
    out, mask = bias_gelu_dropout(half, half[0], 0.25)
    assert not out[~mask].any()
    images = np.random.default_rng(0).normal(size=(2, 4, 3, 3)).astype(np.float16)
    ones = np.ones(4, np.float32)
    assert abs(group_norm(images, ones, ones, 2).astype(np.float32).mean() - 1) < 1e-2
    first, second = slices(x, np.array([0, 1, 2, 3]))
    np.testing.assert_array_equal(first, [0, x[1, 0], x[2, 0], 0])
    np.testing.assert_array_equal(second, x)
    schedule()
    np.testing.assert_array_equal(chain(np.arange(4, dtype=np.float32)), [0, 1, 16, 81])


if __name__ == "__main__":
    main()
