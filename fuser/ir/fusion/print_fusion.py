"""Text of a fusion: `definition_text` rebuilds it when executed, `math_text` is for reading.

Grammar of the definition
    text  := header line*                    header is byte-exact, tools search for it
    line  := <name> = fd.define_tensor(...) | <name> = fd.define_scalar(...)
           | <names> = fd.ops.<op>(...)[  # <op of the optimiser that this stands for>] | fd.add_output(<name>[, <input>])
    name  := tv<k> | c<k>                    k is the creation number of the value

Inputs come first in registration order, then exprs in canonical order (fuser.ir.fusion.live_order), then outputs. Constants of
dtype Bool, Int, Index, Double and ComplexDouble are literals, others are defined by a line of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import assert_never

from fuser.ir.fusion.dim_pairs import position_pairs
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
    LibraryOp,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Scan,
    Split,
    Squeeze,
    Tensor,
    Transform,
    Val,
    Welford,
    Window,
    expr_inputs,
    expr_outputs,
    live_exprs,
    row_major_order,
)
from fuser.ir.fusion.library_ops import LIBRARY_OPS
from fuser.ir.fusion.live_order import all_operands
from fuser.ir.integers.integers import ZERO, Int, maximum, minimum
from fuser.ir.ops.approximate_ops import DEFINITIONS
from fuser.ir.ops.dtypes import DataType

HEADER = "def nvfuser_fusion(fd : FusionDefinition) -> None :"

INLINE_DTYPES = frozenset((DataType.Bool, DataType.Int, DataType.Index, DataType.Double, DataType.ComplexDouble))
"""Dtypes whose constants are written as Python literals. An Index literal is read back as an Int, the same number."""


# --- literals ---------------------------------------------------------------------------------------------------------


def literal(value: bool | int | float | complex) -> str:
    """Python text that evaluates to exactly `value`, signed zeros and nan included, with the builtins alone."""
    if isinstance(value, complex):
        return _complex_literal(value)
    if isinstance(value, bool | int):
        return repr(value)
    if math.isnan(value):
        return 'float("nan")'
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    short = f"{value:#.6g}"
    return short if float(short) == value else repr(value)


def _complex_literal(value: complex) -> str:
    real, imaginary = literal(value.real), literal(value.imag)
    finite = math.isfinite(value.real) and math.isfinite(value.imag)
    # A sum of parts: -0.0 + 1j is 0.0+1j, and inf or nan have no literal.
    if not finite or _is_negative_zero(value.real) or _is_negative_zero(value.imag):
        return f"complex({real}, {imaginary})"
    return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"


def _is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


# --- definition -------------------------------------------------------------------------------------------------------


def printed_name(value: Val) -> str:
    """`tv<k>` for a tensor, `c<k>` for a scalar."""
    return f"tv{value.name[1:]}" if isinstance(value, Tensor) else value.name


def definition_text(fusion: Fusion, comments: Sequence[str] = ()) -> str:
    """Python that rebuilds the fusion; `comments` are printed as comment lines at the start of the body."""
    lines = [f"# {comment}" for comment in comments]
    lines += [input_line(value) for value in fusion.inputs]
    written: set[str] = set()
    for expr in live_exprs(fusion):
        for operand in all_operands(expr):
            if isinstance(operand, Scalar) and not _is_inline(operand) and operand.is_constant:
                if operand.name not in written:
                    written.add(operand.name)
                    lines.append(_constant_line(operand))
        if isinstance(expr, ExpSum):
            lines += _exp_sum_lines(expr)
            continue
        note = f"  # {expr.op}" if isinstance(expr, Pointwise) and expr.op in DEFINITIONS else ""
        lines.append(expr_line(expr) + note)
    for output in fusion.outputs:
        alias = "" if output.alias_of is None else f", {printed_name(output.alias_of)}"
        lines.append(f"fd.add_output({printed_name(output.tensor)}{alias})")
    body = "\n".join(f"    {line}" for line in lines if line) or "    pass"
    if lines and all(line.startswith("#") for line in lines):
        body += "\n    pass"
    return f"{HEADER}\n{body}\n"


def input_line(value: Val) -> str:
    """The call that defines a fusion input."""
    if isinstance(value, Scalar):
        return f"{printed_name(value)} = fd.define_scalar(None, dtype={value.dtype!r})"
    shape = [_shape_entry(d) for d in value.visible]
    order = ""
    if value.stride_order != row_major_order(value.ndim):
        order = f", stride_order={list(value.stride_order)}"
    return (
        f"{printed_name(value)} = fd.define_tensor(shape={shape}, contiguity={list(value.contiguity)}, "
        f"dtype={value.dtype!r}, is_cpu={value.is_cpu}{order})"
    )


def _shape_entry(dim: IterDomain) -> int:
    return dim.extent.value if dim.extent.is_const else -1


def _is_inline(value: Scalar) -> bool:
    return value.is_constant and value.dtype in INLINE_DTYPES


def _constant_line(value: Scalar) -> str:
    assert value.value is not None
    return f"{printed_name(value)} = fd.define_scalar({literal(value.value)}, dtype={value.dtype!r})"


def operand_text(value: Val) -> str:
    """A name, or the literal of an inline constant."""
    if isinstance(value, Scalar) and value.value is not None and _is_inline(value):
        return literal(value.value)
    return printed_name(value)


def expr_line(expr: Expr) -> str:
    """`tv2 = fd.ops.mul(tv0, 2.00000)`."""
    return f"{', '.join(printed_name(v) for v in expr_outputs(expr))} = fd.ops.{call_text(expr)}"


def _exp_sum_lines(expr: ExpSum) -> list[str]:
    """The two reductions that an ExpSum, which no front end has, stands for; `fuse_exp_sums` joins them again."""
    source, largest, total = (printed_name(t) for t in (expr.input, expr.largest, expr.total))
    dims = _reduced_dims(expr.total)
    flags = [d.is_reduction for d in expr.total.produced]
    below = f"fd.ops.sub({source}, fd.ops.broadcast({largest}, is_broadcast_dim={flags}))"
    power = DEFINITIONS.get(expr.op, f"{expr.op}({{0}})").format(below)
    return [
        f"{largest} = fd.ops.max({source}, dims={dims})  # exp_sum",
        f"{total} = fd.ops.sum(fd.ops.{power}, dims={dims}, dtype={expr.total.dtype!r})  # exp_sum",
    ]


def call_text(expr: Expr) -> str:
    """The call of an expr, without its results."""
    operands = ", ".join(operand_text(v) for v in expr_inputs(expr))
    match expr:
        case Pointwise(op="stride_order"):
            return f"stride_order({operands}, stride_order={list(expr.output.stride_order)})"
        case Pointwise(op="cast") | ScalarOp(op="cast"):
            return f"cast({operands}, dtype={expr.output.dtype!r})"
        case Pointwise() if expr.op in DEFINITIONS:
            return DEFINITIONS[expr.op].format(*map(operand_text, expr.inputs))
        case Pointwise() | ScalarOp():
            return f"{expr.op}({operands})"
        case Reduction():
            dtype = f", dtype={expr.output.dtype!r}" if expr.op in ("sum", "prod") else ""
            return f"{expr.op}({operands}, dims={_reduced_dims(expr.output)}{dtype})"
        case Welford():
            return f"welford({operands}, dims={_reduced_dims(expr.mean)})"
        case ExpSum():
            return f"exp_sum({operands}, dims={_reduced_dims(expr.total)})"
        case Scan():
            init = "" if expr.init is None else f", init={operand_text(expr.init)}"
            return f"{expr.op}({operand_text(expr.input)}, dim={expr.dim}{init})"
        case Broadcast():
            return f"broadcast({operands}, is_broadcast_dim={list(expr.flags)})"
        case Squeeze():
            dims = [i for i, gone in enumerate(expr.flags) if gone]
            source = expr.input.visible
            expanded = ", squeeze_expanded=True" if any(source[i].expanded for i in dims) else ""
            return f"squeeze({operands}, dims={dims}{expanded})"
        case Expand():
            return f"expand({operands}, shape={_extent_list(expr.output, expr.extents)})"
        case Permute():
            return f"permute({operands}, dims={list(expr.dims)})"
        case Reshape():
            return f"reshape({operands}, new_shape={_extent_list(expr.output, expr.extents)})"
        case Resize():
            if expr.output.root is None:
                return _resize_call(expr)
            return f"reshape(fd.ops.{_resize_call(expr)}, new_shape={_extent_list(expr.output, ())})"
        case Cat():
            return f"cat([{operands}], dim={expr.dim}, manual_padding=True)"
        case Gather():
            return _gather_call(expr)
        case Full():
            shape = _extent_list(expr.output, expr.extents)
            return f"full(shape={shape}, fill_value={operands}, dtype={expr.output.dtype!r})"
        case Iota():
            return _iota_call(expr)
        case Random():
            return _random_call(expr)
        case LibraryOp():
            return _library_call(expr)
        case ExtentOp():
            return f"size({operands}, dim={expr.dim})"
        case unreachable:
            assert_never(unreachable)


def _reduced_dims(output: Tensor) -> list[int]:
    return [i for i, d in enumerate(output.produced) if d.is_reduction]


def _extent_list(output: Tensor, scalars: Sequence[Scalar | None]) -> str:
    entries = [
        str(d.extent.value) if d.extent.is_const else "-1" if s is None else printed_name(s)
        for d, s in zip(output.logical, scalars or (None,) * len(output.logical), strict=True)
    ]
    return f"[{', '.join(entries)}]"


def _resize_call(expr: Resize) -> str:
    """A slice, a pad, or what a pass made of both: a pad of a slice."""
    source = printed_name(expr.input)
    dims = [
        (a.extent, b.extent, w) for a, b, w in zip(expr.input.visible, expr.output.produced, expr.windows, strict=True)
    ]
    given = expr.scalars or ((None, None),) * len(dims)
    for d, (_, size, window) in enumerate(dims):
        if window.pieces:
            # What lies side by side in the window is all there is for what goes on from there.
            source = f"fd.ops.{_pieces_call(source, d, [a for a, _, _ in dims], window)}"
            dims[d] = window.end - window.begin, size, Window(-window.begin, window.begin, window.end)
    if expr.fill is None:
        if source.endswith(")") and all(a is b and not w.moves for a, b, w in dims):
            return source.removeprefix("fd.ops.")
        return _slice_call(
            source,
            [_extent_text(w.offset, s) for (_, _, w), (s, _) in zip(dims, given, strict=True)],
            [
                f"{source}.size({d})"
                if end is None and not a.is_const and a is b
                else _extent_text(w.offset + (b - 1) * w.step + 1, end)
                for d, ((a, b, w), (_, end)) in enumerate(zip(dims, given, strict=True))
            ],
            [w.step for _, _, w in dims],
        )
    if all(
        w.step == 1 and w.begin is maximum(-w.offset, ZERO) and w.end is minimum(a - w.offset, b) for a, b, w in dims
    ):
        widths = [(-w.offset, b - a + w.offset) for a, b, w in dims]
    else:
        starts = [str(w.begin * w.step + w.offset) for _, _, w in dims]
        ends = [str((w.end - 1) * w.step + w.offset + 1) for _, _, w in dims]
        source = f"fd.ops.{_slice_call(source, starts, ends, [w.step for _, _, w in dims])}"
        widths = [(w.begin, b - w.end) for _, b, w in dims]
    texts = [
        text
        for pair, scalars in reversed(list(zip(widths, given, strict=True)))
        for text in map(_extent_text, pair, scalars)
    ]
    return f"pad({source}, [{', '.join(texts)}], {operand_text(expr.fill)})"


def _pieces_call(source: str, dim: int, extents: Sequence[Int], window: Window) -> str:
    """The pieces of a window side by side, each a slice that is whole along other dims."""
    bounds = [window.begin, *(first for first, _ in window.pieces), window.end]
    offsets = [window.offset, *(offset for _, offset in window.pieces)]
    slices: list[str] = []
    for offset, begin, end in zip(offsets, bounds, bounds[1:], strict=False):
        starts = [str(begin + offset) if d == dim else "0" for d in range(len(extents))]
        ends = [str(end + offset) if d == dim else str(e) for d, e in enumerate(extents)]
        slices.append(f"fd.ops.{_slice_call(source, starts, ends)}")
    return f"cat([{', '.join(slices)}], dim={dim})"


def _gather_call(expr: Gather) -> str:
    """A lookup, in a slice of what is looked up where there are windows, with a pad around it where there is a fill."""
    source = printed_name(expr.input)
    if expr.windows:
        sizes = [b.extent for _, b in position_pairs(expr, expr.input, expr.output)]
        whole = [f"{source}.size({d})" for d in range(expr.input.ndim)]
        places = list(zip(expr.windows, sizes, whole, strict=True))
        is_padded = expr.fill is not None
        places = [(w, w.begin if is_padded else ZERO, w.end if is_padded else n, n, size) for w, n, size in places]
        starts = [
            "0" if d == expr.dim else str(w.offset + first * w.step) for d, (w, first, _, _, _) in enumerate(places)
        ]
        ends = [
            size if d == expr.dim else str(w.offset + (end - 1) * w.step + 1)
            for d, (w, _, end, _, size) in enumerate(places)
        ]
        source = f"fd.ops.{_slice_call(source, starts, ends, [w.step for w in expr.windows])}"
        if expr.fill is not None:
            widths = [
                ("0", "0") if d == expr.dim else (str(first), str(n - end))
                for d, (_, first, end, n, _) in enumerate(places)
            ]
            texts = [text for pair in reversed(widths) for text in pair]
            source = f"fd.ops.pad({source}, [{', '.join(texts)}], {operand_text(expr.fill)})"
    if expr.kind is GatherKind.index_select and expr.index.ndim > 1:
        return f"embedding_fwd({operand_text(expr.index)}, {source})"
    return f"{expr.kind.value}({source}, {operand_text(expr.index)}, dim={expr.dim})"


def _slice_call(source: str, starts: Sequence[str], ends: Sequence[str], steps: Sequence[int] = ()) -> str:
    return (
        f"slice({source}, start_indices=[{', '.join(starts)}], end_indices=[{', '.join(ends)}], "
        f"strides={list(steps) or [1] * len(starts)}, manual_normalization=True)"
    )


def _extent_text(extent: Int, scalar: Scalar | None) -> str:
    return str(extent) if extent.is_const or scalar is None else printed_name(scalar)


def _library_call(expr: LibraryOp) -> str:
    row = LIBRARY_OPS[expr.op]
    given = dict(zip(expr.names, expr.inputs, strict=True))
    # Optional ones, and those behind one that was left out, are named.
    words: list[str] = []
    is_named = False
    for name in row.parameters:
        is_named = is_named or name in row.optional or name in row.nullable
        if name not in given:
            is_named = True
            words += [f"{name}=None"] if name in row.nullable else []
            continue
        spelled = row.spelled.get(name, name)
        words.append(f"{spelled}={operand_text(given[name])}" if is_named else operand_text(given[name]))
    defaults = row.defaults
    words += [f"{n}={v!r}" for n, v in expr.options if n not in defaults or defaults[n] != v]
    return f"{expr.op}({', '.join(words)})"


def _random_call(expr: Random) -> str:
    parameters = ", ".join(operand_text(v) for v in expr.parameters)
    state = ""
    if expr.state is not None:
        seed, offset = (operand_text(v) for v in expr.state)
        state = f", rng_seed={seed}, rng_offset={offset}"
    shape = _extent_list(expr.output, expr.extents)
    return f"{expr.distribution.value}({parameters}, shape={shape}{state}, dtype={expr.output.dtype!r})"


def _iota_call(expr: Iota) -> str:
    extent = expr.output.logical[0].extent
    length = str(extent.value) if extent.is_const else printed_name(expr.length) if expr.length else str(extent)
    dtype = expr.output.dtype
    start, step = (0.0, 1.0) if dtype.is_floating else (0, 1)
    text = length
    # -0.0 equals the default and is not it.
    if repr(expr.start.value) != repr(start):
        text += f", start={operand_text(expr.start)}"
    if repr(expr.step.value) != repr(step):
        text += f", step={operand_text(expr.step)}"
    if dtype is not DataType.Int:
        text += f", dtype={dtype!r}"
    return f"iota({text})"


# --- math -------------------------------------------------------------------------------------------------------------


def dim_text(dim: IterDomain) -> str:
    """`t0_size0`, or `r 64` for a reduced, `b 1` for a broadcast, `e 64` for an expanded dim."""
    mark = "r " if dim.is_reduction else "b " if dim.is_broadcast else "e " if dim.expanded else ""
    return f"{mark}{dim.extent}"


def typed_text(value: Val) -> str:
    """`tv0: Float[t0_size0, 64]`, `c1: Double`, or the literal of a constant."""
    if isinstance(value, Tensor):
        return f"{printed_name(value)}: {value.dtype.name}[{', '.join(map(dim_text, value.logical))}]"
    return literal(value.value) if value.value is not None else f"{value.name}: {value.dtype.name}"


def expr_text(expr: Expr) -> str:
    """`tv2: Float[t0_size0] = mul(tv0, 2.00000)`."""
    return f"{', '.join(map(typed_text, expr_outputs(expr)))} = {call_text(expr)}"


def transform_text(transform: Transform) -> str:
    """`outer, inner = split(source, 128)` or `axis = merge(outer, inner)`."""
    if isinstance(transform, Split):
        inner = transform.inner if transform.inner_split else transform.outer
        direction = "inner" if transform.inner_split else "outer"
        names = f"{dim_text(transform.outer)}, {dim_text(transform.inner)}"
        return f"{names} = split({dim_text(transform.source)}, {inner.extent}, {direction})"
    return f"{dim_text(transform.result)} = merge({dim_text(transform.outer)}, {dim_text(transform.inner)})"


def math_text(fusion: Fusion, exprs: Iterable[Expr] | None = None) -> str:
    """Inputs, exprs (those that outputs need unless `exprs` says which) and outputs, with dtypes and extents."""
    lines = ["inputs", *(f"    {typed_text(v)}" for v in fusion.inputs), "exprs"]
    lines += [f"    {expr_text(e)}" for e in (live_exprs(fusion) if exprs is None else exprs)]
    lines.append("outputs")
    for output in fusion.outputs:
        alias = "" if output.alias_of is None else f" -> {printed_name(output.alias_of)}"
        lines.append(f"    {printed_name(output.tensor)}{alias}")
    return "\n".join(lines) + "\n"
