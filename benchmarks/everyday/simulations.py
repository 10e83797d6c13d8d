"""Samplers of diffusion and flow models; stencils, particles and graphs."""

from benchmarks.everyday.recipe import POSITIVE, Recipe, bf16, everyday, f16, f32, ids
from fuser import ops


@everyday(n=(32, 2), c=(4, 3), s=(129, 5))
def v_prediction_step(n, c, s):
    def define(x, v, alpha, sigma, noise):
        a, b = alpha[:, None, None, None], sigma[:, None, None, None]
        h, g = x.float(), v.float()
        clean, e = h * a - g * b, h * b + g * a
        clean = clean.clamp(-1.0, 1.0)
        return (clean * 0.9 + e * 0.4 + noise.float() * 0.1).bfloat16(), clean.bfloat16()

    def eager(torch, x, v, alpha, sigma, noise):
        a, b = alpha[:, None, None, None], sigma[:, None, None, None]
        h, g = x.float(), v.float()
        clean, e = (h * a - g * b).clamp(-1, 1), h * b + g * a
        return (clean * 0.9 + e * 0.4 + noise.float() * 0.1).bfloat16(), clean.bfloat16()

    level = f32(n, fill=POSITIVE)
    return Recipe([bf16(n, c, s, s), bf16(n, c, s, s), level, level, bf16(n, c, s, s)], define, eager)


