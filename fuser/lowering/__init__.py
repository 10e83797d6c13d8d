"""Lowering: a scheduled fusion, and the facts about its arguments, become kernel IR.

`lower_fusion` (pipeline.py) runs the passes below in this order. Each is a function in a file of its own name, in one
of the rooms, from statements to statements (three also give scratch memory, a memory layout, or the kernel). Its
docstring shows `Before:` and `After:` and says more; `python docs/tour.py` prints what each one changes.

Passes: what each does, and why it stands there
    build_loop_nests           Order the exprs, open the loops that they share, index and predicate every access.
                               Reductions become partial results of threads and a `Reduce`, scans a carried value and,
                               where threads share a row, a `Scan`. First: all passes work on statements.
    prefetch_loads             Load the next iteration's inputs into registers while this one computes, where the
                               schedule asks. Loops are still those of the loop nests, and no barrier is placed.
    partial_residency          Keep what the first iterations load in shared memory, and the last iteration in
                               registers, for a loop that goes over the same data backwards. Behind prefetch_loads,
                               which moves loads.
    pipeline_copies            Commit and wait for asynchronous copies to shared memory (cp.async); where the schedule
                               asks, start those of the next iteration as places become free. As prefetch_loads.
    insert_grid_barriers       Put a wait of the whole grid between conflicting accesses of device memory by different
                               blocks. Before collectives are expanded: the wait is one of them.
    expand_collectives         Turn `Reduce`, `Scan` and `GridBarrier` into shuffles, shared and remote stores, atomics
                               and fences. Before memory and barriers, which treat its scratch like any other buffer.
    allocate_shared            Give every shared buffer an offset; reuse bytes where lifetimes are disjoint. Before
                               barriers: buffers at one offset are one memory.
    insert_syncs               Put block barriers between conflicting accesses of shared memory. All accesses are there,
                               and predicates stand around single statements, so that no barrier falls inside one. Right
                               behind it memory/in_place.py decides which outputs may overwrite the inputs that they
                               update.
    peel_loops                 Peel the last iteration of an unrolled loop, where no other can fail the tests. Before
                               tests are hoisted: both sides of a hoisted test have the same loops then.
    unswitch_loops             Test the last index once for a whole unswitched loop. Loops with barriers are known by
                               now: they keep their tests.
    merge_predicates           Join neighbouring statements under equal tests; hoist tests that all iterations of a loop
                               share. Last of those that look at single statements.
    sink_into_branches         Compute in a branch what only that branch needs, such as a part of a concatenation. Last of
                               those that move statements: a list has all that its threads do.
    finish_kernel              Make the parameters, the launch plan and the size of shared memory. Last: only now is it
                               known what the body mentions.

Rooms
    loop_nests/   from a schedule to statements: the first pass
    collectives/  what threads and blocks exchange: shuffles, shared and remote stores, atomics, waits
    combiners/    the arithmetic of reductions, which loops and collectives share
    predicates/   fewer tests, tested earlier
    memory/       where values lie, and when they are loaded
    sync/         barriers
    checks/       what each pass ensures
    Beside them: pipeline.py, the order; context.py, what is known before the first statement; finish_kernel.py, the last
    pass; kernel_rewrites.py, substitution in statements; parallel_axes.py, where a thread and a block stand;
    fresh_numbers.py, names of temporaries. pyproject.toml says which room may import which.

Checks
    The finished kernel is always verified (ir/verify_kernel.py). FUSER_VERIFY=passes verifies the schedule
    (ir/verify_schedule.py) and, after each pass, kernel IR and what the pass ensures (checks/invariants.py, which shares no
    code with the passes). FUSER_VERIFY=proofs proves with SymPy what was simplified away (ir/proofs.py) and adds the
    stage proofs.txt.
"""
