"""What is the same for all mappings of the rows of a segment: their sizes, bytes, data passes and operations."""

from __future__ import annotations

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.ir.fusion.fusion import ExpSum, Fusion
from fuser.records import record
from fuser.schedule.analysis.reduced_dims import scans_of
from fuser.schedule.analysis.rows import Rows
from fuser.schedule.cost.accesses_per_thread import threads_for
from fuser.schedule.cost.instruction_cache import element_instructions, row_instructions
from fuser.schedule.cost.persistent_buffer_size import has_statistics, persistent_buffer_size
from fuser.schedule.params import Aligned

MAX_BATCH = 32
"""Accesses of a thread, all in one unrolled body."""
BLOCKS_OF_ROWS = (32, 64, 128, 256)
"""Threads of a block with several rows."""


@record
class RowSpace:
    """What is the same for all mappings of the rows of a segment.

    rows, length     of them, and elements of each, with those that its first vector may lack
    vector           elements of an access
    itemsize         bytes of an element of the narrowest argument with rows
    loaded, moved    bytes of an element that are read, and those that are read and written
    shared_bytes     bytes for an element that a cache has: rows share them, or another read brings them
    inputs           that lie along a row; `arguments`: with all outputs
    kept             bytes of an element on chip: kept[one_pass]
    data_pass_count  of the row; `passes`: ways to take its statistics or sums of exponentials
    operations, row_operations   instructions of an element and of a row, as `instruction_cache` counts them
    differently_misaligned     of the inputs, those that begin elsewhere than the vectors
    late_bytes       bytes of an element that data passes behind a reduction read first
    is_double, is_cut, is_misaligned   of elements of 8 bytes; ends of rows cut accesses; accesses are misaligned
    may_use_shared         rows may lie in shared memory
    may_use_block_groups   blocks that are no cluster may share a row
    is_single              there is one row
    is_interleaved         elements of other rows are between those of a row, such as the channels of an image: accesses by
                           element, all rows at once, each over a cluster, so that what one leaves of a sector others take from
                           a cache
    """

    rows: int
    length: int
    vector: int
    itemsize: int
    loaded: int
    moved: int
    shared_bytes: int
    inputs: int
    arguments: int
    kept: tuple[int, ...]
    passes: tuple[bool, ...]
    data_pass_count: int
    operations: int
    row_operations: int
    has_statistics: bool
    sums_exponentials: bool
    is_double: bool
    is_cut: bool
    is_misaligned: bool
    has_late_input: bool = False
    late_bytes: int = 0
    differently_misaligned: int = 0
    may_use_shared: bool = True
    may_use_block_groups: bool = True
    is_single: bool = False
    is_interleaved: bool = False

    @property
    def max_rows_per_block(self) -> int:
        """Rows that a block of short ones may have: at most the largest power of two of which less than half are none."""
        threads = threads_for(self.accesses, min(self.accesses, MAX_BATCH))
        most = BLOCKS_OF_ROWS[-1] // threads if threads <= WARP else 1
        while most > 1 and most >= 2 * self.rows:
            most //= 2
        return most

    @property
    def accesses(self) -> int:
        """Of a row."""
        return -(-self.length // self.vector)

    def exchanges(self, *, one_pass: bool) -> int:
        """How often the threads of a row wait for one another."""
        return max(1, self.data_pass_count - 2) if one_pass else self.data_pass_count - 1


def row_space(segment: Fusion, found: Rows, device: DeviceInfo, *, may_use_block_groups: bool = True) -> RowSpace:
    """Of the rows of a segment."""
    is_interleaved = found.element_stride > 1
    # The elements of a scan are in the registers of a block, or of a cluster.
    is_scanned = bool(scans_of(segment))
    statistics = has_statistics(segment)
    exponentials = any(isinstance(e, ExpSum) for e in segment.tensor_exprs)
    passes = (False, True) if statistics or exponentials else (False,)
    # What lies along some dims of a row only, such as weights of channels, is read again from a cache.
    again = sum(r.tensor.dtype.itemsize for r in found.reads if not found.is_along_all(r))
    shared = (r for r in found.along if r not in found.reads and found.is_along_all(r))
    size = persistent_buffer_size(segment, one_pass=False)
    tensors = (*segment.input_tensors, *segment.output_tensors)
    return RowSpace(
        rows=found.space.kept,
        length=found.space.length + found.missing_elements,
        vector=found.accesses.vector,
        itemsize=min(r.tensor.dtype.itemsize for r in found.reads),
        loaded=found.loaded - again,
        moved=found.moved - again,
        shared_bytes=sum(r.tensor.dtype.itemsize for r in shared) + found.repeated,
        inputs=len(found.along),
        arguments=len(found.along) + len(segment.output_tensors),
        kept=tuple(persistent_buffer_size(segment, one_pass=one_pass).kept for one_pass in passes),
        passes=passes,
        data_pass_count=size.pass_count,
        operations=element_instructions(segment),
        row_operations=row_instructions(segment),
        has_statistics=statistics,
        sums_exponentials=exponentials,
        is_double=any(t.dtype.itemsize > 4 for t in tensors),
        is_cut=found.missing_elements > 0,
        is_misaligned=not isinstance(found.accesses.access, Aligned),
        has_late_input=size.has_late_input,
        late_bytes=size.late_bytes,
        differently_misaligned=_count_differently_misaligned(found),
        may_use_shared=not is_interleaved and not is_scanned and bool(found.shared_row_tensors(device)),
        may_use_block_groups=may_use_block_groups and not is_interleaved and not is_scanned,
        is_single=found.is_single,
        is_interleaved=is_interleaved,
    )


def _count_differently_misaligned(found: Rows) -> int:
    accesses = found.accesses
    if isinstance(accesses.access, Aligned):
        return 0
    return sum(r.name in accesses.vectorized and r.name not in accesses.in_phase for r in found.reads)
