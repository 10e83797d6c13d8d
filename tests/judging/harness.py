"""Runs scheduled fusions on the simulator: lower, plan, allocate, launch, read back, compare with the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fuser.errors import FuserError
from fuser.ir.facts import (
    Aligned,
    DenseStride,
    Disjoint,
    ExtentDivisible,
    Fact,
    Facts,
    LoopBound,
    StrideDivisible,
    UnitStride,
)
from fuser.ir.fusion.fusion import GENERATOR_STATE, Fusion, Tensor
from fuser.ir.kernel.kernel import Kernel
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.pipeline import lower_fusion
from fuser.runtime.devices.device import Allocation, Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.plan_evaluation import PlanEvaluation, evaluation_of
from fuser.runtime.launch import Launch
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.machine import BlockPosition
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import Report, run_kernel
from tests.judging import oracle
from tests.judging.oracle import Array, Number

NARROW = LoopBound(2**30, ())
"""Asks for 32-bit indices."""


def collect_facts(fusion: Fusion, inputs: Sequence[Array | Number], *, alignment: int = 16) -> Facts:
    """What lowering may know about the inputs: dense strides, divisors up to 16, alignment, disjointness, 32-bit indices."""
    facts: set[Fact] = {NARROW}
    for val, given in zip(fusion.inputs, inputs, strict=True):
        if not isinstance(val, Tensor) or val.is_cpu or not fusion.uses(val):
            continue
        x = np.asarray(given)
        strides = [s // x.itemsize for s in x.strides]
        facts.add(Aligned(val.name, alignment))
        for d, n in enumerate(x.shape):
            if n == 1:
                continue
            divisor = next(k for k in (16, 8, 4, 2, 1) if n % k == 0)
            if divisor > 1 and n > 0:
                facts.add(ExtentDivisible(val.name, d, divisor))
            if strides[d] == 1:
                facts.add(UnitStride(val.name, d))
                continue
            inner = next((e for e in range(x.ndim) if e != d and x.shape[e] * strides[e] == strides[d] != 0), None)
            if inner is not None and x.shape[inner] > 1:
                facts.add(DenseStride(val.name, d, inner))
            else:
                nbytes = next(k for k in (16, 8, 4, 2, 1) if strides[d] * x.itemsize % k == 0)
                facts.add(StrideDivisible(val.name, d, nbytes))
    # Every array is uploaded apart from the others.
    written = {o.alias_of.name for o in fusion.outputs if o.alias_of is not None}
    others = [t.name for t in fusion.input_tensors if not t.is_cpu]
    facts.update(Disjoint(name, other) for name in written for other in others if other != name)
    return frozenset(facts)


@dataclass(frozen=True, slots=True, eq=False)
class Lowered:
    """A lowered fusion with its launch plan as code."""

    fusion: Fusion
    kernel: Kernel
    evaluation: PlanEvaluation

    @staticmethod
    def of(scheduled: ScheduleBuilder, facts: Facts = frozenset()) -> Lowered:
        """Lower a schedule."""
        return Lowered.from_kernel(scheduled.fusion, lower_fusion(scheduled, facts), facts)

    @staticmethod
    def from_kernel(fusion: Fusion, kernel: Kernel, facts: Facts = frozenset()) -> Lowered:
        """Wrap a kernel lowered before (or a mutant of one)."""
        compiled = uncompiled(kernel, facts)
        return Lowered(fusion, kernel, PlanEvaluation(compiled))


def uncompiled(kernel: Kernel, facts: Facts = frozenset()) -> CompiledKernel:
    """A kernel for the simulator: IR without a cubin."""
    return CompiledKernel(
        source="",
        entry=kernel.name,
        arch="sm_90a",
        cubin=None,
        kernel_ir=kernel,
        parameters=kernel.parameters,
        plan=kernel.plan,
        facts=facts,
        resources=None,
        max_block_size=0,
        register_limit=0,
        options=(),
        nvrtc_version=None,
        content_hash="",
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outputs in order of `fusion.output_tensors`, absent where the simulator reported an error."""

    outputs: dict[str, Array]
    report: Report | None
    error: SimulatorError | None = None

    def check(self) -> dict[str, Array]:
        """The outputs; raises what the simulator reported."""
        if self.error is not None:
            raise self.error
        return self.outputs


