"""Segmentation: a fusion is split into segments, each with the scheduler that accepts it.

Files; upper ones import lower ones
    segmentation.py          splits a fusion, by means of the files below
    recompute_boundaries.py  recomputes tensors instead of storing them between segments
    greedy_segments.py       splits a list of exprs in order, each segment as long as some scheduler accepts it
    view_segments.py         segments of views: of inputs, and of results that only outputs need
    segment.py               a segment, and the scheduler that accepts it
    partition_fusion.py      splits a fusion by levels of materialised tensors
    registry.py              the schedulers in priority order

How a fusion is split
    1.  The whole fusion, if some scheduler accepts it. Views of inputs, and reshapes that only outputs need, are segments of
        their own.
    2.  Subsets of outputs that have only cheap values in common, such as the gradients of rows and of columns
        (schedule/analysis/independent_outputs.py). Their kernels do not depend on each other and run co-resident, in pairs:
        see `starts_next` and `co_resident` of ir/kernel/launch_plan.py.
    3.  Reductions over smaller iteration spaces than the largest first, such as the number of valid labels, by which a
        gradient is divided, if one scheduler accepts all the rest.
    4.  Levels (partition_fusion.py): outputs that share no materialised tensor become separate parts; the rest is split below
        the highest level that schedulers accept. Values that take fewer bytes to recompute than to store and read again
        are recomputed in each kernel that needs them: casts, masks made of positions, slices.
    5.  The parts that step 4 cannot split, and the whole fusion if that gives fewer kernels: exprs in depth-first order from
        the outputs, in ranges as long as some scheduler accepts them (greedy_segments.py).
    6.  At the end, a tensor is not stored if its readers can recompute it with no more bytes than storing and reading it
        takes (recompute_boundaries.py).

    An expr that no scheduler accepts is a kernel of its own, one thread per element, with a warning
    (schedule/schedulers/fallback.py): no valid program is refused. compiler/segment_failures.py says when a fusion is
    split again. `fd.explain` shows every refusal in segments.py, and what was chosen and why in params.py.

Library calls
    An op that a library computes (ir/fusion/library_ops.py) is a segment without a kernel. The exprs between calls are
    divided into regions: exprs of the same depth, the longest chain of calls before them, are one region, split as a
    fusion by itself (ir/fusion/library_regions.py). So three products of one tensor have one region before and one after them.
    Values that only a later region reads are computed there; views that only calls read are aliases. Values between a region
    and a call are row-major; if no strides make a reshape of one a view, a kernel copies it (ir/fusion/concretize.py).
    docs/decisions/0017-library-calls.md has the reasons.
"""
