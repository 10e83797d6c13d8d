"""Errors of execute, explain, manual execution and the executors: class, words, and the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    CompileParams,
    DataType,
    Fusion,
    FusionDefinition,
    FusionExecutorCache,
    HostProgram,
    KernelExecutor,
    LaunchKernel,
    LaunchParams,
    ParallelType,
    SchedulerType,
    extent,
)
from fuser.errors import (
    DefinitionError,
    InputError,
    InputRuntimeError,
    InputValueError,
    LaunchLimitError,
    SchedulingError,
)
from fuser.ir.ops.enums import MemoryType
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.simulator.device import SimulatorDevice

X = np.ones((3, 4), np.float32)
A, N, R, T, V = AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError


@pytest.fixture(autouse=True)
def _simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


def doubled() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1, -1], True, DataType.Float) * 2.0)
    return fd


def executed(how: str) -> FusionDefinition:
    fd = doubled()
    getattr(fd, how)([X])
    return fd


def empty() -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.define_tensor([-1], True, DataType.Float)
    return fd


NO_FUSION = "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."

EMPTY = "Fusion is empty! No output is named: call fd.add_output(tensor) in the `with` block."


def fusion_of(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion


ONE_WAY = "A definition is run in one of the two ways: define it again for the other."

# (what, call, class, beginning of the message)
STATES: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("execute undefined", lambda: FusionDefinition().execute([X]), N, NO_FUSION),
    ("manual undefined", lambda: FusionDefinition().manual_execute([X]), N, NO_FUSION),
    ("explain undefined", lambda: FusionDefinition().explain([X], file=False), N, NO_FUSION),
    ("program undefined", lambda: FusionDefinition().program([X]), N, NO_FUSION),
    ("validate undefined", lambda: FusionDefinition().validate([X]), N, NO_FUSION),
    ("execute empty", lambda: empty().execute([X]), N, EMPTY),
    ("manual empty", lambda: empty().manual_execute([X]), N, EMPTY),
    ("explain empty", lambda: empty().explain([X], file=False), N, EMPTY),
    (
        "execute after manual",
        lambda: executed("manual_execute").execute([X]),
        A,
        "KernelExecutor already exists! Use manual_execute() to execute the fusion. " + ONE_WAY,
    ),
    (
        "explain after manual",
        lambda: executed("manual_execute").explain([X], file=False),
        A,
        "KernelExecutor already exists! Use manual_execute() to execute the fusion. " + ONE_WAY,
    ),
    (
        "manual after execute",
        lambda: executed("execute").manual_execute([X]),
        A,
        "FusionExecutorCache already exists! Use execute() to execute the fusion. " + ONE_WAY,
    ),
    (
        "last repro",
        lambda: doubled().last_repro_script(),
        A,
        "fd.last_repro_script() cannot provide a repro because fd.execute(inputs, save_repro_inputs=True) was not executed!",
    ),
]


@pytest.mark.parametrize(("what", "call", "kind", "text"), STATES, ids=[s[0] for s in STATES])
def test_states(what: str, call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, DefinitionError), what
    first, *definition = caught.value.message.splitlines()
    assert first == text
    # Without outputs it is the definition that is to be changed.
    assert [line.strip() for line in definition[1:]] == (["with FusionDefinition() as fd:"] if text == EMPTY else [])
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


# --- option lists -----------------------------------------------------------------------------------------------------


def test_unknown_options() -> None:
    with pytest.raises(R) as caught:
        doubled().execute([X], _enable_options=["fast_maths"])
    assert "Unrecognized enable_option: fast_maths" in str(caught.value)
    with pytest.raises(R) as caught:
        doubled().execute([X], _disable_options=["fmas"])
    assert "Unrecognized disable_option: fmas" in str(caught.value)


def test_options_of_the_contract_are_accepted() -> None:
    """Also None, and code that differs is compiled apart."""
    fd = doubled()
    fd.execute([X], _enable_options=None, _disable_options=None)
    fd.execute([X], _enable_options=["kernel_profile", "static_fusion_count"], _disable_options=["nvtx"])
    assert fd.fec.counters()["kernels_compiled"] == 1
    fd.execute([X], _disable_options=["fma"])
    assert fd.fec.counters()["kernels_compiled"] == 2


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_refuses_what_execute_refuses() -> None:
    with pytest.raises(R, match="to be bound to a tensor of rank 2, but got a tensor of rank 1"):
        doubled().explain([X[0]], file=False)


def test_explain_shows_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    fd = doubled()
    explanation = fd.explain([X])
    assert capsys.readouterr().out.strip() == str(explanation).strip()
    names = list(explanation.stages)
    assert names[0] == "fusion.py"
    assert {"segments.py", "params.py", "schedule.py", "kernel.cu", "host.py"} <= set(names)
    assert next(n for n in names if n.startswith("kernel.0")) == "kernel.00-build_loop_nests.py"
    (kernel,) = fd.fec.kernels([X])
    assert explanation.stages["kernel.cu"] == kernel.source


# --- schedules --------------------------------------------------------------------------------------------------------


def scheduled(
    build: Callable[[FusionDefinition, Any, Any], None], shape: tuple[int, ...] = (-1, -1)
) -> FusionDefinition:
    """x * 2 under a schedule of the test's."""
    with FusionDefinition() as fd:
        x = fd.define_tensor(list(shape), True, DataType.Float)
        y = x * 2.0
        fd.add_output(y)
        build(fd, x, y)
    return fd


