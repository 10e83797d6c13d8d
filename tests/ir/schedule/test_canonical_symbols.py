"""Which extents are one, and kernels that rest on it."""

from __future__ import annotations

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.facts import ExtentDivisible, ExtentIs, ExtentWithin
from fuser.ir.integers.integers import Symbol, const
from fuser.ir.schedule.canonical_symbols import canonical_symbols
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.schedule.segmentation.segmentation import segment_fusion


def gathered_in_place(*, with_sum: bool = False) -> FusionDefinition:
    """y := gather(y, index, 0), where nothing but the update says that both have equal sizes."""
    with FusionDefinition() as fd:
        y = fd.define_tensor([-1, 3, -1], True, DataType.Half)
        index = fd.define_tensor([-1, 3, -1], True, DataType.Int32)
        out = fd.ops.gather(y, index, 0)
        if with_sum:
            fd.add_output(fd.ops.sum(out, [0, 1, 2], dtype=DataType.Float))
        fd.add_output(out, y)
    return fd


def test_extents_of_an_output_are_those_of_the_input_that_it_updates() -> None:
    fd = gathered_in_place()
    assert fd.fusion is not None
    scheduled = ScheduleBuilder(fd.fusion.ir_fusion)
    y, index = scheduled.fusion.input_tensors
    divisible = frozenset({ExtentDivisible(y.name, 2, 8), ExtentIs(index.name, 0, 5)})
    symbols = canonical_symbols(scheduled, divisible)
    assert [d.extent.substitute(symbols) for d in (y.visible[0], index.visible[0])] == [const(5)] * 2
    last = [d.extent.substitute(symbols) for d in (y.visible[2], index.visible[2])]
    assert last[0] is last[1]
    assert last[0].multiple == 8


def test_bounds_of_an_extent_are_those_of_dims_that_are_the_same() -> None:
    """Of a segment that reads what another one made: one of the extents is computed, and loops run over the other."""
    with FusionDefinition() as fd:
        x, own = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        fd.add_output(fd.ops.segment_set(fd.ops.pad(x, [1, 1])) + own)
    assert fd.fusion is not None
    scheduled = ScheduleBuilder(segment_fusion(fd.fusion.ir_fusion).segments[-1].fusion)
    extents = {t.visible[0].extent for t in scheduled.fusion.input_tensors}
    (m,) = (e for e in extents if isinstance(e, Symbol))
    (computed,) = extents - {m}
    (n,) = computed.symbols
    for t in scheduled.fusion.input_tensors:
        symbols = canonical_symbols(scheduled, frozenset({ExtentWithin(t.name, 0, 1, 9)}))
        assert (symbols[m].lo, symbols[m].hi) == (1, 9)
        # A size is never negative, whatever the bounds say.
        assert (symbols[n].lo, symbols[n].hi) == (0, 7)


@pytest.mark.parametrize("shape", [(3, 3, 13), (255, 3, 13), (4, 3, 16)])
def test_vectors_across_rows_of_an_update(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of all dims that the sum goes over is one run of the input that is written to."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rng = np.random.default_rng(0)
    y = rng.integers(-4, 5, shape).astype(np.float16)
    index = rng.integers(0, shape[0], shape).astype(np.int32)
    expected = np.take_along_axis(y, index, 0)
    (total,) = gathered_in_place(with_sum=True).execute([y, index])
    np.testing.assert_array_equal(total, expected.sum(dtype=np.float64))
    np.testing.assert_array_equal(y, expected)
