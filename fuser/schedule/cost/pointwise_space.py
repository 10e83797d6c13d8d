"""The iteration space of a pointwise kernel: its dims as parts, its arguments, and the widest accesses that these allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from fuser.ir.device_info import SECTOR_BYTES, DeviceInfo
from fuser.ir.fusion import Fusion, Pointwise, Resize
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.memoized import memoized
from fuser.schedule.analysis.alignment import LEAST_VECTORS, choose_peel_reference
from fuser.schedule.analysis.cells import Cells
from fuser.schedule.analysis.layout import ACCESS_BYTES, AccessWidths, Argument, arguments_of, joined_dims
from fuser.schedule.analysis.reads import displaced_name
from fuser.schedule.analysis.windows import tested_groups
from fuser.schedule.cost.instruction_cache import max_unrolled_elements
from fuser.schedule.params import Access, PointwiseParams
from fuser.schedule.scheduler import SegmentInputs

THREAD_BYTES = 32
"""Most bytes of one argument that a thread holds: two 16-byte accesses."""
LEAST_THREADS = 256
"""Threads an SM should have before each takes more than one element."""
WANTED_THREADS = 1024
"""The same before accesses that begin anywhere are the widest there are: else they have half as many bytes (H200: swiglu bf16
77x5120 by vectors of 8 4.61 us, of 4 4.42; bias_gelu bf16 19x50257 6.18 and 5.95)."""
MOSTLY_STORED = 2
"""Bytes stored for each one read above which stores are all that counts (H200: f32 2x513x1536x16 made of bf16 2x513x16 and one
value a row 52.2 us by vectors of 8, 33.9 of 4; of 20 others, not of outputs alone, none changes by more than 4 %)."""

# Instructions of an op against those of an add, roughly: what hides loads less the heavier it is.
_WEIGHTS = {
    **dict.fromkeys(("tanh", "erf", "erfc", "sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"), 4),
    **dict.fromkeys(("asinh", "acosh", "atanh", "lgamma", "erfinv", "erfcinv", "pow", "fmod", "mod", "remainder"), 4),
}


@memoized
def _weight(segment: Fusion) -> int:
    """Of its heaviest op."""
    return max((_WEIGHTS.get(e.op, 1) for e in segment.tensor_exprs if isinstance(e, Pointwise)), default=1)


@memoized
def _slices(segment: Fusion) -> frozenset[str]:
    """Names of the reads that are slices."""
    resized = [e for e in segment.tensor_exprs if isinstance(e, Resize) and e.fill is None]
    return frozenset(displaced_name(e, e.input) for e in resized)


class PointwiseSpace:
    """The sizes of a segment, and what follows from them whatever the threads are."""

    def __init__(
        self,
        graph: IterationGraph,
        segment: Fusion,
        inputs: SegmentInputs,
        order: Sequence[Group],
        device: DeviceInfo,
        cells: Cells | None = None,
    ) -> None:
        self.graph, self.segment, self.described, self.cells = graph, segment, inputs, cells
        self.order = order = [g for g in order if cells is None or g not in cells.inner]
        self.arguments = arguments_of(graph, segment, inputs) if cells is None else list(cells.arguments)
        extents = {g: inputs.evaluate(g.extent) for g in order}
        # Nothing is launched for tensors without elements: the plainest loops are right for them.
        self.is_empty = min(extents.values(), default=1) < 1
        self.sizes = sizes = {g: max(1, n) for g, n in extents.items()}
        self.widths = AccessWidths(graph, segment, inputs, self.arguments, sizes)
        self.device = device
        self.total = math.prod(sizes.values())
        self.max_unrolled = max_unrolled_elements(segment, device)
        self.weight = _weight(segment)
        self.tested = tested_groups(graph, segment, inputs.evaluate)
        self.parts = joined_dims(order, sizes, self.arguments, self.tested)
        self.inputs = segment.input_tensors
        self.slices = _slices(segment)

    def has_threads(self, elements: int = 1) -> bool:
        """Whether every SM has threads enough where each takes so many elements."""
        return self.total >= elements * LEAST_THREADS * self.device.sm_count

    def misaligned_accesses(self) -> tuple[int, tuple[tuple[str, int], ...], Access] | None:
        """(elements of a thread, width of each argument's accesses, where they begin) where accesses that are aligned and
        whole would be less than half as wide as they could be; else None."""
        run, limit = self.parts[-1], self.most_elements
        if limit > 2 and self.total < limit * WANTED_THREADS * self.device.sm_count:
            limit //= 2
        length = math.prod(self.sizes[g] for g in run)
        solid = [g for g in run if self.sizes[g] != 1]
        if not solid or limit == 1 or length < LEAST_VECTORS * limit:
            return None
        along = [a for a in self.arguments if a.stride(solid[-1]) == 1]
        if not all(self._is_at_one_offset(a, run) for a in self.arguments):
            return None
        if not any(a.tensor in self.inputs for a in along):
            return None
        wanted = {a.name: min(limit, ACCESS_BYTES // a.tensor.dtype.itemsize) for a in along}
        aligned, _ = self.widths.along_asked(run, limit)
        if max(aligned.values()) * 2 >= limit and all(
            aligned[a.name] * 2 >= wanted[a.name] for a in along if a.tensor in self.inputs
        ):
            return None
        widths = tuple((n, w) for n, w in wanted.items() if w > 1)
        to = choose_peel_reference(
            self.arguments, run, self.sizes, limit, [a.name for a in along if a.tensor not in self.inputs]
        )
        return None if to is None else (limit, widths, to)

    def _is_at_one_offset(self, a: Argument, run: Sequence[Group]) -> bool:
        """Whether an address along a run follows from the place in the run: not that of a pad, of a gather, or of a roll or a
        concatenation, where a vector may lie across two pieces."""
        if a.displaced is None:
            return True
        windows = a.displaced.windows
        return a.name in self.slices and not any(windows[a.dims[g]].pieces for g in run if g in a.dims)

    def store_sector_bytes(self, params: PointwiseParams) -> float:
        """Bytes of all 32-byte sectors that stores touch: each store touches the stride between threads, at most a sector."""
        count, run = params.vector, self.parts[-1]
        if len(self.parts) > 1 and math.prod(self.sizes[g] for g in run) <= count:
            # A thread has all of the last dims: its neighbour is along those around them.
            count, run = 1, self.parts[-2]
        last = next((g for g in reversed(run) if self.sizes[g] != 1), None)
        widths = dict(params.vector_widths)
        touched = 0.0
        for a in self.arguments:
            if a.tensor not in self.inputs and last is not None and a.stride(last):
                itemsize = a.tensor.dtype.itemsize
                distance = min(a.stride(last) * count * itemsize, SECTOR_BYTES)
                touched += a.nbytes * distance / (widths.get(a.name, 1) * itemsize)
        return touched

    def gathered(self) -> list[Argument]:
        """Reads of rows that are looked up: a table's elements are few, and read for each index."""
        return [a for a in self.arguments if a.displaced is not None and None in a.displaced.dims]

    def read_bytes(self) -> int:
        """Bytes that are read, of what is looked up for each index."""
        gathered = self.gathered()
        read = [a for a in self.arguments if a.tensor in self.inputs]
        return sum(self.total * a.itemsize if a in gathered else a.nbytes for a in read)

    @cached_property
    def most_elements(self) -> int:
        """Most elements of a thread."""
        run = self.parts[-1]
        along = [a for a in self.arguments if any(a.stride(g) for g in run)]
        # Elements across cells are accessed cell by cell.
        runs = {a.name for a in along} if self.cells is None else self.cells.runs
        narrow = min((a.itemsize if a.name in runs else a.tensor.dtype.itemsize for a in along), default=4)
        wide = max((a.itemsize for a in along), default=4)
        limit = max(1, min(ACCESS_BYTES // narrow, THREAD_BYTES // wide))
        stored = [a for a in self.arguments if a.tensor not in self.inputs]
        if self.cells is None and sum(a.nbytes for a in stored) > MOSTLY_STORED * self.read_bytes():
            # A second access to an output writes the other halves of sectors: nothing else takes long enough to hide that.
            limit = max(1, min(limit, *(ACCESS_BYTES // a.itemsize for a in stored)))
        limit = 1 << (limit.bit_length() - 1)
        # Narrow accesses beat idle processors: halve until every SM has some warps.
        while limit > 1 and not self.has_threads(limit):
            limit //= 2
        return limit

    def shared_part(self, vector: int) -> tuple[int, int]:
        """The best part to take more rows of: its place, counted from the last, and how many bytes are the same in all."""
        best = 1, 0
        for place in range(1, len(self.parts)):
            same = [a for a in self.arguments if not any(a.stride(g) for g in self.parts[-1 - place])]
            wide = [a for a in same if any(a.stride(g) for g in self.parts[-1])]
            shared = sum(vector * a.itemsize for a in wide)
            best = max(best, (place, shared), key=lambda p: (p[1], -p[0]))
        return best
