"""Positions, masks and heads: more of what stands around attention, and its gradients."""

import math

from benchmarks.everyday.recipe import ANGLE, POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


def softmax(x, dim=-1):
    e = (x - x.max(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


@everyday(b=(24, 2), h=(65, 3), n=(129, 5), d=(96, 7))
def softmax_of_middle_dim(b, h, n, d):
    def define(x):
        return softmax(x.float(), 2).bfloat16()

    def eager(torch, x):
        return torch.softmax(x, 2)

    return Recipe([bf16(b, h, n, d)], define, eager)


@everyday(b=(16, 2), n=(4097, 9), d=(257, 7))
def softmax_of_middle_dim_backward(b, n, d):
    def define(dy, y):
        g, p = dy.float(), y.float()
        return (p * (g - (g * p).sum(1, keepdim=True))).half()

    def eager(torch, dy, y):
        return torch.ops.aten._softmax_backward_data(dy, y, 1, y.dtype)  # noqa: SLF001

    return Recipe([f16(b, n, d), f16(b, n, d, fill=POSITIVE)], define, eager)


@everyday(b=(4, 2), h=(8, 2), n=(577, 9), d=(64, 5))
def efficient_attention_softmaxes(b, h, n, d):
    """Queries over their features, keys over the sequence."""

    def define(q, k):
        return (softmax(q.float()) * d**-0.5).half(), softmax(k.float(), 2).half()

    def eager(torch, q, k):
        return (torch.softmax(q.float(), -1) * d**-0.5).half(), torch.softmax(k.float(), 2).half()

    return Recipe([f16(b, h, n, d), f16(b, h, n, d)], define, eager)


@everyday(b=(2, 1), h=(16, 3), s=(1151, 13), prefix=(128, 3), window=(384, 4))
def prefix_window_softmax(b, h, s, prefix, window):
    """A causal window, and a prefix that all see."""

    def define(x):
        row, column = ops.iota(s)[:, None], ops.iota(s)
        seen = ((row >= column) & (row - column < window)) | (column < prefix)
        return softmax(ops.where(seen, x.float() * 0.125, float("-inf"))).bfloat16()

    def eager(torch, x):
        at = torch.arange(s, device=x.device)
        row, column = at[:, None], at
        seen = ((row >= column) & (row - column < window)) | (column < prefix)
        return torch.softmax((x.float() * 0.125).masked_fill(~seen, float("-inf")), -1).bfloat16()

    return Recipe([bf16(b, h, s, s)], define, eager)


@everyday(b=(2, 1), h=(24, 3), s=(1023, 13))
def document_mask_softmax(b, h, s):
    """Tokens see those before them in their own document."""

    def define(x, document):
        seen = (document[:, :, None] == document[:, None]) & (ops.iota(s)[:, None] >= ops.iota(s))
        return softmax(ops.where(seen[:, None], x.float() * 0.125, float("-inf"))).half()

    def eager(torch, x, document):
        at = torch.arange(s, device=x.device)
        seen = (document[:, :, None] == document[:, None]) & (at[:, None] >= at)
        return torch.softmax((x.float() * 0.125).masked_fill(~seen[:, None], float("-inf")), -1).half()

    return Recipe([f16(b, h, s, s), ids(4, b, s)], define, eager)


@everyday(b=(2, 1), h=(16, 3), s=(1025, 13))
def softcap_softmax_backward(b, h, s):
    def define(dp, p, x):
        q = p.float()
        g = q * (dp.float() - (dp.float() * q).sum(-1, keepdim=True))
        t = (x.float() * (1 / 50)).tanh()
        return (g * (1.0 - t * t)).bfloat16()

    def eager(torch, dp, p, x):
        g = torch.ops.aten._softmax_backward_data(dp.float(), p.float(), -1, torch.float32)  # noqa: SLF001
        t = torch.tanh(x.float() / 50)
        return (g * (1 - t * t)).to(x.dtype)

    return Recipe([bf16(b, h, s, s), bf16(b, h, s, s, fill=POSITIVE), bf16(b, h, s, s)], define, eager)


@everyday(b=(12, 2), h=(8, 3), s=(513, 9))
def relative_bias_backward_t5(b, h, s):
    """Gradients of the scores and of the bias that all of the batch share."""

    def define(dp, p):
        q = p.float()
        g = q * (dp.float() - (dp.float() * q).sum(-1, keepdim=True))
        return g.half(), g.sum(0, keepdim=True)

    def eager(torch, dp, p):
        q = p.float()
        g = q * (dp.float() - (dp.float() * q).sum(-1, keepdim=True))
        return g.half(), g.sum(0, keepdim=True)

    return Recipe([f16(b, h, s, s), f16(b, h, s, s, fill=POSITIVE)], define, eager)


@everyday(b=(3, 1), h=(12, 3), s=(1024, 9))
def alibi_slope_gradient(b, h, s):
    def define(g):
        distance = (ops.iota(s) - ops.iota(s)[:, None]).float()
        return (g.float() * distance).sum([0, 2, 3])

    def eager(torch, g):
        at = torch.arange(s, device=g.device)
        return (g.float() * (at - at[:, None])).sum((0, 2, 3))

    return Recipe([bf16(b, h, s, s)], define, eager)


@everyday(h=(16, 3), s=(1537, 9), buckets=(32, 8))
def t5_bias_from_buckets(h, s, buckets):
    """The table of relative positions looked up for all pairs."""

    def define(table):
        behind = (ops.iota(s)[:, None] - ops.iota(s)).maximum(0)
        far = (behind.float().maximum(1.0) * (2 / buckets)).log() * (buckets / 2 / math.log(256 / buckets))
        bucket = ops.where(behind < buckets // 2, behind, (far.long() + buckets // 2).minimum(buckets - 1))
        picked = table.index_select(bucket.reshape(s * s), 0).reshape(s, s, h)
        return picked.permute(2, 0, 1).stride_order([2, 1, 0])

    def eager(torch, table):
        at = torch.arange(s, device=table.device)
        behind = (at[:, None] - at).clamp(min=0)
        far = torch.log(behind.float().clamp(min=1) * (2 / buckets)) * (buckets / 2 / math.log(256 / buckets))
        bucket = torch.where(behind < buckets // 2, behind, (far.long() + buckets // 2).clamp(max=buckets - 1))
        return table[bucket].permute(2, 0, 1).contiguous()

    return Recipe([bf16(buckets, h)], define, eager)


@everyday(b=(4, 2), s=(1025, 5), h=(32, 3), d=(80, 8), turned=(32, 4))
def partial_rotary_neox(b, s, h, d, turned):
    half = turned // 2

    def define(x, cos, sin):
        x1, x2 = x[..., :half].float(), x[..., half:turned].float()
        c, z = cos[:, None], sin[:, None]
        parts = [(x1 * c - x2 * z).bfloat16(), (x2 * c + x1 * z).bfloat16(), x[..., turned:]]
        return ops.cat(parts, -1)

    def eager(torch, x, cos, sin):
        x1, x2 = x[..., :half].float(), x[..., half:turned].float()
        c, z = cos[:, None], sin[:, None]
        return torch.cat((torch.cat((x1 * c - x2 * z, x2 * c + x1 * z), -1).to(x.dtype), x[..., turned:]), -1)

    return Recipe([bf16(b, s, h, d), f32(s, half, fill=ANGLE), f32(s, half, fill=ANGLE)], define, eager)


@everyday(b=(8, 2), side=(48, 3), h=(16, 2), d=(64, 8))
def rotary_2d_vision(b, side, h, d):
    """Half of each head turned by the row, half by the column."""
    quarter = d // 4

    def define(x, cos, sin):
        parts = x.float().reshape(b, side, side, h, 2, 2, quarter)
        first, second = parts[..., 0, :], parts[..., 1, :]
        shape = (side, side, 1, 1, quarter)
        c = ops.cat([cos[:, None, None, None].expand(*shape), cos[None, :, None, None].expand(*shape)], 3)
        z = ops.cat([sin[:, None, None, None].expand(*shape), sin[None, :, None, None].expand(*shape)], 3)
        turned = [(first * c - second * z).unsqueeze(-2), (second * c + first * z).unsqueeze(-2)]
        return ops.cat(turned, -2).reshape(b, side * side, h, d).half()

    def eager(torch, x, cos, sin):
        first, second = x.float().view(b, side, side, h, 2, 2, quarter).unbind(-2)
        c = torch.stack(torch.broadcast_tensors(cos[:, None], cos[None]), 2)[:, :, None]
        z = torch.stack(torch.broadcast_tensors(sin[:, None], sin[None]), 2)[:, :, None]
        turned = torch.stack((first * c - second * z, second * c + first * z), -2)
        return turned.reshape(b, side * side, h, d).half()

    angles = f32(side, quarter, fill=ANGLE)
    return Recipe([f16(b, side * side, h, d), angles, angles], define, eager)


@everyday(b=(64, 3), h=(32, 3), kv=(8, 2), d=(128, 8), room=(8192, 21))
def rotary_decode_at_offsets(b, h, kv, d, room):
    """One new token of each sequence, at a position of its own, from packed queries, keys and values."""
    half = d // 2

    def define(qkv, cos, sin, position):
        c, z = cos.index_select(position, 0).unsqueeze(1), sin.index_select(position, 0).unsqueeze(1)
        heads = qkv.reshape(b, h + 2 * kv, d)
        x = heads[:, : h + kv].float()
        first, second = x[..., :half], x[..., half:]
        turned = ops.cat([first * c - second * z, second * c + first * z], -1).bfloat16()
        return turned[:, :h], turned[:, h:], heads[:, h + kv :].set()

    def eager(torch, qkv, cos, sin, position):
        c, z = cos[position][:, None], sin[position][:, None]
        heads = qkv.view(b, h + 2 * kv, d)
        first, second = heads[:, : h + kv].float().chunk(2, -1)
        turned = torch.cat((first * c - second * z, second * c + first * z), -1).to(qkv.dtype)
        return turned[:, :h], turned[:, h:], heads[:, h + kv :].clone()

    tables = [f32(room, half, fill=ANGLE), f32(room, half, fill=ANGLE)]
    return Recipe(
        [bf16(b, (h + 2 * kv) * d), *tables, ids(room, b)], define, eager, read_bytes=b * (h + 2 * kv) * d * 2
    )


@everyday(b=(8, 2), h=(8, 2), room=(2048, 9), d=(128, 6))
def kv_cache_with_new_token(b, h, room, d):
    """A copy of the cache with one row of each sequence replaced; updates in place are not part of a recipe."""

    def define(cache, new, position):
        here = (ops.iota(room) == position[:, None])[:, None, :, None]
        return ops.where(here, new.unsqueeze(2), cache)

    def eager(torch, cache, new, position):
        here = (torch.arange(room, device=cache.device) == position[:, None])[:, None, :, None]
        return torch.where(here, new[:, :, None], cache)

    return Recipe([f16(b, h, room, d), f16(b, h, d), ids(room, b)], define, eager)


@everyday(b=(4, 2), s=(2047, 5), kv=(4, 2), times=(7, 3), d=(128, 6))
def repeated_kv_backward(b, s, kv, times, d):
    """Gradients of heads that several queries share, from all of them."""

    def define(dk, dv):
        def shared(g):
            return g.float().reshape(b, s, kv, times, d).sum(3).bfloat16()

        return shared(dk), shared(dv)

    def eager(torch, dk, dv):
        return tuple(g.float().view(b, s, kv, times, d).sum(3).bfloat16() for g in (dk, dv))

    return Recipe([bf16(b, s, kv * times, d), bf16(b, s, kv * times, d)], define, eager)


@everyday(side=(70, 5), d=(1024, 8))
def sincos_2d_positions(side, d):
    quarter = d // 4

    def define(offset):
        omega = (ops.iota(quarter).float() * (-math.log(10000) / quarter)).exp()
        angle = (ops.iota(side).float() + offset)[:, None] * omega
        half = ops.cat([angle.sin(), angle.cos()], 1)
        shape = (side, side, d // 2)
        parts = [half[None].expand(*shape), half[:, None].expand(*shape)]
        return ops.cat(parts, 2).reshape(side * side, d)

    def eager(torch, offset):
        at = torch.arange(quarter, device=offset.device, dtype=torch.float32)
        angle = (torch.arange(side, device=offset.device) + offset)[:, None] * torch.exp(
            at * (-math.log(10000) / quarter)
        )
        half = torch.cat((angle.sin(), angle.cos()), 1)
        return torch.cat((half[None].expand(side, -1, -1), half[:, None].expand(-1, side, -1)), 2).reshape(-1, d)

    return Recipe([f32(1)], define, eager)


@everyday(n=(16, 2), side=(16, 3), c=(768, 5), big=(32, 6))
def interpolated_positions_vit(n, side, c, big):
    """A learned grid of positions, doubled by the nearest one, added behind the token of the class."""

    def define(x, grid, cls):
        near = grid[:, None, :, None].expand(side, 2, side, 2, c).reshape(big * big, c)
        return (x.float() + ops.cat([cls, near], 0).float()).bfloat16()

    def eager(torch, x, grid, cls):
        near = grid.repeat_interleave(2, 0).repeat_interleave(2, 1).reshape(big * big, c)
        return (x.float() + torch.cat((cls, near)).float()).bfloat16()

    return Recipe([bf16(n, big * big + 1, c), bf16(side, side, c), bf16(1, c)], define, eager)


@everyday(b=(4, 2), h=(12, 3), s=(769, 9))
def tril_scores_and_sums(b, h, s):
    """Scores below the diagonal, scaled by head, and their row sums."""

    def define(x, w):
        h1 = x.float() * w[:, None, None]
        low = h1 - h1.triu(1)
        return low.half(), low.sum(-1)

    def eager(torch, x, w):
        low = torch.tril(x.float() * w[:, None, None])
        return low.half(), low.sum(-1)

    return Recipe([f16(b, h, s, s), f32(h, fill=POSITIVE)], define, eager)


@everyday(b=(96, 3), s=(385, 9), d=(768, 8))
def pooled_by_learned_scores(b, s, d):
    """Attention pooling: the softmax of a score over the tokens that are there weighs them."""

    def define(x, score, there):
        p = softmax(ops.where(there, score.float(), float("-inf")))
        return (x.float() * p.unsqueeze(-1)).sum(1).half()

    def eager(torch, x, score, there):
        p = torch.softmax(score.float().masked_fill(~there, float("-inf")), -1)
        return (x.float() * p[..., None]).sum(1).half()

    return Recipe([f16(b, s, d), f16(b, s), mask(b, s)], define, eager)


@everyday(b=(64, 2), h=(12, 3), s=(577, 7), d=(64, 5))
def pooled_by_heads(b, h, s, d):
    """Attention of one query for each head: the softmax of its scores weighs the values of all tokens."""

    def define(score, v):
        p = softmax(score.float()).permute(0, 2, 1)
        return (v.float() * p.unsqueeze(-1)).sum(1).bfloat16()

    def eager(torch, score, v):
        p = torch.softmax(score.float(), -1).transpose(1, 2)
        return (v.float() * p[..., None]).sum(1).to(v.dtype)

    return Recipe([bf16(b, h, s), bf16(b, s, h, d)], define, eager)
