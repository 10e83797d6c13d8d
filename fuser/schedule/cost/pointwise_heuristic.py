"""Parameters of pointwise kernels: accesses, and the mapping of elements to threads and blocks that should take least time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fuser.ir.fact_collection import GRID_LIMIT
from fuser.ir.integers.number_trace import as_told
from fuser.records import record
from fuser.schedule.analysis.alignment import min_peeled_length
from fuser.schedule.analysis.inner_tile import SizedSegment
from fuser.schedule.analysis.input_reads import ACCESS_BYTES
from fuser.schedule.analysis.tile_accesses import tile_accesses
from fuser.schedule.cost.estimate import tie_threshold
from fuser.schedule.cost.mapping_search import MAX_EXPLAINED, Timed, best_mapping
from fuser.schedule.cost.pointwise_mappings import POINTWISE
from fuser.schedule.cost.pointwise_space import PointwiseSpace
from fuser.schedule.cost.pointwise_work import PointwiseMapping, PointwiseProblem, loop_counts
from fuser.schedule.params import Access, Aligned, ExtentMultiple, Peeled, PointwiseParams, Unaligned
from fuser.schedule.reasons import Reasons


@record
class PointwisePlan:
    """Mappings of a segment at some sizes, and how its arguments are accessed.

    widths     elements of an access of each argument, for each number of elements of a thread
    divisors   (input, dim, divisor) that these ask for
    row        (input, dim): rows along it are one run, each of which has as many elements as a thread at least
    """

    work: PointwiseProblem
    widths: Mapping[int, Mapping[str, int]]
    divisors: Mapping[int, tuple[ExtentMultiple, ...]]
    access: Access = Aligned()
    row: tuple[str, int] | None = None


class PointwiseHeuristic(PointwiseSpace):
    """Accesses, blocks and iterations of a thread for one set of sizes."""

    def params(self, order: tuple[int, ...]) -> PointwiseParams:
        """The choice."""
        # The first of those that take least time: vectors, though misaligned.
        timed = [(*self._best_mapping(plan), plan) for plan in self.plans()]
        limit = tie_threshold(min(time for time, *_ in timed), self.device)
        _, mapping, plan = next(found for found in timed if found[0] <= limit)
        return self.params_of(order, plan, mapping)

    def _best_mapping(self, plan: PointwisePlan) -> Timed[PointwiseMapping]:
        """The fastest of a plan, about, which has one at least."""
        best = best_mapping(POINTWISE, plan.work, self.device)
        assert best is not None
        return best

    def ranked_params(self, order: tuple[int, ...]) -> Iterator[PointwiseParams]:
        """What should take least time, of each plan."""
        for plan in self.plans():
            for _, m in POINTWISE.ranked(plan.work, self.device)[:MAX_EXPLAINED]:
                yield self.params_of(order, plan, m)

    def plans(self) -> list[PointwisePlan]:
        """The mappings that there are: with misaligned accesses, where they are wider, and with aligned ones."""
        if self.is_empty:
            return [PointwisePlan(self.work((1,), {}), {1: {}}, {})]
        by_access: dict[Access, dict[int, Mapping[str, int]]] = {}
        length = math.prod(self.sizes[g] for g in self.parts[-1])
        for vector, (widths, access) in self.misaligned_accesses.items():
            if not isinstance(access, Peeled) or length >= min_peeled_length(vector):
                by_access.setdefault(access, {})[vector] = widths
        flattened = self._flattened() if self.misaligned_accesses else None
        return [
            *([flattened] if flattened else ()),
            *(
                PointwisePlan(self.work(tuple(found), found[max(found)], access), found, {}, access)
                for access, found in by_access.items()
            ),
            self._aligned(),
        ]

    def _aligned(self) -> PointwisePlan:
        """With accesses that are aligned and whole: as wide as they may be, or narrower."""
        run, vector = self.parts[-1], self.most_elements
        widest: Mapping[str, int] = {}
        found: dict[int, Mapping[str, int]] = {}
        divisors: dict[int, tuple[ExtentMultiple, ...]] = {}
        while vector:
            widths, asked = self.widths.along_with_requirements(run, vector)
            widest = widest or widths
            if max(widths.values(), default=1) == vector:
                found[vector], divisors[vector] = widths, asked
            vector //= 2
        return PointwisePlan(self.work(tuple(found), widest), found, divisors)

    def params_with_inner_tile(self, order: tuple[int, ...], vector: int = 0, most: int = 0) -> PointwiseParams | None:
        """The choice where a thread takes inner tiles: `vector` of them, or at most `most`, if that is given. None
        where that cuts vectors."""
        assert self.cells is not None
        cells = self.cells
        if not most:
            most = self.most_elements
            while most > 1 and not self.has_threads(most):
                most //= 2
        vectors = [vector or 1 << k for k in reversed(range(1 if vector else most.bit_length()))]
        sized = SizedSegment(self.segment, self.described)
        found = tile_accesses(sized, cells, self.parts[-1], self.sizes, vectors)
        if found is None:
            return None
        widths = dict(found.widths)
        plan = PointwisePlan(self.work((found.vector,), widths), {found.vector: widths}, {})
        params = self.params_of(order, plan, self._best_mapping(plan)[1])
        return replace(
            params,
            extent_ranges=(*params.extent_ranges, *cells.extent_ranges),
            extent_multiples=found.divisors,
            tile_dims=len(cells.inner),
            tile_contiguous=found.runs,
            tile_vector_dims=found.tails,
            whole_inputs=cells.whole_inputs,
        )

    def params_of(self, order: tuple[int, ...], plan: PointwisePlan, m: PointwiseMapping) -> PointwiseParams:
        """Those of a mapping. The loops' dims stand in `order`, where dims of one element and inner tiles stay where
        they are."""
        nested = [self.dims[g] for loop in m.loops for p in loop for g in self.parts[p]]
        looped = iter(nested)
        columns = loop_counts(plan.work, m.vector, m.loops)[-1]
        merged = tuple(tuple(len(self.parts[p]) for p in loop) for loop in m.loops)
        wide = 0 if len(m.loops) > 1 and m.threads_x >= columns else m.threads_x
        return PointwiseParams(
            order=tuple(next(looped) if d in nested else d for d in order),
            merged_dims=merged if plan.row is None else ((sum(map(len, self.parts)),),),
            vector=m.vector,
            vector_widths=tuple((n, w) for n, w in plan.widths[m.vector].items() if w > 1),
            block_shape=(wide, m.threads_y),
            unroll=m.unroll,
            unroll_loop=max(1, m.unroll_loop),
            sequential=m.sequential,
            grid_axes=1 if self._is_flat(m, has_columns=wide > 0) else 3,
            access=plan.access,
            extent_ranges=() if plan.row is None else ((*plan.row, m.vector, GRID_LIMIT),),
            extent_multiples=plan.divisors.get(m.vector, ()),
            reasons=Reasons(lambda: POINTWISE.reasons(as_told(plan.work), self.device)),
        )

    def _is_flat(self, m: PointwiseMapping, *, has_columns: bool) -> bool:
        """Whether y or z of the grid cannot count the blocks along loops around the last ones."""
        if len(m.loops) == 1:
            return False
        counts = [math.prod(self.sizes[g] for p in loop for g in self.parts[p]) for loop in m.loops[:-1]]
        counts[-1] = -(-counts[-1] // m.threads_y)
        counts[-m.unroll_loop] = -(-counts[-m.unroll_loop] // m.unroll)
        blocks = [*counts, 1] if has_columns else counts
        return max(math.prod(blocks[:-2]), *blocks[-2:-1], 1) > GRID_LIMIT

    def _flattened(self) -> PointwisePlan | None:
        """All elements as one run, cut at multiples of a vector, where rows are short and only some arguments have rows: those
        are read by element, with one division for the elements of a thread. None where that cannot be."""
        vector = self.most_elements
        if len(self.parts) != 2 or vector == 1:
            return None
        solid = [[g for g in part if self.sizes[g] != 1] for part in self.parts]
        if any(len(part) != 1 for part in solid):
            return None
        (rows,), (columns,) = solid
        length = self.sizes[columns]
        whole = [a for a in self.arguments if a.stride(columns) == 1 and a.stride(rows) == length]
        beside = [a for a in self.arguments if a not in whole]
        if not vector <= length < min_peeled_length(vector) or any(a.displaced is not None for a in self.arguments):
            return None
        if any(a.stride(rows) and a.stride(columns) for a in beside) or not any(a.tensor in self.inputs for a in whole):
            return None
        widths = {a.name: min(vector, ACCESS_BYTES // a.tensor.dtype.itemsize) for a in whole}
        if any(a.alignment % (widths[a.name] * a.tensor.dtype.itemsize) for a in whole):
            return None
        place = next(
            ((a.name, a.dims[columns]) for a in self.arguments if a.tensor in self.inputs and a.stride(columns)), None
        )
        if place is None:
            return None
        work = self.work((vector,), widths, Unaligned())._replace(is_one_run=True)
        return PointwisePlan(work, {vector: widths}, {}, Unaligned(), row=place)
