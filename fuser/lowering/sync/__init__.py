"""Barriers between conflicting accesses, as late as possible, and no others.

Imports nothing of lowering/.

    insert_syncs.py          barriers of a block, between accesses of shared memory and of global buffers used within a block
    insert_grid_barriers.py  grid barriers, between accesses of device memory

Barriers
    A barrier is placed as late as possible, right before the second access of a pair that no other barrier separates, and
    has the pair as its comment (docs/decisions/0005-barriers-as-late-as-possible.md). Grid barriers are placed in the
    same way: all writers fence, each block adds one to a counter and spins until all have; later reads bypass the L1
    cache, and the launch is cooperative. docs/decisions/0013-blocks-that-wait.md says which waits between blocks are
    allowed, and which give up. The protocols are part of the launch plan (`LaunchPlan.exchanges`).
    These passes place all barriers but those of the protocols between blocks, which collectives/ writes.
"""
