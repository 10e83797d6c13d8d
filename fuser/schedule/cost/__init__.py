"""What a choice of threads, blocks and residency costs, and the choice that should take least time.

Functions of sizes and of `DeviceInfo`. Each module chooses for one kind of mapping; the schedulers ask them.
Imports of schedule/: analysis/, transforms/, scheduler.py and params.py.

All mappings
    estimate.py                   microseconds of the work that a mapping asks of the machine
    mapping_search.py             the search: of the mappings of a kind the one to propose, the order of the others, and why
    code_costs.py                 instructions and cycles of generated code
    occupancy.py                  blocks that an SM holds at once
    rounding.py                   counts that near sizes have in common
    instruction_cache.py          elements per iteration for which the instruction cache holds the code
    scratch_budget.py             bytes of shared memory that exchanges of a block need in addition to its data
Pointwise
    pointwise_work.py             what a mapping asks of the machine
    pointwise_mappings.py         mappings of elements to threads and blocks, and the fastest of them
    pointwise_space.py            the iteration space: merged dims, arguments, the widest accesses
    pointwise_heuristic.py        accesses and mapping as parameters
    transpose_mappings.py         tiles of segments whose arguments disagree on the fastest dim, and the fastest of them
Reductions
    reduction_space.py            what a reduction works on at the current sizes, and how its elements are accessed
    reduction_mappings.py         mappings of elements to threads and blocks, and their work
    two_kernel_reduction.py       when two kernels, each for some of the dims, are faster than one
    kernel_split.py               when to split a kernel in two after its reductions
Rows that stay on chip (inner_persistent)
    persistent_buffer_size.py     data passes of a row, and bytes of an element that are on chip between them
    accesses_per_thread.py        accesses of a row distributed over threads and blocks
    row_space.py                  sizes, bytes, data passes and operations of rows
    row_mappings.py               mappings of rows to threads, blocks and memories, and their work
    row_search.py                 the search among them, most of which is done once for all numbers of rows
Columns that stay in registers (outer_persistent)
    outer_persistent_mappings.py  threads and blocks that share the rows of a column
Backward normalisations (inner_outer_persistent)
    inner_outer_space.py          sizes of a segment, and what an element costs a thread: bytes, registers, operations
    inner_outer_mappings.py       mappings of rows and columns to threads, blocks and memories
    inner_outer_work.py           their work, and that of two kernels in their place; the fastest
Scans
    scan_mappings.py              mappings of scans, and what each asks of the machine
"""
