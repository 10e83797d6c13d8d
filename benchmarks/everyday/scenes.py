"""Scenes, points and boxes: rays, splats, warped and compared images, fluids on a grid, matched and decoded boxes."""

import math

from benchmarks.everyday.recipe import ANGLE, POSITIVE, PROBABILITY, RISING, Recipe, everyday, f16, f32, mask
from fuser import DataType, ops


@everyday(rays=(16_387, 3), s=(128, 5))
def volume_rendering_nerf(rays, s):
    """What light of each sample arrives, the colour and the depth of the ray. Samples lie one behind the other: else what
    passes would grow, and the sum of the weights would cancel."""

    def define(sigma, rgb, z):
        far = ops.full([rays, 1], 1e10, DataType.Float)
        alpha = 1.0 - (-sigma.relu() * ops.cat([z[:, 1:] - z[:, :-1], far], 1)).exp()
        passed = (1.0 - alpha + 1e-10).cumprod(1)
        weight = alpha * ops.cat([ops.full([rays, 1], 1.0, DataType.Float), passed[:, :-1]], 1)
        return weight, (weight.unsqueeze(-1) * rgb.sigmoid()).sum(1), (weight * z).sum(1), weight.sum(1)

    def eager(torch, sigma, rgb, z):
        step = torch.cat((z[:, 1:] - z[:, :-1], torch.full_like(z[:, :1], 1e10)), 1)
        alpha = 1 - torch.exp(-torch.relu(sigma) * step)
        passed = torch.cumprod(1 - alpha + 1e-10, 1)
        weight = alpha * torch.cat((torch.ones_like(passed[:, :1]), passed[:, :-1]), 1)
        return weight, (weight[..., None] * torch.sigmoid(rgb)).sum(1), (weight * z).sum(1), weight.sum(1)

    return Recipe([f32(rays, s), f32(rays, s, 3), f32(rays, s, fill=RISING)], define, eager)


@everyday(m=(262_145, 5), k=(10, 3))
def fourier_features_nerf(m, k):
    """Coordinates, then sines and cosines of them by powers of two."""

    def define(x):
        waves = [f(x * 2.0**i) for i in range(k) for f in (ops.sin, ops.cos)]
        return ops.cat([x, *waves], -1)

    def eager(torch, x):
        waves = [f(x * 2.0**i) for i in range(k) for f in (torch.sin, torch.cos)]
        return torch.cat((x, *waves), -1)

    return Recipe([f32(m, 3)], define, eager)


