"""Images on their way into a model: crops, flips, colours, mosaics, erased boxes."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask, words
from fuser import DataType, ops


@everyday(n=(64, 2), s=(256, 9), crop=(224, 5))
def crop_flip_normalize(n, s, crop):
    at = (s - crop) // 2

    def define(x, mean, deviation):
        back = ops.iota(crop, crop - 1, -1)
        h = x[:, at : at + crop, at : at + crop].index_select(back, 2)
        return ((h * (1 / 255) - mean) / deviation).permute(0, 3, 1, 2).bfloat16().stride_order([3, 2, 1, 0])

    def eager(torch, x, mean, deviation):
        h = x[:, at : at + crop, at : at + crop].flip(2)
        return ((h * (1 / 255) - mean) / deviation).permute(0, 3, 1, 2).bfloat16().contiguous()

    return Recipe([f32(n, s, s, 3, fill=POSITIVE), f32(3), f32(3, fill=POSITIVE)], define, eager)


@everyday(n=(32, 2), s=(299, 5))
def hwc_bytes_to_normalized_nchw(n, s):
    """Three bytes a pixel, each in an Int64 as NumPy's integers come."""

    def define(x, mean, deviation):
        h = (x.float() * (1 / 255) - mean) / deviation
        return h.permute(0, 3, 1, 2).half().stride_order([3, 2, 1, 0])

    def eager(torch, x, mean, deviation):
        h = (x.float() * (1 / 255) - mean) / deviation
        return h.permute(0, 3, 1, 2).half().contiguous()

    return Recipe([ids(256, n, s, s, 3), f32(3), f32(3, fill=POSITIVE)], define, eager)


@everyday(n=(16, 2), s=(640, 6))
def mosaic_of_four(n, s):
    def define(a, b, c, d):
        half = s // 2
        top = ops.cat([a[..., half:, half:], b[..., half:, :half]], 3)
        bottom = ops.cat([c[..., :half, half:], d[..., :half, :half]], 3)
        return ops.cat([top, bottom], 2).half()

    def eager(torch, a, b, c, d):
        half = s // 2
        top = torch.cat((a[..., half:, half:], b[..., half:, :half]), 3)
        return torch.cat((top, torch.cat((c[..., :half, half:], d[..., :half, :half]), 3)), 2).half()

    picture = f32(n, 3, s, s)
    return Recipe([picture] * 4, define, eager, read_bytes=n * 3 * s * s * 4)


@everyday(n=(16, 2), h=(427, 5), w=(640, 7))
def letterbox_gray(n, h, w):
    above = (w - h) // 2

    def define(x):
        return ops.pad(x.float() * (1 / 255), [0, 0, above, w - h - above], 114 / 255).half()

    def eager(torch, x):
        return torch.nn.functional.pad(x.float() * (1 / 255), (0, 0, above, w - h - above), value=114 / 255).half()

    return Recipe([f32(n, 3, h, w)], define, eager)


@everyday(n=(32, 2), s=(421, 7))
def rgb_to_ycbcr(n, s):
    def define(x):
        r, g, b = (x[:, k] for k in range(3))
        y = r * 0.299 + g * 0.587 + b * 0.114
        parts = (y, (b - y) * 0.564 + 0.5, (r - y) * 0.713 + 0.5)
        return ops.cat([p.unsqueeze(1) for p in parts], 1)

    def eager(torch, x):
        r, g, b = x.unbind(1)
        y = 0.299 * r + 0.587 * g + 0.114 * b
        return torch.stack((y, (b - y) * 0.564 + 0.5, (r - y) * 0.713 + 0.5), 1)

    return Recipe([f32(n, 3, s, s)], define, eager)


@everyday(n=(24, 2), s=(448, 7))
def rgb_to_hsv(n, s):
    def define(x):
        r, g, b = (x[:, k] for k in range(3))
        top = r.maximum(g).maximum(b)
        spread = top - r.minimum(g).minimum(b)
        step = ops.where(spread == 0.0, 1.0, spread)
        green, blue = (b - r) / step + 2.0, (r - g) / step + 4.0
        hue = ops.where(top == r, (g - b) / step, ops.where(top == g, green, blue))
        hue = (hue * (1 / 6)).remainder(1.0)
        parts = (hue, spread / (top + 1e-8), top)
        return ops.cat([p.unsqueeze(1) for p in parts], 1)

    def eager(torch, x):
        r, g, b = x.unbind(1)
        top, low = x.amax(1), x.amin(1)
        spread = top - low
        step = torch.where(spread == 0, 1, spread)
        hue = torch.where(top == r, (g - b) / step, torch.where(top == g, (b - r) / step + 2, (r - g) / step + 4))
        return torch.stack(((hue * (1 / 6)) % 1.0, spread / (top + 1e-8), top), 1)

    return Recipe([f32(n, 3, s, s, fill=POSITIVE)], define, eager)


@everyday(n=(48, 2), s=(331, 7))
def jitter_contrast_saturation(n, s):
    def define(x, contrast, saturation):
        h = x.float()
        gray = h[:, 0] * 0.299 + h[:, 1] * 0.587 + h[:, 2] * 0.114
        mean = gray.mean([1, 2], keepdim=True).unsqueeze(1)
        mixed = ops.lerp(gray.unsqueeze(1), h, saturation[:, None, None, None])
        return ops.lerp(mean, mixed, contrast[:, None, None, None]).clamp(0.0, 1.0).bfloat16()

    def eager(torch, x, contrast, saturation):
        h = x.float()
        gray = (0.299 * h[:, 0] + 0.587 * h[:, 1] + 0.114 * h[:, 2])[:, None]
        mixed = torch.lerp(gray, h, saturation[:, None, None, None])
        mean = gray.mean((1, 2, 3), keepdim=True)
        return torch.lerp(mean, mixed, contrast[:, None, None, None]).clamp(0, 1).to(x.dtype)

    return Recipe([bf16(n, 3, s, s), f32(n, fill=POSITIVE), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), s=(225, 9))
