"""Instructions with bodies: what is refused, which steps a call leaves, and that every way to run them gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fuser import (
    Alias,
    Allocate,
    Copy,
    DataType,
    Deallocate,
    Fill,
    ForLoop,
    HostProgram,
    If,
    LaunchKernel,
    RecordEvent,
    SetStream,
    Switch,
    Synchronize,
    WaitEvent,
    extent,
)
from fuser.errors import DefinitionRuntimeError, DefinitionTypeError, InputError, InputRuntimeError, InputTypeError
from fuser.host_ir.instructions.bodies import body_numbers, numbered, walk
from fuser.host_ir.instructions.expressions import equal, less, scalar
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.parse_program import parse_program
from fuser.host_ir.saved_programs import load, save
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.simulator.device import SimulatorDevice
from tests.devices.queue_device import QueueDevice
from tests.fuzzing.random_host_programs import generate_nested
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
N = extent("x", 0)
X = np.arange(40, dtype=np.float32)
Y = Allocate("y", (N,), DataType.Float)


def times(src: str, dst: str, number: Any = 2.0, kernel: CompiledKernel = SCALE) -> LaunchKernel:
    return LaunchKernel(kernel, (src, dst, number))


def chosen(kernel: CompiledKernel = SCALE) -> HostProgram:
    """y = 2 x for n below 4, 3 x for n = 4, else 0; times the first numbers up to k."""
    return HostProgram(
        ("x", "n", "k"),
        ("y",),
        (
            If(
                less(scalar("n"), 4),
                (Y, times("x", "y", 2.0, kernel)),
                (Y, Switch(scalar("n") - 4, ((times("x", "y", 3.0, kernel),),), (Fill("y", 0.0),))),
            ),
            ForLoop("i", 1, scalar("k") + 1, 1, (times("y", "y", "i", kernel),)),
        ),
    )


def test_a_program_with_bodies_prints_as_python_that_rebuilds_it(make_kernel: Any, golden: Any) -> None:
    program = chosen(make_kernel(scalars={"alpha": DataType.Float}))
    golden.check(repr(program))
    assert parse_program(repr(program), program.kernels) == program
    assert len(program.launches()) == 3
    assert list(program.kernels) == ["add_one_01234567"]


def test_numbers_are_those_of_reading() -> None:
    program = chosen()
    found = [type(i).__name__ for i in walk(program.instructions)]
    assert found == [
        "If",
        "Allocate",
        "LaunchKernel",
        "Allocate",
        "Switch",
        "LaunchKernel",
        "Fill",
        "ForLoop",
        "LaunchKernel",
    ]
    assert [k for k, _ in numbered(program.instructions)] == [0, 7]
    assert list(body_numbers(0, program.instructions[0])) == [1, 3]
    assert list(body_numbers(4, list(walk(program.instructions))[4])) == [5, 6]


def test_numbers_choose_and_what_they_choose_stands_beside_the_key() -> None:
    """Numbers that choose alike lead to the same steps, for every way to run."""
    device = SimulatorDevice()
    program = chosen()
    x = DeviceTensor.from_numpy(X, device)
    captured = program.capture([x, 0, 0])
    for n, factor in ((0, 2), (3, 2), (4, 3), (-7, 2), (5, 0), (9, 0)):
        for k, product in ((0, 1), (3, 6), (1, 1)):
            for run in (program.run, program.interpret, captured.run):
                assert np.array_equal(np.asarray(run([x, n, k])[0]), X * factor * product), (n, k)
    # Three kinds of n and three of k: the capture made the first of these calls, of the others 10 are like one before.
    assert program.counters()["replays"] == 18 - (9 - 1)
    # A path of other commands is another graph; of the same, other nodes.
    assert captured.counters()["instantiated"] > 3


def test_extents_choose_by_the_key() -> None:
    device = SimulatorDevice()
    program = HostProgram(("x",), ("y",), (Y, If(less(N, 30), (times("x", "y"),), (Copy("y", "x"),))))
    for length, factor in ((40, 1), (20, 2), (40, 1), (20, 2)):
        (y,) = program.run([DeviceTensor.from_numpy(X[:length], device)])
        assert np.array_equal(np.asarray(y), X[:length] * factor)
    assert program.counters()["replays"] == 2


def test_numbers_compared_with_what_the_program_makes_belong_to_the_key() -> None:
    program = HostProgram(
        ("x", "n"),
        ("y",),
        (
            Allocate("t", (N // 2,), DataType.Float),
            Y,
            Copy("y", "x"),
            ForLoop("i", 0, 3, 1, (If(equal(scalar("i"), scalar("n")), (times("y", "y"),)),)),
            If(less(extent("t", 0), scalar("n")), (Fill("y", 1.0),)),
        ),
    )
    assert program.verified.needs.fixing == {"n"}
    assert program.verified.needs.deciding == frozenset()
    for _ in range(2):
        for n, want in ((0, X * 2), (5, X), (21, np.ones(40)), (2, X * 2)):
            assert np.array_equal(program.run([X, n], device="simulator")[0], want)
    assert program.counters()["replays"] == 4


@pytest.mark.parametrize("kind", [int, np.int64, np.asarray, bool])
def test_numbers_of_every_kind_choose(kind: Any) -> None:
    program = HostProgram(("x", "n"), ("x",), (If(scalar("n"), (times("x", "x"),), (times("x", "x", 3.0),)),))
    for _ in range(2):
        for n, factor in ((1, 2), (0, 3)):
            x = X.copy()
            program.run([x, kind(n)], device="simulator")
            assert np.array_equal(x, X * factor)
    assert program.counters()["replays"] == 2


def test_numbers_that_choose_are_integers() -> None:
    program = HostProgram(("x", "n"), ("x",), (If(less(scalar("n"), 3), (times("x", "x"),)),))
    program.run([X.copy(), 1], device="simulator")
    for _ in range(2):
        with pytest.raises(InputTypeError, match=r"Scalar value 1.5 of n is used as a size and must be an integer"):
            program.run([X.copy(), 1.5], device="simulator")


def test_a_loop_goes_over_parts_with_memory_of_its_own() -> None:
    """Sums of parts: each turn makes memory, which ends with it."""
    device = QueueDevice(2)
    program = HostProgram(
        ("x",),
        ("y",),
        (
            Y,
            ForLoop(
                "i",
                0,
                N,
                8,
                (
                    Alias("from", "x", (8,), (1,), scalar("i")),
                    Alias("to", "y", (8,), (1,), scalar("i")),
                    Allocate("t", (8,), DataType.Float),
                    times("from", "t"),
                    times("t", "to", scalar("i") + 1),
                ),
            ),
        ),
    )
    x = DeviceTensor.from_numpy(X, device)
    want = X * 2 * (np.arange(40) // 8 * 8 + 1)
    for run in (program.interpret, program.run, program.run):
        assert np.array_equal(np.asarray(run([x])[0]), want)
        assert set(device.taken) == {x.address}
    # The memory of one turn served all.
    assert len(device.free[0]) == 2


def test_long_loops_are_left_to_the_interpreter() -> None:
    program = HostProgram(("x", "n"), ("x",), (ForLoop("i", 0, scalar("n"), 1, (Fill("x", 1.0),)),))
    for _ in range(2):
        program.run([X[:1].copy(), 5000], device="simulator")
    assert program.interpreted() == {"more than 4096 steps": 2}


def test_a_loop_whose_steps_are_0_is_refused() -> None:
    program = HostProgram(("x", "n"), ("x",), (ForLoop("i", 0, 3, scalar("n"), (times("x", "x"),)),))
    for _ in range(2):
        with pytest.raises(
            InputRuntimeError, match=r"a loop cannot be run: its steps are scalar\('n'\), which is 0 for these inputs"
        ) as caught:
            program.run([X.copy(), 0], device="simulator")
        notes = "\n".join(getattr(caught.value, "__notes__", []))
        assert "while running instruction 0 of a host program: ForLoop('i', 0, 3, scalar('n'), ...)" in notes
        assert np.array_equal(program.run([X.copy(), 2], device="simulator")[0], X * 4)


def test_an_error_names_the_instruction_of_a_body() -> None:
    program = HostProgram(
        ("x", "n"), ("x",), (If(scalar("n"), (Alias("far", "x", (8,), (1,), 100), Fill("far", 1.0))),)
    )
    with pytest.raises(InputError) as caught:
        program.run([X.copy(), 1], device="simulator")
    (note,) = [n for n in getattr(caught.value, "__notes__", []) if "while running" in n]
    assert note == "while running instruction 1 of a host program: Alias('far', 'x', (8,), strides=(1,), offset=100)"


def test_a_saved_program_has_its_bodies(tmp_path: Any) -> None:
    save(chosen(), tmp_path / "p")
    program = load(tmp_path / "p")
    assert repr(program) == repr(chosen())
    assert np.array_equal(program.run([X, 4, 2], device="simulator")[0], X * 6)


MALFORMED: dict[str, tuple[tuple[Instruction, ...], tuple[str, ...], str]] = {
    "what one body makes": (
        (If(less(N, 4), (Y, Fill("y", 1)), ()), Fill("y", 2)),
        (),
        "instruction 3, Fill('y', 2): slot 'y' is not defined here: it ended with the body that made it; defined are 'x'. What "
        "is used behind a body is made before it, or, by Allocate, alike in all bodies of an If or Switch",
    ),
    "what bodies make otherwise": (
        (If(less(N, 4), (Y, Fill("y", 1)), (Allocate("y", (4,), DataType.Float), Fill("y", 1))), Fill("y", 2)),
        (),
        "slot 'y' is not defined here: it ended with the body",
    ),
    "what a loop makes": ((ForLoop("i", 0, 4, 1, (Y, Fill("y", 1))), Fill("y", 2)), (), "slot 'y' is not defined here"),
    "an alias of two memories": (
        (Y, If(less(N, 4), (Alias("a", "x"),), (Alias("a", "y"),))),
        (),
        "instruction 3, Alias('a', 'y'): slot 'a' is memory of 'y' here and of 'x' elsewhere: use two names",
    ),
    "a read of what one body writes": (
        (Y, If(less(N, 4), (Fill("y", 1),)), Copy("x", "y")),
        (),
        "slot 'y' is read before anything was written to it",
    ),
    "memory given back by one body": (
        (Y, If(less(N, 4), (Deallocate("y"),))),
        (),
        "instruction 1, If(extent('x', 0) < 4, ...): slot 'y' is deallocated in a body that may run or not: what was made "
        "outside of it is deallocated outside, or in every body",
    ),
    "memory given back by a loop": (
        (Y, ForLoop("i", 0, 4, 1, (Deallocate("y"),))),
        (),
        "slot 'y' is deallocated in a body that may run again: what was made outside of it is deallocated outside",
    ),
    "a use behind all that give it back": (
        (Y, If(less(N, 4), (Deallocate("y"),), (Deallocate("y"),)), Fill("y", 1)),
        (),
        "slot 'y' is used after the Deallocate of 'y'",
    ),
    "the index behind its loop": (
        (ForLoop("i", 0, 4, 1, ()), Allocate("z", (scalar("i"),), DataType.Float)),
        (),
        "slot 'i' is not defined here: it ended with the body that made it",
    ),
    "the index as a tensor": (
        (ForLoop("i", 0, 4, 1, (Fill("i", 1),)),),
        (),
        "slot 'i' is the index of a loop, but a tensor",
    ),
    "a name that is taken": ((ForLoop("x", 0, 4, 1, ()),), (), "slot 'x' is defined twice"),
    "steps of 0": ((ForLoop("i", 0, 4, 0, ()),), (), "a loop has no steps of 0"),
    "an event of one body": (
        (If(less(N, 4), (RecordEvent(1),)), WaitEvent(1)),
        (),
        "event 1 is waited for, and it may not have been recorded: a body does that, which may not run; recorded are none. "
        "Record it before that body too, or in all bodies of an If or Switch",
    ),
    "a body that ends elsewhere": (
        (If(less(N, 4), (SetStream(1),)),),
        (),
        "a body begins on stream 0 and ends on stream 1: put SetStream(0) at its end",
    ),
    "a write in one body": (
        (SetStream(1), SetStream(0), If(less(N, 4), (Fill("x", 1),)), SetStream(1), Fill("x", 2)),
        (),
        "slot 'x' is written on stream 1, and nothing orders that after instruction 3, Fill('x', 1), which writes it on",
    ),
    "two turns": (
        (ForLoop("i", 0, 4, 1, (SetStream(1), Fill("x", 1), SetStream(0), Alias("z", "x"), Fill("z", 2))),),
        (),
        "slot 'z', the memory of 'x', is written on stream 0",
    ),
    "the next turn": (
        (
            SetStream(1),
            SetStream(0),
            ForLoop(
                "i", 0, 4, 1, (SetStream(1), Fill("x", 1), RecordEvent(1), SetStream(0), WaitEvent(1), Fill("x", 2))
            ),
        ),
        (),
        "instruction 4, Fill('x', 1): slot 'x' is written on stream 1, and nothing orders that after instruction 8",
    ),
    "memory that ends before its last use": (
        (If(less(N, 4), (Y, SetStream(1), Fill("y", 1), SetStream(0))),),
        (),
        "slot 'y' is ended on stream 0, and nothing orders that after instruction 3, Fill('y', 1), which writes it on stream 1",
    ),
    "a wait in a loop without turns": (
        (
            SetStream(1),
            Fill("x", 1),
            RecordEvent(1),
            SetStream(0),
            ForLoop("i", 0, N, 1, (WaitEvent(1),)),
            Fill("x", 2),
        ),
        (),
        "slot 'x' is written on stream 0, and nothing orders that after instruction 1",
    ),
    "a stream that waits in the body that begins it": (
        (
            *(SetStream(2), Fill("x", 1), RecordEvent(1), SetStream(0)),
            If(less(N, 4), (SetStream(1), WaitEvent(1), SetStream(0))),
            *(SetStream(1), Fill("x", 2)),
        ),
        (),
        "slot 'x' is written on stream 1, and nothing orders that after instruction 1",
    ),
    "a stream that begins in one body": (
        (If(less(N, 4), (SetStream(1), SetStream(0))), Fill("x", 1), SetStream(1), Fill("x", 2)),
        (),
        "slot 'x' is written on stream 1, and nothing orders that after instruction 3",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_bodies_are_refused(case: str) -> None:
    instructions, outputs, message = MALFORMED[case]
    with pytest.raises(DefinitionRuntimeError) as caught:
        HostProgram(("x",), outputs, instructions)
    assert message in str(caught.value)


WELL_FORMED: dict[str, tuple[Instruction, ...]] = {
    "a name in two bodies": (If(less(N, 4), (Y, Fill("y", 1)), (Allocate("y", (2,), DataType.Float), Fill("y", 1))),),
    "a name made again behind": (ForLoop("i", 0, 4, 1, (Y, Fill("y", 1))), Y, Fill("y", 1)),
    "memory given back by every body": (Y, If(less(N, 4), (Deallocate("y"),), (Fill("y", 1), Deallocate("y")))),
    "a stream that every body begins": (
        Fill("x", 1),
        If(less(N, 4), (SetStream(1), SetStream(0)), (SetStream(1), SetStream(0))),
        SetStream(1),
        Fill("x", 2),
    ),
    "a stream of one body, begun or not": (
        If(less(N, 4), (SetStream(1), Fill("x", 1), RecordEvent(1), SetStream(0), WaitEvent(1))),
        Fill("x", 1),
        RecordEvent(2),
        SetStream(1),
        WaitEvent(2),
        Fill("x", 2),
    ),
    "what was on a stream that one body began": (
        If(less(N, 4), (SetStream(1), Fill("x", 1), SetStream(0))),
        SetStream(1),
        Fill("x", 2),
    ),
    "turns of which some begin a stream": (
        ForLoop("i", 0, 4, 1, (If(less(scalar("i"), 2), (SetStream(1), Fill("x", 1), SetStream(0))),)),
    ),
    "what a loop writes": (Y, ForLoop("i", 0, N, 1, (Fill("y", 1),)), Copy("x", "y")),
}


@pytest.mark.parametrize("case", WELL_FORMED)
def test_well_formed_bodies_are_taken(case: str) -> None:
    program = HostProgram(("x",), ("x",), WELL_FORMED[case])
    for run in (program.interpret, program.run, program.run):
        x = X.copy()
        run([x], device=QueueDevice(1))


def test_bodies_are_sequences_of_instructions() -> None:
    with pytest.raises(
        DefinitionTypeError, match=r"a body of If is a sequence of instructions, got one: write \(Fill\(...\),\)"
    ):
        If(less(N, 4), Fill("x", 1))  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="a body of ForLoop is a sequence of instructions, and 'x' is none"):
        ForLoop("i", 0, 4, 1, ("x",))  # type: ignore[arg-type]
    with pytest.raises(DefinitionTypeError, match="Switch takes a sequence of bodies, got Fill"):
        Switch(N, Fill("x", 1))  # type: ignore[arg-type]


@pytest.mark.parametrize("condition", [1.5, None, scalar("n") == scalar("n"), np.bool_(True)])
def test_conditions_are_those_of_sizes(condition: Any) -> None:
    """`==` of two expressions asks whether they are one object."""
    with pytest.raises(
        DefinitionTypeError,
        match=r"If takes a condition, less\(a, b\), .* of sizes .*, a size, or the name of a tensor of one element, got",
    ):
        If(condition, ())


def test_decided_conditions_print_as_what_rebuilds_them() -> None:
    program = HostProgram(("x",), ("x",), (If(less(0, 1), (Fill("x", 1),)), If(less(1, 0), (Fill("x", 2),))))
    assert parse_program(repr(program), {}) == program


def test_the_host_waits_in_a_body() -> None:
    program = HostProgram(("x",), ("x",), (If(less(N, 4), (Synchronize(),)),))
    assert program.verified.facts.synchronizes


@pytest.mark.in_turns
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("chunk", range(3))
def test_random_programs_give_the_same_in_every_way(chunk: int, *, streams: bool) -> None:
    for seed in range(chunk * 8, chunk * 8 + 8):
        made = generate_nested(seed, SCALE, streams=streams)
        assert parse_program(repr(made.program), made.program.kernels) == made.program
        arrays = made.arrays(seed)
        device = QueueDevice(seed)
        captured = made.program.capture([DeviceTensor.from_numpy(arrays[0], device), 0, 0])
        for n, m in ((0, 0), (3, 1), (2, 3), (3, 2), (1, 1), (3, 1), (0, 0)):
            want = made.expected(arrays, n, m)
            for run in (made.program.interpret, made.program.run, captured.run):
                x = DeviceTensor.from_numpy(arrays[0], device)
                (out,) = run([x, n, m])
                for got, expected in zip((out, x), want, strict=True):
                    assert np.array_equal(np.asarray(got), expected), f"seed {seed}, n {n}, m {m}, {run}"
