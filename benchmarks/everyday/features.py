"""Recommenders, experts and gated recurrences: hashed and crossed features, capacities, decays."""

from benchmarks.everyday.recipe import ANGLE, POSITIVE, Recipe, bf16, everyday, f16, f32, ids
from fuser import ops


@everyday(m=(262_147, 9), k=(26, 3))
def hashed_buckets(m, k):
    def define(x, salt):
        h = (x + salt) * 2654435761
        h = (h ^ ops.logical_right_shift(h, 16)) * 73244475
        return ops.logical_right_shift(h, 20) % 100_003

    def eager(torch, x, salt):
        h = (x + salt) * 2654435761
        h = (h ^ ((h >> 16) & (1 << 48) - 1)) * 73244475
        return ((h >> 20) & (1 << 44) - 1) % 100_003

    return Recipe([ids(1 << 40, m, k), ids(1 << 20, k)], define, eager)


@everyday(m=(131_075, 9), n=(39, 5), d=(16, 3))
def factorization_machine(m, n, d):
    """Pairs of fields: half of the square of a sum less the sum of squares."""

    def define(v, x):
        h = v.float() * x.unsqueeze(-1)
        total = h.sum(1)
        return ((total * total - (h * h).sum(1)) * 0.5).sum(-1)

    def eager(torch, v, x):
        h = v.float() * x[..., None]
        return (0.5 * (h.sum(1).square() - h.square().sum(1))).sum(-1)

    return Recipe([f16(m, n, d), f32(m, n)], define, eager)


@everyday(m=(65_539, 9), d=(433, 7))
def cross_layer_dcn(m, d):
    def define(x0, x, w, b):
        along = (x.float() * w).sum(-1, keepdim=True)
        return (x0.float() * along + b + x.float()).half()

    def eager(torch, x0, x, w, b):
        along = (x.float() * w).sum(-1, keepdim=True)
        return (x0.float() * along + b + x.float()).half()

    return Recipe([f16(m, d), f16(m, d), f32(d, fill=ANGLE), f32(d)], define, eager)


@everyday(m=(65_537, 7), bag=(20, 3), v=(100_003, 29), d=(64, 5))
def weighted_embedding_bag(m, bag, v, d):
    def define(index, weight, table):
        rows = table.index_select(index.reshape(m * bag), 0).reshape(m, bag, d)
        return (rows.float() * weight.unsqueeze(-1)).sum(1) / weight.sum(1, keepdim=True)

    def eager(torch, index, weight, table):
        return (table[index].float() * weight[..., None]).sum(1) / weight.sum(1, keepdim=True)

    return Recipe([ids(v, m, bag), f32(m, bag, fill=POSITIVE), f16(v, d)], define, eager)


@everyday(m=(300_007, 9), n=(13, 3), edges=(9, 3))
def bucketized_and_one_hot(m, n, edges):
    """How many edges a value is above, as a vector with a one there."""

    def define(x, edge):
        above = (x.unsqueeze(-1) > edge).long().sum(-1)
        return (above.unsqueeze(-1) == ops.iota(edges + 1)).half().reshape(m, n * (edges + 1))

    def eager(torch, x, edge):
        above = (x[..., None] > edge).long().sum(-1)
        return torch.nn.functional.one_hot(above, edges + 1).half().flatten(1)

    return Recipe([f32(m, n), f32(edges)], define, eager)


