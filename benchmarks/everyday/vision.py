"""Images: patches, windows, pooling, upsampling, diffusion steps. Mostly channels last."""

import math

from benchmarks.everyday.recipe import CHANNELS_LAST, POSITIVE, Recipe, bf16, everyday, f16, f32, mask, words
from fuser import DataType, ops


@everyday(n=(61, 2), s=(224, 6), p=(16, 3))
def patchify_vit(n, s, p):
    def define(x, mean, deviation):
        h = (x.float() - mean[:, None, None]) / deviation[:, None, None]
        patches = h.reshape(n, 3, s // p, p, s // p, p).permute(0, 2, 4, 1, 3, 5)
        return patches.reshape(n, (s // p) ** 2, 3 * p * p).bfloat16()

    def eager(torch, x, mean, deviation):
        h = (x.float() - mean[:, None, None]) / deviation[:, None, None]
        patches = h.view(n, 3, s // p, p, s // p, p).permute(0, 2, 4, 1, 3, 5)
        return patches.reshape(n, (s // p) ** 2, 3 * p * p).bfloat16()

    return Recipe([f16(n, 3, s, s), f32(3), f32(3, fill=POSITIVE)], define, eager)


@everyday(n=(16, 2), s=(32, 3), p=(2, 2), c=(16, 4))
def unpatchify_dit(n, s, p, c):
    def define(x):
        h = x.float().reshape(n, s, s, p, p, c).permute(0, 5, 1, 3, 2, 4)
        return h.reshape(n, c, s * p, s * p).half()

    def eager(torch, x):
        return torch.einsum("nhwpqc->nchpwq", x.view(n, s, s, p, p, c)).reshape(n, c, s * p, s * p).half()

    return Recipe([f32(n, s * s, p * p * c)], define, eager)


@everyday(n=(32, 2), s=(56, 6), w=(7, 3), c=(96, 5), shift=(3, 1))
def swin_shifted_windows(n, s, w, c, shift):
    def define(x):
        x = ops.cat([x[:, shift:], x[:, :shift]], 1)
        x = ops.cat([x[:, :, shift:], x[:, :, :shift]], 2)
        return x.reshape(n, s // w, w, s // w, w, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, c)

    def eager(torch, x):
        x = torch.roll(x, (-shift, -shift), (1, 2))
        return x.view(n, s // w, w, s // w, w, c).transpose(2, 3).reshape(-1, w * w, c)

    return Recipe([bf16(n, s, s, c)], define, eager)


@everyday(n=(32, 2), s=(56, 6), w=(7, 3), c=(96, 5))
def swin_windows_back_residual(n, s, w, c):
    def define(windows, x):
        back = windows.float().reshape(n, s // w, s // w, w, w, c).permute(0, 1, 3, 2, 4, 5)
        return (back.reshape(n, s, s, c) + x.float()).bfloat16()

    def eager(torch, windows, x):
        back = windows.view(n, s // w, s // w, w, w, c).transpose(2, 3).reshape(n, s, s, c)
        return back + x

    return Recipe([bf16(n * (s // w) ** 2, w * w, c), bf16(n, s, s, c)], define, eager)


@everyday(n=(64, 2), s=(197, 5), c=(768, 12))
def cls_token_and_positions(n, s, c):
    def define(patches, cls, positions):
        x = ops.cat([cls.expand(n, 1, c), patches], 1).float()
        return (x + positions.float()).half()

    def eager(torch, patches, cls, positions):
        return torch.cat((cls.expand(n, 1, c), patches), 1) + positions

    return Recipe([f16(n, s - 1, c), f16(1, 1, c), f16(s, c)], define, eager)


@everyday(n=(64, 2), c=(2048, 5), s=(7, 3))
def global_average_pool_nhwc(n, c, s):
    def define(x):
        return x.float().mean([2, 3]).half()

    def eager(torch, x):
        return torch.nn.functional.adaptive_avg_pool2d(x, 1).flatten(1)

    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST)], define, eager)


@everyday(n=(32, 2), c=(96, 5), s=(112, 6))
def average_pool_2x2(n, c, s):
    def define(x):
        return x.float().reshape(n, c, s // 2, 2, s // 2, 2).mean([3, 5]).bfloat16()

    def eager(torch, x):
        return torch.nn.functional.avg_pool2d(x, 2)

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(16, 2), c=(64, 5), s=(256, 6))
def max_pool_2x2_relu_nhwc(n, c, s):
    def define(x, b):
        h = (x.float() + b[:, None, None]).relu()
        return h.reshape(n, c, s // 2, 2, s // 2, 2).max([3, 5]).half()

    def eager(torch, x, b):
        return torch.nn.functional.max_pool2d(torch.relu(x.float() + b[:, None, None]), 2).half()

    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST), f32(c)], define, eager)


@everyday(n=(5, 2), c=(320, 6), s=(61, 3))
def upsample_nearest_unet(n, c, s):
    def define(x, b):
        h = (x.float() + b.float()[:, None, None]).half()
        return h[:, :, :, None, :, None].expand(n, c, s, 2, s, 2).reshape(n, c, 2 * s, 2 * s)

    def eager(torch, x, b):
        return torch.nn.functional.interpolate(x + b[:, None, None], scale_factor=2, mode="nearest")

    return Recipe([f16(n, c, s, s), f16(c)], define, eager)


@everyday(n=(5, 2), c=(320, 6), s=(61, 3))
def upsample_nearest_backward(n, c, s):
    def define(dy):
        return dy.float().reshape(n, c, s, 2, s, 2).sum([3, 5]).half()

    def eager(torch, dy):
        return torch.ops.aten.upsample_nearest2d_backward(dy, [2 * s, 2 * s], [n, c, s, s])

    return Recipe([f16(n, c, 2 * s, 2 * s)], define, eager)


@everyday(n=(6, 2), a=(640, 6), b=(320, 3), s=(61, 5))
def skip_concat_silu_nhwc(n, a, b, s):
    def define(x, skip):
        h = ops.cat([x, skip], 1).float()
        return (h * h.sigmoid()).half()

    def eager(torch, x, skip):
        return torch.nn.functional.silu(torch.cat((x, skip), 1))

    return Recipe([f16(n, a, s, s, order=CHANNELS_LAST), f16(n, b, s, s, order=CHANNELS_LAST)], define, eager)


@everyday(n=(16, 2), c=(12, 4), s=(253, 5), r=(2, 2))
def pixel_shuffle_clamped(n, c, s, r):
    def define(x):
        h = (x.float() * 0.5 + 0.5).clamp(0.0, 1.0)
        h = h.reshape(n, c // (r * r), r, r, s, s).permute(0, 1, 4, 2, 5, 3)
        return h.reshape(n, c // (r * r), s * r, s * r).half()

    def eager(torch, x):
        return torch.nn.functional.pixel_shuffle((x.float() * 0.5 + 0.5).clamp(0, 1), r).half()

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(32, 2), c=(3, 2), s=(640, 6))
def space_to_depth_yolo(n, c, s):
    def define(x):
        h = x.reshape(n, c, s // 2, 2, s // 2, 2).permute(0, 5, 3, 1, 2, 4)
        return (h.reshape(n, 4 * c, s // 2, s // 2).float() * (1 / 255)).half()

    def eager(torch, x):
        parts = [x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return (torch.cat(parts, 1) * (1 / 255)).half()

    return Recipe([f32(n, c, s, s)], define, eager)


@everyday(n=(64, 2), c=(240, 6), s=(29, 5), groups=(3, 3))
def channel_shuffle_relu(n, c, s, groups):
    def define(x):
        h = x.reshape(n, groups, c // groups, s, s).transpose(1, 2)
        return h.reshape(n, c, s, s).relu()

    def eager(torch, x):
        return torch.relu(torch.nn.functional.channel_shuffle(x, groups))

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(64, 2), s=(224, 5))
def packed_rgba_to_normalized(n, s):
    def define(pixels, mean, deviation):
        shift = ops.iota(3, 0, 8, DataType.Int32)[:, None, None]
        colour = ((pixels.unsqueeze(1) >> shift) & 255).float() * (1 / 255)
        return ((colour - mean[:, None, None]) / deviation[:, None, None]).half()

    def eager(torch, pixels, mean, deviation):
        colour = pixels.view(torch.uint8).view(n, s, s, 4)[..., :3].permute(0, 3, 1, 2) * (1 / 255)
        return ((colour - mean[:, None, None]) / deviation[:, None, None]).half().contiguous()

    return Recipe([words(n, s, s), f32(3), f32(3, fill=POSITIVE)], define, eager)


@everyday(n=(33, 2), s=(384, 5))
def mixup_grayscale(n, s):
    def define(a, b, share):
        mixed = ops.lerp(b.float(), a.float(), share[:, None, None, None])
        weights = (0.299, 0.587, 0.114)
        gray = sum(mixed[:, k] * w for k, w in enumerate(weights))
        return mixed.bfloat16(), gray.bfloat16()

    def eager(torch, a, b, share):
        mixed = torch.lerp(b.float(), a.float(), share[:, None, None, None])
        gray = 0.299 * mixed[:, 0] + 0.587 * mixed[:, 1] + 0.114 * mixed[:, 2]
        return mixed.to(a.dtype), gray.to(a.dtype)

    return Recipe([bf16(n, 3, s, s), bf16(n, 3, s, s), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), c=(16, 3), s=(127, 5))
def diffusion_add_noise(n, c, s):
    def define(x, noise, alpha):
        a = (alpha * 0.5).minimum(0.999)[:, None, None, None]
        signal, rest = a.sqrt(), (1.0 - a).sqrt()
        noisy = x.float() * signal + noise.float() * rest
        return noisy.half(), (noise.float() * signal - x.float() * rest).half()

    def eager(torch, x, noise, alpha):
        a = (alpha * 0.5).clamp(max=0.999)[:, None, None, None]
        signal, rest = a.sqrt(), (1 - a).sqrt()
        noisy = x.float() * signal + noise.float() * rest
        return noisy.half(), (noise.float() * signal - x.float() * rest).half()

    return Recipe([f16(n, c, s, s), f16(n, c, s, s), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(32, 2), c=(4, 3), s=(127, 5))
def guided_ddim_step(n, c, s):
    def define(noise, x, scale):
        free, guided = noise[:n].float(), noise[n:].float()
        e = free + (guided - free) * scale
        clean = ((x - e * 0.6) * (1 / 0.8)).clamp(-1.0, 1.0)
        return clean * 0.9 + e * math.sqrt(1 - 0.81)

    def eager(torch, noise, x, scale):
        free, guided = noise.float().chunk(2)
        e = free + (guided - free) * scale
        clean = ((x - e * 0.6) / 0.8).clamp(-1, 1)
        return clean * 0.9 + e * math.sqrt(1 - 0.81)

    return Recipe([bf16(2 * n, c, s, s), f32(n, c, s, s), f32(1, fill=POSITIVE)], define, eager)


@everyday(n=(8193, 5), d=(320, 8))
def timestep_embedding(n, d):
    def define(t):
        frequency = (ops.iota(d // 2).float() * (-math.log(10000) / (d // 2))).exp()
        angle = t[:, None].float() * frequency
        return ops.cat([angle.cos(), angle.sin()], 1).half()

    def eager(torch, t):
        steps = torch.arange(d // 2, device=t.device, dtype=torch.float32)
        angle = t[:, None].float() * torch.exp(steps * (-math.log(10000) / (d // 2)))
        return torch.cat((angle.cos(), angle.sin()), 1).half()

    return Recipe([f16(n, fill=POSITIVE)], define, eager)


@everyday(n=(16, 2), anchors=(3, 2), s=(80, 3), classes=(80, 4))
def decode_boxes_yolo(n, anchors, s, classes):
    def define(x, size):
        h = x.float().reshape(n, anchors, 5 + classes, s, s).permute(0, 1, 3, 4, 2).sigmoid()
        at = ops.iota(s).float()
        column = (h[..., 0] * 2.0 - 0.5 + at) * 8.0
        row = (h[..., 1] * 2.0 - 0.5 + at[:, None]) * 8.0
        box = [(h[..., 2 + k] * 2.0) ** 2 * size[:, k][:, None, None] for k in (0, 1)]
        parts = [p.unsqueeze(-1) for p in (column, row, *box)]
        return ops.cat([*parts, h[..., 4:]], -1).reshape(n, -1, 5 + classes).half()

    def eager(torch, x, size):
        h = x.float().view(n, anchors, 5 + classes, s, s).permute(0, 1, 3, 4, 2).sigmoid()
        at = torch.arange(s, device=x.device).float()
        grid = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1)
        centre = (h[..., :2] * 2 - 0.5 + grid) * 8
        box = (h[..., 2:4] * 2) ** 2 * size[:, None, None]
        return torch.cat((centre, box, h[..., 4:]), -1).reshape(n, -1, 5 + classes).half()

    return Recipe([f16(n, anchors * (5 + classes), s, s), f32(anchors, 2, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), c=(256, 5), s=(56, 5))
def bottleneck_residual_backward_nhwc(n, c, s):
    def define(dy, y, scale):
        g = ops.where(y > 0, dy.float(), 0.0)
        return (g * scale[:, None, None]).half(), g.half(), g.sum([0, 2, 3])

    def eager(torch, dy, y, scale):
        g = torch.where(y > 0, dy, 0).float()
        return (g * scale[:, None, None]).half(), g.half(), g.sum((0, 2, 3))

    pixels = f16(n, c, s, s, order=CHANNELS_LAST)
    return Recipe([pixels, pixels, f32(c)], define, eager)


@everyday(n=(9, 2), s=(513, 5))
def masked_composite_srgb(n, s):
    def define(front, back, alpha, inside):
        a = ops.where(inside, alpha.float(), 0.0).unsqueeze(1)
        mixed = (front.float().abs() * a + back.float().abs() * (1.0 - a)).clamp(0.0, 1.0)
        bright = mixed.maximum(0.0031308) ** (1 / 2.4) * 1.055 - 0.055
        return ops.where(mixed <= 0.0031308, mixed * 12.92, bright).half()

    def eager(torch, front, back, alpha, inside):
        a = torch.where(inside, alpha.float(), 0)[:, None]
        mixed = (front.float().abs() * a + back.float().abs() * (1 - a)).clamp(0, 1)
        bright = mixed.clamp(min=0.0031308) ** (1 / 2.4) * 1.055 - 0.055
        return torch.where(mixed <= 0.0031308, mixed * 12.92, bright).half()

    return Recipe([f16(n, 3, s, s), f16(n, 3, s, s), f16(n, s, s, fill=POSITIVE), mask(n, s, s)], define, eager)


@everyday(n=(32, 2), c=(80, 3), s=(128, 9))
def peaks_of_heatmap_centernet(n, c, s):
    """Scores where none of the eight neighbours is larger."""

    def define(x):
        p = ops.pad(x, [1, 1, 1, 1], float("-inf"))
        rows = p[:, :, :s].maximum(p[:, :, 1 : s + 1]).maximum(p[:, :, 2:])
        top = rows[..., :s].maximum(rows[..., 1 : s + 1]).maximum(rows[..., 2:])
        return ops.where(top == x, x.float().sigmoid(), 0.0).half()

    def eager(torch, x):
        top = torch.nn.functional.max_pool2d(x, 3, 1, 1)
        return torch.where(top == x, torch.sigmoid(x.float()), 0.0).to(x.dtype)

    return Recipe([f16(n, c, s, s)], define, eager)
