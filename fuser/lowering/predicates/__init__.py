"""Passes over tests: fewer of them, hoisted out of loops.

Imports of lowering/: kernel_rewrites.py.

    peel_loops.py                 the last iteration of an unrolled loop alone is tested
    unswitch_loops.py             a loop's last index is tested once for all of its iterations
    merge_predicates.py           statements under equal tests are joined; loops under tests that they do not change
    sink_into_branches.py         what one branch of a test needs is computed there
    hoisted_tests.py              what peel_loops and unswitch_loops have in common
"""
