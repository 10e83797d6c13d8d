"""When to split a kernel in two after its reductions.

A kernel that needs the results of a reduction for full-size values reads its rows once more. Its blocks cannot share a row,
because no block waits for another: few long rows, such as a whole tensor that is divided by its norm, use few blocks and a
small part of the bandwidth. Blocks that do wait for each other are all resident, and may have too few loads in flight, for
instance with misaligned columns that are read element by element. Kernels that end after the reductions read the same bytes
with all SMs: blocks of the reduction share rows, and the next kernel has no reduction and wide accesses.

Both times are bytes by the rate at which they can be moved, plus latencies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Pointwise, Tensor, tensor_inputs, tensor_outputs
from fuser.records import record
from fuser.schedule.analysis.data_passes import data_pass_indices, empty_schedule
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reduced_space import reduced_space
from fuser.schedule.cost.rounding import ceil_div
from fuser.schedule.params import OuterPersistentParams, Params, ReductionParams
from fuser.schedule.scheduler import SegmentInputs

THREADS_OF_SM = 512
"""Threads of an SM that have loads in flight at once, in a kernel of statistics whose blocks wait for no others."""


@record
class KernelSplit:
    """Where to split a kernel at the current sizes.

    tensors   names of the tensors that the first kernel stores; their readers belong to the next one
    """

    tensors: frozenset[str]


def choose_kernel_split(
    segment: Fusion, params: Params, inputs: SegmentInputs, device: DeviceInfo
) -> tuple[KernelSplit, str] | None:
    """Where to split the kernel that is proposed for a segment, and why; None if one kernel is predicted to be as fast."""
    if not isinstance(params, OuterPersistentParams | ReductionParams):
        return None
    if isinstance(params, OuterPersistentParams) and params.reduction.grid_reduce == 1:
        return None
    levels = data_pass_indices(empty_schedule(segment))
    # What is computed of results alone reads no row again.
    space = reduced_space(segment, inputs)
    full = {t.name for t in segment.tensors if space.is_reduced(t.visible)}
    last = max((level for name, level in levels.items() if name in full), default=0)
    if last == 0:
        return None
    read, written = space.moved_bytes
    loops = params.reduction if isinstance(params, OuterPersistentParams) else params
    lanes = 1 if loops.inner else loops.vector
    blocks = ceil_div(space.kept, loops.block_iterate * lanes) * loops.grid_reduce
    # A data pass reads the rows once, or is a kernel of its own.
    moved = (last + 1) * read + written
    if blocks == 0 or moved == 0:
        return None
    rate, latencies = device.memory_bytes_per_ns, device.latencies
    waiting = (last + 1) * latencies.dram_loaded_ns
    reading = rate
    if isinstance(params, OuterPersistentParams):
        # What L2 holds is read again from there.
        if params.kept_iterations or read <= device.l2_bytes:
            return None
        # What resident blocks have on its way is all that memory has to do. Blocks that need not be resident are more.
        of_access = read * lanes // max(1, space.kept * space.length)
        each = loops.in_flight * of_access / latencies.dram_loaded_ns
        resident = min(blocks, device.sm_count)
        one = moved / min(rate, resident * loops.block_reduce * loops.block_iterate * each)
        reading = min(rate, device.sm_count * THREADS_OF_SM * each)
    else:
        one = moved / min(rate, blocks * device.rates.sm_bytes_per_ns)
    launch = latencies.launch_behind_ns
    if device.compute_capability < (9, 0):
        launch += latencies.late_launch_ns
    one += waiting
    several = last * read / reading + (read + written) / rate + waiting + last * launch
    if several >= one:
        return None
    ends = frozenset(t.name for t in _kernel_boundary_tensors(segment, levels, last))
    why = (
        f"{blocks} blocks of one kernel should take {one / 1e3:.1f} us, {last + 1} kernels that use all SMs "
        f"{several / 1e3:.1f} us"
    )
    return KernelSplit(ends), why


def _kernel_boundary_tensors(segment: Fusion, levels: Mapping[str, int], last: int) -> Collection[Tensor]:
    """What a kernel that ends after its reductions stores for the next: the results of the reductions, or, if that takes no
    more tensors, values computed from them alone.

    Those are then computed once per result and not once per element: the square root of a variance, a quotient.
    """
    graph = segment.resolved_dims
    results = [t for e in reductions_of(segment) for t in tensor_outputs(e) if levels[t.name] < last]
    readers: dict[Tensor, list[Tensor]] = {}
    for e in segment.tensor_exprs:
        for t in tensor_inputs(e):
            readers.setdefault(t, []).extend(tensor_outputs(e))
    used = [t for t in results if t in readers]
    dims = {graph.concrete_groups(t.visible) for t in used}
    if len(dims) != 1:
        return results
    (kept,) = dims
    computed = dict.fromkeys(used)
    for e in segment.tensor_exprs:
        if isinstance(e, Pointwise) and any(t in computed for t in tensor_inputs(e)):
            own = graph.concrete_groups(e.output.visible)
            if own == kept:
                computed[e.output] = None
    handed = [t for t in computed if any(r not in computed for r in readers.get(t, ()))]
    # All readers of such a tensor belong to the next kernel: the first kernel may compute none of them.
    is_apart = all(r not in computed for t in handed for r in readers[t])
    return handed if is_apart and len(handed) <= len(used) else results
