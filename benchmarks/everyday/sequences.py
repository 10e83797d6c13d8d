"""Signals and series: audio, windows that overlap, rolling statistics, smoothing by scans."""

import math

from benchmarks.everyday.recipe import ANGLE, POSITIVE, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


@everyday(b=(16, 2), hops=(1000, 5), hop=(256, 8))
def windowed_frames_stft(b, hops, hop):
    """Frames of two hops, every hop, times a Hann window."""

    def define(x):
        halves = x.reshape(b, hops, hop)
        frames = ops.cat([halves[:, :-1], halves[:, 1:]], 2)
        window = 0.5 - (ops.iota(2 * hop).float() * (math.pi / hop)).cos() * 0.5
        return frames * window

    def eager(torch, x):
        window = torch.hann_window(2 * hop, device=x.device, dtype=torch.float32)
        return x.unfold(1, 2 * hop, hop) * window

    return Recipe([f32(b, hops * hop)], define, eager)


@everyday(b=(16, 2), frames=(999, 5), hop=(256, 8))
def overlap_add_istft(b, frames, hop):
    def define(x, window):
        h = x * window
        first, second = h[..., :hop], h[..., hop:]
        total = ops.pad(first, [0, 0, 0, 1]) + ops.pad(second, [0, 0, 1, 0])
        weight = window[:hop] * window[:hop] + window[hop:] * window[hop:]
        return (total / weight).reshape(b, (frames + 1) * hop)

    def eager(torch, x, window):
        h = x * window
        pad = torch.nn.functional.pad
        total = pad(h[..., :hop], (0, 0, 0, 1)) + pad(h[..., hop:], (0, 0, 1, 0))
        return (total / (window[:hop].square() + window[hop:].square())).reshape(b, -1)

    return Recipe([f32(b, frames, 2 * hop), f32(2 * hop, fill=POSITIVE)], define, eager)


@everyday(b=(48, 2), n=(128, 5), t=(1407, 13))
def power_to_db_normalized(b, n, t):
    def define(x):
        db = x.abs().maximum(1e-10).log10() * 10.0
        db = db.maximum(db.max([1, 2], keepdim=True) - 80.0)
        variance, mean = db.var_mean([1, 2], correction=0, keepdim=True)
        return ((db - mean) / (variance.sqrt() + 1e-6)).half()

    def eager(torch, x):
        db = 10 * x.abs().clamp(min=1e-10).log10()
        db = torch.maximum(db, db.amax((1, 2), keepdim=True) - 80)
        return ((db - db.mean((1, 2), keepdim=True)) / (db.std((1, 2), correction=0, keepdim=True) + 1e-6)).half()

    return Recipe([f32(b, n, t)], define, eager)


@everyday(b=(96, 2), t=(160_000, 41))
def mu_law_encode(b, t):
    def define(x):
        squeezed = (x.abs().minimum(1.0) * 255.0).log1p() * (127 / math.log(256))
        return (squeezed.round() * x.sign()).int() + 128

    def eager(torch, x):
        squeezed = torch.log1p(x.abs().clamp(max=1) * 255) * (127 / math.log(256))
        return (squeezed.round() * torch.sign(x)).int() + 128

    return Recipe([f32(b, t, fill=ANGLE)], define, eager)


@everyday(b=(96, 2), t=(160_001, 41))
def mu_law_decode(b, t):
    def define(code):
        y = code.float() * (2 / 255) - 1.0
        return (y.sign() * ((y.abs() * math.log(256)).expm1() * (1 / 255))).half()

    def eager(torch, code):
        y = code.float() * (2 / 255) - 1
        return (torch.sign(y) * (torch.expm1(y.abs() * math.log(256)) / 255)).half()

    return Recipe([ids(256, b, t)], define, eager)


