"""Activations with biases and gates, and their gradients."""

import math

from benchmarks.everyday.recipe import Recipe, bf16, everyday

TANH_SCALE = math.sqrt(2 / math.pi)


@everyday(m=(9973, 13), n=(4864, 21))
def gelu_backward_bias_grad(m, n):
    def define(dy, x):
        h = x.float()
        cdf = ((h * math.sqrt(0.5)).erf() + 1.0) * 0.5
        pdf = (h * h * -0.5).exp() * (1 / math.sqrt(2 * math.pi))
        dx = dy.float() * (cdf + h * pdf)
        return dx.bfloat16(), dx.sum(0).bfloat16()

    def eager(torch, dy, x):
        dx = torch.ops.aten.gelu_backward(dy, x)
        return dx, dx.sum(0)

    return Recipe([bf16(m, n), bf16(m, n)], define, eager)


@everyday(m=(6151, 5), n=(6912, 9))
def geglu(m, n):
    def define(x):
        a, b = x[:, :n].float(), x[:, n:].float()
        return (0.5 * a * (1.0 + (TANH_SCALE * (a + 0.044715 * a * a * a)).tanh()) * b).bfloat16()

    def eager(torch, x):
        a, b = x.chunk(2, -1)
        return torch.nn.functional.gelu(a, approximate="tanh") * b

    return Recipe([bf16(m, 2 * n)], define, eager)
