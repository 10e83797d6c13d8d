"""How a segment reads its inputs: at the indices of its loops, or displaced by a slice, a pad or a gather.

Loops iterate over dims of results. A dim of an input that is read only at other indices (a row of which a slice takes half,
a table from which a gather takes some rows) has no loop; it follows the corresponding dim of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache

from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.dim_pairs import dim_pairs, displaced_dims, position_pairs, windows_of
from fuser.ir.fusion.fusion import (
    Fusion,
    Gather,
    IterDomain,
    Resize,
    Tensor,
    TensorExpr,
    Window,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.tensors import place_in_root
from fuser.ir.integers.integers import ONE, ZERO, Int, Symbol, symbol
from fuser.records import record

ACCESS_BYTES = 16
"""The widest access of a thread to device memory, up to Hopper."""


@record(eq=False)
class InputRead:
    """One way of reading an input.

    name      the input's for reads at its own indices; `<input>@<result>` for a displaced one
    dims      per dim of the input, the dim of the loops that it follows; None where gathered elements are no neighbours, and
              where one of them is chosen
    windows   per dim of the input, the window of the slice or pad; empty without one
    outer     where a dim follows several of the loops, as parts of it: `dims` has the innermost, here are the others, each with
              the position of the dim of the input, and elements along that from one index to the next
    lookups   where it is a gather: dims of the loops that the index has, each with the position of the dim of the input along
              which another place is read for each of them
    index     tensor of those places
    """

    name: str
    tensor: Tensor
    dims: tuple[IterDomain | None, ...]
    windows: tuple[Window, ...] = ()
    outer: tuple[tuple[IterDomain, int, Int], ...] = ()
    lookups: tuple[tuple[IterDomain, int], ...] = ()
    index: Tensor | None = None

    @property
    def varying_dims(self) -> tuple[IterDomain, ...]:
        """Every dim of the loops with which other elements are read."""
        return (*self.loop_dims, *(d for d, _ in self.lookups))

    @property
    def loop_dims(self) -> tuple[IterDomain, ...]:
        """Every dim of the loops that the read follows."""
        return (*(d for d in self.dims if d is not None), *(d for d, _, _ in self.outer))


def read_step(read: InputRead | None, dim: int) -> int:
    """Elements of a dim of an input from one index of the loops to the next, where it is read at other indices."""
    return read.windows[dim].step if read is not None and read.windows else 1


def is_displaced(expr: TensorExpr, source: Tensor) -> bool:
    """Whether an expr reads some dim of `source` at other indices than its own."""
    if not isinstance(expr, (Resize, Gather)):
        return False
    return any(True for _ in displaced_dims(expr, source, expr.output))


def displaced_name(expr: TensorExpr, source: Tensor) -> str:
    """Name of a displaced read."""
    return f"{source.name}@{tensor_outputs(expr)[0].name}"


def displaced_intermediate(segment: Fusion) -> tuple[Tensor, Tensor] | None:
    """(tensor computed by the segment, result that reads it at other indices), or None.

    The elements such a read needs are other threads'; slices, pads and gathers are moved to inputs before segments are made.
    """
    inputs = set(segment.input_tensors)
    for e in segment.tensor_exprs:
        if isinstance(e, (Resize, Gather)) and e.input not in inputs and is_displaced(e, e.input):
            return e.input, e.output
    return None


@memoized
def input_reads(segment: Fusion) -> tuple[InputRead, ...]:
    """Every way in which the inputs of more than rank 0 are read (an input that is not read counts as read in place)."""
    displaced: dict[Tensor, list[InputRead]] = {}
    direct: set[Tensor] = set()
    for e in segment.tensor_exprs:
        if isinstance(e, (Resize, Gather)) and is_displaced(e, e.input):
            displaced.setdefault(e.input, []).append(_displaced_read(e))
            direct.update(t for t in tensor_inputs(e) if t is not e.input)
        else:
            direct.update(tensor_inputs(e))
    found: list[InputRead] = []
    for t in segment.input_tensors:
        if t.is_cpu or not t.visible:
            continue
        if t in direct or t not in displaced:
            found.append(InputRead(t.name, t, t.visible))
        found += displaced.get(t, ())
    return tuple(found)


def _displaced_read(e: Resize | Gather) -> InputRead:
    places = list(position_pairs(e, e.input, e.output))
    name = displaced_name(e, e.input)
    if isinstance(e, Resize):
        followed: list[IterDomain | None] = [None if _is_chosen(a, b) else b for a, b in places]
        outer: list[tuple[IterDomain, int, Int]] = []
        for d in e.output.visible if e.output.root is not None else ():
            root, elements = place_in_root(d)
            if root is not d:
                at = e.output.produced.index(root)
                if elements is ONE:
                    followed[at] = d
                else:
                    outer.append((d, at, elements))
        return InputRead(name, e.input, tuple(followed), e.windows, tuple(outer))
    # Neighbours along a dim of the index are gathered from anywhere.
    looked_up = [b for a, b in position_pairs(e, e.index, e.output) if not a.is_broadcast]
    indexed = {*looked_up, places[e.dim][1]}
    dims = tuple(None if b in indexed or _is_chosen(a, b) else b for a, b in places)
    own = {b: i for i, (_, b) in enumerate(places)}
    lookups = tuple((b, own.get(b, e.dim)) for b in looked_up)
    return InputRead(name, e.input, dims, e.windows, lookups=lookups, index=e.index)


def _is_chosen(source: IterDomain, result: IterDomain) -> bool:
    """Whether a single one of several elements is read, wherever a loop over the result's dim is."""
    return result.is_broadcast and not source.is_broadcast


