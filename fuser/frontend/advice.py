"""What to write instead of a name that is no op: what it is called here, how it is made of ops, or what it resembles.

Recipes are code with the tensors `x`, `w`, `b` (and the loss's `target`), and leave their result in `y`. Tests run each.
"""

from __future__ import annotations

from collections.abc import Collection

from fuser.missing_names import like_names

RENAMED: dict[str, str] = {
    "absolute": "abs(x)",
    "amax": "max(x, dims)",
    "amin": "min(x, dims)",
    "arange": "iota(length, start, step)",
    "arccos": "acos(x)",
    "arcsin": "asin(x)",
    "arctan": "atan(x)",
    "arctan2": "atan2(y, x)",
    "astype": "cast(x, dtype)",
    "clip": "clamp(x, min, max)",
    "clone": "set(x)",
    "concat": "cat(tensors, dim)",
    "concatenate": "cat(tensors, dim)",
    "contiguous": "set(x)",
    "copy": "set(x)",
    "divide": "truediv(x, y)",
    "equal": "eq(x, y)",
    "fabs": "abs(x)",
    "flatten": "reshape(x, [-1])",
    "greater": "gt(x, y)",
    "greater_equal": "ge(x, y)",
    "less": "lt(x, y)",
    "less_equal": "le(x, y)",
    **dict.fromkeys(("bmm", "dot", "mm", "mv"), "matmul(x, y)"),
    "multiply": "mul(x, y)",
    "scaled_dot_product_attention": "sdpfa_fwd(query, key, value)",
    "negative": "neg(x)",
    "not_equal": "ne(x, y)",
    "permute_dims": "permute(x, dims)",
    "power": "pow(x, y)",
    "rand": "uniform(0.0, 1.0, shape)",
    "randn": "normal(0.0, 1.0, shape)",
    "ravel": "reshape(x, [-1])",
    "square": "mul(x, x)",
    "subtract": "sub(x, y)",
    "take": "index_select(x, index, dim)",
    "swish": "silu(x)",
    "type": "cast(x, dtype)",
    "view": "reshape(x, shape)",
    "broadcast_to": "broadcast_in_dim(x, shape, dims)",
    "clamp_max": "clamp(x, None, max)",
    "clamp_min": "clamp(x, min, None)",
    "embedding": "index_select(table, index, 0)",
    "empty": "full(shape, 0.0, dtype)",
    "empty_like": "full(x.shape, 0.0, x.dtype)",
    "expand_as": "expand(x, y.shape)",
    "fix": "trunc(x)",
    "float16": "cast(x, DataType.Half)",
    "float32": "cast(x, DataType.Float)",
    "float64": "cast(x, DataType.Double)",
    "float_power": "pow(x, y)",
    "int32": "cast(x, DataType.Int32)",
    "int64": "cast(x, DataType.Int)",
    "invert": "bitwise_not(x)",
    "reshape_as": "reshape(x, y.shape)",
    "rint": "round(x)",
    "sgn": "sign(x)",
    "take_along_dim": "take_along_axis(x, index, dim)",
    "true_divide": "truediv(x, y)",
    "type_as": "cast(x, y.dtype)",
    "variance": "var(x, dims)",
    "view_as": "reshape(x, y.shape)",
    "xor": "bitwise_xor(x, y)",
    "zeros": "full(shape, 0.0, dtype)",
    "ones": "full(shape, 1.0, dtype)",
    "zeros_like": "full(x.shape, 0.0, x.dtype)",
    "ones_like": "full(x.shape, 1.0, x.dtype)",
    "full_like": "full(x.shape, value, x.dtype)",
}
"""Names of other array libraries: the call of an op here."""

