"""Integers in place of floats. Bytes come four to an Int32, 4-bit numbers eight."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32, words
from fuser import DataType, ops


@everyday(m=(11008, 5), n=(1023, 7))
def dequant_int8x4_rows(m, n):
    def define(q, scale):
        signed = [(q << (24 - 8 * k)) >> 24 for k in range(4)]
        x = ops.cat([s.float().unsqueeze(-1) for s in signed], -1).reshape(m, 4 * n)
        return (x * scale[:, None]).bfloat16()

    def eager(torch, q, scale):
        return (q.view(torch.int8).float() * scale[:, None]).to(torch.bfloat16)

    return Recipe([words(m, n), f32(m, fill=POSITIVE)], define, eager)


@everyday(n=(4096, 5), k=(1376, 4), group=(128, 8))
def dequant_int4_groups_awq(n, k, group):
    def define(q, scale, zero):
        shifts = ops.iota(8, 0, 4, DataType.Int32)
        nibble = ((q.unsqueeze(-1) >> shifts) & 15).float().reshape(n, -1, group)
        return ((nibble - zero.float().unsqueeze(-1)) * scale.float().unsqueeze(-1)).reshape(n, 8 * k).half()

    def eager(torch, q, scale, zero):
        shifts = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
        nibble = ((q[..., None] >> shifts) & 15).float().reshape(n, -1, group)
        return ((nibble - zero.float()[..., None]) * scale.float()[..., None]).reshape(n, 8 * k).half()

    groups = 8 * k // group
    return Recipe([words(n, k), f16(n, groups, fill=POSITIVE), f16(n, groups, fill=POSITIVE)], define, eager)


@everyday(n=(4096, 5), k=(512, 4))
def dequant_nf4_table(n, k):
    def define(q, table, scale):
        shifts = ops.iota(8, 0, 4, DataType.Int32)
        code = ((q.unsqueeze(-1) >> shifts) & 15).reshape(n * 8 * k)
        value = table.index_select(code, 0).reshape(n, -1, 8)
        return (value * scale.unsqueeze(-1)).reshape(n, 8 * k).bfloat16()

    def eager(torch, q, table, scale):
        shifts = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
        code = (q[..., None] >> shifts) & 15
        return (table[code.long()] * scale[..., None]).reshape(n, 8 * k).bfloat16()

    return Recipe([words(n, k), f32(16), f32(n, k, fill=POSITIVE)], define, eager)


@everyday(m=(6151, 5), n=(4096, 20))
def quantize_int8_per_token(m, n):
    def define(x):
        h = x.float()
        scale = h.abs().max(-1, keepdim=True).maximum(1e-5) / 127.0
        q = (h / scale).round().clamp(-128.0, 127.0).int().reshape(m, n // 4, 4)
        packed = (q & 255) << ops.iota(4, 0, 8, DataType.Int32)
        return packed.sum(-1, dtype=DataType.Int32), scale.squeeze(-1)

    def eager(torch, x):
        h = x.float()
        scale = h.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        q = (h / scale).round().clamp(-128, 127).to(torch.int8)
        return q.view(torch.int32), scale.squeeze(-1)

    return Recipe([bf16(m, n)], define, eager)


@everyday(m=(8191, 5), n=(3072, 20))
def smooth_and_fake_quantize(m, n):
    def define(x, smooth):
        h = x.float() / smooth.float()
        scale = h.abs().max(-1, keepdim=True).maximum(1e-5) / 127.0
        return ((h / scale).round().clamp(-127.0, 127.0) * scale).bfloat16()

    def eager(torch, x, smooth):
        h = x.float() / smooth.float()
        scale = h.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
        return ((h / scale).round().clamp(-127, 127) * scale).to(x.dtype)

    return Recipe([bf16(m, n), bf16(n, fill=POSITIVE)], define, eager)


@everyday(m=(5003, 5), n=(4096, 20))
def int32_accumulator_epilogue(m, n):
    def define(total, row, column, bias):
        x = total.float() * row[:, None] * column + bias.float()
        return (x * x.sigmoid()).bfloat16()

    def eager(torch, total, row, column, bias):
        x = total.float() * row[:, None] * column + bias.float()
        return torch.nn.functional.silu(x).to(bias.dtype)

    scales = [f32(m, fill=POSITIVE), f32(n, fill=POSITIVE)]
    return Recipe([words(m, n), *scales, bf16(n)], define, eager)


@everyday(n=(64, 2), c=(256, 5), s=(56, 3))
def fake_quantize_per_channel(n, c, s):
    def define(x, scale, zero):
        step, origin = scale[:, None, None], zero[:, None, None]
        q = (x / step).round() + origin.round()
        kept = (q >= -128.0) & (q <= 127.0)
        return (q.clamp(-128.0, 127.0) - origin.round()) * step, kept

    def eager(torch, x, scale, zero):
        step, origin = scale[:, None, None], zero[:, None, None].round()
        q = (x / step).round() + origin
        return (q.clamp(-128, 127) - origin) * step, (q >= -128) & (q <= 127)

    return Recipe([f32(n, c, s, s), f32(c, fill=POSITIVE), f32(c)], define, eager)


@everyday(m=(4099, 5), n=(8193, 20))
def lsq_backward(m, n):
    def define(g, x, scale):
        h = x / scale
        q = h.round().clamp(-8.0, 7.0)
        inside = (h > -8.0) & (h < 7.0)
        return ops.where(inside, g, 0.0), (g * ops.where(inside, q - h, q)).sum()

    def eager(torch, g, x, scale):
        h = x / scale
        q = h.round().clamp(-8, 7)
        inside = (h > -8) & (h < 7)
        return torch.where(inside, g, 0), (g * torch.where(inside, q - h, q)).sum()

    return Recipe([f32(m, n), f32(m, n), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(6912, 5), n=(2560, 20))
def ternary_weights_bitnet(m, n):
    def define(w):
        h = w.float()
        scale = h.abs().mean().maximum(1e-5)
        return ((h / scale).round().clamp(-1.0, 1.0) * scale).bfloat16()

    def eager(torch, w):
        h = w.float()
        scale = h.abs().mean().clamp(min=1e-5)
        return ((h / scale).round().clamp(-1, 1) * scale).to(w.dtype)

    return Recipe([bf16(m, n)], define, eager)


@everyday(m=(4097, 5), k=(224, 3))
def block_scales_mx(m, k):
    def define(x):
        blocks = x.float().reshape(m, k, 32)
        top = blocks.abs().max(-1, keepdim=True)
        exponent = (top.maximum(1e-30).log2().floor() - 2.0).clamp(-127.0, 127.0)
        scaled = (blocks * (-exponent).exp2()).clamp(-6.0, 6.0)
        return scaled.reshape(m, 32 * k).bfloat16(), (exponent.squeeze(-1) + 127.0).int()

    def eager(torch, x):
        blocks = x.float().reshape(m, k, 32)
        top = blocks.abs().amax(-1, keepdim=True)
        exponent = (top.clamp(min=1e-30).log2().floor() - 2).clamp(-127, 127)
        scaled = (blocks * torch.exp2(-exponent)).clamp(-6, 6)
        return scaled.reshape(m, 32 * k).to(x.dtype), (exponent.squeeze(-1) + 127).to(torch.int32)

    return Recipe([bf16(m, 32 * k)], define, eager)


@everyday(b=(4, 2), h=(8, 2), s=(4097, 5), d=(128, 8))
def kv_cache_dequant(b, h, s, d):
    def define(q, scale, zero):
        byte = (q.unsqueeze(-1) >> ops.iota(4, 0, 8, DataType.Int32)) & 255
        x = byte.float().reshape(b, h, s, d)
        return (x * scale.float() + zero.float()).half()

    def eager(torch, q, scale, zero):
        return (q.view(torch.uint8).float() * scale.float() + zero.float()).half()

    return Recipe([words(b, h, s, d // 4), f16(b, h, s, 1, fill=POSITIVE), f16(b, h, s, 1)], define, eager)
