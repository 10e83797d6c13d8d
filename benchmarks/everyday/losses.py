"""Losses, what they are made of, and their gradients."""

from benchmarks.everyday.recipe import ANGLE, POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask
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


@everyday(m=(4093, 5), v=(32003, 53))
def cross_entropy_smoothed(m, v):
    def define(logits, target):
        x = logits.float()
        top = x.max(-1, keepdim=True)
        lse = top + (x - top).exp().sum(-1, keepdim=True).log()
        nll = lse - x.take_along_axis(target[:, None], 1)
        smooth = lse - x.mean(-1, keepdim=True)
        return (nll * 0.9 + smooth * 0.1).mean()

    def eager(torch, logits, target):
        return torch.nn.functional.cross_entropy(logits.float(), target, label_smoothing=0.1)

    return Recipe([bf16(m, v), ids(v, m)], define, eager)


@everyday(m=(2049, 5), v=(128256, 53))
def cross_entropy_z_loss_llama3(m, v):
    def define(logits, target):
        x = logits.float()
        top = x.max(-1, keepdim=True)
        lse = top + (x - top).exp().sum(-1, keepdim=True).log()
        loss = lse - x.take_along_axis(target[:, None], 1) + lse * lse * 1e-4
        return loss.squeeze(-1), lse.squeeze(-1)

    def eager(torch, logits, target):
        lse = torch.logsumexp(logits.float(), -1)
        picked = logits.float().gather(1, target[:, None]).squeeze(1)
        return lse - picked + 1e-4 * lse.square(), lse

    return Recipe([bf16(m, v), ids(v, m)], define, eager)


