"""Windows of a few pixels, with results that each of their pixels needs; edges that are reflected."""

from benchmarks.everyday.recipe import Recipe, bf16, everyday, f16, f32
from fuser import ops


@everyday(n=(16, 2), c=(64, 5), s=(112, 6))
def max_pool_2x2_backward(n, c, s):
    """Of pixels that are equally large each has the gradient."""

    def define(x, dy):
        windows = x.float().reshape(n, c, s // 2, 2, s // 2, 2)
        is_largest = windows == windows.max([3, 5], keepdim=True)
        return ops.where(is_largest, dy.float()[:, :, :, None, :, None], 0.0).reshape(n, c, s, s).half()

    def eager(torch, x, dy):
        windows = x.view(n, c, s // 2, 2, s // 2, 2)
        is_largest = windows == windows.amax((3, 5), keepdim=True)
        return torch.where(is_largest, dy[:, :, :, None, :, None], 0).view(n, c, s, s)

    return Recipe([f16(n, c, s, s), f16(n, c, s // 2, s // 2)], define, eager)


@everyday(n=(12, 2), s=(256, 6), c=(48, 5))
def details_of_a_pyramid_nhwc(n, s, c):
    def define(x):
        windows = x.float().reshape(n, s // 2, 2, s // 2, 2, c)
        return (windows - windows.mean([2, 4], keepdim=True)).reshape(n, s, s, c).bfloat16()

    def eager(torch, x):
        windows = x.float().view(n, s // 2, 2, s // 2, 2, c)
        return (windows - windows.mean((2, 4), keepdim=True)).reshape(n, s, s, c).to(x.dtype)

    return Recipe([bf16(n, s, s, c)], define, eager)


@everyday(n=(16, 2), c=(64, 3), s=(112, 6))
def softmax_of_2x2_windows(n, c, s):
    def define(x):
        windows = x.float().reshape(n, c, s // 2, 2, s // 2, 2)
        e = (windows - windows.max([3, 5], keepdim=True)).exp()
        return (e / e.sum([3, 5], keepdim=True)).reshape(n, c, s, s).half()

    def eager(torch, x):
        windows = x.float().view(n, c, s // 2, 2, s // 2, 2)
        e = (windows - windows.amax((3, 5), keepdim=True)).exp()
        return (e / e.sum((3, 5), keepdim=True)).reshape(n, c, s, s).half()

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(32, 2), c=(3, 2), s=(513, 7))
def gradients_of_reflected_image(n, c, s):
    def define(x):
        wide = ops.cat([x[..., 1:2], x, x[..., -2:-1]], 3)
        tall = ops.cat([x[:, :, 1:2], x, x[:, :, -2:-1]], 2)
        right, down = wide[..., 2:] - wide[..., :-2], tall[:, :, 2:] - tall[:, :, :-2]
        return (right * right + down * down + 1e-6).sqrt()

    def eager(torch, x):
        wide = torch.nn.functional.pad(x, (1, 1, 0, 0), mode="reflect")
        tall = torch.nn.functional.pad(x, (0, 0, 1, 1), mode="reflect")
        right, down = wide[..., 2:] - wide[..., :-2], tall[:, :, 2:] - tall[:, :, :-2]
        return torch.sqrt(right.square() + down.square() + 1e-6)

    return Recipe([f32(n, c, s, s)], define, eager)
