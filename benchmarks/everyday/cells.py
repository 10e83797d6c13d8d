"""Gradients of activations and of recurrent cells; gates that scale channels, and what drops out."""

import math

from benchmarks.everyday.recipe import (
    CHANNELS_LAST,
    POSITIVE,
    PROBABILITY,
    SHIFTED,
    Recipe,
    bf16,
    everyday,
    f16,
    f32,
    mask,
)
from fuser import ops


@everyday(b=(4099, 3), h=(1024, 5))
def lstm_cell_backward(b, h):
    def define(dh, dc, gates, before, after):
        i, f, g, o = (gates[:, k * h : (k + 1) * h].float() for k in range(4))
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        t = after.float().tanh()
        d = dh.float()
        dc = dc.float() + d * o * (1.0 - t * t)
        parts = (
            dc * g * i * (1.0 - i),
            dc * before.float() * f * (1.0 - f),
            dc * i * (1.0 - g * g),
            d * t * o * (1.0 - o),
        )
        every = ops.cat(list(parts), 1)
        return every.half(), (dc * f).half(), every.sum(0)

    def eager(torch, dh, dc, gates, before, after):
        i, f, g, o = gates.float().chunk(4, 1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        t = torch.tanh(after.float())
        d = dh.float()
        dc = dc.float() + d * o * (1 - t * t)
        parts = (dc * g * i * (1 - i), dc * before.float() * f * (1 - f), dc * i * (1 - g * g), d * t * o * (1 - o))
        every = torch.cat(parts, 1)
        return every.half(), (dc * f).half(), every.sum(0)

    return Recipe([f16(b, h), f16(b, h), f16(b, 4 * h), f16(b, h), f16(b, h)], define, eager)


@everyday(b=(2051, 3), h=(1536, 5))
def gru_cell_backward(b, h):
    def define(dh, r, z, n, hn, before):
        d = dh.float()
        dn = d * (1.0 - z) * (1.0 - n * n)
        dz = d * (before - n) * z * (1.0 - z)
        dr = dn * hn * r * (1.0 - r)
        return ops.cat([dr, dz, dn], 1), ops.cat([dr, dz, dn * r], 1), d * z

    def eager(torch, dh, r, z, n, hn, before):
        d = dh.float()
        dn = d * (1 - z) * (1 - n * n)
        dz = d * (before - n) * z * (1 - z)
        dr = dn * hn * r * (1 - r)
        return torch.cat((dr, dz, dn), 1), torch.cat((dr, dz, dn * r), 1), d * z

    return Recipe([f32(b, h), *[f32(b, h, fill=POSITIVE)] * 2, f32(b, h), f32(b, h), f32(b, h)], define, eager)


@everyday(m=(16001, 9), n=(1536, 7))
def elu_backward_bias_grad(m, n):
    def define(dy, y):
        h = y.float()
        g = ops.where(h > 0.0, dy.float(), dy.float() * (h + 1.0))
        return g.bfloat16(), g.sum(0)

    def eager(torch, dy, y):
        g = torch.ops.aten.elu_backward(dy.float(), 1.0, 1.0, 1.0, True, y.float())
        return g.to(dy.dtype), g.sum(0)

    return Recipe([bf16(m, n), bf16(m, n)], define, eager)


@everyday(n=(32, 2), c=(64, 5), s=(75, 4))
def selu_backward_and_channel_sums(n, c, s):
    scale, alpha = 1.0507009873554805, 1.6732632423543772

    def define(dy, x):
        h, g = x.float(), dy.float() * scale
        g = ops.where(h > 0.0, g, g * alpha * h.exp())
        return g.half(), g.sum([0, 2, 3])

    def eager(torch, dy, x):
        h, g = x.float(), dy.float() * scale
        g = torch.where(h > 0, g, g * alpha * torch.exp(h))
        return g.half(), g.sum((0, 2, 3))

    return Recipe([f16(n, c, s, s), f16(n, c, s, s)], define, eager)


@everyday(m=(20011, 9), n=(1000, 7))
def softplus_backward_bias_grad(m, n):
    def define(dy, x, bias):
        g = dy * (x + bias).sigmoid()
        return g, g.sum(0)

    def eager(torch, dy, x, bias):
        g = torch.ops.aten.softplus_backward(dy, x + bias, 1.0, 100.0)
        return g, g.sum(0)

    return Recipe([f32(m, n), f32(m, n), f32(n)], define, eager)


@everyday(n=(32, 2), c=(144, 5), s=(61, 4))
def hardtanh_backward_nhwc(n, c, s):
    """ReLU6, and what the bias of the convolution before it gets."""

    def define(dy, x):
        h = x.float() * 3.0
        g = ops.where((h > 0.0) & (h < 6.0), dy.float(), 0.0)
        return g.half(), g.sum([0, 2, 3])

    def eager(torch, dy, x):
        h = x.float() * 3
        g = torch.where((h > 0) & (h < 6), dy, 0).float()
        return g.half(), g.sum((0, 2, 3))

    pixels = f16(n, c, s, s, order=CHANNELS_LAST)
    return Recipe([pixels, pixels], define, eager)


@everyday(n=(24, 2), c=(336, 5), s=(48, 4))
def squeeze_excite_backward_nhwc(n, c, s):
    def define(dy, x, score):
        gate = score.float().sigmoid()
        d = dy.float()
        dgate = (d * x.float()).sum([2, 3], keepdim=True)
        return (d * gate).bfloat16(), (dgate * gate * (1.0 - gate)).bfloat16()

    def eager(torch, dy, x, score):
        gate = torch.sigmoid(score.float())
        d = dy.float()
        dgate = (d * x.float()).sum((2, 3), keepdim=True)
        return (d * gate).bfloat16(), (dgate * gate * (1 - gate)).bfloat16()

    pixels = bf16(n, c, s, s, order=CHANNELS_LAST)
    return Recipe([pixels, pixels, bf16(n, c, 1, 1)], define, eager)


@everyday(n=(48, 3), s=(257, 5), c=(1024, 9))
def layer_scale_drop_path_backward(n, s, c):
    def define(dy, branch, gamma, keep):
        kept = keep.float()[:, None, None] * (1 / 0.75)
        g = dy.float() * kept
        return (g * gamma).half(), (g * branch.float()).sum([0, 1])

    def eager(torch, dy, branch, gamma, keep):
        g = dy.float() * (keep.float()[:, None, None] / 0.75)
        return (g * gamma).half(), (g * branch.float()).sum((0, 1))

    return Recipe([f16(n, s, c), f16(n, s, c), f32(c), mask(n)], define, eager)


@everyday(m=(6007, 9), n=(2816, 7))
def geglu_tanh_backward(m, n):
    def define(dy, x):
        a, b, g = x[:, :n].float(), x[:, n:].float(), dy.float()
        k = math.sqrt(2 / math.pi)
        t = ((a + a * a * a * 0.044715) * k).tanh()
        slope = (t + 1.0) * 0.5 + a * (1.0 - t * t) * (a * a * 0.134145 + 1.0) * (0.5 * k)
        return ops.cat([g * b * slope, g * a * (t + 1.0) * 0.5], 1).bfloat16()

    def eager(torch, dy, x):
        a, b = x.float().chunk(2, -1)
        g = dy.float()
        da = torch.ops.aten.gelu_backward(g * b, a, approximate="tanh")
        return torch.cat((da, g * torch.nn.functional.gelu(a, approximate="tanh")), -1).to(x.dtype)

    return Recipe([bf16(m, n), bf16(m, 2 * n)], define, eager)


@everyday(n=(48, 2), c=(128, 3), s=(55, 5))
def dropout2d_of_channels(n, c, s):
    def define(x, keep, skip):
        return (x.float() * (keep.float()[..., None, None] * (1 / 0.8)) + skip.float()).half()

    def eager(torch, x, keep, skip):
        return (x.float() * (keep.float()[..., None, None] / 0.8) + skip.float()).half()

    return Recipe([f16(n, c, s, s), mask(n, c), f16(n, c, s, s)], define, eager)


@everyday(m=(4099, 7), n=(4096, 9))
def dropout_from_given_uniforms(m, n):
    def define(x, u, residual):
        keep = u < 1.375
        return (ops.where(keep, x.float() * (1 / 0.875), 0.0) + residual.float()).bfloat16(), keep

    def eager(torch, x, u, residual):
        keep = u < 1.375
        return (torch.where(keep, x.float() * (1 / 0.875), 0) + residual.float()).to(x.dtype), keep

    return Recipe([bf16(m, n), f32(m, n, fill=POSITIVE), bf16(m, n)], define, eager)


@everyday(m=(30011, 9), n=(300, 7))
def gumbel_softmax_straight_through(m, n):
    def define(logits, noise):
        z = logits - (-(noise.abs() + 1e-6).log() + 1e-3).abs().log()
        e = (z - z.max(-1, keepdim=True)).exp()
        soft = e / e.sum(-1, keepdim=True)
        return soft, (z == z.max(-1, keepdim=True)).half()

    def eager(torch, logits, noise):
        z = logits - torch.log((-torch.log(noise.abs() + 1e-6) + 1e-3).abs())
        return torch.softmax(z, -1), (z == z.amax(-1, keepdim=True)).half()

    return Recipe([f32(m, n), f32(m, n, fill=PROBABILITY)], define, eager)


@everyday(n=(24, 2), c=(256, 6), s=(40, 5))
def simam_gate(n, c, s):
    """Pixels are scaled by how far they lie from the mean of their channel."""

    def define(x):
        h = x.float()
        variance, mean = h.var_mean([2, 3], correction=1, keepdim=True)
        apart = (h - mean) * (h - mean)
        return (h * (apart / (variance * 4.0 + 4e-4) + 0.5).sigmoid()).bfloat16()

    def eager(torch, x):
        h = x.float()
        variance, mean = torch.var_mean(h, (2, 3), keepdim=True)
        return (h * torch.sigmoid((h - mean).square() / (4 * variance + 4e-4) + 0.5)).bfloat16()

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(m=(12289, 9), n=(1024, 7))
def highway_gate_backward(m, n):
    def define(dy, x, h, z):
        g, t = dy.float(), z.float().sigmoid()
        apart = h.float() - x.float()
        return (g * (1.0 - t)).half(), (g * t).half(), (g * apart * t * (1.0 - t)).half()

    def eager(torch, dy, x, h, z):
        g, t = dy.float(), torch.sigmoid(z.float())
        apart = h.float() - x.float()
        return (g * (1 - t)).half(), (g * t).half(), (g * apart * t * (1 - t)).half()

    return Recipe([f16(m, n), f16(m, n), f16(m, n), f16(m, n)], define, eager)


@everyday(m=(40_009, 9), n=(384, 7))
def prelu_backward_rows(m, n):
    def define(dy, x, w):
        h, g = x.float(), dy.float()
        slope = ops.where(h > 0.0, 0.0, h * g)
        return ops.where(h > 0.0, g, g * w).half(), slope.sum(0)

    def eager(torch, dy, x, w):
        h, g = x.float(), dy.float()
        return torch.where(h > 0, g, g * w).half(), torch.where(h > 0, 0, h * g).sum(0)

    return Recipe([f16(m, n), f16(m, n), f32(n, fill=SHIFTED)], define, eager)
