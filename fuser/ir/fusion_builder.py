"""`FusionBuilder`: makes the exprs of a fusion one by one, inferring dims, and freezes it.

The builder knows shapes, not dtypes rules: the frontend decides result dtypes and inserts casts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from fuser.errors import DefinitionRuntimeError
from fuser.ir.dtypes import DataType
from fuser.ir.fusion import (
    COPIES,
    Broadcast,
    Cat,
    Distribution,
    Expand,
    Expr,
    ExpSum,
    ExtentConstraint,
    ExtentOp,
    Full,
    Fusion,
    Gather,
    GatherKind,
    Iota,
    IterDomain,
    IterKind,
    Output,
    Permute,
    Pointwise,
    Random,
    Reduction,
    Reshape,
    Resize,
    Scalar,
    ScalarOp,
    Scan,
    Squeeze,
    Tensor,
    Val,
    Welford,
    Window,
    expr_extents,
    expr_inputs,
    expr_outputs,
    extent_operands,
    row_major_order,
)
from fuser.ir.integers import ONE, ZERO, Int, const, maximum, minimum, symbol
from fuser.ir.live_order import exprs_below
from fuser.ir.reshape_dims import Resolution, product, resolve, transformed
from fuser.source_location import SourceLocation, caller_location


class FusionBuilder:
    """Collects inputs, exprs and outputs. Not thread safe: one builder belongs to one definition."""

    def __init__(self) -> None:
        self.inputs: list[Val] = []
        self.exprs: list[Expr] = []
        self.outputs: list[Output] = []
        # (position of the expr that asks for it, constraint): constraints of dead exprs are dropped with them. None: an
        # output asks for it.
        self.constraints: list[tuple[int | None, ExtentConstraint]] = []
        self.extent_scalars: dict[str, str] = {}
        self.next_number = 0
        # Names that the next results take instead of fresh ones, when a fusion is rebuilt under its old names.
        self.given_names: deque[str] = deque()
        # The line that results are made for, when a pass makes them; None: the caller's.
        self.location: SourceLocation | None = None

    # --- values ---

    def new_name(self, prefix: str) -> str:
        """A fresh name, `t<k>` or `c<k>`."""
        if self.given_names:
            return self.given_names.popleft()
        self.next_number += 1
        return f"{prefix}{self.next_number - 1}"

    def tensor(
        self,
        dtype: DataType,
        dims: Sequence[tuple[Int, IterKind, bool]],
        *,
        stride_order: tuple[int, ...] | None = None,
        contiguity: tuple[bool | None, ...] | None = None,
        is_cpu: bool = False,
        name: str | None = None,
    ) -> Tensor:
        """A tensor value with dims given as (extent, kind, expanded); dense row major unless a layout is given."""
        name = name or self.new_name("t")
        logical = tuple(
            IterDomain(f"{name}.{i}", extent, kind, expanded) for i, (extent, kind, expanded) in enumerate(dims)
        )
        visible = [d for d in logical if not d.is_reduction]
        order = stride_order if stride_order is not None else row_major_order(len(visible))
        if contiguity is None:
            memory = [visible[i] for i in sorted(range(len(visible)), key=lambda d: -order[d])]
            contiguity = tuple(None if d.is_broadcast or d.expanded else True for d in memory)
        location = self.location or caller_location()
        return Tensor(name, dtype, logical, order, contiguity, None, is_cpu, location)

    def input_tensor(
        self,
        dtype: DataType,
        shape: Sequence[int],
        *,
        expanded: Sequence[bool] = (),
        stride_order: tuple[int, ...] | None = None,
        contiguity: tuple[bool | None, ...] | None = None,
        is_cpu: bool = False,
        register: bool = True,
    ) -> Tensor:
        """A fusion input. Shape entries: -1 symbolic, 1 broadcast, 0 or above 1 static."""
        name = self.new_name("t")
        dims: list[tuple[Int, IterKind, bool]] = []
        for d, n in enumerate(shape):
            is_expanded = bool(expanded) and expanded[d]
            extent = symbol(f"{name}_size{d}", 0) if n == -1 else const(n)
            kind = IterKind.broadcast if n == 1 and not is_expanded else IterKind.iteration
            dims.append((extent, kind, is_expanded))
        result = self.tensor(dtype, dims, stride_order=stride_order, contiguity=contiguity, is_cpu=is_cpu, name=name)
        if register:
            self.inputs.append(result)
        return result

    def input_scalar(self, dtype: DataType, *, register: bool = True) -> Scalar:
        """A symbolic scalar input."""
        result = Scalar(self.new_name("c"), dtype, location=caller_location())
        if register:
            self.inputs.append(result)
        return result

    def constant(self, value: bool | int | float | complex, dtype: DataType) -> Scalar:
        """A constant; `value` already converted to the Python type of `dtype`."""
        expression = const(int(value)) if dtype.is_integral and isinstance(value, int) else None
        return Scalar(self.new_name("c"), dtype, value, expression, caller_location())

    def extent_of_scalar(self, scalar: Scalar) -> Int:
        """The integer expression of a scalar used as an extent (a fresh non-negative symbol if it is not a known one)."""
        if scalar.expression is not None:
            return scalar.expression
        self.extent_scalars[scalar.name] = scalar.name
        return symbol(scalar.name, 0)

    def _require_equal(self, left: Int, right: Int, what: str) -> None:
        """Ask that two extents are equal for the expr that is being made (it is appended after its dims are known)."""
        self.constraints.append((len(self.exprs), ExtentConstraint(left, right, what, caller_location())))

    # --- exprs ---

    def scalar_op(self, op: str, inputs: Sequence[Scalar], dtype: DataType, expression: Int | None = None) -> Scalar:
        """Host arithmetic; constants are the caller's business to fold.

        `expression`: the result as an integer expression, where it is one of extents.
        """
        output = Scalar(self.new_name("c"), dtype, None, expression, caller_location())
        self.exprs.append(ScalarOp(op, tuple(inputs), output))
        return output

    def size(self, tensor: Tensor, dim: int) -> Scalar:
        """Extent of visible dim `dim` as an Int scalar; a constant where the extent is one."""
        extent = tensor.visible[dim].extent
        if extent.is_const:
            return Scalar(self.new_name("c"), DataType.Int, extent.value, extent, caller_location())
        output = Scalar(self.new_name("c"), DataType.Int, None, extent, caller_location())
        self.exprs.append(ExtentOp(tensor, dim, output))
        return output

    def pointwise(self, op: str, inputs: Sequence[Val], dtype: DataType) -> Tensor:
        """An elementwise op over tensors of equal rank (size-1 broadcast dims combine with any extent) and scalars.

        Raises DefinitionRuntimeError where two static extents differ; symbolic ones become constraints.
        """
        tensors = [v for v in inputs if isinstance(v, Tensor)]
        dims = [self._joined_dim(op, [t.visible[i] for t in tensors], i) for i in range(tensors[0].ndim)]
        if op == "cast" or op in COPIES:
            dims = [(d.extent, d.kind, d.expanded) for d in tensors[0].visible]
        output = self.tensor(dtype, dims)
        self.exprs.append(Pointwise(op, tuple(inputs), output))
        return output

    def stride_order(self, tensor: Tensor, order: Sequence[int]) -> Tensor:
        """A dense copy in the given memory order (ranks per dim from fastest 0 to slowest)."""
        dims = [(d.extent, d.kind, d.expanded) for d in tensor.visible]
        output = self.tensor(tensor.dtype, dims, stride_order=tuple(order))
        self.exprs.append(Pointwise("stride_order", (tensor,), output))
        return output

    def _joined_dim(self, op: str, operands: Sequence[IterDomain], position: int) -> tuple[Int, IterKind, bool]:
        concrete = [d for d in operands if not d.is_broadcast]
        if not concrete:
            return const(1), IterKind.broadcast, False
        chosen = next((d for d in concrete if d.extent.is_const), concrete[0])
        for other in concrete:
            if other.extent is chosen.extent:
                continue
            if other.extent.is_const and chosen.extent.is_const:
                sizes = [str(d.extent) for d in operands]
                raise DefinitionRuntimeError(
                    f"Expected sizes to match in {op}: dim {position} of the operands has extents {', '.join(sizes)}",
                    location=caller_location(),
                )
            self._require_equal(chosen.extent, other.extent, f"{op}, dim {position}")
        return chosen.extent, IterKind.iteration, False

    def _reduced(self, tensor: Tensor, axes: Sequence[int], dtype: DataType) -> Tensor:
        dims = [(d.extent, IterKind.reduction if i in axes else d.kind, False) for i, d in enumerate(tensor.visible)]
        return self.tensor(dtype, dims)

    def reduction(self, op: str, tensor: Tensor, axes: Sequence[int], dtype: DataType) -> Tensor:
        """Reduce visible dims `axes` (non-negative, unique, none of kind broadcast: squeeze those)."""
        output = self._reduced(tensor, axes, dtype)
        self.exprs.append(Reduction(op, tensor, output))
        return output

    def welford(self, tensor: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """(mean, m2, count) over visible dims `axes`; count is Index."""
        mean, m2 = self._reduced(tensor, axes, tensor.dtype), self._reduced(tensor, axes, tensor.dtype)
        count = self._reduced(tensor, axes, DataType.Index)
        self.exprs.append(Welford(tensor, mean, m2, count))
        return mean, m2, count

    def exp_sum(self, tensor: Tensor, axes: Sequence[int], op: str = "exp") -> tuple[Tensor, Tensor]:
        """(largest, total) over visible dims `axes`."""
        largest, total = self._reduced(tensor, axes, tensor.dtype), self._reduced(tensor, axes, tensor.dtype)
        self.exprs.append(ExpSum(tensor, largest, total, op))
        return largest, total

    def scan(self, op: str, tensor: Tensor, dim: int, init: Scalar | None = None) -> Tensor:
        """A running fold along visible dim `dim` (non-negative; neither of kind broadcast nor expanded), from `init`."""
        output = self.tensor(tensor.dtype, [(d.extent, d.kind, False) for d in tensor.visible])
        self.exprs.append(Scan(op, tensor, init, output, dim))
        return output

    def scan_of_one(self, combine: str, tensor: Tensor, init: Scalar | None) -> Tensor:
        """What a scan along a dim of one element is: the fold of `init` and that element by the pointwise op `combine`."""
        return self.pointwise(
            "set" if init is None else combine, [tensor] if init is None else [init, tensor], tensor.dtype
        )

    def broadcast(self, tensor: Tensor, flags: Sequence[bool]) -> Tensor:
        """New extent-1 dims where `flags` is True."""
        source = iter(tensor.visible)
        dims: list[tuple[Int, IterKind, bool]] = []
        for new in flags:
            if new:
                dims.append((const(1), IterKind.broadcast, False))
            else:
                d = next(source)
                dims.append((d.extent, d.kind, d.expanded))
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Broadcast(tensor, output, tuple(flags)))
        return output

    def squeeze(self, tensor: Tensor, flags: Sequence[bool]) -> Tensor:
        """Drop visible dims where `flags` is True; a dim not known to have one stored element becomes a constraint."""
        dims: list[tuple[Int, IterKind, bool]] = []
        for i, (d, gone) in enumerate(zip(tensor.visible, flags, strict=True)):
            if not gone:
                dims.append((d.extent, d.kind, d.expanded))
            elif not d.is_broadcast and not d.expanded:
                self._require_equal(d.extent, const(1), f"squeeze of dim {i}")
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Squeeze(tensor, output, tuple(flags)))
        return output

    def expand(self, tensor: Tensor, extents: Sequence[Int | None], scalars: Sequence[Scalar | None] = ()) -> Tensor:
        """Expand broadcast dims to the given extents (None keeps a dim); extra dims on the left are new.

        `scalars`: per dim the scalar its extent was given as, None for constants and kept dims.
        """
        added = len(extents) - tensor.ndim
        dims: list[tuple[Int, IterKind, bool]] = []
        for i, extent in enumerate(extents):
            d = tensor.visible[i - added] if i >= added else None
            if extent is None or (d is not None and d.extent is extent):
                assert d is not None, "a new dim needs an extent"
                dims.append((d.extent, d.kind, d.expanded))
            elif d is None or d.is_broadcast:
                one = extent.is_const and extent.value == 1
                dims.append((const(1), IterKind.broadcast, False) if one else (extent, IterKind.iteration, True))
            else:
                if d.extent.is_const and extent.is_const:
                    raise DefinitionRuntimeError(
                        f"Invalid expand size: dim {i} has extent {d.extent}, it cannot become {extent}",
                        location=caller_location(),
                    )
                self._require_equal(d.extent, extent, f"expand, dim {i}")
                dims.append((extent if extent.is_const else d.extent, d.kind, d.expanded))
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Expand(tensor, output, tuple(scalars) or (None,) * len(extents)))
        return output

    def permute(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """Output dim i is input dim dims[i]."""
        source = tensor.visible
        output = self.tensor(tensor.dtype, [(source[p].extent, source[p].kind, source[p].expanded) for p in dims])
        self.exprs.append(Permute(tensor, output, tuple(dims)))
        return output

    def reshape(self, tensor: Tensor, extents: Sequence[Int], scalars: Sequence[Scalar | None] = ()) -> Tensor:
        """The elements in row-major order under other dims. `scalars`: per dim the scalar its extent was given as, None for
        constants and for one that follows from the others.

        Raises DefinitionRuntimeError (`Total element counts across view operation must match`) for other numbers of elements.
        """
        known = [d.extent for d in tensor.visible]
        if all(e.is_const for e in (*known, *extents)):
            old, new = [e.value for e in known], [e.value for e in extents]
            resolution = resolve(old, new, [True] * len(old), [True] * len(new))
            if resolution is None:
                raise DefinitionRuntimeError(
                    f"Total element counts across view operation must match: {old} cannot become {new}",
                    location=caller_location(),
                )
            return self.resolved_reshape(tensor, extents, resolution)
        output = self.tensor(tensor.dtype, self._factory_dims(extents))
        self.exprs.append(Reshape(tensor, output, tuple(scalars) or (None,) * len(extents)))
        return output

    def resolved_reshape(
        self, tensor: Tensor, extents: Sequence[Int | None], resolution: Resolution, name: str | None = None
    ) -> Tensor:
        """A reshape whose resolution is known: dims of one element are squeezed before and broadcast after it.

        `extents`: None for one that follows from the others. `name`: of the result.
        """
        if resolution.is_empty:
            nothing = self._zero(tensor.dtype)
            self._take_name(name)
            return self.full([e if e is not None else ZERO for e in extents], nothing, tensor.dtype)
        rest = [e for e, one in zip(extents, resolution.added, strict=True) if not one]
        kept = [d for d, one in zip(tensor.visible, resolution.dropped, strict=True) if not one]
        pairs = zip(kept, rest, strict=False)
        changes = any(not r.is_kept for r in resolution.runs) or any(
            e is not None and e is not d.extent for d, e in pairs
        )
        squeezes, broadcasts = any(resolution.dropped), any(resolution.added)
        reshapes = changes or not (squeezes or broadcasts)
        if squeezes:
            if not reshapes and not broadcasts:
                self._take_name(name)
            tensor = self.squeeze(tensor, resolution.dropped)
        if reshapes:
            if not broadcasts:
                self._take_name(name)
            tensor = self._reshaped(tensor, rest, resolution)
        if broadcasts:
            self._take_name(name)
            tensor = self.broadcast(tensor, resolution.added)
        return tensor

    def _zero(self, dtype: DataType) -> Scalar:
        """0 of the widest dtype of the kind, as it is written."""
        if dtype is DataType.Bool:
            return self.constant(False, dtype)
        if dtype.is_complex:
            return self.constant(0j, DataType.ComplexDouble)
        return self.constant(0.0, DataType.Double) if dtype.is_floating else self.constant(0, DataType.Int)

    def _take_name(self, name: str | None) -> None:
        if name is not None:
            self.given_names.append(name)

    def _reshaped(self, tensor: Tensor, extents: Sequence[Int | None], resolution: Resolution) -> Tensor:
        name = self.new_name("t")
        root: list[IterDomain] = []
        logical: list[IterDomain] = []
        for run in resolution.runs:
            sources = [tensor.visible[i].extent for i in run.inputs]
            wanted = [extents[j] for j in run.outputs]
            if run.sizes is not None:
                sizes, new_sizes = run.sizes
                fixed = [const(n) for n in sizes]
                for i, (e, f) in enumerate(zip(sources, fixed, strict=True)):
                    if e is not f:
                        self._require_equal(e, f, f"reshape, dim {run.inputs[i]}")
                sources, wanted = fixed, [const(n) for n in new_sizes]
            total = product(sources)
            others = product([e for e in wanted if e is not None])
            results = [total if others is ONE else total // others] if None in wanted else []
            made = [e if e is not None else results[0] for e in wanted]
            if len(made) == 1 and total.is_const:
                made = [total]
            elif len(sources) == 1 and product(made).is_const:
                sources = [product(made)]
            if run.sizes is None and product(made) is not total and None not in wanted:
                self._require_equal(total, product(made), f"reshape, dims {list(run.outputs)}")
            dims = [
                IterDomain(f"{name}.r{i}", e, tensor.visible[i].kind, tensor.visible[i].expanded)
                for i, e in zip(run.inputs, sources, strict=True)
            ]
            root += dims
            logical += dims if run.is_kept else transformed(name, dims, made)
        contiguity = tuple(None if d.expanded else True for d in logical)
        location = self.location or caller_location()
        order = row_major_order(len(logical))
        output = Tensor(name, tensor.dtype, tuple(logical), order, contiguity, tuple(root), False, location)
        self.exprs.append(Reshape(tensor, output))
        return output

    def resize(
        self,
        tensor: Tensor,
        windows: Sequence[Window],
        extents: Sequence[Int],
        fill: Scalar | None,
        scalars: Sequence[tuple[Scalar | None, Scalar | None]] = (),
    ) -> Tensor:
        """A window of the input per dim, in a result of the given extents; see Resize.

        A dim of one stored element stays one where its window spans the result.
        """
        dims: list[tuple[Int, IterKind, bool]] = []
        for d, window, extent in zip(tensor.visible, windows, extents, strict=True):
            expanded = d.expanded and window.begin is ZERO and window.end is extent
            if window.offset is ZERO and extent is d.extent:
                dims.append((d.extent, d.kind, expanded))
            elif extent.is_const and extent.value == 1:
                dims.append((extent, IterKind.broadcast, False))
            else:
                dims.append((extent, IterKind.iteration, expanded))
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Resize(tensor, output, tuple(windows), fill, tuple(scalars)))
        return output

    def slice(
        self,
        tensor: Tensor,
        starts: Sequence[Int],
        ends: Sequence[Int],
        scalars: Sequence[tuple[Scalar | None, Scalar | None]] = (),
    ) -> Tensor:
        """Elements [start, end) of each dim; 0 <= start <= end <= extent is the caller's business."""
        extents = [end - start for start, end in zip(starts, ends, strict=True)]
        windows = [Window(start, ZERO, extent) for start, extent in zip(starts, extents, strict=True)]
        return self.resize(tensor, windows, extents, None, scalars)

    def pad(
        self,
        tensor: Tensor,
        lefts: Sequence[Int],
        rights: Sequence[Int],
        fill: Scalar,
        scalars: Sequence[tuple[Scalar | None, Scalar | None]] = (),
    ) -> Tensor:
        """`fill` on the left and right of each dim; a negative width crops.

        Raises DefinitionRuntimeError (`Invalid resized domain extent`) for a result of negative extent; a symbolic one becomes
        a constraint.
        """
        windows: list[Window] = []
        extents: list[Int] = []
        for i, (d, left, right) in enumerate(zip(tensor.visible, lefts, rights, strict=True)):
            extent = d.extent + left + right
            what = f"pad of dim {i}: Invalid resized domain extent"
            if extent.is_const and extent.value < 0:
                raise DefinitionRuntimeError(
                    f"{what}: {d.extent} + {left} + {right} is negative", location=caller_location()
                )
            if extent.lo is None or extent.lo < 0:
                self._require_equal(extent, maximum(extent, ZERO), what)
            extents.append(extent)
            windows.append(Window(-left, maximum(left, ZERO), minimum(left + d.extent, extent)))
        return self.resize(tensor, windows, extents, fill, scalars)

    def cat(self, tensors: Sequence[Tensor], dim: int, bounds: Sequence[Int]) -> Tensor:
        """Parts of tensors of one shape side by side along `dim`: the k-th ends where bounds[k] says."""
        dims = [self._joined_dim("cat", [t.visible[i] for t in tensors], i) for i in range(tensors[0].ndim)]
        for i, (extent, kind, _) in enumerate(dims):
            if i != dim and kind is not IterKind.broadcast and any(t.visible[i].is_broadcast for t in tensors):
                self._require_equal(extent, const(1), f"cat, dim {i}")
        output = self.tensor(tensors[0].dtype, dims)
        self.exprs.append(Cat(tuple(tensors), output, dim, tuple(bounds)))
        return output

    def gather(self, kind: GatherKind, tensor: Tensor, index: Tensor, dim: int) -> Tensor:
        """Elements of `tensor` whose index along `dim` is in `index`; see Gather and GatherKind for the shapes."""
        dims: list[tuple[Int, IterKind, bool]] = []
        if kind is GatherKind.index_select:
            dims = [(d.extent, d.kind, False) for d in tensor.visible]
            chosen = [(d.extent, d.kind, False) for d in index.visible]
            dims[dim : dim + 1] = chosen or [(const(1), IterKind.broadcast, False)]
        elif kind is GatherKind.gather:
            dims = [(d.extent, d.kind, False) for d in index.visible]
        else:
            for i, (d, other) in enumerate(zip(tensor.visible, index.visible, strict=True)):
                dims.append(self._joined_dim("take_along_axis", [other] if i == dim else [d, other], i))
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Gather(kind, tensor, index, output, dim))
        return output

    def _factory_dims(self, extents: Sequence[Int]) -> list[tuple[Int, IterKind, bool]]:
        return [(e, IterKind.broadcast if e.is_const and e.value == 1 else IterKind.iteration, False) for e in extents]

    def full(
        self, extents: Sequence[Int], value: Scalar, dtype: DataType, scalars: Sequence[Scalar | None] = ()
    ) -> Tensor:
        """A tensor of one value. `scalars`: per dim the scalar its extent was given as, None for constants."""
        output = self.tensor(dtype, self._factory_dims(extents))
        self.exprs.append(Full(value, output, tuple(scalars) or (None,) * len(extents)))
        return output

    def iota(self, length: Int, start: Scalar, step: Scalar, dtype: DataType, scalar: Scalar | None = None) -> Tensor:
        """start + i * step. `scalar`: the one the length was given as, None for a constant."""
        output = self.tensor(dtype, self._factory_dims([length]))
        self.exprs.append(Iota(start, step, output, scalar))
        return output

    def random(
        self,
        distribution: Distribution,
        parameters: tuple[Scalar, Scalar],
        extents: Sequence[Int],
        dtype: DataType,
        scalars: Sequence[Scalar | None] = (),
        state: tuple[Val, Val] | None = None,
    ) -> Tensor:
        """A tensor of random numbers. `scalars`: per dim the scalar its extent was given as, None for constants.

        `state`: (seed, offset), integer scalars or tensors of rank 0; None takes the generator's at execution.
        """
        output = self.tensor(dtype, self._factory_dims(extents))
        given = tuple(scalars) or (None,) * len(extents)
        self.exprs.append(Random(distribution, parameters, output, given, state))
        return output

    # --- outputs ---

    def add_output(self, tensor: Tensor, alias_of: Tensor | None = None) -> None:
        """Register an output; ranks and dtypes are the frontend's business.

        Raises DefinitionRuntimeError where a static extent differs from that of the input to update.
        """
        if alias_of is not None:
            for i, (d, target) in enumerate(zip(tensor.visible, alias_of.visible, strict=True)):
                if d.extent is target.extent:
                    continue
                if d.extent.is_const and target.extent.is_const:
                    raise DefinitionRuntimeError(
                        f"Expected sizes to match in add_output: dim {i} of the output has extent {d.extent}, that of the "
                        f"input to update {target.extent}",
                        location=caller_location(),
                    )
                what = f"add_output into {alias_of.name}, dim {i}"
                self.constraints.append((None, ExtentConstraint(d.extent, target.extent, what, caller_location())))
        self.outputs.append(Output(tensor, alias_of))

    def freeze(self) -> Fusion:
        """The fusion built so far, less what no output needs."""
        live = self._live_positions()
        self._number_random_exprs()
        return Fusion(
            tuple(self.inputs),
            tuple(e for i, e in enumerate(self.exprs) if i in live),
            tuple(self.outputs),
            tuple(c for i, c in self.constraints if i is None or i in live),
            self._live_extent_scalars(live),
        )

    def _number_random_exprs(self) -> None:
        """Give the exprs that draw from the generator their ordinals, which depend on what the outputs are."""
        drawing = {e: i for i, e in enumerate(self.exprs) if isinstance(e, Random) and e.state is None}
        if not drawing:
            return
        definitions = {v: e for e in self.exprs for v in expr_outputs(e)}
        order = [e for e in exprs_below((o.tensor for o in self.outputs), definitions) if e in drawing]
        for ordinal, expr in enumerate(order):
            assert isinstance(expr, Random)
            if expr.ordinal != ordinal:
                self.exprs[drawing[expr]] = replace(expr, ordinal=ordinal)

    def _live_extent_scalars(self, live: set[int]) -> dict[str, str]:
        if not self.extent_scalars:
            return {}
        used = {
            s.name for i, c in self.constraints if i is None or i in live for s in (*c.left.symbols, *c.right.symbols)
        }
        for value in (v for i in live for v in expr_outputs(self.exprs[i])):
            extents = [d.extent for d in value.logical] if isinstance(value, Tensor) else [value.expression]
            used.update(s.name for e in extents if e is not None for s in e.symbols)
        used.update(s.name for i in live for e in expr_extents(self.exprs[i]) for s in e.symbols)
        return {name: scalar for name, scalar in self.extent_scalars.items() if name in used}

    def _live_positions(self) -> set[int]:
        needed: set[Val] = {o.tensor for o in self.outputs}
        # Scalars that only extents mention: a pass may have made those.
        named: set[str] = set()
        live: set[int] = set()
        for i in range(len(self.exprs) - 1, -1, -1):
            expr = self.exprs[i]
            outputs = expr_outputs(expr)
            if needed.isdisjoint(outputs) and named.isdisjoint(v.name for v in outputs):
                continue
            live.add(i)
            needed.update(expr_inputs(expr))
            needed.update(extent_operands(expr))
            if self.extent_scalars:
                extents = [d.extent for v in outputs if isinstance(v, Tensor) for d in v.logical]
                symbols = {s.name for e in (*extents, *expr_extents(expr)) for s in e.symbols}
                named.update(self.extent_scalars[s] for s in symbols if s in self.extent_scalars)
        return live
