"""Rewrites of a fusion before it is segmented, in order."""

from __future__ import annotations

from collections.abc import Callable

from fuser import options
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.library_regions import rewrite_parts
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.assign_output_layouts import assign_output_layouts
from fuser.optimize.common_divisors import common_divisors
from fuser.optimize.compute_before_broadcast import compute_before_broadcast
from fuser.optimize.drop_exact_roundings import drop_exact_roundings
from fuser.optimize.fuse_exp_sums import fuse_exp_sums
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.hoist_reads_of_reshapes import hoist_reads_of_reshapes
from fuser.optimize.join_pieces import join_pieces
from fuser.optimize.join_reductions import join_reductions
from fuser.optimize.nest_reductions import nest_reductions
from fuser.optimize.pad_reductions import pad_reductions
from fuser.optimize.recompute_across_calls import recompute_across_calls
from fuser.optimize.remove_dead_code import remove_dead_code
from fuser.optimize.round_as_floats import round_as_floats
from fuser.optimize.separate_positions import separate_positions
from fuser.optimize.split_reshaped_dims import split_reshaped_dims
from fuser.optimize.uncancelled_sums import uncancelled_sums
from fuser.optimize.undo_squeezes import undo_squeezes
from fuser.optimize.unroll_packed_dims import unroll_packed_dims
from fuser.optimize.use_approximate_ops import use_approximate_ops
from fuser.optimize.use_ranges import use_ranges

PASSES: tuple[Callable[[Fusion], Fusion], ...] = (
    remove_dead_code,
    recompute_across_calls,
    use_approximate_ops,
    uncancelled_sums,
    assign_output_layouts,
    join_pieces,
    separate_positions,
    hoist_reads_of_reshapes,
    split_reshaped_dims,
    join_reductions,
    pad_reductions,
    unroll_packed_dims,
    hoist_displaced_reads,
    nest_reductions,
    fuse_exp_sums,
    use_ranges,
    drop_exact_roundings,
    undo_squeezes,
    compute_before_broadcast,
    common_divisors,
    round_as_floats,
)


WHOLE = frozenset((remove_dead_code, recompute_across_calls, assign_output_layouts))
"""Passes that see library calls: the others see each part between them by itself. What one part hands to another is no output,
and lies as it is written by definition."""


def optimize_fusion(fusion: Fusion, stage: Callable[[str, Callable[[], str]], None]) -> Fusion:
    """Run every pass; `stage` is told of each result under the name `fusion.<nn>-<pass>.py`.

    With FUSER_VERIFY=passes every result is checked.
    """
    verifies = "passes" in options.VERIFY.get()
    for number, run in enumerate(PASSES):
        fusion = run(fusion) if run in WHOLE else rewrite_parts(fusion, run)
        if verifies:
            verify_fusion(fusion, run.__name__)
        result = fusion
        stage(f"fusion.{number:02d}-{run.__name__}.py", lambda result=result: definition_text(result))
    return fusion
