"""The benchmark's cases: their definitions compute what their float64 references say, on the simulator; their byte counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.case import Case, NumpyWide, define_fusion, exact_running_sums, with_layout
from benchmarks.cases import public_cases, select_cases, tiny_cases
from benchmarks.inputs import Fill, Input, numpy_inputs
from benchmarks.pointwise_cases import dropout_residual
from benchmarks.recorded_peers import RecordedPeers
from benchmarks.sweep_cases import ROW_FAMILIES
from fuser.ir.ops.dtypes import DataType
from tests.benchmarks.float64_error import largest_error
from tests.benchmarks.public_programs import as_parameters
from tests.judging.accuracy import dtype_of


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


def tiny_sweep() -> list[Case]:
    """The families of the sweep in all their dtypes, on dense, padded, misaligned and sliced inputs in turn."""
    layouts = ({}, {"pad": 8}, {"offset": 1}, {"pad": 7, "offset": 3})
    families = [(make, dtype) for make, dtypes in ROW_FAMILIES.values() for dtype in dtypes]
    # Dropout needs enough elements for its rate.
    return [
        with_layout(make(5, 34, dtype), **layouts[k % len(layouts)], suffix=f"_layout{k % len(layouts)}")
        for k, (make, dtype) in enumerate(families)
        if make is not dropout_residual
    ]


@pytest.mark.parametrize("case", as_parameters([*tiny_cases(), *tiny_sweep()]))
def test_definition_computes_the_reference(case: Case) -> None:
    inputs = numpy_inputs(case.inputs, seed=1)
    outputs = define_fusion(case).execute(inputs)
    if case.check is not None:
        assert_dropped(inputs, outputs[0])
        return
    references = case.reference(NumpyWide(), *inputs)
    assert len(outputs) == len(references)
    for output, reference in zip(outputs, references, strict=True):
        assert tuple(output.shape) == tuple(reference.shape)
        # Two roundings to 16 bits may each be a half ulp off; wide results what cancels in two sums.
        limit = 2.0 if output.dtype.itemsize == 2 else 32.0
        assert largest_error(output, reference) <= limit
        assert largest_error(np.zeros_like(output), reference) > 2 * limit


def test_running_sums_that_judge_float64_are_exact() -> None:
    generator = np.random.default_rng(0)
    for x in (1 + 0.5 * generator.standard_normal((2, 50003)), generator.standard_normal((3, 700)), np.zeros((2, 3))):
        exact = np.cumsum(x.astype(np.longdouble), 1)
        error = np.abs(exact_running_sums(NumpyWide(), x) - exact)
        assert np.all(error <= 1.1 * np.spacing(np.abs(exact).astype(np.float64)))


def assert_dropped(inputs: list[Any], output: Any) -> None:
    """Every element is the residual or the sum; about a tenth is dropped."""
    x, residual = inputs
    narrow = x.dtype
    scaled = (x.astype(np.float32) * np.float32(1 / 0.9)).astype(narrow).astype(np.float32)
    kept = (scaled + residual.astype(np.float32)).astype(narrow)
    assert ((output == kept) | (output == residual)).all()
    told = kept != residual
    assert 0.05 < (output == residual)[told].mean() < 0.15


def test_no_input_is_the_same_everywhere() -> None:
    for case in tiny_cases():
        for array in numpy_inputs(case.inputs, seed=3):
            assert np.unique(array).size > 1


def test_public_cases_are_those_of_the_recorded_figures() -> None:
    assert [c.name for c in public_cases()] == list(RecordedPeers.load().cases)


# Least bytes of a few cases, counted by hand.
@pytest.mark.parametrize(
    ("name", "nbytes"),
    [
        ("bias_gelu_tanh_bf16_16384x8192", 2 * 16384 * 8192 * 2 + 8192 * 2),
        ("mul_add_silu_3in_bf16", 3 * 16384 * 8192 * 2 + 8192 * 2),
        ("add_relu_f32_8192x8192", 3 * 8192 * 8192 * 4),
        ("layernorm_bwd_bf16_16384x4096", 3 * 16384 * 4096 * 2 + 3 * 4096 * 2 + 2 * 16384 * 4),
        ("sum_all_f32_8192x8192", 8192 * 8192 * 4 + 4),
        ("embedding_scale_bf16", 2 * 16384 * 4096 * 2 + 16384 * 8),
        ("swiglu_bf16_16384x11008", 3 * 16384 * 11008 * 2),
        ("cross_entropy_bf16_8192x32000", 8192 * 32000 * 2 + 8192 * 8 + 4),
        ("var_mean_outer_bf16_65536x1024", 65536 * 1024 * 2 + 2 * 1024 * 4),
    ],
)
def test_least_bytes(name: str, nbytes: int) -> None:
    (case,) = select_cases([name])
    assert case.nbytes == nbytes


def test_selecting_an_unknown_case_lists_the_known() -> None:
    with pytest.raises(ValueError, match="no case has 'softmin' in its name; there are: bias_gelu_tanh"):
        select_cases(["softmin"])


@pytest.mark.parametrize(
    "given",
    [
        Input((3, 5)),
        Input((2, 3, 4, 5), order=(0, 2, 3, 1)),
        Input((3, 5), DataType.Float, pad=3),
        Input((3, 5), DataType.Half, pad=1, offset=1),
        Input((4,), DataType.Int, Fill.INDEX, 7, offset=3),
        Input((4, 6), DataType.Double, Fill.PROBABILITY),
        Input((4, 6), DataType.Float, Fill.RISING, pad=2),
    ],
)
def test_inputs_agree_on_layout(given: Input) -> None:
    (array,) = numpy_inputs([given], seed=0)
    descriptor = given.descriptor()
    assert array.shape == given.shape == descriptor.sizes
    assert tuple(s // array.itemsize for s in array.strides) == given.strides == descriptor.strides
    assert dtype_of(array) is given.dtype is descriptor.dtype
    assert descriptor.alignment == (256 if not given.offset else given.dtype.itemsize * (given.offset & -given.offset))
    if given.fill is Fill.RISING:
        assert (np.diff(array) >= 0).all()
    if given.limit:
        assert array.min() >= 0
        assert array.max() < given.limit
