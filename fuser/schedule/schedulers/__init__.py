"""The schedulers: each says which segments it accepts, proposes `Params` for sizes, and records the schedule.

Imports of schedule/: everything but segmentation/. The docstring of each module
draws its loops; docs/ARCHITECTURE.md has the order in which they are asked.

    no_op.py                   outputs that are views of inputs: no kernel
    pointwise.py               no reductions; one thread computes a few consecutive elements
    transpose.py               pointwise, where arguments disagree on the fastest dim: tiles in shared memory;
                               transpose_loops.py records its schedule
    reduction.py               a block takes some rows or columns, and passes over them once for each stage;
                               reduction_loops.py records its schedule
    thread_reduction.py        a thread has all of the few elements of a reduction
    chained_reduction.py       reductions of the results of row reductions
    scan.py                    running folds along one dim
    inner_persistent.py        normalisations along the fastest dim; inner_persistent_loops.py records their schedule
    outer_persistent.py        normalisations along the slower dims
    inner_outer_persistent.py  statistics of rows and sums of columns; inner_outer_row_split.py and
                               inner_outer_column_split.py record the schedules of its two mappings
    expr_eval.py               one expr, one thread for each element: what no other takes
"""
