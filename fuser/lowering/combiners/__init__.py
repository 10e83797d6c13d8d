"""The arithmetic of reductions: what a thread has of a result, how an element is added to it, and how two are joined.

Statements over buffers, wherever the parts lie: loops add elements, collectives join what lanes, warps and blocks have.
Imports of lowering/: parallel_axes.py.

    join_partials.py    joining by one thread, for every kind below
    compensated_sum.py  sums as pairs: the total, and what rounding lost of it
    exp_sum.py          the largest value, and the sum of exponentials below it
    welford.py          mean and sum of squared differences
    exact_welford.py    the same with an error term of the mean
    wide_welford.py     statistics of Floats in Double
    moments.py          statistics of 16-bit numbers: plain sums of values and of squares
    shifted_sums.py     statistics of Floats joined as sums, each thread with a shift of its own
    common_shift.py     one shift for all threads of a result
    exact_sums.py       statistics of Doubles joined as sums

Accuracy
    Of what shows in an output to more than 16 bits (ir/wide_results.py), sums of Float and Double are pairs, the total
    and what rounding lost of it (compensated_sum.py); statistics of Floats are added up in Double (wide_welford.py),
    those of Doubles with error terms, and means have an error term (exact_welford.py), so that a mean far from zero
    costs no digits. Between the last statistics of a row and its results, sums, products, quotients and roots carry an
    error term (loop_nests/carried_rests.py, docs/decisions/0012-carried-rests.md). Statistics that are not combined with
    their values again are joined as sums and divided once (moments.py for 16-bit numbers, shifted_sums.py for Floats),
    by one shift for all threads of a result where an input can give it (common_shift.py); those of Doubles only there
    (exact_sums.py).
"""
