"""The schedulers: each accepts a class of segments, proposes `Params` for given sizes, and builds the schedule from them.

Imports of schedule/: everything but segmentation/. The docstring of each module shows its loops; docs/ARCHITECTURE.md
has their priority order.

    no_op.py                   outputs that are views of inputs: no kernel
    pointwise.py               no reductions; each thread computes a few consecutive elements
    transpose.py               pointwise segments whose arguments have different fastest dims: tiles in shared memory;
                               transpose_loops.py builds its schedule
    reduction.py               a block has some rows or columns, and reads them once per data pass
    thread_reduction.py        small reductions: a thread reduces all elements of its results
    chained_reduction.py       reductions of the results of reductions of rows or columns
    scan.py                    scans along one dim
    inner_persistent.py        normalisations along the fastest dim
    outer_persistent.py        normalisations along slower dims
    inner_outer_persistent.py  statistics of rows and sums of columns; inner_outer_rows_over_grid.py and
                               inner_outer_columns_over_grid.py build the schedules of its two kinds of mappings
    fallback.py                one expr, one thread for each element: for exprs that all others refuse
"""
