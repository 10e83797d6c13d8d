"""Lowering: a scheduled fusion, and the facts about its arguments, become kernel IR.

`lower_fusion` (pipeline.py) runs the passes below in this order. Each is a function in a file of its own name, from
statements to statements (three also give scratch memory, a memory layout, or the kernel). Its docstring shows `Before:`
and `After:` and says more; `python docs/tour.py` prints what each one changes.

Passes: what each does, and why it stands there
    build_loop_nests      Order the exprs, open the loops that they share, index and predicate every access. Reductions
                          become partial results of threads and a `Reduce`, scans a carried value and, where threads
                          share a row, a `Scan`. First: all passes work on statements.
    prefetch_loads        Load the next iteration's inputs into registers while this one computes, where the schedule
                          asks. Loops are still those of the loop nests, and no barrier is placed.
    read_early            Hoist loads above a collective: elements that a loaded index chooses, such as the logit of a
                          row's label. As prefetch_loads.
    keep_turns            Keep what the first iterations load in shared memory, and the last iteration in registers, for
                          a loop that goes over the same data backwards. Behind prefetch_loads, which moves loads.
    pipeline_copies       Commit and wait for asynchronous copies to shared memory (cp.async); where the schedule asks,
                          start those of the next iteration as places become free. As prefetch_loads.
    insert_grid_barriers  Put a wait of the whole grid between conflicting accesses of device memory by different
                          blocks. Before collectives are expanded: the wait is one of them.
    expand_collectives    Turn `Reduce`, `Scan` and `GridBarrier` into shuffles, shared and remote stores, atomics and
                          fences. Before memory and barriers, which treat its scratch like any other buffer.
    values_by_owners      Sink what follows from the results of columns alone to the threads that join them, which share
                          it in place of the results. Before what is shared has a place.
    allocate_shared       Give every shared buffer an offset; reuse bytes where lifetimes are disjoint. Before barriers:
                          buffers at one offset are one memory.
    insert_syncs          Put block barriers between conflicting accesses of shared memory. All accesses are there, and
                          predicates stand around single statements, so that no barrier falls inside one. Right behind
                          it in_place.py decides which outputs may overwrite the inputs that they update.
    fill_held_values      Masked loads: a register whose load is masked gets the value that its consumers begin with, so
                          that they need no test. Predicates still stand around single statements, and none is hoisted.
    peel_loops            Peel the last iteration of an unrolled loop, where no other can fail the tests. Before tests
                          are hoisted: both sides of a hoisted test have the same loops then.
    unswitch_loops        Test the last index once for a whole unswitched loop. Loops with barriers are known by now:
                          they keep their tests.
    first_values          Ask whether a value is the first of its thread in the first iterations of an unrolled loop
                          only. Behind unswitch_loops: where values are tested one by one, any of them may be the first.
    whole_blocks          Specialise the kernel for blocks all of whose rows exist. Tests are as few as they get, and
                          not joined.
    finish_by_owners      Sink what follows the last collective to the threads that store its results, if that is much
                          arithmetic in Double. Barriers are placed, and owners' tests stand around single statements.
    merge_predicates      Join neighbouring statements under equal tests; hoist tests that all iterations of a loop
                          share. Last of those that look at single statements.
    finish_kernel         Make the parameters, the launch plan and the size of shared memory. Last: only now is it known
                          what the body mentions.

Checks
    The finished kernel is always verified (ir/verify_kernel.py). FUSER_VERIFY=passes verifies the schedule
    (ir/verify_schedule.py) and, after each pass, kernel IR and what the pass ensures (invariants.py, which shares no
    code with the passes). FUSER_VERIFY=proofs proves with SymPy what was simplified away (ir/proofs.py) and adds the
    stage proofs.txt.

Loop nests
    `NestBuilder` is layers, each a class over the one below: loops and their order (build_loop_nests.py), statements
    (nest_statements.py), wide and displaced moves (nest_vectors.py), storage and partial results (nest_storage.py,
    nest_statistics.py), values and reads (nest_values.py), offsets and tests (nest_predicates.py), state
    (nest_state.py). LoweringContext (context.py) has what is known before: groups under the facts, loop sharing, sizes
    of parallel axes.

    Tensors that are inlined together share loops. A broadcast axis inlined into a concrete one is promoted to it
    (ir/inlining.py, docs/decisions/0002-hash-consed-iteration-graph.md). A thread runs past an extent only through a
    split that does not divide or a padded block. Each such edge gives a test, and tests that ranges prove are dropped.
    A thread outside an extent still takes part in every barrier and shuffle.

Rows that begin anywhere
    An access of several elements is one instruction only at a multiple of its size. Rows of odd length, or a base that
    is off by an element, leave no such width. Where a schedule allows it (`allow_misaligned`), a load from any address
    takes three accesses of half the width and shifts. Stores must be aligned: `split_aligned` peels rows at the aligned
    places of an output (or of the largest input, where nothing is written along a row), so that part i of row r has the
    elements [i*v - a, i*v - a + v) with a = (r * pitch) mod v, and every tensor of that pitch is aligned with it. Of an
    input whose base may be off, the kernel takes the phase from the address (`LetPhase`). Vectors that an end of the
    row cuts are stored by element. An aligned input is read whole there if any of it is inside (`VectorMove.cut`): what
    else lies in the same 16 bytes is mapped memory as well, and nothing uses it. The loop over the elements of a vector
    is unswitched, so that whole vectors test once. schedule/alignment.py decides: rows of a few hundred elements are
    not peeled but read by element, or, where outputs and large inputs are one run of memory, as that run, beside which
    a bias is read by element (divide_once.py). Long rows lie in shared memory in such vectors (schedule/cut_rows.py):
    what has the phase of the output is copied asynchronously, anything else is shifted in registers on its way.

Collectives
    Every thread of a block ends up with the result (docs/decisions/0004-allreduce-collectives.md). There are no float
    atomics and every join has a fixed order, so that results repeat. expand_collectives.py lists the file of each
    level:
        warp     butterflies; many results at once by reduce-scatter (scatter_lanes.py, scatter_statistics.py)
        block    one shared slot for each warp; every thread joins the slots in warp order. Results of many columns are
                 joined by groups of threads (spread_joins.py, warp_joins.py)
        cluster  stores into the shared memory of the other blocks. Where warps do so once in a kernel, the receiver
                 counts bytes (st.async and an mbarrier); else there is a barrier of the cluster
        group    blocks that all go on with the result: a counter that only grows, and places for each execution
        grid     partial results in a workspace, a fence, a semaphore; the last block to arrive (or, in a cooperative
                 launch, every block after a wait) joins them in block order; of threads that hold copies of one partial
                 result, one writes it. Single results of at most 1024 blocks are flagged stores instead (`Post`): 4
                 bytes and a flag are written at once, the last block by number waits for them, and no fence, counter
                 and read follow one another
    A scan keeps the order of its elements: a thread folds what it holds, then come the totals of lanes, warps, tiles
    and blocks of a cluster, and last the value carried along a row of several steps. It stays within a block or a
    cluster.

Accuracy
    Of what shows in an output to more than 16 bits (ir/wide_results.py), sums of Float and Double are pairs, the total
    and what rounding lost of it (compensated_sum.py); statistics of Floats are added up in Double (wide_welford.py),
    those of Doubles with error terms, and means have an error term (exact_welford.py), so that a mean
    far from zero costs no digits; between the last statistics of a row and its results, sums, products, quotients and
    roots carry an error term (carried_rests.py, docs/decisions/0012-carried-rests.md). Statistics that are not combined
    with their values again are joined as sums and divided once (moments.py for 16-bit numbers, shifted_sums.py for
    Floats), by one shift for all threads of a result where an input can give it (common_shift.py); those of Doubles only
    there (exact_sums.py).

Barriers
    A barrier stands as late as possible, right before the second access of a pair that no other barrier separates, and
    has the pair as its comment (docs/decisions/0005-barriers-as-late-as-possible.md). The wait of the whole grid is
    placed alike: all writers fence, each block adds one to a counter and spins until all have; reads behind it go past
    the first-level cache, and the launch is cooperative. docs/decisions/0013-blocks-that-wait.md says what a block may
    wait for, and what ends a wait in vain. How blocks meet is part of the launch plan (`LaunchPlan.meetings`).
"""