def test_block_above_1024_threads() -> None:
    fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.block_x), (2048, 3))
    with pytest.raises(R) as caught:
        fd.manual_execute([np.ones((2048, 3), np.float32)])
    assert isinstance(caught.value, SchedulingError)
    assert "the schedule needs 2048 threads per block, a block holds at most 1024: split the axis" in str(caught.value)
    assert "fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.block_x), (2048, 3))" in str(
        caught.value
    )


def test_block_above_1024_threads_at_launch() -> None:
    """The extent is known at the launch only."""
    fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.block_x))
    np.testing.assert_array_equal(fd.manual_execute([X])[0], X * 2)
    with pytest.raises(R) as caught:
        fd.manual_execute([np.ones((2000, 3), np.float32)])
    assert isinstance(caught.value, LaunchLimitError)
    assert caught.value.message == (
        "kernel fuser_kernel: a block of (2000, 1, 1) has 2000 threads, the device holds 1024: split the axis, as in "
        "tv.split(axis, 128), and bind the inner axis alone to threads"
    )
    assert "fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.block_x))" in str(caught.value)
    np.testing.assert_array_equal(fd.manual_execute([X])[0], X * 2)


def test_grid_beyond_the_device() -> None:
    text = "split the axis, or bind it to grid_x, which takes 2**31 - 1 blocks"
    for shape in ((-1, -1), (70000, 3)):
        fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.grid_y), shape)
        with pytest.raises(R) as caught:
            fd.manual_execute([np.ones((70000, 3), np.float32)])
        assert isinstance(caught.value, LaunchLimitError if shape[0] < 0 else SchedulingError)
        assert text in str(caught.value)
        assert "y.axis(0).parallelize(ParallelType.grid_y)" in str(caught.value)


def test_shared_memory_beyond_the_device() -> None:
    fd = scheduled(lambda fd, x, y: x.cache_after().set_memory_type(MemoryType.shared))
    with pytest.raises(LaunchLimitError) as caught:
        fd.manual_execute([np.ones((1000, 200), np.float32)])
    assert caught.value.message == (
        "kernel fuser_kernel: 800000 bytes of dynamic shared memory, the device holds 232448 for a block: split the axes of "
        "the tensor and inline it, so that a block holds a part of it"
    )
    assert "x.cache_after().set_memory_type(MemoryType.shared)" in str(caught.value)


def test_vectorize_what_is_no_copy() -> None:
    def build(fd: FusionDefinition, x: Any, y: Any) -> None:
        y.split(1, 4)
        y.axis(2).parallelize(ParallelType.vectorize)

    with pytest.raises(R) as caught:
        scheduled(build).manual_execute([X])
    assert "cannot be vectorized: only a copy can (cache_before or cache_after makes one)" in str(caught.value)
    assert "y = x * 2.0" in str(caught.value), "the user's line"


