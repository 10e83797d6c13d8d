"""What the structure of a segment and the memory of its arguments say, before anything is decided.

Imports of schedule/: scheduler.py and params.py alone.

    reference.py            the tensor whose dims cover all others', on which the loops are decided
    input_reads.py                how a segment reads its inputs: at the indices of its loops, or displaced
    windows.py              what the windows of slices, pads and concatenations say about loops
    reduced_dims.py         what the reductions of a segment reduce, and whether one set of loops serves them all
    stages.py               passes over the full-size data, and what is kept between them
    inner_outer.py          which reductions are statistics of rows, and which sums of columns
    independent_outputs.py  outputs that share nothing but cheap values
    layout.py               strides along the loops' dims, dims that are one run of memory, widths of accesses
    alignment.py            how wide accesses may be along rows whose starts are not aligned
    rows.py                 the rows of a segment whose fastest dim is reduced: extent, accesses, bounds
    inner_tile.py                innermost dims of few elements: interleaved, stacked, packed and repeated values
    tile_accesses.py        how what a thread takes of them lies in each argument
"""
