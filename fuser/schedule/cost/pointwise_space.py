"""The iteration space of a pointwise kernel: its dims as parts, its arguments, and the widest accesses that these allow."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from fuser.ir.device_info import SECTOR_BYTES, DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Gather, Resize, Tensor, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.op_instructions import expr_instructions
from fuser.schedule.analysis.alignment import MIN_VECTORS, choose_peel_reference, in_phase_inputs
from fuser.schedule.analysis.inner_tile import InnerTile
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, displaced_name
from fuser.schedule.analysis.layout import AccessWidths, Argument, arguments_of, merge_contiguous_dims
from fuser.schedule.analysis.windows import tested_groups
from fuser.schedule.cost.instruction_cache import max_unrolled_elements
from fuser.schedule.cost.pointwise_work import BLOCKS, AccessPattern, PointwiseProblem
from fuser.schedule.cost.rounding import OF_ROWS, round_to_significant_bits, round_up_length
from fuser.schedule.params import Access, Aligned, Peeled, PointwiseParams
from fuser.schedule.scheduler import SegmentInputs

THREAD_BYTES = 32
"""Most bytes of one argument that a thread holds: two 16-byte accesses."""
MIN_THREADS = 256
"""Threads an SM should have before each takes several inner tiles."""
ANYWHERE = 1 << 20
"""Bytes from a gathered element to the next: no cache line has both."""
SHARES = 16
"""Shares of what is read are rounded to multiples of one in so many."""


@memoized
def _slices(segment: Fusion) -> frozenset[str]:
    """Names of the reads that are slices."""
    resized = [e for e in segment.tensor_exprs if isinstance(e, Resize) and e.fill is None]
    return frozenset(displaced_name(e, e.input) for e in resized)


@memoized
def _lookups(segment: Fusion) -> dict[str, Tensor]:
    """What reads of rows, or of elements, that are looked up make: by the name of the read."""
    return {displaced_name(e, e.input): e.output for e in segment.tensor_exprs if isinstance(e, Gather)}


@memoized
def _instructions_along(segment: Fusion) -> list[tuple[frozenset[Group], int]]:
    """The dims of each expr, and its instructions for an element."""
    # Of one element along rows, where it is said so, is computed for each of them all the same.
    graph = segment.resolved_dims
    return [
        (frozenset(graph.group(d) for d in tensor_outputs(e)[0].visible), expr_instructions(e))
        for e in segment.tensor_exprs
    ]


@memoized
def _computed(segment: Fusion, parts: tuple[tuple[Group, ...], ...]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for groups, instructions in _instructions_along(segment):
        bits = sum(1 << p for p, part in enumerate(parts) if not groups.isdisjoint(part))
        found[bits] = found.get(bits, 0) + instructions
    return tuple(sorted(found.items()))


class PointwiseSpace:
    """The sizes of a segment, and what follows from them whatever the threads are.

    dims   the loops' dims of more than one element, slowest first, and which dims of the reference they are
    """

    def __init__(
        self,
        segment: Fusion,
        inputs: SegmentInputs,
        dims: Mapping[Group, int],
        device: DeviceInfo,
        cells: InnerTile | None = None,
    ) -> None:
        self.graph, self.segment, self.described = segment.resolved_dims, segment, inputs
        self.cells, self.dims = cells, dims
        self.order = order = [g for g in dims if cells is None or g not in cells.inner]
        self.arguments = arguments_of(segment, inputs) if cells is None else list(cells.arguments)
        extents = {g: inputs.evaluate(g.extent) for g in order}
        # Nothing is launched for tensors without elements: the plainest loops are right for them.
        self.is_empty = min(extents.values(), default=1) < 1
        self.sizes = sizes = {g: max(1, n) for g, n in extents.items()}
        self.widths = AccessWidths(segment, inputs, self.arguments, sizes)
        self.device = device
        self.total = math.prod(sizes.values())
        self.max_unrolled = max_unrolled_elements(segment, device)
        self.tested = tested_groups(segment, inputs.evaluate)
        self.parts = merge_contiguous_dims(order, sizes, self.arguments, self.tested)
        self.inputs = segment.input_tensors
        self.slices = _slices(segment)

    def has_threads(self, elements: int = 1) -> bool:
        """Whether every SM has threads enough where each takes so many elements."""
        return self.total >= elements * MIN_THREADS * self.device.sm_count

    @cached_property
    def misaligned_accesses(self) -> Mapping[int, tuple[Mapping[str, int], Access]]:
        """Where accesses that are aligned and whole would be less than half as wide as they could be: for each number of
        elements of a thread the width of each argument's accesses, and where these begin. Else empty."""
        run, limit = self.parts[-1], self.most_elements
        length = math.prod(self.sizes[g] for g in run)
        while limit > 1 and (length < MIN_VECTORS * limit or not self.has_threads(limit)):
            limit //= 2
        solid = [g for g in run if self.sizes[g] != 1]
        if not solid or limit == 1:
            return {}
        along = [a for a in self.arguments if a.stride(solid[-1]) == 1]
        if not all(self._is_at_one_offset(a, run) for a in self.arguments):
            return {}
        if not any(a.tensor in self.inputs for a in along):
            return {}
        wanted = {a.name: min(limit, ACCESS_BYTES // a.tensor.dtype.itemsize) for a in along}
        aligned, _ = self.widths.along_with_requirements(run, limit)
        if max(aligned.values()) * 2 >= limit and all(
            aligned[a.name] * 2 >= wanted[a.name] for a in along if a.tensor in self.inputs
        ):
            return {}
        found: dict[int, tuple[Mapping[str, int], Access]] = {}
        outputs = [a.name for a in along if a.tensor not in self.inputs]
        while any(aligned[name] < min(width, limit) for name, width in wanted.items()):
            to = choose_peel_reference(self.arguments, run, self.sizes, limit, outputs)
            if to is not None:
                widths = ((name, min(width, limit)) for name, width in wanted.items())
                found[limit] = {name: width for name, width in widths if width > 1}, to
            limit //= 2
        return found

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

    @cached_property
    def most_elements(self) -> int:
        """Most elements of a thread: up to two accesses of an input, one of an output."""
        run = self.parts[-1]
        along = [a for a in self.arguments if any(a.stride(g) for g in run)]
        # Elements across inner tiles are accessed inner tile by inner tile.
        runs = {a.name for a in along} if self.cells is None else self.cells.runs
        narrow = min((a.itemsize if a.name in runs else a.tensor.dtype.itemsize for a in along), default=4)
        wide = max((a.itemsize for a in along), default=4)
        limit = max(1, min(ACCESS_BYTES // narrow, THREAD_BYTES // wide))
        if self.cells is None:
            # Two stores of a thread would each write pieces of sectors.
            stored = (a.tensor.dtype.itemsize for a in along if a.tensor not in self.inputs)
            limit = max(1, min(limit, ACCESS_BYTES // max(stored, default=1)))
        return 1 << (limit.bit_length() - 1)

    def work(self, vectors: Sequence[int], widths: Mapping[str, int], access: Access = Aligned()) -> PointwiseProblem:
        """What all mappings have in common, with accesses of so many elements at most."""
        parts, last = self.parts, len(self.parts) - 1
        lengths = [math.prod(self.sizes[g] for g in part) for part in parts]
        if isinstance(access, Peeled):
            # The first part of a row that is cut where it is aligned may hold a single element of it.
            lengths[-1] += max(vectors) - 1
        is_aligned = isinstance(access, Aligned)
        lengths = [_length(n, p, last) for p, n in enumerate(lengths)]
        patterns = self.access_patterns(widths, parts, self._misaligned_reads(widths, access))
        read, written = self.moved(patterns, lengths)
        return PointwiseProblem(
            lengths=tuple(lengths),
            vectors=tuple(vectors),
            access_patterns=patterns,
            read=read,
            written=written,
            computed=self.computed(),
            most_elements=self.max_unrolled,
            may_merge=is_aligned,
            is_peeled=isinstance(access, Peeled),
            may_iterate=is_aligned and self.cells is None,
        )

    def computed(self) -> tuple[tuple[int, int], ...]:
        """Parts along which values vary, as bits, and instructions of one."""
        return _computed(self.segment, tuple(map(tuple, self.parts)))

    def moved(self, patterns: Sequence[AccessPattern], lengths: Sequence[int]) -> tuple[int, int]:
        """Bytes of device memory that are read and written, once each."""
        found = [0, 0]
        for a, s in zip(self.arguments, patterns, strict=True):
            touched = s.itemsize * math.prod(n for n, span in zip(lengths, s.spans, strict=True) if span) * s.own
            if s.chain > 1:
                # A table's rows are looked up again and again.
                touched = min(touched, round_to_significant_bits(_elements(a), OF_ROWS) * s.itemsize)
            found[s.is_stored] += math.floor(touched)
        return found[0], found[1]

    def _misaligned_reads(self, widths: Mapping[str, int], access: Access) -> Collection[str]:
        """Reads by vectors that may begin at any address."""
        if isinstance(access, Aligned):
            return ()
        wide = [a.name for a in self.arguments if a.tensor in self.inputs and widths.get(a.name, 1) > 1]
        in_phase = in_phase_inputs(self.arguments, wide, access, self.parts[-1], max(widths.values()))
        return set(wide).difference(in_phase)

    def access_patterns(
        self, widths: Mapping[str, int], parts: Sequence[Sequence[Group]], misaligned: Collection[str] = ()
    ) -> tuple[AccessPattern, ...]:
        """How each argument lies along some parts, with accesses of so many elements."""
        read: dict[str, int] = {}
        for a in self.arguments:
            if a.tensor in self.inputs:
                read[a.tensor.name] = read.get(a.tensor.name, 0) + a.nbytes
        lookups = _lookups(self.segment)
        found: list[AccessPattern] = []
        for a in self.arguments:
            itemsize, is_read, looked_up = a.tensor.dtype.itemsize, a.tensor in self.inputs, lookups.get(a.name)
            active = self._active(a)
            own = SHARES
            if is_read and looked_up is None:
                whole = _elements(a) * itemsize
                own = max(1, min(active, SHARES * whole // max(1, read[a.tensor.name])))
            found.append(
                AccessPattern(
                    itemsize=a.itemsize,
                    access=widths.get(a.name, 1) * itemsize,
                    is_stored=not is_read,
                    spans=self._spans(a, looked_up, parts),
                    own=own / SHARES,
                    active=active / SHARES,
                    chain=1 if looked_up is None else 2,
                    is_aligned=a.name not in misaligned,
                    is_even=self._has_sector_aligned_rows(a),
                )
            )
        return tuple(found)

    def _spans(self, a: Argument, looked_up: Tensor | None, parts: Sequence[Sequence[Group]]) -> tuple[int, ...]:
        """Bytes from one index of each part to the next. What is looked up is anywhere."""
        apart = set[Group]() if looked_up is None else {self.graph.group(d) for d in looked_up.visible}
        found: list[int] = []
        for part in parts:
            solid = next((g for g in reversed(part) if self.sizes[g] != 1), None)
            span = 0 if solid is None else round_up_length(a.stride(solid) * a.tensor.dtype.itemsize)
            found.append(ANYWHERE if solid in apart and not span else span)
        return tuple(found)

    def _has_sector_aligned_rows(self, a: Argument) -> bool:
        """Whether all of its rows begin where sectors do."""
        itemsize = a.tensor.dtype.itemsize
        steps = (a.stride(g) * itemsize for part in self.parts for g in part if self.sizes[g] != 1)
        along = self.sizes[self.parts[-1][-1]] if self.parts else 1
        steps = (s for s in steps if s >= min(SECTOR_BYTES, along * itemsize))
        return a.alignment % SECTOR_BYTES == 0 and not any(s % SECTOR_BYTES for s in steps)

    def _active(self, a: Argument) -> int:
        """Of SHARES indices of the loops, those at which a read has an element: not beside a slice that is padded."""
        share = SHARES
        windows = () if a.displaced is None else a.displaced.windows
        for g, dim in a.dims.items():
            if dim < len(windows) and g in self.sizes and not windows[dim].pieces:
                evaluate = self.described.evaluate
                within = evaluate(windows[dim].end) - evaluate(windows[dim].begin)
                share = min(share, share * max(0, within) // self.sizes[g])
        return max(1, share)


def _length(count: int, part: int, last: int) -> int:
    """The length of a part, as mappings see it. The slowest dim differs from call to call, and any number is like another, but
    for few rows that threads of y are along."""
    few = 0 if part == 0 != last - 1 else BLOCKS[-1]
    return round_up_length(count) if part == last > 0 or count < few else round_to_significant_bits(count, OF_ROWS)


def _elements(a: Argument) -> int:
    """Of the tensor that an argument is, in memory."""
    return math.prod(n for n, s in zip(a.described.sizes, a.described.strides, strict=True) if s)
