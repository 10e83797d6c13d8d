"""Gradients of normalisations."""

from benchmarks.everyday.recipe import ANGLE, CHANNELS_LAST, POSITIVE, SHIFTED, Recipe, bf16, everyday, f16, f32


@everyday(m=(4097, 9), n=(3072, 33))
def rmsnorm_backward(m, n):
    def define(dy, x, w, rstd):
        g, y = dy.float(), x.float() * rstd
        gw = g * w.float()
        return (rstd * (gw - y * (gw * y).mean(-1, keepdim=True))).bfloat16(), (g * y).sum(0).bfloat16()

    def eager(torch, dy, x, w, rstd):
        g, y = dy.float(), x.float() * rstd
        gw = g * w.float()
        dx = rstd * (gw - y * (gw * y).mean(-1, keepdim=True))
        return dx.to(x.dtype), (g * y).sum(0).to(w.dtype)

    return Recipe([bf16(m, n), bf16(m, n), bf16(n, fill=SHIFTED), f32(m, 1, fill=POSITIVE)], define, eager)


@everyday(m=(6151, 9), n=(1600, 20))
def layernorm_backward_gpt2(m, n):
    def define(dy, x, w, mean, rstd):
        g, y = dy.float(), (x.float() - mean) * rstd
        gw = g * w.float()
        dx = rstd * (gw - gw.mean(-1, keepdim=True) - y * (gw * y).mean(-1, keepdim=True))
        return dx.half(), (g * y).sum(0).half(), g.sum(0).half()

    def eager(torch, dy, x, w, mean, rstd):
        g, y = dy.float(), (x.float() - mean) * rstd
        gw = g * w.float()
        dx = rstd * (gw - gw.mean(-1, keepdim=True) - y * (gw * y).mean(-1, keepdim=True))
        return dx.half(), (g * y).sum(0).half(), g.sum(0).half()

    statistics = [f32(m, 1, fill=ANGLE), f32(m, 1, fill=POSITIVE)]
    return Recipe([f16(m, n, fill=SHIFTED), f16(m, n), f16(n, fill=SHIFTED), *statistics], define, eager)


@everyday(n=(32, 2), c=(128, 6), s=(57, 5))
def batchnorm_backward_nhwc(n, c, s):
    def define(dy, x, w, mean, rstd):
        g, y = dy.float(), (x.float() - mean[:, None, None]) * rstd[:, None, None]
        dw, db = (g * y).sum([0, 2, 3]), g.sum([0, 2, 3])
        count = n * s * s
        dx = (w * rstd)[:, None, None] * (g - (db[:, None, None] + y * dw[:, None, None]) / count)
        return dx.half(), dw, db

    def eager(torch, dy, x, w, mean, rstd):
        every = [True, True, True]
        return torch.ops.aten.native_batch_norm_backward(dy, x, w, None, None, mean, rstd, True, 1e-5, every)

    pixels = f16(n, c, s, s, order=CHANNELS_LAST)
    vectors = [f32(c, fill=SHIFTED), f32(c, fill=ANGLE), f32(c, fill=POSITIVE)]
    return Recipe([pixels, pixels, *vectors], define, eager)


@everyday(n=(4, 2), c=(320, 8), s=(61, 5), groups=(32, 4))
def groupnorm_backward_unet(n, c, s, groups):
    count = c // groups * s * s

    def define(dy, x, w, mean, rstd):
        shape = (n, groups, c // groups, s * s)
        g, h = dy.float().reshape(*shape), x.float().reshape(*shape)
        weight = w.float().reshape(groups, -1, 1)
        mean, rstd = mean[..., None, None], rstd[..., None, None]
        y = (h - mean) * rstd
        gw = g * weight
        total, along = gw.sum([2, 3], keepdim=True), (gw * y).sum([2, 3], keepdim=True)
        dx = (gw - (total + y * along) / count) * rstd
        dw, db = (g * y).sum([0, 3]).reshape(c), g.sum([0, 3]).reshape(c)
        return dx.reshape(n, c, s, s), dw, db

    def eager(torch, dy, x, w, mean, rstd):
        every = [True, True, True]
        return torch.ops.aten.native_group_norm_backward(dy, x, mean, rstd, w, n, c, s * s, groups, every)

    statistics = [f32(n, groups, fill=ANGLE), f32(n, groups, fill=POSITIVE)]
    return Recipe([f32(n, c, s, s), f32(n, c, s, s), f32(c, fill=SHIFTED), *statistics], define, eager)
