"""Normalisations with what stands around them, and their gradients."""

from benchmarks.everyday.recipe import CHANNELS_LAST, KEEP_RATE, SHIFTED, Recipe, bf16, everyday, f32
from fuser import ops


def normalized(x, eps=1e-5):
    """Rows less their mean, over their deviation."""
    variance, mean = x.var_mean(-1, correction=0, keepdim=True)
    return (x - mean) * (variance + eps).rsqrt()


@everyday(m=(10007, 7), n=(3072, 33))
def rmsnorm(m, n):
    def define(x, w):
        h = x.float()
        return (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * w.float()).bfloat16()

    def eager(torch, x, w):
        return torch.nn.functional.rms_norm(x, (n,), w, 1e-6)

    return Recipe([bf16(m, n), bf16(n, fill=SHIFTED)], define, eager)


@everyday(m=(3333, 5), n=(5120, 37))
def layernorm(m, n):
    def define(x, w, b):
        return (normalized(x.float()) * w.float() + b.float()).bfloat16()

    def eager(torch, x, w, b):
        return torch.nn.functional.layer_norm(x, (n,), w, b)

    return Recipe([bf16(m, n), bf16(n, fill=SHIFTED), bf16(n)], define, eager)


@everyday(m=(200003, 11), n=(384, 19))
def l2_normalize(m, n):
    def define(x):
        h = x.float()
        return (h / (h * h).sum(-1, keepdim=True).sqrt().maximum(1e-12)).bfloat16()

    def eager(torch, x):
        return torch.nn.functional.normalize(x, dim=-1)

    return Recipe([bf16(m, n)], define, eager)


@everyday(n=(24, 2), c=(192, 3), s=(61, 5))
def instancenorm(n, c, s):
    def define(x, w, b):
        variance, mean = x.var_mean([2, 3], correction=0, keepdim=True)
        return (x - mean) * (variance + 1e-5).rsqrt() * w[:, None, None] + b[:, None, None]

    def eager(torch, x, w, b):
        return torch.nn.functional.instance_norm(x, weight=w, bias=b)

    return Recipe([f32(n, c, s, s), f32(c, fill=SHIFTED), f32(c)], define, eager)


@everyday(n=(32, 2), c=(320, 12), s=(96, 5), groups=(32, 4))
def groupnorm_silu_nhwc(n, c, s, groups):
    def define(x, w, b):
        h = x.float().reshape(n, groups, c // groups, s, s)
        variance, mean = h.var_mean([2, 3, 4], correction=0, keepdim=True)
        y = ((h - mean) * (variance + 1e-5).rsqrt()).reshape(n, c, s, s)
        y = y * w.float()[:, None, None] + b.float()[:, None, None]
        return (y * y.sigmoid()).bfloat16().stride_order([3, 0, 2, 1])

    def eager(torch, x, w, b):
        return torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, w, b))

    return Recipe([bf16(n, c, s, s, order=CHANNELS_LAST), bf16(c, fill=SHIFTED), bf16(c)], define, eager)


@everyday(a=(13, 2), b=(1353, 5), c=(1536, 33))
def adaln_modulate(a, b, c):
    def define(x, shift, scale):
        gain, offset = 1.0 + scale.float().unsqueeze(1), shift.float().unsqueeze(1)
        return (normalized(x.float(), 1e-6) * gain + offset).bfloat16()

    def eager(torch, x, shift, scale):
        y = torch.nn.functional.layer_norm(x, (c,), eps=1e-6)
        return y * (1 + scale[:, None]) + shift[:, None]

    return Recipe([bf16(a, b, c), bf16(a, c), bf16(a, c)], define, eager)


@everyday(m=(9001, 41), n=(2560, 130))
def dropout_residual_layernorm(m, n):
    def define(x, residual, w, b):
        keep = ops.uniform(0.0, 1.0, x.shape) < KEEP_RATE
        h = ops.where(keep, x.float() * (1 / KEEP_RATE), 0.0) + residual.float()
        return (normalized(h) * w.float() + b.float()).bfloat16(), h.bfloat16(), keep

    def eager(torch, x, residual, w, b):
        dropped, keep = torch.native_dropout(x, 1 - KEEP_RATE, True)
        h = dropped + residual
        return torch.nn.functional.layer_norm(h, (n,), w, b), h, keep

    def given(torch, x, residual, w, b, keep):
        h = torch.where(keep, x / KEEP_RATE, 0) + residual
        return torch.nn.functional.layer_norm(h, (n,), w, b), h

    return Recipe([bf16(m, n), bf16(m, n), bf16(n, fill=SHIFTED), bf16(n)], define, eager, drawn=2, given=given)


@everyday(m=(37, 3), n=(129, 9))
def tiny_add_layernorm(m, n):
    def define(x, y, w, b):
        return (normalized(x.float() + y.float()) * w.float() + b.float()).bfloat16()

    def eager(torch, x, y, w, b):
        return torch.nn.functional.layer_norm(x + y, (n,), w, b)

    return Recipe([bf16(m, n), bf16(m, n), bf16(n, fill=SHIFTED), bf16(n)], define, eager)
