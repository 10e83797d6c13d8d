"""Optimize: rewrites of a fusion, before it is cut into segments.

`optimize_fusion` (pipeline.py) runs the passes in the order of `PASSES`. Each is a function `Fusion -> Fusion` in a
file of its own name, whose docstring shows `Before:` and `After:`. A pass knows nothing of schedules. It may change how exactly
a value is computed, within the bounds that its docstring gives, and never what is computed. With FUSER_VERIFY=passes
`verify_fusion` runs after each.

Passes, by what they are for
    less work        remove_dead_code, compute_before_broadcast, recompute_across_calls
    layout, views    assign_output_layouts, join_pieces, separate_positions, hoist_reads_of_reshapes, split_reshaped_dims,
                     hoist_displaced_reads, undo_squeezes
    one pass         fuse_exp_sums, pad_reductions, unroll_packed_dims, join_reductions, nest_reductions
    cheaper          use_approximate_ops, use_ranges, drop_exact_roundings, round_as_floats, common_divisors
    more exact       uncancelled_sums

    for some sizes   reduce_in_steps, no pass of the pipeline: nest_reductions asks for it, and the compiler where
                     schedule/cost/two_kernel_reduction.py finds that it is faster
    shared           replace_exprs: the loop of passes that put other exprs in place of some; displaced_reads/: how a read
                     moves to inputs, for hoist_reads_of_reshapes and hoist_displaced_reads; dim_parts: what split_reshaped_dims
                     cuts dims into

What holds across passes
    library calls    A fusion with calls is rewritten part by part: each part between calls is a fusion by itself
                     (ir/fusion/library_regions.py), and what one part hands to another is no output and lies row major. The
                     passes in `WHOLE` see the calls.
    displaced reads  A slice, pad or gather reads at other indices than its result's. Passes move such reads to the
                     inputs; one that stays on a computed tensor ends a segment
                     (docs/decisions/0006-displaced-reads.md).
    approximate ops  (ir/ops/approximate_ops.py) A walk from outputs to inputs knows what relative error each tensor may have;
                     an approximate op stands only where its error fits (docs/decisions/0007-approximate-ops.md).
"""
