"""Windows on images: pooling and its strides, interpolation, patches of neighbours, filters of a few taps."""

from benchmarks.everyday.recipe import CHANNELS_LAST, Recipe, bf16, everyday, f16, f32
from fuser import ops


@everyday(n=(16, 2), c=(256, 3), s=(37, 5))
def upsample_bilinear(n, c, s):
    def doubled(h, dim):
        low, rest = [slice(None)] * 4, [slice(None)] * 4
        low[dim], rest[dim] = slice(0, 1), slice(0, -1)
        before = ops.cat([h[tuple(low)], h[tuple(rest)]], dim)
        low[dim], rest[dim] = slice(-1, None), slice(1, None)
        after = ops.cat([h[tuple(rest)], h[tuple(low)]], dim)
        pair = [(h * 0.75 + near * 0.25).unsqueeze(dim + 1) for near in (before, after)]
        return ops.cat(pair, dim + 1)

    def define(x):
        h = doubled(x.float(), 2).reshape(n, c, 2 * s, s)
        return doubled(h, 3).reshape(n, c, 2 * s, 2 * s).bfloat16()

    def eager(torch, x):
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(12, 2), c=(128, 3), s=(64, 5))
def upsample_bilinear_backward(n, c, s):
    def halved(g):
        """Along the last dim but one, of pairs."""
        even, odd = g[..., 0], g[..., 1]
        after = ops.cat([even[..., 1:], odd[..., -1:]], -1)
        before = ops.cat([even[..., :1], odd[..., :-1]], -1)
        return (even + odd) * 0.75 + (after + before) * 0.25

    def define(dy):
        columns = halved(dy.reshape(n, c, 2 * s, s, 2))
        rows = halved(columns.transpose(2, 3).reshape(n, c, s, s, 2))
        return rows.transpose(2, 3)

    def eager(torch, dy):
        return torch.ops.aten.upsample_bilinear2d_backward(dy, [2 * s, 2 * s], [n, c, s, s], False)

    return Recipe([f32(n, c, 2 * s, 2 * s)], define, eager)


@everyday(n=(32, 2), c=(64, 5), s=(112, 6))
def max_pool_stem_nhwc(n, c, s):
    half = s // 2

    def define(x):
        pairs = ops.pad(x, [1, 1, 1, 1], float("-inf")).reshape(n, c, half + 1, 2, half + 1, 2)
        rows = pairs[:, :, :half].max(3).maximum(pairs[:, :, 1:, 0])
        return rows[:, :, :, :half].max(4).maximum(rows[:, :, :, 1:, 0]).half()

    def eager(torch, x):
        return torch.nn.functional.max_pool2d(x, 3, 2, 1)

    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST)], define, eager)


@everyday(n=(16, 2), c=(192, 5), s=(57, 5))
def average_pool_3x3_stride_2(n, c, s):
    half = s // 2 + 1

    def define(x):
        pairs = ops.pad(x.float(), [1, 2, 1, 2]).reshape(n, c, half + 1, 2, half + 1, 2)
        rows = pairs[:, :, :half].sum(3) + pairs[:, :, 1:, 0]
        return ((rows[:, :, :, :half].sum(4) + rows[:, :, :, 1:, 0]) * (1 / 9)).bfloat16()

    def eager(torch, x):
        return torch.nn.functional.avg_pool2d(x, 3, 2, 1)

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(32, 2), c=(96, 3), s=(56, 5))
def pool_mixer_poolformer(n, c, s):
    def along(h, dim):
        if dim == 3:
            padded = ops.pad(h, [1, 1])
            return padded[..., :-2] + padded[..., 1:-1] + padded[..., 2:]
        padded = ops.pad(h, [0, 0, 1, 1])
        return padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]

    def define(x):
        h = x.float()
        at = ops.iota(s)
        inside = ops.where((at == 0) | (at == s - 1), 2.0, 3.0).float()
        mean = along(along(h, 3), 2) / (inside[:, None] * inside)
        return (mean - h).half()

    def eager(torch, x):
        h = x.float()
        return (torch.nn.functional.avg_pool2d(h, 3, 1, 1, count_include_pad=False) - h).half()

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(8, 2), c=(64, 3), s=(55, 5))
def unfold_3x3(n, c, s):
    def define(x):
        padded = ops.pad(x, [1, 1, 1, 1])
        shifts = [(i, j) for i in range(3) for j in range(3)]
        parts = [padded[:, :, i : i + s, j : j + s].unsqueeze(2) for i, j in shifts]
        return ops.cat(parts, 2).reshape(n, 9 * c, s * s)

    def eager(torch, x):
        return torch.nn.functional.unfold(x, 3, padding=1)

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(4, 2), s=(56, 5), c=(128, 6), k=(3, 3))
def neighbourhood_keys_nhwc(n, s, c, k):
    """Keys of each pixel's 3x3 neighbourhood, one below another."""

    def define(x, bias):
        padded = ops.pad(x, [0, 0, 1, 1, 1, 1])
        parts = [padded[:, i : i + s, j : j + s].unsqueeze(3) for i in range(k) for j in range(k)]
        return (ops.cat(parts, 3).float() + bias.float()).bfloat16()

    def eager(torch, x, bias):
        padded = torch.nn.functional.pad(x, (0, 0, 1, 1, 1, 1))
        windows = padded.unfold(1, k, 1).unfold(2, k, 1).permute(0, 1, 2, 4, 5, 3)
        return windows.reshape(n, s, s, k * k, c) + bias

    return Recipe([bf16(n, s, s, c), bf16(k * k, c)], define, eager)


