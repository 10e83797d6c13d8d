"""Outputs that share only cheap values: which lots there are, and the kernels of gradients whose rows no block holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, SchedulerType
from fuser.ir.fusion.fusion import Fusion, tensor_outputs
from fuser.schedule.analysis.independent_outputs import independent_outputs
from fuser.schedule.segmentation.segment import SizeRefusal
from fuser.schedule.segmentation.segmentation import segment_fusion

Float, Half, Double = DataType.Float, DataType.Half, DataType.Double


def fusion_of(define: Callable[[FusionDefinition], None]) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def gradients(fd: FusionDefinition, dtype: DataType = Half) -> None:
    """The gradients of an RMS norm whose reciprocal roots are given: of x, which needs sums of rows, of w and of a bias."""
    wide = Double if dtype is Double else Float
    dy, x = (fd.ops.cast(fd.define_tensor([-1, -1], True, dtype), wide) for _ in range(2))
    r = fd.define_tensor([-1, 1], True, wide)
    hat = x * r
    fd.add_output(fd.ops.cast((dy - hat * fd.ops.sum(hat * dy, 1, keepdim=True)) * r, dtype))
    fd.add_output(fd.ops.sum(dy * hat, 0))
    fd.add_output(fd.ops.sum(dy, 0))


def lots(fusion: Fusion) -> list[set[str]]:
    """Names of the outputs of each lot."""
    wanted = {t.name for t in fusion.output_tensors}
    return [{t.name for e in lot for t in tensor_outputs(e)} & wanted for lot in independent_outputs(fusion)]


def test_gradients_are_two_lots() -> None:
    fusion = fusion_of(gradients)
    dx, dw, db = (t.name for t in fusion.output_tensors)
    assert lots(fusion) == [{dx}, {dw, db}]
    names = frozenset(t.name for e in fusion.tensor_exprs for t in tensor_outputs(e))
    assert len(segment_fusion(fusion).segments) == 1, "one kernel, where its sizes fit"
    refused = [SizeRefusal(SchedulerType.inner_outer_persistent, names)]
    segmented = segment_fusion(fusion, refused)
    assert [s.scheduler.type for s in segmented.segments] == [SchedulerType.inner_persistent, SchedulerType.reduction]
    assert [{t.name for t in s.fusion.output_tensors} for s in segmented.segments] == [{dx}, {dw, db}]
    for s in segmented.segments:
        assert set(s.fusion.input_tensors) <= set(fusion.input_tensors), "nothing is stored between the two"


def two_sums(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.sum(x, 0))
    fd.add_output(fd.ops.sum(x, 1))


def sum_of_normalised(fd: FusionDefinition) -> None:
    """Both need the sum of rows."""
    x = fd.define_tensor([-1, -1], True, Float)
    y = x / fd.ops.sum(x, 1, keepdim=True)
    fd.add_output(y)
    fd.add_output(fd.ops.sum(y, 0))


def sums_of_much(fd: FusionDefinition) -> None:
    """Four tensors are read for each value that both lots need."""
    x = fd.ops.cast(fd.define_tensor([-1, -1], True, Half), Float)
    for _ in range(4):
        x = x * fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.sum(x, 0))
    fd.add_output(fd.ops.sum(x, 1))


def one_kind(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1, -1], True, Float)
    fd.add_output(fd.ops.sum(x, 0))
    fd.add_output(fd.ops.max(x, 0))


def sum_of_an_output(fd: FusionDefinition) -> None:
    """Both would make what both need: it is an output itself."""
    x = fd.define_tensor([-1, -1], True, Float) + 1
    fd.add_output(x)
    fd.add_output(fd.ops.sum(x, 0))


def returned_input(fd: FusionDefinition) -> None:
    """No expr computes what is an input: a subset of none would be a kernel of nothing."""
    x = fd.define_tensor([-1, -1], True, Float)
    fd.add_output(x)
    fd.add_output(fd.ops.sum(x, 0))


def returned_input_and_two_sums(fd: FusionDefinition) -> None:
    fd.add_output(fd.define_tensor([-1, -1], True, Float))
    two_sums(fd)


KINDS = [
    (two_sums, 2),
    (sum_of_normalised, 0),
    (sums_of_much, 0),
    (one_kind, 0),
    (sum_of_an_output, 0),
    (returned_input, 0),
    (returned_input_and_two_sums, 2),
]


@pytest.mark.parametrize(("define", "count"), KINDS)
def test_lots(define: Callable[[FusionDefinition], None], count: int) -> None:
    fusion = fusion_of(define)
    assert len(lots(fusion)) == count
    kernels = [s for s in segment_fusion(fusion).segments if s.has_kernel]
    assert all(s.fusion.tensor_exprs for s in kernels)


def test_rows_that_no_block_holds_take_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    rng = np.random.default_rng(0)
    rows, columns = 60, 6001
    dy, x = (rng.normal(size=(rows, columns)) for _ in range(2))
    r = 1 / np.sqrt((x * x).mean(1, keepdims=True))
    with FusionDefinition() as fd:
        gradients(fd, Double)
    dx, dw, db = (np.asarray(t) for t in fd.execute([dy, x, r]))
    hat = x * r
    np.testing.assert_allclose(dx, (dy - hat * (hat * dy).sum(1, keepdims=True)) * r, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(dw, (dy * hat).sum(0), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(db, dy.sum(0), rtol=1e-12, atol=1e-13)
    text = str(fd.explain([dy, x, r], file=False))
    assert "s1.kernel.cu" in text
    assert "s2.kernel.cu" not in text
