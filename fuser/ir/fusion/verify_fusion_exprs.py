"""The rules of fusion IR for each kind of expr: the layer below the rules of a whole fusion (`verify_fusion`)."""

from __future__ import annotations

from collections.abc import Sequence

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.dim_pairs import dim_pairs, position_pairs
from fuser.ir.fusion.fusion import (
    COPIES,
    Broadcast,
    Cat,
    Expand,
    Expr,
    ExpSum,
    ExtentOp,
    Full,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
    IterKind,
    LibraryOp,
    Merge,
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
    Val,
    Welford,
    expr_outputs,
)
from fuser.ir.fusion.library_calls import Call, Dim
from fuser.ir.fusion.library_ops import LIBRARY_OPS, library_results
from fuser.ir.fusion.verify_fusion_dims import DimRules
from fuser.ir.integers.integers import ONE, ZERO, Int
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType, compute_dtype
from fuser.ir.ops.op_table import (
    POINTWISE,
    REDUCTIONS,
    SCANS,
    DtypeRule,
    check_cast,
    kind_of,
    operand_dtype,
    result_dtype,
)
from fuser.ir.ops.promotion import OperandClass

# Rules under which operands have the dtype that the arithmetic runs in.
_WIDENED = (DtypeRule.PROM, DtypeRule.FLT, DtypeRule.FULL, DtypeRule.BOOL)


