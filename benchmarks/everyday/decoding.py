"""Decoding and its models: samplers, drafts, positions of several kinds, and what newer layers and losses are made of."""

import math

from benchmarks.everyday.recipe import (
    ANGLE,
    POSITIVE,
    PROBABILITY,
    SHIFTED,
    Recipe,
    bf16,
    everyday,
    f16,
    f32,
    ids,
)
from fuser import DataType, ops


@everyday(m=(257, 3), v=(128_256, 37))
def sampler_penalties_min_p(m, v):
    """Tokens that were there cost; of the rest only such as have a twentieth of the best."""

    def define(logits, seen, temperature):
        x = logits.float()
        x = ops.where(seen > 0, ops.where(x > 0, x * (1 / 1.1), x * 1.1), x) - seen.float() * 0.2
        x = x / temperature[:, None]
        weight = (x - x.max(-1, keepdim=True)).exp()
        p = weight / weight.sum(-1, keepdim=True)
        kept = ops.where(p >= p.max(-1, keepdim=True) * 0.05, p, 0.0)
        return kept / kept.sum(-1, keepdim=True)

    def eager(torch, logits, seen, temperature):
        x = logits.float()
        x = torch.where(seen > 0, torch.where(x > 0, x * (1 / 1.1), x * 1.1), x) - seen.float() * 0.2
        p = torch.softmax(x / temperature[:, None], -1)
        kept = torch.where(p >= p.amax(-1, keepdim=True) * 0.05, p, 0)
        return kept / kept.sum(-1, keepdim=True)

    return Recipe([bf16(m, v), ids(3, m, v), f32(m, fill=POSITIVE)], define, eager)


@everyday(m=(64, 2), k=(5, 3), v=(32_000, 33))
def speculative_residuals(m, k, v):
    """How likely drafted tokens are to be taken, and what to draw from where one is not."""

    def define(p, q, token):
        at = token.unsqueeze(-1)
        ratio = (p.take_along_axis(at, 2) / q.take_along_axis(at, 2)).minimum(1.0)
        rest = (p - q).relu()
        return ratio.squeeze(2), rest / (rest.sum(-1, keepdim=True) + 1e-10)

    def eager(torch, p, q, token):
        at = token[..., None]
        ratio = (p.gather(2, at) / q.gather(2, at)).clamp(max=1)
        rest = torch.relu(p - q)
        return ratio.squeeze(2), rest / (rest.sum(-1, keepdim=True) + 1e-10)

    share = f32(m, k, v, fill=PROBABILITY)
    return Recipe([share, share, ids(v, m, k)], define, eager)


@everyday(n=(4, 2), h=(12, 2), s=(511, 7), k=(256, 4))
def disentangled_softmax_deberta(n, h, s, k):
    """Scores of contents, and of contents and distances both ways, looked up by distance."""

    def define(scores, to_position, to_content):
        at = ops.iota(s)
        apart = at[:, None] - at
        ahead, behind = (apart + k).clamp(0, 2 * k - 1), (k - apart).clamp(0, 2 * k - 1)
        first = to_position.float().take_along_axis(ahead[None, None], 3)
        second = to_content.float().take_along_axis(behind[None, None], 3).transpose(2, 3)
        x = (scores.float() + first + second) * (1 / math.sqrt(192))
        weight = (x - x.max(-1, keepdim=True)).exp()
        return (weight / weight.sum(-1, keepdim=True)).half()

    def eager(torch, scores, to_position, to_content):
        at = torch.arange(s, device=scores.device)
        apart = at[:, None] - at
        ahead, behind = (x.clamp(0, 2 * k - 1).expand(n, h, s, s) for x in (apart + k, k - apart))
        first, second = to_position.float().gather(3, ahead), to_content.float().gather(3, behind).mT
        return torch.softmax((scores.float() + first + second) * (1 / math.sqrt(192)), -1).half()

    table = f16(n, h, s, 2 * k)
    return Recipe([f16(n, h, s, s), table, table], define, eager)