def random_erasing(n, s):
    def define(x, top, left, noise):
        at = ops.iota(s)
        rows = (at >= top[:, None]) & (at < top[:, None] + s // 3)
        columns = (at >= left[:, None]) & (at < left[:, None] + s // 3)
        inside = rows[:, None, :, None] & columns[:, None, None, :]
        return ops.where(inside, noise, x)

    def eager(torch, x, top, left, noise):
        at = torch.arange(s, device=x.device)
        rows = (at >= top[:, None]) & (at < top[:, None] + s // 3)
        columns = (at >= left[:, None]) & (at < left[:, None] + s // 3)
        return torch.where(rows[:, None, :, None] & columns[:, None, None, :], noise, x)

    return Recipe([f16(n, 3, s, s), ids(s, n), ids(s, n), f16(n, 3, 1, 1)], define, eager)


@everyday(n=(64, 2), s=(224, 5))
def cutmix_nhwc(n, s):
    def define(a, b, low, high):
        at = ops.iota(s)
        rows = (at >= low[:, None]) & (at < high[:, None])
        inside = rows[:, :, None, None] & rows[:, None, :, None]
        mixed = ops.where(inside, b, a)
        share = 1.0 - rows.float().mean(1) * rows.float().mean(1)
        return mixed.float().bfloat16(), share

    def eager(torch, a, b, low, high):
        at = torch.arange(s, device=a.device)
        rows = (at >= low[:, None]) & (at < high[:, None])
        mixed = torch.where(rows[:, :, None, None] & rows[:, None, :, None], b, a)
        return mixed.bfloat16(), 1 - rows.float().mean(1) ** 2

    return Recipe([f16(n, s, s, 3), f16(n, s, s, 3), ids(s // 2 + 1, n), ids(s, n)], define, eager)


@everyday(n=(16, 2), h=(270, 3), w=(480, 4))
def yuv420_to_rgb(n, h, w):
    def define(y, uv):
        def doubled(c):
            wide = c[:, :, None, :, None].expand(n, h, 2, w, 2)
            return wide.reshape(n, 2 * h, 2 * w)

        luma = y.float() * (1 / 255)
        u, v = (doubled(uv[..., k].float() * (1 / 255) - 0.5) for k in range(2))
        parts = (luma + v * 1.402, luma - u * 0.344 - v * 0.714, luma + u * 1.772)
        return ops.cat([p.unsqueeze(1) for p in parts], 1).clamp(0.0, 1.0).half()

    def eager(torch, y, uv):
        luma = y.float() * (1 / 255)
        chroma = (uv.float() * (1 / 255) - 0.5).repeat_interleave(2, 1).repeat_interleave(2, 2)
        u, v = chroma.unbind(-1)
        rgb = torch.stack((luma + 1.402 * v, luma - 0.344 * u - 0.714 * v, luma + 1.772 * u), 1)
        return rgb.clamp(0, 1).half()

    return Recipe([f32(n, 2 * h, 2 * w), f32(n, h, w, 2)], define, eager)


@everyday(n=(32, 2), s=(384, 4))
def grayscale_to_packed_rgba(n, s):
    def define(x):
        level = (x.clamp(0.0, 1.0) * 255.0).round().int()
        return level | (level << 8) | (level << 16) | (255 << 24)

    def eager(torch, x):
        level = (x.clamp(0, 1) * 255).round().int()
        return level | (level << 8) | (level << 16) | (255 - 256 << 24)

    return Recipe([f32(n, s, s)], define, eager)


@everyday(n=(12, 2), s=(512, 8), p=(14, 2))
def packed_frames_to_patches(n, s, p):
    side = s // p * p

    def define(pixels, mean, deviation):
        shift = ops.iota(3, 0, 8, DataType.Int32)
        cut = pixels[:, :side, :side].reshape(n, side // p, p, side // p, p).permute(0, 1, 3, 2, 4)
        colour = ((cut.unsqueeze(-1) >> shift) & 255).float() * (1 / 255)
        return ((colour - mean) / deviation).reshape(n, -1, p * p * 3).bfloat16()

    def eager(torch, pixels, mean, deviation):
        shift = torch.arange(0, 24, 8, device=pixels.device, dtype=torch.int32)
        cut = pixels[:, :side, :side].reshape(n, side // p, p, side // p, p).permute(0, 1, 3, 2, 4)
        colour = ((cut[..., None] >> shift) & 255).float() * (1 / 255)
        return ((colour - mean) / deviation).reshape(n, -1, p * p * 3).bfloat16()

    return Recipe([words(n, s, s), f32(3), f32(3, fill=POSITIVE)], define, eager)


@everyday(n=(64, 2), s=(224, 8))
def random_flip_and_brightness(n, s):
    def define(x, flipped, factor):
        back = x.index_select(ops.iota(s, s - 1, -1), 3)
        h = ops.where(flipped[:, None, None, None], back, x).float()
        return ((h * factor[:, None, None, None]).clamp(0.0, 255.0) * (1 / 255)).half()

    def eager(torch, x, flipped, factor):
        h = torch.where(flipped[:, None, None, None], x.flip(3), x).float()
        return ((h * factor[:, None, None, None]).clamp(0, 255) * (1 / 255)).half()

    return Recipe([f16(n, 3, s, s), mask(n), f32(n)], define, eager)
