"""The scratch budget: bytes of shared memory that schedules leave, beside the data that a block keeps, for its exchanges.

Schedules choose before buffers are laid out, so these are bounds. The device refuses a launch that needs more than a block may
have; one that needs a little more than the budget may have one block less on an SM.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Welford, tensor_outputs
from fuser.schedule.analysis.reduced_dims import reductions_of

DRIVER = 1024
"""What the driver takes for itself of a processor's shared memory, for each block on it; no part of what a block may have."""

EXCHANGES = 1024
"""What the threads of rows join: values of each warp and of each block of a cluster. So many bytes of small buffers
lie side by side (`PLENTY` in lowering/memory/allocate_shared.py). The table of powers that exponentials of Doubles read, 512
bytes, is among them (codegen/exponentials.py): beside it each of 32 warps at most leaves a maximum and a sum."""

BESIDE_ROW = EXCHANGES + DRIVER
"""Beside a row, or part of one, that lies in shared memory."""

BESIDE_COLUMNS = 8 * 1024
"""Beside rows of gradients over all blocks of the grid: statistics of sixteen rows at once, of each warp."""

_OF_STATISTIC, _COUNT = 2, 8
"""Numbers of a statistic, and the bytes of its count."""


def scratch_bytes(joined: int, across: int, along: int, vector: int, peer_results: int = 0) -> int:
    """Most bytes of shared memory that a block needs for its exchanges: `across` x `along` threads with `vector` columns each.

    joined         bytes of a thread: see `partial_result_bytes`
    peer_results   threads' results that it receives from other blocks
    """
    return EXCHANGES + joined * (threads_with_partials(across, along, vector) + peer_results)


def partial_result_bytes(segment: Fusion, vector: int) -> int:
    """Bytes that a thread leaves in shared memory for others to join, of all reductions, each of `vector` columns."""
    nbytes = 0
    for expr in reductions_of(segment):
        results = tensor_outputs(expr)
        if isinstance(expr, Welford):
            nbytes += vector * _OF_STATISTIC * max(4, expr.mean.dtype.itemsize) + _COUNT
        else:
            nbytes += vector * sum(max(4, t.dtype.itemsize) for t in results)
    return nbytes


def threads_with_partials(across: int, along: int, vector: int) -> int:
    """Threads' worth of results that lie in shared memory while a block joins its own, in two steps where that
    is possible: see fuser.lowering.collectives.block_reduce_scatter."""
    threads = across * along
    if along == 1:
        return 0
    groups = along // vector if along % vector == 0 else 0
    if groups < 2:
        return threads + across
    in_warps = across < 32 and 32 % across == 0 and threads % 32 == 0
    parts = threads // (2 if in_warps else 1)
    return parts + across * (groups + 1)
