"""Reductions, losses, scans, and data movement: sums, variance, cross entropy, cumsum, transposes, embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.case import Case, Wide, as_dtype, exact_running_sums, wide_dtype
from benchmarks.inputs import BF16, F32, INT64, SHORT_NAMES, Fill, Input
from fuser.ir.ops.dtypes import DataType


def sum_over(dim: int | None, rows: int, columns: int, dtype: DataType = F32) -> Case:
    """Sum over the inner dim (1), the outer (0), or both (None)."""
    x_input = Input((rows, columns), dtype, Fill.SHIFTED)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        return [fd.ops.sum(x) if dim is None else fd.ops.sum(x, dim)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: x.sum() if dim is None else x.sum(dim)

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        wide = m.wide(x)
        return [wide.sum() if dim is None else wide.sum(axis=dim)]

    kind = {1: "inner", 0: "outer", None: "all"}[dim]
    results = {1: rows, 0: columns, None: 1}[dim]
    name = f"sum_{kind}_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, f"sum_{kind}", (x_input,), results * dtype.itemsize, define, eager, reference)


def var_mean_outer(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """Unbiased variance and mean of every column."""
    x_input = Input((rows, columns), dtype, Fill.SHIFTED)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        return list(fd.ops.var_mean(as_dtype(fd, x, wide_dtype(dtype)), [0]))

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: torch.var_mean(x.double() if x.dtype is torch.float64 else x.float(), 0)

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        wide = m.wide(x)
        mean = wide.mean(axis=0)
        centred = wide - mean
        return [(centred * centred).sum(axis=0) / (rows - 1), mean]

    name = f"var_mean_outer_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    output_bytes = 2 * columns * wide_dtype(dtype).itemsize
    return Case(name, "var_mean_outer", (x_input,), output_bytes, define, eager, reference)


def transpose_add(rows: int, columns: int, dtype: DataType = F32) -> Case:
    """x^T + y."""
    x_input, y_input = Input((columns, rows), dtype), Input((rows, columns), dtype)

    def define(fd: Any, x: Any, y: Any) -> Sequence[Any]:
        return [as_dtype(fd, fd.ops.permute(x, [1, 0]) + y, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x, y: x.t() + y

    def reference(m: Wide, x: Any, y: Any) -> Sequence[Any]:
        return [m.permute(m.wide(x), (1, 0)) + m.wide(y)]

    name = f"transpose_add_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "transpose_add", (x_input, y_input), y_input.nbytes, define, eager, reference)


def transpose_0213(shape: tuple[int, int, int, int], dtype: DataType = BF16, *, name: str = "") -> Case:
    """The two middle dims exchanged, dense again."""
    x_input = Input(shape, dtype)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        return [fd.ops.stride_order(fd.ops.permute(x, [0, 2, 1, 3]), [3, 2, 1, 0])]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: x.transpose(1, 2).contiguous()

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        return [m.permute(m.wide(x), (0, 2, 1, 3))]

    name = name or f"transpose_0213_{SHORT_NAMES[dtype]}_{'x'.join(map(str, shape))}"
    return Case(name, "transpose_0213", (x_input,), x_input.nbytes, define, eager, reference)


def cross_entropy(rows: int, columns: int, dtype: DataType = BF16) -> Case:
    """Mean over rows of log(sum(exp(logits))) - logits[target]. Targets are all in range: none is ignored.

    As torch computes it: log_softmax subtracts the largest logit before anything else, so that large logits cancel first.
    """
    logits = Input((rows, columns), dtype)
    targets = Input((rows,), INT64, Fill.INDEX, columns)

    def define(fd: Any, logits: Any, target: Any) -> Sequence[Any]:
        wide = as_dtype(fd, logits, wide_dtype(dtype))
        largest = fd.ops.max(wide, 1, keepdim=True)
        total = fd.ops.sum(fd.ops.exp(wide - largest), 1, keepdim=True)
        chosen = fd.ops.take_along_axis(wide, fd.ops.broadcast(target, [False, True]), 1)
        losses = fd.ops.log(total) - (chosen - largest)
        return [fd.ops.sum(losses) / fd.ops.size(logits, 0)]

    def eager(torch: Any) -> Callable[..., Any]:
        wide = torch.float64 if dtype is DataType.Double else torch.float32
        return lambda logits, target: torch.nn.functional.cross_entropy(logits.to(wide), target)

    def reference(m: Wide, logits: Any, target: Any) -> Sequence[Any]:
        wide = m.wide(logits)
        largest = m.xp.amax(wide, axis=-1)
        total = m.xp.exp(wide - largest[:, None]).sum(axis=-1)
        return [(m.xp.log(total) + largest - m.pick(wide, target)).mean()]

    name = f"cross_entropy_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    output_bytes = wide_dtype(dtype).itemsize
    return Case(name, "cross_entropy", (logits, targets), output_bytes, define, eager, reference)


def embedding_scale(vocabulary: int, width: int, tokens: int, dtype: DataType = BF16, *, name: str = "") -> Case:
    """Rows of a table, times 64."""
    table = Input((vocabulary, width), dtype)
    index = Input((tokens,), INT64, Fill.INDEX, vocabulary)
    row_bytes = tokens * width * dtype.itemsize

    def define(fd: Any, table: Any, index: Any) -> Sequence[Any]:
        return [as_dtype(fd, fd.ops.index_select(table, index, 0) * 64.0, dtype)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda table, index: torch.nn.functional.embedding(index, table) * 64.0

    def reference(m: Wide, table: Any, index: Any) -> Sequence[Any]:
        return [m.wide(table[index]) * 64.0]

    name = name or f"embedding_scale_{SHORT_NAMES[dtype]}_{vocabulary}x{width}_{tokens}"
    return Case(
        name,
        "embedding",
        (table, index),
        row_bytes,
        define,
        eager,
        reference,
        read_bytes=row_bytes + index.nbytes,
    )


def cumsum_inner(rows: int, columns: int, dtype: DataType = F32) -> Case:
    """Running sums along the rows."""
    x_input = Input((rows, columns), dtype, Fill.SHIFTED)

    def define(fd: Any, x: Any) -> Sequence[Any]:
        return [fd.ops.cumsum(x, 1)]

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda x: x.cumsum(-1)

    def reference(m: Wide, x: Any) -> Sequence[Any]:
        return [exact_running_sums(m, m.wide(x)) if dtype is DataType.Double else m.wide(x).cumsum(axis=-1)]

    name = f"cumsum_inner_{SHORT_NAMES[dtype]}_{rows}x{columns}"
    return Case(name, "cumsum", (x_input,), x_input.nbytes, define, eager, reference)
