"""Losses of pairs, distributions and boxes, and their gradients."""

import math

from benchmarks.everyday.recipe import POSITIVE, PROBABILITY, SHIFTED, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


def log_softmax(x, dim=-1):
    shifted = x - x.max(dim, keepdim=True)
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@everyday(m=(1025, 5), v=(32001, 53))
def nll_of_log_softmax_ignoring(m, v):
    """Log-softmax is kept for the gradient; of targets below 100 nothing is counted."""

    def define(logits, target):
        y = log_softmax(logits.float())
        counted = target >= v // 9
        picked = y.take_along_axis(target[:, None], 1).squeeze(1)
        loss = -ops.where(counted, picked, 0.0).sum() / counted.float().sum()
        return y.bfloat16(), loss

    def eager(torch, logits, target):
        y = torch.log_softmax(logits.float(), -1)
        ignored = torch.where(target >= v // 9, target, -100)
        return y.bfloat16(), torch.nn.functional.nll_loss(y, ignored, ignore_index=-100)

    return Recipe([bf16(m, v), ids(v, m)], define, eager)


@everyday(m=(1023, 5), v=(50304, 48))
def cross_entropy_smoothed_backward(m, v):
    def define(logits, lse, target, upstream):
        p = (logits.float() - lse[:, None]).exp()
        hit = ops.iota(v) == target[:, None]
        wanted = ops.where(hit, 0.9 + 0.1 / v, 0.1 / v).float()
        scale = ops.where(target < v // 8, 0.0, upstream * (1 / m))
        return ((p - wanted) * scale[:, None]).bfloat16()

    def eager(torch, logits, lse, target, upstream):
        p = torch.exp(logits.float() - lse[:, None])
        hit = torch.arange(v, device=p.device) == target[:, None]
        scale = torch.where(target < v // 8, 0, upstream * (1 / m))
        return ((p - torch.where(hit, 0.9 + 0.1 / v, 0.1 / v)) * scale[:, None]).to(logits.dtype)

    return Recipe([bf16(m, v), f32(m, fill=POSITIVE), ids(v, m), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(4001, 5), v=(4096, 48))
def jensen_shannon_rows(m, v):
    def define(a, b):
        x, y = log_softmax(a.float()), log_softmax(b.float())
        p, q = x.exp(), y.exp()
        middle = ((p + q) * 0.5).log()
        return (p * (x - middle) + q * (y - middle)).sum(-1) * 0.5

    def eager(torch, a, b):
        x, y = torch.log_softmax(a.float(), -1), torch.log_softmax(b.float(), -1)
        p, q = x.exp(), y.exp()
        middle = torch.log((p + q) / 2)
        return (p * (x - middle) + q * (y - middle)).sum(-1) / 2

    return Recipe([f16(m, v), f16(m, v)], define, eager)


@everyday(m=(3001, 5), v=(8192, 48))
def distillation_kl_backward(m, v):
    def define(student, teacher, upstream):
        s, t = log_softmax(student.float() * 0.5), log_softmax(teacher.float() * 0.5)
        return ((s.exp() - t.exp()) * (upstream * (2 / m))).bfloat16()

    def eager(torch, student, teacher, upstream):
        s, t = torch.softmax(student.float() / 2, -1), torch.softmax(teacher.float() / 2, -1)
        return ((s - t) * (upstream * (2 / m))).to(student.dtype)

    return Recipe([bf16(m, v), bf16(m, v), f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(300_007, 9), n=(12, 3))
def hinge_multiclass(m, n):
    def define(score, target):
        right = score.take_along_axis(target[:, None], 1)
        margin = (score - right + 1.0).maximum(0.0)
        return (margin.sum(1) - 1.0).mean() * (1 / n)

    def eager(torch, score, target):
        return torch.nn.functional.multi_margin_loss(score, target)

    return Recipe([f32(m, n), ids(n, m)], define, eager)


@everyday(n=(16, 2), s=(513, 7))
def charbonnier_and_edges(n, s):
    def define(x, y):
        d = x.float() - y.float()
        down, right = d[:, :, 1:] - d[:, :, :-1], d[..., 1:] - d[..., :-1]
        return (d * d + 1e-6).sqrt().mean() + (down.abs().mean() + right.abs().mean()) * 0.05

    def eager(torch, x, y):
        d = x.float() - y.float()
        edges = (d[:, :, 1:] - d[:, :, :-1]).abs().mean() + (d[..., 1:] - d[..., :-1]).abs().mean()
        return torch.sqrt(d.square() + 1e-6).mean() + 0.05 * edges

    return Recipe([bf16(n, 3, s, s), bf16(n, 3, s, s)], define, eager)


@everyday(n=(24, 2), s=(512, 8), p=(8, 4))
def ssim_of_blocks(n, s, p):
    def define(a, b):
        def blocks(h):
            return h.reshape(n, 3, s // p, p, s // p, p)

        x, y = blocks(a), blocks(b)
        mx, my = x.mean([3, 5]), y.mean([3, 5])
        vx, vy = (x * x).mean([3, 5]) - mx * mx, (y * y).mean([3, 5]) - my * my
        both = (x * y).mean([3, 5]) - mx * my
        top = (mx * my * 2.0 + 1e-4) * (both * 2.0 + 9e-4)
        return 1.0 - (top / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))).mean([1, 2, 3])

    def eager(torch, a, b):
        def pooled(h):
            return torch.nn.functional.avg_pool2d(h, p)

        mx, my = pooled(a), pooled(b)
        vx, vy = pooled(a * a) - mx * mx, pooled(b * b) - my * my
        both = pooled(a * b) - mx * my
        top = (2 * mx * my + 1e-4) * (2 * both + 9e-4)
        return 1 - (top / ((mx * mx + my * my + 1e-4) * (vx + vy + 9e-4))).mean((1, 2, 3))

    return Recipe([f32(n, 3, s, s), f32(n, 3, s, s)], define, eager)


@everyday(m=(4095, 9))
def info_nce_backward(m):
    """Of the loss by rows and columns, and of the temperature."""

    def define(logits, rows, columns, scale):
        x = logits.float() * scale
        own = ops.iota(m)[:, None] == ops.iota(m)
        p = (x - rows[:, None]).exp() + (x - columns).exp()
        g = (p - own.float() * 2.0) * (0.5 / m)
        return (g * scale).bfloat16(), (g * logits.float()).sum()

    def eager(torch, logits, rows, columns, scale):
        x = logits.float() * scale
        p = torch.exp(x - rows[:, None]) + torch.exp(x - columns)
        g = (p - 2 * torch.eye(m, device=x.device, dtype=torch.float32)) * (0.5 / m)
        return (g * scale).to(logits.dtype), (g * logits.float()).sum()

    lse = f32(m, fill=POSITIVE)
    return Recipe([bf16(m, m), lse, lse, f32(1, fill=POSITIVE)], define, eager)


@everyday(m=(6001, 9))
def sigmoid_pairs_siglip(m):
    def define(logits, scale, bias):
        z = logits.float() * scale.exp() + bias
        sign = (ops.iota(m)[:, None] == ops.iota(m)).float() * 2.0 - 1.0
        h = z * sign
        return ((-h.abs()).exp().log1p() + (-h).maximum(0.0)).sum() * (1 / m)

    def eager(torch, logits, scale, bias):
        z = logits.float() * scale.exp() + bias
        sign = 2 * torch.eye(m, device=z.device, dtype=torch.float32) - 1
        return -torch.nn.functional.logsigmoid(z * sign).sum() / m

    return Recipe([bf16(m, m), f32(1, fill=POSITIVE), f32(1)], define, eager)


@everyday(n=(3001, 9), m=(5003, 7))
def cosine_matrix_epilogue(n, m):
    """Cosines of all pairs from their products, thresholded, and how many are near."""

    def define(products, a, b):
        cosine = products * (a.rsqrt()[:, None] * b.rsqrt())
        near = products > 1.0
        return ops.where(near, cosine, 0.0).half(), near.long().sum(1)

    def eager(torch, products, a, b):
        cosine = products * (torch.rsqrt(a)[:, None] * torch.rsqrt(b))
        near = products > 1.0
        return torch.where(near, cosine, 0).half(), near.sum(1)

    return Recipe([f32(n, m, fill=SHIFTED), f32(n, fill=POSITIVE), f32(m, fill=POSITIVE)], define, eager)


@everyday(n=(33, 2), k=(8732, 17))
def box_targets_encode_ssd(n, k):
    def define(box, prior):
        centre = (box[..., :2] + box[..., 2:]) * 0.5
        size = (box[..., 2:] - box[..., :2]).abs() + 1e-3
        offset = (centre - prior[:, :2]) / (prior[:, 2:] * 0.1)
        return ops.cat([offset, (size / prior[:, 2:]).log() * 5.0], -1)

    def eager(torch, box, prior):
        centre = (box[..., :2] + box[..., 2:]) * 0.5
        size = (box[..., 2:] - box[..., :2]).abs() + 1e-3
        return torch.cat(((centre - prior[:, :2]) / (prior[:, 2:] * 0.1), torch.log(size / prior[:, 2:]) * 5), -1)

    return Recipe([f32(n, k, 4), f32(k, 4, fill=POSITIVE)], define, eager)


@everyday(m=(16_001, 9), classes=(81, 5))
def roi_boxes_decode(m, classes):
    """Of every class a box, clipped to the picture."""

    def define(delta, box):
        d = delta.float().reshape(m, classes, 4)
        width, height = box[:, 2] - box[:, 0] + 1.0, box[:, 3] - box[:, 1] + 1.0
        x = box[:, :1] + (width * 0.5)[:, None] + d[..., 0] * 0.1 * width[:, None]
        y = box[:, 1:2] + (height * 0.5)[:, None] + d[..., 1] * 0.1 * height[:, None]
        w = (d[..., 2] * 0.2).minimum(math.log(62.5)).exp() * width[:, None] * 0.5
        h = (d[..., 3] * 0.2).minimum(math.log(62.5)).exp() * height[:, None] * 0.5
        parts = [p.unsqueeze(-1) for p in (x - w, y - h, x + w, y + h)]
        return ops.cat(parts, -1).clamp(-0.5, 2.5)

    def eager(torch, delta, box):
        d = delta.float().view(m, classes, 4)
        size = box[:, 2:] - box[:, :2] + 1
        centre = box[:, :2] + size * 0.5
        at = d[..., :2] * 0.1 * size[:, None] + centre[:, None]
        half = torch.exp((d[..., 2:] * 0.2).clamp(max=math.log(62.5))) * size[:, None] * 0.5
        return torch.cat((at - half, at + half), -1).clamp(-0.5, 2.5)

    return Recipe([f16(m, classes * 4), f32(m, 4, fill=POSITIVE)], define, eager)


@everyday(n=(2003, 9), m=(3001, 7))
def pairwise_iou(n, m):
    def define(a, b):
        ax, ay, bx, by = (
            p.abs() + p0 for p, p0 in ((a[:, 2], a[:, 0]), (a[:, 3], a[:, 1]), (b[:, 2], b[:, 0]), (b[:, 3], b[:, 1]))
        )
        width = (ax[:, None].minimum(bx) - a[:, 0][:, None].maximum(b[:, 0])).maximum(0.0)
        height = (ay[:, None].minimum(by) - a[:, 1][:, None].maximum(b[:, 1])).maximum(0.0)
        shared = width * height
        areas = (a[:, 2] * a[:, 3]).abs()[:, None] + (b[:, 2] * b[:, 3]).abs()
        iou = shared / (areas - shared + 1e-7)
        return iou, iou.max(0), iou.max(1)

    def eager(torch, a, b):
        a1, b1 = a[:, :2] + a[:, 2:].abs(), b[:, :2] + b[:, 2:].abs()
        size = (torch.minimum(a1[:, None], b1) - torch.maximum(a[:, None, :2], b[:, :2])).clamp(min=0)
        shared = size.prod(-1)
        areas = a[:, 2:].prod(-1).abs()[:, None] + b[:, 2:].prod(-1).abs()
        iou = shared / (areas - shared + 1e-7)
        return iou, iou.amax(0), iou.amax(1)

    return Recipe([f32(n, 4), f32(m, 4)], define, eager)


@everyday(n=(4_000_037, 1003))
def huber_backward(n):
    def define(x, y, weight):
        d = (x.float() - y.float()).clamp(-1.0, 1.0)
        return (d * weight.float()).half()

    def eager(torch, x, y, weight):
        return ((x.float() - y.float()).clamp(-1, 1) * weight.float()).half()

    return Recipe([f16(n), f16(n), f16(n, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), c=(8, 3), s=(128, 5))
def vae_kl_and_sample(n, c, s):
    def define(moments, noise):
        h = moments.float()
        mean, log_variance = h[:, :c], h[:, c:].clamp(-30.0, 20.0)
        z = mean + (log_variance * 0.5).exp() * noise.float()
        kl = (mean * mean + log_variance.exp() - 1.0 - log_variance).sum([1, 2, 3]) * 0.5
        return z.half(), kl

    def eager(torch, moments, noise):
        mean, log_variance = moments.float().chunk(2, 1)
        log_variance = log_variance.clamp(-30, 20)
        z = mean + torch.exp(0.5 * log_variance) * noise.float()
        kl = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum((1, 2, 3))
        return z.half(), kl

    return Recipe([f16(n, 2 * c, s, s), f16(n, c, s, s)], define, eager)


@everyday(m=(8193, 7), k=(1000, 9))
def soft_targets_and_agreement(m, k):
    """Cross entropy of mixed labels, and how much of them is where the largest logit is."""

    def define(logits, label):
        x = logits.float()
        y = label.float()
        loss = -(y * log_softmax(x)).sum(-1)
        best = ops.where(x == x.max(-1, keepdim=True), y, 0.0).max(-1)
        return loss.mean(), best.mean()

    def eager(torch, logits, label):
        x, y = logits.float(), label.float()
        loss = -(y * torch.log_softmax(x, -1)).sum(-1)
        best = torch.where(x == x.amax(-1, keepdim=True), y, 0).amax(-1)
        return loss.mean(), best.mean()

    return Recipe([bf16(m, k), f32(m, k, fill=PROBABILITY)], define, eager)


@everyday(n=(12, 2), c=(21, 3), s=(480, 7))
def focal_tversky_segmentation(n, c, s):
    def define(logits, target):
        p = log_softmax(logits.float(), 1).exp()
        hot = (ops.iota(c)[:, None, None] == target.unsqueeze(1)).float()
        hit, total, wanted = ((h).sum([0, 2, 3]) for h in (p * hot, p, hot))
        index = (hit + 1.0) / (hit + (total - hit) * 0.3 + (wanted - hit) * 0.7 + 1.0)
        return ((1.0 - index).maximum(1e-7) ** 0.75).mean()

    def eager(torch, logits, target):
        p = torch.softmax(logits.float(), 1)
        hot = torch.nn.functional.one_hot(target, c).permute(0, 3, 1, 2).float()
        hit, total, wanted = ((h).sum((0, 2, 3)) for h in (p * hot, p, hot))
        index = (hit + 1) / (hit + 0.3 * (total - hit) + 0.7 * (wanted - hit) + 1)
        return ((1 - index).clamp(min=1e-7) ** 0.75).mean()

    return Recipe([f16(n, c, s, s), ids(c, n, s, s)], define, eager)


@everyday(b=(513, 5), t=(1531, 13))
def grpo_objective(b, t):
    def define(logp, old, reference, advantage, counted):
        ratio = (logp - old).exp()
        gain = (ratio * advantage[:, None]).minimum(ratio.clamp(0.8, 1.28) * advantage[:, None])
        apart = reference - logp
        loss = (apart.exp() - apart - 1.0) * 0.04 - gain
        kept = counted.float()
        return ((loss * kept).sum(1) / (kept.sum(1) + 1e-6)).mean()

    def eager(torch, logp, old, reference, advantage, counted):
        ratio = torch.exp(logp - old)
        gain = torch.minimum(ratio * advantage[:, None], ratio.clamp(0.8, 1.28) * advantage[:, None])
        apart = reference - logp
        loss = 0.04 * (torch.exp(apart) - apart - 1) - gain
        kept = counted.float()
        return ((loss * kept).sum(1) / (kept.sum(1) + 1e-6)).mean()

    return Recipe([f32(b, t), f32(b, t), f32(b, t), f32(b), mask(b, t)], define, eager)


@everyday(m=(4097, 5), v=(32000, 33))
def masked_kl_of_logits(m, v):
    def define(student, teacher, keep):
        logs = []
        for logits in (student, teacher):
            x = logits.float()
            x = x - x.max(-1, keepdim=True)
            logs.append(x - x.exp().sum(-1, keepdim=True).log())
        kl = (logs[1].exp() * (logs[1] - logs[0])).sum(-1)
        counted = keep.float()
        return (kl * counted).sum() / counted.sum()

    def eager(torch, student, teacher, keep):
        p, q = (torch.log_softmax(logits.float(), -1) for logits in (teacher, student))
        kl = (p.exp() * (p - q)).sum(-1)
        return (kl * keep).sum() / keep.sum()

    return Recipe([bf16(m, v), bf16(m, v), mask(m)], define, eager)


@everyday(m=(64, 2), k=(24, 3), n=(1001, 5))
def crps_of_ensemble(m, k, n):
    """How far an ensemble of forecasts is from what came, and from itself: what a ranked probability score is made of."""

    def define(forecast, came):
        off = (forecast - came[:, None]).abs().mean(1)
        return off, (forecast[:, :, None] - forecast[:, None]).abs().mean([1, 2])

    def eager(torch, forecast, came):
        apart = (forecast[:, :, None] - forecast[:, None]).abs().mean((1, 2))
        return (forecast - came[:, None]).abs().mean(1), apart

    return Recipe([f32(m, k, n), f32(m, n)], define, eager)


@everyday(m=(20_011, 5), k=(17, 3))
def keypoint_similarity_oks(m, k):
    def define(predicted, wanted, seen, area, scale):
        square = ((predicted - wanted) * (predicted - wanted)).sum(2)
        near = (-square / (area[:, None] * scale * scale * 2.0 + 1e-9)).exp()
        return ops.where(seen, near, 0.0).sum(1) / seen.float().sum(1).maximum(1.0)

    def eager(torch, predicted, wanted, seen, area, scale):
        square = (predicted - wanted).square().sum(2)
        near = torch.exp(-square / (area[:, None] * scale * scale * 2 + 1e-9))
        return torch.where(seen, near, 0.0).sum(1) / seen.float().sum(1).clamp(min=1)

    inputs = [f32(m, k, 2), f32(m, k, 2), mask(m, k), f32(m, fill=POSITIVE), f32(k, fill=POSITIVE)]
    return Recipe(inputs, define, eager)
