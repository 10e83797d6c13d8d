"""Displaced reads (slices, pads, rolls, lookups) moved to inputs, for the passes that choose which to move.

A displaced read of a computed tensor needs elements that other threads compute; one of an input does not. Elementwise ops,
views and concatenations commute with it: what they compute is computed again, only where it is needed. A slice of a lookup
looks up a slice, at a part of the index; a pad of whole rows that are looked up is a Gather with a fill.

    move_reads.py            the fusion with the reads moved: each read that moves, and outputs as they were
    framed_tensors.py        a tensor at other indices, as ops of displaced reads of inputs
    lookups.py               a lookup in what is computed, or in a part of an input, as lookups in inputs
    ops_in_frames.py         an op at other indices: those of its operands, case by case
    composed_reads.py        a displaced read of a displaced read as one
    rows_read_elsewhere.py   reductions that are worth computing again where a normalised row is read
    frame.py                 which elements of a tensor are wanted, and where they are found
"""
