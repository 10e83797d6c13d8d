"""Steps of optimizers: new parameters and states from old ones and a gradient; and what is done to gradients before."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32
from fuser import ops


@everyday(n=(50_000_017, 1003))
def amsgrad(n):
    def define(p, g, m, v, vmax):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        vmax = vmax.maximum(v)
        return p * 0.99999 - m * 1e-3 / ((vmax * 1.25).sqrt() + 1e-8), m, v, vmax

    def eager(torch, p, g, m, v, vmax):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        vmax = torch.maximum(vmax, v)
        return p * 0.99999 - m * 1e-3 / ((vmax * 1.25).sqrt() + 1e-8), m, v, vmax

    return Recipe([f32(n), f32(n), f32(n), f32(n, fill=POSITIVE), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(11008, 7), n=(4096, 20))
def adamw_master_weights(m, n):
    def define(p, g, moment, v, step):
        g = g.float()
        moment = ops.lerp(moment, g, 0.1)
        v = v * 0.95 + g * g * 0.05
        first, second = 1.0 - 0.9**step, 1.0 - 0.95**step
        p = p * (1 - 3e-4 * 0.1) - (moment / first) * 3e-4 / ((v / second).sqrt() + 1e-8)
        return p, p.bfloat16(), moment, v

    def eager(torch, p, g, moment, v, step):
        g = g.float()
        moment = torch.lerp(moment, g, 0.1)
        v = v * 0.95 + g * g * 0.05
        first, second = 1 - 0.9**step, 1 - 0.95**step
        p = p * (1 - 3e-4 * 0.1) - (moment / first) * 3e-4 / ((v / second).sqrt() + 1e-8)
        return p, p.bfloat16(), moment, v

    states = [f32(m, n), f32(m, n, fill=POSITIVE), f32(1, fill=POSITIVE)]
    return Recipe([f32(m, n), bf16(m, n), *states], define, eager)


@everyday(n=(25_557_032, 1003))
def sgd_nesterov_resnet50(n):
    def define(p, g, velocity):
        g = g + p * 1e-4
        velocity = velocity * 0.9 + g
        return p - (g + velocity * 0.9) * 0.1, velocity

    def eager(torch, p, g, velocity):
        g = g + 1e-4 * p
        velocity = 0.9 * velocity + g
        return p - 0.1 * (g + 0.9 * velocity), velocity

    return Recipe([f32(n), f32(n), f32(n)], define, eager)


@everyday(n=(40_000_003, 1003))
def lion(n):
    def define(p, g, m):
        g, w = g.float(), p.float()
        update = (m * 0.9 + g * 0.1).sign()
        return (w * (1 - 1e-5) - update * 1e-4).bfloat16(), m * 0.99 + g * 0.01

    def eager(torch, p, g, m):
        g, w = g.float(), p.float()
        update = torch.sign(m * 0.9 + g * 0.1)
        return (w * (1 - 1e-5) - update * 1e-4).to(p.dtype), m * 0.99 + g * 0.01

    return Recipe([bf16(n), bf16(n), f32(n)], define, eager)


@everyday(m=(4099, 7), n=(4095, 20))
def adafactor_statistics(m, n):
    def define(g, row, column):
        square = g.float() * g.float() + 1e-30
        return row * 0.99 + square.mean(1) * 0.01, column * 0.99 + square.mean(0) * 0.01

    def eager(torch, g, row, column):
        square = g.float().square() + 1e-30
        return row * 0.99 + square.mean(1) * 0.01, column * 0.99 + square.mean(0) * 0.01

    return Recipe([bf16(m, n), f32(m, fill=POSITIVE), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(4099, 7), n=(4095, 20))
def adafactor_update(m, n):
    def define(g, row, column, p):
        scale = (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
        update = g.float() * scale
        clipped = update / (update * update).mean().sqrt().maximum(1.0)
        return (p.float() - clipped * 1e-3).bfloat16()

    def eager(torch, g, row, column, p):
        update = g.float() * (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
        clipped = update / update.square().mean().sqrt().clamp(min=1)
        return (p.float() - clipped * 1e-3).to(p.dtype)

    vectors = [f32(m, fill=POSITIVE), f32(n, fill=POSITIVE)]
    return Recipe([bf16(m, n), *vectors, bf16(m, n)], define, eager)


@everyday(n=(20_000_003, 1003))
def rmsprop_momentum(n):
    def define(p, g, square, buffer):
        square = square * 0.99 + g * g * 0.01
        buffer = buffer * 0.9 + g / (square.sqrt() + 1e-8)
        return p - buffer * 1e-2, square, buffer

    def eager(torch, p, g, square, buffer):
        square = square * 0.99 + g * g * 0.01
        buffer = buffer * 0.9 + g / (square.sqrt() + 1e-8)
        return p - buffer * 1e-2, square, buffer

    return Recipe([f32(n), f32(n), f32(n, fill=POSITIVE), f32(n)], define, eager)


@everyday(m=(8193, 7), n=(3072, 20))
def lamb_norms_and_update(m, n):
    def define(p, g, moment, v):
        moment = moment * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        update = moment / (v.sqrt() + 1e-6) + p * 0.01
        trust = (p * p).sum().sqrt() / (update * update).sum().sqrt()
        return p - update * trust * 1e-3, moment, v

    def eager(torch, p, g, moment, v):
        moment = moment * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        update = moment / (v.sqrt() + 1e-6) + 0.01 * p
        return p - update * (p.norm() / update.norm()) * 1e-3, moment, v

    return Recipe([f32(m, n), f32(m, n), f32(m, n), f32(m, n, fill=POSITIVE)], define, eager)


@everyday(n=(30_000_001, 1003))
def adagrad_decayed(n):
    def define(p, g, total, rate):
        total = total + g * g
        return p - rate * g / (total.sqrt() + 1e-10), total

    def eager(torch, p, g, total, rate):
        total = total + g * g
        return p - rate * g / (total.sqrt() + 1e-10), total

    return Recipe([f32(n), f32(n), f32(n, fill=POSITIVE), f32(1, fill=POSITIVE)], define, eager)


@everyday(n=(60_000_001, 1003))
def ema_of_weights(n):
    def define(average, p):
        return average * 0.9999 + p.float() * 0.0001

    def eager(torch, average, p):
        return average * 0.9999 + p.float() * 0.0001

    return Recipe([f32(n), bf16(n)], define, eager)


@everyday(n=(70_000_003, 1003))
def unscale_and_check_finite(n):
    def define(g, scale):
        unscaled = g.float() / scale
        return unscaled.half(), unscaled.isfinite().float().min()

    def eager(torch, g, scale):
        unscaled = g.float() / scale
        return unscaled.half(), torch.isfinite(unscaled).float().min()

    return Recipe([f16(n), f32(1, fill=POSITIVE)], define, eager)


@everyday(n=(70_000_003, 1003))
def grad_norm(n):
    def define(g):
        h = g.float()
        return (h * h).sum().sqrt()

    def eager(torch, g):
        return g.float().square().sum().sqrt()

    return Recipe([bf16(n)], define, eager)


@everyday(m=(4096, 7), n=(11008, 20))
def clip_by_norm_then_accumulate(m, n):
    def define(total, g, norm):
        return total + g.float() * (1.0 / (norm + 1e-6)).minimum(1.0)

    def eager(torch, total, g, norm):
        return total + g.float() * torch.clamp(1.0 / (norm + 1e-6), max=1.0)

    return Recipe([f32(m, n), bf16(m, n), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(3072, 7), n=(3073, 21))
def muon_momentum_normalized(m, n):
    def define(g, buffer):
        buffer = ops.lerp(buffer, g.float(), 0.05)
        update = ops.lerp(g.float(), buffer, 0.95)
        return (update / ((update * update).sum().sqrt() + 1e-7)).bfloat16(), buffer

    def eager(torch, g, buffer):
        buffer = torch.lerp(buffer, g.float(), 0.05)
        update = torch.lerp(g.float(), buffer, 0.95)
        return (update / (update.norm() + 1e-7)).bfloat16(), buffer

    return Recipe([bf16(m, n), f32(m, n)], define, eager)


@everyday(m=(7169, 7), n=(2048, 20))
def sophia_clipped(m, n):
    def define(p, g, moment, hessian):
        moment = moment * 0.96 + g.float() * 0.04
        ratio = (moment.abs() / (hessian * 0.04 + 1e-12)).minimum(1.0)
        return (p.float() * (1 - 1e-5) - moment.sign() * ratio * 1e-4).bfloat16(), moment

    def eager(torch, p, g, moment, hessian):
        moment = moment * 0.96 + g.float() * 0.04
        ratio = (moment.abs() / (hessian * 0.04 + 1e-12)).clamp(max=1)
        return (p.float() * (1 - 1e-5) - moment.sign() * ratio * 1e-4).to(p.dtype), moment

    return Recipe([bf16(m, n), bf16(m, n), f32(m, n), f32(m, n, fill=POSITIVE)], define, eager)


@everyday(m=(4097, 7), n=(2560, 20))
def per_row_gradient_clip(m, n):
    def define(g, w):
        g_norm = (g.float() * g.float()).sum(1, keepdim=True).sqrt()
        w_norm = (w.float() * w.float()).sum(1, keepdim=True).sqrt().maximum(1e-3)
        return (g.float() * (w_norm * 0.01 / g_norm.maximum(1e-6)).minimum(1.0)).bfloat16()

    def eager(torch, g, w):
        g_norm = g.float().norm(dim=1, keepdim=True)
        w_norm = w.float().norm(dim=1, keepdim=True).clamp(min=1e-3)
        return (g.float() * torch.clamp(w_norm * 0.01 / g_norm.clamp(min=1e-6), max=1)).to(g.dtype)

    return Recipe([bf16(m, n), bf16(m, n)], define, eager)


@everyday(m=(4096, 6), n=(11008, 9))
def lamb_step(m, n):
    def define(p, g, moment, square):
        moment = moment * 0.9 + g * 0.1
        square = square * 0.999 + g * g * 0.001
        update = moment / (square.sqrt() + 1e-6) + p * 0.01
        ratio = (p * p).sum().sqrt() / ((update * update).sum().sqrt() + 1e-6)
        return p - update * ratio * 1e-3, moment, square

    def eager(torch, p, g, moment, square):
        moment = moment * 0.9 + g * 0.1
        square = square * 0.999 + g * g * 0.001
        update = moment / (square.sqrt() + 1e-6) + p * 0.01
        ratio = p.norm() / (update.norm() + 1e-6)
        return p - update * ratio * 1e-3, moment, square

    return Recipe([f32(m, n), f32(m, n), f32(m, n), f32(m, n, fill=POSITIVE)], define, eager)
