"""Properties of a segment and of the memory of its arguments, on which schedulers base their decisions.

Imports of schedule/: scheduler.py and params.py alone.

    reference.py            the reference tensor, whose dims cover those of all others; order and fastest of its dims
    input_reads.py          how a segment reads its inputs: at the indices of its loops, or displaced
    windows.py              restrictions of loops by the windows of slices, pads and concatenations
    reduced_dims.py         the dims that the reductions of a segment reduce, and whether one loop nest serves them all
    reduced_space.py        the iteration space of the reductions of a segment at some sizes
    data_passes.py          passes over the full-size data, and the values that are kept on chip between them
    inner_outer.py          which reductions are statistics of rows, and which are sums of columns
    independent_outputs.py  groups of outputs that have only cheap values in common
    layout.py               strides of arguments along the loops' dims, contiguous dims, vector widths
    alignment.py            vector accesses along rows whose first addresses are not aligned
    rows.py                 the rows of a segment whose fastest dim is reduced: extent, accesses, bounds
    inner_tile.py           innermost dims of small, constant extent: interleaved, stacked, packed and repeated values
    tile_accesses.py        vector accesses of a thread that processes several inner tiles

How the vector width of a load is chosen
    1.  The limit, in elements. No access has more than 16 bytes.
            pointwise                         `PointwiseSpace.most_elements`: 16 bytes of the narrowest argument, but at most
                                              THREAD_BYTES of the widest, which then takes several accesses
            transpose                         16 bytes of the narrowest staged argument, and of the others
            thread_reduction                  16 bytes of the narrowest inner tile, within MAX_LOADED_BYTES of a thread
            rows, scans                       `vector_limit` in reference.py: 16 bytes of the widest argument with the
                                              fastest dim
            reductions, inner_outer           16 bytes of the widest full-size argument, and fewer where accumulators take the
                                              registers (cost/reduction_space.py, cost/inner_outer_space.py)
    2.  The scheduler calls one of these functions with it. Each takes the largest power of two for which stride, alignment of
        the address, other strides and extent are multiples:
            pointwise, transpose              `AccessWidths` in layout.py, a width for each argument
            inner tiles, thread_reduction     `tile_accesses` in tile_accesses.py
            reductions, rows, scans of rows   `choose_accesses` in alignment.py: `choose_vector`, and for rows whose first
                                              addresses are not aligned, peeled or unaligned accesses
            inner_outer, scans of columns     `choose_vector` in alignment.py: the most that `AccessWidths` allows an input
        A displaced read (slice, pad, concatenation) also needs a window whose ends are multiples: `read_width` in
        input_reads.py.
    3.  The cost model may choose fewer elements (schedule/cost/). The result is in the params: `vector`,
        `vectorized`, `vector_widths`, `access`.
    4.  schedule/transforms/vectorize.py gives the argument's copy an axis of that extent and the parallel type `vectorize`.
        ir/fact_collection.py turns it into facts: divisible extents and strides, an aligned address.
    5.  lowering/loop_nests/nest_vectors.py proves from the facts that an access is contiguous, aligned and inside, or raises
        SchedulingError. runtime/kernels/plan_evaluation.py checks the facts when a launch is bound. For a user's own schedule
        `check_vector_access` (compiler/kernel_executor.py) checks inputs before it is lowered.
"""
