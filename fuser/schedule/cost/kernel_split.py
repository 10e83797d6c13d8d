"""When to split a kernel in two after its reductions.

Two reasons, of which the first is about rows that many blocks could share:

A kernel that needs the results of a reduction for full-size values reads its rows once more. Its blocks cannot share a row,
because no block waits for another: few long rows, such as a whole tensor that is divided by its norm, use few blocks and a
small part of the bandwidth. Blocks that do wait for each other are all resident, and may have too few loads in flight, for
instance with misaligned columns that are read element by element. Kernels that end after the reductions read the same bytes
with all SMs: blocks of the reduction share rows, and the next kernel has no reduction and wide accesses.

The second is about results that lack a kept dim, such as the softmax of a score for each token, which weighs all features of
the token: every column computes it anew. A kernel of its own computes it once, and stores the last of it that lacks the dim.

Times are bytes by the rate at which they can be moved, plus latencies; of what is computed anew, its instructions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from fuser.ir.device_info import WARP, DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Pointwise, Reducing, Tensor, tensor_inputs, tensor_outputs
from fuser.ir.fusion.iteration_graph import Group
from fuser.ir.fusion.op_instructions import expr_instructions
from fuser.records import record
from fuser.schedule.analysis.data_passes import computing_pass_counts, data_pass_indices, empty_schedule
from fuser.schedule.analysis.reduced_dims import reductions_of
from fuser.schedule.analysis.reduced_space import ReducedSpace, reduced_space
from fuser.schedule.cost.code_costs import OPERATION
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
    levels = data_pass_indices(empty_schedule(segment))
    # What is computed of results alone reads no row again.
    space = reduced_space(segment, inputs)
    results = {t.name for e in reductions_of(segment) for t in tensor_outputs(e)}
    full = {t.name for t in segment.tensors if space.is_reduced(t.visible)}
    last = max((level for name, level in levels.items() if name in full or name in results), default=0)
    repeated = _repeated_values(space, levels, device)
    if repeated is not None or last == 0:
        return repeated
    if isinstance(params, OuterPersistentParams) and params.reduction.grid_reduce == 1:
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


def _repeated_values(
    space: ReducedSpace, levels: Mapping[str, int], device: DeviceInfo
) -> tuple[KernelSplit, str] | None:
    """Where to split a kernel whose first results lack kept dims, and why; None if it should compute them for every column."""
    segment, graph, last = space.segment, space.graph, max(levels.values())
    results = [t for e in reductions_of(segment) for t in tensor_outputs(e) if levels[t.name] < last]
    if not results:
        return None
    has = frozenset[Group]().union(*(graph.concrete_groups(t.visible) for t in results))
    lacked = {g for g, size in space.sizes.items() if size > 1 and g not in space.reduced and g not in has}
    if not lacked:
        return None
    times, needing = computing_pass_counts(empty_schedule(segment)), set(results)
    handed: set[Tensor] = set()
    instructions = 0
    for e in segment.tensor_exprs:
        outputs = tensor_outputs(e)
        wide = any(not lacked.isdisjoint(graph.concrete_groups(t.visible)) for t in (*outputs, *tensor_inputs(e)))
        if wide:
            handed.update(needing.intersection(tensor_inputs(e)))
            continue
        if not needing.isdisjoint(tensor_inputs(e)):
            needing.update(outputs)
        if space.is_reduced(tensor_inputs(e)[0].visible if isinstance(e, Reducing) else outputs[0].visible):
            instructions += expr_instructions(e) * times.get(outputs[0].name, 1)
    elements = space.kept * space.length * (1 - 1 / math.prod(space.sizes[g] for g in lacked))
    anew = elements / WARP / device.sm_count * instructions * OPERATION * device.cycle * 1e3 / device.rates.issue
    latencies = device.latencies
    apart = latencies.launch_behind_ns + 2 * latencies.dram_loaded_ns
    if anew <= apart:
        return None
    why = (
        f"computing for each of {space.kept} results what many share should take {anew / 1e3:.1f} us, a kernel of its own "
        f"{apart / 1e3:.1f} us"
    )
    return KernelSplit(frozenset(t.name for t in handed)), why


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
