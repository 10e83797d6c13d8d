"""Activations with biases and gates, and their gradients."""

import math

from benchmarks.everyday.recipe import CHANNELS_LAST, POSITIVE, Recipe, bf16, everyday, f16, f32, mask
from fuser import ops

TANH_SCALE = math.sqrt(2 / math.pi)


@everyday(m=(9973, 13), n=(4864, 21))
def gelu_backward_bias_grad(m, n):
    def define(dy, x):
        h = x.float()
        cdf = ((h * math.sqrt(0.5)).erf() + 1.0) * 0.5
        pdf = (h * h * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        dx = dy.float() * (cdf + h * pdf)
        return dx.bfloat16(), dx.sum(0).bfloat16()

    def eager(torch, dy, x):
        dx = torch.ops.aten.gelu_backward(dy, x)
        return dx, dx.sum(0)

    return Recipe([bf16(m, n), bf16(m, n)], define, eager)


@everyday(m=(6151, 5), n=(6912, 9))
def geglu(m, n):
    def define(x):
        a, b = x[:, :n].float(), x[:, n:].float()
        return (0.5 * a * (1.0 + (TANH_SCALE * (a + 0.044715 * a * a * a)).tanh()) * b).bfloat16()

    def eager(torch, x):
        a, b = x.chunk(2, -1)
        return torch.nn.functional.gelu(a, approximate="tanh") * b

    return Recipe([bf16(m, 2 * n)], define, eager)


@everyday(m=(8190, 5), n=(3072, 33))
def bias_gelu_bert(m, n):
    def define(x, b):
        h = x.float() + b.float()
        return (0.5 * h * (1.0 + (h * math.sqrt(0.5)).erf())).half()

    def eager(torch, x, b):
        return torch.nn.functional.gelu(x + b)

    return Recipe([f16(m, n), f16(n)], define, eager)


@everyday(m=(8191, 5), n=(6400, 33))
def gelu_tanh_backward_gpt2(m, n):
    def define(dy, x):
        h = x.float()
        t = (TANH_SCALE * (h + 0.044715 * h * h * h)).tanh()
        slope = TANH_SCALE * (1.0 + 3 * 0.044715 * h * h)
        return (dy.float() * (0.5 * (1.0 + t) + 0.5 * h * (1.0 - t * t) * slope)).half()

    def eager(torch, dy, x):
        return torch.ops.aten.gelu_backward(dy, x, approximate="tanh")

    return Recipe([f16(m, n), f16(m, n)], define, eager)


@everyday(m=(4097, 5), n=(11008, 20))
def swiglu_backward(m, n):
    def define(dy, x):
        g, a, b = dy.float(), x[:, :n].float(), x[:, n:].float()
        s = a.sigmoid()
        da = g * b * s * (1.0 + a * (1.0 - s))
        return ops.cat([da, g * a * s], 1).bfloat16()

    def eager(torch, dy, x):
        g, (a, b) = dy.float(), x.float().chunk(2, -1)
        s = torch.sigmoid(a)
        return torch.cat((g * b * s * (1 + a * (1 - s)), g * a * s), -1).to(x.dtype)

    return Recipe([bf16(m, n), bf16(m, 2 * n)], define, eager)


@everyday(m=(6001, 5), n=(2880, 20))
def swiglu_clamped_interleaved(m, n):
    def define(x, bias):
        pairs = (x.float() + bias.float()).reshape(m, n, 2)
        gate, up = pairs[..., 0].minimum(7.0), pairs[..., 1].clamp(-7.0, 7.0)
        return ((up + 1.0) * gate * (gate * 1.702).sigmoid()).bfloat16()

    def eager(torch, x, bias):
        y = x.float() + bias.float()
        gate, up = y[..., ::2].clamp(max=7.0), y[..., 1::2].clamp(-7.0, 7.0)
        return ((up + 1) * gate * torch.sigmoid(gate * 1.702)).to(x.dtype)

    return Recipe([bf16(m, 2 * n), bf16(2 * n)], define, eager)


@everyday(n=(50, 2), s=(257, 5), c=(4096, 20))
def quick_gelu_clip(n, s, c):
    def define(x, b):
        h = x.float() + b.float()
        return (h * (h * 1.702).sigmoid()).bfloat16()

    def eager(torch, x, b):
        h = x + b
        return h * torch.sigmoid(1.702 * h)

    return Recipe([bf16(n, s, c), bf16(c)], define, eager)


@everyday(n=(32, 2), c=(255, 5), s=(76, 5))
def mish_nhwc_yolo(n, c, s):
    def define(x):
        h = x.float()
        return (h * h.exp().log1p().tanh()).bfloat16()

    def eager(torch, x):
        return torch.nn.functional.mish(x)

    return Recipe([bf16(n, c, s, s, order=CHANNELS_LAST)], define, eager)


@everyday(m=(8193, 5), n=(4864, 20))
def squared_relu_backward(m, n):
    def define(dy, x):
        return (dy.float() * 2.0 * x.float().relu()).bfloat16()

    def eager(torch, dy, x):
        return dy * 2 * torch.relu(x)

    return Recipe([bf16(m, n), bf16(m, n)], define, eager)


@everyday(n=(64, 2), c=(240, 6), s=(28, 5))
def hardswish_nhwc_mobilenet(n, c, s):
    def define(x, w, b):
        h = x.float() * w[:, None, None] + b[:, None, None]
        return (h * (h + 3.0).clamp(0.0, 6.0) * (1 / 6)).half()

    def eager(torch, x, w, b):
        h = x.float() * w[:, None, None] + b[:, None, None]
        return torch.nn.functional.hardswish(h).to(x.dtype)

    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST), f32(c), f32(c)], define, eager)


