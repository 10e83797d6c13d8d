"""More of integers in place of floats: zero points per channel, group or tensor, scales of 8-bit floats, weights in steps."""

from benchmarks.everyday.recipe import ANGLE, CHANNELS_LAST, POSITIVE, Recipe, bf16, everyday, f16, f32, ids, words
from fuser import DataType, ops


@everyday(m=(4099, 5), n=(6144, 20))
def fp8_scale_and_saturate(m, n):
    """What stands before a cast to an 8-bit float: scaled by the amax of earlier steps, and the amax of this one."""

    def define(x, scale):
        h = x.float()
        return (h * scale).clamp(-448.0, 448.0).bfloat16(), h.abs().max()

    def eager(torch, x, scale):
        h = x.float()
        return (h * scale).clamp(-448, 448).to(x.dtype), h.abs().amax()

    return Recipe([bf16(m, n), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(4099, 5), n=(5120, 256))
def fp8_scales_of_128(m, n):
    def define(x):
        h = x.float().reshape(m, n // 128, 128)
        scale = h.abs().max(-1, keepdim=True).maximum(1e-4) * (1 / 448)
        return (h / scale).bfloat16().reshape(m, n), scale.squeeze(-1)

    def eager(torch, x):
        h = x.float().reshape(m, n // 128, 128)
        scale = h.abs().amax(-1, keepdim=True).clamp(min=1e-4) * (1 / 448)
        return (h / scale).bfloat16().reshape(m, n), scale.squeeze(-1)

    return Recipe([bf16(m, n)], define, eager)


@everyday(m=(4096, 128), n=(7168, 256))
def dequant_blocks_128x128_deepseek(m, n):
    """Weights in 16 bits here, a scale for each block of 128 by 128."""

    def define(w, scale):
        blocks = w.float().reshape(m // 128, 128, n // 128, 128)
        return (blocks * scale[:, None, :, None]).reshape(m, n).bfloat16()

    def eager(torch, w, scale):
        blocks = w.float().view(m // 128, 128, n // 128, 128)
        return (blocks * scale[:, None, :, None]).reshape(m, n).to(w.dtype)

    return Recipe([bf16(m, n), f32(m // 128, n // 128, fill=POSITIVE)], define, eager)


@everyday(m=(5003, 5), n=(4096, 16))
def quantize_int8_with_zero_point(m, n):
    """Of a tensor: its range decides the step and the zero point; four codes a word."""

    def define(x):
        low, high = x.min(), x.max()
        step = ((high - low) * (1 / 255)).maximum(1e-8)
        code = ((x - low) / step).round().clamp(0.0, 255.0).int().reshape(m, n // 4, 4)
        return (code << ops.iota(4, 0, 8, DataType.Int32)).sum(-1, dtype=DataType.Int32), low, step

    def eager(torch, x):
        low, high = x.amin(), x.amax()
        step = ((high - low) * (1 / 255)).clamp(min=1e-8)
        code = ((x - low) / step).round().clamp(0, 255).to(torch.uint8)
        return code.view(torch.int32), low, step

    return Recipe([f32(m, n)], define, eager)


@everyday(k=(4096, 64), n=(5120, 10), group=(64, 16))
def dequant_int4_columns_gptq(k, n, group):
    """Eight rows a word, scales and zero points for groups of rows, zero points packed along the columns."""

    def define(q, scale, zero):
        shift = ops.iota(8, 0, 4, DataType.Int32)
        code = ((q.unsqueeze(1) >> shift[:, None]) & 15).reshape(k // group, group, n)
        return ((code - zero[:, None]).float() * scale.float()[:, None]).reshape(k, n).half()

    def eager(torch, q, scale, zero):
        shift = torch.arange(0, 32, 4, device=q.device, dtype=torch.int32)
        code = ((q[:, None] >> shift[:, None]) & 15).reshape(k // group, group, n)
        return ((code - zero[:, None]).float() * scale.float()[:, None]).reshape(k, n).half()

    groups = k // group
    return Recipe([words(k // 8, n), f16(groups, n, fill=POSITIVE), ids(16, groups, n)], define, eager)


@everyday(n=(4096, 5), k=(4096, 64), group=(32, 16))
def quantize_int4_groups_packed(n, k, group):
    def define(w):
        h = w.float().reshape(n, k // group, group)
        scale = h.abs().max(-1, keepdim=True).maximum(1e-6) * (1 / 7)
        code = (h / scale).round().clamp(-8.0, 7.0).int() + 8
        words_of = code.reshape(n, k // 8, 8) << ops.iota(8, 0, 4, DataType.Int32)
        return words_of.sum(-1, dtype=DataType.Int32), scale.squeeze(-1).half()

    def eager(torch, w):
        h = w.float().reshape(n, k // group, group)
        scale = h.abs().amax(-1, keepdim=True).clamp(min=1e-6) * (1 / 7)
        code = (h / scale).round().clamp(-8, 7).int() + 8
        shift = torch.arange(0, 32, 4, device=w.device, dtype=torch.int32)
        return (code.reshape(n, k // 8, 8) << shift).sum(-1, dtype=torch.int32), scale.squeeze(-1).half()

    return Recipe([bf16(n, k)], define, eager)


@everyday(n=(16, 2), c=(128, 4), s=(112, 3))
def requantize_channels_nhwc(n, c, s):
    """Accumulators of an 8-bit convolution to codes of the next one, in 16 bits here."""

    def define(total, multiplier, bias):
        x = (total.float() + bias[:, None, None]) * (multiplier * 20.0)[:, None, None]
        return x.round().clamp(0.0, 127.0).half()

    def eager(torch, total, multiplier, bias):
        x = (total.float() + bias[:, None, None]) * (multiplier * 20.0)[:, None, None]
        return x.round().clamp(0, 127).half()

    vectors = [f32(c, fill=POSITIVE), f32(c)]
    return Recipe([f32(n, c, s, s, order=CHANNELS_LAST), *vectors], define, eager)


@everyday(m=(12_289, 5), n=(1280, 20))
def clipped_quantize_backward_pact(m, n):
    """Straight through where it was not clipped; what was goes to the bounds of its column."""

    def define(dy, x, low, high):
        g = dy.float()
        below, above = x < low, x > high
        return ops.where(below | above, 0.0, g), ops.where(below, g, 0.0).sum(0), ops.where(above, g, 0.0).sum(0)

    def eager(torch, dy, x, low, high):
        g = dy.float()
        below, above = x < low, x > high
        inside = torch.where(below | above, 0, g)
        return inside, torch.where(below, g, 0).sum(0), torch.where(above, g, 0).sum(0)

    return Recipe([bf16(m, n), f32(m, n), f32(n, fill=ANGLE), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(8191, 5), n=(4096, 32), limit=(4.3, 1.5))
def outliers_kept_apart_llm_int8(m, n, limit):
    """Columns with large values stay, the others are rounded by row."""

    def define(x):
        h = x.float()
        outlier = h.abs().max(0, keepdim=True) > limit
        small = ops.where(outlier, 0.0, h)
        scale = small.abs().max(1, keepdim=True).maximum(1e-5) * (1 / 127)
        return ((small / scale).round() * scale).bfloat16(), ops.where(outlier, x, 0.0)

    def eager(torch, x):
        h = x.float()
        outlier = h.abs().amax(0, keepdim=True) > limit
        small = torch.where(outlier, 0, h)
        scale = small.abs().amax(1, keepdim=True).clamp(min=1e-5) * (1 / 127)
        return ((small / scale).round() * scale).to(x.dtype), torch.where(outlier, x, 0)

    return Recipe([bf16(m, n)], define, eager)


@everyday(m=(20_011, 5), books=(8, 2), d=(96, 4))
def product_codes_decoded(m, books, d):
    """Each part of a vector comes from a table of its own."""

    def define(code, table):
        flat = code + ops.iota(books) * 256
        rows = table.index_select(flat.reshape(m * books), 0)
        return rows.reshape(m, books * d).float().half()

    def eager(torch, code, table):
        flat = code + torch.arange(books, device=code.device) * 256
        return table[flat].reshape(m, books * d).half()

    return Recipe([ids(256, m, books), f32(books * 256, d)], define, eager)


@everyday(m=(8191, 7), g=(40, 2), k=(128, 8))
def bilinear_gate_to_bytes(m, g, k):
    """Groups of a product of two halves, four bytes in a word."""

    def define(x):
        y = (x[:, : g * k].float() * x[:, g * k :].float()).reshape(m, g, k)
        scale = y.abs().max(-1, keepdim=True).maximum(1e-6) * (1 / 127)
        byte = ((y / scale).round().clamp(-128.0, 127.0).int() & 255).reshape(m, g * k // 4, 4)
        word = byte[..., 0] | (byte[..., 1] << 8) | (byte[..., 2] << 16) | (byte[..., 3] << 24)
        return word, scale.squeeze(-1)

    def eager(torch, x):
        left, right = x.float().chunk(2, 1)
        y = (left * right).view(m, g, k)
        scale = y.abs().amax(-1, keepdim=True).clamp(min=1e-6) * (1 / 127)
        byte = ((y / scale).round().clamp(-128, 127).int() & 255).view(m, g * k // 4, 4)
        word = byte[..., 0] | (byte[..., 1] << 8) | (byte[..., 2] << 16) | (byte[..., 3] << 24)
        return word, scale.squeeze(-1)

    return Recipe([bf16(m, 2 * g * k)], define, eager)