@everyday(m=(8191, 7), v=(30522, 53))
def masked_lm_loss_bert(m, v):
    def define(logits, target):
        x = logits.float()
        top = x.max(-1)
        lse = top + (x - top[:, None]).exp().sum(-1).log()
        counted = target > v // 4
        nll = lse - x.take_along_axis(target[:, None], 1).squeeze(1)
        return ops.where(counted, nll, 0.0).sum() / counted.float().sum()

    def eager(torch, logits, target):
        ignored = torch.where(target > v // 4, target, -100)
        return torch.nn.functional.cross_entropy(logits.float(), ignored, ignore_index=-100)

    return Recipe([f16(m, v), ids(v, m)], define, eager)


@everyday(m=(4099, 5), v=(32000, 48))
def log_softmax_backward(m, v):
    def define(dy, y):
        g, p = dy.float(), y.float().exp()
        return (g - p * g.sum(-1, keepdim=True)).bfloat16()

    def eager(torch, dy, y):
        g = dy.float()
        return (g - torch.exp(y.float()) * g.sum(-1, keepdim=True)).to(dy.dtype)

    return Recipe([bf16(m, v), bf16(m, v)], define, eager)


@everyday(m=(1031, 5), v=(151936, 64))
def token_log_probs_rlhf(m, v):
    def define(logits, token):
        x = logits.float() * (1 / 0.7)
        top = x.max(-1, keepdim=True)
        e = (x - top).exp()
        total = e.sum(-1, keepdim=True)
        entropy = total.log() - (e * (x - top)).sum(-1, keepdim=True) / total
        picked = x.take_along_axis(token[:, None], 1) - top - total.log()
        return picked.squeeze(1), entropy.squeeze(1)

    def eager(torch, logits, token):
        logp = torch.log_softmax(logits.float() / 0.7, -1)
        return logp.gather(1, token[:, None]).squeeze(1), -(logp.exp() * logp).sum(-1)

    return Recipe([bf16(m, v), ids(v, m)], define, eager)


@everyday(n=(8, 2), c=(19, 5), s=(513, 9))
def cross_entropy_segmentation(n, c, s):
    def define(logits, target):
        x = logits.float()
        top = x.max(1, keepdim=True)
        lse = (x - top).exp().sum(1).log() + top.squeeze(1)
        return (lse - x.take_along_axis(target.unsqueeze(1), 1).squeeze(1)).mean()

    def eager(torch, logits, target):
        return torch.nn.functional.cross_entropy(logits.float(), target)

    return Recipe([f16(n, c, s, s), ids(c, n, s, s)], define, eager)


@everyday(m=(2051, 5), v=(32000, 48))
def distillation_kl(m, v):
    def log_softmax(x):
        shifted = x - x.max(-1, keepdim=True)
        return shifted - shifted.exp().sum(-1, keepdim=True).log()

    def define(student, teacher):
        s, t = log_softmax(student.float() * 0.5), log_softmax(teacher.float() * 0.5)
        return (t.exp() * (t - s)).sum() * (4 / m)

    def eager(torch, student, teacher):
        s, t = (torch.log_softmax(x.float() / 2, -1) for x in (student, teacher))
        return torch.nn.functional.kl_div(s, t, reduction="batchmean", log_target=True) * 4

    return Recipe([bf16(m, v), bf16(m, v)], define, eager)


@everyday(m=(4097, 9))
def contrastive_clip(m):
    def define(logits, scale):
        x = logits.float() * scale.exp()
        columns, rows = x.max(0, keepdim=True), x.max(1, keepdim=True)
        own = ops.where(ops.iota(m)[:, None] == ops.iota(m), x, 0.0).sum(1)
        by_row = rows.squeeze(1) + (x - rows).exp().sum(1).log()
        by_column = columns.squeeze(0) + (x - columns).exp().sum(0).log()
        return (by_row - own).mean() * 0.5 + (by_column - own).mean() * 0.5

    def eager(torch, logits, scale):
        x = logits.float() * scale.exp()
        target = torch.arange(m, device=x.device)
        cross_entropy = torch.nn.functional.cross_entropy
        return (cross_entropy(x, target) + cross_entropy(x.T, target)) / 2

    return Recipe([bf16(m, m), f32(1, fill=POSITIVE)], define, eager)


@everyday(n=(37, 2), c=(4, 3), s=(511, 9))
def mse_noise_prediction(n, c, s):
    def define(predicted, noise, weight):
        error = predicted.float() - noise
        return ((error * error).mean([1, 2, 3]) * weight).mean()

    def eager(torch, predicted, noise, weight):
        return ((predicted.float() - noise).square().mean((1, 2, 3)) * weight).mean()

    return Recipe([bf16(n, c, s, s), f32(n, c, s, s), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(30_000_001, 1003))
def mse_backward(n):
    def define(x, y):
        return ((x.float() - y.float()) * (2 / n)).bfloat16()

    def eager(torch, x, y):
        return ((x.float() - y.float()) * (2 / n)).to(x.dtype)

    return Recipe([bf16(n), bf16(n)], define, eager)


@everyday(m=(300001, 11), n=(80, 5))
def focal_loss_retinanet(m, n):
    def define(logits, target):
        x = logits.float()
        y = (ops.iota(n) == target[:, None]).float()
        p = x.sigmoid()
        bce = x.maximum(0.0) - x * y + (-x.abs()).exp().log1p()
        miss = 1.0 - (p * y + (1.0 - p) * (1.0 - y))
        return (bce * miss * miss * (0.25 * y + 0.75 * (1.0 - y))).sum()

    def eager(torch, logits, target):
        x = logits.float()
        y = (torch.arange(n, device=x.device) == target[:, None]).to(x.dtype)
        p = torch.sigmoid(x)
        bce = torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none")
        p_t = p * y + (1 - p) * (1 - y)
        return (bce * (1 - p_t) ** 2 * (0.25 * y + 0.75 * (1 - y))).sum()

    return Recipe([f16(m, n), ids(n + 5, m)], define, eager)


@everyday(m=(8193, 7), n=(1203, 9))
def bce_with_logits_weighted(m, n):
    def define(logits, target, weight):
        x, y = logits.float(), target.float()
        log_weight = 1.0 + (weight - 1.0) * y
        softplus = (-x.abs()).exp().log1p() + (-x).maximum(0.0)
        return ((1.0 - y) * x + log_weight * softplus).mean()

    def eager(torch, logits, target, weight):
        bce = torch.nn.functional.binary_cross_entropy_with_logits
        return bce(logits.float(), target.float(), pos_weight=weight)

    return Recipe([bf16(m, n), mask(m, n), f32(n, fill=POSITIVE)], define, eager)


@everyday(m=(500009, 11))
def huber_boxes(m):
    def define(predicted, target, counted):
        error = (predicted - target).abs()
        loss = ops.where(error < 0.11, error * error * (0.5 / 0.11), error - 0.055)
        return ops.where(counted[:, None], loss, 0.0).sum() / counted.float().sum()

    def eager(torch, predicted, target, counted):
        loss = torch.nn.functional.smooth_l1_loss(predicted, target, beta=0.11, reduction="none")
        return torch.where(counted[:, None], loss, 0).sum() / counted.sum()

    return Recipe([f32(m, 4), f32(m, 4), mask(m)], define, eager)


@everyday(m=(1_000_003, 11))
def giou_boxes(m):
    def define(a, b):
        ax0, ay0, ax1, ay1 = (a[:, k] for k in range(4))
        bx0, by0, bx1, by1 = (b[:, k] for k in range(4))
        ax1, ay1, bx1, by1 = ax0 + ax1.abs(), ay0 + ay1.abs(), bx0 + bx1.abs(), by0 + by1.abs()
        width = (ax1.minimum(bx1) - ax0.maximum(bx0)).maximum(0.0)
        height = (ay1.minimum(by1) - ay0.maximum(by0)).maximum(0.0)
        shared = width * height
        union = (ax1 - ax0) * (ay1 - ay0) + (bx1 - bx0) * (by1 - by0) - shared
        hull = (ax1.maximum(bx1) - ax0.minimum(bx0)) * (ay1.maximum(by1) - ay0.minimum(by0))
        return 1.0 - shared / (union + 1e-7) + (hull - union) / (hull + 1e-7)

    def eager(torch, a, b):
        a0, a1 = a[:, :2], a[:, :2] + a[:, 2:].abs()
        b0, b1 = b[:, :2], b[:, :2] + b[:, 2:].abs()
        shared = (torch.minimum(a1, b1) - torch.maximum(a0, b0)).clamp(min=0).prod(-1)
        union = (a1 - a0).prod(-1) + (b1 - b0).prod(-1) - shared
        hull = (torch.maximum(a1, b1) - torch.minimum(a0, b0)).prod(-1)
        return 1 - shared / (union + 1e-7) + (hull - union) / (hull + 1e-7)

    return Recipe([f32(m, 4), f32(m, 4)], define, eager)


@everyday(n=(16, 2), c=(3, 2), s=(769, 11))
def dice_and_bce_unet(n, c, s):
    def define(logits, target):
        x, y = logits.float(), target.float()
        p = x.sigmoid()
        shared, total = (p * y).sum([2, 3]), (p + y).sum([2, 3])
        dice = 1.0 - (2.0 * shared + 1.0) / (total + 1.0)
        bce = (x.maximum(0.0) - x * y + (-x.abs()).exp().log1p()).mean([2, 3])
        return (dice + bce).mean()

    def eager(torch, logits, target):
        x, y = logits.float(), target.float()
        p = torch.sigmoid(x)
        dice = 1 - (2 * (p * y).sum((2, 3)) + 1) / ((p + y).sum((2, 3)) + 1)
        return dice.mean() + torch.nn.functional.binary_cross_entropy_with_logits(x, y)

    return Recipe([bf16(n, c, s, s), mask(n, c, s, s)], define, eager)


@everyday(m=(50021, 9), n=(768, 20))
def cosine_embedding_margin(m, n):
    def define(a, b, same):
        x, y = a.float(), b.float()
        lengths = ((x * x).sum(-1) * (y * y).sum(-1)).sqrt()
        cosine = (x * y).sum(-1) / (lengths + 1e-8)
        return ops.where(same, 1.0 - cosine, (cosine - 0.2).maximum(0.0)).mean()

    def eager(torch, a, b, same):
        x, y = a.float(), b.float()
        cosine = (x * y).sum(-1) / ((x.square().sum(-1) * y.square().sum(-1)).sqrt() + 1e-8)
        return torch.where(same, 1 - cosine, (cosine - 0.2).clamp(min=0)).mean()

    return Recipe([bf16(m, n), bf16(m, n), mask(m)], define, eager)


@everyday(m=(30011, 9), n=(513, 20))
def triplet_margin(m, n):
    def define(anchor, near, far):
        def distance(x, y):
            d = x.float() - y.float() + 1e-6
            return (d * d).sum(-1).sqrt()

        return (distance(anchor, near) - distance(anchor, far) + 1.0).maximum(0.0).mean()

    def eager(torch, anchor, near, far):
        return torch.nn.functional.triplet_margin_loss(anchor.float(), near.float(), far.float())

    return Recipe([f16(m, n), f16(m, n), f16(m, n)], define, eager)


@everyday(b=(129, 5), t=(2047, 13))
def ppo_clipped_objective(b, t):
    def define(logp, old, advantage, counted):
        ratio = (logp - old).exp()
        gain = (ratio * advantage).minimum(ratio.clamp(0.8, 1.2) * advantage)
        return -ops.where(counted, gain, 0.0).sum() / counted.float().sum(), ratio.mean(1)

    def eager(torch, logp, old, advantage, counted):
        ratio = torch.exp(logp - old)
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
        return -torch.where(counted, gain, 0).sum() / counted.sum(), ratio.mean(1)

    return Recipe([f32(b, t), f32(b, t), f32(b, t), mask(b, t)], define, eager)


@everyday(b=(257, 5), t=(4001, 13))
def dpo_loss(b, t):
    def define(policy, reference, counted):
        ratio = ops.where(counted, policy.float() - reference.float(), 0.0).sum(-1)
        margin = (ratio[:, 0] - ratio[:, 1]) * 0.1
        return ((-margin.abs()).exp().log1p() + (-margin).maximum(0.0)).mean(), margin

    def eager(torch, policy, reference, counted):
        ratio = torch.where(counted, policy.float() - reference.float(), 0).sum(-1)
        margin = (ratio[:, 0] - ratio[:, 1]) * 0.1
        return -torch.nn.functional.logsigmoid(margin).mean(), margin

    return Recipe([bf16(b, 2, t), bf16(b, 2, t), mask(b, 2, t)], define, eager)


@everyday(n=(8, 2), c=(3, 2), s=(1021, 11))
def total_variation(n, c, s):
    def define(x):
        h = x.float()
        down, right = h[:, :, 1:] - h[:, :, :-1], h[..., 1:] - h[..., :-1]
        return down.abs().mean() + right.abs().mean()

    def eager(torch, x):
        h = x.float()
        return (h[:, :, 1:] - h[:, :, :-1]).abs().mean() + (h[..., 1:] - h[..., :-1]).abs().mean()

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(m=(2053, 3), n=(200, 7))
def quantile_huber_qr_dqn(m, n):
    """Of all pairs of quantiles and targets, a loss for each state."""

    def define(quantiles, targets):
        apart = targets[:, None] - quantiles[:, :, None]
        size = apart.abs()
        huber = ops.where(size <= 1.0, apart * apart * 0.5, size - 0.5)
        level = (ops.iota(n).float() + 0.5) * (1 / n)
        return ((level[:, None] - (apart < 0.0).float()).abs() * huber).mean(2).sum(1)

    def eager(torch, quantiles, targets):
        apart = targets[:, None] - quantiles[:, :, None]
        huber = torch.where(apart.abs() <= 1, apart.square() * 0.5, apart.abs() - 0.5)
        level = (torch.arange(n, device=apart.device, dtype=torch.float32) + 0.5) * (1 / n)
        return ((level[:, None] - (apart < 0).float()).abs() * huber).mean(2).sum(1)

    return Recipe([f32(m, n), f32(m, n)], define, eager)


@everyday(m=(2048, 5), v=(10_007, 13))
def angular_margin_arcface(m, v):
    """Cross entropy of cosines, of which that of the label is that of a larger angle."""

    def define(cosine, label):
        c = cosine.float()
        hit = ops.iota(v) == label[:, None]
        turned = c * 0.87758256 - (1.0 - c * c).maximum(0.0).sqrt() * 0.47942554
        logits = ops.where(hit, turned, c) * 64.0
        top = logits.max(1, True)
        lse = (logits - top).exp().sum(1).log() + top.squeeze(1)
        return (lse - ops.where(hit, logits, 0.0).sum(1)).mean()

    def eager(torch, cosine, label):
        c = cosine.float()
        hit = torch.arange(v, device=c.device) == label[:, None]
        turned = c * 0.87758256 - torch.sqrt((1 - c * c).clamp(min=0)) * 0.47942554
        return torch.nn.functional.cross_entropy(torch.where(hit, turned, c) * 64, label)

    return Recipe([f16(m, v, fill=ANGLE), ids(v, m)], define, eager)


@everyday(n=(4099, 9))
def redundancy_of_features_barlow(n):
    """How far a cross-correlation is from the identity."""

    def define(c):
        x = c.float()
        at = ops.iota(n)
        own = at[:, None] == at
        return ops.where(own, (x - 1.0) * (x - 1.0), 0.0).sum() + ops.where(own, 0.0, x * x).sum() * 0.005

    def eager(torch, c):
        x = c.float()
        own = torch.eye(n, dtype=torch.bool, device=x.device)
        return torch.where(own, (x - 1).square(), 0).sum() + torch.where(own, 0, x.square()).sum() * 0.005

    return Recipe([bf16(n, n)], define, eager)


@everyday(m=(4099, 9), n=(4096, 11))
def residual_of_outer_product(m, n):
    """Mean square of what is left of a matrix behind its approximation of rank one."""

    def define(a, rows, columns):
        left = a - rows[:, None] * columns
        return (left * left).mean()

    def eager(torch, a, rows, columns):
        return (a - rows[:, None] * columns).square().mean()

    return Recipe([f32(m, n), f32(m), f32(n)], define, eager)
