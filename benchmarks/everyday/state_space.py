"""State space models and other recurrences in place of attention."""

from benchmarks.everyday.recipe import POSITIVE, SHIFTED, Recipe, bf16, everyday, f16, f32
from fuser import ops


def softplus(x):
    return x.maximum(0.0) + (-x.abs()).exp().log1p()


@everyday(b=(4, 2), d=(3072, 5), t=(2049, 11))
def causal_conv_silu_mamba(b, d, t):
    def define(x, w, bias):
        padded, w = ops.pad(x.float(), [3, 0]), w.float()
        h = bias.float()[:, None]
        for k in range(4):
            h = h + padded[..., k : k + t] * w[:, k : k + 1]
        return (h * h.sigmoid()).bfloat16()

    def eager(torch, x, w, bias):
        padded = torch.nn.functional.pad(x.float(), (3, 0))
        h = sum(padded[..., k : k + t] * w[:, k : k + 1].float() for k in range(4)) + bias.float()[:, None]
        return torch.nn.functional.silu(h).to(x.dtype)

    return Recipe([bf16(b, d, t), bf16(d, 4), bf16(d)], define, eager)


@everyday(b=(4, 2), t=(2049, 11), d=(3072, 5))
def causal_conv_time_major(b, t, d):
    def define(x, w, bias):
        padded, w = ops.pad(x.float(), [0, 0, 3, 0]), w.float()
        h = bias.float()
        for k in range(4):
            h = h + padded[:, k : k + t] * w[k]
        return (h * h.sigmoid()).bfloat16()

    def eager(torch, x, w, bias):
        padded = torch.nn.functional.pad(x.float(), (0, 0, 3, 0))
        h = sum(padded[:, k : k + t] * w[k].float() for k in range(4)) + bias.float()
        return torch.nn.functional.silu(h).to(x.dtype)

    return Recipe([bf16(b, t, d), bf16(4, d), bf16(d)], define, eager)


@everyday(b=(4, 2), t=(1023, 5), d=(1536, 6))
def softplus_step_mamba(b, t, d):
    def define(dt, bias):
        h = dt.float() + bias.float()
        return ops.where(h > 20.0, h, softplus(h)).clamp(1e-3, 0.1)

    def eager(torch, dt, bias):
        return torch.nn.functional.softplus(dt.float() + bias.float()).clamp(1e-3, 0.1)

    return Recipe([bf16(b, t, d), bf16(d)], define, eager)


@everyday(b=(2, 1), t=(513, 5), d=(1536, 6), n=(16, 3))
def discretize_mamba(b, t, d, n):
    def define(dt, x, a_log, into):
        decay = (-(dt[..., None] * a_log.exp())).exp()
        return decay, (dt * x.float())[..., None] * into.float()[:, :, None, :]

    def eager(torch, dt, x, a_log, into):
        decay = torch.exp(-(dt[..., None] * torch.exp(a_log)))
        return decay, (dt * x.float())[..., None] * into.float()[:, :, None]

    return Recipe([f32(b, t, d, fill=POSITIVE), bf16(b, t, d), f32(d, n), bf16(b, t, n)], define, eager)


@everyday(b=(4, 2), h=(24, 2), c=(17, 3), t=(128, 5))
def segment_decay_mamba2(b, h, c, t):
    def define(a):
        total = (-a).cumsum(-1)
        difference = total[..., None] - total[..., None, :]
        kept = ops.iota(t)[:, None] >= ops.iota(t)
        return ops.where(kept, difference, float("-inf")).exp()

    def eager(torch, a):
        total = torch.cumsum(-a, -1)
        difference = total[..., :, None] - total[..., None, :]
        kept = torch.ones(t, t, dtype=torch.bool, device=a.device).tril()
        return torch.exp(difference.masked_fill(~kept, float("-inf")))

    return Recipe([f32(b, h, c, t, fill=POSITIVE)], define, eager)


@everyday(b=(8, 2), t=(1025, 5), d=(2048, 6))
def gated_skip_output(b, t, d):
    def define(y, x, z, skip):
        gate = z.float()
        return ((y.float() + x.float() * skip.float()) * gate * gate.sigmoid()).bfloat16()

    def eager(torch, y, x, z, skip):
        return ((y + x * skip) * torch.nn.functional.silu(z)).to(z.dtype)

    return Recipe([bf16(b, t, d), bf16(b, t, d), bf16(b, t, d), f32(d)], define, eager)


@everyday(b=(8, 2), t=(1025, 5), d=(2048, 6))
def gated_skip_output_backward(b, t, d):
    def define(g, y, x, z, skip):
        g, x, z = g.float(), x.float(), z.float()
        s = z.sigmoid()
        h = y.float() + x * skip
        dh = g * z * s
        dz = g * h * s * (1.0 + z * (1.0 - s))
        return dh.bfloat16(), (dh * skip).bfloat16(), dz.bfloat16(), (dh * x).sum([0, 1])

    def eager(torch, g, y, x, z, skip):
        g, x, z = g.float(), x.float(), z.float()
        s = torch.sigmoid(z)
        h, dh = y.float() + x * skip, g * z * s
        dz = g * h * s * (1 + z * (1 - s))
        return dh.bfloat16(), (dh * skip).bfloat16(), dz.bfloat16(), (dh * x).sum((0, 1))

    return Recipe([bf16(b, t, d), bf16(b, t, d), bf16(b, t, d), bf16(b, t, d), f32(d)], define, eager)


