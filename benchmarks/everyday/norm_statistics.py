"""Normalisations over other dims, their running statistics, and more of their gradients."""

from benchmarks.everyday.recipe import ANGLE, CHANNELS_LAST, POSITIVE, SHIFTED, Recipe, bf16, everyday, f16, f32, mask


@everyday(n=(8, 2), c=(512, 7), s=(65, 4))
def pixelnorm_leaky_progan(n, c, s):
    def define(x):
        h = x.float()
        h = h * ((h * h).mean(1, keepdim=True) + 1e-8).rsqrt()
        return h.maximum(h * 0.2).half()

    def eager(torch, x):
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(1, keepdim=True) + 1e-8)
        return torch.nn.functional.leaky_relu(h, 0.2).half()

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(12, 2), c=(128, 6), s=(96, 5))
def instancenorm_relu_nhwc(n, c, s):
    def define(x, w, b):
        variance, mean = x.float().var_mean([2, 3], correction=0, keepdim=True)
        h = (x.float() - mean) * (variance + 1e-5).rsqrt()
        return (h * w[:, None, None] + b[:, None, None]).relu().bfloat16()

    def eager(torch, x, w, b):
        return torch.relu(torch.nn.functional.instance_norm(x.float(), weight=w, bias=b)).bfloat16()

    return Recipe([bf16(n, c, s, s, order=CHANNELS_LAST), f32(c, fill=SHIFTED), f32(c)], define, eager)


@everyday(n=(16, 2), c=(192, 5), s=(64, 5))
def adaptive_instance_norm(n, c, s):
    """AdaIN: the statistics of one picture given to another."""

    def define(x, style):
        v, m = x.float().var_mean([2, 3], keepdim=True)
        sv, sm = style.float().var_mean([2, 3], keepdim=True)
        return ((x.float() - m) * ((sv + 1e-5) / (v + 1e-5)).sqrt() + sm).half()

    def eager(torch, x, style):
        v, m = torch.var_mean(x.float(), (2, 3), keepdim=True)
        sv, sm = torch.var_mean(style.float(), (2, 3), keepdim=True)
        return ((x.float() - m) * torch.sqrt((sv + 1e-5) / (v + 1e-5)) + sm).half()

    return Recipe([f16(n, c, s, s), f16(n, c, s, s, fill=SHIFTED)], define, eager)


@everyday(m=(16385, 33), n=(1000, 9))
def batchnorm1d_train(m, n):
    def define(x, w, b, mean, variance):
        v, mu = x.var_mean(0, correction=0)
        y = (x - mu) * (v + 1e-5).rsqrt() * w + b
        return y, mean * 0.9 + mu * 0.1, variance * 0.9 + v * (0.1 * m / (m - 1))

    def eager(torch, x, w, b, mean, variance):
        v, mu = torch.var_mean(x, 0, correction=0)
        y = (x - mu) * torch.rsqrt(v + 1e-5) * w + b
        return y, mean * 0.9 + mu * 0.1, variance * 0.9 + v * (0.1 * m / (m - 1))

    vectors = [f32(n, fill=SHIFTED), f32(n), f32(n), f32(n, fill=POSITIVE)]
    return Recipe([f32(m, n), *vectors], define, eager)


@everyday(m=(40961, 33), n=(512, 9))
def batchnorm1d_backward_bf16(m, n):
    def define(dy, x, w, mean, rstd):
        g, y = dy.float(), (x.float() - mean) * rstd
        dw, db = (g * y).sum(0), g.sum(0)
        return ((g - (db + y * dw) * (1 / m)) * (w * rstd)).bfloat16(), dw, db

    def eager(torch, dy, x, w, mean, rstd):
        g, y = dy.float(), (x.float() - mean) * rstd
        dw, db = (g * y).sum(0), g.sum(0)
        return ((g - (db + y * dw) / m) * (w * rstd)).bfloat16(), dw, db

    vectors = [f32(n, fill=SHIFTED), f32(n, fill=ANGLE), f32(n, fill=POSITIVE)]
    return Recipe([bf16(m, n, fill=SHIFTED), bf16(m, n), *vectors], define, eager)


@everyday(n=(24, 2), c=(128, 6), s=(75, 5))
def sync_batchnorm_local_statistics(n, c, s):
    def define(x):
        h = x.float()
        return h.sum([0, 2, 3]), (h * h).sum([0, 2, 3])

    def eager(torch, x):
        h = x.float()
        return h.sum((0, 2, 3)), h.square().sum((0, 2, 3))

    return Recipe([f16(n, c, s, s)], define, eager)


@everyday(n=(12, 2), c=(256, 6), s=(60, 5), world=(8, 3))
def sync_batchnorm_normalize_nhwc(n, c, s, world):
    def define(x, means, variances, w, b):
        mean = means.mean(0)
        apart = means - mean
        variance = variances.mean(0) + (apart * apart).mean(0)
        scale = (variance + 1e-5).rsqrt() * w
        h = (x.float() - mean[:, None, None]) * scale[:, None, None] + b[:, None, None]
        return h.relu().half(), mean, variance

    def eager(torch, x, means, variances, w, b):
        mean = means.mean(0)
        variance = variances.mean(0) + (means - mean).square().mean(0)
        scale = torch.rsqrt(variance + 1e-5) * w
        h = (x.float() - mean[:, None, None]) * scale[:, None, None] + b[:, None, None]
        return torch.relu(h).half(), mean, variance

    of_ranks = [f32(world, c), f32(world, c, fill=POSITIVE)]
    return Recipe([f16(n, c, s, s, order=CHANNELS_LAST), *of_ranks, f32(c, fill=SHIFTED), f32(c)], define, eager)