@everyday(n=(64, 2), c=(120, 6), s=(57, 5))
def hardswish_backward_nhwc(n, c, s):
    def define(dy, x):
        h = x.float()
        inner = ops.where(h < 3.0, h * (1 / 3) + 0.5, 1.0)
        return (dy.float() * ops.where(h <= -3.0, 0.0, inner)).half()

    def eager(torch, dy, x):
        return torch.ops.aten.hardswish_backward(dy, x)

    pixels = f16(n, c, s, s, order=CHANNELS_LAST)
    return Recipe([pixels, pixels], define, eager)


@everyday(n=(64, 2), c=(96, 6), s=(113, 5))
def squeeze_excite_scale_nhwc(n, c, s):
    def define(x, gate):
        return (x.float() * gate.float().sigmoid()).bfloat16()

    def eager(torch, x, gate):
        return x * torch.sigmoid(gate)

    return Recipe([bf16(n, c, s, s, order=CHANNELS_LAST), bf16(n, c, 1, 1)], define, eager)


@everyday(n=(16, 2), c=(256, 3), t=(1999, 11))
def glu_conformer(n, c, t):
    def define(x, b):
        h = x.float() + b.float()[:, None]
        return (h[:, :c] * h[:, c:].sigmoid()).half()

    def eager(torch, x, b):
        return torch.nn.functional.glu(x + b[:, None], 1)

    return Recipe([f16(n, 2 * c, t), f16(2 * c)], define, eager)