def _span(shape: Sequence[int], strides: Sequence[int]) -> int:
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _flat(x: Array) -> Array:
    """The storage of a strided array, first element to last."""
    strides = [s // x.itemsize for s in x.strides]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(x, (_span(x.shape, strides),), (x.itemsize,)))


def _upload(memory: DeviceMemory, x: Array, name: str) -> int:
    return memory.upload(_flat(x), name)


def run(
    lowered: Lowered,
    inputs: Sequence[Array | Number],
    *,
    seed: int = 0,
    block_order: Sequence[BlockPosition] | None = None,
    interleave: bool | None = None,
    checks: bool = True,
    state: tuple[int, int] = (0, 0),
) -> Outcome:
    """Launch once with memory of its own. Raises LaunchError and InputError; defects of the kernel are in the outcome.

    An in-place output that the kernel may write directly shares its input's storage, others get a temporary. `state` is
    that of the generator, (seed, offset).
    """
    fusion, plan = lowered.fusion, lowered.kernel.plan
    memory = DeviceMemory()
    tensors = [(t, np.asarray(x)) for t, x in zip(fusion.inputs, inputs, strict=True) if isinstance(t, Tensor)]
    scalars = [x for v, x in zip(fusion.inputs, inputs, strict=True) if not isinstance(v, Tensor)]
    scalars += [x for name, x in zip(GENERATOR_STATE, state, strict=True) if name in plan.scalar_arguments]
    sizes = [x.shape for _, x in tensors]
    strides = [tuple(s // x.itemsize for s in x.strides) for _, x in tensors]
    addresses = {t.name: 0 if t.is_cpu else _upload(memory, x, t.name) for t, x in tensors}
    evaluation = lowered.evaluation
    by_name = {t.name: t for t in fusion.output_tensors}
    alias = {o.tensor.name: o.alias_of.name for o in fusion.outputs if o.alias_of is not None}
    in_place = getattr(plan, "in_place", ())
    made = [n for n in plan.tensor_arguments if n not in addresses]
    host_tensors = {t.name: x for t, x in tensors if t.is_cpu}
    layouts = dict(zip(made, evaluation.output_layouts(sizes, strides, scalars), strict=True))
    for name, (shape, steps) in layouts.items():
        if name in in_place:
            addresses[name] = addresses[alias[name]]
        else:
            addresses[name] = memory.allocate(_span(shape, steps) * by_name[name].dtype.itemsize, name)
    assert not host_tensors, "rank-0 host tensors are passed as scalars by the host program"
    every = [addresses[n] for n in plan.tensor_arguments]
    sizes += [layouts[n][0] for n in made]
    strides += [layouts[n][1] for n in made]
    values = evaluation.evaluate(sizes, strides, every, scalars)
    report: Report | None = None
    if not values.is_empty:
        spaces = [
            memory.allocate(n * w.dtype.itemsize, w.name)
            for n, w in zip(values.workspaces, plan.workspaces, strict=True)
        ]
        counters = memory.upload(np.zeros(values.semaphores or 0, np.int32), "semaphores")
        launch = Launch(values.grid, values.block, values.shared_bytes, plan.cluster, plan.cooperative)
        report = run_kernel(
            lowered.kernel,
            launch,
            evaluation.arguments(values, every, spaces, counters),
            memory,
            seed=seed,
            block_order=block_order,
            interleave=interleave,
            checks=checks,
        )
        if report.error is not None:
            return Outcome({}, report, report.error)
    outputs: dict[str, Array] = {}
    try:
        for t in fusion.output_tensors:
            if t.name not in layouts:
                outputs[t.name] = next(x for u, x in tensors if u.name == t.name)
                continue
            outputs[t.name] = _download(memory, addresses[t.name], t.dtype, *layouts[t.name], t.name)
    except SimulatorError as error:
        return Outcome({}, report, error)
    return Outcome(outputs, report)


def _download(
    memory: DeviceMemory, address: int, dtype: DataType, shape: tuple[int, ...], strides: tuple[int, ...], name: str
) -> Array:
    """An output; SimulatorError if an element was never written (what lies between the elements may be)."""
    result = np.empty(shape, dtype.numpy)
    data, written = memory.bytes_at(address, _span(shape, strides) * dtype.itemsize)
    steps = tuple(s * dtype.itemsize for s in strides)
    flags = np.lib.stride_tricks.as_strided(written, shape, steps)
    if not flags.all():
        where = np.argwhere(flags == 0)[0].tolist()
        raise SimulatorError(Kind.uninitialised_read, f"{name}{where} was never written", buffer=name)
    result[...] = np.lib.stride_tricks.as_strided(data.view(dtype.numpy), shape, steps)
    return result


def run_on(
    device: Device, compiled: CompiledKernel, fusion: Fusion, inputs: Sequence[Array], stream: int = 0
) -> dict[str, Array]:
    """Launch a compiled kernel of a fusion without scalar inputs on any device; outputs by name.

    Output storage is filled with ones first, so that an element that was not written is seen.
    """
    evaluation = evaluation_of(compiled)
    plan = evaluation.plan
    held: list[Allocation] = []

    def allocate(nbytes: int) -> int:
        held.append(device.allocate(max(nbytes, 1), stream))
        return held[-1].address

    addresses: dict[str, int] = {}
    sizes: list[tuple[int, ...]] = []
    strides: list[tuple[int, ...]] = []
    for t, x in zip(fusion.input_tensors, inputs, strict=True):
        sizes.append(x.shape)
        strides.append(tuple(s // x.itemsize for s in x.strides))
        flat = _flat(x)
        addresses[t.name] = allocate(flat.nbytes)
        if flat.size:
            device.copy_from_host(addresses[t.name], flat, stream)
    by_name = {t.name: t for t in fusion.output_tensors}
    alias = {o.tensor.name: o.alias_of.name for o in fusion.outputs if o.alias_of is not None}
    made = [n for n in plan.tensor_arguments if n not in addresses]
    layouts = dict(zip(made, evaluation.output_layouts(sizes, strides, ()), strict=True))
    for name, (shape, steps) in layouts.items():
        nbytes = _span(shape, steps) * by_name[name].dtype.itemsize
        if name in plan.in_place:
            addresses[name] = addresses[alias[name]]
        else:
            addresses[name] = allocate(nbytes)
            device.fill(addresses[name], b"\xff", max(nbytes, 1), stream)
    every = [addresses[n] for n in plan.tensor_arguments]
    values = evaluation.evaluate(
        [*sizes, *(layouts[n][0] for n in made)], [*strides, *(layouts[n][1] for n in made)], every, ()
    )
    if not values.is_empty:
        spaces = [allocate(n * w.dtype.itemsize) for n, w in zip(values.workspaces, plan.workspaces, strict=True)]
        counters = device.semaphores(values.semaphores, stream) if values.semaphores else 0
        launch = Launch(values.grid, values.block, values.shared_bytes, plan.cluster, plan.cooperative)
        device.launch(compiled, launch, evaluation.arguments(values, every, spaces, counters), stream)
    outputs: dict[str, Array] = {}
    for name, (shape, steps) in layouts.items():
        flat = np.empty(_span(shape, steps), by_name[name].dtype.numpy)
        if flat.size:
            device.copy_to_host(flat, addresses[name], stream)
        outputs[name] = np.lib.stride_tricks.as_strided(flat, shape, tuple(s * flat.itemsize for s in steps)).copy()
    for allocation in held:
        device.release(allocation, stream)
    return outputs


def check(
    scheduled: ScheduleBuilder,
    inputs: Sequence[Array | Number],
    *,
    facts: Facts | None = None,
    tolerance: float = 0.0,
    seeds: Sequence[int] = (0,),
) -> Kernel:
    """Lower, run and compare every output with the oracle, bitwise unless a relative tolerance is given; the kernel."""
    known = collect_facts(scheduled.fusion, inputs) if facts is None else facts
    lowered = Lowered.of(scheduled, known)
    expected = oracle.evaluate(scheduled.fusion, inputs)
    for seed in seeds:
        found = run(lowered, inputs, seed=seed).check()
        for name, value in found.items():
            assert_same(value, expected[name], name, tolerance)
    return lowered.kernel


def assert_same(found: Array, expected: Array, name: str, tolerance: float = 0.0) -> None:
    """Equal shapes and values; nan equals nan, and with no tolerance only equal bits (the sign of zero aside) pass."""
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}"
    if tolerance:
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance, err_msg=name
        )
    else:
        np.testing.assert_array_equal(found, expected, err_msg=name)


def refusal(scheduled: ScheduleBuilder, facts: Facts = frozenset()) -> str:
    """The message with which lowering refuses a schedule; fails if it does not."""
    try:
        lower_fusion(scheduled, facts)
    except FuserError as error:
        return str(error)
    raise AssertionError("the schedule was lowered")


def integers(
    shape: Sequence[int], dtype: DataType = DataType.Float, *, seed: int = 0, low: int = -4, high: int = 4
) -> Array:
    """Small whole numbers: every order of summation is exact."""
    return np.random.default_rng(seed).integers(low, high + 1, tuple(shape)).astype(dtype.numpy)
