"""Inputs that are updated in place: whatever shares memory, all reads of inputs come before all updates."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition, load, save
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.builds import at_once
from fuser.compiler.compile_fusion import compile_segments, concrete_fusion, plan_fusion
from fuser.compiler.executor_cache import FusionExecutorCache
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.recorder import Recorder
from fuser.errors import InputRuntimeError
from fuser.host_ir.build import build_host_program
from fuser.host_ir.executors import families
from fuser.host_ir.instructions.instructions import Allocate, Copy, Deallocate, LaunchKernel, RequireDisjoint
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.program import HostProgram
from fuser.runtime.arrays.device_tensor import DeviceTensor, OwnedMemory
from fuser.runtime.layouts import row_major
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place, place_all
from tests.devices.queue_device import QueueDevice

Array = np.ndarray[Any, Any]
Float = DataType.Float
SHAPES = [(5,), (3, 4), (2, 3, 4), (7,), (6, 5), (3, 2, 2)]


def kinds(program: HostProgram) -> list[type]:
    return [type(i) for i in program.instructions]


def adam(shapes: list[tuple[int, ...]]) -> FusionDefinition:
    """Weight, gradient and two averages of each shape: the averages and the weight are updated."""
    with FusionDefinition() as fd:
        for shape in shapes:
            p, g, m, v = (fd.define_tensor([-1] * len(shape), [True] * len(shape), Float) for _ in range(4))
            first = m * 0.9 + g * 0.1
            second = v * 0.99 + g * g * 0.01
            fd.add_output(first, m)
            fd.add_output(second, v)
            fd.add_output(p - first / (fd.ops.sqrt(second) + 1e-3) * 0.1, p)
    return fd


def adam_values(values: list[Array]) -> list[Array]:
    """All arrays after a step."""
    found: list[Array] = []
    for p, g, m, v in zip(*(values[k::4] for k in range(4)), strict=True):
        first, second = m * np.float32(0.9) + g * np.float32(0.1), v * np.float32(0.99) + g * g * np.float32(0.01)
        found += [p - first / (np.sqrt(second) + np.float32(1e-3)) * np.float32(0.1), g, first, second]
    return found


def _executor(fd: FusionDefinition) -> FusionExecutorCache:
    assert fd.fusion is not None
    return FusionExecutorCache(fd.fusion)


def adam_inputs() -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.random(shape, np.float32) for shape in SHAPES for _ in range(4)]


# --- what the program is ----------------------------------------------------------------------------------------------


def test_updates_of_several_shapes_are_written_directly() -> None:
    device, fd, values = SimulatorDevice(), adam(SHAPES), adam_inputs()
    placed = place_all(device, values)
    for _ in range(3):
        assert fd.execute(placed) == []
        values = adam_values(values)
        for array, value in zip(placed, values, strict=True):
            np.testing.assert_allclose(array.numpy(), value, rtol=1e-6)
    program = fd.program(placed)
    assert kinds(program) == [RequireDisjoint] + [LaunchKernel] * len(SHAPES)
    assert len(program.updates) == 3 * len(SHAPES)
    assert parse_program(repr(program), program.kernels) == program
    assert program.counters()["replays"] == 2


def test_of_inputs_that_share_memory_the_others_are_written_directly() -> None:
    """The weight of the first shape is the gradient of the last one: it is written at the end."""
    device, fd, values = SimulatorDevice(), adam([(5,), (3, 4), (5,)]), adam_inputs()[:8]
    values += [values[k] for k in (2, 0, 3, 1)]
    placed = place_all(device, values)
    placed[9] = placed[0]
    fd.execute(placed)
    expected = adam_values(values)
    for k, array in enumerate(placed):
        np.testing.assert_allclose(array.numpy(), expected[0 if k == 9 else k], rtol=1e-6, err_msg=str(k))
    program = fd.program(placed)
    assert (kinds(program).count(Allocate), kinds(program)[-1], kinds(program).count(Copy)) == (1, Copy, 1)


def test_a_program_of_one_kernel_requires_nothing() -> None:
    device, fd = SimulatorDevice(), adam([(5,)])
    assert kinds(fd.program(place_all(device, adam_inputs()[:4]))) == [LaunchKernel]


def test_a_program_for_inputs_apart_refuses_others(tmp_path: Path) -> None:
    device, fd = SimulatorDevice(), adam([(5,), (3, 4)])
    values = adam_inputs()[:8]
    program = fd.program(place_all(device, values))
    save(program, tmp_path / "step.program")
    loaded = load(tmp_path / "step.program")
    assert repr(loaded) == repr(program)
    # The gradient of the second shape has bytes of the weight of the first one.
    whole = place(device, np.zeros(64, np.float32))
    placed = place_all(device, values)
    placed[0], placed[5] = whole.view((5,), (1,)), whole.view((3, 4), (4, 1), 4)
    for runs in (program, loaded, program.on_streams(2)):
        assert runs.run(place_all(device, values)) == []
        for way in (runs.run, runs.interpret, runs.capture, runs.run):
            # Of several streams nobody knows the order: more is refused there.
            with pytest.raises(InputRuntimeError, match=r"memory that does not overlap, but got bytes|share memory"):
                way(placed)
        placed[5] = whole.view((3, 4), (4, 1), 5)
        assert runs.run(placed) == []
        assert runs.capture(placed).run(placed) == []
        placed[5] = whole.view((3, 4), (4, 1), 4)
    with pytest.raises(InputRuntimeError) as told:
        program.run(placed)
    first, names = placed[0].address, program.inputs
    assert told.value.message == (
        f"this program cannot run on these arguments: it was made for {names[0]} and {names[5]} in memory that does "
        f"not overlap, but got bytes [{first:#x}, {first + 20:#x}) and [{first + 16:#x}, {first + 64:#x})"
    )
    assert "instruction 0 of a host program: RequireDisjoint(" in "".join(told.value.__notes__)
    # What runs it by its definition takes another program.
    expected = adam_values([a.numpy() for a in placed])
    fd.execute(placed)
    np.testing.assert_allclose(placed[7].numpy(), expected[7], rtol=1e-6)


def test_what_is_read_later_is_copied() -> None:
    """The norm of all weights is asked for as they were."""
    with FusionDefinition() as fd:
        p, q = (fd.define_tensor([-1], [True], Float) for _ in range(2))
        fd.add_output(fd.ops.segment_set(p * 2.0), p)
        fd.add_output(fd.ops.segment_set(q * 3.0) + fd.ops.sum(p, [0]), q)
    device = SimulatorDevice()
    p, q = place_all(device, [np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32)])
    fd.execute([p, q])
    np.testing.assert_array_equal(p.numpy(), np.arange(4) * 2)
    np.testing.assert_array_equal(q.numpy(), np.arange(6) * 3 + 6)


def test_numpy_arrays() -> None:
    """Each is copied to the device: what they share there is nothing."""
    fd, values = adam([(5,), (3, 4)]), adam_inputs()[:8]
    buffer = np.arange(64, dtype=np.float32) / 64
    values[0], values[5] = buffer[:5], buffer[2:14].reshape(3, 4)
    expected = adam_values(values)
    program = _executor(fd).program(values, "simulator")
    for _ in range(2):
        given = [value.copy() for value in values]
        mine = buffer.copy()
        given[0], given[5] = mine[:5], mine[2:14].reshape(3, 4)
        program.run(given, device="simulator")
        for k in (0, 2, 3, 4, 6, 7):
            np.testing.assert_allclose(given[k], expected[k], rtol=1e-6)


def test_a_program_made_without_memory_is_for_inputs_apart() -> None:
    from fuser.ir.facts import TensorDescriptor

    device, values = SimulatorDevice(), adam_inputs()[:8]
    executor = _executor(adam([(5,), (3, 4)]))
    looks = [TensorDescriptor(Float, v.shape, row_major(v.shape)) for v in values]
    program = executor.program(looks, "simulator")
    placed = place_all(device, values)
    assert executor.program(placed) is program
    assert Copy not in kinds(program)


@pytest.mark.parametrize(
    ("reads_target", "apart", "expected"),
    [
        (False, False, [Allocate, LaunchKernel, Allocate, LaunchKernel, Copy]),
        (False, True, [RequireDisjoint, Allocate, LaunchKernel, LaunchKernel]),
        (True, True, [Allocate, LaunchKernel, Allocate, LaunchKernel, Copy]),
    ],
)
def test_a_kernel_beside_another_does_not_write_what_that_one_reads(
    reads_target: bool, apart: bool, expected: list[type]
) -> None:
    """It starts while the one before it still reads."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1], [True], Float) for _ in range(2))
        if reads_target:
            fd.add_output(fd.ops.segment_set(fd.ops.exp(y)) + y, y)
        else:
            fd.add_output(fd.ops.exp(x))
            fd.add_output(y + 1.0, y)
    assert fd.fusion is not None
    device = SimulatorDevice()
    placed = place_all(device, [np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32)])
    bound = bind_inputs(fd.fusion.ir_fusion, placed)
    segmented = plan_fusion(concrete_fusion(fd.fusion.ir_fusion, bound), Recorder())
    program, made = compile_segments(
        segmented,
        bound,
        lambda _, segment, inputs, start: at_once(lambda: KernelCompiler(device).compile_segment(segment, inputs)[0]),
        Recorder(),
    )
    first, second = made
    assert first is not None
    assert second is not None
    assert second.plan is not None
    assert Copy not in kinds(program)
    beside = replace(second, plan=replace(second.plan, co_resident=True))
    program = build_host_program(segmented, (first, beside), program.updates if apart else ())
    assert [kind for kind in kinds(program) if kind is not Deallocate] == expected


