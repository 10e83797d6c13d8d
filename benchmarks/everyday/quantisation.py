"""Integers in place of floats. Bytes come four to an Int32."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, everyday, f32, words
from fuser import ops


@everyday(m=(11008, 5), n=(1023, 7))
def dequant_int8x4_rows(m, n):
    def define(q, scale):
        signed = [(q << (24 - 8 * k)) >> 24 for k in range(4)]
        x = ops.cat([s.float().unsqueeze(-1) for s in signed], -1).reshape(m, 4 * n)
        return (x * scale[:, None]).bfloat16()

    def eager(torch, q, scale):
        return (q.view(torch.int8).float() * scale[:, None]).to(torch.bfloat16)

    return Recipe([words(m, n), f32(m, fill=POSITIVE)], define, eager)
