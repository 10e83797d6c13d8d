"""CallLibrary: what it takes and refuses, and that it runs, records and is kept like any other instruction."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import fuser
from fuser import Allocate, CallLibrary, DataType, FusionDefinition, HostProgram, extent
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, InputRuntimeError, SchedulingError
from fuser.host_ir.instructions.accesses import accesses_of
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.host_ir.parse_program import parse_program
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice

RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 3), (3, 5)))
MATMUL = CallLibrary("matmul", ("z",), {"arg1": "x", "arg2": "y"})


def product(strides: Any = None, call: CallLibrary = MATMUL) -> HostProgram:
    """z = x @ y."""
    make = Allocate("z", (extent("x", 0), extent("y", 1)), DataType.Float, strides)
    return HostProgram(("x", "y"), ("z",), (make, call))


def test_a_program_by_hand_runs_the_library() -> None:
    program = product()
    for _ in range(2):
        assert np.array_equal(program.run([X, Y])[0], X @ Y)
    assert program.counters()["library_calls"] == 2
    assert program.counters()["launches"] == 0


def test_results_may_lie_in_any_way() -> None:
    (out,) = product((1, extent("x", 0) + 2)).run([X, Y])
    assert out.strides == (4, 4 * 6)
    np.testing.assert_allclose(out, X @ Y, rtol=1e-6)


def test_it_prints_and_parses() -> None:
    program = product()
    assert "CallLibrary('matmul', ('z',), {'arg1': 'x', 'arg2': 'y'})" in repr(program)
    assert parse_program(repr(program), {}) == program
    assert pickle.loads(pickle.dumps(program)) == program


def test_files_of_programs_have_it(tmp_path: Path) -> None:
    fuser.save(product(), tmp_path / "p")
    assert np.array_equal(fuser.load(tmp_path / "p").run([X, Y])[0], X @ Y)


def test_what_it_reads_and_writes() -> None:
    accesses = accesses_of(CallLibrary("linear", ("z",), {"arg1": "x", "arg2": "w", "bias": "b"}))
    assert accesses.reads == ("x", "w", "b")
    assert accesses.writes == ("z",)


def test_a_recording_runs_it_again_on_what_is_there_now() -> None:
    device = SimulatorDevice()
    x, y = (DeviceTensor.from_numpy(a, device) for a in (X, Y))
    captured = product().capture([x, y], device=device)
    device.copy_from_host(x.address, 2 * X, 0)
    np.testing.assert_allclose(np.asarray(captured.replay()[0]), 2 * X @ Y, rtol=1e-6)
    other = DeviceTensor.from_numpy(X + 1, device)
    np.testing.assert_allclose(np.asarray(captured.run([other, y])[0]), (X + 1) @ Y, rtol=1e-6)
    assert captured.counters()["instantiated"] == 1  # other addresses are told to the graph


def test_edges_of_a_recording_come_from_its_bytes() -> None:
    device = SimulatorDevice()
    w = RNG.standard_normal((5, 4)).astype(np.float32)
    program = HostProgram(
        ("x", "y", "w"),
        ("a", "b", "c"),
        (
            Allocate("a", (4, 5), DataType.Float),
            CallLibrary("matmul", ("a",), {"arg1": "x", "arg2": "y"}),
            Allocate("b", (4, 4), DataType.Float),
            CallLibrary("matmul", ("b",), {"arg1": "a", "arg2": "w"}),
            Allocate("c", (5, 3), DataType.Float),
            CallLibrary("matmul", ("c",), {"arg1": "w", "arg2": "x"}),
        ),
    )
    captured = program.capture([DeviceTensor.from_numpy(a, device) for a in (X, Y, w)], device=device)
    assert captured.edges == ((), (0,), ())
    for out, want in zip(captured.replay(), (X @ Y, X @ Y @ w, w @ X), strict=True):
        np.testing.assert_allclose(np.asarray(out), want, rtol=1e-5, atol=1e-6)


def test_calls_that_do_not_wait_for_each_other_go_to_streams() -> None:
    program = HostProgram(
        ("x", "y"),
        ("a", "b"),
        (
            Allocate("a", (4, 5), DataType.Float),
            CallLibrary("matmul", ("a",), {"arg1": "x", "arg2": "y"}),
            Allocate("b", (4, 5), DataType.Float),
            CallLibrary("matmul", ("b",), {"arg1": "x", "arg2": "y"}),
        ),
    ).on_streams(2)
    assert len(program.verified.facts.streams) == 2
    for out in program.run([X, Y]):
        assert np.array_equal(out, X @ Y)


def test_the_explanation_says_which_library_and_why() -> None:
    program = product()
    program.run([X, Y])
    text = program.explain()
    assert "matmul(arg1 Float[4, 3], arg2 Float[3, 5]) by numpy" in text
    assert "why         matrix products need tensor cores" in text
    assert "beside" not in text
    wide = np.zeros((8, 6), np.float32)
    program.run([wide[::2, ::2], Y])
    assert "beside      arg1 is copied to a dense tensor: neither rows nor columns are dense in strides [12, 2]" in (
        program.explain()
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (CallLibrary("matmul", ("z",), {"arg1": "x"}), "argument 'arg2' is missing: matmul takes arg1, arg2"),
        (CallLibrary("matmul", ("z",), {"a": "x", "arg2": "y"}), "there is no argument 'a': matmul takes arg1, arg2"),
        (CallLibrary("matmul", ("z",), {"arg1": 2.0, "arg2": "y"}), "'arg1' is a tensor: give it a slot, not 2.0"),
        (CallLibrary("matmul", ("z", "x"), {"arg1": "x", "arg2": "y"}), "gives 1 results (out), and 2 slots are given"),
        (CallLibrary("matmul", ("x",), {"arg1": "x", "arg2": "y"}), "slot 'x' is memory that the call reads"),
        (CallLibrary("matmul", ("q",), {"arg1": "x", "arg2": "y"}), "slot 'q' is not defined"),
        (CallLibrary("matmul", ("x",), {"arg1": "z", "arg2": "y"}), "slot 'z' is read before anything was written"),
    ],
)
def test_programs_that_are_refused(call: CallLibrary, message: str) -> None:
    with pytest.raises(DefinitionRuntimeError, match=re.escape(message)):
        product(call=call)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CallLibrary("gemm", ("z",), {}), "one of 'matmul', 'linear'"),
        (lambda: CallLibrary("matmul", "z", {}), "outputs of CallLibrary are a sequence of slots, got 'z'"),
        (lambda: CallLibrary("matmul", ("z",), cast(Any, "xy")), "arguments of CallLibrary are a dict"),
    ],
)
def test_what_is_no_call(make: Any, message: str) -> None:
    with pytest.raises(DefinitionTypeError, match=re.escape(message)):
        make()


@pytest.mark.parametrize(
    ("shape", "dtype", "inputs", "message"),
    [
        ((4, 5), DataType.Float, (X, Y[:2]), "they have extents 3 and 2"),
        ((4, 4), DataType.Float, (X, Y), "matmul() gives out of Float[4, 5], and its slot has Float[4, 4]"),
        ((4, 5), DataType.Double, (X, Y), "gives out of Float[4, 5], and its slot has Double[4, 5]"),
        (
            (4, 5),
            DataType.Float,
            (X, Y.astype(np.float64)),
            "operands must have one dtype, got arg1 Float, arg2 Double",
        ),
    ],
)
def test_arguments_that_do_not_fit(shape: Any, dtype: DataType, inputs: Any, message: str) -> None:
    program = HostProgram(("x", "y"), ("z",), (Allocate("z", shape, dtype), MATMUL))
    with pytest.raises(InputRuntimeError, match=re.escape(message)):
        program.run(list(inputs))


def test_results_that_overlap_themselves_are_refused() -> None:
    with pytest.raises(InputRuntimeError, match="put several elements of shape"):
        product((0, 1)).run([X, Y])


def test_what_nobody_wrote_is_found_on_the_simulator() -> None:
    device = SimulatorDevice()
    address = device.allocate(48, 0).address
    tensor = DeviceTensor(device, DataType.Float, (4, 3), (3, 1), address, None, 0)
    with pytest.raises(Exception, match="matmul reads 48 elements of arg1 that were never written"):
        product().run([tensor, DeviceTensor.from_numpy(Y, device)], device=device)


# --- programs of the compiler -----------------------------------------------------------------------------------------


def kernels(program: HostProgram) -> list[str]:
    """What a program runs, in order."""
    found = [i for i in program.instructions if isinstance(i, (LaunchKernel, CallLibrary))]
    return [i.op if isinstance(i, CallLibrary) else "kernel" for i in found]


def test_what_stands_on_either_side_of_a_product_stays_one_kernel() -> None:
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        b = fd.define_tensor([-1], dtype=DataType.Float)
        mean = fd.ops.sum(x, dims=[1], keepdim=True)
        h = fd.ops.relu(fd.ops.sub(x, mean))
        y = fd.ops.matmul(h, w)
        z = fd.ops.add(y, fd.ops.broadcast(b, [True, False]))
        fd.add_output(fd.ops.div(fd.ops.exp(z), fd.ops.sum(fd.ops.exp(z), dims=[1], keepdim=True)))
    bias = RNG.standard_normal(5).astype(np.float32)
    assert kernels(fd.program([X, Y, bias])) == ["kernel", "matmul", "kernel"]
    fd.validate([X, Y, bias])


def test_an_input_that_a_call_reads_is_updated_behind_it() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], dtype=DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.matmul(x, y), x)
        fd.add_output(fd.ops.matmul(fd.ops.neg(x), y))
    x, y = (RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    old = x.copy()
    for _ in range(2):
        x[...] = old
        (out,) = fd.execute([x, y])
        np.testing.assert_allclose(x, old @ y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out, -old @ y, rtol=1e-5, atol=1e-6)


def test_views_of_a_product_are_aliases() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([4, 4], dtype=DataType.Float) for _ in range(2))
        z = fd.ops.matmul(x, y)
        fd.add_output(
            fd.ops.matmul(fd.ops.permute(fd.ops.reshape(z, [2, 2, 4]), [1, 2, 0]), fd.ops.reshape(z, [2, 2, 4]))
        )
    x, y = (RNG.standard_normal((4, 4)).astype(np.float32) for _ in range(2))
    assert kernels(fd.program([x, y])) == ["matmul", "matmul"]
    fd.validate([x, y])


def test_explain_says_what_was_handed_over_and_why() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.matmul(fd.from_array(X), fd.from_array(Y)))
    text = fd.explain([X, Y], file=False).stages["segments.py"]
    assert "# segment 0: a library: matrix products need tensor cores" in text


def test_one_kernel_is_no_library_call() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.matmul(fd.from_array(X), fd.from_array(Y)))
    with pytest.raises(SchedulingError, match="is computed by a library"):
        fuser.KernelCompiler(device=fuser.DeviceInfo.preset("H200")).compile(fd, [X, Y])
