"""Normalisations with what stands around them, and their gradients."""

from benchmarks.everyday.recipe import (
    CHANNELS_LAST,
    KEEP_RATE,
    POSITIVE,
    SHIFTED,
    Recipe,
    bf16,
    everyday,
    f16,
    f32,
)
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


@everyday(m=(8191, 5), n=(4096, 40))
def add_rmsnorm_llama(m, n):
    def define(x, residual, w):
        h = x.float() + residual.float()
        return (h * ((h * h).mean(-1, keepdim=True) + 1e-5).rsqrt() * w.float()).bfloat16(), h.bfloat16()

    def eager(torch, x, residual, w):
        h = x.float() + residual.float()
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (w * y).to(x.dtype), h.to(x.dtype)

    return Recipe([bf16(m, n), bf16(m, n), bf16(n, fill=SHIFTED)], define, eager)


@everyday(m=(12289, 7), n=(2304, 24))
def rmsnorm_gemma(m, n):
    def define(x, w):
        h = x.float()
        return (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * (1.0 + w.float())).bfloat16()

    def eager(torch, x, w):
        h = x.float()
        return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + w.float())).type_as(x)

    return Recipe([bf16(m, n), bf16(n)], define, eager)


@everyday(n=(51, 3), s=(197, 5), c=(768, 12))
def layernorm_vit(n, s, c):
    def define(x, w, b):
        return normalized(x, 1e-6) * w + b

    def eager(torch, x, w, b):
        return torch.nn.functional.layer_norm(x, (c,), w, b, 1e-6)

    return Recipe([f32(n, s, c), f32(c, fill=SHIFTED), f32(c)], define, eager)


@everyday(n=(32, 2), c=(96, 6), s=(57, 5))
def layernorm_channels_first_convnext(n, c, s):
    def define(x, w, b):
        variance, mean = x.float().var_mean(1, correction=0, keepdim=True)
        y = (x.float() - mean) * (variance + 1e-6).rsqrt()
        return (y * w.float()[:, None, None] + b.float()[:, None, None]).bfloat16()

    def eager(torch, x, w, b):
        u = x.float().mean(1, keepdim=True)
        v = (x.float() - u).pow(2).mean(1, keepdim=True)
        y = (x.float() - u) / torch.sqrt(v + 1e-6)
        return (w[:, None, None] * y + b[:, None, None]).to(x.dtype)

    return Recipe([bf16(n, c, s, s), bf16(c, fill=SHIFTED), bf16(c)], define, eager)


@everyday(n=(64, 2), c=(192, 6), s=(29, 5))
def layernorm_nhwc_convnext(n, c, s):
    def define(x, w, b):
        y = normalized(x.float().permute(0, 2, 3, 1), 1e-6) * w.float() + b.float()
        return y.half()

    def eager(torch, x, w, b):
        return torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (c,), w, b, 1e-6)

    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST), f16(c, fill=SHIFTED), f16(c)], define, eager)


@everyday(n=(32, 2), c=(64, 5), s=(113, 5))
def batchnorm_train_relu(n, c, s):
    def define(x, w, b, running_mean, running_variance):
        h = x.float()
        variance, mean = h.var_mean([0, 2, 3], correction=0, keepdim=True)
        y = (h - mean) * (variance + 1e-5).rsqrt() * w[:, None, None] + b[:, None, None]
        unbiased = variance.reshape(c) * (n * s * s / (n * s * s - 1))
        mean = running_mean * 0.9 + mean.reshape(c) * 0.1
        return y.relu().half(), mean, running_variance * 0.9 + unbiased * 0.1

    def eager(torch, x, w, b, running_mean, running_variance):
        h = x.float()
        variance, mean = torch.var_mean(h, (0, 2, 3), correction=0)
        y = (h - mean[:, None, None]) * torch.rsqrt(variance + 1e-5)[:, None, None] * w[:, None, None] + b[
            :, None, None
        ]
        unbiased = variance * (n * s * s / (n * s * s - 1))
        mean = running_mean * 0.9 + mean * 0.1
        return torch.relu(y).to(x.dtype), mean, running_variance * 0.9 + unbiased * 0.1

    vectors = [f32(c, fill=SHIFTED), f32(c), f32(c), f32(c, fill=POSITIVE)]
    return Recipe([f16(n, c, s, s), *vectors], define, eager)


@everyday(n=(64, 2), c=(256, 6), s=(57, 5))
def batchnorm_inference_add_relu_nhwc(n, c, s):
    def define(x, residual, mean, variance, w, b):
        scale = w * (variance + 1e-5).rsqrt()
        y = x.float() * scale[:, None, None] + (b - mean * scale)[:, None, None]
        return (y + residual.float()).relu().bfloat16()

    def eager(torch, x, residual, mean, variance, w, b):
        y = torch.nn.functional.batch_norm(x, mean, variance, w, b)
        return torch.relu(y + residual)

    pixels = bf16(n, c, s, s, order=CHANNELS_LAST)
    vectors = [f32(c), f32(c, fill=POSITIVE), f32(c, fill=SHIFTED), f32(c)]
    return Recipe([pixels, pixels, *vectors], define, eager)


