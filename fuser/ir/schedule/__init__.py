"""Schedules: verbs as records that name tensors and positions, so that a schedule replays on any copy of its fusion.

Handles of the frontend and schedulers use the same `ScheduleBuilder`.

    schedule.py              a schedule, and `ScheduleBuilder`, which applies its verbs
    schedule_tensors.py      verbs that make tensors: caches, second computations, the stages of a reduction
    schedule_propagation.py  verbs that carry loops, parallel types or inline positions over to other tensors
    schedule_memory.py       verbs on where a tensor lives and when it is loaded
    schedule_transforms.py   verbs on the loops of one tensor and on the launch
    scheduled_fusion.py      the state: exprs, and loops, memory and parallel types of each tensor
    verify_schedule.py       what verbs and schedulers may leave in it
    inlining.py              which tensors share loops
    scan_loops.py            how the loops of a scan divide the work
    canonical_symbols.py     which extent symbols stand for one extent
    two_pass.py              statistics of a row that stays on chip, by simple reductions one after another
"""