@everyday(n=(32, 2), c=(96, 7), s=(55, 4))
def local_response_norm_alexnet(n, c, s):
    def define(x):
        square = ops.pad(x * x, [0, 0, 0, 0, 2, 2])
        total = square[:, :c]
        for k in range(1, 5):
            total = total + square[:, k : k + c]
        return x / (total * (1e-4 / 5) + 2.0) ** 0.75

    def eager(torch, x):
        return torch.nn.functional.local_response_norm(x, 5, 1e-4, 0.75, 2.0)

    return Recipe([f32(n, c, s, s)], define, eager)


@everyday(n=(16, 2), c=(128, 3), s=(66, 6))
def blur_pool_reflected(n, c, s):
    half = s // 2

    def define(x):
        h = x.float()
        h = ops.cat([h[:, :, 1:2], h, h[:, :, -2:-1]], 2)
        h = ops.cat([h[..., 1:2], h, h[..., -2:-1]], 3)
        pairs = h.reshape(n, c, half + 1, 2, s + 2)
        rows = pairs[:, :, :half, 0] + pairs[:, :, :half, 1] * 2.0 + pairs[:, :, 1:, 0]
        pairs = rows.reshape(n, c, half, half + 1, 2)
        return ((pairs[..., :half, 0] + pairs[..., :half, 1] * 2.0 + pairs[..., 1:, 0]) * (1 / 16)).half()

    def eager(torch, x):
        h = torch.nn.functional.pad(x.float(), (1, 1, 1, 1), mode="reflect")
        rows = h[:, :, :-2:2] + 2 * h[:, :, 1:-1:2] + h[:, :, 2::2]
        return ((rows[..., :-2:2] + 2 * rows[..., 1:-1:2] + rows[..., 2::2]) / 16).half()

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(8, 2), s=(180, 5), c=(3, 3), r=(4, 2))
def depth_to_space_nhwc_superres(n, s, c, r):
    def define(x, base):
        h = x.float().reshape(n, s, s, r, r, c).permute(0, 1, 3, 2, 4, 5)
        return (h.reshape(n, s * r, s * r, c) + base.float()).clamp(0.0, 1.0).half()

    def eager(torch, x, base):
        h = x.float().view(n, s, s, r, r, c).permute(0, 1, 3, 2, 4, 5).reshape(n, s * r, s * r, c)
        return (h + base.float()).clamp(0, 1).half()

    return Recipe([f16(n, s, s, r * r * c), f16(n, s * r, s * r, c)], define, eager)


@everyday(n=(32, 2), c=(256, 5), s=(28, 4))
def channel_mean_and_max_cbam(n, c, s):
    def define(x):
        h = x.float()
        return ops.cat([h.mean(1, keepdim=True), h.max(1, keepdim=True)], 1).bfloat16()

    def eager(torch, x):
        h = x.float()
        return torch.cat((h.mean(1, keepdim=True), h.amax(1, keepdim=True)), 1).to(x.dtype)

    return Recipe([bf16(n, c, s, s)], define, eager)


@everyday(n=(24, 2), s=(511, 7))
def sobel_edges(n, s):
    def define(x):
        h = x[:, 0] * 0.299 + x[:, 1] * 0.587 + x[:, 2] * 0.114
        wide = h[:, :-2] + h[:, 1:-1] * 2.0 + h[:, 2:]
        tall = h[..., :-2] + h[..., 1:-1] * 2.0 + h[..., 2:]
        right, down = wide[..., 2:] - wide[..., :-2], tall[:, 2:] - tall[:, :-2]
        return (right * right + down * down + 1e-6).sqrt()

    def eager(torch, x):
        h = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
        wide = h[:, :-2] + 2 * h[:, 1:-1] + h[:, 2:]
        tall = h[..., :-2] + 2 * h[..., 1:-1] + h[..., 2:]
        right, down = wide[..., 2:] - wide[..., :-2], tall[:, 2:] - tall[:, :-2]
        return torch.sqrt(right.square() + down.square() + 1e-6)

    return Recipe([f32(n, 3, s, s)], define, eager)
