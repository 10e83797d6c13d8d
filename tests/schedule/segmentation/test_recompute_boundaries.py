"""What is stored between kernels: nothing that its readers compute as well of fewer bytes."""

from __future__ import annotations

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion, Tensor, tensor_inputs, tensor_outputs
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.segmentation.greedy_segments import depth_first
from fuser.schedule.segmentation.partition_fusion import RECOMPUTABLE, exprs_for, extract_part, ranks
from fuser.schedule.segmentation.recompute_boundaries import recompute_boundaries
from fuser.schedule.segmentation.segment import Segment, accepted_segment, segment_of
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.fuzzing.random_fusions import generate
from tests.schedule.segments import check_cut

BFloat16, Float = DataType.BFloat16, DataType.Float


def optimized(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)


def stored(fusion: Fusion, segments: list[Segment]) -> list[list[str]]:
    """What each kernel stores for others."""
    shown = set(fusion.output_tensors)
    return [[t.name for t in s.fusion.output_tensors if t not in shown] for s in segments]


def each_apart(fusion: Fusion) -> list[Segment]:
    """A segment for each expr: as much is stored as can be."""
    return [segment_of(fusion, [e], ()) for e in depth_first(fusion)]


def two_reductions(casts: int) -> Fusion:
    """Sums of rows and of columns of a value that is cast up, of so many tensors."""
    with FusionDefinition() as fd:
        o = fd.ops
        given = [o.cast(fd.define_tensor([-1, -1], True, BFloat16), Float) for _ in range(casts)]
        total = given[0]
        for t in given[1:]:
            total = o.mul(total, t)
        fd.add_output(o.sum(total, [0]))
        fd.add_output(o.sum(o.exp(total), [1]))
    return optimized(fd)


@pytest.mark.parametrize("casts", [1, 2, 3])
def test_casts_are_not_stored(casts: int) -> None:
    """Three 16-bit tensors are fewer bytes than a Float that is stored once and read twice."""
    fusion = two_reductions(casts)
    found = recompute_boundaries(fusion, each_apart(fusion), ())
    assert stored(fusion, found) == [[], []]
    assert all(s.fusion.input_tensors == fusion.input_tensors for s in found)


def test_what_takes_more_bytes_than_it_has_stays() -> None:
    with FusionDefinition() as fd:
        o = fd.ops
        given = [fd.define_tensor([-1, -1], True, Float) for _ in range(6)]
        total = given[0]
        for t in given[1:]:
            total = o.mul(total, t)
        fd.add_output(o.sum(total, [0]))
        fd.add_output(o.sum(o.exp(total), [1]))
    fusion = optimized(fd)
    makers = [e for e in fusion.tensor_exprs if type(e).__name__ == "Pointwise"]
    shared = makers[-2] if getattr(makers[-1], "op", "") == "exp" else makers[-1]
    (value,) = tensor_outputs(shared)
    below = exprs_for(fusion, (value,), ())
    rest = [e for e in depth_first(fusion) if e not in below]
    segments = [segment_of(fusion, below, ()), *(segment_of(fusion, [e], ()) for e in rest)]
    found = recompute_boundaries(fusion, segments, ())
    assert stored(fusion, found)[0] == [value.name]


def test_marked_boundaries_and_updated_inputs_stay() -> None:
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, -1], True, BFloat16)
        fd.add_output(o.sum(o.segment_set(o.cast(x, Float)), [0]))
    fusion = optimized(fd)
    segments = [s for s in segment_fusion(fusion).segments if s.has_kernel]
    assert len(segments) == 2
    assert recompute_boundaries(fusion, segments, ()) == segments
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([-1, -1], True, Float)
        y = o.exp(x)
        fd.add_output(o.sum(y, [0]))
        fd.add_output(o.neg(x), alias_input=x)
    fusion = optimized(fd)
    apart = each_apart(fusion)
    assert recompute_boundaries(fusion, apart, ()) == apart


def narrower(fusion: Fusion, segments: list[Segment]) -> list[str]:
    """What is stored though its readers would take no more bytes without it, and schedulers would take them."""
    rank, known = ranks(fusion), {t.name: t for t in ranks(fusion)}
    shown = set(fusion.output_tensors)
    found: list[str] = []

    def inputs(s: Segment) -> set[Tensor]:
        return {known[t.name] for t in s.fusion.input_tensors}

    def nbytes(tensors: set[Tensor], t: Tensor) -> int:
        return sum(s.dtype.itemsize for s in tensors if rank[s] >= rank[t])

    for k, segment in enumerate(segments):
        for t in segment.fusion.output_tensors:
            below = exprs_for(fusion, (t,), inputs(segment))
            if t in shown or not all(isinstance(e, RECOMPUTABLE) for e in below):
                continue
            if any(getattr(e, "op", "") == "segment_set" for e in below):
                continue
            leaves = {s for e in below for s in tensor_inputs(e)} - {s for e in below for s in tensor_outputs(e)}
            readers = [s for s in segments[k + 1 :] if t in inputs(s)]
            if any(o.alias_of in leaves for o in fusion.outputs):
                continue
            again = sum(nbytes(leaves - inputs(s), t) for s in readers)
            if again >= (1 + len(readers)) * t.dtype.itemsize:
                continue
            others = [o for o in segment.fusion.output_tensors if o is not t]
            parts = [extract_part(fusion, s.fusion.output_tensors, inputs(s) | leaves - {t}) for s in readers]
            if others:
                parts.append(extract_part(fusion, others, inputs(segment)))
            if all(accepted_segment(part, extents) is not None for part, extents in parts):
                found.append(t.name)
    return found


def test_no_boundary_is_wider_than_what_it_is_computed_of() -> None:
    """Of random programs."""
    for seed in range(120, 210):
        handle = generate(seed).fd.fusion
        assert handle is not None
        fusion = optimize_fusion(handle.ir_fusion, lambda name, text: None)
        check_cut(fusion)
        kernels = [s for s in segment_fusion(fusion).segments if s.has_kernel]
        names = {t.name for t in ranks(fusion)}
        if all(t.name in names for s in kernels for t in (*s.fusion.input_tensors, *s.fusion.output_tensors)):
            assert not narrower(fusion, kernels), seed