@everyday(n=(3, 2), h=(28, 2), s=(1777, 5), d=(128, 12))
def multimodal_rotary_qwen2_vl(n, h, s, d):
    """Frequencies of a head turn by time, by row, and by column."""
    time = d // 8
    row = (d // 2 - time) // 2
    places = (slice(0, time), slice(time, time + row), slice(time + row, d // 2))

    def define(x, position, frequency):
        turns = [position[k].float().unsqueeze(-1) * frequency[at] for k, at in enumerate(places)]
        angle = ops.cat(turns, -1).unsqueeze(1)
        c, z = angle.cos(), angle.sin()
        a, b = x[..., : d // 2].float(), x[..., d // 2 :].float()
        return ops.cat([a * c - b * z, b * c + a * z], -1).bfloat16()

    def eager(torch, x, position, frequency):
        turns = [position[k].float()[..., None] * frequency[at] for k, at in enumerate(places)]
        angle = torch.cat(turns, -1)[:, None]
        c, z = angle.cos(), angle.sin()
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * c - b * z, b * c + a * z), -1).bfloat16()

    return Recipe([bf16(n, h, s, d), ids(50, 3, n, s), f32(d // 2, fill=ANGLE)], define, eager)


@everyday(n=(8, 2), h=(12, 3), s=(577, 7))
def attention_rollout_step(n, h, s):
    """Mean attention of heads and what a token keeps of itself, rows normalised."""

    def define(p):
        at = ops.iota(s)
        mixed = p.float().mean(1) * 0.5 + ops.where(at[:, None] == at, 0.5, 0.0).float()
        return mixed / mixed.sum(-1, keepdim=True)

    def eager(torch, p):
        mixed = p.float().mean(1) * 0.5 + 0.5 * torch.eye(s, device=p.device, dtype=torch.float32)
        return mixed / mixed.sum(-1, keepdim=True)

    return Recipe([f16(n, h, s, s, fill=PROBABILITY)], define, eager)


@everyday(m=(8191, 7), d=(3072, 9))
def dynamic_tanh_backward(m, d):
    def define(dy, x, alpha, w):
        h, g = x.float(), dy.float()
        t = (h * alpha).tanh()
        inner = g * w * (1.0 - t * t)
        return (inner * alpha).bfloat16(), (inner * h).sum(), (g * t).sum(0), g.sum(0)

    def eager(torch, dy, x, alpha, w):
        h, g = x.float(), dy.float()
        t = torch.tanh(h * alpha)
        inner = g * w * (1 - t * t)
        return (inner * alpha).bfloat16(), (inner * h).sum(), (g * t).sum(0), g.sum(0)

    return Recipe([bf16(m, d), bf16(m, d), f32(1, fill=POSITIVE), f32(d, fill=SHIFTED)], define, eager)


@everyday(n=(4, 2), h=(12, 2), s=(513, 7))
def softmax_and_temperature_backward(n, h, s):
    def define(dy, p, x, scale):
        g, share = dy.float(), p.float()
        d = (g - (g * share).sum(-1, keepdim=True)) * share
        return (d * scale[:, None, None]).half(), (d * x.float()).sum([0, 2, 3])

    def eager(torch, dy, p, x, scale):
        g, share = dy.float(), p.float()
        d = (g - (g * share).sum(-1, keepdim=True)) * share
        return (d * scale[:, None, None]).half(), (d * x.float()).sum((0, 2, 3))

    scores = f16(n, h, s, s)
    return Recipe([scores, f16(n, h, s, s, fill=PROBABILITY), scores, f32(h, fill=POSITIVE)], define, eager)


@everyday(h=(512, 3), n=(32, 4), length=(4096, 9))
def kernel_of_s4d(h, n, length):
    """A long filter: the real part of a sum of decaying waves."""

    def define(decay, frequency, re, im, step):
        dt = step.exp()[:, None]
        at = ops.iota(length).float()
        fade = ((-decay.exp() * dt).unsqueeze(-1) * at).exp()
        angle = (frequency * dt).unsqueeze(-1) * at
        return ((re.unsqueeze(-1) * angle.cos() - im.unsqueeze(-1) * angle.sin()) * fade).sum(1) * 2.0

    def eager(torch, decay, frequency, re, im, step):
        dt = step.exp()[:, None]
        at = torch.arange(length, device=re.device).float()
        fade = torch.exp((-decay.exp() * dt)[..., None] * at)
        angle = (frequency * dt)[..., None] * at
        return 2 * ((re[..., None] * angle.cos() - im[..., None] * angle.sin()) * fade).sum(1)

    rate = f32(h, n, fill=ANGLE)
    return Recipe([rate, rate, f32(h, n), f32(h, n), f32(h, fill=ANGLE)], define, eager)


@everyday(m=(65_537, 5), f=(27, 4), d=(128, 6))
def dot_interactions_dlrm(m, f, d):
    """Products of pairs of features, each pair once, behind the dense features."""
    pairs = f * (f - 1) // 2

    def define(z, dense, at):
        return ops.cat([dense, z.reshape(m, f * f).index_select(at, 1)], 1)

    def eager(torch, z, dense, at):
        return torch.cat((dense, z.view(m, f * f)[:, at]), 1)

    read = m * (pairs + d) * 2 + pairs * 8
    return Recipe([bf16(m, f, f), bf16(m, d), ids(f * f, pairs)], define, eager, read_bytes=read)


@everyday(n=(4099, 7), m=(60, 5))
def pairwise_ranking_and_gradient(n, m):
    """Of lists of scores and grades: the loss of all pairs, and what each score contributes."""

    def define(score, grade):
        apart = score.unsqueeze(-1) - score.unsqueeze(1)
        better = grade.unsqueeze(-1) > grade.unsqueeze(1)
        loss = (-apart.abs()).exp().log1p() + (-apart).relu()
        gradient = ops.where(better, -(-apart).sigmoid(), 0.0).sum(2)
        return ops.where(better, loss, 0.0).sum([1, 2]), gradient

    def eager(torch, score, grade):
        apart, better = score[..., None] - score[:, None], grade[..., None] > grade[:, None]
        loss = torch.where(better, torch.nn.functional.softplus(-apart), 0).sum((1, 2))
        return loss, torch.where(better, -torch.sigmoid(-apart), 0).sum(2)

    return Recipe([f32(n, m), ids(5, n, m)], define, eager)


@everyday(n=(4, 2), h=(8, 2), s=(4096, 8), g=(32, 4), d=(128, 6))
def keys_to_two_bits_kivi(n, h, s, g, d):
    """Groups of tokens per channel: the least, the step, and as many codes as a word has."""
    codes = min(16, g)

    def define(k):
        x = k.float().reshape(n, h, s // g, g, d)
        low = x.min(3, keepdim=True)
        step = ((x.max(3, keepdim=True) - low) * (1 / 3)).maximum(1e-6)
        q = ((x - low) / step).round().clamp(0.0, 3.0).int().reshape(n, h, s // codes, codes, d)
        words = (q << ops.iota(codes, 0, 2, DataType.Int32)[:, None]).sum(3, dtype=DataType.Int32)
        return words, low.squeeze(3).half(), step.squeeze(3).half()

    def eager(torch, k):
        x = k.float().view(n, h, s // g, g, d)
        low = x.amin(3, keepdim=True)
        step = ((x.amax(3, keepdim=True) - low) * (1 / 3)).clamp(min=1e-6)
        q = ((x - low) / step).round().clamp(0, 3).int().view(n, h, s // codes, codes, d)
        shift = torch.arange(0, 2 * codes, 2, device=k.device, dtype=torch.int32)[:, None]
        return (q << shift).sum(3, dtype=torch.int32), low.squeeze(3).half(), step.squeeze(3).half()

    return Recipe([f16(n, h, s, d)], define, eager)


@everyday(t=(129, 4), b=(1025, 3), a=(18, 4))
def policy_gradient_impala(t, b, a):
    """With the error of values, and a reward for entropy."""

    def define(logits, action, advantage, value, target):
        top = logits.max(-1, keepdim=True)
        y = logits - ((logits - top).exp().sum(-1, keepdim=True).log() + top)
        chosen = y.take_along_axis(action.unsqueeze(-1), 2).squeeze(2)
        off = target - value
        return (y.exp() * y).sum() * 0.01 - (chosen * advantage).sum() + (off * off).sum() * 0.25

    def eager(torch, logits, action, advantage, value, target):
        y = torch.log_softmax(logits, -1)
        chosen = y.gather(2, action[..., None]).squeeze(2)
        return (y.exp() * y).sum() * 0.01 - (chosen * advantage).sum() + (target - value).square().sum() * 0.25

    return Recipe([f32(t, b, a), ids(a, t, b), f32(t, b), f32(t, b), f32(t, b)], define, eager)
