"""How elements lie in memory, against enumeration of every index."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.runtime.layouts import element_span, has_gaps, overlaps_itself


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=4))
def test_overlaps_itself_by_enumeration(dims: list[tuple[int, int]]) -> None:
    sizes = [n for n, _ in dims]
    strides = [s for _, s in dims]
    offsets = [sum(i * s for i, s in zip(index, strides, strict=True)) for index in np.ndindex(*sizes)]
    assert overlaps_itself(sizes, strides) == (len(set(offsets)) < len(offsets))
    span = element_span(sizes, strides)
    assert span == (max(offsets) + 1 if offsets else 0)
    if offsets:
        assert has_gaps(sizes, strides) == (set(offsets) != set(range(span)))
