"""Building host programs: verification, printing, explanation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fuser.errors import DefinitionError, DefinitionRuntimeError, DefinitionTypeError
from fuser.host_ir.instructions.expressions import extent, scalar, stride
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Copy,
    Deallocate,
    Fill,
    Instruction,
    LaunchKernel,
    RecordEvent,
    SetStream,
)
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.program import HostProgram
from fuser.ir.integers.integers import symbol
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.launch_params import LaunchParams

N = extent("x", 0)


def test_sizes_are_expressions_of_extents() -> None:
    size = (N * 2 + 6) // 2 % extent("x", 1)
    assert str(size) == "(extent('x', 0) + 3)%extent('x', 1)"
    assert (N * 128 + 5) // 128 is N
    assert str(stride("x", 1) + scalar("n")) == "scalar('n') + stride('x', 1)"


def test_program_prints_as_python_that_rebuilds_it(make_kernel: Any, golden: Any) -> None:
    kernel = make_kernel()
    program = HostProgram(
        ("x", "n"),
        ("z", "x"),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y")),
            Allocate("z", (N, 2), DataType.Float, strides=(1, N)),
            Fill("z", float("inf")),
            Alias("column", "z", (N,), strides=(1,), offset=N),
            Copy("column", "y"),
            Deallocate("y"),
            LaunchKernel(kernel, ("column", "x"), LaunchParams(-1, -1, -1, 128, 1, 1)),
        ),
    )
    text = repr(program)
    golden.check(text)
    again = parse_program(text, program.kernels)
    assert again == program
    assert hash(again) == hash(program)
    assert repr(again) == text
    assert program.updates == ("x",)


def test_kernels_with_equal_labels_are_told_apart(make_kernel: Any) -> None:
    first, second = make_kernel(), make_kernel()
    launches = [LaunchKernel(k, ("x", "x")) for k in (first, second, first)]
    program = HostProgram(["x"], ["x"], launches)
    assert list(program.kernels) == ["add_one_01234567", "add_one_01234567_2"]
    assert parse_program(repr(program), program.kernels) == program


def test_explain_tells_plan_facts_and_counters(make_kernel: Any) -> None:
    from fuser.ir.facts import ExtentDivisible
    from fuser.ir.kernel.launch_plan import BlockExchange

    kernel = make_kernel(facts=[ExtentDivisible("x", 0, 4)])
    assert kernel.plan is not None
    kernel = replace(kernel, plan=replace(kernel.plan, exchanges=(BlockExchange.last_block,)))
    program = HostProgram(["x"], ["y"], [Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))])
    text = program.explain()
    assert "grid        ((n + 127)//128, 1, 1)" in text
    assert "where       n = extent 0 of x" in text
    assert "exchange    a counter: the block that arrives last combines the results of all blocks" in text
    assert "assumes     ExtentDivisible(tensor='x', dim=0, divisor=4)" in text


ALLOCATE = Allocate("y", (N,), DataType.Float)

MALFORMED: dict[str, tuple[tuple[Instruction, ...], tuple[str, ...], str]] = {
    "undefined slot": ((Fill("y", 1),), (), "slot 'y' is not defined; defined are 'x'"),
    "double definition": ((ALLOCATE, ALLOCATE), (), "slot 'y' is defined twice"),
    "allocate over an input": ((Allocate("x", (1,), DataType.Float),), (), "slot 'x' is defined twice"),
    "use after deallocate": ((ALLOCATE, Deallocate("y"), Fill("y", 1)), (), "'y' is used after the Deallocate of 'y'"),
    "alias after deallocate": (
        (ALLOCATE, Alias("z", "y"), Deallocate("y"), Fill("z", 1)),
        (),
        "'z' is used after the Deallocate of 'y'",
    ),
    "double deallocate": ((ALLOCATE, Deallocate("y"), Deallocate("y")), (), "'y' is used after the Deallocate of 'y'"),
    "deallocate of an input": ((Deallocate("x"),), (), "slot 'x' was not made by Allocate"),
    "deallocate of an alias": ((ALLOCATE, Alias("z", "y"), Deallocate("z")), (), "slot 'z' was not made by Allocate"),
    "undefined output": ((), ("y",), "output 'y' is not defined"),
    "deallocated output": ((ALLOCATE, Fill("y", 1), Deallocate("y")), ("y",), "output 'y' was deallocated"),
    "unwritten output": ((ALLOCATE,), ("y",), "output 'y' was never written"),
    "read before write": ((ALLOCATE, Copy("x", "y")), (), "slot 'y' is read before anything was written to it"),
    "dtypes of a copy": (
        (ALLOCATE, Fill("y", 1), Allocate("z", (N,), DataType.Half), Copy("z", "y")),
        (),
        "slot 'z' has dtype Half, but Float is needed here",
    ),
    "ranks of a copy": (
        (ALLOCATE, Fill("y", 1), Allocate("z", (N, 1), DataType.Float), Copy("z", "y")),
        (),
        "slot 'z' has rank 2, but rank 1 is needed here",
    ),
    "copy to itself": ((Copy("x", "x"),), (), "a slot is copied into itself"),
    "extent of a missing dimension": (
        (ALLOCATE, Allocate("z", (extent("y", 1),), DataType.Float)),
        (),
        "extent('y', 1): the slot has rank 1",
    ),
    "extent of an undefined slot": ((Allocate("z", (extent("w", 0),), DataType.Float),), (), "slot 'w' is not defined"),
    "foreign symbol": ((Allocate("z", (symbol("k"),), DataType.Float),), (), "the symbol k is no extent"),
    "strides of another rank": ((Allocate("z", (N,), DataType.Float, (1, 1)),), (), "1 sizes but 2 strides"),
    "negative size": ((Allocate("z", (-1,), DataType.Float),), (), "size -1 is negative"),
    "negative stride": ((Allocate("z", (4,), DataType.Float, (-1,)),), (), "stride -1 is negative"),
    "number from a tensor": ((ALLOCATE, Allocate("z", (scalar("y"),), DataType.Float)), (), "a number is needed here"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_program_is_refused(case: str) -> None:
    instructions, outputs, message = MALFORMED[case]
    with pytest.raises(DefinitionError) as caught:
        HostProgram(("x",), outputs, instructions)
    assert message in str(caught.value)


def test_error_names_the_instruction() -> None:
    with pytest.raises(DefinitionRuntimeError) as caught:
        HostProgram(("x",), (), (ALLOCATE, Fill("z", 1)))
    assert (
        caught.value.message
        == "HostProgram, instruction 1, Fill('z', 1): slot 'z' is not defined; defined are 'x', 'y'"
    )


def test_launch_is_checked_against_the_kernel(make_kernel: Any) -> None:
    kernel = make_kernel(scalars={"alpha": DataType.Double})

    def build(*args: object, allocate: Instruction = ALLOCATE) -> HostProgram:
        return HostProgram(("x", "alpha"), ("y",), (allocate, LaunchKernel(kernel, args)))  # type: ignore[arg-type]

    assert build("x", "y", "alpha").verified.facts.scalar_inputs == {"alpha"}
    assert build("x", "y", 2.5).verified.facts.scalar_inputs == frozenset()
    with pytest.raises(DefinitionRuntimeError, match=r"takes 3 arguments \(x, y, alpha\), got 2"):
        build("x", "y")
    with pytest.raises(DefinitionRuntimeError, match=r"argument 0 is the tensor x, got the number 1"):
        build(1, "y", 2.0)
    with pytest.raises(DefinitionRuntimeError, match=r"slot 'y' has dtype Half, but Float is needed here"):
        build("x", "y", 2.0, allocate=Allocate("y", (N,), DataType.Half))
    with pytest.raises(DefinitionRuntimeError, match=r"slot 'y' has rank 2, but rank 1 is needed here"):
        build("x", "y", 2.0, allocate=Allocate("y", (N, 1), DataType.Float))
    with pytest.raises(DefinitionRuntimeError, match=r"slot 'y' is a tensor, but a number is needed here"):
        build("x", "y", "y")
    with pytest.raises(DefinitionRuntimeError, match=r"slot 'y' is read before anything was written to it"):
        HostProgram(("x",), (), (ALLOCATE, LaunchKernel(make_kernel(), ("y", "x"))))


def test_inputs_of_two_dtypes_are_refused(make_kernel: Any) -> None:
    half = make_kernel("half", inputs={"x": DataType.Half})
    with pytest.raises(DefinitionRuntimeError, match=r"slot 'x' has dtype Float, but Half is needed here"):
        HostProgram(("x",), (), (ALLOCATE, LaunchKernel(make_kernel(), ("x", "y")), LaunchKernel(half, ("x", "y"))))


def test_index_tensors_are_int_tensors(make_kernel: Any) -> None:
    kernel = make_kernel(inputs={"x": DataType.Index})
    program = HostProgram(("x",), ("y",), (ALLOCATE, LaunchKernel(kernel, ("x", "y"))))
    assert program.verified.facts.dtypes["x"] is DataType.Int


def test_instructions_check_their_types(make_kernel: Any) -> None:
    with pytest.raises(DefinitionTypeError, match="Allocate takes a DataType, got 'float'"):
        Allocate("y", (1,), "float")  # type: ignore[arg-type]
    with pytest.raises(
        DefinitionTypeError, match=r"Allocate takes ints and expressions of extent\(slot, dim\), got 1.5"
    ):
        Allocate("y", (1.5,), DataType.Float)  # type: ignore[arg-type]
    with pytest.raises(
        DefinitionTypeError, match="LaunchKernel takes a CompiledKernel or a compiled RtcKernel, got str"
    ):
        LaunchKernel("kernel", ())  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="the name of a slot, a number or a size, got None"):
        LaunchKernel(make_kernel(), (None,))  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="instruction 0 is a str, no instruction"):
        HostProgram((), (), ("Fill",))  # type: ignore[arg-type]


def test_numbers_of_numpy_are_numbers(make_kernel: Any) -> None:
    """And print as such, as sizes do that turn out to be constants."""
    kernel = make_kernel(scalars={"alpha": DataType.Float})
    program = HostProgram(
        ("x",),
        ("x",),
        (
            Fill("x", np.float32(2.5)),
            SetStream(np.int64(1)),
            Fill("x", np.float64(1)),
            RecordEvent(np.int32(0)),
            *(LaunchKernel(kernel, ("x", "x", number)) for number in (np.float64(2), np.int64(2), N - N)),
        ),
    )
    assert parse_program(repr(program), program.kernels) == program
    assert [i.args[2] for i in program.launches()] == [2.0, 2, 0]


def test_raw_kernel_needs_launch_sizes(make_kernel: Any) -> None:
    from fuser.runtime.devices.strided_copy import strided_copy_kernel

    kernel = strided_copy_kernel(4, 0, "sm_90a")
    sizes = LaunchParams(1, 1, 1, 32, 1, 1)
    with pytest.raises(DefinitionRuntimeError, match="raw source without a launch plan: pass launch=LaunchParams"):
        HostProgram(("x",), ("x",), (LaunchKernel(kernel, ("x", "x", 1)),))
    with pytest.raises(DefinitionRuntimeError, match=r"takes 3 arguments \(dst, src, total\), got 2"):
        HostProgram(("x",), ("x",), (LaunchKernel(kernel, ("x", "x"), sizes),))
    with pytest.raises(DefinitionRuntimeError, match=r"parameter src is a const unsigned int\*: give it a slot"):
        HostProgram(("x",), ("x",), (LaunchKernel(kernel, ("x", 0, 1), sizes),))
    program = HostProgram(("x", "z", "n"), ("z",), (LaunchKernel(kernel, ("z", "x", "n"), sizes),))
    assert program.updates == ("z",)
    assert program.verified.facts.scalar_inputs == {"n"}


@pytest.mark.parametrize("names", [{"inputs": "xin", "outputs": ("xin",)}, {"inputs": ("xin",), "outputs": "xin"}])
def test_one_name_instead_of_a_tuple(names: dict[str, Any]) -> None:
    (what,) = (key for key, value in names.items() if isinstance(value, str))
    with pytest.raises(DefinitionTypeError) as caught:
        HostProgram(instructions=(), **names)
    assert caught.value.message == (
        f"HostProgram: {what} must be a sequence of names, got the text 'xin': write ('xin',)"
    )
