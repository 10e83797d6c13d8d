"""From a schedule to statements: loops, indices, predicates, storage and partial results. The first pass.

Imports of lowering/: combiners/, memory/ (asynchronous copies), predicates/ (prefixes of tests), context.py,
fresh_numbers.py.

`NestBuilder` is layers, each a class over the one below:

    build_loop_nests.py  the pass; exprs in order, and the loops that they share
    nest_statements.py   the statement of an expr: stored, folded into a scan, added to the partials of a reduction
    nest_vectors.py      moves of several elements, and displaced ones
    nest_storage.py      registers and buffers of intermediates and of partials
    nest_statistics.py   what a thread adds up of statistics, and when means and squares come of it
    nest_values.py       what an expr computes at the loops at hand, and its reads
    nest_predicates.py   where an element lies, and under which tests a statement stands
    nest_state.py        storage and partials so far

What they use:

    indexing.py          the index of a group of iteration domains, found in the graph from the loops at hand
    displaced_reads.py   where a slice, pad or gather reads its operand
    divide_once.py       one division for all elements of a thread that lie in two rows at most
    scan_nests.py        the carried value, elements and collective of a scan

Sharing of loops, and tests
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
    is unswitched, so that whole vectors test once. schedule/analysis/alignment.py decides: rows of a
    few hundred elements are not peeled but read by element, or, where outputs and large inputs are one run of memory,
    as that run, beside which a bias is read by element (divide_once.py). Long rows lie in shared memory in such vectors
    (schedule/schedulers/inner_persistent.py): what has the phase of the output is copied asynchronously, anything else is
    shifted in registers on its way.
"""