@everyday(b=(32, 2), n=(80, 4), t=(1999, 13))
def spec_augment(b, n, t):
    """A band of channels and one of frames set to the mean."""

    def define(x, channel, frame):
        c, at = ops.iota(n)[:, None], ops.iota(t)
        low, begin = channel[:, None, None], frame[:, None, None]
        gone = ((c >= low) & (c < low + n // 4)) | ((at >= begin) & (at < begin + t // 8))
        return ops.where(gone, x.mean([1, 2], keepdim=True), x)

    def eager(torch, x, channel, frame):
        c, at = torch.arange(n, device=x.device)[:, None], torch.arange(t, device=x.device)
        low, begin = channel[:, None, None], frame[:, None, None]
        gone = ((c >= low) & (c < low + n // 4)) | ((at >= begin) & (at < begin + t // 8))
        return torch.where(gone, x.mean((1, 2), keepdim=True), x)

    return Recipe([f32(b, n, t), ids(n, b), ids(t, b)], define, eager)


@everyday(b=(32, 2), c=(80, 3), t=(1501, 13))
def deltas_of_features(b, c, t):
    """Regression over five frames, at the edges of the nearest one, below the features themselves."""

    def define(x):
        first, last = x[..., :1].expand(b, c, 2), x[..., -1:].expand(b, c, 2)
        h = ops.cat([first, x, last], 2)
        delta = (h[..., 3:-1] - h[..., 1:-3] + (h[..., 4:] - h[..., :-4]) * 2.0) * 0.1
        return ops.cat([x, delta], 1)

    def eager(torch, x):
        h = torch.nn.functional.pad(x, (2, 2), mode="replicate")
        delta = (h[..., 3:-1] - h[..., 1:-3] + (h[..., 4:] - h[..., :-4]) * 2) * 0.1
        return torch.cat((x, delta), 1)

    return Recipe([f32(b, c, t)], define, eager)


@everyday(b=(8191, 5), t=(1023, 33), lag=(7, 2))
def lagged_differences(b, t, lag):
    def define(x):
        last = x[:, lag:]
        return last - x[:, lag - 1 : -1], last - x[:, :-lag], (last / x[:, :-lag]).log()

    def eager(torch, x):
        last = x[:, lag:]
        return last - x[:, lag - 1 : -1], last - x[:, :-lag], torch.log(last / x[:, :-lag])

    return Recipe([f32(b, t, fill=POSITIVE)], define, eager)


@everyday(m=(30011, 5), t=(720, 19))
def instance_standardized_series(m, t):
    """RevIN with the last value in place of the mean."""

    def define(x, w, b):
        variance = x.var(1, correction=0, keepdim=True)
        last = x[:, t - 1 :]
        scale = (variance + 1e-5).sqrt()
        return (x - last) / scale * w + b, last, scale

    def eager(torch, x, w, b):
        scale = torch.sqrt(x.var(1, correction=0, keepdim=True) + 1e-5)
        return (x - x[:, -1:]) / scale * w + b, x[:, -1:].clone(), scale

    return Recipe([f32(m, t), f32(1, fill=POSITIVE), f32(1)], define, eager)


@everyday(b=(64, 2), t=(336, 17), c=(321, 5), window=(25, 5))
def trend_and_season_autoformer(b, t, c, window):
    """A moving average along the middle dim with its ends repeated, by running sums."""
    side = window // 2

    def define(x):
        first, last = x[:, :1].expand(b, side, c), x[:, -1:].expand(b, side, c)
        sums = ops.pad(ops.cat([first, x, last], 1), [0, 0, 1, 0]).double().cumsum(1)
        trend = ((sums[:, window:] - sums[:, :t]) * (1 / window)).float()
        return trend, x - trend

    def eager(torch, x):
        h = torch.cat((x[:, :1].expand(-1, side, -1), x, x[:, -1:].expand(-1, side, -1)), 1)
        sums = torch.cumsum(torch.nn.functional.pad(h, (0, 0, 1, 0)).double(), 1)
        trend = ((sums[:, window:] - sums[:, :-window]) / window).float()
        return trend, x - trend

    return Recipe([f32(b, t, c)], define, eager)


@everyday(m=(16411, 5), t=(512, 19))
def exponential_smoothing(m, t):
    """s[t] = 0.98 s[t-1] + 0.02 x[t], as a running sum of x[t] / 0.98**t."""

    def define(x):
        growth = ((ops.iota(t).float() - t / 2) * math.log(0.98)).exp()
        return growth * (x / growth).cumsum(1) * 0.02

    def eager(torch, x):
        growth = torch.exp((torch.arange(t, device=x.device).float() - t / 2) * math.log(0.98))
        return growth * torch.cumsum(x / growth, 1) * 0.02

    return Recipe([f32(m, t, fill=POSITIVE)], define, eager)


@everyday(b=(2048, 3), t=(1024, 17))
def generalized_advantages(b, t):
    """Discounted sums from the end: the rows are turned around, summed, and turned back."""

    def define(reward, value, following):
        delta = reward + following * 0.99 - value
        back = ops.iota(t, t - 1, -1)
        weight = ((ops.iota(t).float() - t / 2) * math.log(0.99 * 0.95)).exp()
        turned = delta.index_select(back, 1)
        advantage = (weight * (turned / weight).cumsum(1)).index_select(back, 1)
        return advantage, advantage + value

    def eager(torch, reward, value, following):
        delta = reward + 0.99 * following - value
        at = torch.arange(t, device=value.device).float()
        weight = torch.exp((at - t / 2) * math.log(0.99 * 0.95))
        advantage = (weight * torch.cumsum(delta.flip(1) / weight, 1)).flip(1)
        return advantage, advantage + value

    return Recipe([f32(b, t), f32(b, t), f32(b, t)], define, eager)


@everyday(b=(4099, 3), t=(1000, 17))
def forward_fill_positions(b, t):
    """Of every step, that of the last one known, and its value."""

    def define(x, known):
        at = ops.where(known, ops.iota(t), 0)
        last = at.cummax(1)
        return x.take_along_axis(last, 1), (ops.iota(t) - last).float()

    def eager(torch, x, known):
        at = torch.arange(t, device=x.device)
        last = torch.cummax(torch.where(known, at, 0), 1).values
        return x.gather(1, last), (at - last).float()

    return Recipe([f32(b, t), mask(b, t)], define, eager)


@everyday(b=(64, 2), c=(512, 5), t=(499, 9))
def conv_features_norm_gelu_wav2vec(b, c, t):
    def define(x, w, beta):
        h = x.float()
        variance, mean = h.var_mean(1, correction=0, keepdim=True)
        y = (h - mean) * (variance + 1e-5).rsqrt() * w.float()[:, None] + beta.float()[:, None]
        return (y * 0.5 * ((y * math.sqrt(0.5)).erf() + 1.0)).half()

    def eager(torch, x, w, beta):
        y = torch.nn.functional.layer_norm(x.float().transpose(1, 2), (c,), w.float(), beta.float())
        return torch.nn.functional.gelu(y).transpose(1, 2).half()

    return Recipe([f16(b, c, t), f16(c, fill=POSITIVE), f16(c)], define, eager)


@everyday(b=(32, 2), t=(1500, 7), d=(768, 5))
def stack_and_skip_frames(b, t, d):
    """Four frames become one, as before a speech encoder."""

    def define(x, w):
        h = x.float().reshape(b, t // 2, 2 * d)
        rstd = ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt()
        return (h * rstd * w.float()).bfloat16()

    def eager(torch, x, w):
        h = x.reshape(b, t // 2, 2 * d)
        return torch.nn.functional.rms_norm(h, (2 * d,), w, 1e-6)

    return Recipe([bf16(b, t // 2 * 2, d), bf16(2 * d, fill=POSITIVE)], define, eager)
