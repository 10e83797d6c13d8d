"""Copies between layouts: how few dimensions describe them, the kernel's text, the host path."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.strided_copy import (
    collapse_dims,
    copy_strided,
    is_same_dense_layout,
    strided_copy_kernel,
    strided_copy_source,
)
from fuser.runtime.kernels import nvrtc
from fuser.runtime.kernels.variants import KernelVariants
from fuser.runtime.layouts import element_span, overlaps_itself
from fuser.simulator.device import SimulatorDevice

DIMS = st.lists(
    st.tuples(
        st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24, 48]), st.sampled_from([0, 1, 2, 3, 4, 6, 12])
    ),
    max_size=4,
)


@settings(deadline=None, max_examples=300)
@given(DIMS)
def test_collapsed_dimensions_name_the_same_pairs(dims: list[tuple[int, int, int]]) -> None:
    sizes, to, at = ([dim[i] for dim in dims] for i in range(3))

    def pairs(rows: list[tuple[int, int, int]]) -> set[tuple[int, int]]:
        shape = [n for n, _, _ in rows]
        return {
            (
                sum(i * r[1] for i, r in zip(index, rows, strict=True)),
                sum(i * r[2] for i, r in zip(index, rows, strict=True)),
            )
            for index in np.ndindex(*shape)
        }

    collapsed = collapse_dims(sizes, to, at)
    assert pairs(collapsed) == pairs(dims)
    assert len(collapsed) <= len(dims)


def test_dense_dimensions_collapse_to_one() -> None:
    assert collapse_dims((2, 3, 4), (12, 4, 1), (12, 4, 1)) == [(24, 1, 1)]
    assert collapse_dims((2, 3, 4), (12, 4, 1), (24, 8, 2)) == [(24, 1, 2)]
    assert collapse_dims((2, 3, 4), (12, 4, 1), (0, 4, 1)) == [(2, 12, 0), (12, 1, 1)]
    assert collapse_dims((1, 1), (7, 9), (3, 5)) == []


@settings(deadline=None, max_examples=100)
@given(DIMS)
def test_copies_on_the_simulator(dims: list[tuple[int, int, int]]) -> None:
    sizes, to, at = ([dim[i] for dim in dims] for i in range(3))
    if overlaps_itself(sizes, to):
        return
    device = SimulatorDevice()
    flat = DeviceTensor.from_numpy(np.arange(element_span(sizes, at), dtype=np.int64), device)
    source = flat.view(sizes, at)
    target = DeviceTensor.empty(device, sizes, DataType.Int, to)
    copy_strided(device, DataType.Int, sizes, target.address, to, source.address, at, 0)
    np.testing.assert_array_equal(target.numpy(), source.numpy())
    if is_same_dense_layout(sizes, to, at):
        assert element_span(sizes, to) == int(np.prod(sizes))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_text_compiles(itemsize: int) -> None:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    kernel = strided_copy_kernel(itemsize, 3, "sm_90a")
    binary = KernelVariants().binary_for(kernel, 256)
    assert binary.resources is not None
    assert binary.resources.spill_bytes == 0
    assert len(kernel.parameters) == 12


def test_text(golden) -> None:
    golden.check(strided_copy_source(4, 2), ".cu")
