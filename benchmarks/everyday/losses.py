"""Losses, what they are made of, and their gradients."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32, ids
from fuser import ops


@everyday(m=(4099, 3), n=(32003, 77))
def logsumexp(m, n):
    def define(x):
        h = x.float()
        top = h.max(-1, keepdim=True)
        return top.squeeze(-1) + (h - top).exp().sum(-1).log()

    def eager(torch, x):
        return torch.logsumexp(x.float(), -1)

    return Recipe([f16(m, n)], define, eager)


@everyday(m=(4093, 5), v=(50257, 53))
def cross_entropy_backward(m, v):
    def define(logits, lse, target):
        p = (logits.float() - lse[:, None]).exp()
        hit = ops.iota(v) == target[:, None]
        return (ops.where(hit, p - 1.0, p) * (1 / m)).bfloat16()

    def eager(torch, logits, lse, target):
        p = torch.exp(logits.float() - lse[:, None])
        p = torch.where(torch.arange(v, device=p.device) == target[:, None], p - 1, p)
        return (p * (1.0 / m)).to(logits.dtype)

    return Recipe([bf16(m, v), f32(m, fill=POSITIVE), ids(v, m)], define, eager)
