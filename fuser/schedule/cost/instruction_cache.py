"""How many elements the text of a kernel may repeat its ops for.

Unrolled loops and vectors are for bytes on their way. They cost instructions, which an SM fetches from memory where its cache
does not hold them, and which take long to compile.
"""

from __future__ import annotations

from fuser.ir.device_info import INSTRUCTION_BYTES, DeviceInfo
from fuser.ir.fusion.fusion import Fusion, Reducing, tensor_inputs, tensor_outputs
from fuser.ir.fusion.memoized import memoized
from fuser.ir.fusion.op_instructions import expr_instructions
from fuser.schedule.analysis.data_passes import computing_pass_counts, empty_schedule

_COPIES = 2
"""Of the body of an unrolled loop: for whole iterations, and for the last one, which tests every element."""
_AROUND = 2
"""The part of the cache for loops, one in so many: as much for what stands around them, such as the joins of results."""


def max_unrolled_elements(segment: Fusion, device: DeviceInfo) -> int:
    """Elements of a thread, one or more, that an iteration may have so that the instruction cache holds the whole kernel."""
    return elements_in_cache(element_instructions(segment), device)


def elements_in_cache(instructions: int, device: DeviceInfo) -> int:
    """The same for so many instructions an element."""
    return max(1, device.instruction_cache_bytes // INSTRUCTION_BYTES // (_AROUND * _COPIES * instructions))


def element_instructions(segment: Fusion) -> int:
    """Instructions of a kernel for an element of its iteration space, in all data passes: of exprs that have all its dims."""
    found = _instructions(segment)
    return max(1, found[max(found)])


def row_instructions(segment: Fusion) -> int:
    """Those of the exprs that have fewer dims: what each thread of a row does for it once."""
    found = _instructions(segment)
    return sum(count for dims, count in found.items() if dims < max(found))


@memoized
def _instructions(segment: Fusion) -> dict[int, int]:
    """Instructions of all exprs in all data passes, by the number of their dims."""
    graph = segment.resolved_dims
    # Without reductions all is one data pass.
    has_data_passes = any(isinstance(e, Reducing) for e in segment.tensor_exprs)
    times = computing_pass_counts(empty_schedule(segment)) if has_data_passes else {}
    found: dict[int, int] = {}
    for e in segment.tensor_exprs:
        # A reduction is a step for each element that it reads.
        of = tensor_inputs(e)[0] if isinstance(e, Reducing) else tensor_outputs(e)[0]
        dims = len(graph.concrete_groups(of.visible))
        found[dims] = found.get(dims, 0) + expr_instructions(e) * times.get(tensor_outputs(e)[0].name, 1)
    return found
