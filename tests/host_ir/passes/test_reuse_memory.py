"""Memory that serves several slots of a program: where it may, where it may not, and that nothing else changes."""

from __future__ import annotations

import random
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
    FusionDefinition,
    HostProgram,
    If,
    LaunchKernel,
    SetStream,
    extent,
)
from fuser.host_ir.instructions.expressions import less
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.passes.reuse_memory import reuse_memory
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice
from tests.devices.queue_device import QueueDevice
from tests.host_ir.kernels import scale_kernel

SCALE = scale_kernel()
N, M = extent("x", 0), extent("w", 0)
Float = DataType.Float


def times(src: str, dst: str, number: float = 2.0) -> LaunchKernel:
    return LaunchKernel(SCALE, (src, dst, number))


def chain(*sizes: Any, dtypes: tuple[DataType, ...] = (Float,) * 4) -> list[Instruction]:
    """Fills and copies from slot to slot, each of which is given back behind its only reader."""
    found: list[Instruction] = []
    for k, size in enumerate(sizes):
        found += [Allocate(f"t{k}", size if isinstance(size, tuple) else (size,), dtypes[k])]
        found.append(Fill(f"t{k}", k) if k == 0 else LaunchKernel(SCALE, (f"t{k - 1}", f"t{k}", 2.0)))
        if k:
            found.append(Deallocate(f"t{k - 1}"))
    return found


def made(instructions: Any) -> list[str]:
    return [i.slot for i in instructions if isinstance(i, Allocate)]


def test_a_chain_needs_two() -> None:
    program = reuse_memory(("t4",), chain(N, N, N, N, N, dtypes=(Float,) * 5))
    assert made(program) == ["t0", "t1", "t4"]
    assert [i for i in program if isinstance(i, Alias)] == [Alias("t2", "t0", (N,)), Alias("t3", "t1", (N,))]
    assert [i.slot for i in program if isinstance(i, Deallocate)] == ["t0", "t1"]


@pytest.mark.parametrize(
    ("sizes", "reused"),
    [
        ((N, N, N), True),
        ((N * 4, N, N * 3 + 0), True),
        (((N, 4), N, (2, N)), True),
        ((N, N, N + 1), False),
        ((N, N, M), False),
        ((8, N, 8), True),
        ((8, N, 9), False),
    ],
)
def test_memory_is_taken_where_it_is_enough_for_all_sizes(sizes: Any, *, reused: bool) -> None:
    assert made(reuse_memory((), chain(*sizes))) == (["t0", "t1"] if reused else ["t0", "t1", "t2"])


def test_what_stays_as_it_is() -> None:
    """Other element types, strides of its own, and what goes out."""
    half = chain(N, N, N, dtypes=(Float, Float, DataType.Half))
    assert made(reuse_memory((), half)) == ["t0", "t1", "t2"]
    plain = chain(N, N, N)
    assert made(reuse_memory(("t2",), plain)) == ["t0", "t1", "t2"]
    strided = [Allocate("t2", (N,), Float, (2,)) if isinstance(i, Allocate) and i.slot == "t2" else i for i in plain]
    assert made(reuse_memory((), strided)) == ["t0", "t1", "t2"]
    assert reuse_memory((), [SetStream(1), *plain]) == (SetStream(1), *plain)
    branch = If(less(N, 4), (Fill("x", 1),))
    assert reuse_memory((), [branch, *plain]) == (branch, *plain)


def test_branches_that_may_run_at_once_still_may() -> None:
    """What is made from an input alone does not wait for readers of memory that was given back."""
    apart: list[Instruction] = [
        Allocate("a", (N,), Float),
        times("x", "a"),
        Allocate("y", (N,), Float),
        times("a", "y"),
        Deallocate("a"),
        Allocate("b", (N,), Float),
        times("x", "b"),
        Allocate("z", (N,), Float),
        times("b", "z"),
        Deallocate("b"),
    ]
    assert reuse_memory(("y", "z"), apart) == tuple(apart)
    # By way of an alias it does depend on it.
    behind = [times("half", "b") if i == times("x", "b") else i for i in apart]
    behind.insert(5, Alias("half", "y", (N,)))
    assert made(reuse_memory(("y", "z"), behind)) == ["a", "y", "z"]