class ExprRules(DimRules):
    """Operands and results of an expr."""

    def _meets(self, expr: Expr) -> None:
        """Dims, dtypes and fields of one expr."""
        name = expr_outputs(expr)[0].name
        match expr:
            case Pointwise(op, inputs, output):
                self._pointwise_dtypes(op, inputs, output)
                self._pointwise_dims(expr, output)
            case Reduction(op, source, output):
                row = REDUCTIONS.get(op)
                if row is None:
                    self._find(f"{name}: the op table has no reduction {op!r}", output)
                elif source.dtype is not output.dtype or kind_of(output.dtype) not in row.kinds:
                    self._find(f"{name}: {op} of {source.dtype.name} gives {output.dtype.name}", output)
                self._reduced(expr, source, output)
            case Welford():
                self._welford(expr)
            case ExpSum():
                self._exp_sum(expr)
            case Scan():
                self._scan(expr)
            case Broadcast(source, output, flags):
                self._keeps_dtype(source, output)
                if self._ranks(
                    output, flags.count(False) == source.ndim and len(flags) == output.ndim, f"flags {flags}"
                ):
                    self._pairs(expr, source, output, _is_same)
                    if any(new and not d.is_broadcast for new, d in zip(flags, output.logical, strict=True)):
                        self._find(f"{name}: a new dim is not of kind broadcast", output)
            case Squeeze(source, output, flags):
                self._keeps_dtype(source, output)
                if self._ranks(
                    output, flags.count(False) == output.ndim and len(flags) == source.ndim, f"flags {flags}"
                ):
                    self._pairs(expr, source, output, _is_same)
                    for gone, d in zip(flags, source.visible, strict=True):
                        one = d.is_broadcast or d.expanded or self._same(d.extent) is self._same(ONE)
                        if gone and not one:
                            self._find(
                                f"{name}: the squeezed dim {d.name} of extent {d.extent} is not known to be 1", output
                            )
            case Expand(source, output, extents):
                self._keeps_dtype(source, output)
                fits = output.ndim >= source.ndim and len(extents) in (0, output.ndim)
                if self._ranks(output, fits, f"{len(extents)} extents"):
                    self._pairs(expr, source, output, _is_expansion)
            case Permute(source, output, dims):
                self._keeps_dtype(source, output)
                fits = sorted(dims) == list(range(source.ndim)) and output.ndim == source.ndim
                if self._ranks(output, fits, f"dims {dims}"):
                    self._pairs(expr, source, output, _is_same)
            case Reshape():
                self._reshape(expr)
            case Resize():
                self._resize(expr)
            case Cat(inputs, output, dim, bounds):
                for source in inputs:
                    self._keeps_dtype(source, output)
                if self._ranks(output, 0 <= dim < output.ndim and len(bounds) == len(inputs) - 1, f"bounds {bounds}"):
                    self._joined_dims(inputs, output)
            case Gather():
                self._gather(expr)
            case Full(value, output, extents):
                self._ranks(output, len(extents) in (0, output.ndim), f"{len(extents)} extents")
                self._castable(value.dtype, output)
            case Iota(start, step, output):
                self._ranks(output, output.ndim == 1, "one length")
                self._castable(start.dtype, output)
                self._castable(step.dtype, output)
            case Random():
                self._random(expr)
            case LibraryOp():
                self._library(expr)
            case ScalarOp(op, inputs, output):
                self._scalar_dtypes(op, inputs, output)
            case ExtentOp(tensor, dim, output):
                if not 0 <= dim < tensor.ndim or not _is_extent(output, tensor.visible[dim]):
                    self._find(f"{name} is not the extent of dim {dim} of {tensor!r}", output)

    def _keeps_dtype(self, source: Tensor, output: Tensor) -> None:
        if source.dtype is not output.dtype:
            self._find(
                f"{output.name} is {output.dtype.name}, its operand {source.name} is {source.dtype.name}", output
            )

    def _castable(self, source: DataType, output: Tensor | Scalar) -> None:
        try:
            check_cast(source, output.dtype)
        except Exception:
            self._find(f"{output.name}: {source.name} cannot be cast to {output.dtype.name}", output)

    def _reshape(self, expr: Reshape) -> None:
        source, output = expr.input, expr.output
        self._keeps_dtype(source, output)
        if not self._ranks(output, len(expr.extents) in (0, output.ndim), f"{len(expr.extents)} extents"):
            return
        if output.root is None:
            return
        if self._ranks(output, len(output.root) == source.ndim, f"{len(output.root)} root dims"):
            self._pairs(expr, source, output, _is_same)
        if any(d.is_broadcast for d in (*output.root, *output.logical)):
            self._find(f"{output.name}: a reshape takes and gives no broadcast dims, squeeze and broadcast do", output)
        made = set(output.logical)
        for d in output.logical:
            made |= _sources(d)
        if not made.issuperset(output.root):
            self._find(f"{output.name}: its logical dims are not made of all of its root dims", output)

    def _resize(self, expr: Resize) -> None:
        source, output, windows = expr.input, expr.output, expr.windows
        self._keeps_dtype(source, output)
        fits = len(windows) == source.ndim == len(output.produced) and len(expr.scalars) in (0, source.ndim)
        if not self._ranks(output, fits, f"{len(windows)} windows"):
            return
        self._pairs(expr, source, output, lambda a, b: a.kind is b.kind)
        self._displaced(expr, source, output)
        for window, a, d in zip(windows, source.visible, output.produced, strict=True):
            spans = window.begin is ZERO and self._same(window.end) is self._same(d.extent)
            if expr.fill is None and not spans:
                self._find(f"{output.name}: nothing fills what is outside of {window} in dim {d!r}", output)
            if d.expanded and not (a.expanded and spans):
                self._find(f"{output.name}: dim {d!r} cannot be one element of dim {a!r} of {source.name}", output)
        if expr.fill is not None:
            self._castable(expr.fill.dtype, output)

    def _gather(self, expr: Gather) -> None:
        source, index, output, dim = expr.input, expr.index, expr.output, expr.dim
        self._keeps_dtype(source, output)
        if index.dtype not in (DataType.Int, DataType.Int32, DataType.Index) or index.is_cpu or index is source:
            self._find(
                f"{output.name}: the index {index.name} is {index.dtype.name}, expected integers on the device", output
            )
        is_select = expr.kind is GatherKind.index_select
        rank = source.ndim - 1 + max(index.ndim, 1) if is_select else index.ndim
        fits = 0 <= dim < source.ndim and output.ndim == rank and (is_select or rank == source.ndim)
        if not self._ranks(output, fits, f"dim {dim} and an index of rank {index.ndim}"):
            return
        if not self._ranks(output, len(expr.windows) in (0, source.ndim), f"{len(expr.windows)} windows"):
            return
        for d, (a, b) in enumerate(position_pairs(expr, source, output) if expr.windows else ()):
            window = expr.windows[d]
            # One element that is seen along all of the index is one element of what is looked up.
            extent = a.extent if a.is_broadcast and not b.is_broadcast else b.extent
            spans = d == dim or (window.begin is ZERO and self._same(window.end) is self._same(extent))
            if expr.fill is None and not spans:
                self._find(f"{output.name}: nothing fills what is outside of {window} in dim {b!r}", output)
        if expr.fill is not None:
            self._castable(expr.fill.dtype, output)
            if not is_select:
                self._find(f"{output.name}: only an index_select has a fill", output)
        if expr.kind is GatherKind.take_along_axis and not expr.windows:
            rest = [d for d in range(output.ndim) if d != dim]
            self._joined_dims((source, index), output, rest)
            self._joined_dims((index,), output, [dim])
            return
        for operand in (source, index):
            self._pairs(expr, operand, output, lambda a, b: _is_gathered(a, b) or (not is_select and a.is_broadcast))
        self._displaced(expr, source, output)

    def _library(self, expr: LibraryOp) -> None:
        row = LIBRARY_OPS.get(expr.op)
        output = expr.outputs[0]
        if row is None:
            self._find(f"{output.name}: there is no op {expr.op!r} that libraries compute", output)
            return
        for name, value in zip(expr.names, expr.inputs, strict=True):
            if isinstance(value, Tensor) is not (name in row.tensors):
                self._find(f"{output.name}: {value!r} is no {name} of {expr.op}", output)
                return
        values = dict(zip(expr.names, expr.inputs, strict=True))
        try:
            results = library_results(expr.op, Call(values, dict(expr.options), expr.extents, self))
        except DefinitionRuntimeError as error:
            self._find(f"{output.name}: {error.message}", output)
            return
        for t, result in zip(expr.outputs, results, strict=True):
            dims = [(self._same(d.extent), d.kind, d.expanded) for d in t.logical]
            wanted = [(self._same(extent), kind, expanded) for extent, kind, expanded in result.dims]
            if t.dtype is not result.dtype or dims != wanted:
                self._find(f"{t.name} of {t.dtype.name} and {t.logical} does not follow from {expr.op}", t)

    def joined_dim(self, op: str, operands: Sequence[IterDomain], position: int) -> Dim:
        """The dim that operands meet in, for the rule of a library's op."""
        concrete = [d for d in operands if not d.is_broadcast]
        if any(self._same(d.extent) is not self._same(concrete[0].extent) for d in concrete):
            raise DefinitionRuntimeError(f"{op}: dim {position} is {operands}")
        return (concrete[0].extent, concrete[0].kind, False) if concrete else (ONE, IterKind.broadcast, False)

    def require_same(self, left: IterDomain, right: IterDomain, what: str) -> None:
        """Raise DefinitionRuntimeError for dims that no constraint makes equal."""
        if self._same(left.extent) is not self._same(right.extent):
            raise DefinitionRuntimeError(f"{what}: {left!r} and {right!r}")

    def require_natural(self, extent: Int, what: str) -> None:
        """Constraints say so, which inputs are held to."""

    def _random(self, expr: Random) -> None:
        output = expr.output
        self._ranks(output, len(expr.extents) in (0, output.ndim), f"{len(expr.extents)} extents")
        if not output.dtype.is_floating:
            self._find(f"{output.name}: random numbers of {output.dtype.name}, expected a floating dtype", output)
        for v in expr.parameters:
            if v.dtype.is_complex:
                self._find(f"{output.name}: the parameter {v!r} is {v.dtype.name}", output)
        for v in expr.state or ():
            if not v.dtype.is_integral or (isinstance(v, Tensor) and v.ndim):
                self._find(f"{output.name}: the state {v!r} is no integer scalar or tensor of rank 0", output)

    def _scan(self, expr: Scan) -> None:
        source, output = expr.input, expr.output
        row = SCANS.get(expr.op)
        if row is None:
            self._find(f"{output.name}: the op table has no scan {expr.op!r}", output)
        elif source.dtype is not output.dtype or kind_of(output.dtype) not in row.kinds:
            self._find(f"{output.name}: {expr.op} of {source.dtype.name} gives {output.dtype.name}", output)
        elif source.dtype.is_reduced_float:
            self._find(f"{output.name}: scans run in Float; {source.name} is {source.dtype.name}", output)
        if expr.init is not None:
            self._castable(expr.init.dtype, output)
        fits = source.ndim == len(output.logical) and 0 <= expr.dim < source.ndim
        if not self._ranks(output, fits, f"dim {expr.dim} of {source.name}"):
            return
        for a, b in dim_pairs(expr, source, output):
            if a.kind is not b.kind or b.expanded or self._same(a.extent) is not self._same(b.extent):
                self._find(f"{output.name}: dim {a!r} of {source.name} cannot become {b!r}", output)
        scanned = source.visible[expr.dim]
        if scanned.is_broadcast:
            self._find(f"{output.name}: the scanned dim {scanned.name} is broadcast", output)

    def _welford(self, expr: Welford) -> None:
        mean, m2, count = expr.mean, expr.m2, expr.count
        if expr.partial is not None:
            self._find(f"{mean.name}: only a schedule makes welfords of partial results", mean)
        if not (expr.input.dtype.is_floating and mean.dtype is m2.dtype is expr.input.dtype):
            found = f"{mean.dtype.name} and {m2.dtype.name}"
            self._find(f"{mean.name}: welford of {expr.input.dtype.name} gives {found}", mean)
        if expr.input.dtype is not compute_dtype(expr.input.dtype):
            self._find(f"{mean.name}: welford runs in Float; {expr.input.name} is {expr.input.dtype.name}", mean)
        if count.dtype is not DataType.Index:
            self._find(f"{count.name}: the count of a welford is {count.dtype.name}, expected Index", count)
        for t in (mean, m2, count):
            self._reduced(expr, expr.input, t)
            if [d.kind for d in t.logical] != [d.kind for d in mean.logical]:
                self._find(f"{mean.name} and {t.name}, of one welford, are reduced over different dims", t)

    def _exp_sum(self, expr: ExpSum) -> None:
        largest, total, dtype = expr.largest, expr.total, expr.input.dtype
        if expr.partial is not None:
            self._find(f"{total.name}: only a schedule makes sums of exponentials of partial results", total)
        if not (dtype.is_floating and largest.dtype is total.dtype is dtype):
            found = f"{largest.dtype.name} and {total.dtype.name}"
            self._find(f"{total.name}: the exponentials of {dtype.name} give {found}", total)
        if dtype is not compute_dtype(dtype):
            self._find(f"{total.name}: exponentials are summed in Float; {expr.input.name} is {dtype.name}", total)
        for t in (largest, total):
            self._reduced(expr, expr.input, t)
        if [d.kind for d in largest.logical] != [d.kind for d in total.logical]:
            self._find(f"{largest.name} and {total.name}, of one sum, are reduced over different dims", total)

    # --- dtypes -------------------------------------------------------------------------------------------------------

    def _pointwise_dtypes(self, op: str, inputs: Sequence[Val], output: Tensor) -> None:
        row = ROWS.get("set" if op in COPIES else op)
        if row is None or not row.primitive:
            self._find(f"{output.name}: the op table has no row {op!r} that kernels can run", output)
            return
        if len(inputs) != row.arity:
            self._find(f"{output.name}: {op} takes {row.arity} operands, has {len(inputs)}", output)
            return
        rule = row.rule
        if rule is DtypeRule.CAST:
            self._castable(inputs[0].dtype, output)
            return
        values = inputs
        if rule is DtypeRule.SELECT:
            values = inputs[1:]
            if inputs[0].dtype is not DataType.Bool:
                self._find(f"{output.name}: the condition is {inputs[0].dtype.name}, expected Bool", output)
        dtype: DataType | None = None
        for v in values:
            if not isinstance(v, Tensor):
                continue
            if dtype is None:
                dtype = v.dtype
            elif v.dtype is not dtype:
                self._find(f"{output.name}: {op} of {dtype.name} and {v.dtype.name}; one of them needs a cast", output)
                return
        if dtype is None:
            # Only `where` with two scalars: the result has their promoted dtype.
            dtype = output.dtype
        kind = kind_of(dtype)
        if rule is DtypeRule.LOGICAL and dtype is not DataType.Bool:
            self._find(f"{output.name}: {op} of {dtype.name}, expected Bool", output)
        elif kind not in row.kinds or (rule is DtypeRule.FLT and kind not in "fc"):
            self._find(f"{output.name}: {op} does not take {dtype.name}", output)
        elif (
            rule in _WIDENED
            and compute_dtype(dtype) is not dtype
            and dtype is not DataType.Index
            and not row.in_own_type
        ):
            self._find(f"{output.name}: {op} runs in {compute_dtype(dtype).name}; operands are {dtype.name}", output)
        elif result_dtype(row, dtype) is not output.dtype:
            self._find(
                f"{output.name}: {op} of {dtype.name} gives {result_dtype(row, dtype).name}, not {output.dtype.name}",
                output,
            )
        for v in values:
            if isinstance(v, Scalar) and v.dtype is not dtype and kind_of(v.dtype) != kind:
                self._find(f"{output.name}: the scalar operand {v!r} is {v.dtype.name} beside {dtype.name}", output)

    def _scalar_dtypes(self, op: str, inputs: Sequence[Scalar], output: Scalar) -> None:
        row = POINTWISE.get(op)
        if row is None:
            self._find(f"{output.name}: the op table has no row {op!r}", output)
            return
        if row.rule is DtypeRule.CAST:
            self._castable(inputs[0].dtype, output)
            return
        try:
            dtype = operand_dtype(row, [OperandClass(s.dtype, "S") for s in inputs])
        except Exception as error:
            self._find(f"{output.name}: {error}", output)
            return
        if result_dtype(row, dtype) is not output.dtype:
            self._find(f"{output.name}: {op} gives {result_dtype(row, dtype).name}, not {output.dtype.name}", output)


def _is_extent(scalar: Scalar, d: IterDomain) -> bool:
    # A dim that turned out to have one element keeps the scalar by which its extent was given.
    return scalar.expression is d.extent or (d.is_broadcast and scalar.expression is not None)


def _sources(d: IterDomain) -> set[IterDomain]:
    """Every dim that a dim was made of."""
    match d.definition:
        case None:
            return set()
        case Split(source=source):
            return {source} | _sources(source)
        case Merge(outer=outer, inner=inner):
            return {outer, inner} | _sources(outer) | _sources(inner)


def _is_same(a: IterDomain, b: IterDomain) -> bool:
    return a.kind is b.kind and a.expanded is b.expanded


def _is_gathered(a: IterDomain, b: IterDomain) -> bool:
    return a.kind is b.kind and not b.expanded


def _is_expansion(a: IterDomain, b: IterDomain) -> bool:
    if a.is_broadcast:
        return b.is_broadcast or b.expanded
    return not b.is_broadcast and a.expanded is b.expanded
