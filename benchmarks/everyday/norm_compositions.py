"""Normalisations with what stands next to them in a model: rolled windows, shifted tokens, rotated heads, looked up rows."""

from benchmarks.everyday.recipe import Recipe, bf16, everyday, f16, f32, ids
from fuser import ops


@everyday(n=(16, 2), s=(56, 6), w=(7, 3), c=(192, 4), shift=(3, 1))
def layernorm_shifted_windows_swin(n, s, w, c, shift):
    def define(x, gain, bias):
        h = x.float()
        variance, mean = ops.var_mean(h, [3], 0, True)
        y = ((h - mean) * (variance + 1e-5).rsqrt() * gain.float() + bias.float()).half()
        y = ops.cat([y[:, shift:], y[:, :shift]], 1)
        y = ops.cat([y[:, :, shift:], y[:, :, :shift]], 2)
        return y.reshape(n, s // w, w, s // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)

    def eager(torch, x, gain, bias):
        y = torch.nn.functional.layer_norm(x, (c,), gain, bias)
        y = torch.roll(y, (-shift, -shift), (1, 2))
        return y.view(n, s // w, w, s // w, w, c).transpose(2, 3).reshape(-1, w * w, c)

    return Recipe([f16(n, s, s, c), f16(c), f16(c)], define, eager)


@everyday(b=(8, 2), s=(2047, 6), c=(2048, 5))
def rmsnorm_token_shift_rwkv(b, s, c):
    def define(x, gain, mix):
        h = x.float()
        y = h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.float()
        before = ops.pad(y[:, :-1], [0, 0, 1, 0])
        return (y + (before - y) * mix.float()).bfloat16()

    def eager(torch, x, gain, mix):
        h = x.float()
        y = h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * gain.float()
        before = torch.nn.functional.pad(y[:, :-1], (0, 0, 1, 0))
        return (y + (before - y) * mix.float()).to(x.dtype)

    return Recipe([bf16(b, s, c), bf16(c), bf16(c)], define, eager)


@everyday(b=(2, 2), s=(4093, 5), h=(32, 3), d=(128, 8))
def head_norm_rotary_qwen3(b, s, h, d):
    def define(x, gain, cos, sin):
        f = x.float()
        y = f * ((f * f).mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.float()
        turned = ops.cat([-y[..., d // 2 :], y[..., : d // 2]], -1)
        rotated = y * cos.float()[:, None, :] + turned * sin.float()[:, None, :]
        return rotated.bfloat16().transpose(1, 2)

    def eager(torch, x, gain, cos, sin):
        f = x.float()
        y = f * torch.rsqrt((f * f).mean(-1, keepdim=True) + 1e-6) * gain.float()
        turned = torch.cat((-y[..., d // 2 :], y[..., : d // 2]), -1)
        rotated = y * cos.float()[:, None, :] + turned * sin.float()[:, None, :]
        return rotated.to(x.dtype).transpose(1, 2)

    return Recipe([bf16(b, s, h, d), bf16(d), bf16(s, d), bf16(s, d)], define, eager)


@everyday(m=(4097, 3), g=(40, 2), k=(128, 4))
def rmsnorm_scaled_groups(m, g, k):
    """What an 8-bit product takes: rows normalised, then groups of them scaled to their largest element."""

    def define(x, gain):
        h = x.float()
        y = (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * gain.float()).reshape(m, g, k)
        scale = y.abs().max(-1, keepdim=True).maximum(1e-12) * (1 / 448)
        return (y / scale).half().reshape(m, g * k), scale.squeeze(-1)

    def eager(torch, x, gain):
        h = x.float()
        y = (h * torch.rsqrt((h * h).mean(-1, keepdim=True) + 1e-6) * gain.float()).view(m, g, k)
        scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-12) * (1 / 448)
        return (y / scale).half().view(m, g * k), scale.squeeze(-1)

    return Recipe([bf16(m, g * k), bf16(g * k)], define, eager)


@everyday(e=(200003, 11), n=(50021, 7), d=(128, 4))
def layernorm_of_both_ends_of_edges(e, n, d):
    def define(x, source, target, gain):
        ends = [x.index_select(i, 0).float() for i in (source, target)]
        h = ops.cat(ends, 1)
        variance, mean = ops.var_mean(h, [1], 0, True)
        return ((h - mean) * (variance + 1e-5).rsqrt() * gain).bfloat16()

    def eager(torch, x, source, target, gain):
        h = torch.cat((x[source], x[target]), 1).float()
        return torch.nn.functional.layer_norm(h, (2 * d,), gain).to(x.dtype)

    return Recipe([bf16(n, d), ids(n, e), ids(n, e), f32(2 * d)], define, eager)


@everyday(n=(32, 2), c=(384, 4), s=(14, 3))
def global_response_norm_convnext_v2(n, c, s):
    def define(x, gain, bias):
        h = x.float()
        size = (h * h).sum([1, 2], keepdim=True).sqrt()
        response = size / (size.mean(-1, keepdim=True) + 1e-6)
        return (h * response * gain + bias + h).bfloat16()

    def eager(torch, x, gain, bias):
        h = x.float()
        size = h.norm(dim=(1, 2), keepdim=True)
        response = size / (size.mean(-1, keepdim=True) + 1e-6)
        return (h * response * gain + bias + h).to(x.dtype)

    return Recipe([bf16(n, s, s, c), f32(c), f32(c)], define, eager)


@everyday(n=(16, 2), s=(64, 3), r=(2, 2), c=(64, 4))
def layernorm_of_unshuffled_pixels(n, s, r, c):
    def define(x, gain, bias):
        h = x.float().reshape(n, s, r, s, r, c).permute(0, 1, 3, 2, 4, 5).reshape(n, s, s, r * r * c)
        variance, mean = ops.var_mean(h, [3], 0, True)
        return ((h - mean) * (variance + 1e-5).rsqrt() * gain + bias).bfloat16()

    def eager(torch, x, gain, bias):
        h = x.float().view(n, s, r, s, r, c).permute(0, 1, 3, 2, 4, 5).reshape(n, s, s, r * r * c)
        return torch.nn.functional.layer_norm(h, (r * r * c,), gain, bias).to(x.dtype)

    return Recipe([bf16(n, s * r, s * r, c), f32(r * r * c), f32(r * r * c)], define, eager)


@everyday(n=(32, 2), groups=(8, 2), c=(16, 3), s=(56, 5))
def evonorm_s0(n, groups, c, s):
    """A gate of each channel over the deviation of its group."""

    def define(x, v, gain, bias):
        h = x.float().reshape(n, groups, c, s, s)
        variance = h.var_mean([2, 3, 4], 0, True)[0]
        per_channel = [t.reshape(groups, c, 1, 1) for t in (v, gain, bias)]
        gated = h * (h * per_channel[0]).sigmoid() * (variance + 1e-5).rsqrt()
        return (gated * per_channel[1] + per_channel[2]).reshape(n, groups * c, s, s).half()

    def eager(torch, x, v, gain, bias):
        h = x.float().view(n, groups, c, s, s)
        variance = h.var((2, 3, 4), correction=0, keepdim=True)
        per_channel = [t.view(groups, c, 1, 1) for t in (v, gain, bias)]
        gated = h * torch.sigmoid(h * per_channel[0]) * torch.rsqrt(variance + 1e-5)
        return (gated * per_channel[1] + per_channel[2]).reshape(n, groups * c, s, s).to(x.dtype)

    return Recipe([f16(n, groups * c, s, s), f32(groups * c), f32(groups * c), f32(groups * c)], define, eager)
