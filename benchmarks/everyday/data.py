"""Data preparation: statistics, layouts, running sums, masks, embeddings."""

from benchmarks.everyday.recipe import Recipe, bf16, everyday, f16, f32


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