# --- random programs --------------------------------------------------------------------------------------------------

BYTES = 1024
NAMES = ("run", "again", "interpreter", "streams", "graph")


class _Case:
    """A random definition with random places of its inputs in one buffer."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.shapes: list[tuple[int, ...]] = [
            rng.choice([(6,), (3, 4), (4, 3), (12,), (5,), (0, 3)]) for _ in range(rng.randint(2, 6))
        ]
        self.targets = [k for k in range(len(self.shapes)) if rng.random() < 0.6] or [0]
        self.ops: list[tuple[Any, ...]] = [self._update(k) for k in self.targets]
        self.extra = [
            (rng.choice(("sum", "view", "scaled", "itself", "new", "view of new")), rng.randrange(len(self.shapes)))
            for _ in range(2)
        ]
        # A library computes at once, and does not wait for what is enqueued there.
        calls = any(what == "product" for what, _ in self.ops)
        self.device = SimulatorDevice() if calls else QueueDevice(seed)
        self.fd = FusionDefinition()
        with self.fd:
            self._define()

    def _update(self, k: int) -> tuple[Any, ...]:
        rng = self.rng
        alike = [j for j, shape in enumerate(self.shapes) if shape == self.shapes[k]]
        pairs = [
            (i, j)
            for i, s in enumerate(self.shapes)
            for j, t in enumerate(self.shapes)
            if len(s) == 2 == len(t) and s[1] == t[0]
        ]
        if pairs and rng.random() < 0.2:
            return "product", rng.choice(pairs)
        turned = [j for j, s in enumerate(self.shapes) if len(s) == 2 and s[::-1] == self.shapes[k]]
        if turned and rng.random() < 0.5:
            return "turned", rng.choice(turned)
        what = rng.choice(("axpy", "axpy", "shift", "shift", "other", "old sum", "new sum", "cut"))
        other = rng.choice(alike) if what in ("axpy", "other") else rng.randrange(len(self.shapes))
        return what, other

    def compute(self, values: list[Any], np_or_fd: Any) -> tuple[list[Any], list[Any]]:
        """(new values of the targets, other outputs), with handles or with arrays."""
        is_np = np_or_fd is np
        cut = (lambda t: t) if is_np else np_or_fd.ops.segment_set
        turn = (lambda t: t.T) if is_np else (lambda t: np_or_fd.ops.permute(t, [1, 0]))

        def total(t: Any, rank: int) -> Any:
            return t.sum(dtype=np.float32) if is_np else np_or_fd.ops.sum(t, list(range(rank)))

        made: dict[int, Any] = {}
        for k, (what, other) in zip(self.targets, self.ops, strict=True):
            mine, rank = values[k], 0 if what == "product" else len(self.shapes[other])
            match what:
                case "product":
                    first, second = (values[n] for n in other)
                    product = first @ second if is_np else np_or_fd.ops.matmul(first, second)
                    made[k] = mine + total(product, 2)
                case "turned":
                    made[k] = turn(values[other])
                case "axpy":
                    made[k] = mine + values[other]
                case "shift":
                    made[k] = cut(mine * 2.0) + 1.0
                case "other":
                    made[k] = values[other] * 2.0
                case "old sum":
                    made[k] = mine + total(values[other], rank)
                case "new sum":
                    made[k] = mine + total(made.get(other, values[other]), rank)
                case _:
                    made[k] = cut(mine + total(cut(values[other]), rank)) + values[k]
        outputs: list[Any] = []
        for what, k in self.extra:
            match what:
                case "sum":
                    outputs.append(total(values[k], len(self.shapes[k])))
                case "view" if len(self.shapes[k]) == 2:
                    outputs.append(turn(values[k]))
                case "view of new" if len(self.shapes[k]) == 2 and k in made:
                    outputs.append(turn(made[k]))
                case "new" if k in made:
                    outputs.append(made[k])
                case "itself" if not is_np:
                    outputs.append(values[k])
                case _:
                    outputs.append(values[k] * 3.0)
        return [made[k] for k in self.targets], outputs

    def _define(self) -> None:
        fd = self.fd
        values = [fd.define_tensor([-1] * len(shape)) for shape in self.shapes]
        updates, outputs = self.compute(values, fd)
        for k, value in zip(self.targets, updates, strict=True):
            fd.add_output(value, values[k])
        for value in outputs:
            fd.add_output(value)

    def viewed_twice(self, k: int) -> int | None:
        """The input that is not updated and of which a view of the new value of another one is a view."""
        what, other = dict(zip(self.targets, self.ops, strict=True)).get(k, ("", None))
        return other if what == "turned" and other not in self.targets else None

    def layouts(self, *, apart: bool) -> list[tuple[tuple[int, ...], int]]:
        """(strides, first element) of each input."""
        found: list[tuple[tuple[int, ...], int]] = []
        room = BYTES // 4 // len(self.shapes)
        for k, shape in enumerate(self.shapes):
            strides = row_major(shape)
            style = self.rng.choice(("dense", "dense", "gaps", "turned", "expanded"))
            if style == "gaps":
                strides = tuple(2 * s for s in strides)
            elif style == "turned":
                strides = tuple(reversed(row_major(shape[::-1])))
            elif style == "expanded" and k not in self.targets:
                strides = (0, *strides[1:])
            start = k * room if apart else self.rng.choice((0, 0, 1, 2, 6, self.rng.randrange(60)))
            found.append((strides, start))
        return found


def _elements(shape: tuple[int, ...], strides: tuple[int, ...], first: int) -> Array:
    """Positions of the elements of an array."""
    found = np.full(shape, first)
    for d, s in enumerate(strides):
        found += (np.arange(shape[d]) * s).reshape([-1 if e == d else 1 for e in range(len(shape))])
    return found


def _check(case: _Case, *, apart: bool) -> bool:
    """Whether a placement of the inputs was run, every way; False if two updates share elements, and were refused."""
    device, layouts = case.device, case.layouts(apart=apart)
    allocation = device.allocate(BYTES, 0)
    memory = OwnedMemory(device, allocation, 0)
    places = [_elements(shape, *layout) for shape, layout in zip(case.shapes, layouts, strict=True)]
    inputs = [
        DeviceTensor(device, Float, shape, strides, allocation.address + 4 * first, memory)
        for shape, (strides, first) in zip(case.shapes, layouts, strict=True)
    ]
    seen: set[int] = set()
    shared = any(seen.intersection(places[k].flat) or seen.update(places[k].flat) for k in case.targets)
    if shared:
        with pytest.raises(InputRuntimeError, match="both updated in place"):
            case.fd.execute(inputs)
        return False
    program = case.fd.program(inputs)
    ways: dict[str, Callable[[], list[Any]]] = {
        "run": lambda: case.fd.execute(inputs),
        "again": lambda: case.fd.execute(inputs),
        "interpreter": lambda: program.interpret(inputs),
        "graph": lambda: case.fd.execute(inputs, graph=True),
        "streams": lambda: program.on_streams(3).run(inputs),
    }
    for name, way in ways.items():
        before = case.rng.choices(range(-8, 9), k=BYTES // 4)
        buffer = np.array(before, np.float32)
        device.copy_from_host(allocation.address, buffer.view(np.uint8), 0)
        updates, outputs = case.compute([buffer[p] for p in places], np)
        try:
            results = way()
        except InputRuntimeError as error:
            # Nobody knows the order of several streams, and so such programs refuse what shares memory.
            if name == "streams" and "share memory" in error.message:
                continue
            raise
        after = np.zeros_like(buffer)
        device.copy_to_host(after.view(np.uint8), allocation.address, 0)
        for k, value in zip(case.targets, updates, strict=True):
            buffer[places[k]] = value
        np.testing.assert_array_equal(after, buffer, f"{name}\n{program}")
        for (what, k), result, expected in zip(case.extra, results, outputs, strict=True):
            # An input itself, or a view of one that is not updated, shows what is there now.
            if what == "itself":
                expected = buffer[places[k]]
            elif what == "view" and len(case.shapes[k]) == 2 and k not in case.targets:
                expected = buffer[places[k]].T
            elif what == "view of new" and (source := case.viewed_twice(k)) is not None:
                expected = buffer[places[source]]
            np.testing.assert_array_equal(result.numpy(), expected, f"{name} {what}\n{program}")
    return True


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    case = _Case(seed)
    assert _check(case, apart=True)
    for _ in range(4):
        _check(case, apart=False)


def test_new_sizes_in_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """One definition of two kernels, called with sizes and places that are new or known, in any order: by traces, too."""
    monkeypatch.setattr(families, "CALLS_PER_TRACE", 3)
    bound: list[HostProgram] = []
    bind = HostProgram.bind
    monkeypatch.setattr(HostProgram, "bind", lambda self, *more: (bound.append(self), bind(self, *more))[1])
    with FusionDefinition() as fd:
        p, q, r = (fd.define_tensor([-1], [True], Float) for _ in range(3))
        fd.add_output(p + fd.ops.sum(r, [0]), p)
        fd.add_output(q * 2.0 + fd.ops.sum(r, [0]), q)
        fd.add_output(r - 1.0)
    device, rng = SimulatorDevice(), random.Random(0)
    whole = place(device, np.arange(1 << 16, dtype=np.float32) % 7)
    copies: dict[bool, set[bool]] = {True: set(), False: set()}
    for call in range(100):
        sizes = [8 * rng.randint(1000, 1200), 4096, 8 * rng.randint(1000, 1200)]
        starts = rng.sample((0, 1 << 14, 1 << 15, 3 << 14), 3)
        if rng.random() < 0.3:
            starts[2] = starts[rng.randrange(2)] + 4 * rng.randint(0, 1200)
        placed = [whole.view((n,), (1,), first) for n, first in zip(sizes, starts, strict=True)]
        before = whole.numpy()
        old = [before[first : first + n].copy() for n, first in zip(sizes, starts, strict=True)]
        new_p, new_q, less = old[0] + old[2].sum(), old[1] * 2 + old[2].sum(), old[2] - 1
        before[starts[0] : starts[0] + sizes[0]], before[starts[1] : starts[1] + sizes[1]] = new_p, new_q
        (result,) = fd.execute(placed)
        np.testing.assert_array_equal(result.numpy(), less, str(call))
        np.testing.assert_array_equal(whole.numpy(), before, str(call))
        device.copy_from_host(whole.address, (np.arange(1 << 16) % 7).astype(np.float32).view(np.uint8), 0)
        ends = [(first, first + n) for n, first in zip(sizes, starts, strict=True)]
        is_apart = all(a[1] <= b[0] or b[1] <= a[0] for a, b in itertools.combinations(ends, 2))
        copies[is_apart].add(Copy in kinds(fd.program(placed)))
    assert copies == {True: {False}, False: {True, False}}
    assert len(bound) < 40


def test_a_view_of_a_host_array_is_where_the_array_is() -> None:
    """Also if its copy is nowhere yet when a kernel is planned, as that of an array that is read backwards."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        fd.add_output(x + fd.ops.permute(x, [1, 0]), x)
    made = np.arange(16, dtype=np.float32).reshape(4, 4)
    for given in (made.copy()[::-1], made.copy(), made.copy()[:, ::-1]):
        wanted = given + given.T
        fd.execute([given], device="simulator")
        np.testing.assert_array_equal(given, wanted)
