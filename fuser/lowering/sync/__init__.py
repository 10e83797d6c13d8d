"""Barriers between conflicting accesses, as late as possible, and no others.

Imports nothing of lowering/.

    insert_syncs.py          barriers of a block, between accesses of shared memory
    insert_grid_barriers.py  waits of the whole grid, between accesses of device memory

Barriers
    A barrier stands as late as possible, right before the second access of a pair that no other barrier separates, and
    has the pair as its comment (docs/decisions/0005-barriers-as-late-as-possible.md). The wait of the whole grid is
    placed alike: all writers fence, each block adds one to a counter and spins until all have; reads behind it go past
    the first-level cache, and the launch is cooperative. docs/decisions/0013-blocks-that-wait.md says what a block may
    wait for, and what ends a wait in vain. How blocks meet is part of the launch plan (`LaunchPlan.meetings`).
"""
