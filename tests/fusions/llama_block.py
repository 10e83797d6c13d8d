"""A Llama block, forward and backward, as one definition: rms norm, rotary attention, rms norm, SwiGLU, residuals.

Attention is written out in matrix products and a softmax (`sdpfa_fwd` and `sdpfa_bwd` where `attention` says so). All tensors
have one dtype; sums of norms and softmaxes run in Float, and what a product reads is rounded, as in the models.

Inputs: x[B, S, E], dy[B, S, E], the cosines and sines [S, D/2] of the rotation, the mask[S, S] that is added to scores, and the
weights. Outputs: y, dx and the gradients of the weights, in their order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition

Array = np.ndarray[Any, Any]

WEIGHTS = ("norm1", "wq", "wk", "wv", "wo", "norm2", "w1", "w3", "w2")


@dataclass(frozen=True)
class Sizes:
    batch: int = 2
    seq: int = 8
    heads: int = 2
    head: int = 4
    hidden: int = 12

    @property
    def width(self) -> int:
        return self.heads * self.head


def inputs(sizes: Sizes, dtype: Any, seed: int = 0) -> list[Array]:
    """One array for each input."""
    rng = np.random.default_rng(seed)
    e, f = sizes.width, sizes.hidden
    shapes = {
        "norm1": (e,),
        **dict.fromkeys(("wq", "wk", "wv", "wo"), (e, e)),
        "norm2": (e,),
        **dict.fromkeys(("w1", "w3"), (f, e)),
        "w2": (e, f),
    }
    angles = np.outer(np.arange(sizes.seq), 10000.0 ** (-np.arange(sizes.head // 2) * 2 / sizes.head))
    mask = np.where(np.tri(sizes.seq, dtype=bool), 0.0, -1e30)
    arrays: list[Array] = [
        rng.standard_normal((sizes.batch, sizes.seq, e)),
        rng.standard_normal((sizes.batch, sizes.seq, e)),
        np.cos(angles),
        np.sin(angles),
        mask,
    ]
    for name in WEIGHTS:
        scale = 1 / math.sqrt(shapes[name][-1]) if len(shapes[name]) > 1 else 1.0
        arrays.append(rng.standard_normal(shapes[name]) * scale + (len(shapes[name]) == 1))
    wide = np.float32
    return [a.astype(wide if k in (2, 3, 4) else dtype) for k, a in enumerate(arrays)]


def define(sizes: Sizes, dtype: DataType) -> FusionDefinition:
    """The definition for some sizes."""
    with FusionDefinition() as fd:
        _Block(fd, sizes, dtype).define()
    return fd


class _Block:
    def __init__(self, fd: FusionDefinition, sizes: Sizes, dtype: DataType) -> None:
        self.fd = fd
        self.ops = fd.ops
        self.sizes = sizes
        self.dtype = dtype
        self.eps = 1e-5

    def input(self, *shape: int, dtype: DataType | None = None) -> Any:
        return self.fd.define_tensor(list(shape), contiguity=True, dtype=dtype or self.dtype)

    def wide(self, t: Any) -> Any:
        return self.ops.cast(t, DataType.Float)

    def narrow(self, t: Any) -> Any:
        return self.ops.cast(t, self.dtype)

    def rows(self, t: Any) -> Any:
        """[B, S, n] as [B*S, n]."""
        n = t.node.visible[-1].extent.value
        return self.ops.reshape(t, [self.sizes.batch * self.sizes.seq, n])

    def heads(self, t: Any) -> Any:
        """[B, S, E] as [B, H, S, D]."""
        s = self.sizes
        return self.ops.permute(self.ops.reshape(t, [s.batch, s.seq, s.heads, s.head]), [0, 2, 1, 3])

    def merged(self, t: Any) -> Any:
        """[B, H, S, D] as [B, S, E]."""
        s = self.sizes
        return self.ops.reshape(self.ops.permute(t, [0, 2, 1, 3]), [s.batch, s.seq, s.width])

    def transposed(self, t: Any) -> Any:
        n = t.ndim
        return self.ops.permute(t, [*range(n - 2), n - 1, n - 2])

    def norm(self, x: Any, weight: Any) -> tuple[Any, Any, Any]:
        """(what is normed, x in Float, the reciprocal root of its mean square)."""
        ops, n = self.ops, self.sizes.width
        wide = self.wide(x)
        mean = ops.mul(ops.sum(ops.mul(wide, wide), dims=[2], keepdim=True), 1.0 / n)
        rstd = ops.rsqrt(ops.add(mean, self.eps))
        scaled = ops.mul(ops.mul(wide, rstd), self.over_rows(weight))
        return self.narrow(scaled), wide, rstd

    def over_rows(self, weight: Any) -> Any:
        return self.ops.broadcast(self.wide(weight), [True, True, False])

    def norm_backward(self, dy: Any, weight: Any, wide: Any, rstd: Any) -> tuple[Any, Any]:
        """(gradient of x in Float, that of the weight)."""
        ops, n = self.ops, self.sizes.width
        normed = ops.mul(wide, rstd)
        dweight = self.narrow(ops.sum(ops.mul(dy, normed), dims=[0, 1]))
        scaled = ops.mul(dy, self.over_rows(weight))
        mean = ops.mul(ops.sum(ops.mul(scaled, normed), dims=[2], keepdim=True), 1.0 / n)
        return ops.mul(ops.sub(scaled, ops.mul(normed, mean)), rstd), dweight

    def rotated(self, t: Any, cos: Any, sin: Any, sign: float) -> Any:
        """The two halves of each head turned by the angles."""
        ops, s = self.ops, self.sizes
        half = s.head // 2
        ends = [s.batch, s.heads, s.seq]
        first = self.wide(ops.slice(t, [0, 0, 0, 0], [*ends, half]))
        second = self.wide(ops.slice(t, [0, 0, 0, half], [*ends, s.head]))
        c, w = (ops.broadcast(a, [True, True, False, False]) for a in (cos, ops.mul(sin, sign)))
        one = ops.sub(ops.mul(first, c), ops.mul(second, w))
        two = ops.add(ops.mul(second, c), ops.mul(first, w))
        return self.narrow(ops.cat([one, two], dim=3))

    def product_gradients(self, dy: Any, x: Any, weight: Any) -> tuple[Any, Any]:
        """Those of `linear(x, weight)`: of x and of the weight."""
        dweight = self.ops.matmul(self.transposed(self.rows(dy)), self.rows(x))
        return self.ops.matmul(dy, weight), dweight

    def define(self) -> None:
        fd, ops, s = self.fd, self.ops, self.sizes
        e, f = s.width, s.hidden
        x, dy = self.input(s.batch, s.seq, e), self.input(s.batch, s.seq, e)
        cos, sin = (self.input(s.seq, s.head // 2, dtype=DataType.Float) for _ in range(2))
        mask = self.input(s.seq, s.seq, dtype=DataType.Float)
        norm1 = self.input(e)
        wq, wk, wv, wo = (self.input(e, e) for _ in range(4))
        norm2 = self.input(e)
        w1, w3 = self.input(f, e), self.input(f, e)
        w2 = self.input(e, f)
        scale = 1 / math.sqrt(s.head)

        h1, x_wide, rstd1 = self.norm(x, norm1)
        q, k = (self.rotated(self.heads(ops.linear(h1, w)), cos, sin, 1.0) for w in (wq, wk))
        v = self.heads(ops.linear(h1, wv))
        scores = ops.mul(self.wide(ops.matmul(q, self.transposed(k))), scale)
        scores = ops.add(scores, ops.broadcast(mask, [True, True, False, False]))
        power = ops.exp(ops.sub(scores, ops.max(scores, dims=[3], keepdim=True)))
        soft = ops.div(power, ops.sum(power, dims=[3], keepdim=True))
        p = self.narrow(soft)
        attended = self.merged(ops.matmul(p, v))
        x2 = self.narrow(ops.add(x_wide, self.wide(ops.linear(attended, wo))))
        h2, x2_wide, rstd2 = self.norm(x2, norm2)
        a, b = ops.linear(h2, w1), ops.linear(h2, w3)
        a_wide, b_wide = self.wide(a), self.wide(b)
        gate = ops.sigmoid(a_wide)
        silu = ops.mul(a_wide, gate)
        g = self.narrow(ops.mul(silu, b_wide))
        fd.add_output(self.narrow(ops.add(x2_wide, self.wide(ops.linear(g, w2)))))

        dg, dw2 = self.product_gradients(dy, g, w2)
        dg_wide = self.wide(dg)
        slope = ops.mul(gate, ops.add(ops.mul(a_wide, ops.sub(1.0, gate)), 1.0))
        da = self.narrow(ops.mul(ops.mul(dg_wide, b_wide), slope))
        db = self.narrow(ops.mul(dg_wide, silu))
        dh2a, dw1 = self.product_gradients(da, h2, w1)
        dh2b, dw3 = self.product_gradients(db, h2, w3)
        dx2, dnorm2 = self.norm_backward(ops.add(self.wide(dh2a), self.wide(dh2b)), norm2, x2_wide, rstd2)
        dx2 = self.narrow(ops.add(dx2, self.wide(dy)))
        dattended, dwo = self.product_gradients(dx2, attended, wo)
        dout = self.heads(dattended)
        dv = ops.matmul(self.transposed(p), dout)
        dp = self.wide(ops.matmul(dout, self.transposed(v)))
        inner = ops.sum(ops.mul(dp, soft), dims=[3], keepdim=True)
        ds = self.narrow(ops.mul(ops.mul(soft, ops.sub(dp, inner)), scale))
        dq = self.merged(self.rotated(ops.matmul(ds, k), cos, sin, -1.0))
        dk = self.merged(self.rotated(ops.matmul(self.transposed(ds), q), cos, sin, -1.0))
        dh1q, dwq = self.product_gradients(dq, h1, wq)
        dh1k, dwk = self.product_gradients(dk, h1, wk)
        dh1v, dwv = self.product_gradients(self.merged(dv), h1, wv)
        dh1 = ops.add(ops.add(self.wide(dh1q), self.wide(dh1k)), self.wide(dh1v))
        dx, dnorm1 = self.norm_backward(dh1, norm1, x_wide, rstd1)
        fd.add_output(self.narrow(ops.add(dx, self.wide(dx2))))
        for gradient in (dnorm1, dwq, dwk, dwv, dwo, dnorm2, dw1, dw3, dw2):
            fd.add_output(gradient)


def forward(xp: Any, sizes: Sizes, arrays: list[Any]) -> Any:
    """y, by the operators that tensors of torch and arrays of NumPy share; the mask is added in the arrays' own type."""
    x, _, cos, sin, mask, norm1, wq, wk, wv, wo, norm2, w1, w3, w2 = arrays
    s = sizes

    def norm(t: Any, weight: Any) -> Any:
        return t * (1 / ((t * t).mean(-1)[..., None] + 1e-5) ** 0.5) * weight

    def heads(t: Any) -> Any:
        return t.reshape(s.batch, s.seq, s.heads, s.head).swapaxes(1, 2)

    def rotated(t: Any) -> Any:
        half = s.head // 2
        first, second = t[..., :half], t[..., half:]
        return xp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    h = norm(x, norm1)
    q, k, v = rotated(heads(h @ wq.T)), rotated(heads(h @ wk.T)), heads(h @ wv.T)
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(s.head) + mask
    power = xp.exp(scores)
    soft = power / power.sum(-1)[..., None]
    x = x + (soft @ v).swapaxes(1, 2).reshape(s.batch, s.seq, s.width) @ wo.T
    h = norm(x, norm2)
    a = h @ w1.T
    return x + (a / (1 + xp.exp(-a)) * (h @ w3.T)) @ w2.T
