"""Vector accesses of a thread that processes several inner tiles: the number of tiles, and the layout of its elements in
each argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.iteration_graph import Group
from fuser.records import record
from fuser.schedule.analysis.inner_tile import InnerTile, SizedSegment, is_displaced_in_tile
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, read_width
from fuser.schedule.analysis.layout import Argument
from fuser.schedule.params import ExtentMultiple

LANE_BYTES = 4
"""Of a line of 128 bytes, what each thread of a warp has."""
MIN_MOVED = 2 * ACCESS_BYTES
"""Bytes that a thread should load and store, as one of a copy does."""


@record
class TileAccesses:
    """Vectors of a tile.

    vector     indices of a thread along the last dims around the inner tiles
    widths     elements of one access, for arguments where that is more than one
    runs       of those the ones whose neighbours are along the dims around the inner tiles, and then along `tails`
    tails      how many of an inner tile's fastest dims a vector goes along, for those arguments where these are not all
    divisors   (input, dim, divisor): extents that are multiples, so that no vector is cut
    """

    vector: int
    widths: tuple[tuple[str, int], ...]
    runs: tuple[str, ...]
    tails: tuple[tuple[str, int], ...]
    divisors: tuple[ExtentMultiple, ...]


def tile_accesses(
    sized: SizedSegment,
    inner_tile: InnerTile,
    run: Sequence[Group],
    sizes: Mapping[Group, int],
    vectors: Iterable[int],
) -> TileAccesses | None:
    """Vectors along a run of dims around the inner tiles, of one of some numbers of indices; None where all of them are cut.

    Among the numbers that leave no vector partial, the order of preference is

    1. the least traffic, counting a contiguous run of an input as one access: its first access brings the sectors of the
       others into the L1 cache;
    2. a thread moves at least `MIN_MOVED` bytes;
    3. the least traffic, counting every access;
    4. the first one given.
    """
    solid = [g for g in run if sizes[g] != 1]
    best: tuple[tuple[float, bool, float], TileAccesses] | None = None
    for vector in vectors:
        requirements = next(
            (d for g in reversed(solid) if (d := sized.divisibility_requirement(g, vector)) is not None), None
        )
        if requirements is not None:
            placements = _accesses(sized, inner_tile, solid, vector)
            moved = sum(vector * a.itemsize for a, _, _ in placements if a.stride(solid[-1]))
            rank = (
                _traffic(sized.segment, inner_tile, placements, vector, is_cached=True),
                moved < MIN_MOVED,
                _traffic(sized.segment, inner_tile, placements, vector, is_cached=False),
            )
            if best is None or rank < best[0]:
                wide = [(a.name, placement, width) for a, placement, width in placements if width > 1]
                found = TileAccesses(
                    vector,
                    tuple((n, width) for n, _, width in wide),
                    tuple(n for n, placement, _ in wide if placement),
                    tuple(
                        (n, 0 if placement == "across" else inner_tile.strided[n][0])
                        for n, placement, _ in wide
                        if placement == "across" or n in inner_tile.strided
                    ),
                    requirements,
                )
                best = rank, found
    return None if best is None else best[1]


def _accesses(
    sized: SizedSegment, inner_tile: InnerTile, run: Sequence[Group], vector: int
) -> list[tuple[Argument, str, int]]:
    """For each argument: how a tile of `vector` indices is laid out in it, and elements of an access."""
    segment = sized.segment
    sources = {o.tensor: o.alias_of for o in segment.outputs if o.alias_of is not None}
    widths: dict[str, int] = {}
    found: list[tuple[Argument, str, int]] = []
    for a in inner_tile.arguments:
        placement, width = _access(sized, a, inner_tile, run, vector)
        source = sources.get(a.tensor) if a.tensor not in segment.input_tensors else None
        if source is not None:
            # It is stored in the memory of an input, whose alignment is required only for the width of its reads.
            width = min(width, widths.get(source.name, 1))
        widths[a.name] = width
        found.append((a, placement, width))
    return found


def _traffic(
    segment: Fusion,
    inner_tile: InnerTile,
    accesses: Sequence[tuple[Argument, str, int]],
    vector: int,
    *,
    is_cached: bool,
) -> float:
    """Bytes of the lines that the accesses of a warp touch, per index of the dims around the inner tiles.

    The accesses of neighbouring threads are as far apart as a thread's run is long: each touches all the lines of a run of the
    warp, of which there is at least one.

    is_cached   inputs that were touched once cost nothing more
    """
    traffic = 0.0
    for a, placement, width in accesses:
        itemsize = a.tensor.dtype.itemsize
        along = vector * itemsize
        run = {"run": along * inner_tile.runs.get(a.name, 1), "across": along}.get(placement, width * itemsize)
        again = 1 if is_cached and a.tensor in segment.input_tensors else run / (width * itemsize)
        traffic += a.itemsize * again * max(1, LANE_BYTES / run)
    return traffic


def _access(
    sized: SizedSegment, a: Argument, inner_tile: InnerTile, run: Sequence[Group], vector: int
) -> tuple[str, int]:
    """How the tile of a thread is laid out in an argument ("run", "across" or ""), and elements of an access."""
    along = a.stride(run[-1])
    run_of_cell, strides_apart = inner_tile.runs.get(a.name), inner_tile.strided.get(a.name, (0, ()))[1]
    is_across = along == 1 and run_of_cell is None and bool(strides_apart)
    if not is_across and is_displaced_in_tile(sized.graph, a, inner_tile.inner):
        return "", 1
    if run_of_cell is not None:
        placement, count = ("run", vector * run_of_cell) if along == run_of_cell else ("", run_of_cell)
    elif along == 1:
        placement, count = ("across" if is_across else ""), vector
    else:
        return "", 1
    width = min(ACCESS_BYTES // a.tensor.dtype.itemsize, count & -count)
    if a.displaced is not None:
        if placement == "run" or a.name in inner_tile.runs:
            return "", 1
        width = read_width(a.displaced, a.described, a.dims[run[-1]], width, sized.evaluate)
    others = [s for g, s in a.strides.items() if g not in run or (placement != "run" and a.name in inner_tile.runs)]
    others += strides_apart
    while width > 1 and (a.alignment % (width * a.tensor.dtype.itemsize) or any(s % width for s in others)):
        width //= 2
    return placement, width
