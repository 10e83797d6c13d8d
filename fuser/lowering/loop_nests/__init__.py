"""From a schedule to statements: loops, indices, predicates, storage and partial results. The first pass.

Imports of lowering/: combiners/, memory/ (asynchronous copies), predicates/ (prefixes of tests), context.py,
name_counter.py.

`NestBuilder` is a chain of classes, one per file, each derived from the one below it:

    build_loop_nests.py  the pass; exprs in order, and the loops that they share
    nest_statements.py   the statement of an expr: stored, folded into a scan, added to the partials of a reduction
    nest_vectors.py      vector accesses (their width is checked here), and displaced reads
    nest_storage.py      registers and buffers of intermediates and of partial results
    nest_welford.py      a thread's sums for statistics (Welford), and when means and squares are computed from them
    nest_values.py       the value of an expr at the current loops, and its reads
    nest_predicates.py   the offset of an element, and the tests around a statement
    nest_state.py        base class: storage and partial results so far

What they use:

    indexing.py          the index of a group of iteration domains, found in the graph from the current loops
    displaced_reads.py   where a slice, pad or gather reads its operand
    divide_once.py       one division for all elements of a thread, if they are in at most two rows
    scan_nests.py        the carried value, elements and collective of a scan

Sharing of loops, and tests
    Tensors that are inlined together share loops. A broadcast axis inlined into a concrete one is promoted to it
    (ir/schedule/inlining.py, docs/decisions/0002-hash-consed-iteration-graph.md). A thread runs past an extent only through a
    split that does not divide or a padded block. Each such edge gives a test, and tests that ranges prove are dropped.
    A thread outside an extent still takes part in every barrier and shuffle.

Misaligned rows
    A vector access needs an address that is a multiple of its size. In rows of odd length, or with a base that is off by
    an element, no vector width has that property. If the schedule allows it (`allow_misaligned`), a load from any address
    takes three accesses of half the width and funnel shifts. Stores must be aligned: `split_aligned` splits a row into
    vectors that begin at aligned addresses of an output (or of the largest input, if nothing is written along a row).
    Vector i of row r has the elements [i*v - a, i*v - a + v) with a = (r * pitch) mod v, and every tensor of that pitch
    is aligned in the same way. If the base of an input may be misaligned, the kernel computes by how much from its
    address (`LetPhase`). Partial vectors at the ends of a row are stored element by element. An aligned input is read
    there with one full-width access (`VectorMove.cut`): the rest of these 16 bytes is mapped memory as well, and nothing
    uses it. The loop over the elements of a vector is unswitched, so that full vectors test once.
    schedule/analysis/alignment.py decides: rows of a few hundred elements are not peeled but read by element, or, if
    outputs and large inputs are contiguous over all rows, as one contiguous range, with a bias read by element
    (divide_once.py). Long rows are stored in shared memory in such vectors (schedule/schedulers/inner_persistent.py):
    inputs with the misalignment of the output are copied by cp.async, others go through registers with funnel shifts.
"""