@everyday(n=(2049, 5), a=(17, 3), b=(257, 5))
def layernorm_of_two_dims(n, a, b):
    def define(x, w, beta):
        variance, mean = x.float().var_mean([1, 2], correction=0, keepdim=True)
        return ((x.float() - mean) * (variance + 1e-5).rsqrt() * w.float() + beta.float()).half()

    def eager(torch, x, w, beta):
        return torch.nn.functional.layer_norm(x, (a, b), w, beta)

    return Recipe([f16(n, a, b), f16(a, b, fill=SHIFTED), f16(a, b)], define, eager)


@everyday(m=(5003, 7), n=(2050, 19))
def rmsnorm_backward_f32_recomputed(m, n):
    def define(dy, x, w):
        rstd = ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt()
        y = x * rstd
        g = dy * w
        return rstd * (g - y * (g * y).mean(-1, keepdim=True)), (dy * y).sum(0)

    def eager(torch, dy, x, w):
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        y = x * rstd
        g = dy * w
        return rstd * (g - y * (g * y).mean(-1, keepdim=True)), (dy * y).sum(0)

    return Recipe([f32(m, n), f32(m, n), f32(n, fill=SHIFTED)], define, eager)


@everyday(b=(2, 1), s=(2047, 5), h=(20, 3), d=(128, 8))
def qk_norm_backward(b, s, h, d):
    def define(dy, x, w):
        g, x = dy.float(), x.float()
        rstd = ((x * x).mean(-1, keepdim=True) + 1e-6).rsqrt()
        y = x * rstd
        gw = g * w.float()
        return (rstd * (gw - y * (gw * y).mean(-1, keepdim=True))).bfloat16(), (g * y).sum([0, 1, 2])

    def eager(torch, dy, x, w):
        g, x = dy.float(), x.float()
        rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        y = x * rstd
        gw = g * w.float()
        return (rstd * (gw - y * (gw * y).mean(-1, keepdim=True))).bfloat16(), (g * y).sum((0, 1, 2))

    return Recipe([bf16(b, s, h, d), bf16(b, s, h, d), bf16(d, fill=SHIFTED)], define, eager)


@everyday(a=(33, 3), b=(1025, 5), c=(1152, 9))
def adaln_modulate_backward(a, b, c):
    def define(dy, y, scale):
        g, y = dy.float(), y.float()
        return (g * (scale.float() + 1.0)[:, None]).bfloat16(), (g * y).sum(1).bfloat16(), g.sum(1).bfloat16()

    def eager(torch, dy, y, scale):
        g, y = dy.float(), y.float()
        return (g * (1 + scale.float())[:, None]).bfloat16(), (g * y).sum(1).bfloat16(), g.sum(1).bfloat16()

    return Recipe([bf16(a, b, c, fill=SHIFTED), bf16(a, b, c, fill=SHIFTED), bf16(a, c)], define, eager)


@everyday(m=(4096, 7), n=(4608, 19))
def weight_norm_backward(m, n):
    def define(dw, v, gain):
        length = (v * v).sum(1, keepdim=True).sqrt()
        unit = v / length
        dg = (dw * unit).sum(1, keepdim=True)
        return (dw - unit * dg) * (gain / length), dg

    def eager(torch, dw, v, gain):
        length = v.norm(dim=1, keepdim=True)
        unit = v / length
        dg = (dw * unit).sum(1, keepdim=True)
        return (dw - unit * dg) * (gain / length), dg

    return Recipe([f32(m, n), f32(m, n), f32(m, 1, fill=POSITIVE)], define, eager)


@everyday(m=(2048, 7), n=(4608, 19))
def spectral_norm_step(m, n):
    """One power iteration by rows and columns, with the products done here."""

    def define(w, u):
        v = (w * u[:, None]).sum(0)
        v = v / (v * v).sum().sqrt().maximum(1e-12)
        t = (w * v).sum(1)
        sigma = (t * t).sum().sqrt()
        return w / sigma, t / sigma, v

    def eager(torch, w, u):
        v = torch.nn.functional.normalize((w * u[:, None]).sum(0), dim=0)
        t = (w * v).sum(1)
        return w / t.norm(), t / t.norm(), v

    return Recipe([f32(m, n), f32(m)], define, eager)


@everyday(b=(48, 2), t=(801, 9), d=(512, 5))
def masked_batchnorm_statistics(b, t, d):
    """Over the frames that are there, as for speech of several lengths."""

    def define(x, there):
        kept = there.float().unsqueeze(-1)
        count = kept.sum()
        h = x.float()
        mean = (h * kept).sum([0, 1]) / count
        apart = (h - mean) * kept
        variance = (apart * apart).sum([0, 1]) / count
        return (apart * (variance + 1e-5).rsqrt()).half(), mean, variance

    def eager(torch, x, there):
        kept = there.float()[..., None]
        h = x.float()
        mean = (h * kept).sum((0, 1)) / kept.sum()
        apart = (h - mean) * kept
        variance = apart.square().sum((0, 1)) / kept.sum()
        return (apart * torch.rsqrt(variance + 1e-5)).half(), mean, variance

    return Recipe([f16(b, t, d), mask(b, t)], define, eager)
