"""Mixtures of experts: gates, balance, dispatch, combination. The choice itself is `topk`, which a library computes."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f32, ids, mask
from fuser import ops


@everyday(m=(16381, 7), e=(64, 5))
def gate_softmax_and_z_loss(m, e):
    def define(logits):
        x = logits.float()
        top = x.max(-1, keepdim=True)
        weight = (x - top).exp()
        total = weight.sum(-1, keepdim=True)
        z = total.log() + top
        return weight / total, (z * z).mean()

    def eager(torch, logits):
        x = logits.float()
        return torch.softmax(x, -1), torch.logsumexp(x, -1).square().mean()

    return Recipe([bf16(m, e)], define, eager)


@everyday(m=(16381, 7), e=(60, 5), k=(4, 2))
def load_balance_loss(m, e, k):
    def define(gates, chosen):
        hot = chosen.unsqueeze(-1) == ops.iota(e)
        load = hot.float().sum(1).mean(0)
        return (load * gates.mean(0)).sum() * (e / k)

    def eager(torch, gates, chosen):
        hot = torch.nn.functional.one_hot(chosen, e)
        return (hot.float().sum(1).mean(0) * gates.mean(0)).sum() * (e / k)

    return Recipe([f32(m, e, fill=POSITIVE), ids(e, m, k)], define, eager)


@everyday(m=(8191, 7), e=(256, 12), groups=(8, 3))
def group_scores_deepseek(m, e, groups):
    def define(logits, bias):
        score = logits.float().sigmoid()
        biased = (score + bias).reshape(m, groups, e // groups)
        return score, biased.max(-1)

    def eager(torch, logits, bias):
        score = torch.sigmoid(logits.float())
        return score, (score + bias).view(m, groups, -1).amax(-1)

    return Recipe([bf16(m, e), f32(e)], define, eager)


@everyday(m=(8191, 7), e=(256, 12), k=(8, 3))
def chosen_weights_normalized(m, e, k):
    def define(score, chosen):
        picked = score.take_along_axis(chosen, 1)
        return (picked / (picked.sum(-1, keepdim=True) + 1e-20) * 2.5).bfloat16()

    def eager(torch, score, chosen):
        picked = score.gather(1, chosen)
        return (picked / (picked.sum(-1, keepdim=True) + 1e-20) * 2.5).bfloat16()

    return Recipe([f32(m, e, fill=POSITIVE), ids(e, m, k)], define, eager, read_bytes=m * k * (4 + 8))


@everyday(m=(4099, 7), k=(8, 3), d=(2048, 12))
def combine_experts_residual(m, k, d):
    def define(out, weight, residual):
        mixed = (out.float() * weight.float().unsqueeze(-1)).sum(1)
        return (mixed + residual.float()).bfloat16()

    def eager(torch, out, weight, residual):
        return ((out * weight[..., None]).sum(1) + residual).to(out.dtype)

    return Recipe([bf16(m, k, d), f32(m, k, fill=POSITIVE), bf16(m, d)], define, eager)


@everyday(m=(4099, 7), k=(8, 3), d=(2048, 12))
def combine_experts_backward(m, k, d):
    def define(dy, out, weight):
        g = dy.float().unsqueeze(1)
        return (g * weight.unsqueeze(-1)).bfloat16(), (g * out.float()).sum(-1)

    def eager(torch, dy, out, weight):
        g = dy.float()[:, None]
        return (g * weight[..., None]).to(out.dtype), (g * out.float()).sum(-1)

    return Recipe([bf16(m, d), bf16(m, k, d), f32(m, k, fill=POSITIVE)], define, eager)


@everyday(m=(16381, 9), e=(64, 5))
def positions_in_experts(m, e):
    def define(chosen):
        hot = (ops.iota(e) == chosen[:, None]).int()
        place = hot.cumsum(0) * hot
        return place.sum(1) - 1, hot.sum(0)

    def eager(torch, chosen):
        hot = torch.nn.functional.one_hot(chosen, e).int()
        place = torch.cumsum(hot, 0) * hot
        return place.sum(1) - 1, hot.sum(0)

    return Recipe([ids(e, m)], define, eager)


@everyday(m=(32749, 9), n=(8191, 7), d=(2880, 12))
def dispatch_tokens_scaled(m, n, d):
    def define(token, x, weight):
        return (x.index_select(token, 0).float() * weight[:, None]).bfloat16()

    def eager(torch, token, x, weight):
        return (x[token] * weight[:, None]).to(x.dtype)

    return Recipe([ids(n, m), bf16(n, d), f32(m, fill=POSITIVE)], define, eager)


@everyday(m=(16381, 9), e=(64, 5))
def noisy_gate_logits(m, e):
    def define(clean, raw, noise):
        x = raw.float()
        deviation = x.maximum(0.0) + (-x.abs()).exp().log1p() + 0.01
        return (clean.float() + noise * deviation).bfloat16(), deviation

    def eager(torch, clean, raw, noise):
        deviation = torch.nn.functional.softplus(raw.float()) + 0.01
        return (clean.float() + noise * deviation).to(clean.dtype), deviation

    return Recipe([bf16(m, e), bf16(m, e), f32(m, e)], define, eager)


@everyday(m=(32749, 9), e=(128, 5), d=(1536, 12))
def expert_bias_swiglu(m, e, d):
    def define(x, expert, bias):
        h = x.float() + bias.index_select(expert, 0).float()
        a, b = h[:, :d], h[:, d:]
        return (a * a.sigmoid() * b).bfloat16()

    def eager(torch, x, expert, bias):
        a, b = (x + bias[expert]).chunk(2, -1)
        return torch.nn.functional.silu(a) * b

    return Recipe([bf16(m, 2 * d), ids(e, m), bf16(e, 2 * d)], define, eager)


@everyday(m=(16381, 9), e=(64, 5))
def gate_backward_softmax(m, e):
    def define(g, p, kept):
        d = ops.where(kept, g, 0.0)
        return ((d - (d * p).sum(-1, keepdim=True)) * p).bfloat16()

    def eager(torch, g, p, kept):
        d = torch.where(kept, g, 0)
        return torch.ops.aten._softmax_backward_data(d, p, -1, torch.float32).bfloat16()  # noqa: SLF001

    return Recipe([f32(m, e), f32(m, e, fill=POSITIVE), mask(m, e)], define, eager)


@everyday(m=(16411, 7), e=(64, 5))
def top_two_by_masking(m, e):
    def define(x):
        at = ops.iota(e)
        first = x.max(-1, keepdim=True)
        i = ops.where(x == first, at, e).min(-1, keepdim=True)
        rest = ops.where(at == i, float("-inf"), x)
        second = rest.max(-1, keepdim=True)
        j = ops.where(rest == second, at, e).min(-1, keepdim=True)
        weight = (first - second).sigmoid()
        return ops.cat([weight, 1.0 - weight], 1), ops.cat([i, j], 1)

    def eager(torch, x):
        top, places = x.topk(2)
        weight = torch.sigmoid(top[:, :1] - top[:, 1:])
        return torch.cat((weight, 1 - weight), 1), places

    return Recipe([f32(m, e)], define, eager)
