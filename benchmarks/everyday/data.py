"""Data preparation: statistics, layouts, running sums, masks, embeddings."""

from benchmarks.everyday.recipe import POSITIVE, SHIFTED, Recipe, bf16, everyday, f16, f32, ids, mask
from fuser import ops


@everyday(a=(96, 3), b=(1009, 17), c=(770, 5))
def std_mean_middle(a, b, c):
    def define(x):
        variance, mean = x.float().var_mean(1)
        return variance.sqrt(), mean

    def eager(torch, x):
        return torch.std_mean(x.float(), 1)

    return Recipe([bf16(a, b, c)], define, eager)


@everyday(a=(131, 3), b=(517, 5), c=(1031, 7))
def transpose_201(a, b, c):
    def define(x):
        return (x.permute(2, 0, 1) * 0.5).stride_order([2, 1, 0])

    def eager(torch, x):
        return (x.permute(2, 0, 1) * 0.5).contiguous()

    return Recipe([f32(a, b, c)], define, eager)


@everyday(a=(259, 3), b=(1031, 7), c=(515, 5))
def transpose_021_add(a, b, c):
    def define(x, y):
        return (x.transpose(1, 2).float() + y.float()).half().stride_order([2, 1, 0])

    def eager(torch, x, y):
        return (x.transpose(1, 2) + y).contiguous()

    return Recipe([f16(a, b, c), f16(a, c, b)], define, eager)


@everyday(m=(5003, 37), n=(6007, 11))
def cumsum_outer(m, n):
    return Recipe([f32(m, n)], lambda x: x.cumsum(0), lambda torch, x: torch.cumsum(x, 0))


@everyday(m=(65537, 3), n=(32771, 5))
def affine_over_2e31(m, n):
    def define(x, b):
        return (x.float() * 2.0 + b.float()).bfloat16()

    def eager(torch, x, b):
        return x * 2 + b

    return Recipe([bf16(m, n), bf16(n)], define, eager, by_rows=True)


@everyday(m=(1_000_003, 31), n=(123, 9))
def standardize_columns(m, n):
    def define(x):
        variance, mean = x.var_mean(0, correction=0, keepdim=True)
        return (x - mean) / (variance.sqrt() + 1e-6)

    def eager(torch, x):
        variance, mean = torch.var_mean(x, 0, correction=0, keepdim=True)
        return (x - mean) / (variance.sqrt() + 1e-6)

    return Recipe([f32(m, n)], define, eager)


@everyday(m=(300007, 31), n=(257, 9))
def min_max_scale_columns(m, n):
    def define(x):
        low, high = x.min(0, keepdim=True), x.max(0, keepdim=True)
        return ((x - low) / (high - low)).half()

    def eager(torch, x):
        low, high = x.aminmax(dim=0, keepdim=True)
        return ((x - low) / (high - low)).half()

    return Recipe([f32(m, n)], define, eager)


@everyday(m=(262147, 7), dense=(13, 5), sparse=(26, 3), d=(16, 4))
def dlrm_dense_features(m, dense, sparse, d):
    def define(x, embedded):
        logged = x.maximum(0.0).log1p().bfloat16()
        return ops.cat([logged, embedded.reshape(m, sparse * d)], 1)

    def eager(torch, x, embedded):
        return torch.cat((torch.log1p(x.clamp(min=0)).bfloat16(), embedded.flatten(1)), 1)

    return Recipe([f32(m, dense), bf16(m, sparse, d)], define, eager)


@everyday(m=(500009, 7), n=(96, 9))
def impute_and_clip(m, n):
    def define(x, known, mean):
        filled = ops.where(known, x, mean)
        return filled.clamp(-3.0, 3.0), known.long().sum(0)

    def eager(torch, x, known, mean):
        return torch.where(known, x, mean).clamp(-3, 3), known.sum(0)

    return Recipe([f32(m, n), mask(m, n), f32(n)], define, eager)


@everyday(m=(65539, 7), n=(1000, 21))
def one_hot_smoothed(m, n):
    def define(label):
        return ops.where(ops.iota(n) == label[:, None], 0.9 + 0.1 / n, 0.1 / n).bfloat16()

    def eager(torch, label):
        hot = torch.nn.functional.one_hot(label, n)
        return (hot * 0.9 + 0.1 / n).bfloat16()

    return Recipe([ids(n, m)], define, eager)


@everyday(b=(64, 2), s=(511, 5), v=(30522, 40), d=(768, 12))
def bert_embeddings(b, s, v, d):
    def define(token, kind, words, positions, kinds, w, beta):
        x = ops.embedding_fwd(token, words).float() + ops.embedding_fwd(kind, kinds).float()
        x = x + positions[:s].float()
        variance, mean = x.var_mean(-1, correction=0, keepdim=True)
        return ((x - mean) * (variance + 1e-12).rsqrt() * w.float() + beta.float()).half()

    def eager(torch, token, kind, words, positions, kinds, w, beta):
        x = words[token] + kinds[kind] + positions[:s]
        return torch.nn.functional.layer_norm(x, (d,), w, beta, 1e-12)

    inputs = [ids(v, b, s), ids(2, b, s), f16(v, d), f16(512, d), f16(2, d), f16(d, fill=SHIFTED), f16(d)]
    rows = min(v, b * s) + s + 2 + 2
    return Recipe(inputs, define, eager, read_bytes=2 * 8 * b * s + 2 * d * rows)


@everyday(m=(16385, 7), v=(128256, 40), d=(4096, 16))
def embedding_scaled(m, v, d):
    def define(token, table):
        return (table.index_select(token, 0).float() * d**0.5).bfloat16()

    def eager(torch, token, table):
        return table[token] * d**0.5

    return Recipe([ids(v, m), bf16(v, d)], define, eager, read_bytes=m * (8 + 2 * d))


