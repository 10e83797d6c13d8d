"""Every fusion of the corpus on a GPU: small and large sizes, and the same bits as the simulator without contraction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.runtime.devices.device import Device, get_device
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place_all
from tests.end_to_end.corpus_runs import check, sizes_of
from tests.fusions.fusion_corpus import CORPUS, LARGE, SIZES, case

HUGE = {"A": 8, "B": 32, "R": 1000, "C": 4104, "H": 56, "W": 56}
"""Enough for every SM, with rows that are no power of two."""


TOO_LARGE = ("five_dimensions", "product_of_rows")
"""Too many elements, and products that leave the range of Float."""


@pytest.fixture(scope="module")
def device() -> Device:
    return get_device("cuda", 0)


@pytest.mark.parametrize("name", [c.name for c in CORPUS])
def test_all_sizes(name: str, device: Device) -> None:
    for size in sizes_of(case(name)):
        check(case(name), SIZES[size], device)
    check(case(name), LARGE, device)


@pytest.mark.parametrize("name", [c.name for c in CORPUS if c.name not in TOO_LARGE])
def test_huge(name: str, device: Device) -> None:
    check(case(name), HUGE, device, runs=1)


# What the two compute in the same order with the same roundings: no libm, no approximation, so no quotient either.
EXACT = [
    "add_two",
    "polynomial_in_double",
    "scale_and_shift",
    "masked_fill",
    "static_reduction",
    "inner_sum",
    "outer_sum",
    "full_sum",
    "middle_sum",
    "outer_and_inner_sum",
    "half_column_sum",
    "maximum_and_minimum",
    "squared_error",
    "weighted_sum",
    "welford_triple",
    "bit_operations",
    "integer_row_sums",
    "count_of_true",
    "complex_sum",
    "momentum_step",
    "swap",
    "sums_both_ways",
    "scaled_by_column_sum",
    "add_positions",
    "computed_extent",
]


@pytest.mark.parametrize("name", EXACT)
def test_equal_to_the_simulator(name: str, device: Device) -> None:
    """Bit for bit, contraction off."""
    simulator = SimulatorDevice(info=device.info)  # the same plans
    for size in ("aligned", "ragged"):
        made: list[list[np.ndarray[Any, Any]]] = []
        for where in (device, simulator):
            fusion = case(name).define().fusion
            assert fusion is not None
            cache = FusionExecutorCache(fusion)
            placed = place_all(where, case(name).inputs(SIZES[size], 5))
            results = cache.execute(
                placed, device=None if fusion.ir_fusion.input_tensors else where.kind, _disable_options=["fma"]
            )
            updated = [fusion.ir_fusion.inputs.index(o.alias_of) for o in fusion.ir_fusion.outputs if o.alias_of]
            # Without tensor inputs results are torch's where torch is loaded already.
            made.append(
                [np.asarray(r.cpu() if hasattr(r, "cpu") else r) for r in (*results, *(placed[p] for p in updated))]
            )
        for on_gpu, simulated in zip(*made, strict=True):
            assert on_gpu.dtype == simulated.dtype
            assert on_gpu.tobytes() == simulated.tobytes(), f"{name} at {size} sizes: {on_gpu} {simulated}"
