"""Around attention: scores, masks, rotary embeddings, heads."""

import math

from benchmarks.everyday.recipe import ANGLE, POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


def softmax(x):
    """Along the last dim."""
    e = (x - x.max(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


@everyday(m=(777, 3), n=(50257, 101))
def softmax_rows(m, n):
    def define(x):
        return softmax(x.float()).half()

    def eager(torch, x):
        return torch.softmax(x, -1)

    return Recipe([f16(m, n)], define, eager)


@everyday(b=(7, 2), h=(16, 3), s=(1021, 11))
def masked_softmax(b, h, s):
    def define(x, keep):
        return softmax(ops.where(keep[:, None, None, :], x.float() * 0.125, float("-inf"))).bfloat16()

    def eager(torch, x, keep):
        return torch.softmax((x * 0.125).masked_fill(~keep[:, None, None], float("-inf")), -1)

    return Recipe([bf16(b, h, s, s), mask(b, s)], define, eager)


@everyday(b=(3, 2), s=(1777, 5), h=(24, 3), d=(96, 8))
def rotary_interleaved(b, s, h, d):
    def define(x, cos, sin):
        pairs = x.float().reshape(b, s, h, d // 2, 2)
        even, odd = pairs[..., 0], pairs[..., 1]
        c, z = cos[:, None, :], sin[:, None, :]
        turned = ops.cat([(even * c - odd * z).unsqueeze(-1), (even * z + odd * c).unsqueeze(-1)], -1)
        return turned.reshape(b, s, h, d).bfloat16()

    def eager(torch, x, cos, sin):
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        c, z = cos[:, None], sin[:, None]
        return torch.stack((even * c - odd * z, even * z + odd * c), -1).flatten(-2).to(x.dtype)

    angles = f32(s, d // 2, fill=ANGLE)
    return Recipe([bf16(b, s, h, d), angles, angles], define, eager)


@everyday(b=(4, 2), h=(12, 3), s=(1023, 11))
def causal_softmax_gpt2(b, h, s):
    def define(x):
        seen = ops.iota(s)[:, None] >= ops.iota(s)
        return softmax(ops.where(seen, x.float() * 0.125, float("-inf"))).half()

    def eager(torch, x):
        seen = torch.ones(s, s, dtype=torch.bool, device=x.device).tril()
        return torch.softmax((x * 0.125).masked_fill(~seen, float("-inf")), -1)

    return Recipe([f16(b, h, s, s)], define, eager)


@everyday(b=(2, 1), h=(16, 3), s=(1531, 19), window=(512, 4))
def sliding_window_softmax(b, h, s, window):
    def define(x):
        behind = ops.iota(s)[:, None] - ops.iota(s)
        seen = (behind >= 0) & (behind < window)
        return softmax(ops.where(seen, x.float() * 0.088, float("-inf"))).bfloat16()

    def eager(torch, x):
        behind = torch.arange(s, device=x.device)[:, None] - torch.arange(s, device=x.device)
        seen = (behind >= 0) & (behind < window)
        return torch.softmax((x * 0.088).masked_fill(~seen, float("-inf")), -1)

    return Recipe([bf16(b, h, s, s)], define, eager)


@everyday(b=(3, 2), h=(16, 3), s=(1023, 13))
def softcapped_softmax_gemma2(b, h, s):
    def define(x):
        return softmax((x.float() * (1 / 50)).tanh() * 50.0).bfloat16()

    def eager(torch, x):
        return torch.softmax(torch.tanh(x.float() / 50) * 50, -1).to(x.dtype)

    return Recipe([bf16(b, h, s, s)], define, eager)


@everyday(b=(8, 2), h=(16, 3), s=(512, 9))
def t5_biased_softmax(b, h, s):
    def define(scores, bias):
        return softmax(scores.float() + bias.float()).half()

    def eager(torch, scores, bias):
        return torch.softmax((scores + bias).float(), -1).type_as(scores)

    return Recipe([f16(b, h, s, s), f16(1, h, s, s)], define, eager)


@everyday(b=(2, 1), h=(32, 4), s=(1025, 11))
def alibi_softmax(b, h, s):
    def define(scores, slope):
        distance = ops.iota(s) - ops.iota(s)[:, None]
        biased = scores.float() + slope[:, None, None] * distance.float()
        return softmax(ops.where(distance <= 0, biased, float("-inf"))).bfloat16()

    def eager(torch, scores, slope):
        at = torch.arange(s, device=scores.device)
        distance = at - at[:, None]
        biased = scores.float() + slope[:, None, None] * distance
        return torch.softmax(biased.masked_fill(distance > 0, float("-inf")), -1).to(scores.dtype)

    return Recipe([bf16(b, h, s, s), f32(h, fill=POSITIVE)], define, eager)


@everyday(b=(32, 2), windows=(64, 3), h=(3, 2), n=(49, 9))
def swin_window_softmax(b, windows, h, n):
    def define(scores, bias, shifted):
        x = scores.float().reshape(b, windows, h, n, n) + bias.float() + shifted.float()[:, None]
        return softmax(x).reshape(b * windows, h, n, n).half()

    def eager(torch, scores, bias, shifted):
        x = (scores + bias).view(b, windows, h, n, n) + shifted[:, None]
        return torch.softmax(x, -1).view(b * windows, h, n, n)

    return Recipe([f16(b * windows, h, n, n), f16(h, n, n), f16(windows, n, n)], define, eager)


@everyday(b=(2, 1), h=(64, 4), s=(1000, 13))
def softmax_with_sink(b, h, s):
    def define(scores, sink):
        x, rest = scores.float(), sink.float()[:, None, None]
        top = x.max(-1, keepdim=True).maximum(rest)
        e = (x - top).exp()
        return (e / (e.sum(-1, keepdim=True) + (rest - top).exp())).bfloat16()

    def eager(torch, scores, sink):
        rest = sink[:, None, None].expand(b, h, s, 1)
        return torch.softmax(torch.cat([scores, rest], -1).float(), -1)[..., :-1].to(scores.dtype)

    return Recipe([bf16(b, h, s, s), bf16(h)], define, eager)


@everyday(b=(6, 2), h=(12, 3), s=(1021, 13))
def attention_softmax_backward(b, h, s):
    def define(dp, p):
        d, q = dp.float(), p.float()
        return ((d - (d * q).sum(-1, keepdim=True)) * q * 0.125).bfloat16()

    def eager(torch, dp, p):
        return torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype) * 0.125  # noqa: SLF001

    return Recipe([bf16(b, h, s, s), bf16(b, h, s, s, fill=POSITIVE)], define, eager)


@everyday(b=(4, 2), h=(16, 3), s=(1025, 13))
def dropped_softmax_backward(b, h, s):
    def define(dy, keep, p):
        d = ops.where(keep, dy.float() * (1 / 0.9), 0.0)
        q = p.float()
        return (q * (d - (d * q).sum(-1, keepdim=True))).half()

    def eager(torch, dy, keep, p):
        d = torch.ops.aten.native_dropout_backward(dy, keep, 1 / 0.9)
        return torch.ops.aten._softmax_backward_data(d, p, -1, p.dtype)  # noqa: SLF001

    return Recipe([f16(b, h, s, s), mask(b, h, s, s), f16(b, h, s, s, fill=POSITIVE)], define, eager)


@everyday(b=(2, 1), h=(32, 4), kv=(8, 2), s=(3001, 5), d=(128, 8))
def rotary_half_of_q_and_k(b, h, kv, s, d):
    def turned(x, cos, sin):
        x = x.float()
        first, second = x[..., : d // 2], x[..., d // 2 :]
        return (x * cos + ops.cat([-second, first], -1) * sin).bfloat16()

    def define(q, k, cos, sin):
        return turned(q, cos, sin), turned(k, cos, sin)

    def eager(torch, q, k, cos, sin):
        def rotate(x):
            return torch.cat((-x[..., d // 2 :], x[..., : d // 2]), -1)

        return (q * cos + rotate(q) * sin).to(q.dtype), (k * cos + rotate(k) * sin).to(k.dtype)

    angles = f32(s, d, fill=ANGLE)
    return Recipe([bf16(b, h, s, d), bf16(b, kv, s, d), angles, angles], define, eager)


@everyday(b=(3, 2), h=(16, 3), s=(2047, 5), d=(128, 8))
def rotary_backward(b, h, s, d):
    def define(dy, cos, sin):
        g = dy.float()
        gs = g * sin
        turned = ops.cat([gs[..., d // 2 :], -gs[..., : d // 2]], -1)
        return (g * cos + turned).bfloat16()

    def eager(torch, dy, cos, sin):
        gs = dy * sin
        return (dy * cos + torch.cat((gs[..., d // 2 :], -gs[..., : d // 2]), -1)).to(dy.dtype)

    angles = f32(s, d, fill=ANGLE)
    return Recipe([bf16(b, h, s, d), angles, angles], define, eager)


@everyday(b=(4, 2), s=(1999, 5), h=(12, 3), d=(64, 4))
def rotary_from_positions(b, s, h, d):
    def define(x, position, frequency):
        angle = (position.float()[..., None] * frequency).unsqueeze(2)
        c, z = angle.cos(), angle.sin()
        a, b = x[..., : d // 2].float(), x[..., d // 2 :].float()
        return ops.cat([a * c - b * z, b * c + a * z], -1).bfloat16()

    def eager(torch, x, position, frequency):
        angle = (position[..., None] * frequency)[:, :, None]
        c, z = angle.cos(), angle.sin()
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * c - b * z, b * c + a * z), -1).to(x.dtype)

    return Recipe([bf16(b, s, h, d), ids(4096, b, s), f32(d // 2, fill=POSITIVE)], define, eager)


@everyday(b=(8, 2), s=(1023, 5), h=(12, 3), d=(64, 8))
def split_qkv_heads_bias(b, s, h, d):
    def define(x, bias):
        heads = (x.float() + bias.float()).half().reshape(b, s, 3, h, d).permute(2, 0, 3, 1, 4)
        return [heads[k].stride_order([3, 2, 1, 0]) for k in range(3)]

    def eager(torch, x, bias):
        heads = (x + bias).view(b, s, 3, h, d).permute(2, 0, 3, 1, 4)
        return tuple(heads[k].contiguous() for k in range(3))

    return Recipe([f16(b, s, 3 * h * d), f16(3 * h * d)], define, eager)


@everyday(b=(7, 2), h=(20, 3), s=(1500, 5), d=(64, 8))
def merge_heads_gated(b, h, s, d):
    def define(x, gate):
        merged = x.float().permute(0, 2, 1, 3).reshape(b, s, h * d)
        return (merged * gate.float().sigmoid()).bfloat16().stride_order([2, 1, 0])

    def eager(torch, x, gate):
        return x.transpose(1, 2).reshape(b, s, h * d) * torch.sigmoid(gate)

    return Recipe([bf16(b, h, s, d), bf16(b, s, h * d)], define, eager)


@everyday(b=(4, 2), kv=(8, 2), s=(2049, 5), d=(128, 8), times=(4, 3))
def repeat_kv_scaled(b, kv, s, d, times):
    def define(k, scale):
        scaled = k.float() * scale.float()
        repeated = scaled.unsqueeze(2).expand(b, kv, times, s, d).reshape(b, kv * times, s, d)
        return repeated.bfloat16()

    def eager(torch, k, scale):
        return (k * scale)[:, :, None].expand(b, kv, times, s, d).reshape(b, kv * times, s, d)

    return Recipe([bf16(b, kv, s, d), bf16(d)], define, eager)


@everyday(splits=(8, 3), m=(16385, 5), d=(128, 8))
def merge_attention_splits(splits, m, d):
    def define(parts, lse):
        weight = (lse - lse.max(0, keepdim=True)).exp()
        weight = weight / weight.sum(0, keepdim=True)
        return (parts * weight.unsqueeze(-1)).sum(0).bfloat16()

    def eager(torch, parts, lse):
        return (parts * torch.softmax(lse, 0)[..., None]).sum(0).to(torch.bfloat16)

    return Recipe([f32(splits, m, d), f32(splits, m)], define, eager)


@everyday(b=(2, 1), s=(3001, 5), h=(24, 3), d=(128, 8))
def qk_norm(b, s, h, d):
    def normed(x, w):
        x = x.float()
        return (x * ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt() * w.float()).bfloat16()

    def define(q, k, wq, wk):
        return normed(q, wq), normed(k, wk)

    def eager(torch, q, k, wq, wk):
        rms_norm = torch.nn.functional.rms_norm
        return rms_norm(q, (d,), wq, 1e-6), rms_norm(k, (d,), wk, 1e-6)

    weight = bf16(d, fill=POSITIVE)
    return Recipe([bf16(b, s, h, d), bf16(b, s, h, d), weight, weight], define, eager)


@everyday(m=(40001, 7), d=(96, 10))
def linear_attention_feature(m, d):
    def define(x):
        h = x.float()
        feature = ops.where(h > 0, h, h.exp() - 1.0) + 1.0
        return (feature / (feature.sum(-1, keepdim=True) + 1e-6)).half()

    def eager(torch, x):
        feature = torch.nn.functional.elu(x.float()) + 1
        return (feature / (feature.sum(-1, keepdim=True) + 1e-6)).to(x.dtype)

    return Recipe([f16(m, d)], define, eager)


@everyday(b=(64, 2), h=(12, 2), s=(577, 7), d=(64, 4))
def cosine_attention_scale(b, h, s, d):
    def define(q, scale):
        x = q.float()
        length = (x * x).sum(-1, keepdim=True).sqrt().maximum(1e-12)
        return (x / length * scale.float()[:, None, None].minimum(math.log(100)).exp()).half()

    def eager(torch, q, scale):
        gain = torch.clamp(scale.float()[:, None, None], max=math.log(100)).exp()
        return (torch.nn.functional.normalize(q.float(), dim=-1) * gain).to(q.dtype)

    return Recipe([f16(b, h, s, d), f16(h)], define, eager)
