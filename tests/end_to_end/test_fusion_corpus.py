"""Every fusion of the corpus on the simulator, at aligned, ragged, one-element and empty sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from tests.devices.small_simulator import small_simulator
from tests.end_to_end.corpus_runs import check, sizes_of
from tests.fusions.fusion_corpus import CORPUS, LARGE, SIZES, assert_close, case, expected

NAMES = [c.name for c in CORPUS]


@pytest.mark.parametrize(("name", "size"), [(c.name, n) for c in CORPUS for n in sizes_of(c)])
def test_on_the_simulator(name: str, size: str) -> None:
    check(case(name), SIZES[size], small_simulator())


@pytest.mark.parametrize(
    "name", ["bias_gelu", "layer_norm", "outer_sum", "full_sum", "layer_norm_backward", "channels_last"]
)
def test_larger_than_a_wave(name: str) -> None:
    check(case(name), LARGE, small_simulator(), runs=1)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_arrays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host arrays give host arrays, and updates reach the caller's."""
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    fusion_case = case(name)
    fd = fusion_case.define()
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    plain: list[Any] = fusion_case.inputs(SIZES["ragged"])
    want = expected(fusion, [v.copy() if isinstance(v, np.ndarray) else v for v in plain])
    results = fd.execute(plain)
    for out, ref, n in zip(results, want.outputs, want.folded, strict=True):
        assert not fusion.input_tensors or isinstance(out, np.ndarray)
        assert_close(out, ref, n, name)
    for position, ref in want.updates.items():
        assert_close(plain[position], ref, want.folded_updates[position], name)


def rebuilt(text: str) -> FusionDefinition:
    """The definition that a printed one makes."""
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(text, space)
    with FusionDefinition() as fd:
        space["nvfuser_fusion"](fd)
    return fd


def test_printed_definitions_rebuild_themselves() -> None:
    """From the second round on the text is a fixed point: the first drops what no output needs."""
    for c in CORPUS:
        second = rebuilt(repr(c.define()))
        assert rebuilt(repr(second)).fusion == second.fusion, c.name


def test_families() -> None:
    assert len(CORPUS) >= 60
    assert len(set(NAMES)) == len(NAMES)
    assert {c.family for c in CORPUS} >= {
        "pointwise",
        "broadcast",
        "layout",
        "view",
        "in place",
        "reduction",
        "welford",
    }