def _read_in_place(e: TensorExpr) -> list[Tensor]:
    """Tensors that an expr reads at the indices of its own loops."""
    return [e.index] if isinstance(e, Gather) else [] if isinstance(e, Resize) else list(tensor_inputs(e))


@memoized
def dims_without_loop(segment: Fusion) -> frozenset[IterDomain]:
    """Dims of inputs that no loop has to run over: everything that reads them reads them displaced."""
    displaced = {
        a
        for e in segment.tensor_exprs
        if isinstance(e, (Resize, Gather))
        for a, _ in displaced_dims(e, e.input, e.output)
    }
    if not displaced:
        return frozenset()
    inputs = set(segment.input_tensors)
    looped: set[IterDomain] = set()
    for e in segment.tensor_exprs:
        for t in inputs.intersection(tensor_inputs(e)):
            if isinstance(e, (Resize, Gather)) and e.input is t:
                looped.update(a for a, _ in dim_pairs(e, t, e.output))
            # A dim that is squeezed away is read in place as well: what is kept of the input has it.
            if any(t is read for read in _read_in_place(e)):
                looped.update(t.visible)
    return frozenset(d for d in displaced - looped if any(d in t.visible for t in inputs))


def read_width(
    read: InputRead,
    described: TensorDescriptor,
    dim: int,
    limit: int,
    evaluate: Callable[[Int], int],
    asked_multiples: Collection[Symbol] = (),
) -> int:
    """Largest power of two of elements, up to `limit`, that one access along `dim` of a read can take.

    Lowering has to prove it from the facts that such an access asks for, and from those that other extents are multiples of
    `limit`: where the window begins and ends and by what it is moved must be divisible.
    """
    followed = read.dims[dim]
    assert followed is not None
    extent = read.tensor.visible[dim].extent
    itemsize = read.tensor.dtype.itemsize
    places: list[Int] = []
    for window in read.windows[dim : dim + 1]:
        places += window.seams
    count = evaluate(followed.extent)
    width = limit if count and read_step(read, dim) == 1 else 1
    while width > 1:
        nbytes = width * itemsize
        known = set(asked_multiples)
        if isinstance(extent, Symbol) and described.sizes[dim] % width == 0:
            known.add(extent)
        strided = (
            s * itemsize % nbytes == 0 for d, s in enumerate(described.strides) if d != dim and described.sizes[d] != 1
        )
        if (
            nbytes <= ACCESS_BYTES
            and described.alignment % nbytes == 0
            and all(is_divisible(e, width, known) for e in places)
            and all(strided)
            and count % width == 0
        ):
            return width
        width //= 2
    return 1


def is_divisible(extent: Int, width: int, known: Collection[Symbol]) -> bool:
    """Whether lowering can prove that an extent is a multiple of `width` from facts that those in `known` are."""
    if extent.multiple % width == 0:
        return True
    return not extent.is_const and _is_divisible(extent, width, frozenset(known))


@lru_cache(maxsize=1024)
def _is_divisible(extent: Int, width: int, known: frozenset[Symbol]) -> bool:
    return extent.substitute({s: symbol(s.name, 0, multiple=width) for s in known}).multiple % width == 0


@memoized
def tested_dims(segment: Fusion) -> frozenset[IterDomain]:
    """Dims with a window and fill values outside of it: the index along them is compared with the window."""
    windows = (
        (d, w)
        for e in segment.tensor_exprs
        if isinstance(e, (Resize, Gather)) and e.fill is not None
        for d, w in windows_of(e)
    )
    return frozenset(d for d, w in windows if w.begin is not ZERO or w.end is not d.extent)
