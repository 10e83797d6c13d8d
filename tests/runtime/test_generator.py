"""The generators that executions draw from: the project's own, and torch's through a stand-in for torch."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

import fuser
from fuser.runtime import generator
from fuser.runtime.array_view import ArrayView
from fuser.runtime.devices.device import Device, get_device
from fuser.runtime.generator import draw_state, last_draw


@pytest.fixture(autouse=True)
def fresh() -> None:
    fuser.manual_seed(0)


def simulator() -> Device:
    return get_device("simulator", 0)


def test_offsets_count_calls_of_random_ops() -> None:
    fuser.manual_seed(42)
    assert [draw_state(None, simulator(), n) for n in (1, 3, 1)] == [(42, 0), (42, 1), (42, 4)]
    fuser.manual_seed(42)
    assert draw_state(None, simulator(), 1) == (42, 0)
    assert last_draw() == (42, 0)


def test_seeds_of_64_bits() -> None:
    for seed, signed in ((2**64 - 1, -1), (2**63, -(2**63)), (-5, -5), (2**63 - 1, 2**63 - 1)):
        fuser.manual_seed(seed)
        assert draw_state(None, simulator(), 1) == (signed, 0)
    for wrong in (2**64, -(2**63) - 1, 1.0, True, "1", None):
        with pytest.raises(TypeError, match="manual_seed takes an integer of 64 bits"):
            fuser.manual_seed(cast("Any", wrong))


def test_threads_draw_apart() -> None:
    """No two executions get one state, and each thread sees its own last one."""
    found: list[tuple[int, int]] = []

    def work() -> None:
        for _ in range(200):
            state = draw_state(None, simulator(), 2)
            assert last_draw() == state
            found.append(state)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(offset for _, offset in found) == list(range(0, 1600, 2))


# --- torch ------------------------------------------------------------------------------------------------------------


class TorchGenerator:
    """What is used of torch's generator of a GPU; its offset counts words and is a multiple of 4."""

    def __init__(self) -> None:
        self.seed, self.offset = 67280421310721, 0

    def initial_seed(self) -> int:
        return self.seed

    def get_offset(self) -> int:
        return self.offset

    def set_offset(self, offset: int) -> None:
        assert offset % 4 == 0
        self.offset = offset


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> list[TorchGenerator]:
    """The generators of a torch with two GPUs."""
    made = [TorchGenerator(), TorchGenerator()]
    torch = ModuleType("torch")
    vars(torch)["cuda"] = SimpleNamespace(default_generators=made, init=lambda: None, is_available=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return made


GPU = cast("Device", SimpleNamespace(kind="cuda", index=1))


def test_callers_of_torch_share_its_generator(
    generators: list[TorchGenerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "framework_for", lambda first, device: SimpleNamespace(kind="torch"))
    generators[1].seed, generators[1].offset = 2**64 - 2, 12
    assert draw_state(None, GPU, 2) == (-2, 3)
    assert draw_state(None, GPU, 1) == (-2, 5)
    assert (generators[1].offset, generators[0].offset) == (24, 0)
    # The project's own was not touched.
    assert draw_state(None, simulator(), 1) == (0, 0)


def test_torch_arrays_on_the_simulator_do_not_reach_for_a_gpu(generators: list[TorchGenerator]) -> None:
    view = cast("ArrayView", SimpleNamespace(kind="torch"))
    fuser.manual_seed(8)
    assert draw_state(view, simulator(), 1) == (8, 0)
    assert [g.offset for g in generators] == [0, 0]


def test_other_libraries_on_a_gpu_use_the_own_generator(generators: list[TorchGenerator]) -> None:
    fuser.manual_seed(8)
    for kind in ("numpy", "fuser", "interface"):
        view = cast("ArrayView", SimpleNamespace(kind=kind, is_host=kind == "numpy"))
        assert draw_state(view, GPU, 1)[0] == 8
    assert [g.offset for g in generators] == [0, 0]
