"""Exprs of a fusion that is being made which move elements: broadcasts, reshapes, slices, pads, concatenations, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fuser.errors import DefinitionRuntimeError
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    Gather,
    GatherKind,
    IterDomain,
    IterKind,
    Permute,
    Reshape,
    Resize,
    Scalar,
    Squeeze,
    Tensor,
    Window,
    row_major_order,
)
from fuser.ir.fusion.fusion_values import ValueBuilder
from fuser.ir.fusion.reshape_dims import Resolution, product, resolve, transformed
from fuser.ir.integers.integers import ONE, ZERO, Int, const, maximum, minimum
from fuser.ir.ops.dtypes import DataType


class ViewBuilder(ValueBuilder):
    """Infers the dims of what moves elements; see FusionBuilder, which stands on top."""

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
                        location=self.here(),
                    )
                self._require_equal(d.extent, extent, f"expand, dim {i}")
                # One that turns out to be 1 is expanded.
                is_asked = extent.is_const or not (self.is_concrete or self._is_fixed(d))
                dims.append((extent if is_asked else d.extent, d.kind, d.expanded))
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
                    location=self.here(),
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
        location = self.here()
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
        parts: Sequence[Sequence[Int]] = (),
    ) -> Tensor:
        """A window of the input per dim, in a result of the given extents; see Resize.

        A dim of one stored element stays one where its window spans the result. `parts`: per dim, the extents of those that
        the result has in its place.
        """
        dims = [_windowed(*given) for given in zip(tensor.visible, windows, extents, strict=True)]
        output = self.tensor(tensor.dtype, dims)
        if any(len(p) > 1 for p in parts):
            output = _split(output, parts)
        self.exprs.append(Resize(tensor, output, tuple(windows), fill, tuple(scalars)))
        return output

    def slice(
        self,
        tensor: Tensor,
        starts: Sequence[Int],
        ends: Sequence[Int],
        scalars: Sequence[tuple[Scalar | None, Scalar | None]] = (),
        steps: Sequence[int] = (),
    ) -> Tensor:
        """Every `step`-th of the elements [start, end) of each dim; 0 <= start <= end <= extent is the caller's business.

        But that a part of a known number of elements lies inside of its dim is a constraint, where that is not known.
        """
        strides = steps or [1] * len(starts)
        places = list(zip(starts, ends, strides, strict=True))
        extents = [(end - start + (step - 1)) // step for start, end, step in places]
        windows = [
            Window(start, ZERO, extent, (), step) for (start, _, step), extent in zip(places, extents, strict=True)
        ]
        for i, (d, window, extent) in enumerate(zip(tensor.visible, windows, extents, strict=True)):
            self.require_inside(i, window, extent, d.extent)
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
            what = _padded(i)
            if extent.is_const and extent.value < 0:
                raise DefinitionRuntimeError(f"{what}: {d.extent} + {left} + {right} is negative", location=self.here())
            self.require_padded(i, extent)
            extents.append(extent)
            windows.append(Window(-left, maximum(left, ZERO), minimum(left + d.extent, extent)))
        return self.resize(tensor, windows, extents, fill, scalars)

    def require_padded(self, dim: int, extent: Int) -> None:
        """The extent of a padded dim must not be negative: a constraint, where that is not known."""
        self.require_natural(extent, _padded(dim))

    def require_inside(self, dim: int, window: Window, extent: Int, whole: Int) -> None:
        """A part of a known extent must lie inside of its dim: constraints, where that is not known.

        Parts whose bounds are clamped to the dim need none, and their extents are not known.
        """
        if extent.is_const and extent is not ZERO:
            start, extent = window.offset, (extent - 1) * window.step + 1
            part = _part_text(start, extent.value, whole)
            self.require_natural(start, f"slice of dim {dim}: {part} begins before the dim")
            self.require_natural(whole - start - extent, f"slice of dim {dim}: {part} ends behind the dim")

    def cat(self, tensors: Sequence[Tensor], dim: int, bounds: Sequence[Int]) -> Tensor:
        """Parts of tensors of one shape side by side along `dim`: the k-th ends where bounds[k] says."""
        dims = [self._joined_dim("cat", [t.visible[i] for t in tensors], i) for i in range(tensors[0].ndim)]
        for i, (extent, kind, _) in enumerate(dims):
            if i != dim and kind is not IterKind.broadcast and any(t.visible[i].is_broadcast for t in tensors):
                self._require_equal(extent, const(1), f"cat, dim {i}")
        output = self.tensor(tensors[0].dtype, dims)
        self.exprs.append(Cat(tuple(tensors), output, dim, tuple(bounds)))
        return output

    def gather(
        self,
        kind: GatherKind,
        tensor: Tensor,
        index: Tensor,
        dim: int,
        windows: Sequence[Window] = (),
        extents: Sequence[Int] = (),
        fill: Scalar | None = None,
    ) -> Tensor:
        """Elements of `tensor` whose index along `dim` is in `index`; see Gather and GatherKind for the shapes.

        `windows`, `extents`: per dim of `tensor`, of a part of what is looked up; `index` has the shape of that part. `fill`:
        what is around the windows.
        """
        dims: list[tuple[Int, IterKind, bool]] = []
        whole = tensor.visible
        if windows:
            known = enumerate(zip(whole, windows, extents, strict=True))
            seen = [_windowed(d, w, e) if i != dim else (d.extent, d.kind, False) for i, (d, w, e) in known]
        else:
            seen = [(d.extent, d.kind, False) for d in whole]
        if kind is GatherKind.index_select:
            dims = [(extent, shape, False) for extent, shape, _ in seen]
            chosen = [(d.extent, d.kind, False) for d in index.visible]
            dims[dim : dim + 1] = chosen or [(const(1), IterKind.broadcast, False)]
        elif kind is GatherKind.gather:
            dims = [(d.extent, d.kind, False) for d in index.visible]
        elif windows:
            for i, (own, other) in enumerate(zip(seen, index.visible, strict=True)):
                # As without windows: the operand's extent, which that of the index is equal to.
                is_own = i != dim and (other.is_broadcast or own[1] is not IterKind.broadcast)
                dims.append(own if is_own else (other.extent, other.kind, False))
        else:
            for i, (d, other) in enumerate(zip(tensor.visible, index.visible, strict=True)):
                dims.append(self._joined_dim("take_along_axis", [other] if i == dim else [d, other], i))
        output = self.tensor(tensor.dtype, dims)
        self.exprs.append(Gather(kind, tensor, index, output, dim, tuple(windows), fill))
        return output


def _split(tensor: Tensor, parts: Sequence[Sequence[Int]]) -> Tensor:
    """The tensor with parts of its dims in their places."""
    dims = [
        part
        for d, p in zip(tensor.visible, parts, strict=True)
        for part in (transformed(tensor.name, [d], p) if len(p) > 1 else [d])
    ]
    contiguity = tuple(None if d.expanded or d.is_broadcast else True for d in dims)
    return replace(
        tensor, logical=tuple(dims), root=tensor.logical, stride_order=row_major_order(len(dims)), contiguity=contiguity
    )


def _windowed(d: IterDomain, window: Window, extent: Int) -> tuple[Int, IterKind, bool]:
    """The dim of the result of a window: one stored element stays one where the window spans the result."""
    expanded = d.expanded and window.begin is ZERO and window.end is extent
    if not window.moves and extent is d.extent:
        return d.extent, d.kind, expanded
    if extent.is_const and extent.value == 1:
        return extent, IterKind.broadcast, False
    return extent, IterKind.iteration, expanded


def _part_text(start: Int, extent: int, whole: Int) -> str:
    """A part of so many elements as a subscript names it: from the start of the dim, or from its end."""
    from_end = start - whole
    if not start.is_const and not from_end.is_const:
        return "it"
    first = start.value if start.is_const else from_end.value
    return f"position {first}" if extent == 1 else f"the part from {first} to {first + extent - 1}"


def _padded(dim: int) -> str:
    return f"pad of dim {dim}: Invalid resized domain extent"
