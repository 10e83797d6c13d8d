"""What a choice of threads, blocks and residency costs, and the choice that should take least time.

Functions of sizes and of `DeviceInfo`. Each module chooses for one kind of mapping; the schedulers ask them.
Imports of schedule/: analysis/, transforms/, scheduler.py and params.py.

All mappings
    estimate.py             microseconds of what a mapping asks of the machine
    code_costs.py           instructions and cycles of generated code
    occupancy.py            blocks that an SM holds at once
Pointwise
    pointwise_space.py      the iteration space: parts, arguments, the widest accesses
    plan_pointwise.py       vectors, blocks and rows of a thread
Reductions
    reduction_space.py      what a reduction works on at the sizes at hand, and how its elements are accessed
    reduction_mappings.py   which threads and blocks have which elements; what that asks of the machine
    columns_in_registers.py columns whose rows a block holds: how many threads share them
    reduction_steps.py      when two steps, each a kernel, are better than one
    kernel_ends.py          when a kernel had better end behind its reductions
    text_length.py          how many elements an iteration repeats its ops for: the instruction cache limits it
Persistent rows
    persistent_rows.py      stages of a row, and bytes of an element that are on chip between them
    thread_batches.py       accesses of a row dealt to threads and blocks
    row_work.py             sizes, bytes, stages and operations of rows
    row_mappings.py         which threads and blocks hold a row, and where; what that asks of the machine
    scratch_budget.py       bytes of shared memory that exchanges of a block need beside its data
Columns, and rows with columns
    inner_outer_load.py     what a row costs a thread: bytes, registers, operations
    columns_model.py        few rows over the blocks of a cluster, long ones over those of the grid
    rows_model.py           rows of gradients in registers
    gradient_rows.py        rows of gradients in shared memory
Scans
    scan_model.py           rows that several blocks share
"""
