"""Lowering: a scheduled fusion, and the facts about its arguments, become kernel IR.

`lower_fusion` (pipeline.py) runs the passes below in this order. Each is a function in a file of its own name, in one
of the sub-packages, from statements to statements (three also return scratch memory, a memory layout, or the kernel). Its
docstring shows `Before:` and `After:` and says more; `python docs/tour.py` prints what each one changes.

Passes: what each does, and why it is placed there
    build_loop_nests           Order the exprs, open the loops that they share, index and predicate every access.
                               Reductions become partial results of threads and a `Reduce`, scans a carried value and,
                               where threads share a row, a `Scan`. First: all passes work on statements.
    prefetch_loads             Load the next iteration's inputs into registers while this one computes, where the
                               schedule asks. Loops are still those of the loop nests, and no barrier is placed.
    partial_residency          Keep the data of the first iterations of a loop in shared memory, and that of the last one in
                               registers, for a later loop that reads the same data backwards. After prefetch_loads,
                               which moves loads.
    pipeline_copies            Commit and wait for asynchronous copies to shared memory (cp.async); where the schedule
                               asks, start those of the next iteration as buffers become free. Here for the same reason
                               as prefetch_loads.
    insert_grid_barriers       Put grid barriers between conflicting accesses of device memory by different blocks.
                               Before collectives are expanded: the grid barrier is one of them.
    expand_collectives         Turn `Reduce`, `Scan` and `GridBarrier` into shuffles, shared and remote stores, atomics
                               and fences; protocols between blocks bring block barriers of their own. Before
                               allocate_shared and insert_syncs, which treat the scratch memory like any other buffer.
    allocate_shared            Give every shared buffer an offset; reuse bytes where lifetimes are disjoint. Before
                               insert_syncs: buffers at one offset are one memory, so that reuse makes conflicts.
    insert_syncs               Put block barriers between conflicting accesses of shared memory, and of global buffers
                               through which threads of a block pass values. All accesses exist by now, and predicates
                               are around single statements, so that no barrier falls inside one. Right after it
                               memory/in_place.py decides which outputs may overwrite the inputs that they update.
    peel_loops                 Peel the last iteration of an unrolled loop, if no other iteration can fail its predicates.
                               Before unswitch_loops, so that both versions of an unswitched loop have the same loops.
    unswitch_loops             Test once whether any iteration of a loop needs predicates; the loop exists in two versions.
                               After insert_syncs: loops with barriers are not unswitched.
    merge_predicates           Merge adjacent statements under equal predicates; hoist loop-invariant predicates. After all
                               passes that work on single predicated statements.
    sink_into_branches         Compute in a branch what only that branch needs, such as an operand of a concatenation.
                               After merge_predicates: branches under equal predicates are one.
    finish_kernel              Make the parameters, the launch plan and the size of shared memory. Last, because these
                               depend on what the final body uses.

Sub-packages
    loop_nests/   the first pass: from a schedule to statements
    collectives/  exchanges between threads and blocks: shuffles, shared and remote stores, atomics, waits
    combiners/    the arithmetic of reductions, for loops and collectives
    predicates/   passes over predicates: peeling, unswitching, merging, hoisting
    memory/       passes over memory: prefetching, asynchronous copies, offsets in shared memory, outputs in place
    sync/         barriers
    checks/       postconditions of passes
    Files directly here: pipeline.py, the order of passes; context.py, facts and layouts before the first statement;
    finish_kernel.py, the last pass; kernel_rewrites.py, substitution in statements; parallel_axes.py, positions of a thread and
    a block; name_counter.py, names of temporaries. pyproject.toml says which sub-package may import which.

Checks
    The finished kernel is always verified (ir/kernel/verify_kernel.py). FUSER_VERIFY=passes verifies the schedule
    (ir/schedule/verify_schedule.py) and, after each pass, kernel IR and what the pass ensures (checks/invariants.py,
    which shares no code with the passes). FUSER_VERIFY=proofs proves simplifications again with SymPy
    (ir/integers/proofs.py) and adds the stage proofs.txt.
"""
