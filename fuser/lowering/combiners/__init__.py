"""The arithmetic of reductions: the partial result of a thread, how an element is added to it, and how two are combined.

Statements over buffers in any memory: loops add elements, collectives combine the partial results of lanes, warps and blocks.
Imports of lowering/: parallel_axes.py.

    combine_partials.py      combining partial results in one thread, for every kind below
    exp_sum.py               the largest value, and the sum of exponentials below it
    welford_combine_many.py  mean and sum of squared differences of many partial results at once
    shifted_sums.py          ... of the values of one thread, from sums of differences
    welford.py               ... of one partial result after another
    combiner_values.py       builders of values and loops that all of them use

Accuracy
    An error is at most twice that of torch eager on the same input, or two ulps
    (docs/decisions/0021-accuracy-that-is-wanted.md). Sums are in the accumulation type: Float for Floats and what is
    narrower, Double for Double. Statistics are triples (mean, sum of squared differences, count); a thread adds up
    differences from its first value.
"""
