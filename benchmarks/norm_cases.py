"""Softmax, the norms, and their gradients: statistics in Float, results rounded once unless torch rounds in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.case import Case, Wide, as_dtype, either_rounding, wide_dtype
from benchmarks.inputs import BF16, F32, SHORT_NAMES, Fill, Input
from fuser.ir.ops.dtypes import DataType

LAYER_EPS = 1e-5
RMS_EPS = 1e-6


def _torch_wide(torch: Any, dtype: DataType) -> Any:
    return torch.float64 if dtype is DataType.Double else torch.float32


def softmax(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """softmax over the last dim."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        wide = as_dtype(fd, x, wide_dtype(dtype))
        e = fd.ops.exp(wide - fd.ops.max(wide, 1, keepdim=True))
        return [as_dtype(fd, e / fd.ops.sum(e, 1, keepdim=True), dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: torch.softmax(x, -1)

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        wide = m.wide(x)
        e = m.xp.exp(wide - m.xp.amax(wide, axis=-1, keepdims=True))
        return [e / e.sum(axis=-1, keepdims=True)]

    name = f"softmax_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "softmax", (x_input,), x_input.nbytes, define, eager, reference)


def softmax_backward(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """y * (dy - sum(dy * y))."""
    dy_input, y_input = Input((rows, columns), dtype), Input((rows, columns), dtype, Fill.PROBABILITY)

    def define(fd: Any, dy: Any, y: Any) -> Sequence[Any]:
        d, p = (as_dtype(fd, t, wide_dtype(dtype)) for t in (dy, y))
        return [as_dtype(fd, p * (d - fd.ops.sum(d * p, 1, keepdim=True)), dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        wide = _torch_wide(torch, dtype)

        def run(dy: Any, y: Any) -> Any:
            d, p = dy.to(wide), y.to(wide)
            return (p * (d - (d * p).sum(-1, keepdim=True))).to(dy.dtype)

        return run

    def reference(m: Wide, dy: Any, y: Any) -> Sequence[Any]:
        d, p = m.wide(dy), m.wide(y)
        return [p * (d - (d * p).sum(axis=-1, keepdims=True))]

    name = f"softmax_bwd_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "softmax_bwd", (dy_input, y_input), dy_input.nbytes, define, eager, reference)


def layer_norm(rows: int, columns: int, dtype: DataType = BF16, *, weight: DataType | None = None) -> Case:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dim; `weight` is the dtype of the two if not x's."""
    weight_dtype = weight if weight is not None else dtype
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = as_dtype(fd, x, wide_dtype(dtype))
        variance, mean = fd.ops.var_mean(wide, [1], correction=0, keepdim=True)
        return [as_dtype(fd, (wide - mean) * fd.ops.rsqrt(variance + LAYER_EPS) * weight + bias, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        def run(x: Any, weight: Any, bias: Any) -> Any:
            if weight.dtype is x.dtype:
                return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)
            return torch.nn.functional.layer_norm(x.float(), (x.shape[-1],), weight, bias).to(x.dtype)

        return run

    def reference(m: Wide, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = m.wide(x)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return [centred / m.xp.sqrt(variance + LAYER_EPS) * m.wide(weight) + m.wide(bias)]

    inputs = (x_input, Input((columns,), weight_dtype, Fill.SHIFTED), Input((columns,), weight_dtype))
    name = f"layernorm_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "layernorm", inputs, x_input.nbytes, define, eager, reference)


def _rms(fd: Any, x: Any, weight: Any, dtype: DataType, out: DataType) -> Any:
    wide = as_dtype(fd, x, wide_dtype(dtype))
    mean_square = fd.ops.sum(wide * wide, 1, keepdim=True) / fd.ops.size(x, 1)
    # Rounded before the weight, as the model code that this is taken from does.
    normalized = as_dtype(fd, wide * fd.ops.rsqrt(mean_square + RMS_EPS), dtype)
    return as_dtype(fd, normalized * weight, out)


def _rms_eager(torch: Any, x: Any, weight: Any, dtype: DataType) -> Any:
    wide = x.to(_torch_wide(torch, dtype))
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + RMS_EPS)).to(x.dtype) * weight


def _rms_wide(m: Wide, x: Any, weight: Any, dtype: DataType) -> Any:
    """`x` in float64."""
    scale = 1 / m.xp.sqrt((x * x).mean(axis=-1, keepdims=True) + RMS_EPS)
    return either_rounding(m, x * scale, dtype, lambda rounded: rounded * m.wide(weight))


def rms_norm(rows: int, columns: int, dtype: DataType = BF16, *, weight: DataType | None = None) -> Case:
    """x / sqrt(mean(x^2) + eps), rounded, * weight. A wider weight widens the result, as in torch."""
    weight_dtype = weight if weight is not None else dtype
    out_dtype = dtype if weight_dtype is dtype else wide_dtype(weight_dtype)
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, weight: Any) -> Sequence[Any]:
        return [_rms(fd, x, weight, dtype, out_dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, weight: _rms_eager(torch, x, weight, dtype)

    def reference(m: Wide, x: Any, weight: Any) -> Sequence[Any]:
        return [_rms_wide(m, m.wide(x), weight, dtype)]

    inputs = (x_input, Input((columns,), weight_dtype, Fill.SHIFTED))
    name = f"rmsnorm_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "rmsnorm", inputs, x_input.numel * out_dtype.itemsize, define, eager, reference)


def add_rms_norm(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """h = x + residual; RMSNorm(h) and h."""
    x_input = Input((rows, columns), dtype)

    def define(fd: Any, x: Any, residual: Any, weight: Any) -> Sequence[Any]:
        h = as_dtype(fd, x + residual, dtype)
        return [_rms(fd, h, weight, dtype, dtype), h]

    def eager(torch: Any) -> Callable[..., Any]:
        def run(x: Any, residual: Any, weight: Any) -> Any:
            h = x + residual
            return _rms_eager(torch, h, weight, dtype), h

        return run

    def reference(m: Wide, x: Any, residual: Any, weight: Any) -> Sequence[Any]:
        h = m.round(m.wide(x) + m.wide(residual), dtype)
        return [_rms_wide(m, h, weight, dtype), h]

    inputs = (x_input, x_input, Input((columns,), dtype, Fill.SHIFTED))
    name = f"add_rmsnorm_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "add_rmsnorm", inputs, 2 * x_input.nbytes, define, eager, reference)


def layer_norm_backward(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """Gradients of x, weight and bias; mean and 1/deviation of each row are inputs."""
    x_input = Input((rows, columns), dtype)
    statistic = (rows, 1)

    def define(fd: Any, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any) -> Sequence[Any]:
        dy_wide, x_wide, w_wide = (as_dtype(fd, t, wide_dtype(dtype)) for t in (dy, x, weight))
        normalized = (x_wide - mean) * rstd
        weighted = dy_wide * w_wide
        columns_of = fd.ops.size(x, 1)
        c1 = fd.ops.sum(normalized * weighted, 1, keepdim=True) / columns_of
        c2 = fd.ops.sum(weighted, 1, keepdim=True) / columns_of
        dx = (weighted - (normalized * c1 + c2)) * rstd
        d_weight, d_bias = fd.ops.sum(dy_wide * normalized, 0), fd.ops.sum(dy_wide, 0)
        return [as_dtype(fd, t, dtype) for t in (dx, d_weight, d_bias)]

    def eager(torch: Any) -> Callable[..., Any]:
        wide = _torch_wide(torch, dtype)

        def run(dy: Any, x: Any, weight: Any, mean: Any, rstd: Any) -> Any:
            normalized = (x.to(wide) - mean) * rstd
            weighted = dy.to(wide) * weight.to(wide)
            c1 = (normalized * weighted).mean(-1, keepdim=True)
            c2 = weighted.mean(-1, keepdim=True)
            dx = ((weighted - (normalized * c1 + c2)) * rstd).to(x.dtype)
            return dx, (dy.to(wide) * normalized).sum(0).to(x.dtype), dy.to(wide).sum(0).to(x.dtype)

        return run

    def reference(m: Wide, dy: Any, x: Any, weight: Any, mean: Any, rstd: Any) -> Sequence[Any]:
        d, s = m.wide(dy), m.wide(rstd)
        normalized = (m.wide(x) - m.wide(mean)) * s
        weighted = d * m.wide(weight)
        c1 = (normalized * weighted).mean(axis=-1, keepdims=True)
        c2 = weighted.mean(axis=-1, keepdims=True)
        return [(weighted - (normalized * c1 + c2)) * s, (d * normalized).sum(axis=0), d.sum(axis=0)]

    inputs = (
        Input((rows, columns), dtype, Fill.SHIFTED),
        x_input,
        Input((columns,), dtype, Fill.SHIFTED),
        Input(statistic, wide_dtype(dtype), Fill.ANGLE),
        Input(statistic, wide_dtype(dtype), Fill.POSITIVE),
    )
    name = f"layernorm_bwd_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    output_bytes = x_input.nbytes + 2 * columns * dtype.itemsize
    # The statistics are as good as nothing, and the public count leaves them in the inputs.
    return Case(name, "layernorm_bwd", inputs, output_bytes, define, eager, reference)


CHANNELS_LAST = (0, 2, 3, 1)


def batch_norm(
    batch: int, channels: int, height: int, width: int, dtype: DataType = BF16, *, last: bool = True
) -> Case:
    """Training batch norm over all dims but the channels, channels last in memory unless `last` is False."""
    x_input = Input((batch, channels, height, width), dtype, order=CHANNELS_LAST if last else None)

    def define(fd: Any, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = as_dtype(fd, x, wide_dtype(dtype))
        variance, mean = fd.ops.var_mean(wide, [0, 2, 3], correction=0, keepdim=True)
        w, b = (fd.ops.broadcast(t, [True, False, True, True]) for t in (weight, bias))
        return [as_dtype(fd, (wide - mean) * fd.ops.rsqrt(variance + LAYER_EPS) * w + b, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        wide = _torch_wide(torch, dtype)

        def run(x: Any, weight: Any, bias: Any) -> Any:
            xf = x.to(wide)
            variance, mean = torch.var_mean(xf, (0, 2, 3), correction=0, keepdim=True)
            scaled = (xf - mean) * torch.rsqrt(variance + LAYER_EPS) * weight.view(1, -1, 1, 1)
            return (scaled + bias.view(1, -1, 1, 1)).to(x.dtype)

        return run

    def reference(m: Wide, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = m.wide(x)
        centred = wide - wide.mean(axis=(0, 2, 3), keepdims=True)
        variance = (centred * centred).mean(axis=(0, 2, 3), keepdims=True)
        scale = m.wide(weight).reshape(1, -1, 1, 1) / m.xp.sqrt(variance + LAYER_EPS)
        return [centred * scale + m.wide(bias).reshape(1, -1, 1, 1)]

    inputs = (x_input, Input((channels,), F32, Fill.SHIFTED), Input((channels,), F32))
    name = f"batchnorm_{'cl_' if last else ''}{SHORT_NAMES[dtype]}_{batch}x{channels}x{height}x{width}"
    return Case(name, "batchnorm", inputs, x_input.nbytes, define, eager, reference)


def group_norm(batch: int, channels: int, height: int, width: int, groups: int, dtype: DataType = BF16) -> Case:
    """Group norm of a dense [batch, channels, height, width]; weight and bias are Float."""
    shape = (batch, channels, height, width)
    x_input = Input(shape, dtype)
    grouped = [batch, groups, channels // groups, height, width]

    def define(fd: Any, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = fd.ops.reshape(as_dtype(fd, x, wide_dtype(dtype)), grouped)
        variance, mean = fd.ops.var_mean(wide, [2, 3, 4], correction=0, keepdim=True)
        normalized = fd.ops.reshape((wide - mean) * fd.ops.rsqrt(variance + LAYER_EPS), list(shape))
        w, b = (fd.ops.broadcast(t, [True, False, True, True]) for t in (weight, bias))
        return [as_dtype(fd, normalized * w + b, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        wide = _torch_wide(torch, dtype)

        def run(x: Any, weight: Any, bias: Any) -> Any:
            return torch.nn.functional.group_norm(x.to(wide), groups, weight.to(wide), bias.to(wide)).to(x.dtype)

        return run

    def reference(m: Wide, x: Any, weight: Any, bias: Any) -> Sequence[Any]:
        wide = m.wide(x).reshape(batch, groups, -1)
        centred = wide - wide.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        normalized = (centred / m.xp.sqrt(variance + LAYER_EPS)).reshape(shape)
        return [normalized * m.wide(weight).reshape(1, -1, 1, 1) + m.wide(bias).reshape(1, -1, 1, 1)]

    inputs = (x_input, Input((channels,), F32, Fill.SHIFTED), Input((channels,), F32))
    name = f"groupnorm_{SHORT_NAMES[dtype]}_{batch}x{channels}x{height}x{width}"
    return Case(name, "groupnorm", inputs, x_input.nbytes, define, eager, reference)
