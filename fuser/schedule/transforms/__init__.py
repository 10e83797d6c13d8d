"""Scheduling primitives and rewrites that several schedulers share, recorded in a `ScheduleBuilder`.

Imports of schedule/: analysis/, scheduler.py and params.py.

    vectorize.py            copies of arguments in registers, splits into vectors, vector accesses
    loops.py                facts about extents, the tensor whose loops are made, axes as one, types of loops
    pointwise_loops.py      the loops of a pointwise kernel: blocks, threads, rows of a thread, elements
    shared_rows.py          rows in shared memory: asynchronous copies, and the loops of the data passes that read them
    inner_outer_builder.py  common steps of schedules with inner and outer reductions: copies, data passes, column sums
    evict_last.py           cache hints: reads that are evicted last from L2
"""
