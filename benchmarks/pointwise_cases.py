"""Pointwise families: activations with bias, gating, dropout. 16-bit results round where torch's ops round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.case import Case, Wide, as_dtype, as_tuple, wide_dtype
from benchmarks.inputs import BF16, SHORT_NAMES, Fill, Input
from fuser.ir.ops.dtypes import DataType

_TANH_SCALE = math.sqrt(2 / math.pi)


def _gelu_tanh_wide(m: Wide, x: Any) -> Any:
    # x (1 + tanh(z)) / 2 without the cancellation near -1, which is worth four units of a Double.
    return x / (1 + m.xp.exp(-2 * _TANH_SCALE * (x + 0.044715 * x * x * x)))


def _silu_wide(m: Wide, x: Any) -> Any:
    return x / (1 + m.xp.exp(-x))


def bias_gelu(rows: int, columns: int, dtype: DataType = BF16, *, name: str = "") -> Case:
    """gelu(x + bias), the tanh form."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, bias: Any) -> Sequence[Any]:
        # The sum is an op of its own in torch: it rounds.
        y = as_dtype(fd, as_dtype(fd, x + bias, dtype), wide_dtype(dtype))
        inner = _TANH_SCALE * (y + 0.044715 * y * y * y)
        return [as_dtype(fd, 0.5 * y * (1.0 + fd.ops.tanh(inner)), dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, bias: torch.nn.functional.gelu(x + bias, approximate="tanh")

    def reference(m: Wide, x: Any, bias: Any) -> Sequence[Any]:
        return [_gelu_tanh_wide(m, m.round(m.wide(x) + m.wide(bias), dtype))]

    inputs = (x_input, Input((columns,), dtype))
    name = name or f"bias_gelu_tanh_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "bias_gelu", inputs, x_input.nbytes, define, eager, reference)


def mul_add_silu(rows: int, columns: int, dtype: DataType = BF16, *, name: str = "") -> Case:
    """silu(x) * y + bias."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, y: Any, bias: Any) -> Sequence[Any]:
        product = as_dtype(fd, fd.ops.silu(x) * y, dtype)
        return [as_dtype(fd, product + bias, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, y, bias: torch.nn.functional.silu(x) * y + bias

    def reference(m: Wide, x: Any, y: Any, bias: Any) -> Sequence[Any]:
        gate = m.round(_silu_wide(m, m.wide(x)), dtype)
        return [m.round(gate * m.wide(y), dtype) + m.wide(bias)]

    inputs = (x_input, x_input, Input((columns,), dtype))
    name = name or f"mul_add_silu_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "mul_add_silu", inputs, x_input.nbytes, define, eager, reference)


def add_relu(rows: int, columns: int, dtype: DataType) -> Case:
    """relu(x + y)."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, y: Any) -> Sequence[Any]:
        return [fd.ops.relu(as_dtype(fd, x + y, dtype))]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, y: torch.relu(x + y)

    def reference(m: Wide, x: Any, y: Any) -> Sequence[Any]:
        total = m.wide(x) + m.wide(y)
        return [m.xp.where(total > 0, total, 0.0)]

    name = f"add_relu_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "add_relu", (x_input, x_input), x_input.nbytes, define, eager, reference)


def swiglu(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """silu(left half) * right half of [rows, 2 * columns]."""
    x_input = Input((rows, 2 * columns), dtype)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        gate = fd.ops.slice(x, [0, 0], [rows, columns])
        value = fd.ops.slice(x, [0, columns], [rows, 2 * columns])
        return [as_dtype(fd, fd.ops.silu(gate) * value, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: torch.nn.functional.silu(x[:, :columns]) * x[:, columns:]

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        wide = m.wide(x)
        return [m.round(_silu_wide(m, wide[:, :columns]), dtype) * wide[:, columns:]]

    name = f"swiglu_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "swiglu", (x_input,), x_input.nbytes // 2, define, eager, reference)


def rope(batch: int, heads: int, length: int, width: int, dtype: DataType = BF16) -> Case:
    """Rotary embedding: q * cos + rotated(q) * sin, rotated = (-second half, first half)."""
    half = width // 2
    shape = (batch, heads, length, width)
    q_input, angle = Input(shape, dtype), Input((length, width), dtype, Fill.ANGLE)

    def define(fd: Any, q: Any, cos: Any, sin: Any) -> Sequence[Any]:
        float_dtype = wide_dtype(dtype)
        first = fd.ops.slice(q, [0, 0, 0, 0], [batch, heads, length, half])
        second = fd.ops.slice(q, [0, 0, 0, half], [batch, heads, length, width])
        turned = fd.ops.cat([as_dtype(fd, -second, dtype), first], -1)
        straight = as_dtype(fd, q, float_dtype) * as_dtype(fd, cos, float_dtype)
        across = as_dtype(fd, turned, float_dtype) * as_dtype(fd, sin, float_dtype)
        return [as_dtype(fd, straight + across, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        float_dtype = torch.float64 if dtype is DataType.Double else torch.float32

        def run(q: Any, cos: Any, sin: Any) -> Any:
            first, second = q[..., :half], q[..., half:]
            turned = torch.cat((-second, first), -1)
            return (q.to(float_dtype) * cos.to(float_dtype) + turned.to(float_dtype) * sin.to(float_dtype)).to(q.dtype)

        return run

    def reference(m: Wide, q: Any, cos: Any, sin: Any) -> Sequence[Any]:
        wide = m.wide(q)
        turned = m.xp.concatenate((-wide[..., half:], wide[..., :half]), axis=-1)
        return [wide * m.wide(cos) + turned * m.wide(sin)]

    name = f"rope_{SHORT_NAMES[dtype]}_{batch}x{heads}x{length}x{width}"
    return Case(name, "rope", (q_input, angle, angle), q_input.nbytes, define, eager, reference)


DROP_RATE = 0.1


def dropout_residual(rows: int, columns: int, dtype: DataType = BF16, *, name: str = "") -> Case:
    """dropout(x, 0.1) + residual: kept values are scaled by 1 / 0.9."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, residual: Any) -> Sequence[Any]:
        float_dtype = wide_dtype(dtype)
        draw = fd.ops.uniform(0.0, 1.0, fd.ops.shape(x), dtype=float_dtype)
        scaled = as_dtype(fd, x, float_dtype) * (1.0 / (1.0 - DROP_RATE))
        kept = as_dtype(fd, fd.ops.where(fd.ops.ge(draw, DROP_RATE), scaled, 0.0), dtype)
        return [as_dtype(fd, kept + residual, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, residual: torch.nn.functional.dropout(x, DROP_RATE, True) + residual

    def reference(m: Wide, x: Any, residual: Any) -> Sequence[Any]:
        raise NotImplementedError("dropout is checked by its statistics")

    name = name or f"dropout_residual_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "dropout", (x_input, x_input), x_input.nbytes, define, eager, reference, check=check_dropout)


def check_dropout(torch: Any, run: Callable[[], Any], inputs: Sequence[Any]) -> tuple[bool, str]:
    """Every element is the residual or the scaled sum; a tenth is dropped, independently; seeds decide the draw.

    `run` draws from torch's generator of the device and returns the outputs.
    """
    x, residual = inputs
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    scaled = (x.to(wide) * (1.0 / (1.0 - DROP_RATE))).to(x.dtype)
    sums = scaled.to(wide) + residual.to(wide)
    kept_value = sums.to(x.dtype)
    del scaled, sums

    def masks() -> tuple[Any, Any, int]:
        """Where it was dropped, where that can be told, how many elements are neither."""
        (out,) = as_tuple(run())
        is_dropped, is_kept = out == residual, out == kept_value
        return is_dropped, is_dropped != is_kept, int((~(is_dropped | is_kept)).sum())

    torch.manual_seed(7)
    first, told, wrong = masks()
    second, _, _ = masks()
    torch.manual_seed(7)
    again, _, _ = masks()
    total = int(told.sum())
    dropped = first & told
    rate = int(dropped.sum()) / max(total, 1)
    both = told[..., 1:] & told[..., :-1]
    pairs = int((dropped[..., 1:] & dropped[..., :-1]).sum()) / max(int(both.sum()), 1)
    # Six deviations of a mean of `total` independent draws.
    margin = 6 * math.sqrt(DROP_RATE * (1 - DROP_RATE) / max(total, 1))
    pair_margin = 6 * math.sqrt(DROP_RATE**2 / max(total, 1)) + 2 * DROP_RATE * margin
    problems = [
        text
        for text, found in (
            (f"{wrong} elements are neither dropped nor kept", wrong > 0),
            (f"{total} of {x.numel()} elements can be told apart", total < 0.9 * x.numel()),
            (f"{rate:.5f} are dropped", abs(rate - DROP_RATE) > margin),
            (f"{pairs:.5f} of the neighbours are both dropped", abs(pairs - DROP_RATE**2) > pair_margin),
            ("the second run drew the same", torch.equal(first, second)),
            ("the same seed drew something else", not torch.equal(first, again)),
        )
        if found
    ]
    return not problems, "; ".join(problems) or f"drop rate {rate:.4f}"
