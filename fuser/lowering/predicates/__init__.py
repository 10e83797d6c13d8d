"""Passes over tests: fewer of them, hoisted out of loops, or for whole blocks at once.

Imports of lowering/: kernel_rewrites.py.

    fill_masked_loads.py          masked loads get the value that their consumers begin with, and these need no test
    peel_loops.py                 the last iteration of an unrolled loop alone is tested
    unswitch_loops.py             a loop's last index is tested once for all of its iterations
    simplify_first_iterations.py  "is it the first value" is asked in the first iterations only
    specialise_full_tiles.py      a block all of whose rows exist tests once
    merge_predicates.py           statements under equal tests are joined; loops under tests that they do not change
    sink_into_branches.py         what one branch of a test needs is computed there
    hoisted_tests.py              what peel_loops, unswitch_loops and specialise_full_tiles have in common
"""