@everyday(n=(20, 2), c=(4, 3), s=(255, 5))
def karras_precondition_and_loss(n, c, s):
    def define(f, noisy, clean, sigma):
        variance = sigma * sigma + 0.25
        skip, out = 0.25 / variance, sigma * 0.5 * variance.rsqrt()
        d = noisy * skip[:, None, None, None] + f.float() * out[:, None, None, None]
        weight = variance / (sigma * sigma * 0.25)
        error = d - clean
        return d, ((error * error).mean([1, 2, 3]) * weight).mean()

    def eager(torch, f, noisy, clean, sigma):
        variance = sigma.square() + 0.25
        skip, out = 0.25 / variance, sigma * 0.5 * torch.rsqrt(variance)
        d = noisy * skip[:, None, None, None] + f.float() * out[:, None, None, None]
        weight = variance / (sigma.square() * 0.25)
        return d, ((d - clean).square().mean((1, 2, 3)) * weight).mean()

    return Recipe([f16(n, c, s, s), f32(n, c, s, s), f32(n, c, s, s), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(24, 2), k=(1025, 7), d=(1152, 8))
def flow_matching_inputs(n, k, d):
    """A point between noise and data, and the velocity; tokens in place of pixels."""

    def define(x, noise, t):
        at = (t * 2.0 - 1.0).sigmoid()[:, None, None]
        h, e = x.float(), noise.float()
        return (h * (1.0 - at) + e * at).bfloat16(), (e - h).bfloat16()

    def eager(torch, x, noise, t):
        at = torch.sigmoid(2 * t - 1)[:, None, None]
        h, e = x.float(), noise.float()
        return (h * (1 - at) + e * at).bfloat16(), (e - h).bfloat16()

    return Recipe([bf16(n, k, d), bf16(n, k, d), f32(n, fill=POSITIVE)], define, eager)


@everyday(n=(16, 2), c=(16, 3), s=(128, 5))
def guided_euler_rescaled(n, c, s):
    """Classifier-free guidance brought back to the deviation of the guided half, then a step of Euler's."""

    def define(both, x, step):
        free, guided = both[:n].float(), both[n:].float()
        mixed = free + (guided - free) * 7.5
        wanted = guided.var([1, 2, 3], keepdim=True).sqrt()
        scale = wanted / mixed.var([1, 2, 3], keepdim=True).sqrt() * 0.7 + 0.3
        return (x.float() + mixed * scale * step).half()

    def eager(torch, both, x, step):
        free, guided = both.float().chunk(2)
        mixed = free + (guided - free) * 7.5
        scale = guided.std((1, 2, 3), keepdim=True) / mixed.std((1, 2, 3), keepdim=True) * 0.7 + 0.3
        return (x.float() + mixed * scale * step).half()

    return Recipe([f16(2 * n, c, s, s), f16(n, c, s, s), f32(1, fill=POSITIVE)], define, eager)


@everyday(n=(2049, 17))
def laplacian_periodic_2d(n):
    def define(u):
        up, down = ops.cat([u[1:], u[:1]], 0), ops.cat([u[-1:], u[:-1]], 0)
        left, right = ops.cat([u[:, 1:], u[:, :1]], 1), ops.cat([u[:, -1:], u[:, :-1]], 1)
        return u + (up + down + left + right - u * 4.0) * 0.1

    def eager(torch, u):
        near = torch.roll(u, 1, 0) + torch.roll(u, -1, 0) + torch.roll(u, 1, 1) + torch.roll(u, -1, 1)
        return u + 0.1 * (near - 4 * u)

    return Recipe([f32(n, n)], define, eager)


@everyday(n=(2050, 17))
def wave_equation_dirichlet_2d(n):
    def define(now, before, speed):
        inner = now[1:-1, 1:-1]
        near = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        after = inner * 2.0 - before[1:-1, 1:-1] + (near - inner * 4.0) * speed[1:-1, 1:-1] * 0.2
        return ops.pad(after, [1, 1, 1, 1])

    def eager(torch, now, before, speed):
        inner = now[1:-1, 1:-1]
        near = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        after = 2 * inner - before[1:-1, 1:-1] + (near - 4 * inner) * speed[1:-1, 1:-1] * 0.2
        return torch.nn.functional.pad(after, (1, 1, 1, 1))

    return Recipe([f32(n, n), f32(n, n), f32(n, n, fill=POSITIVE)], define, eager)


@everyday(n=(193, 7))
def heat_equation_3d(n):
    def define(u):
        padded = ops.pad(u, [1, 1, 1, 1, 1, 1])
        mid = slice(1, -1)
        near = padded[:-2, mid, mid] + padded[2:, mid, mid] + padded[mid, :-2, mid]
        near = near + padded[mid, 2:, mid] + padded[mid, mid, :-2] + padded[mid, mid, 2:]
        return u + (near - u * 6.0) * 0.05

    def eager(torch, u):
        padded = torch.nn.functional.pad(u, (1, 1, 1, 1, 1, 1))
        mid = slice(1, -1)
        near = padded[:-2, mid, mid] + padded[2:, mid, mid] + padded[mid, :-2, mid]
        near = near + padded[mid, 2:, mid] + padded[mid, mid, :-2] + padded[mid, mid, 2:]
        return u + 0.05 * (near - 6 * u)

    return Recipe([f32(n, n, n)], define, eager)


@everyday(b=(256, 3), n=(32769, 37))
def burgers_upwind_1d(b, n):
    def define(u):
        left, right = ops.cat([u[:, -1:], u[:, :-1]], 1), ops.cat([u[:, 1:], u[:, :1]], 1)
        slope = ops.where(u > 0.0, u - left, right - u)
        return u - u * slope * 0.1 + (left + right - u * 2.0) * 0.01

    def eager(torch, u):
        left, right = torch.roll(u, 1, 1), torch.roll(u, -1, 1)
        slope = torch.where(u > 0, u - left, right - u)
        return u - 0.1 * u * slope + 0.01 * (left + right - 2 * u)

    return Recipe([f32(b, n)], define, eager)


@everyday(b=(2, 1), n=(2049, 9))
def divergence_of_velocity(b, n):
    def define(v):
        u, w = v[:, 0], v[:, 1]
        along = (u[:, 1:-1, 2:] - u[:, 1:-1, :-2]) * 0.5 + (w[:, 2:, 1:-1] - w[:, :-2, 1:-1]) * 0.5
        curl = (w[:, 1:-1, 2:] - w[:, 1:-1, :-2]) * 0.5 - (u[:, 2:, 1:-1] - u[:, :-2, 1:-1]) * 0.5
        return along, curl, (along * along).mean([1, 2])

    def eager(torch, v):
        u, w = v[:, 0], v[:, 1]
        along = (u[:, 1:-1, 2:] - u[:, 1:-1, :-2]) * 0.5 + (w[:, 2:, 1:-1] - w[:, :-2, 1:-1]) * 0.5
        curl = (w[:, 1:-1, 2:] - w[:, 1:-1, :-2]) * 0.5 - (u[:, 2:, 1:-1] - u[:, :-2, 1:-1]) * 0.5
        return along, curl, along.square().mean((1, 2))

    return Recipe([f32(b, 2, n, n)], define, eager)


@everyday(n=(4099, 11))
def lennard_jones_energy_and_force(n):
    """From squared distances of all pairs: energies, and what scales their differences to forces."""

    def define(square):
        own = ops.iota(n)[:, None] == ops.iota(n)
        inverse = ops.where(own | (square > 1.25), 0.0, square.reciprocal())
        sixth = inverse * inverse * inverse
        return (sixth * (sixth - 1.0)).sum(1) * 2.0, (sixth * (sixth * 2.0 - 1.0) * inverse * 24.0)

    def eager(torch, square):
        own = torch.eye(n, device=square.device, dtype=torch.bool)
        inverse = torch.where(own | (square > 1.25), 0, square.reciprocal())
        sixth = inverse**3
        return 2 * (sixth * (sixth - 1)).sum(1), sixth * (2 * sixth - 1) * inverse * 24

    return Recipe([f32(n, n, fill=POSITIVE)], define, eager)


@everyday(n=(3001, 11))
def distances_from_coordinates(n):
    def define(a, b):
        apart = a[:, None] - b
        square = (apart * apart).sum(-1)
        return square.sqrt(), (square * -0.5).exp().sum(1)

    def eager(torch, a, b):
        square = (a[:, None] - b).square().sum(-1)
        return square.sqrt(), torch.exp(square * -0.5).sum(1)

    return Recipe([f32(n, 3), f32(n, 3)], define, eager)


@everyday(n=(50_021, 13), e=(250_007, 29), d=(64, 5))
def edge_messages_graphsage(n, e, d):
    """Both ends of each edge, and what the edge says."""

    def define(source, target, x, y, edge):
        h = x.index_select(source, 0).float() + y.index_select(target, 0).float() + edge.float()
        return (h * h.sigmoid()).half()

    def eager(torch, source, target, x, y, edge):
        return torch.nn.functional.silu(x[source].float() + y[target].float() + edge.float()).half()

    inputs = [ids(n, e), ids(n, e), f16(n, d), f16(n, d), f16(e, d)]
    return Recipe(inputs, define, eager)


@everyday(n=(30_011, 13), e=(200_003, 29), h=(8, 3))
def attention_of_edges_gat(n, e, h):
    def define(source, target, left, right, top):
        x = left.index_select(source, 0) + right.index_select(target, 0)
        score = ops.where(x > 0.0, x, x * 0.2)
        return (score - top.index_select(target, 0)).exp()

    def eager(torch, source, target, left, right, top):
        score = torch.nn.functional.leaky_relu(left[source] + right[target], 0.2)
        return torch.exp(score - top[target])

    inputs = [ids(n, e), ids(n, e), f32(n, h), f32(n, h), f32(n, h, fill=POSITIVE)]
    return Recipe(inputs, define, eager)


@everyday(n=(100_003, 13), k=(16, 3), d=(32, 5))
def neighbour_max_of_points(n, k, d):
    """Of each point the largest difference to its neighbours, gathered from a table (EdgeConv)."""

    def define(x, near):
        rows = x.index_select(near.reshape(n * k), 0).reshape(n, k, d)
        return ops.cat([x, rows.max(1) - x], 1)

    def eager(torch, x, near):
        return torch.cat((x, x[near].amax(1) - x), 1)

    return Recipe([f32(n, d), ids(n, n, k)], define, eager)


@everyday(n=(120_011, 13), d=(96, 5))
def degree_normalized_residual_gcn(n, d):
    def define(x, summed, degree, bias):
        scale = (degree.float() + 1.0).rsqrt()[:, None]
        return ((summed.float() + x.float() * scale) * scale + bias.float()).relu().bfloat16()

    def eager(torch, x, summed, degree, bias):
        scale = torch.rsqrt(degree.float() + 1)[:, None]
        return torch.relu((summed.float() + x.float() * scale) * scale + bias.float()).bfloat16()

    return Recipe([bf16(n, d), bf16(n, d), ids(100, n), bf16(d)], define, eager)