@everyday(b=(8, 2), t=(1023, 5), d=(2560, 6))
def token_shift_mix_rwkv(b, t, d):
    def define(x, key, value, receive):
        h = x.float()
        change = ops.pad(h, [0, 0, 1, -1]) - h
        return [(h + change * mix.float()).bfloat16() for mix in (key, value, receive)]

    def eager(torch, x, key, value, receive):
        change = torch.nn.functional.pad(x, (0, 0, 1, -1)).float() - x.float()
        return tuple((x + change * mix).to(x.dtype) for mix in (key, value, receive))

    return Recipe([bf16(b, t, d), bf16(d), bf16(d), bf16(d)], define, eager)


@everyday(b=(8, 2), t=(1023, 5), d=(2560, 6))
def rg_lru_gates_griffin(b, t, d):
    def define(x, r, i, a):
        log_a = r.float().sigmoid() * softplus(a.float()) * -8.0
        scale = (1.0 - (log_a * 2.0).exp()).maximum(1e-6).sqrt()
        return log_a.exp(), x.float() * i.float().sigmoid() * scale

    def eager(torch, x, r, i, a):
        log_a = -8.0 * torch.sigmoid(r.float()) * torch.nn.functional.softplus(a.float())
        scale = (1 - torch.exp(2 * log_a)).clamp(min=1e-6).sqrt()
        return torch.exp(log_a), x.float() * torch.sigmoid(i.float()) * scale

    return Recipe([bf16(b, t, d), bf16(b, t, d), bf16(b, t, d), bf16(d, fill=POSITIVE)], define, eager)


@everyday(b=(4, 2), h=(16, 2), t=(1001, 5))
def retention_decay_normalized(b, h, t):
    def define(scores, decay):
        behind = ops.iota(t)[:, None] - ops.iota(t)
        weight = (behind.float() * (decay * -0.01)[:, None, None]).exp()
        x = scores.float() * ops.where(behind >= 0, weight, 0.0)
        return (x / x.abs().sum(-1, keepdim=True).maximum(1.0)).bfloat16()

    def eager(torch, scores, decay):
        at = torch.arange(t, device=scores.device)
        behind = at[:, None] - at
        weight = torch.exp(behind * (decay * -0.01)[:, None, None])
        x = scores.float() * torch.where(behind >= 0, weight, 0)
        return (x / x.abs().sum(-1, keepdim=True).clamp(min=1)).to(scores.dtype)

    return Recipe([bf16(b, h, t, t), f32(h, fill=POSITIVE)], define, eager)


@everyday(m=(65521, 9), d=(128, 8))
def delta_rule_inputs(m, d):
    def define(q, k, beta):
        def unit(x):
            return x * ((x * x).sum(-1, keepdim=True) + 1e-6).rsqrt()

        x = unit(k.float())
        return (unit(q.float()) * d**-0.5).bfloat16(), x.bfloat16(), (x * beta.float().sigmoid()).bfloat16()

    def eager(torch, q, k, beta):
        def unit(x):
            return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)

        x = unit(k.float())
        return (unit(q.float()) * d**-0.5).bfloat16(), x.bfloat16(), (x * torch.sigmoid(beta.float())).bfloat16()

    return Recipe([bf16(m, d), bf16(m, d), bf16(m, 1)], define, eager)


@everyday(b=(8, 2), t=(1999, 9), d=(1024, 5))
def linear_recurrence_by_sums(b, t, d):
    """h[t] = a h[t-1] + x[t] with one a per channel, as a running sum of x[t] / a**t."""

    def define(x, log_a):
        growth = ((ops.iota(t).float() - t / 2)[:, None] * (log_a.sigmoid() * -0.02)).exp()
        return (growth * (x.float() / growth).cumsum(1)).half()

    def eager(torch, x, log_a):
        at = torch.arange(t, device=x.device).float() - t / 2
        growth = torch.exp(at[:, None] * (torch.sigmoid(log_a) * -0.02))
        return (growth * torch.cumsum(x.float() / growth, 1)).half()

    return Recipe([f16(b, t, d), f32(d)], define, eager)


@everyday(b=(16, 2), t=(1025, 7), h=(8, 2), d=(64, 4))
def stabilized_gates_xlstm(b, t, h, d):
    def define(i, f):
        log_f = -softplus(-f.float())
        total = log_f.cumsum(1)
        level = i.float() - total
        m = level.cummax(1)
        return total, (level - m).exp(), m + total

    def eager(torch, i, f):
        total = torch.cumsum(torch.nn.functional.logsigmoid(f.float()), 1)
        level = i.float() - total
        m = torch.cummax(level, 1).values
        return total, torch.exp(level - m), m + total

    return Recipe([bf16(b, t, h * d), bf16(b, t, h * d, fill=SHIFTED)], define, eager)
