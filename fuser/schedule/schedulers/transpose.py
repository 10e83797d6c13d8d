"""Segments whose arguments disagree on their fastest dim: tiles are turned in swizzled shared memory.

Let N be the run of dims that is fastest in most bytes, and M the one that is fastest in the others, the *staged* arguments. A
block works on tiles of M x N, of a size at which every SM has some and a thread few accesses (the loops: transpose_loops.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fuser.ir.device_info import LINE_BYTES, SECTOR_BYTES, WARP, DeviceInfo
from fuser.ir.enums import SchedulerType
from fuser.ir.fact_collection import GRID_LIMIT
from fuser.ir.fusion import Fusion, IterDomain, Tensor, memory_order
from fuser.ir.iteration_graph import Group, IterationGraph
from fuser.ir.schedule import ScheduleBuilder
from fuser.records import record
from fuser.schedule.analysis.alignment import LEAST_VECTORS, choose_peel_reference
from fuser.schedule.analysis.layout import ACCESS_BYTES, AccessWidths, Argument, arguments_of, joined_dims
from fuser.schedule.analysis.reads import input_reads
from fuser.schedule.analysis.reference import dim_groups, resolving_graph
from fuser.schedule.cost.reduction_space import power_of_two
from fuser.schedule.params import Aligned, Params, ParamsClass, Peeled, TransposeParams
from fuser.schedule.scheduler import Accepted, Refused, SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler, reference_output
from fuser.schedule.schedulers.transpose_loops import schedule_transpose
from fuser.schedule.tuning_candidates import with_neighbours

TILE = 64
"""Elements of a tile along each run, where a line is not longer."""
THREADS = 256
ACCESSES = 2
"""Accesses of a thread to one argument: with eight blocks on an SM they are bytes enough in flight."""
MOST_ACCESSES = 16
"""The same where one side is moved element by element: more take registers."""
WIDE_ITEM = 4
FULL_WAVES = 12
"""Bytes of an element for which tiles are those of twice the threads, and how many such tiles an SM has there (H200: f32
8192x8192 196.2 us with tiles of 32 x 64 by 256 threads, 192.1 of 64 x 64 by 512, 193.0 of those by 256)."""
_CONCURRENT = 4
"""Blocks of an SM at once, about."""
_THREAD_BYTES = 32
"""Of one argument that is read or written element by element."""
VECTOR_BYTES = 8
"""Of a thread beside a side that is moved element by element, where tiles have longer lines than a warp or are few (H200: f16
1363x7168 23.1 us in tiles of 32x64 by eights, by fours in those of 64x64 22.4, 1667x16384 51.5 and 49.5; f32 771x16384 45.2 us
in tiles of 32x32 by fours, in those of 64x32 by twos 43.8; bf16 255x1000 5.76 us in 32x64, 5.12 in 32x32). Tiles that stay
those of 32x64 lose by fours: bf16 213x128256 51.1 us by eights, 54.8 by fours."""
CUT = 4
"""Elements of a vector into which rows that begin anywhere are cut: no wider than an access, so not of Doubles (H200: f16
1460x50257 135.2 us in tiles of 32x128, 130.7 in those of 64x128 by 512 threads; 269x250003 141.2 us element by element, 125.2,
120.4 and 126.7 by vectors of 2, 4 and 8, f32 1447x50257 260.9, 239.7 and 230.7 of 4; bf16 1024x50257 129.7 where the other side
alone is read by vectors, 92.7 so; f64 11225x257 no better by 2)."""
CUT_TILE = 128
"""Most elements of a tile along such rows."""
CUT_WAVES = 8
"""Such tiles that an SM has at least (H200: bf16 999x1003 9.5 us, 7.0 by elements in tiles of 32x32)."""
CUT_ITEM = 4
"""Bytes of an element from which on a vector at any address takes no more reads than elements."""
SHORT_RUN = 16
"""Elements of a run below which tiles would be mostly empty."""


class TransposeScheduler:
    """Accepts pointwise segments with two layouts among the arguments that have every dim."""

    type = SchedulerType.transpose
    params: ParamsClass = TransposeParams

    def accepts(self, segment: Fusion) -> Accepted | Refused:
        """See Scheduler."""
        answer = PointwiseScheduler().accepts(segment)
        if isinstance(answer, Refused):
            return answer
        graph = resolving_graph(segment)
        reference = reference_output(segment)
        assert reference is not None
        full = {g for g in dim_groups(graph, reference) if not g.is_broadcast}
        fastest = {
            _fastest(graph, t, dims)
            for t, dims in _arguments(segment)
            if full <= {graph.group(d) for d in dims if d is not None}
        }
        if len(fastest - {None}) < 2:
            return Refused("all arguments with every dimension have the same fastest one")
        return Accepted()

    def propose(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Params | Refused:
        """See Scheduler."""
        graph = resolving_graph(segment)
        reference = reference_output(segment)
        assert reference is not None
        groups = dim_groups(graph, reference)
        sizes = {g: inputs.evaluate(g.extent) for g in groups if not g.is_broadcast}
        arguments = arguments_of(graph, segment, inputs)
        sides = _sides(arguments, sizes, {t.name for t in segment.output_tensors})
        if isinstance(sides, Refused):
            return sides
        widths = AccessWidths(graph, segment, inputs, arguments, sizes)
        runs = sides.staged_run, sides.run
        limits = [ACCESS_BYTES // min(a.tensor.dtype.itemsize for a in side) for side in (sides.staged, sides.others)]
        along = [widths.along(sides.proven(run), limit) for run, limit in zip(runs, limits, strict=True)]
        names = {a.name for a in sides.staged}
        chosen = {a.name: along[a.name not in names][a.name] for a in arguments}
        vectors = [
            max((w for n, w in chosen.items() if (n in names) == is_staged), default=1) for is_staged in (True, False)
        ]
        narrow = [min(a.tensor.dtype.itemsize for a in side) for side in (sides.staged, sides.others)]
        peeled: Peeled | None = None
        if vectors[1] == 1 and math.prod(sizes.values()) >= WARP * CUT_TILE * device.sm_count * CUT_WAVES:
            peeled = _cut_at(sides, sizes, segment)
            if peeled is not None:
                # What is staged has rows at other places for each of its own rows: it is read element by element.
                vectors = [1, CUT]
                chosen = dict.fromkeys(chosen, 1)
                chosen |= {a.name: CUT for a in sides.others if a.stride(runs[1][-1]) == 1}
        # Rows that begin anywhere share their first and last sectors with others: the longer the runs of a warp, the fewer.
        lengths = [math.prod(sizes[g] for g in run) for run in runs]
        longest = LINE_BYTES // narrow[0] if peeled is not None else TILE * WIDE_ITEM // max(narrow[0], WIDE_ITEM)
        # Narrow accesses make room for long lines, or for tiles that are small: without either they are only more of them.
        enough_tiles = math.prod(sizes.values()) >= WARP * LINE_BYTES // narrow[1] * device.sm_count * 2
        if vectors[0] == 1 and peeled is None and (not enough_tiles or _wide_tile(lengths[0], longest) > WARP):
            vectors[1] = min(vectors[1], max(2, VECTOR_BYTES // narrow[1]))
            chosen = {n: w if n in names else min(w, vectors[1]) for n, w in chosen.items()}
        lanes = [
            min(WARP if v == 1 else LINE_BYTES // (v * n), WARP, power_of_two(-(-length // v)))
            for v, n, length in zip(vectors, narrow, lengths, strict=True)
        ]
        least = [v * n for v, n in zip(vectors, lanes, strict=True)]
        tile = [max(min(TILE, power_of_two(length)), n) for n, length in zip(least, lengths, strict=True)]
        enough_lines = least[:]
        if max(vectors) == 1 or peeled is not None:
            # Element by element a thread needs many to keep memory busy; they go along the run of most bytes.
            tile = [least[0], _wide_tile(lengths[1], _THREAD_BYTES * THREADS // (WARP * narrow[1]))]
            if peeled is not None:
                tile[1] = least[1] = _wide_tile(lengths[1], CUT_TILE)
                lanes[1] = tile[1] // CUT
        if vectors[0] == 1 < max(vectors):
            # What is read element by element comes in long lines, too.
            enough_lines[0] = tile[0] = max(least[0], _wide_tile(lengths[0], longest))
        # Whole tiles of four bytes an element are those of twice the threads, where there are many of them.
        wide = min(vectors) * max(narrow) == ACCESS_BYTES and max(narrow) == WIDE_ITEM
        enough = math.prod(sizes.values()) >= tile[0] * tile[1] * device.sm_count * FULL_WAVES
        most_threads = 2 * THREADS if wide and enough else THREADS
        # First across the lines that are stored, then along them: until a thread has few accesses, and every SM a tile.
        for side in (0, 1):
            wanted = device.sm_count * (_CONCURRENT if max(vectors) == 1 else 2 if vectors[0] == 1 else 1)
            few = math.prod(sizes.values()) < tile[0] * tile[1] * wanted
            many = max(vectors) > 1 and peeled is None and tile[0] * tile[1] > ACCESSES * most_threads * min(vectors)
            smallest = min(least[side], WARP) if few and vectors[0] == 1 and peeled is None else enough_lines[side]
            if tile[side] > smallest and (few or many):
                tile[side] = max(tile[side] // 2, smallest)
        shared = tile[0] * tile[1] * sum(a.tensor.dtype.itemsize for a in sides.staged)
        if shared > device.shared_per_block:
            return Refused(f"tiles of {len(sides.staged)} arguments need {shared} bytes of shared memory")
        most_threads = max(most_threads, tile[0] * tile[1] // (MOST_ACCESSES * min(vectors)))
        lanes = [min(n, t // v) for n, t, v in zip(lanes, tile, vectors, strict=True)]
        threads = min(most_threads, *(tile[0] * tile[1] // v for v in vectors))
        order = tuple(groups.index(g) for g in sides.order) + tuple(d for d, g in enumerate(groups) if g.is_broadcast)
        counts = [-(-math.prod(sizes[g] for g in run) // t) for run, t in zip(runs, tile, strict=True)]
        batch = math.prod(sizes[g] for part in sides.batch for g in part)
        # Blocks that run at once are neighbours along both runs then: lines that two tiles share are fetched once.
        block_order = (1, 0) if counts[0] < counts[1] and counts[1] > _CONCURRENT * device.sm_count else (0, 1)
        return TransposeParams(
            order=order,
            merged_dims=(*(len(p) for p in sides.batch), len(runs[0]), len(runs[1])),
            tile=(tile[0], tile[1]),
            vectors=(vectors[0], vectors[1]),
            tile_threads=(lanes[0], lanes[1]),
            vector_widths=tuple((n, w) for n, w in chosen.items() if w > 1),
            via_shared=tuple(a.name for a in sides.staged),
            block_threads=threads,
            grid_axes=1 if max(batch, counts[block_order[0]]) > GRID_LIMIT else 3,
            block_order=block_order,
            access=Aligned() if peeled is None else peeled,
            reasons=(
                f"{', '.join(a.name for a in sides.staged)} lie along {sides.staged_run[-1].name}, the rest along "
                f"{sides.run[-1].name}",
                f"tiles of {tile[0]} x {tile[1]}, {shared} bytes of shared memory",
                *(
                    [f"rows are cut into {vectors[1]} elements where {peeled.at} is aligned"]
                    if peeled is not None
                    else []
                ),
            ),
        )

    def candidates(self, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> Iterable[Params]:
        """See Scheduler."""
        return with_neighbours(self, segment, inputs, device)

    def apply(self, segment: Fusion, params: Params) -> ScheduleBuilder:
        """See Scheduler."""
        assert isinstance(params, TransposeParams)
        return schedule_transpose(segment, params)


def _arguments(segment: Fusion) -> Iterator[tuple[Tensor, Sequence[IterDomain | None]]]:
    """Ways of reading inputs, and outputs, each with the dims that loops run over for its dims."""
    for read in input_reads(segment):
        yield read.tensor, read.dims
    for t in segment.output_tensors:
        if not t.is_cpu and t.visible:
            yield t, t.visible


def _fastest(graph: IterationGraph, t: Tensor, dims: Sequence[IterDomain | None]) -> Group | None:
    """The fastest dim of more than one element, as declared."""
    order = [graph.group(d) for d in (dims[k] for k in memory_order(t.stride_order)) if d is not None]
    return next((g for g in reversed(order) if not g.is_broadcast), None)


# --- choosing ---------------------------------------------------------------------------------------------------------


@record(eq=False)
class _Sides:
    """Which arguments are staged, and the dims of the loops: batch parts, the staged run M, the run N."""

    staged: list[Argument]
    others: list[Argument]
    batch: list[list[Group]]
    staged_run: list[Group]
    run: list[Group]
    parts: list[list[Group]]

    @property
    def order(self) -> list[Group]:
        return [g for part in (*self.batch, self.staged_run, self.run) for g in part]

    def proven(self, run: Sequence[Group]) -> list[Group]:
        """The suffix of a run that is contiguous in all arguments; the dims before it are contiguous only in some."""
        return next(p for p in self.parts if p[-1] is run[-1])


def _sides(arguments: Sequence[Argument], sizes: dict[Group, int], outputs: set[str]) -> _Sides | Refused:
    total = math.prod(sizes.values())
    full = [a for a in arguments if a.seen == total and all(a.stride(g) for g, n in sizes.items() if n != 1)]
    fastest = {a.name: _fastest_of(a, sizes) for a in full}
    layouts: dict[Group, list[Argument]] = {}
    for a in full:
        group = fastest[a.name]
        if group is not None:
            layouts.setdefault(group, []).append(a)
    if len(layouts) < 2:
        return Refused("all large arguments have the same fastest dimension")
    # Tiles are of arguments as they lie: what is sliced, padded or gathered is read where it is computed with. Most bytes stay
    # as they are; of equals those of which slices are read beside them; then outputs, which are stored better than loaded.
    displaced = [a for a in arguments if a.displaced is not None]
    ranked = sorted(
        layouts,
        key=lambda g: (
            any(a in displaced for a in layouts[g]),
            sum(a.nbytes for a in layouts[g]),
            sum(a.nbytes for a in displaced if a.stride(g) == 1),
            sum(a.name in outputs for a in layouts[g]),
        ),
        reverse=True,
    )
    n, m = ranked[:2]
    if any(a in displaced for a in layouts[m]):
        return Refused("slices, pads or gathers of different fastest dimensions are read")
    model, other = (max(layouts[g], key=lambda a: a.nbytes) for g in (n, m))
    order = sorted(sizes, key=lambda g: -model.stride(g) if sizes[g] != 1 else -math.inf)
    parts = joined_dims(order, sizes, arguments)
    run = next(p for p in parts if n in p)
    staged_run = next(p for p in parts if m in p)
    batch = [p for p in parts if p is not run and p is not staged_run]
    # Short runs take in the dims that lie next to them.
    wide, staged_wide = list(run), list(staged_run)
    for target, a in ((wide, model), (staged_wide, other)):
        while batch and math.prod(sizes[g] for g in target) < TILE // 2:
            neighbour = min(batch, key=lambda p: a.stride(p[-1]))
            if a.stride(neighbour[-1]) > sizes[target[0]] * a.stride(target[0]):
                break
            batch.remove(neighbour)
            target[:0] = neighbour
    for target in (wide, staged_wide):
        length = math.prod(sizes[g] for g in target)
        if length < SHORT_RUN:
            return Refused(f"the run along {target[-1].name} has only {length} elements")
    staged = layouts[m]
    return _Sides(staged, [a for a in arguments if a not in staged], batch, staged_wide, wide, parts)


def _fastest_of(a: Argument, sizes: dict[Group, int]) -> Group | None:
    """The dim along which neighbours lie next to one another, or next to few elements that are read otherwise: of those a
    sector has several."""
    found = min((g for g in sizes if sizes[g] != 1), key=a.stride, default=None)
    return None if found is None or a.stride(found) * a.tensor.dtype.itemsize > SECTOR_BYTES // 2 else found


def _cut_at(sides: _Sides, sizes: dict[Group, int], segment: Fusion) -> Peeled | None:
    """Where rows along N, which begin anywhere, are cut into vectors; None where they had better be moved element by element.

    What is read beside it is aligned at the same places, or takes a read for each element all the same: for 16 bits, shifts and
    three reads cost what vectors save.
    """
    run = sides.run
    outputs = {t.name for t in segment.output_tensors if t not in segment.input_tensors}
    along = [a for a in sides.others if a.stride(run[-1]) == 1]
    written = [a.name for a in along if a.name in outputs]
    is_wide = any(CUT * a.tensor.dtype.itemsize > ACCESS_BYTES for a in along)
    if not written or is_wide or math.prod(sizes[g] for g in run) < LEAST_VECTORS * CUT:
        return None
    to = choose_peel_reference(along, run, sizes, CUT, written)
    if not isinstance(to, Peeled):
        return None
    narrow = [a for a in along if a.tensor.dtype.itemsize < CUT_ITEM]
    places = [
        {g: s % CUT for g, s in a.strides.items() if g not in run} for a in narrow if len(a.strides) == len(sizes)
    ]
    is_one = all(p == places[0] for p in places)
    return to if is_one and all(a.alignment % (CUT * a.tensor.dtype.itemsize) == 0 for a in narrow) else None


def _wide_tile(length: int, most: int) -> int:
    """Elements of a tile along a run, a tenth of them outside the run at most."""
    tile = WARP
    while tile * 2 <= most and -(-length // (tile * 2)) * tile * 2 * 10 <= length * 11:
        tile *= 2
    return tile
