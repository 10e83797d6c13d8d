"""Scheduling primitives and rewrites that several schedulers share, recorded in a `ScheduleBuilder`.

Imports of schedule/: analysis/, scheduler.py and params.py.

    vectorize.py            copies of arguments, splits into vectors, accesses of several elements
    pointwise_loops.py      blocks, threads, rows and elements of a pointwise kernel
    shared_rows.py          rows in shared memory: asynchronous copies, and the loops of the stages that read them
    inner_outer_builder.py  copies, stages and column sums of inner and outer reductions
    evict_last.py           inputs whose reads are evicted last from the L2 cache
"""
