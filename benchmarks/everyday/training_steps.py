"""More steps of training: optimizers with clipping, low-precision states, accumulation, norms of many tensors."""

import math

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


@everyday(n=(7_000_007, 1003))
def adam_clipped_bf16_states(n):
    def define(p, g, m, v, norm):
        g = g.float() * (1.0 / (norm + 1e-6)).minimum(1.0)
        m = m.float() * 0.9 + g * 0.1
        v = v.float() * 0.95 + g * g * 0.05
        p = p * (1 - 1e-5) - m * 1e-3 / (v.sqrt() + 1e-8)
        return p, m.bfloat16(), v.bfloat16()

    def eager(torch, p, g, m, v, norm):
        g = g.float() * torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        m = m.float() * 0.9 + g * 0.1
        v = v.float() * 0.95 + g * g * 0.05
        return p * (1 - 1e-5) - m * 1e-3 / (v.sqrt() + 1e-8), m.bfloat16(), v.bfloat16()

    states = [bf16(n), bf16(n, fill=POSITIVE), f32(1, fill=POSITIVE)]
    return Recipe([f32(n), bf16(n), *states], define, eager)


@everyday(m=(2048, 7), n=(2051, 20))
def adamw_clipping_its_own_norm(m, n):
    """The norm, the clipping and the step at once, for a model of one large tensor."""

    def define(p, g, moment, v):
        h = g.float()
        h = h * (1.0 / ((h * h).sum().sqrt() + 1e-6)).minimum(1.0)
        moment = ops.lerp(moment, h, 0.1)
        v = ops.lerp(v, h * h, 0.05)
        return p * 0.9999 - moment * 3e-4 / (v.sqrt() + 1e-8), moment, v

    def eager(torch, p, g, moment, v):
        h = g.float()
        h = h * torch.clamp(1.0 / (h.norm() + 1e-6), max=1.0)
        moment, v = torch.lerp(moment, h, 0.1), torch.lerp(v, h * h, 0.05)
        return p * 0.9999 - moment * 3e-4 / (v.sqrt() + 1e-8), moment, v

    return Recipe([f32(m, n), bf16(m, n), f32(m, n), f32(m, n, fill=POSITIVE)], define, eager)