@everyday(n=(8, 2), c=(192, 3), t=(8193, 21))
def snake_audio(n, c, t):
    def define(x, alpha):
        a = alpha[:, None]
        wave = (x * a).sin()
        return x + wave * wave / (a + 1e-9)

    def eager(torch, x, alpha):
        a = alpha[:, None]
        return x + torch.sin(a * x).pow(2) / (a + 1e-9)

    return Recipe([f32(n, c, t), f32(c, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), s=(197, 5), c=(1024, 12))
def layer_scale_drop_path(n, s, c):
    def define(x, y, gamma, keep):
        kept = ops.where(keep[:, None, None], y.float() * gamma * (1 / 0.75), 0.0)
        return (x.float() + kept).bfloat16()

    def eager(torch, x, y, gamma, keep):
        return (x + y * gamma * (keep[:, None, None] / 0.75)).to(x.dtype)

    return Recipe([bf16(n, s, c), bf16(n, s, c), f32(c), mask(n)], define, eager)


@everyday(n=(16, 2), c=(128, 5), s=(127, 9))
def biased_leaky_relu_stylegan(n, c, s):
    def define(x, b):
        h = x.float() + b.float()[:, None, None]
        return (ops.where(h > 0, h, h * 0.2) * math.sqrt(2)).clamp(-256.0, 256.0).half()

    def eager(torch, x, b):
        h = torch.nn.functional.leaky_relu(x + b[:, None, None], 0.2)
        return (h * math.sqrt(2)).clamp(-256, 256)

    return Recipe([f16(n, c, s, s), f16(c)], define, eager)


@everyday(n=(32, 2), c=(64, 5), s=(112, 9))
def prelu_backward(n, c, s):
    def define(dy, x, w):
        g, h = dy.float(), x.float()
        positive = h > 0
        dx = ops.where(positive, g, g * w[:, None, None])
        return dx.half(), ops.where(positive, 0.0, g * h).sum([0, 2, 3])

    def eager(torch, dy, x, w):
        g, h = dy.float(), x.float()
        dx = torch.where(h > 0, g, g * w[:, None, None])
        return dx.to(x.dtype), torch.where(h > 0, 0, g * h).sum((0, 2, 3))

    return Recipe([f16(n, c, s, s), f16(n, c, s, s), f32(c)], define, eager)


@everyday(n=(32, 2), c=(256, 5), s=(57, 5))
def relu_backward_bias_grad(n, c, s):
    def define(dy, y):
        g = ops.where(y > 0, dy.float(), 0.0)
        return g.bfloat16(), g.sum([0, 2, 3]).bfloat16()

    def eager(torch, dy, y):
        g = torch.ops.aten.threshold_backward(dy, y, 0)
        return g, g.sum((0, 2, 3))

    return Recipe([bf16(n, c, s, s), bf16(n, c, s, s)], define, eager)


@everyday(b=(4001, 5), h=(1500, 7))
def lstm_cell(b, h):
    def define(from_input, from_hidden, c):
        gates = from_input.float() + from_hidden.float()
        i, f, g, o = (gates[:, k * h : (k + 1) * h] for k in range(4))
        c = f.sigmoid() * c.float() + i.sigmoid() * g.tanh()
        return (o.sigmoid() * c.tanh()).half(), c.half()

    def eager(torch, from_input, from_hidden, c):
        i, f, g, o = (from_input.float() + from_hidden.float()).chunk(4, -1)
        c = torch.sigmoid(f) * c.float() + torch.sigmoid(i) * torch.tanh(g)
        return (torch.sigmoid(o) * torch.tanh(c)).half(), c.half()

    return Recipe([f16(b, 4 * h), f16(b, 4 * h), f16(b, h)], define, eager)


@everyday(b=(5003, 5), h=(1024, 9))
def gru_cell(b, h):
    def define(x, y, hidden):
        r = (x[:, :h] + y[:, :h]).sigmoid()
        z = (x[:, h : 2 * h] + y[:, h : 2 * h]).sigmoid()
        n = (x[:, 2 * h :] + r * y[:, 2 * h :]).tanh()
        return n + z * (hidden - n)

    def eager(torch, x, y, hidden):
        (xr, xz, xn), (yr, yz, yn) = x.chunk(3, 1), y.chunk(3, 1)
        r, z = torch.sigmoid(xr + yr), torch.sigmoid(xz + yz)
        n = torch.tanh(xn + r * yn)
        return n + z * (hidden - n)

    return Recipe([f32(b, 3 * h), f32(b, 3 * h), f32(b, h)], define, eager)


@everyday(m=(10001, 5), n=(3072, 20))
def dropout_add_backward(m, n):
    def define(dy, keep):
        return ops.where(keep, dy.float() * (1 / 0.9), 0.0).bfloat16(), dy.float().sum(0).bfloat16()

    def eager(torch, dy, keep):
        return torch.ops.aten.native_dropout_backward(dy, keep, 1 / 0.9), dy.sum(0)

    return Recipe([bf16(m, n), mask(m, n)], define, eager)