RECIPES: dict[str, str] = {
    "any": "y = fd.ops.max(x != 0, dims=[-1])",
    "all": "y = fd.ops.min(x != 0, dims=[-1])",
    "batch_norm": "var, mean = fd.ops.var_mean(x, [0], 0, True)\ny = (x - mean) * fd.ops.rsqrt(var + 1e-5) * w + b",
    "array_split": "n = (x.size(0) + 1) // 2  # two halves of dim 0\ny, z = x[:n], x[n:]",
    "binary_cross_entropy_with_logits": (
        "y = (fd.ops.maximum(x, 0.0) - x * w + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))).mean()"
    ),
    "celu": "y = fd.ops.where(x > 0.0, x, fd.ops.expm1(x))",
    "chunk": "n = (x.size(1) + 1) // 2  # two halves of dim 1\ny, z = x[:, :n], x[:, n:]",
    "cosine_similarity": "y = (x * w).sum(-1) / fd.ops.sqrt((x * x).sum(-1) * (w * w).sum(-1))",
    "count_nonzero": "y = fd.ops.sum(x != 0, dims=[-1])",
    "cross_entropy": (
        "m = fd.ops.max(x, -1, True)\nlse = fd.ops.log(fd.ops.sum(fd.ops.exp(x - m), -1, True)) + m\n"
        "y = lse - fd.ops.take_along_axis(x, target.unsqueeze(-1), -1)"
    ),
    "diff": "y = x[:, 1:] - x[:, :-1]",
    "dropout": "y = fd.ops.where(fd.ops.uniform(0.0, 1.0, x.shape) < 0.9, x * (1 / 0.9), 0.0)",
    "elu": "y = fd.ops.where(x > 0.0, x, fd.ops.expm1(x))",
    "eye": "i = fd.ops.iota(4)\ny = i.unsqueeze(1) == i",
    "flip": "dim = -1\nn = x.size(dim)\ny = fd.ops.index_select(x, fd.ops.iota(n, n - 1, -1), dim)",
    "floor_divide": "y = x // w",
    "gelu": "y = 0.5 * x * (1.0 + fd.ops.erf(x * 0.7071067811865476))",
    "group_norm": (
        "g = fd.ops.reshape(x, [x.size(0), 2, -1])\nvar, mean = fd.ops.var_mean(g, [2], 0, True)\n"
        "y = fd.ops.reshape((g - mean) * fd.ops.rsqrt(var + 1e-5), x.shape) * w + b"
    ),
    "hardsigmoid": "y = fd.ops.clamp(x / 6.0 + 0.5, 0.0, 1.0)",
    "hardswish": "y = x * fd.ops.clamp(x + 3.0, 0.0, 6.0) / 6.0",
    "huber_loss": "d = fd.ops.abs(x - w)\ny = fd.ops.where(d < 1.0, 0.5 * d * d, d - 0.5).mean()",
    "hypot": "y = fd.ops.sqrt(x * x + w * w)",
    "instance_norm": "var, mean = fd.ops.var_mean(x, [-1], 0, True)\ny = (x - mean) * fd.ops.rsqrt(var + 1e-5)",
    "l1_loss": "y = fd.ops.abs(x - w).mean()",
    "linspace": "y = fd.ops.iota(5).float() * 0.25",
    "logsigmoid": "y = fd.ops.minimum(x, 0.0) - fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))",
    "hardtanh": "y = fd.ops.clamp(x, -1.0, 1.0)",
    "isclose": "y = fd.ops.abs(x - w) <= 1e-8 + 1e-5 * fd.ops.abs(w)",
    "layer_norm": "var, mean = fd.ops.var_mean(x, [-1], 0, True)\ny = (x - mean) * fd.ops.rsqrt(var + 1e-5) * w + b",
    "leaky_relu": "y = fd.ops.where(x > 0.0, x, x * 0.01)",
    "log_softmax": ("z = x - fd.ops.max(x, -1, True)\ny = z - fd.ops.log(fd.ops.sum(fd.ops.exp(z), -1, True))"),
    "logaddexp": ("y = fd.ops.maximum(x, w) + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x - w)))"),
    "logical_xor": "y = (x != 0) != (w != 0)",
    "logsumexp": "m = fd.ops.max(x, -1, True)\ny = fd.ops.log(fd.ops.sum(fd.ops.exp(x - m), -1, True)) + m",
    "masked_fill": "y = fd.ops.where(x > 0.0, 0.0, x)",
    "mean": "y = x.mean(-1)",
    "mish": "y = x * fd.ops.tanh(fd.ops.log1p(fd.ops.exp(x)))",
    "mse_loss": "d = x - w\ny = (d * d).mean()",
    "moveaxis": "y = x.permute(1, 0)",
    "movedim": "y = x.permute(1, 0)",
    "nan_to_num": "y = fd.ops.where(fd.ops.isnan(x), 0.0, x)",
    "nansum": "y = fd.ops.where(fd.ops.isnan(x), 0.0, x).sum(-1)",
    "nll_loss": "y = -fd.ops.take_along_axis(x, target.unsqueeze(-1), -1)",
    "normalize": "y = x * fd.ops.rsqrt(fd.ops.maximum((x * x).sum(-1, True), 1e-24))",
    "one_hot": "y = target.unsqueeze(-1) == fd.ops.iota(4)",
    "prelu": "y = fd.ops.where(x > 0.0, x, w * x)",
    "narrow": "y = x[:, 1:3]",
    "norm": "y = fd.ops.sqrt(fd.ops.sum(x * x, -1))",
    "outer": "y = x.reshape(-1, 1) * w.reshape(1, -1)",
    "relu6": "y = fd.ops.clamp(x, 0.0, 6.0)",
    "repeat": "y = fd.ops.cat([x, x], 0)",
    "repeat_interleave": "y = x.unsqueeze(1).expand(-1, 2, -1).reshape(-1, x.size(1))",
    "rms_norm": "y = x * fd.ops.rsqrt((x * x).mean(-1, True) + 1e-6) * w",
    "roll": "y = fd.ops.cat([x[-1:], x[:-1]], 0)",
    "selu": "y = 1.0507009873554805 * fd.ops.where(x > 0.0, x, 1.6732632423543772 * fd.ops.expm1(x))",
    "smooth_l1_loss": "d = fd.ops.abs(x - w)\ny = fd.ops.where(d < 1.0, 0.5 * d * d, d - 0.5).mean()",
    "softsign": "y = x / (1.0 + fd.ops.abs(x))",
    "std_mean": "var, mean = x.var_mean(-1)\ny = fd.ops.sqrt(var)",
    "t": "y = x.T",
    "softmax": "e = fd.ops.exp(x - fd.ops.max(x, -1, True))\ny = e / fd.ops.sum(e, -1, True)",
    "softplus": "y = fd.ops.maximum(x, 0.0) + fd.ops.log1p(fd.ops.exp(-fd.ops.abs(x)))",
    "stack": "y = fd.ops.cat([x.unsqueeze(0), w.unsqueeze(0)], 0)",
    "std": "y = fd.ops.sqrt(x.var(-1))",
    "split": "y, z = x[:, :2], x[:, 2:]  # parts of 2 along dim 1",
    "argmax": "y = fd.ops.topk(x, 1, -1)[1]",
    "argmin": "y = fd.ops.topk(x, 1, -1, False)[1]",
    "sort": "y = fd.ops.take_along_axis(x, fd.ops.argsort(x, -1), -1)",
    "swapaxes": "y = x.transpose(0, 1)",
    "swapdims": "y = x.transpose(0, 1)",
    "tanhshrink": "y = x - fd.ops.tanh(x)",
    "tile": "y = fd.ops.cat([x, x], 0)",
    "transpose": "y = x.transpose(0, 1)",
    "tril": "y = fd.ops.where(fd.ops.triu(fd.ops.full(x.shape, 1, DataType.Int32), 1) == 0, x, 0.0)",
    "unbind": "y, z = x[0], x[1]",
    "unsqueeze": "y = x.unsqueeze(0)",
    "expand_dims": "y = x.unsqueeze(0)",
}
"""Ops of other libraries as programs of a few ops."""