@everyday(m=(1_000_003, 5))
def covariance_of_splats(m):
    """Six numbers of the covariance of a Gaussian, of its rotation as a quaternion and its logarithmic scales."""

    def define(q, scale):
        q = q / (q * q).sum(-1, keepdim=True).sqrt()
        w, x, y, z = (q[:, i] for i in range(4))
        spread = [(scale[:, i] * 2.0).exp() for i in range(3)]
        rows = (
            (1.0 - (y * y + z * z) * 2.0, (x * y - w * z) * 2.0, (x * z + w * y) * 2.0),
            ((x * y + w * z) * 2.0, 1.0 - (x * x + z * z) * 2.0, (y * z - w * x) * 2.0),
            ((x * z - w * y) * 2.0, (y * z + w * x) * 2.0, 1.0 - (x * x + y * y) * 2.0),
        )
        pairs = [(i, j) for i in range(3) for j in range(i, 3)]
        found = [sum(rows[i][k] * rows[j][k] * spread[k] for k in range(3)) for i, j in pairs]
        return ops.cat([f.unsqueeze(-1) for f in found], -1)

    def eager(torch, q, scale):
        w, x, y, z = torch.nn.functional.normalize(q, dim=-1).unbind(-1)
        rows = (
            (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
            (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
            (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
        )
        rotation = torch.stack([torch.stack(row, -1) for row in rows], -2)
        found = ((rotation * torch.exp(2 * scale)[:, None])[:, :, None] * rotation[:, None]).sum(-1)
        return torch.stack([found[:, i, j] for i in range(3) for j in range(i, 3)], -1)

    return Recipe([f32(m, 4, fill=POSITIVE), f32(m, 3, fill=ANGLE)], define, eager)


@everyday(n=(8, 2), c=(3, 2), h=(256, 5), w=(449, 6))
def warp_by_flow_bilinear(n, c, h, w):
    def define(image, flow):
        x = (ops.iota(w).float() + flow[:, 0]).clamp(0.0, w - 1.001)
        y = (ops.iota(h).float()[:, None] + flow[:, 1]).clamp(0.0, h - 1.001)
        left, top = x.floor(), y.floor()
        at = (top.long() * w + left.long()).reshape(n, 1, h * w)
        flat = image.reshape(n, c, h * w)
        a, b, d, e = (flat.take_along_axis(at + k, 2).reshape(n, c, h, w).float() for k in (0, 1, w, w + 1))
        fx, fy = (x - left).unsqueeze(1), (y - top).unsqueeze(1)
        return ops.lerp(ops.lerp(a, b, fx), ops.lerp(d, e, fx), fy).half()

    def eager(torch, image, flow):
        x = (torch.arange(w, device=image.device).float() + flow[:, 0]).clamp(0, w - 1.001)
        y = (torch.arange(h, device=image.device).float()[:, None] + flow[:, 1]).clamp(0, h - 1.001)
        left, top = x.floor(), y.floor()
        at = (top.long() * w + left.long()).view(n, 1, h * w).expand(n, c, h * w)
        flat = image.view(n, c, h * w)
        a, b, d, e = (flat.gather(2, at + k).view(n, c, h, w).float() for k in (0, 1, w, w + 1))
        fx, fy = (x - left)[:, None], (y - top)[:, None]
        return torch.lerp(torch.lerp(a, b, fx), torch.lerp(d, e, fx), fy).half()

    return Recipe([f16(n, c, h, w), f32(n, 2, h, w)], define, eager)


@everyday(n=(4, 2), c=(32, 4), h=(240, 7), w=(319, 6), most=(4, 2))
def cost_volume_stereo(n, c, h, w, most):
    """How unlike two images are, for each of some shifts."""

    def define(left, right):
        shifted = [right if d == 0 else right[..., : w - d].pad([d, 0]) for d in range(most)]
        return ops.cat([(left.float() - x.float()).abs().mean(1, keepdim=True) for x in shifted], 1).half()

    def eager(torch, left, right):
        shifted = [torch.nn.functional.pad(right[..., : w - d], (d, 0)) for d in range(most)]
        return torch.stack([(left.float() - x.float()).abs().mean(1) for x in shifted], 1).half()

    return Recipe([f16(n, c, h, w), f16(n, c, h, w)], define, eager)


@everyday(n=(1024, 7))
def lattice_boltzmann_collision(n):
    """Nine directions of a cell relax towards what its density and velocity say."""

    def define(f, ex, ey, share):
        ex, ey, share = (v[:, None, None] for v in (ex, ey, share))
        density = f.sum(0)
        u, v = (f * ex).sum(0) / density, (f * ey).sum(0) / density
        along = ex * u + ey * v
        even = share * density * (1.0 + along * 3.0 + along * along * 4.5 - (u * u + v * v) * 1.5)
        return ops.lerp(f, even, 0.6), density

    def eager(torch, f, ex, ey, share):
        ex, ey, share = (v[:, None, None] for v in (ex, ey, share))
        density = f.sum(0)
        u, v = (f * ex).sum(0) / density, (f * ey).sum(0) / density
        along = ex * u + ey * v
        even = share * density * (1 + 3 * along + 4.5 * along * along - 1.5 * (u * u + v * v))
        return torch.lerp(f, even, 0.6), density

    return Recipe([f32(9, n, n + 3, fill=POSITIVE), f32(9), f32(9), f32(9, fill=POSITIVE)], define, eager)


@everyday(n=(16, 2), a=(8400, 7), bins=(16, 4))
def distribution_boxes_yolov8(n, a, bins):
    """Distances to four sides, each the mean of a distribution over bins, as centre and size."""

    def define(x, anchor, stride):
        h = x.float().reshape(n, 4, bins, a)
        weight = (h - h.max(2, keepdim=True)).exp()
        share = weight / weight.sum(2, keepdim=True)
        d = (share * ops.iota(bins).float()[:, None]).sum(2)
        low, high = anchor - d[:, :2], anchor + d[:, 2:]
        return ops.cat([(low + high) * 0.5, high - low], 1) * stride

    def eager(torch, x, anchor, stride):
        share = torch.softmax(x.float().view(n, 4, bins, a), 2)
        d = (share * torch.arange(bins, device=x.device).float()[:, None]).sum(2)
        low, high = anchor - d[:, :2], anchor + d[:, 2:]
        return torch.cat(((low + high) / 2, high - low), 1) * stride

    return Recipe([f16(n, 4 * bins, a), f32(2, a, fill=POSITIVE), f32(1, a, fill=POSITIVE)], define, eager)


@everyday(m=(2048, 3), k=(128, 5), d=(64, 6))
def residuals_of_clusters_vlad(m, k, d):
    """From each centre to each point, weighted by a softmax over centres, of length one."""

    def define(x, logits, centre):
        h = logits.float()
        weight = (h - h.max(-1, keepdim=True)).exp()
        share = weight / weight.sum(-1, keepdim=True)
        apart = (x.unsqueeze(1) - centre) * share.unsqueeze(-1)
        return (apart / (apart * apart).sum(-1, keepdim=True).sqrt().maximum(1e-12)).half()

    def eager(torch, x, logits, centre):
        apart = (x[:, None] - centre) * torch.softmax(logits.float(), -1)[..., None]
        return torch.nn.functional.normalize(apart, dim=-1).half()

    return Recipe([f32(m, d), f16(m, k), f32(k, d)], define, eager)


@everyday(n=(32, 2), f=(513, 5), t=(999, 4))
def complex_mask_and_power(n, f, t):
    """A spectrogram in pairs times a mask in pairs, and the compressed power of what that is."""

    def define(x, gate):
        a, b = x[..., 0], x[..., 1]
        c, d = gate[..., 0].float().tanh(), gate[..., 1].float().tanh()
        re, im = a * c - b * d, a * d + b * c
        return ops.cat([re.unsqueeze(-1), im.unsqueeze(-1)], -1), (re * re + im * im + 1e-8) ** 0.15

    def eager(torch, x, gate):
        (a, b), (c, d) = x.unbind(-1), torch.tanh(gate.float()).unbind(-1)
        re, im = a * c - b * d, a * d + b * c
        return torch.stack((re, im), -1), (re * re + im * im + 1e-8) ** 0.15

    return Recipe([f32(n, f, t, 2), f16(n, f, t, 2)], define, eager)


@everyday(m=(8191, 3), z=(51, 5))
def categorical_projection_c51(m, z):
    """The distribution of returns one step later, on the atoms of this one."""

    def define(p, reward, done):
        atom = ops.iota(z).float() * (20.0 / (z - 1)) - 10.0
        later = ops.where(done, 0.0, 0.99).float().unsqueeze(-1) * atom
        moved = (reward.unsqueeze(-1) + later).clamp(-10.0, 10.0)
        apart = (moved.unsqueeze(1) - atom[:, None]).abs() * ((z - 1) / 20.0)
        return ((1.0 - apart).clamp(0.0, 1.0) * p.unsqueeze(1)).sum(-1)

    def eager(torch, p, reward, done):
        atom = torch.arange(z, device=p.device).float() * (20.0 / (z - 1)) - 10
        later = torch.where(done, 0.0, 0.99).float()[:, None] * atom
        moved = (reward[:, None] + later).clamp(-10, 10)
        apart = (moved[:, None] - atom[:, None]).abs() * ((z - 1) / 20.0)
        return ((1 - apart).clamp(0, 1) * p[:, None]).sum(-1)

    return Recipe([f32(m, z, fill=PROBABILITY), f32(m), mask(m)], define, eager)


@everyday(n=(200_003, 5))
def points_turned_by_quaternions(n):
    def define(q, shift, point):
        q = q / ((q * q).sum(-1, keepdim=True) + 1e-9).sqrt()
        w, x, y, z = (q[:, i : i + 1] for i in range(4))
        a, b, c = (point[:, i : i + 1] for i in range(3))
        u, v, t = (y * c - z * b) * 2.0, (z * a - x * c) * 2.0, (x * b - y * a) * 2.0
        turned = [a + w * u + y * t - z * v, b + w * v + z * u - x * t, c + w * t + x * v - y * u]
        return ops.cat(turned, -1) + shift

    def eager(torch, q, shift, point):
        q = q / (q.square().sum(-1, keepdim=True) + 1e-9).sqrt()
        w, axis = q[:, :1], q[:, 1:]
        across = 2 * torch.linalg.cross(axis, point)
        return point + w * across + torch.linalg.cross(axis, across) + shift

    return Recipe([f32(n, 4), f32(n, 3), f32(n, 3)], define, eager)


@everyday(m=(1024, 3), s=(64, 6))
def heatmaps_of_keypoints(m, s):
    def define(xy, seen):
        at = ops.iota(s).float()
        dx, dy = at - xy[:, 0:1] * float(s), at - xy[:, 1:2] * float(s)
        apart = (dx * dx).unsqueeze(1) + (dy * dy).unsqueeze(2)
        return ((apart * (-1 / 8)).exp() * seen[:, None, None]).half()

    def eager(torch, xy, seen):
        at = torch.arange(s, device=xy.device).float()
        dx, dy = at - xy[:, 0:1] * s, at - xy[:, 1:2] * s
        apart = dx.square()[:, None] + dy.square()[:, :, None]
        return (torch.exp(-apart / 8) * seen[:, None, None]).half()

    return Recipe([f32(m, 2, fill=POSITIVE), f32(m, fill=POSITIVE)], define, eager)


@everyday(paths=(65_537, 5), t=(252, 6))
def asian_option_payoffs(paths, t):
    def define(noise):
        steps = noise * (0.2 * math.sqrt(1 / t)) + 0.01 / t
        return (steps.cumsum(1).exp().mean(1) - 1.0).relu()

    def eager(torch, noise):
        steps = noise * (0.2 * math.sqrt(1 / t)) + 0.01 / t
        return torch.relu(torch.cumsum(steps, 1).exp().mean(1) - 1)

    return Recipe([f32(paths, t)], define, eager)


@everyday(n=(8, 2), h=(384, 6), w=(1280, 9))
def edge_aware_smoothness_monodepth(n, h, w):
    """How much a disparity changes where its picture does not, as one number."""

    def define(disparity, picture):
        d = disparity / (disparity.mean([2, 3], True) + 1e-7)
        across = (picture[..., :-1] - picture[..., 1:]).abs().mean(1, True)
        down = (picture[:, :, :-1] - picture[:, :, 1:]).abs().mean(1, True)
        x = (d[..., :-1] - d[..., 1:]).abs() * (-across).exp()
        y = (d[:, :, :-1] - d[:, :, 1:]).abs() * (-down).exp()
        return x.mean() + y.mean()

    def eager(torch, disparity, picture):
        d = disparity / (disparity.mean((2, 3), True) + 1e-7)
        across = (picture[..., :-1] - picture[..., 1:]).abs().mean(1, True)
        down = (picture[:, :, :-1] - picture[:, :, 1:]).abs().mean(1, True)
        x = (d[..., :-1] - d[..., 1:]).abs() * torch.exp(-across)
        return x.mean() + ((d[:, :, :-1] - d[:, :, 1:]).abs() * torch.exp(-down)).mean()

    return Recipe([f32(n, 1, h, w, fill=POSITIVE), f32(n, 3, h, w)], define, eager)


@everyday(n=(16, 3), h=(480, 7), w=(641, 9))
def scale_invariant_depth_loss(n, h, w):
    """Of logarithms of depths, where a depth is known."""

    def define(predicted, wanted):
        known = wanted > 0.6
        apart = ops.where(known, predicted.log() - wanted.log(), 0.0)
        count = known.float().sum()
        mean = apart.sum() / count
        return ((apart * apart).sum() / count - mean * mean * 0.85).sqrt()

    def eager(torch, predicted, wanted):
        known = wanted > 0.6
        apart = torch.where(known, torch.log(predicted) - torch.log(wanted), 0.0)
        count = known.sum()
        return torch.sqrt(apart.square().sum() / count - 0.85 * (apart.sum() / count) ** 2)

    return Recipe([f32(n, h, w, fill=POSITIVE), f32(n, h, w, fill=POSITIVE)], define, eager)


@everyday(m=(500_003, 7))
def spherical_harmonics_of_directions(m):
    """Degrees 0 to 2, by direction."""

    def terms(x, y, z):
        return [
            y * -0.48860251,
            z * 0.48860251,
            x * -0.48860251,
            x * y * 1.09254843,
            y * z * -1.09254843,
            (z * z * 2.0 - x * x - y * y) * 0.31539157,
            x * z * -1.09254843,
            (x * x - y * y) * 0.54627422,
        ]

    def define(v):
        x, y, z = (v[:, k : k + 1] for k in range(3))
        return ops.cat([ops.full([m, 1], 0.28209479, DataType.Float), *terms(x, y, z)], 1)

    def eager(torch, v):
        x, y, z = v[:, 0:1], v[:, 1:2], v[:, 2:3]
        return torch.cat((torch.full_like(x, 0.28209479), *terms(x, y, z)), 1)

    return Recipe([f32(m, 3)], define, eager)
