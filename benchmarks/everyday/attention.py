"""Around attention: scores, masks, rotary embeddings, heads."""

from benchmarks.everyday.recipe import ANGLE, Recipe, bf16, everyday, f16, f32, mask
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