def test_vector_of_32_bytes() -> None:
    def build(fd: FusionDefinition, x: Any, y: Any) -> None:
        copy = x.cache_after()
        y.split(1, 8)
        fd.sched.transform_like(y)
        copy.axis(2).parallelize(ParallelType.vectorize)
        fd.sched.inline_most()

    with pytest.raises(R) as caught:
        scheduled(build).manual_execute([np.ones((4, 16), np.float32)])
    assert "one access would be 32 bytes, at most 16 and a power of two" in str(caught.value)


def test_outputs_stay_global() -> None:
    with pytest.raises(R, match="global"):
        scheduled(lambda fd, x, y: y.set_memory_type(MemoryType.shared))


def test_split_by_zero() -> None:
    with pytest.raises(R):
        scheduled(lambda fd, x, y: y.split(0, 0))


# --- executors --------------------------------------------------------------------------------------------------------


def test_run_before_compile() -> None:
    executor = KernelExecutor()
    assert not executor.is_compiled()
    assert not executor.is_programmatic_dependent_launch_enabled()
    with pytest.raises(SchedulingError) as caught:
        executor.run([X])
    assert caught.value.message == "the kernel is not compiled: call compile() first"
    assert "executor.run([X])" in str(caught.value)
    with pytest.raises(R, match="is not compiled"):
        _ = executor.kernel


def test_launch_constraints() -> None:
    fd = scheduled(lambda fd, x, y: y.axis(0).parallelize(ParallelType.block_x))
    executor = KernelExecutor()
    executor.compile(fusion_of(fd), [X])
    executor.run([X], LaunchParams(1, 1, 1, 3, 1, 1))
    with pytest.raises(R) as caught:
        executor.run([X], LaunchParams(-1, -1, -1, 4, -1, -1))
    message, *line = str(caught.value).splitlines()
    assert message == "launch constraint bdimx=4 contradicts the schedule, which needs 3"
    assert "executor.run([X], LaunchParams" in line[-1]


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        ({"index_type": DataType.Float}, R, "index_type must be DataType.Int32, DataType.Int or None"),
        ({"maxrregcount": 0}, R, "maxrregcount must be an int in 1..255, got 0"),
        ({"maxrregcount": 256}, R, "maxrregcount must be an int in 1..255, got 256"),
        ({"include_paths": ["/usr/include"]}, R, "include_paths must be empty: generated source includes no header"),
    ],
)
def test_compile_params(settings: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        KernelExecutor().compile(fusion_of(doubled()), [X], compile_params=CompileParams(**settings))
    assert text in str(caught.value)


def test_index_type_that_sizes_allow() -> None:
    executor = KernelExecutor()
    executor.compile(fusion_of(doubled()), [X], compile_params=CompileParams(index_type=DataType.Int))
    kernel = executor.kernel.kernel_ir
    assert kernel is not None
    assert kernel.index_bits == 64
    (out,) = executor.run([X])
    np.testing.assert_array_equal(out, X * 2)


def test_executor_cache_questions() -> None:
    fd = doubled()
    cache = FusionExecutorCache(fusion_of(fd))
    assert not cache.is_compiled([X])
    with pytest.raises(R) as caught:
        cache.get_most_recent_scheduled_ir()
    assert "nothing was executed yet" in str(caught.value)
    cache.execute([X])
    assert cache.is_compiled([X])
    assert not cache.is_compiled([X[:, :3]])
    assert "__global__" in cache.get_cuda_kernel([X])
    assert "# loops" in cache.get_scheduled_ir([X])
    assert cache.get_most_recent_scheduled_ir() == cache.get_scheduled_ir([X])
    with pytest.raises(NotImplementedError, match="use KernelExecutor for a schedule of your own"):
        FusionExecutorCache(fusion_of(fd), auto_schedule=False)


def test_scheduler_that_refuses() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True, DataType.Float)
        fd.add_output(fd.ops.sum(x, [1]))
    accepted, reason = fd.sched.can_schedule(fusion_of(fd), SchedulerType.pointwise, [X])
    assert not accepted
    assert "Scheduler _pointwise_ ***rejected*** because : " in reason
    assert "is reduced" in reason
    with pytest.raises(R):
        fd.sched.compute_heuristics(fusion_of(fd), SchedulerType.pointwise, [X])