@everyday(n=(5, 2), c=(640, 8), s=(61, 5), groups=(32, 4))
def groupnorm_unet(n, c, s, groups):
    def define(x, w, b):
        h = x.float().reshape(n, groups, -1)
        y = normalized(h).reshape(n, c, s, s)
        return (y * w.float()[:, None, None] + b.float()[:, None, None]).half()

    def eager(torch, x, w, b):
        return torch.nn.functional.group_norm(x, groups, w, b)

    return Recipe([f16(n, c, s, s), f16(c, fill=SHIFTED), f16(c)], define, eager)


@everyday(m=(4096, 5), n=(4097, 21))
def weight_norm(m, n):
    def define(v, g):
        return v * (g / (v * v).sum(-1, keepdim=True).sqrt())

    def eager(torch, v, g):
        return v * (g / v.norm(dim=-1, keepdim=True))

    return Recipe([f32(m, n), f32(m, 1)], define, eager)


@everyday(m=(1024, 5), n=(4608, 27))
def weight_standardization(m, n):
    def define(w):
        variance, mean = w.var_mean(-1, correction=0, keepdim=True)
        return ((w - mean) * (variance + 1e-10).rsqrt()).half()

    def eager(torch, w):
        variance, mean = torch.var_mean(w, -1, correction=0, keepdim=True)
        return ((w - mean) * torch.rsqrt(variance + 1e-10)).half()

    return Recipe([f32(m, n)], define, eager)


@everyday(m=(8193, 5), n=(2048, 24))
def gated_rmsnorm_mamba2(m, n):
    def define(x, z, w):
        gate = z.float()
        h = x.float() * gate * gate.sigmoid()
        return (h * ((h * h).mean(-1, keepdim=True) + 1e-5).rsqrt() * w.float()).bfloat16()

    def eager(torch, x, z, w):
        h = x.float() * torch.nn.functional.silu(z.float())
        return (h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5) * w.float()).to(x.dtype)

    return Recipe([bf16(m, n), bf16(m, n), bf16(n, fill=SHIFTED)], define, eager)


@everyday(m=(7001, 5), n=(1024, 24))
def t5_layernorm_mixed(m, n):
    def define(hidden, update, w):
        h = hidden + update.float()
        return h, (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * w.float()).half()

    def eager(torch, hidden, update, w):
        h = hidden + update
        return h, (w * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))).half()

    return Recipe([f32(m, n), f16(m, n), f16(n, fill=SHIFTED)], define, eager)


@everyday(m=(9999, 5), n=(1536, 24))
def deepnorm_bias(m, n):
    def define(x, y, bias, w, b):
        h = x.float() * 2.63 + y.float() + bias.float()
        return (normalized(h) * w.float() + b.float()).bfloat16()

    def eager(torch, x, y, bias, w, b):
        return torch.nn.functional.layer_norm(x * 2.63 + (y + bias), (n,), w, b)

    vectors = [bf16(n), bf16(n, fill=SHIFTED), bf16(n)]
    return Recipe([bf16(m, n), bf16(m, n), *vectors], define, eager)


@everyday(n=(16, 2), s=(28, 3), c=(192, 5))
def swin_patch_merging_norm(n, s, c):
    def define(x, w, b):
        quarters = x.float().reshape(n, s, 2, s, 2, c).permute(0, 1, 3, 4, 2, 5).reshape(n, s, s, 4 * c)
        return (normalized(quarters) * w.float() + b.float()).bfloat16()

    def eager(torch, x, w, b):
        quarters = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return torch.nn.functional.layer_norm(torch.cat(quarters, -1), (4 * c,), w, b)

    return Recipe([bf16(n, 2 * s, 2 * s, c), bf16(4 * c, fill=SHIFTED), bf16(4 * c)], define, eager)


@everyday(m=(3001, 5), n=(8192, 40))
def layernorm_smoothed_amax(m, n):
    """Two outputs of one norm: what the next layer reads, and the same for a smoothed, quantised one."""

    def define(x, w, b, smooth):
        y = normalized(x.float()) * w.float() + b.float()
        return y.bfloat16(), (y / smooth.float()).bfloat16(), y.abs().max(-1)

    def eager(torch, x, w, b, smooth):
        y = torch.nn.functional.layer_norm(x.float(), (n,), w.float(), b.float())
        return y.to(x.dtype), (y / smooth).to(x.dtype), y.abs().amax(-1)

    return Recipe([bf16(m, n), bf16(n, fill=SHIFTED), bf16(n), bf16(n, fill=POSITIVE)], define, eager)