@everyday(n=(5_000_003, 1003))
def adadelta(n):
    def define(p, g, square, change):
        square = square * 0.9 + g * g * 0.1
        step = g * ((change + 1e-6) / (square + 1e-6)).sqrt()
        return p - step, square, change * 0.9 + step * step * 0.1

    def eager(torch, p, g, square, change):
        square = square * 0.9 + g * g * 0.1
        step = g * torch.sqrt((change + 1e-6) / (square + 1e-6))
        return p - step, square, change * 0.9 + step.square() * 0.1

    return Recipe([f32(n), f32(n), f32(n, fill=POSITIVE), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(5120, 7), n=(1281, 20))
def nadam_f16_weights(m, n):
    def define(p, g, moment, v, step):
        h = g.float()
        moment = moment * 0.9 + h * 0.1
        v = v * 0.999 + h * h * 0.001
        ahead = moment * 0.9 / (1.0 - 0.9 ** (step + 1.0)) + h * 0.1 / (1.0 - 0.9**step)
        return (p.float() - ahead * 1e-3 / (v.sqrt() + 1e-8)).half(), moment, v

    def eager(torch, p, g, moment, v, step):
        h = g.float()
        moment = moment * 0.9 + h * 0.1
        v = v * 0.999 + h * h * 0.001
        ahead = moment * 0.9 / (1 - 0.9 ** (step + 1)) + h * 0.1 / (1 - 0.9**step)
        return (p.float() - ahead * 1e-3 / (v.sqrt() + 1e-8)).half(), moment, v

    states = [f32(m, n), f32(m, n, fill=POSITIVE), f32(1, fill=POSITIVE)]
    return Recipe([f16(m, n), f16(m, n), *states], define, eager)


@everyday(n=(5_000_011, 1003))
def radam_rectified(n):
    def define(p, g, m, v, rectified, scale):
        m = ops.lerp(m, g, 0.1)
        v = v * 0.999 + g * g * 0.001
        adaptive = m * scale / (v.sqrt() + 1e-8)
        return p - ops.where(rectified > 1.0, adaptive, m) * 1e-3, m, v

    def eager(torch, p, g, m, v, rectified, scale):
        m = torch.lerp(m, g, 0.1)
        v = v * 0.999 + g * g * 0.001
        return p - torch.where(rectified > 1, m * scale / (v.sqrt() + 1e-8), m) * 1e-3, m, v

    states = [f32(n), f32(n, fill=POSITIVE), f32(1, fill=POSITIVE), f32(1, fill=POSITIVE)]
    return Recipe([f32(n), f32(n), *states], define, eager)


@everyday(m=(1024, 7), n=(4608, 20))
def lars_momentum(m, n):
    def define(p, g, velocity):
        h = g.float()
        trust = (p * p).sum().sqrt() * 0.001 / ((h * h).sum().sqrt() + (p * p).sum().sqrt() * 1e-4 + 1e-9)
        velocity = velocity * 0.9 + (h + p * 1e-4) * trust
        return p - velocity, velocity

    def eager(torch, p, g, velocity):
        h = g.float()
        trust = p.norm() * 0.001 / (h.norm() + p.norm() * 1e-4 + 1e-9)
        velocity = velocity * 0.9 + (h + p * 1e-4) * trust
        return p - velocity, velocity

    return Recipe([f32(m, n), bf16(m, n), f32(m, n)], define, eager)


@everyday(n=(15_000_017, 1003))
def sgd_momentum_bf16(n):
    def define(p, g, velocity):
        v = velocity.float() * 0.9 + g.float() + p.float() * 5e-4
        return (p.float() - v * 0.05).bfloat16(), v.bfloat16()

    def eager(torch, p, g, velocity):
        v = velocity.float() * 0.9 + g.float() + p.float() * 5e-4
        return (p.float() - v * 0.05).to(p.dtype), v.to(p.dtype)

    return Recipe([bf16(n), bf16(n), bf16(n)], define, eager)


@everyday(n=(7_000_001, 1003))
def sgd_step_with_ema(n):
    def define(p, g, average, norm):
        p = p - g.float() * (0.1 / (norm + 1e-6)).minimum(0.01)
        return p, ops.lerp(p, average, 0.999), p.bfloat16()

    def eager(torch, p, g, average, norm):
        p = p - g.float() * torch.clamp(0.1 / (norm + 1e-6), max=0.01)
        return p, torch.lerp(p, average, 0.999), p.bfloat16()

    return Recipe([f32(n), bf16(n), f32(n), f32(1, fill=POSITIVE)], define, eager)


@everyday(a=(4096, 7), b=(1024, 5), c=(11008, 9))
def norms_of_many_tensors(a, b, c):
    """Of the gradients of a layer: one for each, and that of all."""

    def define(*gradients):
        squares = [(g.float() * g.float()).sum() for g in gradients]
        total = squares[0]
        for s in squares[1:]:
            total = total + s
        return total.sqrt(), *(s.sqrt() for s in squares)

    def eager(torch, *gradients):
        squares = [g.float().square().sum() for g in gradients]
        return torch.stack(squares).sum().sqrt(), *(s.sqrt() for s in squares)

    shapes = ((a, a), (b, a), (b, a), (a,), (c, b), (3 * b + 1,))
    return Recipe([bf16(*shape) for shape in shapes], define, eager)


@everyday(m=(6144, 7), n=(2048, 20))
def accumulate_and_unscale_f16(m, n):
    def define(total, g, scale):
        h = g.float() * scale.reciprocal()
        total = total + ops.where(h.isfinite(), h, 0.0)
        return total, h.isfinite().float().min()

    def eager(torch, total, g, scale):
        h = g.float() * scale.reciprocal()
        return total + torch.where(torch.isfinite(h), h, 0), torch.isfinite(h).float().amin()

    return Recipe([f32(m, n), f16(m, n), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(1536, 7), n=(8192, 20))
def adam_mini_row_states(m, n):
    """One second moment a row."""

    def define(p, g, moment, v):
        h = g.float()
        moment = moment.float() * 0.9 + h * 0.1
        v = v * 0.95 + (h * h).mean(1, keepdim=True) * 0.05
        return (p.float() - moment * 1e-3 / (v.sqrt() + 1e-8)).bfloat16(), moment.bfloat16(), v

    def eager(torch, p, g, moment, v):
        h = g.float()
        moment = moment.float() * 0.9 + h * 0.1
        v = v * 0.95 + h.square().mean(1, keepdim=True) * 0.05
        return (p.float() - moment * 1e-3 / (v.sqrt() + 1e-8)).bfloat16(), moment.bfloat16(), v

    return Recipe([bf16(m, n), bf16(m, n), bf16(m, n), f32(m, 1, fill=POSITIVE)], define, eager)


@everyday(k=(4099, 5), block=(2048, 16))
def adam_8bit_states(k, block):
    """Moments as whole numbers of a block's largest; here each comes in an Int."""

    def define(p, g, moment, scale):
        h = g.float()
        m = moment.float() * scale[:, None] * 0.9 + h * 0.1
        top = m.abs().max(1, keepdim=True).maximum(1e-12)
        code = (m / top * 127.0).round()
        return (p.float() - m * 1e-3).bfloat16(), code.int(), top.squeeze(1) * (1 / 127)

    def eager(torch, p, g, moment, scale):
        h = g.float()
        m = moment.float() * scale[:, None] * 0.9 + h * 0.1
        top = m.abs().amax(1, keepdim=True).clamp(min=1e-12)
        code = (m / top * 127.0).round()
        return (p.float() - m * 1e-3).bfloat16(), code.int(), top.squeeze(1) * (1 / 127)

    return Recipe(
        [bf16(k, block), bf16(k, block, fill=POSITIVE), ids(128, k, block), f32(k, fill=POSITIVE)], define, eager
    )


@everyday(m=(4097, 7), n=(4096, 20))
def galore_scaled_update(m, n):
    """Each row is scaled as its projection was, and clipped by how far its norm grew."""

    def define(p, g, before, after, previous):
        factor = after / (before + 1e-8)
        u = g.float() * factor[:, None]
        norm = (u * u).sum(1).sqrt()
        clip = (previous * 1.01 / norm.maximum(1e-8)).minimum(1.0)
        return (p.float() * 0.9999 - u * (clip * 1e-3)[:, None]).bfloat16(), norm * clip

    def eager(torch, p, g, before, after, previous):
        u = g.float() * (after / (before + 1e-8))[:, None]
        norm = u.norm(dim=1)
        clip = (previous * 1.01 / norm.clamp(min=1e-8)).clamp(max=1)
        return (p.float() * 0.9999 - u * (clip * 1e-3)[:, None]).bfloat16(), norm * clip

    vectors = [f32(m, fill=POSITIVE), f32(m, fill=POSITIVE), f32(m, fill=POSITIVE)]
    return Recipe([bf16(m, n), bf16(m, n), *vectors], define, eager)


@everyday(m=(8193, 7), n=(3072, 20))
def dropout_gelu_backward_from_mask(m, n):
    def define(dy, keep, x, bias):
        h = x.float() + bias.float()
        g = ops.where(keep, dy.float() * (1 / 0.9), 0.0)
        half = (h * math.sqrt(0.5)).erf() * 0.5 + 0.5
        g = g * (half + h * (h * h * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))
        return g.bfloat16(), g.sum(0).bfloat16()

    def eager(torch, dy, keep, x, bias):
        h = x.float() + bias.float()
        g = torch.where(keep, dy.float() * (1 / 0.9), 0)
        g = torch.ops.aten.gelu_backward(g, h)
        return g.bfloat16(), g.sum(0).bfloat16()

    return Recipe([bf16(m, n), mask(m, n), bf16(m, n), bf16(n)], define, eager)
