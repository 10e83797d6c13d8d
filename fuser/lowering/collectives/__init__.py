"""`Reduce`, `Scan` and `GridBarrier` become shuffles, shared and remote stores, atomics and fences, level by level.

Imports of lowering/: combiners/, parallel_axes.py, name_counter.py.

    expand_collectives.py         the pass, with the protocol that the levels share
    fuse_collectives.py           finds the reductions that are expanded together
Levels of a reduction
    warp_all_reduce.py            lanes of a warp, by butterfly shuffles
    warp_reduce_scatter.py        many sums over a warp: each lane ends up with one
    expand_block.py               warps of a block
    block_reduce_scatter.py       several results at once, a share of them for each thread of a block
    expand_cluster.py             blocks of a cluster
    expand_block_group.py         a group of blocks of the grid, all of which continue with the result
    expand_grid.py                blocks of the grid, the last of which combines the partial results
    grid_partials.py              workspaces for the partial results of blocks
    expand_flagged.py             flagged stores in place of a fence and a counter
    slots.py                      where partial results are left for those that combine them
Others
    expand_grid_barrier.py        the grid barrier
    semaphores.py                 the counters by which blocks synchronise
    expand_scan.py                scans over the threads of a block
    lane_groups.py                how the threads of a scan are arranged in warps
    expand_scan_cluster.py        scans over the blocks of a cluster

What holds at all levels, and how each exchanges
    Every thread of a block gets the result (docs/decisions/0004-allreduce-collectives.md). There are no float atomics and
    partial results are combined in a fixed order, so that results are reproducible.
        warp     butterfly shuffles; many results at once by reduce-scatter (warp_reduce_scatter.py)
        block    one value in shared memory for each warp; every thread combines them in warp order. Results of many
                 columns are combined by groups of threads (block_reduce_scatter.py)
        cluster  stores into the shared memory of the other blocks. If warps do so once in a kernel, the receiver
                 counts bytes (st.async and an mbarrier); else there is a cluster barrier
        group    block groups: a counter that only grows, and memory for each execution; all blocks get the result
        grid     partial results in a workspace, a fence, a semaphore; the last block to arrive (or, in a cooperative
                 launch, every block after a wait) combines them in block order; of threads that hold copies of one
                 partial result, one writes it. Single results of at most 1024 blocks are flagged stores instead
                 (`Post`): 4 bytes and a flag are one store, and the last block by number waits for the flags; no
                 fence and no counter
    A scan keeps the order of its elements: a thread scans its own, then come the totals of lanes, warps, tiles and
    blocks of a cluster, and last the value carried from earlier iterations of the loop along the row. It stays within a
    block or a cluster.
"""
