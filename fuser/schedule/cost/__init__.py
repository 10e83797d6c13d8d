"""What a choice of threads, blocks and residency costs, and the choice that should take least time.

Functions of sizes and of `DeviceInfo`. Each module chooses for one kind of mapping; the schedulers ask them.
Imports of schedule/: analysis/, transforms/ and params.py.

Reductions
    reduction_space.py      the iteration space of a reduction, the plan of its loops, shared arithmetic
    plan_reduction.py       threads, blocks and unrolling of a reduction
    plan_columns.py         the same where neighbouring threads take neighbouring results
    written_columns.py      the same where the reduced values are written too
    exponential_rows.py     losses: many rows, each one sum of exponentials
    kernel_ends.py          when a kernel had better end behind its reductions
    reduction_steps.py      when two steps, each a kernel, are better than one
    text_length.py          how many elements an iteration repeats its ops for: the instruction cache limits it
Persistent rows
    held_rows.py            stages of a row, and bytes of an element that are on chip between them
    row_shapes.py           rows in registers: threads, blocks and accesses
    rows_at_once.py         rows without statistics, few enough that each has SMs for itself
    few_rows.py             few rows, all on the device at once; few_held_rows.py says when that applies
    rows_in_shared.py       rows in shared memory
    cut_rows.py             the same for rows that begin anywhere, peeled at alignment
    rows_over_grid.py       rows over groups of blocks of the grid; cut_rows_over_grid.py: such rows peeled at alignment
    room_for_exchanges.py   bytes of shared memory that exchanges of a block need beside its data
Columns, and rows with columns
    columns_over_cluster.py columns that the blocks of a cluster share
    columns_model.py        few rows over the blocks of a cluster, long ones over those of the grid
    rows_model.py           rows of gradients in registers; gradient_rows.py: in shared memory
Scans
    scan_model.py           rows that several blocks share
"""