# --- validate ---------------------------------------------------------------------------------------------------------


def test_validate() -> None:
    doubled().validate([X])
    doubled().validate([X], [X * 2])
    with pytest.raises(A) as caught:
        doubled().validate([X], [X * 3])
    assert isinstance(caught.value, InputError)
    assert "output 0 differs from the reference in 12 of 12 elements" in str(caught.value)
    with pytest.raises(A, match="the fusion returned 1 outputs, there are 2 references"):
        doubled().validate([X], [X, X])
    with pytest.raises(A, match=r"output 0 has shape \(3, 4\), the reference has shape \(4, 3\)"):
        doubled().validate([X], [X.T])
    doubled().manual_validate([X])
    with pytest.raises(A):
        doubled().manual_validate([X], [X])


@pytest.mark.parametrize(
    ("value", "device", "words"),
    [
        (
            None,
            None,
            "expected an array or a number, got NoneType: torch, CuPy, JAX and NumPy arrays and any object with ",
        ),
        (
            X.astype(object),
            None,
            "tensors of dtype object are not supported (input 0): pass .astype(np.float32), as DataType.Float is what",
        ),
        (X, "tpu", "device 'tpu' cannot be used; give an index, 'cuda:<index>' or 'simulator'"),
        (X, 300, "device index 300 is outside [0, 255]"),
    ],
)
def test_every_error_of_execute_has_a_line(value: Any, device: Any, words: str) -> None:
    """That of the input's definition, or else that of the call."""
    with pytest.raises(InputError) as caught:
        doubled().execute([value], device=device)
    assert caught.value.message.startswith(words)
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("dtype", "fits"), [(DataType.Int32, 2**31 - 1), (DataType.Int, 2**63 - 1)])
def test_numbers_out_of_range_are_told_at_every_call(dtype: DataType, fits: int, graph: bool) -> None:
    """Also where others of the shape have run."""
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1], dtype=dtype), fd.define_scalar(dtype=dtype)
        fd.add_output(x * n)
    x = DeviceTensor.from_numpy(np.ones(3, dtype.numpy), SimulatorDevice())
    for number in (1, 2, fits, fits + 1, ~fits, ~fits - 1, 3):
        if -fits - 1 <= number <= fits:
            (y,) = fd.execute([x, number], graph=graph)
            np.testing.assert_array_equal(y.numpy(), np.full(3, number, dtype.numpy))
            continue
        with pytest.raises(InputRuntimeError, match="is not compatible with the expected data type"):
            fd.execute([x, number], graph=graph)


def test_numbers_out_of_range_are_told_by_host_programs() -> None:
    with FusionDefinition() as fd:
        x, n = fd.define_tensor([-1], dtype=DataType.Int32), fd.define_scalar(dtype=DataType.Int32)
        fd.add_output(x * n)
    x = DeviceTensor.from_numpy(np.ones(3, np.int32), SimulatorDevice())
    (kernel,) = fd.program([x, 1]).kernels.values()
    program = HostProgram(
        inputs=("x", "n"),
        outputs=("y",),
        instructions=(Allocate("y", (extent("x", 0),), DataType.Int32), LaunchKernel(kernel, ("x", "y", "n"))),
    )
    captured = program.capture([x, 1])
    for run in (program.run, captured.run):
        for number in (1, 2**31, 2**70, -(2**31), 3):
            if -(2**31) <= number < 2**31:
                np.testing.assert_array_equal(run([x, number])[0].numpy(), np.full(3, number, np.int32))
                continue
            with pytest.raises(InputValueError, match="is out of the range of int"):
                run([x, number])
