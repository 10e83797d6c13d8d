"""What a reduction works on, at the sizes at hand: its iteration space, and how its elements are accessed."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from fuser.ir.device_info import REGISTER_BYTES, SECTOR_BYTES, DeviceInfo
from fuser.ir.fusion.fusion import ExpSum, Fusion, Welford, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.memoized import memoized
from fuser.ir.integers.integers import Symbol
from fuser.ir.ops.dtypes import DataType
from fuser.records import record
from fuser.schedule.analysis.alignment import MIN_VECTORS, RowAccesses, choose_accesses, contiguous_suffix
from fuser.schedule.analysis.data_passes import empty_schedule, sink_pass_count
from fuser.schedule.analysis.input_reads import ACCESS_BYTES, input_reads, tested_dims
from fuser.schedule.analysis.layout import arguments_of
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reduced_space import ReducedSpace, reduced_space
from fuser.schedule.analysis.reference import vector_limit
from fuser.schedule.analysis.rows import two_row_ranges
from fuser.schedule.cost.instruction_cache import element_instructions, max_unrolled_elements, row_instructions
from fuser.schedule.cost.rounding import OF_ROWS, ceil_div, round_to_significant_bits, round_up_length
from fuser.schedule.cost.scratch_budget import partial_result_bytes
from fuser.schedule.params import Access, Aligned, ExtentRange, Peeled, Unaligned
from fuser.schedule.scheduler import SegmentInputs

# Most accumulators of a thread along kept dims: more would take the registers of loads in flight.
_ACCUMULATORS = 32
# Bytes of an access where there are as many results as reads, or where a misaligned access would be two.
_SHORT_ACCESS = 4
# Vectors of a row that are read from any address where its ends cut none.
_MIN_WHOLE = 8
# Bytes of inputs below which accesses are short, and misaligned ones are not made of two.
_LITTLE = 4 << 20
# Rows of columns that one thread may have in flight at once.
_FEW_ROWS = 16
# Part of the memory's rate that is read; instructions of a thread for an access behind a division (H200: sum_all f32 468x128256
# of wider rows 108 us, read by element), cycles of the division before anything is read, and of each element of a vector that a
# row's end cuts.
_READ_RATE, _DIVISION, _DIVISION_ALONE, _ENDS = 0.84, 54, 790, 350
# Accesses of an SM from which on rows may be loops of their own.
_MANY_ACCESSES = 1024


@record
class ReductionSpace:
    """What is reduced. Counts in elements, where nothing else is said.

    inner           the fastest dim is reduced
    kept, reduced   number of reductions, and elements of each
    run             elements of a contiguous run: of the reduced dims that are contiguous up to the fastest one
    runs            of those in a reduction; 1 where the fastest dim is kept, 0 where another dim has no element: it is a
                    loop all the same
    vector          elements of one access
    bytes_per_step  bytes of one access to every full-size input
    held            registers that one access to every input takes, one at least for each element that is read by itself
    statistics      means and sums of squares are joined (Welford)
    may_split       several blocks may share one reduction
    exact           sums carry along what rounding loses, in Double
    exponentials    a thread first needs the largest element of an iteration
    misaligned      accesses may begin at any address
    joined          bytes that a thread leaves in shared memory for others to join
    written         bytes of an element of all outputs of full size
    stored          bytes of all outputs for a reduction
    partials        registers that the partial results of an element's reductions take
    element_work    instructions of an element
    row_work        instructions that each thread of a row does once
    results         what the threads of a row join
    sector_misaligned  rows begin inside a sector: neighbouring blocks access the same one
    most_unroll     accesses of an iteration that the code has room for
    reuse           how often each element is read: by results along other dims, by windows that overlap, from a table
    kept_run        where the fastest dim is kept: elements of a run of kept dims in memory; 0: of all of them
    is_dense        the reduced dims lie right around that run: neighbours along what is reduced are one piece of memory
    """

    inner: bool
    kept: int
    reduced: int
    run: int
    runs: int
    vector: int
    bytes_per_step: int
    statistics: bool = False
    may_split: bool = True
    exact: bool = False
    exponentials: bool = False
    misaligned: bool = False
    joined: int = 0
    written: int = 0
    held: int = 1
    partials: int = 1
    element_work: int = 1
    row_work: int = 0
    results: int = 1
    sector_misaligned: bool = False
    most_unroll: int = 16
    reuse: float = 1.0
    kept_run: int = 0
    is_dense: bool = False
    stored: int = 0

    def l1_miss_fraction(self, results: int) -> float:
        """Of what a block reads for so many results side by side, the part that no other of these brings into the L1 cache."""
        return min(1.0, max(1.0, self.kept / self.reuse) / results)

    def accesses_side_by_side(self, along: int, across: int) -> int:
        """Accesses of a block that are one piece of memory."""
        if self.inner:
            return along
        run = ceil_div(self.kept_run, self.vector)
        if not run or across <= run:
            return across
        return run * along if self.is_dense else run

    @property
    def accesses_per_run(self) -> int:
        """Accesses along a run."""
        return max(1, ceil_div(self.run, self.vector) if self.inner else self.reduced)

    @property
    def run_count(self) -> int:
        """Runs that are loops of their own."""
        return max(1, self.runs) if self.inner else 1

    @property
    def has_runs(self) -> bool:
        """Whether runs are a loop of their own."""
        return self.inner and self.runs != 1

    @property
    def reduces_rows(self) -> bool:
        """Whether a reduction is of a row: its elements are the length of that, and not a number of rows."""
        return self.inner and self.kept > 1

    @property
    def output_accesses(self) -> int:
        """Results, or accesses to results, that lie side by side."""
        return max(1, self.kept if self.inner else ceil_div(self.kept, self.vector))


@record(eq=False)
class SizedReduction:
    """A reduction segment at its sizes: its space, and what no mapping changes (see ReductionParams)."""

    space: ReductionSpace
    order: tuple[int, ...]
    run_dims: int
    accesses: RowAccesses
    extent_ranges: tuple[ExtentRange, ...] = ()


def find_reduction(segment: Fusion, inputs: SegmentInputs, device: DeviceInfo) -> SizedReduction:
    """Of a segment that `accepts_reductions` takes."""
    found = reduced_space(segment, inputs)
    graph, order, groups, reduced, extent = found.graph, found.order, found.groups, found.reduced, found.sizes
    inner = groups[order[-1]] in reduced
    reductions = reductions_of(segment)
    registers = sum(len(tensor_outputs(e)) for e in reductions)
    reads = _reduced_reads(segment, reduced)
    largest = max((dims for *_, dims in reads), default=0)
    names = {name for name, _, dims in reads if dims == largest}
    outputs = _written_sizes(segment, reduced)
    limit = max(1, ACCESS_BYTES // max([*(size for _, size, dims in reads if dims == largest), *outputs], default=4))
    most = max_unrolled_elements(segment, device)
    while (not inner and limit > 1 and limit * registers > _ACCUMULATORS) or limit > most:
        limit //= 2
    kept_count, reduced_count = found.kept, found.length
    full = sum(size for _, size, dims in reads if dims == largest)
    widest = max([*(size for _, size, _ in reads), *(t.dtype.itemsize for t in segment.output_tensors)], default=4)
    has_gather = _has_gather(segment, reduced)
    short = max(1, _SHORT_ACCESS // widest)
    if not inner and has_gather:
        # Each access asks for its place first: wide ones ask less often. Results are stored as wide.
        limit = min(limit, vector_limit(segment, groups[order[-1]]))
    elif not inner and reduced_count <= _FEW_ROWS:
        # Results are as many as what is read: neighbouring threads should store neighbours.
        limit = min(limit, short)
    row = _fastest_groups([groups[d] for d in order], reduced)
    row, accesses, run_dims = _find_accesses(found, row, reads, limit, short, device)
    is_cut = not isinstance(accesses.access, Aligned)
    vector = accesses.vector
    kept_run, is_dense = (0, False) if inner else _kept_run(found, names)
    if is_cut or (widest > 4 and not has_gather):
        # What all elements of an access share takes registers, too.
        full = sum(size for _, size, _ in reads)
        names = {name for name, *_ in reads}
    along = {r.name for r in input_reads(segment) if not graph.concrete_groups(r.varying_dims).isdisjoint(row)}
    is_length = inner and kept_count > 1
    is_many = kept_count >= device.sm_count * device.max_threads_per_sm

    def in_row(count: int) -> int:
        return round_up_length(count) if is_length else round_to_significant_bits(count, OF_ROWS)

    space = ReductionSpace(
        inner=inner,
        kept=round_to_significant_bits(kept_count, OF_ROWS) if inner or is_many else round_up_length(kept_count),
        reduced=in_row(reduced_count),
        run=in_row(math.prod(extent[g] for g in row if g in reduced)),
        runs=round_up_length(math.prod(extent[g] for g in groups if g in reduced and g not in row)) if inner else 1,
        vector=vector,
        bytes_per_step=vector * full,
        held=sum(ceil_div((vector if name in along else 1) * size, REGISTER_BYTES) for name, size, _ in reads),
        statistics=any(isinstance(e, Welford) for e in reductions),
        may_split=sink_pass_count(empty_schedule(segment)) == 1,
        exact=any(tensor_outputs(e)[0].dtype is DataType.Double for e in reductions),
        exponentials=any(isinstance(e, ExpSum) for e in reductions),
        misaligned=is_cut,
        joined=partial_result_bytes(segment, 1 if inner else vector),
        written=sum(outputs),
        partials=sum(ceil_div(t.dtype.itemsize, REGISTER_BYTES) for e in reductions for t in tensor_outputs(e)),
        element_work=element_instructions(segment),
        row_work=row_instructions(segment),
        results=registers,
        sector_misaligned=any(math.prod(extent[g] for g in row) * size % SECTOR_BYTES for size in outputs),
        most_unroll=max(1, most // vector),
        reuse=_times_read(found, names),
        kept_run=0 if inner or kept_run >= kept_count else round_up_length(kept_run),
        is_dense=is_dense,
        stored=sum(t.dtype.itemsize for t in segment.output_tensors if reduced.isdisjoint(map(graph.group, t.visible))),
    )
    return SizedReduction(space, order, run_dims, accesses, two_row_ranges(found, row, accesses.vector))


def _find_accesses(
    found: ReducedSpace,
    row: list[Group],
    reads: Sequence[tuple[str, int, int]],
    limit: int,
    short: int,
    device: DeviceInfo,
) -> tuple[list[Group], RowAccesses, int]:
    """The dims that vectors are along, accesses (`short` where those up to `limit` do not pay), dims that are loops alone."""
    segment, graph, inputs, extent = found.segment, found.graph, found.inputs, found.sizes
    inner, elements = row[-1] in found.reduced, found.kept * found.length
    largest = max((dims for *_, dims in reads), default=0)
    full = sum(size for _, size, dims in reads if dims == largest)
    reductions = reductions_of(segment)
    has_statistics = any(isinstance(e, Welford) for e in reductions)
    # The lanes of a row's last vector would have seen fewer values than others: counts would not be in common.
    has_exponentials = any(isinstance(e, ExpSum) for e in reductions)
    # Of two bytes a vector from any address is two accesses for eight, of which no end of a row cuts any.
    is_narrow = all(size < 4 for _, size, _ in reads)
    is_whole = inner and has_exponentials and is_narrow and found.length % (_MIN_WHOLE * limit) == 0
    most: type[Access] = Aligned if has_statistics else Peeled
    if not inner:
        # Kept dims are one axis: where a vector would cross from one part of it to the next, no end of a row may cut one.
        others = [g for g in found.groups if g not in row and g not in found.reduced and not g.is_broadcast]
        most = Unaligned if _has_whole_parts(segment, row, others, extent, limit) else Aligned
    accesses = choose_accesses(
        segment,
        row,
        inputs,
        limit,
        most=most,
        may_span=not inner,
        least_vectors=_MIN_WHOLE if is_whole else MIN_VECTORS,
    )
    run = list(contiguous_suffix(segment, row, extent, inputs)) if inner else row
    run_dims = 0
    if len(run) < len(row):
        cut = choose_accesses(segment, run, inputs, limit, most=most)
        divisions = 1 if any(graph.group(d) in row for d in tested_dims(segment)) else accesses.vector
        if _keep_rows_separate(elements, full, divisions, cut, device):
            row, accesses, run_dims = run, cut, sum(not g.is_broadcast for g in run)
    if inner:
        # Neighbouring threads should read neighbours of what they read element by element.
        is_short = accesses.vector > short and _reads_elements(segment, row[-1], accesses)
    else:
        # A misaligned access of two elements would be three of one.
        is_few = elements * full <= _LITTLE or found.length <= _FEW_ROWS
        is_short = not isinstance(accesses.access, Aligned) and is_few
    if is_short:
        limit = min(limit, short)
        accesses = choose_accesses(segment, row, inputs, limit, most=Aligned)
    return row, accesses, run_dims


def _reads_elements(segment: Fusion, fastest: Group, accesses: RowAccesses) -> bool:
    """Whether a read along the fastest dim is displaced from what vectors are read of."""
    graph = segment.resolved_dims
    return any(
        r.windows and r.name not in accesses.vectorized and any(graph.group(d) is fastest for d in r.loop_dims)
        for r in input_reads(segment)
    )


@memoized
def _has_gather(segment: Fusion, reduced: frozenset[Group]) -> bool:
    """Whether elements are gathered along a reduced dim."""
    graph = segment.resolved_dims
    return any(graph.group(d) in reduced for r in input_reads(segment) for d, _ in r.lookups)


def _times_read(found: ReducedSpace, names: Collection[str]) -> float:
    """How often each element is read, of the inputs that some reads are of."""
    inputs, loaded, distinct = found.inputs, 0, dict[str, int]()
    for read in input_reads(found.segment):
        if read.name in names:
            own, itemsize = inputs.tensors[read.tensor.name], read.tensor.dtype.itemsize
            loaded += found.kept * found.length * itemsize
            dims = {found.graph.group(d): d for d in read.varying_dims if not d.is_broadcast}
            touched = math.prod(inputs.evaluate(d.extent) for d in dims.values()) * itemsize
            whole = math.prod(n for n, s in zip(own.sizes, own.strides, strict=True) if s) * itemsize
            distinct[read.tensor.name] = min(whole, distinct.get(read.tensor.name, 0) + touched)
    return max(1.0, round_to_significant_bits(loaded * 4 // max(1, sum(distinct.values())), OF_ROWS) / 4)


def _kept_run(found: ReducedSpace, names: Collection[str]) -> tuple[int, bool]:
    """(elements of a run of kept dims, whether the reduced dims lie right around it) of the reads that have the shortest."""
    runs: list[tuple[int, bool]] = []
    for a in arguments_of(found.segment, found.inputs):
        if a.name in names:
            by_stride = sorted(
                (s, g in found.reduced, found.sizes[g]) for g, s in a.strides.items() if g in found.sizes and s
            )
            run = 1
            for stride, is_reduced, size in by_stride:
                if is_reduced or stride != run:
                    runs.append((run, is_reduced and stride == run))
                    break
                run *= size
    return min(runs, default=(0, False))


def _keep_rows_separate(elements: int, nbytes: int, merged: int, cut: RowAccesses, device: DeviceInfo) -> bool:
    """Whether rows that are not contiguous should be loops of their own, and not one axis with the dims around them.

    One axis costs a division for each access, but misaligned rows have ends that are read by element. Few accesses
    have time for a division each: they are done by few blocks, which share no rows. `merged`: elements a division.
    """
    if elements < device.sm_count * _MANY_ACCESSES * cut.vector:
        return False
    reading = elements * nbytes / (_READ_RATE * device.memory_rate)
    dividing = elements / merged * _DIVISION * device.thread_time / device.sm_count
    together = max(reading, dividing) + _DIVISION_ALONE * device.cycle
    return reading + (_ENDS * cut.vector * device.cycle if not isinstance(cut.access, Aligned) else 0.0) <= together


def _fastest_groups(order: list[Group], reduced: frozenset[Group]) -> list[Group]:
    """The dims that follow one another in memory up to the fastest one, and are all reduced or all kept as it is."""
    found: list[Group] = []
    for group in reversed(order):
        if (group in reduced) is not (order[-1] in reduced) and not group.is_broadcast:
            break
        if not group.is_broadcast or group is order[-1]:
            found.insert(0, group)
    return found


def _has_whole_parts(
    segment: Fusion, row: Sequence[Group], others: Sequence[Group], sizes: Mapping[Group, int], vector: int
) -> bool:
    """Whether vectors along the kept dims stay within a part that is one run in memory, of which `row` are the dims, as far as
    kernels know: the `others` have one element, or the length of a part is a multiple of the vector."""
    owned = {d.extent for t in segment.input_tensors if not t.is_cpu for d in t.visible}

    def is_known(group: Group) -> bool:
        # Facts are about the extents of inputs.
        return group.extent.is_const or (isinstance(group.extent, Symbol) and group.extent in owned)

    return all(sizes[g] == 1 and is_known(g) for g in others) or any(
        sizes[g] % vector == 0 and is_known(g) for g in row
    )


def _written_sizes(segment: Fusion, reduced: frozenset[Group]) -> list[int]:
    """Bytes of an element of every output along a reduced dim."""
    graph = segment.resolved_dims
    outputs = segment.output_tensors
    return [t.dtype.itemsize for t in outputs if not reduced.isdisjoint(graph.concrete_groups(t.visible))]


@memoized
def _reduced_reads(segment: Fusion, reduced: frozenset[Group]) -> list[tuple[str, int, int]]:
    """(name, bytes of an element, number of dims) of every read along a reduced dim."""
    graph = segment.resolved_dims
    dims = [(read.name, read.tensor.dtype.itemsize, read.varying_dims) for read in input_reads(segment)]
    return [
        (name, itemsize, sum(not d.is_broadcast for d in own))
        for name, itemsize, own in dims
        if not reduced.isdisjoint(graph.concrete_groups(own))
    ]
