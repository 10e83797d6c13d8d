"""Passes over predicates: fewer of them, evaluated outside of loops.

Imports of lowering/: kernel_rewrites.py.

    peel_loops.py                 peels the last iteration of unrolled loops: only that one is predicated
    unswitch_loops.py             tests once whether any iteration of a loop needs its predicates
    merge_predicates.py           merges statements under equal predicates; hoists loop-invariant ones
    sink_into_branches.py         computes values that only one branch needs in that branch
    hoisted_tests.py              what peel_loops and unswitch_loops have in common
"""