ABSENT: dict[str, str] = {
    **dict.fromkeys(("median", "quantile"), "topk and argsort give elements in order, and index_select one of them"),
    **dict.fromkeys(
        ("nonzero", "unique", "masked_select"), "the extent of a result cannot depend on the values of tensors"
    ),
    **dict.fromkeys(
        ("conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d"), "convolutions and pooling are left to libraries"
    ),
    **dict.fromkeys(("addmm", "baddbmm"), "it is b + fd.ops.matmul(x, y)"),
    "einsum": "it is written with fd.ops.matmul, permute and reshape",
    **dict.fromkeys(
        ("attention", "flash_attention", "multi_head_attention_forward"),
        "fd.ops.sdpfa_fwd(query, key, value) is the attention of heads; linear and reshape do the rest",
    ),
    **dict.fromkeys(("backward", "grad"), "gradients are written out as ops"),
    **dict.fromkeys(
        ("numpy", "item", "tolist", "cpu", "cuda", "save"),
        "a definition has no values; they are what fd.execute(...) returns",
    ),
    **dict.fromkeys(("detach", "requires_grad", "requires_grad_"), "a definition computes no gradients"),
    **dict.fromkeys(
        ("values", "indices"), "max and min give the values themselves; fd.ops.topk(x, 1) gives their positions as well"
    ),
    **dict.fromkeys(("stride", "strides", "is_contiguous"), "strides are those of the arrays that fd.execute takes"),
    **dict.fromkeys(
        ("scatter_add", "index_add", "index_put", "put", "bincount", "histc"),
        "no op writes at positions of a tensor yet",
    ),
    **dict.fromkeys(("searchsorted", "bucketize", "digitize"), "no op searches; compare with each bound and sum"),
    **dict.fromkeys(
        ("trace", "det", "inverse", "cholesky", "svd", "qr", "eig", "solve"), "linear algebra is left to libraries"
    ),
    **dict.fromkeys(
        ("interpolate", "upsample", "grid_sample", "unfold", "im2col", "pixel_shuffle"),
        "convolutions, pooling and resampling are left to libraries",
    ),
    **dict.fromkeys(
        ("map", "apply", "apply_", "vmap", "scan", "associative_scan"),
        "ops work on all elements, and no function of Python is called for each; cumsum and its like are the scans",
    ),
    **dict.fromkeys(
        ("data", "data_ptr", "storage", "is_cuda", "grad_fn"),
        "a definition has no values, they are what fd.execute(...) returns",
    ),
    **dict.fromkeys(("int8", "uint8", "int16", "uint16", "uint32"), "integers are Int32, Int (of 64 bits) and UInt64"),
    "bernoulli": "draw by fd.ops.uniform(0.0, 1.0, shape) < p",
    "device": "a definition has none; fd.execute(inputs, device=...) chooses one",
    **dict.fromkeys(("dim", "ndim"), "the number of dims is x.ndim"),
    "numel": "the number of elements is math.prod(x.shape)",
    **dict.fromkeys(
        ("at", "copy_", "fill_", "zero_", "index_fill", "masked_scatter"),
        "no op changes its operands: fd.ops.where or fd.ops.cat make another tensor, and fd.add_output(y, x) writes y into "
        "input x",
    ),
    "parallelize": "axes are parallelized: x.axis(0).parallelize(ParallelType.block_x)",
    **dict.fromkeys(
        ("vectorize", "unroll"),
        "an axis that split made is parallelized: x.split(-1, 4), x.axis(-1).parallelize(ParallelType.vectorize)",
    ),
    **{
        name: f"it is a scheduling function: fd.sched.{name}"
        for name in ("transform_like", "parallelize_like", "inline_at", "inline_most")
    },
}
"""What cannot be written with these ops, and why, or is no op and where it is."""


def advice_on(name: str, known: Collection[str], prefix: str) -> str:
    """The end of a message about an unknown name: begins with its own punctuation, is empty where there is nothing to say.

    `known` are the names that the object has, `prefix` what stands before them in code (`fd.ops.`).
    """
    said = _said(name)
    if said:
        return said
    changes = name.removesuffix("_")
    if changes != name and changes in known:
        return f": no op changes its operands; write x = {prefix or 'x.'}{changes}(...)"
    close = like_names(name, {**dict.fromkeys(known), **RENAMED, **RECIPES, **ABSENT})
    if close and close[0] not in known:
        return f"; did you mean {close[0]}{_said(close[0])}"
    shown = [prefix + c for c in close if c in known]
    return f"; did you mean {' or '.join([', '.join(shown[:-1])] * (len(shown) > 1) + shown[-1:])}?" if shown else ""


def _said(name: str) -> str:
    """What the tables say of a name, with its punctuation in front."""
    if name in RENAMED:
        return f"; write fd.ops.{RENAMED[name]}"
    if name in RECIPES:
        lines = RECIPES[name].replace("\n", "\n    ")
        return f"; it is written with other ops:\n    {lines}"
    return f": {ABSENT[name]}" if name in ABSENT else ""
