"""Programs as parts of others: what they give alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import (
    Alias,
    Allocate,
    CallLibrary,
    Copy,
    DataType,
    Deallocate,
    Fill,
    ForLoop,
    FusionDefinition,
    HostProgram,
    If,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
    extent,
    less,
    scalar,
)
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.instructions import Instruction
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.fuzzing.random_host_programs import LENGTH, generate, generate_nested
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
X = np.arange(40, dtype=np.float32)
N = extent("x", 0)
Y = Allocate("y", (N,), DataType.Float)


def test_names(make_kernel: Any) -> None:
    """Inputs and outputs are those given, all others have the prefix."""
    kernel = make_kernel()
    inner = HostProgram(
        ("x", "n", "k"),
        ("y",),
        (
            Allocate("t", (N, scalar("n")), DataType.Float),
            Alias("row", "t", (N,), (1,), extent("t", 1)),
            Fill("row", 1.0),
            Y,
            SetStream("side"),
            SetStream(0),
            If(less(scalar("n"), N), (LaunchKernel(kernel, ("x", "y")),), (Fill("y", 2.0),)),
            Switch("k", ((Copy("y", "row"),),)),
            ForLoop("i", 0, N // 2, 1, (Switch(scalar("i"), ((Fill("y", 3.0),),)),)),
            Allocate("u", (N, N), DataType.Float),
            CallLibrary("matmul", ("u",), {"arg1": "t", "arg2": "t"}),
            RecordEvent(1),
            WaitEvent(1),
            Synchronize(),
            Deallocate("t"),
        ),
    )
    size, rows = scalar("size"), extent("a", 0)
    assert inner.inlined(("a", "size", "which"), ("out",), "p.") == (
        Allocate("p.t", (rows, size), DataType.Float),
        Alias("p.row", "p.t", (rows,), (1,), extent("p.t", 1)),
        Fill("p.row", 1.0),
        SetStream("p.side"),
        SetStream(0),
        If(less(size, rows), (LaunchKernel(kernel, ("a", "out")),), (Fill("out", 2.0),)),
        Switch("which", ((Copy("out", "p.row"),),)),
        ForLoop("p.i", 0, rows // 2, 1, (Switch(scalar("p.i"), ((Fill("out", 3.0),),)),)),
        Allocate("p.u", (rows, rows), DataType.Float),
        CallLibrary("matmul", ("p.u",), {"arg1": "p.t", "arg2": "p.t"}),
        RecordEvent("p.1"),
        WaitEvent("p.1"),
        Synchronize(),
        Deallocate("p.t"),
    )


COPIED: dict[str, tuple[tuple[Instruction, ...], tuple[str, ...], tuple[str, ...]]] = {
    "an output twice": ((Y, Copy("y", "x")), ("y", "y"), ("a", "b")),
    "an output that is an input": ((Fill("x", 5.0),), ("x",), ("a",)),
    "an output that is a view": ((Alias("v", "x", (40,), (1,)),), ("v",), ("a",)),
    "an output with strides": ((Allocate("y", (N,), DataType.Float, (1,)), Copy("y", "x")), ("y",), ("a",)),
    "one slot for two outputs": (
        (Y, Copy("y", "x"), Allocate("z", (N,), DataType.Float), Fill("z", 3.0)),
        ("y", "z"),
        ("a", "a"),
    ),
    "an output of all bodies": ((If(less(N, 4), (Y, Fill("y", 1.0)), (Y, Fill("y", 2.0))),), ("y",), ("a",)),
    "into an input": ((Y, Fill("y", 1.0), LaunchKernel(SCALE, ("x", "y", 3.0))), ("y",), ("x",)),
}


@pytest.mark.parametrize("case", COPIED)
def test_outputs_that_are_copied(case: str) -> None:
    instructions, outputs, given = COPIED[case]
    inner = HostProgram(("x",), outputs, instructions)
    made = tuple(Allocate(name, (N,), DataType.Float) for name in dict.fromkeys(given) if name != "x")
    outer = HostProgram(("x",), given, (*made, *inner.inlined(("x",), given, "p.")))
    assert sum(isinstance(i, Copy) for i in outer.instructions) > sum(isinstance(i, Copy) for i in inner.instructions)
    wanted = dict(zip(given, inner.run([X.copy()], device="simulator"), strict=True))
    for name, got in zip(given, outer.run([X.copy()], device="simulator"), strict=True):
        assert np.array_equal(got, wanted[name])


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_do_the_same_within_another(seed: int) -> None:
    device: Any = SimulatorDevice()
    device.checks = False
    if seed % 2:
        made = generate(seed, SCALE)
        inner, arrays, extra = made.program, made.arrays(seed), []
    else:
        nested = generate_nested(seed, SCALE, device=True)
        inner, arrays = nested.program, nested.arrays(seed)
        extra = [3, 1, DeviceTensor.from_numpy(np.array([1]), device), DeviceTensor.from_numpy(np.array(True), device)]
    inputs = tuple(f"in{k}" for k in range(len(inner.inputs)))
    outputs = tuple(f"out{k}" for k in range(len(inner.outputs)))
    outer = HostProgram(
        inputs,
        outputs,
        (*(Allocate(name, (LENGTH,), DataType.Float) for name in outputs), *inner.inlined(inputs, outputs, "p.")),
    )
    results: list[list[np.ndarray]] = []
    for program in (inner, outer):
        given = [DeviceTensor.from_numpy(a, device) for a in arrays]
        results.append([np.asarray(t) for t in (*program.run([*given, *extra]), *given)])
    for got, want in zip(results[1], results[0], strict=True):
        assert np.array_equal(got, want)


def test_what_the_compiler_makes_for_each_length_is_a_case() -> None:
    """Few rows and many are other kernels, and other numbers of them."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(shape=[-1, -1], contiguity=True)
        fd.add_output((x - x.mean(1, keepdim=True)).exp())
        fd.add_output(x.sum(0))
    given = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    lengths = (1, 8, 64)
    cases: list[tuple[Instruction, ...]] = []
    for n in lengths:
        inner = fd.program([given[:n]])
        views = (Alias(f"{name}{n}", name, (n, 32)) for name in ("x", "y"))
        cases.append((*views, *inner.inlined((f"x{n}",), (f"y{n}", "sums"), f"{n}.")))
    outer = HostProgram(
        ("x", "k"),
        ("y", "sums"),
        (
            Allocate("y", (64, 32), DataType.Float),
            Fill("y", 0.0),
            Allocate("sums", (32,), DataType.Float),
            Switch("k", cases, (Fill("sums", 0.0),)),
        ),
    )
    device: Any = SimulatorDevice()
    x, k = DeviceTensor.from_numpy(given, device), DeviceTensor.from_numpy(np.array([0]), device)
    captured = outer.capture([x, k])
    for case in (2, 0, 1, 2):
        device.copy_from_host(k.address, np.array([case]), 0)
        n = lengths[case]
        y, sums = captured.replay()
        part = given[:n].astype(np.float64)
        assert np.allclose(np.asarray(y)[:n], np.exp(part - part.mean(1, keepdims=True)), atol=1e-5)
        assert not np.asarray(y)[n:].any()
        assert np.allclose(np.asarray(sums), part.sum(0), atol=1e-4)
    assert captured.counters()["instantiated"] == 1


def test_names_that_do_not_fit() -> None:
    program = HostProgram(("x", "n"), ("y",), (Y, LaunchKernel(SCALE, ("x", "y", "n"))))
    with pytest.raises(DefinitionRuntimeError, match=r"has 2 inputs \(x, n\), and 1 are given \(a\)"):
        program.inlined(("a",), ("b",), "p.")
    with pytest.raises(DefinitionRuntimeError, match=r"has 1 outputs \(y\), and 2 are given \(b, c\)"):
        program.inlined(("a", "n"), ("b", "c"), "p.")
    with pytest.raises(DefinitionTypeError, match=r"takes a sequence of names of slots as inputs, got 'an'"):
        program.inlined("an", ("b",), "p.")
    with pytest.raises(DefinitionTypeError, match=r"as inputs, got \('a', 4\)"):
        program.inlined(("a", 4), ("b",), "p.")  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="a prefix for names, a text that is not empty, got ''"):
        program.inlined(("a", "n"), ("b",), "")