@everyday(m=(262_147, 9), n=(40, 5))
def log_and_clip_with_missing(m, n):
    def define(x, mean, deviation):
        known = x == x
        logged = (x.abs() + 1.0).log() * x.sign()
        scaled = ((logged - mean) / deviation).clamp(-5.0, 5.0)
        return ops.cat([ops.where(known, scaled, 0.0).half(), known.half()], 1)

    def eager(torch, x, mean, deviation):
        known = ~torch.isnan(x)
        scaled = ((torch.log(x.abs() + 1) * torch.sign(x) - mean) / deviation).clamp(-5, 5)
        return torch.cat((torch.where(known, scaled, 0).half(), known.half()), 1)

    return Recipe([f32(m, n), f32(n), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(4099, 9), segments=(257, 5), d=(96, 4))
def segment_means_by_one_hot(m, segments, d):
    """A reduction over rows for each of many segments, where nothing else is to be had."""

    def define(x, segment):
        mine = (ops.iota(segments)[:, None] == segment).float()
        total = (mine.unsqueeze(-1) * x).sum(1)
        return total / mine.sum(1, keepdim=True).maximum(1.0)

    def eager(torch, x, segment):
        mine = (torch.arange(segments, device=x.device)[:, None] == segment).float()
        return (mine @ x) / mine.sum(1, keepdim=True).clamp(min=1)

    return Recipe([f32(m, d), ids(segments, m)], define, eager)


@everyday(m=(16_387, 9), e=(32, 4), capacity=(640, 3))
def expert_capacity_mask(m, e, capacity):
    def define(gate, chosen):
        hot = ops.iota(e) == chosen[:, None]
        place = hot.int().cumsum(0) - 1
        kept = hot & (place < capacity)
        return ops.where(kept, gate, 0.0).sum(1), kept.int().sum(0)

    def eager(torch, gate, chosen):
        hot = torch.nn.functional.one_hot(chosen, e)
        place = torch.cumsum(hot, 0) - 1
        kept = (hot > 0) & (place < capacity)
        return torch.where(kept, gate, 0).sum(1), kept.sum(0)

    return Recipe([f32(m, e, fill=POSITIVE), ids(e, m)], define, eager)


@everyday(m=(8191, 7), e=(128, 9))
def sigmoid_gate_backward(m, e):
    """Of scores that were normalised by their sum over the chosen ones."""

    def define(g, logits, kept):
        s = logits.float().sigmoid()
        chosen = ops.where(kept > 96, s, 0.0)
        total = chosen.sum(-1, keepdim=True) + 1e-9
        ds = (g - (g * chosen).sum(-1, keepdim=True) / total) / total
        return (ops.where(kept > 96, ds, 0.0) * s * (1.0 - s)).bfloat16()

    def eager(torch, g, logits, kept):
        s = torch.sigmoid(logits.float())
        chosen = torch.where(kept > 96, s, 0)
        total = chosen.sum(-1, keepdim=True) + 1e-9
        ds = (g - (g * chosen).sum(-1, keepdim=True) / total) / total
        return (torch.where(kept > 96, ds, 0) * s * (1 - s)).bfloat16()

    return Recipe([f32(m, e), bf16(m, e), ids(128, m, e)], define, eager)


@everyday(m=(8191, 7), slots=(4, 2), d=(1024, 8))
def combine_experts_from_slots(m, slots, d):
    """Rows of experts' results, gathered by where each token went."""

    def define(out, place, weight):
        rows = out.index_select(place.reshape(m * slots), 0).reshape(m, slots, d)
        return (rows.float() * weight.unsqueeze(-1)).sum(1).bfloat16()

    def eager(torch, out, place, weight):
        return (out[place].float() * weight[..., None]).sum(1).to(out.dtype)

    return Recipe([bf16(m * slots, d), ids(m * slots, m, slots), f32(m, slots, fill=POSITIVE)], define, eager)


@everyday(b=(4, 2), t=(1025, 5), h=(16, 2), d=(64, 4))
def chunked_decays_gla(b, t, h, d):
    """Queries and keys with the decays that were summed up to them, before the products of a chunk."""

    def define(q, k, g):
        log = g.float()
        total = (-((-log.abs()).exp().log1p() + (-log).maximum(0.0)) * (1 / 16)).cumsum(1)
        return (
            (q.float() * total.exp() * d**-0.5).bfloat16(),
            (k.float() * (-total).minimum(30.0).exp()).bfloat16(),
            total,
        )

    def eager(torch, q, k, g):
        total = torch.cumsum(torch.nn.functional.logsigmoid(g.float()) * (1 / 16), 1)
        k = k.float() * torch.exp((-total).clamp(max=30))
        return (q.float() * total.exp() * d**-0.5).bfloat16(), k.bfloat16(), total

    shape = (b, t, h, d)
    return Recipe([bf16(*shape), bf16(*shape), bf16(*shape)], define, eager)


@everyday(b=(8, 2), t=(1024, 5), d=(2048, 6))
def rwkv6_decay_and_mix(b, t, d):
    def define(x, base, low, mix):
        h = x.float()
        before = ops.cat([h[:, :1] * 0.0, h[:, :-1]], 1)
        decay = (-(base + low.float().tanh()).exp()).exp()
        return ops.lerp(h, before, mix.float()).bfloat16(), decay

    def eager(torch, x, base, low, mix):
        h = x.float()
        before = torch.cat((h[:, :1] * 0, h[:, :-1]), 1)
        decay = torch.exp(-torch.exp(base + torch.tanh(low.float())))
        return torch.lerp(h, before, mix.float().expand_as(h)).bfloat16(), decay

    return Recipe([bf16(b, t, d), f32(d, fill=ANGLE), bf16(b, t, d), bf16(d, fill=POSITIVE)], define, eager)


@everyday(b=(4, 2), d=(1536, 5), t=(2048, 9))
def hyena_gates_and_short_filter(b, d, t):
    """Three projections filtered by three taps each; the first two gate the third."""

    def define(x, w):
        padded = ops.pad(x.float(), [2, 0])
        h = padded[..., 2:] * w[:, 2:]
        for k in range(2):
            h = h + padded[..., k : k + t] * w[:, k : k + 1]
        return (h[:, :d] * h[:, d : 2 * d]).bfloat16(), h[:, 2 * d :].bfloat16()

    def eager(torch, x, w):
        padded = torch.nn.functional.pad(x.float(), (2, 0))
        h = sum(padded[..., k : k + t] * w[:, k : k + 1] for k in range(3))
        return (h[:, :d] * h[:, d : 2 * d]).bfloat16(), h[:, 2 * d :].bfloat16()

    return Recipe([bf16(b, 3 * d, t), f32(3 * d, 3)], define, eager)


@everyday(b=(4, 2), t=(1023, 5), d=(1536, 6))
def causal_conv_backward_mamba(b, t, d):
    """Gradients of the input and of the four taps of each channel."""

    def define(dy, x, w):
        g, h = ops.pad(dy.float(), [0, 0, 0, 3]), ops.pad(x.float(), [0, 0, 3, 0])
        dx = g[:, :t] * w[3]
        for k in range(3):
            dx = dx + g[:, 3 - k : 3 - k + t] * w[k]
        dw = [(dy.float() * h[:, k : k + t]).sum([0, 1]) for k in range(4)]
        return dx.bfloat16(), *dw

    def eager(torch, dy, x, w):
        pad = torch.nn.functional.pad
        g, h = pad(dy.float(), (0, 0, 0, 3)), pad(x.float(), (0, 0, 3, 0))
        dx = sum(g[:, 3 - k : 3 - k + t] * w[k] for k in range(4))
        return dx.bfloat16(), *((dy.float() * h[:, k : k + t]).sum((0, 1)) for k in range(4))

    return Recipe([bf16(b, t, d), bf16(b, t, d), f32(4, d)], define, eager)
