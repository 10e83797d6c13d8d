"""What the program cache answers at each level, and that it keeps nothing partial."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from fuser import FusionDefinition, options
from fuser.compiler.bind_inputs import BoundInputs, overlaps
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import InputValueError, SchedulingError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.schedule.reasons import Reasons
from fuser.schedule.schedulers.pointwise import PointwiseScheduler
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place, place_all
from tests.fusions.fusion_corpus import ALIGNED, case

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
    assert run(6, 48) == {
        "exact_hits": 1,
        "program_hits": 0,
        "kernel_hits": 0,
        "programs_from_disk": 0,
        "kernels_compiled": 0,
    }
    assert run(12, 24) == {
        "exact_hits": 0,
        "program_hits": 1,
        "kernel_hits": 1,
        "programs_from_disk": 0,
        "kernels_compiled": 0,
    }
    assert run(12, 24)["exact_hits"] == 1


def test_new_sizes_of_a_known_kernel_build_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is anything compiled: the kernel's facts are checked, and the program that is there runs."""
    cache, device = cache_of("add_two"), SimulatorDevice()

    def run(rows: int) -> None:
        cache.execute(place_all(device, case("add_two").inputs({"R": rows, "C": 48})))

    run(6)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("made anew")

    monkeypatch.setattr(sys.modules["fuser.compiler.compile_fusion"], "build_host_program", refuse)
    monkeypatch.setattr(KernelCompiler, "start_segment", refuse)
    for rows in (7, 8, 9):
        run(rows)
    assert (cache.counters()["program_hits"], cache.counters()["kernels_compiled"]) == (3, 1)


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
        firsts = random.integers(1, 41, 5)
        ranges = [(int(a), int(a + n)) for a, n in zip(firsts, random.integers(0, 12, 5), strict=True)]
        expected = tuple(
            (i, j)
            for i, a in enumerate(ranges)
            for j, b in enumerate(ranges)
            if i < j and max(a[0], b[0]) < min(a[1], b[1])
        )
        assert overlaps(bound_bytes(*ranges)) == expected, ranges
    assert overlaps(bound_bytes((3, 9))) == ()
    # A descriptor made by hand has no storage, and no address.
    assert overlaps(bound_bytes((0, 9), (3, 9), (0, 4))) == ()


def test_which_inputs_are_one_is_another_program() -> None:
    """A kernel that writes one input in place may be made for others that lie elsewhere. One definition runs on every way in
    which four inputs may share memory, in either order."""
    device = SimulatorDevice()
    values = np.arange(64, dtype=np.float32).reshape(4, 16)
    ways = sorted({tuple(way.index(p) for p in way) for way in itertools.product(range(4), repeat=4)})
    for order in (ways, ways[::-1]):
        with FusionDefinition() as fd:
            a, b, c, d = (fd.define_tensor([-1]) for _ in range(4))
            fd.add_output(fd.ops.sum(fd.ops.mul(a, b), [0]))
            fd.add_output(fd.ops.add(c, d), c)
        for way in order:
            stored = {p: place(device, values[p]) for p in set(way)}
            (found,) = fd.execute([stored[p] for p in way])
            np.testing.assert_array_equal(np.asarray(found), (values[way[0]] * values[way[1]]).sum(), str(way))
            np.testing.assert_array_equal(np.asarray(stored[way[2]]), values[way[2]] + values[way[3]], str(way))


def test_an_input_without_elements_overlaps_nothing() -> None:
    """It may have an address inside of another input: neither the key nor the facts of a kernel say that it matters."""
    device = SimulatorDevice()
    whole = place(device, np.zeros(64, np.float32))
    apart = place(device, np.zeros(64, np.float32))
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.add_output(fd.ops.add(x, fd.ops.sum(y, [0])), x)
    for k, address in enumerate((apart.address, whole.address + 16)):
        fd.execute([whole, DeviceTensor(device, DataType.Float, (0,), (1,), address, whole)])
        np.testing.assert_array_equal(np.asarray(whole), np.zeros(64), str(k))


def test_extents_that_no_tensor_has_are_part_of_the_key() -> None:
    """Rows as long as a scalar says: what the kernels assume of their length holds for some of the scalars alone."""
    with FusionDefinition() as fd:
        n, x = fd.define_scalar(None, DataType.Int), fd.define_tensor([-1])
        rows = fd.ops.full([fd.ops.size(x, 0), n], 2.0, DataType.Float) * fd.ops.broadcast(x, [False, True])
        sums = fd.ops.cumsum(rows, 1)
        fd.add_output(fd.ops.sub(sums, fd.ops.max(sums, [1], True)))
    values = np.arange(6, dtype=np.float32)
    for length in (4, 7, 64, 300):
        (found,) = fd.execute([length, values], device="simulator")
        expected = values[:, None] * 2 * np.arange(1 - length, 1)
        np.testing.assert_array_equal(np.asarray(found), expected.astype(np.float32), str(length))


def test_a_failed_compilation_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    cache, device = cache_of("norm_rows_then_columns"), SimulatorDevice()
    placed = place_all(device, case("norm_rows_then_columns").inputs(ALIGNED))  # its last segment is pointwise
    real = PointwiseScheduler.apply

    def fail(*_: object) -> None:
        raise SchedulingError("planted")

    monkeypatch.setattr(PointwiseScheduler, "apply", fail)
    for _ in range(2):
        with pytest.raises(SchedulingError, match="planted"):
            cache.execute(placed)
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


def test_kernels_are_told_of_a_program_that_was_dropped_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """As other threads drop it who fill the cache."""
    monkeypatch.setattr("fuser.compiler.program_cache.MAX_EXACT", 0)
    (kernel,) = cache_of("add_two").kernels(case("add_two").inputs(ALIGNED, 2), device="simulator")
    assert kernel.kernel_ir is not None


def test_identical_segments_of_other_fusions_do_not_mix() -> None:
    """Two caches keep kernels apart, whatever the names inside."""
    device = SimulatorDevice()
    for name in ("inner_sum", "sum_then_scale"):
        cache = cache_of(name)
        cache.execute(place_all(device, case(name).inputs(ALIGNED)))
        assert cache.counters()["kernels_compiled"] == 1


def test_reasons_are_put_into_words_only_for_a_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They take longer to say than some decisions to make."""
    said: list[Reasons] = []
    words = Reasons.words
    monkeypatch.setattr(Reasons, "words", lambda self: said.append(self) or words(self))
    inputs = case("softmax").inputs(ALIGNED)
    cache_of("softmax").execute(inputs, device="simulator")
    assert not said
    with caplog.at_level(logging.INFO, "fuser"):
        cache_of("softmax").execute(inputs, device="simulator")
    assert said
    assert any(
        "(no kernel of these parameters and layouts): InnerPersistentParams(" in text for text in caplog.messages
    )
