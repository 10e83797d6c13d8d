"""Host programs of segmented fusions: storage of intermediates, views, updates in place, sizes computed from scalars."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import NotSupportedError
from fuser.host_ir.instructions.instructions import Alias, Allocate, Copy, Deallocate, LaunchKernel
from fuser.host_ir.program import HostProgram
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.device_layouts import place, place_all
from tests.fusions.fusion_corpus import ALIGNED, CORPUS, case

Float, Int = DataType.Float, DataType.Int
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def program_of(name: str) -> HostProgram:
    fd = case(name).define()
    return fd.program(place_all(SimulatorDevice(), case(name).inputs(ALIGNED)))


def kinds(program: HostProgram) -> list[type]:
    return [type(i) for i in program.instructions]


def run(build: Callable[[FusionDefinition], None], *inputs: Any) -> tuple[list[Any], HostProgram, list[Any]]:
    """(outputs, program, placed inputs) of a definition on the simulator."""
    with FusionDefinition() as fd:
        build(fd)
    device = SimulatorDevice()
    placed = place_all(device, inputs)
    where = None if any(isinstance(v, DeviceTensor) for v in placed) else "simulator"
    results = fd.execute(placed, device=where)
    return results, fd.fec.program(placed, where), placed


def test_one_kernel() -> None:
    assert kinds(program_of("add_two")) == [Allocate, LaunchKernel]
    assert kinds(program_of("transposed_view")) == [Alias]
    assert kinds(program_of("sine_and_cosine")) == [Allocate, Allocate, LaunchKernel]


def test_an_intermediate_is_freed_after_its_last_reader() -> None:
    program = program_of("forced_boundary")
    assert kinds(program) == [Allocate, LaunchKernel, Allocate, LaunchKernel, Deallocate]
    middle = program.instructions[0]
    freed = program.instructions[-1]
    assert isinstance(middle, Allocate)
    assert isinstance(freed, Deallocate)
    assert freed.slot == middle.slot


@pytest.mark.in_turns
@pytest.mark.parametrize("name", [c.name for c in CORPUS])
def test_everything_allocated_is_freed_or_returned(name: str) -> None:
    program = program_of(name)
    freed = [i.slot for i in program.instructions if isinstance(i, Deallocate)]
    assert len(set(freed)) == len(freed)
    copied = {i.src for i in program.instructions if isinstance(i, Copy)}
    for i in program.instructions:
        if isinstance(i, Allocate):
            shown = i.slot in program.verified.facts.escaping
            assert shown or i.slot in freed or i.slot in copied, f"{i.slot} is kept for nothing"
    assert eval_text(program) == program


def eval_text(program: HostProgram) -> HostProgram:
    from fuser.host_ir.parse_program import parse_program

    return parse_program(repr(program), program.kernels)


def test_a_view_of_a_value_between_it_and_the_input_of_its_segment_keeps_that_value() -> None:
    """A kernel stores the broadcast for another one; what is squeezed of it is a view of that, not of what was broadcast."""

    def build(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1, -1], True, Float)
        index = fd.define_tensor([-1, -1, -1], True, Int)
        rows = fd.ops.broadcast(fd.ops.min(x, [0, 2]), [True, False, True])
        fd.add_output(fd.ops.squeeze(rows, [0, 2]))
        fd.add_output(fd.ops.take_along_axis(fd.ops.expand(rows, [4, -1, 4]), index, 2))

    values = np.arange(64, dtype=np.float32).reshape(4, 2, 8) % 7
    index = np.ones((4, 2, 1), np.int64)
    results, program, _ = run(build, values, index)
    least = values.min((0, 2))
    np.testing.assert_array_equal(np.asarray(results[0]), least)
    np.testing.assert_array_equal(np.asarray(results[1]), np.broadcast_to(least[None, :, None], (4, 2, 1)))
    view = next(i for i in program.instructions if isinstance(i, Alias))
    assert not any(isinstance(i, Deallocate) and i.slot == view.of for i in program.instructions)


# --- updates ----------------------------------------------------------------------------------------------------------


def test_update_without_other_readers_is_written_directly() -> None:
    program = program_of("increment")
    assert kinds(program) == [LaunchKernel]
    assert program.updates == ("t0",)


def test_update_that_is_read_later_is_copied_at_the_end() -> None:
    def build(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(fd.ops.segment_set(x + 1.0) * 2.0, x)
        fd.add_output(fd.ops.sum(x, [0]))

    (total,), program, (x,) = run(build, X)
    np.testing.assert_array_equal(total.numpy(), X.sum(0))
    np.testing.assert_array_equal(x.numpy(), (X + 1) * 2)
    if Copy in kinds(program):
        assert kinds(program)[-1] is Copy


def test_update_takes_the_layout_of_its_input() -> None:
    device = SimulatorDevice()
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(x + 1.0, x)
    for strides in ((4, 1), (1, 3), (6, 1), (12, 3)):
        x = place(device, X, strides)
        assert fd.execute([x]) == []
        np.testing.assert_array_equal(x.numpy(), X + 1)


def test_input_written_over_another() -> None:
    def build(fd: FusionDefinition) -> None:
        x, y = (fd.define_tensor([-1, -1], True, Float) for _ in range(2))
        fd.add_output(y, x)

    _, _, (x, y) = run(build, X, X * 2)
    np.testing.assert_array_equal(x.numpy(), X * 2)
    np.testing.assert_array_equal(y.numpy(), X * 2)


def test_view_written_over_an_input() -> None:
    def build(fd: FusionDefinition) -> None:
        x, y = (fd.define_tensor([-1, -1], True, Float) for _ in range(2))
        fd.add_output(fd.ops.permute(y, [1, 0]), x)

    _, _, (x, _) = run(build, X, np.ascontiguousarray(X.T) * 5)
    np.testing.assert_array_equal(x.numpy(), X * 5)


def test_views_written_over_inputs_are_read_first() -> None:
    """A view has no kernel that would read it before others write the memory that it shows."""
    device = SimulatorDevice()
    values = np.arange(45, dtype=np.float32).reshape(5, 3, 3)
    for z, v in itertools.product(range(4), range(5)):
        with FusionDefinition() as fd:
            handles = [fd.define_tensor([-1, -1], True, Float) for _ in range(5)]
            fd.add_output(fd.ops.permute(handles[3], [1, 0]), handles[1])
            fd.add_output(fd.ops.permute(handles[4], [1, 0]), handles[2])
            fd.add_output(handles[0] + 1.0, handles[0])
        placed = place_all(device, list(values))
        placed[3], placed[4] = placed[z], placed[v]
        for _ in range(2):
            old = [array.numpy() for array in placed]
            fd.execute(placed)
            for k, expected in enumerate((old[0] + 1, old[3].T, old[4].T)):
                np.testing.assert_array_equal(placed[k].numpy(), expected, f"{z} {v}")


# --- sizes ------------------------------------------------------------------------------------------------------------

SIZES: list[tuple[str, Callable[[Any], Any], Callable[[int], int]]] = [
    ("sum", lambda n: n + 3, lambda n: n + 3),
    ("difference", lambda n: n - 1, lambda n: n - 1),
    ("product", lambda n: n * n, lambda n: n * n),
    ("negated twice", lambda n: _op("neg", -n), lambda n: n),
    ("quotient", lambda n: _op("div", n, 2), lambda n: n // 2),
    ("quotient of a negative", lambda n: _op("neg", _op("div", _op("neg", n), 2)), lambda n: n // 2),
    ("remainder", lambda n: _op("fmod", n, 4), lambda n: n % 4),
    ("python remainder", lambda n: n % 4, lambda n: n % 4),
    ("maximum", lambda n: _op("maximum", n, 6), lambda n: max(n, 6)),
    ("minimum", lambda n: _op("minimum", n, 6), lambda n: min(n, 6)),
    ("absolute value", lambda n: _op("abs", 2 - n), lambda n: abs(2 - n)),
    ("chain", lambda n: (n * 2 + 1) * 3 - n, lambda n: (n * 2 + 1) * 3 - n),
]


def _op(name: str, *operands: Any) -> Any:
    from fuser import ops

    return getattr(ops, name)(*operands)


@pytest.mark.parametrize(("what", "compute", "value"), SIZES, ids=[s[0] for s in SIZES])
def test_extents_from_scalar_arithmetic(what: str, compute: Callable[[Any], Any], value: Callable[[int], int]) -> None:
    with FusionDefinition() as fd:
        n = fd.define_scalar(Int)
        fd.add_output(fd.ops.full([compute(n), 2], 1.5, Float))
    for size in (1, 5, 8, 9):
        (out,) = fd.execute([size], device="simulator")
        np.testing.assert_array_equal(
            out.numpy(), np.full((value(size), 2), 1.5, np.float32), err_msg=f"{what} of {size}"
        )


def test_extent_from_a_tensor_and_a_scalar() -> None:
    def build(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, Float)
        n = fd.define_scalar(Int)
        fd.add_output(fd.ops.full([x.size(1) * n + x.size(0)], 2.0, Float))
        fd.add_output(x * 2.0)

    (filled, doubled), _, _ = run(build, X, 5)
    assert filled.shape == (4 * 5 + 3,)
    np.testing.assert_array_equal(doubled.numpy(), X * 2)


def test_extents_that_no_tensor_of_a_segment_carries() -> None:
    """A later kernel needs an extent of a tensor that only an earlier one reads."""

    def build(fd: FusionDefinition) -> None:
        x = fd.define_tensor([-1, -1], True, Float)
        total = fd.ops.segment_set(fd.ops.sum(x, [0, 1]))
        fd.add_output(total / (x.size(0) * x.size(1)))
        fd.add_output(fd.ops.expand(fd.ops.broadcast(total, [True]), [x.size(1)]) + 1.0)

    (mean, spread), program, _ = run(build, X)
    np.testing.assert_allclose(np.asarray(mean), X.mean(), rtol=1e-6)
    np.testing.assert_array_equal(spread.numpy(), np.full(4, X.sum() + 1, np.float32))
    text = repr(program)
    assert "extent('t0', 0)" in text or 'extent("t0", 0)' in text, "passed to the kernel as a number"


def test_extents_that_cannot_be_computed_yet_say_so() -> None:
    with FusionDefinition() as fd:
        d = fd.define_scalar(DataType.Double)
        n = fd.ops.cast(d * 2.0, Int)
        fd.add_output(fd.ops.full([n], 1.0, Float))
    with pytest.raises(NotSupportedError) as caught:
        fd.execute([2.5], device="simulator")
    assert "cannot be computed by a host program yet" in str(caught.value)
    assert "divide sizes by //" in str(caught.value)
    assert "n = fd.ops.cast(d * 2.0, Int)" in str(caught.value)
