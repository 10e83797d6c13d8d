"""Steps of optimizers: new parameters and states from old ones and a gradient."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, everyday, f32


@everyday(n=(50_000_017, 1003))
def amsgrad(n):
    def define(p, g, m, v, vmax):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        vmax = vmax.maximum(v)
        return p * 0.99999 - m * 1e-3 / ((vmax * 1.25).sqrt() + 1e-8), m, v, vmax

    def eager(torch, p, g, m, v, vmax):
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        vmax = torch.maximum(vmax, v)
        return p * 0.99999 - m * 1e-3 / ((vmax * 1.25).sqrt() + 1e-8), m, v, vmax

    return Recipe([f32(n), f32(n), f32(n), f32(n, fill=POSITIVE), f32(n, fill=POSITIVE)], define, eager)