def test_an_update_in_between_is_an_order_too() -> None:
    """`b` is made from what is written over an input, behind all readers of `a`."""
    program: list[Instruction] = [
        Allocate("a", (N,), Float),
        times("x", "a"),
        Copy("x", "a"),
        Deallocate("a"),
        Allocate("b", (N,), Float),
        times("x", "b"),
        Copy("w", "b"),
        Deallocate("b"),
    ]
    assert made(reuse_memory((), program)) == ["a"]


def random_chain(rng: random.Random) -> HostProgram:
    """Slots of some lengths, each made from one before, some given back, some written again."""
    instructions: list[Instruction] = []
    live: list[str] = ["x"]
    lengths = {"x": 64}
    for k in range(14):
        source = rng.choice(live[-3:])
        length = rng.choice([n for n in (64, 32, 16) if n <= lengths[source]])
        of = source
        if length < lengths[source]:
            of = f"part{k}"
            instructions.append(Alias(of, source, (length,), (1,), rng.randrange(lengths[source] - length + 1)))
        name = f"t{k}"
        instructions += [Allocate(name, (length,), Float), times(of, name, float(rng.choice([-1, 2, 3])))]
        live.append(name)
        lengths[name] = length
        same = [t for t in live if lengths[t] == length and t != name]
        if same and rng.random() < 0.3:
            instructions.append(Copy(rng.choice(same), name))
        while len(live) > 3 and rng.random() < 0.6:
            gone = live.pop(rng.randrange(1, len(live) - 1))
            instructions.append(Deallocate(gone))
    return HostProgram(("x",), tuple(live), instructions)


@pytest.mark.parametrize("chunk", range(3))
def test_random_programs_do_the_same_with_less_memory(chunk: int) -> None:
    """In every way to run, and a graph has the same edges."""
    fewer = 0
    for seed in range(chunk * 5, chunk * 5 + 5):
        before = random_chain(random.Random(seed))
        after = HostProgram(before.inputs, before.outputs, reuse_memory(before.outputs, before.instructions))
        saved = len(made(before.instructions)) - len(made(after.instructions))
        if not saved:
            continue
        fewer += saved
        device = QueueDevice(seed)
        x = np.random.default_rng(seed).integers(-4, 4, 64).astype(np.float32)
        want = [np.asarray(t) for t in before.interpret([DeviceTensor.from_numpy(x, device)])]
        graphs = [p.capture([DeviceTensor.from_numpy(x, device)]) for p in (before, after)]
        assert graphs[0].edges == graphs[1].edges
        for run in (after.interpret, after.run, graphs[1].run):
            for got, expected in zip(run([DeviceTensor.from_numpy(x, device)]), want, strict=True):
                assert np.array_equal(np.asarray(got), expected), f"seed {seed}"
    assert fewer > 2


def segments(count: int) -> FusionDefinition:
    """A kernel after another, each of which reads what the one before has made."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], contiguity=True)
        for _ in range(count):
            x = fd.ops.segment_set(fd.ops.neg(x))
        fd.add_output(fd.ops.add(x, 1.0))
    return fd


def test_programs_of_fusions_take_memory_again() -> None:
    device = SimulatorDevice()
    a = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    x = DeviceTensor.from_numpy(a, device)
    fd = segments(4)
    program = fd.program([x])
    assert len(program.launches()) == 5
    assert len(made(program.instructions)) == 3
    assert np.array_equal(np.asarray(fd.execute([x])[0]), a + 1)
    captured = program.capture([x])
    assert np.array_equal(np.asarray(captured.replay()[0]), a + 1)
    # Two of the intermediates, and the output behind one of them.
    most, total = program.memory() or (0, 0)
    assert (most, total) == (2 * a.nbytes, 3 * a.nbytes)
    assert f"memory: at most {most} bytes at a time, of {total} that are asked for" in program.explain()


def test_memory_that_is_given_back_counts_once() -> None:
    device = SimulatorDevice()
    program = HostProgram(
        ("x",),
        ("y",),
        (
            Allocate("a", (N,), Float),
            times("x", "a"),
            Deallocate("a"),
            Allocate("y", (N,), Float),
            times("x", "y"),
        ),
    )
    assert program.memory() is None
    program.run([DeviceTensor.from_numpy(np.ones(8, np.float32), device)])
    assert program.memory() == (32, 64)