@everyday(b=(129, 3), s=(512, 7), d=(384, 10))
def masked_mean_pooling(b, s, d):
    def define(x, keep):
        kept = keep.float()
        pooled = (x.float() * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).maximum(1e-9)
        return (pooled / (pooled * pooled).sum(-1, keepdim=True).sqrt().maximum(1e-12)).half()

    def eager(torch, x, keep):
        kept = keep.float()
        pooled = (x.float() * kept[..., None]).sum(1) / kept.sum(1, keepdim=True).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=-1).half()

    return Recipe([f16(b, s, d), mask(b, s)], define, eager)


@everyday(b=(257, 3), s=(2049, 11))
def causal_padding_bias(b, s):
    def define(length):
        at = ops.iota(s)
        valid = at < length[:, None]
        position = ops.where(valid, at, 0)
        return ops.where(valid, 0.0, -65504.0).half(), position

    def eager(torch, length):
        at = torch.arange(s, device=length.device)
        valid = at < length[:, None]
        return torch.where(valid, 0.0, -65504.0).half(), torch.where(valid, at, 0)

    return Recipe([ids(s, b)], define, eager)


@everyday(b=(32, 2), mels=(80, 5), t=(3001, 13))
def log_mel_whisper(b, mels, t):
    def define(power):
        log = power.abs().maximum(1e-10).log10()
        return (log.maximum(log.max([1, 2], keepdim=True) - 8.0) + 4.0) * 0.25

    def eager(torch, power):
        log = power.abs().clamp(min=1e-10).log10()
        return (torch.maximum(log, log.amax((1, 2), keepdim=True) - 8) + 4) / 4

    return Recipe([f32(b, mels, t)], define, eager)


@everyday(b=(64, 2), n=(160_001, 33))
def preemphasis_and_peak(b, n):
    def define(x):
        y = x - ops.pad(x[:, :-1], [1, 0]) * 0.97
        return y / y.abs().max(1, keepdim=True).maximum(1e-5)

    def eager(torch, x):
        y = x - torch.nn.functional.pad(x[:, :-1], (1, 0)) * 0.97
        return y / y.abs().amax(1, keepdim=True).clamp(min=1e-5)

    return Recipe([f32(b, n)], define, eager)


@everyday(b=(16, 2), bins=(513, 9), t=(1999, 13))
def spectrogram_from_parts(b, bins, t):
    def define(x):
        real, imaginary = x[..., 0], x[..., 1]
        power = real * real + imaginary * imaginary
        return (power + 1e-9).log().transpose(1, 2).stride_order([2, 1, 0])

    def eager(torch, x):
        return torch.log(x.square().sum(-1) + 1e-9).transpose(1, 2).contiguous()

    return Recipe([f32(b, bins, t, 2)], define, eager)


@everyday(b=(4001, 5), t=(2000, 33), window=(24, 5))
def moving_average_residual(b, t, window):
    # Running sums grow, and their differences do not: in Float they would lose what the residual is made of.
    def define(x):
        sums = ops.pad(x, [1, 0]).double().cumsum(1)
        mean = ((sums[:, window:] - sums[:, : t + 1 - window]) * (1 / window)).float()
        return mean, x[:, window - 1 :] - mean

    def eager(torch, x):
        sums = torch.cumsum(torch.nn.functional.pad(x, (1, 0)).double(), 1)
        mean = ((sums[:, window:] - sums[:, :-window]) / window).float()
        return mean, x[:, window - 1 :] - mean

    return Recipe([f32(b, t)], define, eager)


@everyday(b=(8191, 5), t=(1031, 33))
def drawdown_from_returns(b, t):
    def define(x):
        wealth = (x * 0.01).cumsum(1)
        return wealth.cummax(1) - wealth

    def eager(torch, x):
        wealth = torch.cumsum(x * 0.01, 1)
        return torch.cummax(wealth, 1).values - wealth

    return Recipe([f32(b, t)], define, eager)


@everyday(n=(2053, 11), m=(4099, 13))
def rbf_kernel_from_products(n, m):
    def define(products, a, b):
        distance = (a[:, None] + b - products * 2.0).maximum(0.0)
        return (distance * -0.05).exp()

    def eager(torch, products, a, b):
        return torch.exp((a[:, None] + b - 2 * products).clamp(min=0) * -0.05)

    return Recipe([f32(n, m), f32(n, fill=POSITIVE), f32(m, fill=POSITIVE)], define, eager)


@everyday(n=(3001, 13))
def graph_laplacian(n):
    def define(a):
        weight = a.abs()
        scale = (weight.sum(1) + 1e-6).rsqrt()
        own = (ops.iota(n)[:, None] == ops.iota(n)).float()
        return own - weight * scale[:, None] * scale

    def eager(torch, a):
        weight = a.abs()
        scale = torch.rsqrt(weight.sum(1) + 1e-6)
        return torch.eye(n, device=a.device) - weight * scale[:, None] * scale

    return Recipe([f32(n, n)], define, eager)


@everyday(b=(512, 3), h=(12, 2), s=(127, 5), d=(64, 4))
def layout_bhsd_to_sbhd(b, h, s, d):
    def define(x):
        return (x.float() * 0.125).bfloat16().permute(2, 0, 1, 3).stride_order([3, 2, 1, 0])

    def eager(torch, x):
        return (x * 0.125).permute(2, 0, 1, 3).contiguous()

    return Recipe([bf16(b, h, s, d)], define, eager)
