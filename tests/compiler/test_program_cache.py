"""What the program cache answers at each level, and that it keeps nothing partial."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from fuser import options
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.program_cache import overlapping
from fuser.errors import InputValueError, SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.dtypes import DataType
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.pointwise import PointwiseScheduler
from fuser.simulator.device import SimulatorDevice
from tests.device_layouts import place, place_all
from tests.fusion_corpus import ALIGNED, case

Array = np.ndarray


def cache_of(name: str) -> FusionExecutorCache:
    fusion = case(name).define().fusion
    assert fusion is not None
    return FusionExecutorCache(fusion)


def test_levels() -> None:
    """Exact arguments: a lookup; other sizes with equal parameters: the same kernel; else a compilation."""
    cache, device = cache_of("add_two"), SimulatorDevice()

    def run(rows: int, columns: int) -> dict[str, int]:
        before = cache.counters()
        cache.execute(place_all(device, case("add_two").inputs({"R": rows, "C": columns})))
        return {n: v - before.get(n, 0) for n, v in cache.counters().items()}

    assert run(6, 48)["kernels_compiled"] == 1
    assert run(6, 48) == {"exact_hits": 1, "program_hits": 0, "kernel_hits": 0, "kernels_compiled": 0}
    assert run(7, 41) == {"exact_hits": 0, "program_hits": 1, "kernel_hits": 1, "kernels_compiled": 0}
    assert run(7, 41)["exact_hits"] == 1


def test_layouts_have_kernels_of_their_own() -> None:
    cache, device = cache_of("add_two"), SimulatorDevice()
    x, y = case("add_two").inputs(ALIGNED)
    layouts = {"dense": (48, 1), "padded": (50, 1), "turned": (1, 6), "strided": (96, 2)}
    kernels = {
        name: cache.kernels([place(device, x, strides), place(device, y)])[0] for name, strides in layouts.items()
    }
    assert len(set(kernels.values())) == len(layouts)
    assert cache.counters()["kernels_compiled"] == len(layouts)
    for strides in layouts.values():
        (out,) = cache.execute([place(device, x, strides), place(device, y)])
        np.testing.assert_array_equal(np.asarray(out), x + y)
    assert cache.counters()["kernels_compiled"] == len(layouts)


def test_devices_have_programs_of_their_own() -> None:
    cache = cache_of("bias_gelu")
    small = replace(DeviceInfo.preset("H200"), sm_count=1)
    inputs = case("bias_gelu").inputs(ALIGNED)
    (on_large,) = cache.kernels(place_all(SimulatorDevice(), inputs))
    (on_small,) = cache.kernels(place_all(SimulatorDevice(info=small), inputs))
    assert on_large is not on_small


def test_options_have_programs_of_their_own() -> None:
    cache, device = cache_of("bias_gelu"), SimulatorDevice()
    placed = place_all(device, case("bias_gelu").inputs(ALIGNED))
    cache.execute(placed)
    cache.execute(placed, _disable_options=["fma"])
    assert cache.counters()["kernels_compiled"] == 2
    cache.execute(placed)
    assert cache.counters()["kernels_compiled"] == 2


def test_options_of_the_environment_are_parsed_once_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch asks for them; a text that changes is seen by the next one."""
    parsed: list[str] = []
    real = options.check_option_lists

    def counted(enable: Iterable[str] | None, disable: Iterable[str] | None) -> options.OptionLists:
        parsed.append(options.DISABLE.text())
        return real(enable, disable)

    monkeypatch.setattr(options, "check_option_lists", counted)
    cache, device = cache_of("bias_gelu"), SimulatorDevice()
    placed = place_all(device, case("bias_gelu").inputs(ALIGNED))
    # Spaces: texts that no other test has.
    for text in ("  fma  ", "   ", "  fma  "):
        monkeypatch.setenv(options.DISABLE.env, text)
        for _ in range(3):
            cache.execute(placed)
    assert parsed == ["  fma  ", "   "]
    assert cache.counters()["kernels_compiled"] == 2
    monkeypatch.setenv(options.DISABLE.env, "no_such_option")
    for _ in range(2):
        with pytest.raises(InputValueError, match="no_such_option"):
            cache.execute(placed)


def bound_bytes(*ranges: tuple[int, int]) -> BoundInputs:
    """Inputs of bytes [first, past the last)."""
    tensors = {
        f"t{i}": TensorDescriptor(DataType.Bool, (last - first,), (1,), 1, first)
        for i, (first, last) in enumerate(ranges)
    }
    return BoundInputs((), tensors, {}, {})


def test_inputs_whose_bytes_meet() -> None:
    random = np.random.default_rng(0)
    for _ in range(300):
        firsts = random.integers(0, 40, 5)
        ranges = [(int(a), int(a + n)) for a, n in zip(firsts, random.integers(0, 12, 5), strict=True)]
        expected = [
            any(i != j and max(a[0], b[0]) < min(a[1], b[1]) for j, b in enumerate(ranges))
            for i, a in enumerate(ranges)
        ]
        assert overlapping(bound_bytes(*ranges)) == expected, ranges
    assert overlapping(bound_bytes((3, 9))) == [False]


def test_a_failed_compilation_leaves_nothing(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    cache, device = cache_of("norm_rows_then_columns"), SimulatorDevice()
    placed = place_all(device, case("norm_rows_then_columns").inputs(ALIGNED))  # its last segment is pointwise
    real = PointwiseScheduler.apply

    def fail(*_: object) -> None:
        raise SchedulingError("planted")

    monkeypatch.setattr(PointwiseScheduler, "apply", fail)
    for _ in range(2):
        with pytest.raises(SchedulingError, match="planted"):
            cache.execute(placed)
    unlowered.clear()
    assert not cache.is_compiled(placed)
    monkeypatch.setattr(PointwiseScheduler, "apply", real)
    cache.execute(placed)
    assert cache.is_compiled(placed)


def test_dims_found_to_be_one_are_another_fusion() -> None:
    """An expansion to one row, and to several."""
    cache, device = cache_of("expand_by_a_scalar"), SimulatorDevice()
    (b, _) = case("expand_by_a_scalar").inputs(ALIGNED)
    for rows in (1, 4, 1, 5):
        (out,) = cache.execute([place(device, b), rows])
        np.testing.assert_array_equal(np.asarray(out), np.broadcast_to(b + 1, (rows, *b.shape)))
    assert cache.counters()["kernels_compiled"] == 2


def test_identical_segments_of_other_fusions_do_not_mix() -> None:
    """Two caches keep kernels apart, whatever the names inside."""
    device = SimulatorDevice()
    for name in ("inner_sum", "sum_then_scale"):
        cache = cache_of(name)
        cache.execute(place_all(device, case(name).inputs(ALIGNED)))
        assert cache.counters()["kernels_compiled"] == 1
