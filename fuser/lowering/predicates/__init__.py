"""Passes over tests: fewer of them, hoisted out of loops.

Imports of lowering/: kernel_rewrites.py.

    peel_loops.py                 the last iteration of an unrolled loop alone is tested
    unswitch_loops.py             a loop's last index is tested once for all of its iterations
    merge_predicates.py           statements under equal tests are merged; loop-invariant tests are hoisted
    sink_into_branches.py         values that one branch of a test needs are computed there
    hoisted_tests.py              what peel_loops and unswitch_loops have in common
"""
