"""Verbs and rewrites that several schedulers share: parts of a schedule, recorded in a `ScheduleBuilder`.

Imports of schedule/: analysis/, scheduler.py and params.py.

    vectorize.py         copies of arguments, splits into vectors, accesses of several elements
    tile_loops.py        blocks, threads, rows and elements of a pointwise kernel
    place_rows.py        rows in shared memory: asynchronous copies, and the loops of the stages that read them
    inner_outer_pass.py  copies, stages and column sums of inner and outer reductions
    evict_last.py        reads that are to be the last that leave the second-level cache
"""
