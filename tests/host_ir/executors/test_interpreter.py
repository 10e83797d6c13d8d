"""Running host programs on a fake device: values, layouts, memory, counters, and every failure."""

from __future__ import annotations

import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.errors import InputError, InputRuntimeError, InputTypeError, LaunchError
from fuser.host_ir.instructions.expressions import extent, less, scalar, stride
from fuser.host_ir.instructions.instructions import (
    Alias,
    Allocate,
    Copy,
    Deallocate,
    Fill,
    If,
    Instruction,
    LaunchKernel,
)
from fuser.host_ir.program import HostProgram
from fuser.ir.facts import Aligned, Disjoint, ExtentDivisible, IndexBound, LoopBound, UnitStride
from fuser.ir.integers.integers import as_int, symbol
from fuser.ir.kernel.launch_plan import ExtentOf, ScalarOf, ScalarStep, StrideOf, Workspace
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.kernels.launch_params import LaunchParams

N = extent("x", 0)
n = symbol("n", 0)


def add_one(arrays: list[np.ndarray[Any, Any]], values: list[Any]) -> None:
    arrays[1][: values[0]] = arrays[0][: values[0]] + 1


@pytest.fixture
def program(device, make_kernel) -> HostProgram:
    device.behaviours["add_one"] = add_one
    return HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(make_kernel(), ("x", "y"))))


def test_runs_a_kernel_and_gives_memory_back(device, program) -> None:
    x = np.arange(300, dtype=np.float32)
    (y,) = program.run([x], device=device)
    np.testing.assert_array_equal(y, x + 1)
    assert type(y) is np.ndarray
    assert device.live == {}
    ((_, entry, launch, arguments),) = device.named("launch")
    assert (entry, launch.grid, launch.block, arguments[2:]) == ("add_one", (3, 1, 1), (128, 1, 1), (300,))
    counters = program.counters()
    assert (counters["runs"], counters["launches"], counters["allocations"]) == (1, 1, 1)


def test_one_program_serves_many_shapes(device, program) -> None:
    for size in (1, 128, 129, 1000):
        x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
        (y,) = program.run([x], device=device)
        np.testing.assert_array_equal(y, x + 1)
    assert program.counters()["launches"] == 4


def test_empty_tensor_skips_the_kernel(device, program) -> None:
    (y,) = program.run([np.empty(0, np.float32)], device=device)
    assert y.shape == (0,)
    assert device.named("launch") == []
    assert program.counters()["skipped_launches"] == 1
    assert device.live == {}


@pytest.mark.parametrize("position", range(6))
def test_an_extent_of_zero_anywhere_skips_the_kernel(device, make_kernel, position) -> None:
    sizes: list[Any] = [1, 1, 1, 32, 1, 1]
    sizes[position] = n
    kernel = make_kernel(grid=sizes[:3], block=sizes[3:])
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))))
    program.run([np.empty(0, np.float32)], device=device)
    program.run([np.empty(2, np.float32)], device=device)
    assert len(device.named("launch")) == 1


def test_broken_fact_names_tensor_dimension_and_fact(device, make_kernel) -> None:
    cases: list[tuple[Any, np.ndarray[Any, Any], str]] = [
        (
            ExtentDivisible("x", 0, 8),
            np.zeros(12, np.float32),
            r"dimension 0 of x that is divisible by 8, but got extent 12",
        ),
        (UnitStride("x", 0), np.zeros(12, np.float32)[::2], r"stride 1 in dimension 0 of x, but got shape \[6\]"),
        (IndexBound("x", 5), np.zeros(12, np.float32), r"offsets of at most 5 elements in x"),
        (LoopBound(10, (n * 2,)), np.zeros(12, np.float32), r"loops of at most 10 steps"),
        (
            Aligned("x", 16),
            np.zeros(12, np.float32)[1:5],
            r"x aligned to 16 bytes, but got a base address aligned to \d",
        ),
    ]
    for fact, x, message in cases:
        kernel = make_kernel(facts=[fact])
        program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))))
        with pytest.raises(InputRuntimeError, match=message) as caught:
            program.run([x], device=device)
        assert "instruction 1 of a host program" in caught.value.__notes__[0]
        assert device.live == {}
        assert device.named("launch") == []


def test_overlap_of_two_arguments_is_a_fact(device, make_kernel) -> None:
    kernel = make_kernel(facts=[Disjoint("x", "y")])
    program = HostProgram(("x",), (), (Alias("z", "x"), LaunchKernel(kernel, ("x", "z"))))
    with pytest.raises(InputRuntimeError, match="x and y in memory that does not overlap"):
        program.run([np.zeros(4, np.float32)], device=device)


def test_misaligned_host_arrays_stay_misaligned(device, program) -> None:
    base = np.zeros(64, np.float32)
    offset = (-base.ctypes.data // 4) % 4
    for shift in range(4):
        program.run([base[offset + shift : offset + shift + 8]], device=device)
        address = device.named("launch")[-1][3][0]
        assert address % 16 == 4 * shift


def test_strides_scalars_and_steps_reach_the_kernel(device, make_kernel) -> None:
    s = symbol("s", None)
    k = symbol("k", 0)
    kernel = make_kernel(
        inputs={"x": DataType.Double},
        outputs={"y": DataType.Double},
        scalars={"alpha": DataType.Float, "double_rows": DataType.Int, "rows": DataType.Int},
        steps=[
            ScalarStep("rows", DataType.Int, "extent", (0, 0)),
            ScalarStep("double_rows", DataType.Int, "mul", ("rows", 2)),
        ],
        bindings={n: ExtentOf(0, 0), s: StrideOf(0, 0), k: ScalarOf("double_rows")},
        grid=(k, 1, 1),
    )
    program = HostProgram(
        ("x", "alpha"), ("y",), (Allocate("y", (N,), DataType.Double), LaunchKernel(kernel, ("x", "y", "alpha")))
    )
    x = np.arange(40, dtype=np.float64)[::4]
    program.run([x, 3], device=device)
    ((_, _, launch, arguments),) = device.named("launch")
    assert launch.grid == (20, 1, 1)
    assert arguments[2:] == (10, 4, 20, 3.0, 20, 10)
    assert isinstance(arguments[5], float)


def test_workspaces_and_semaphores(device, make_kernel) -> None:
    kernel = make_kernel(
        workspaces=[Workspace("partial", DataType.Double, n * 2), Workspace("flags", DataType.Int32, as_int(3))],
        semaphores=as_int(7),
    )
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))))
    program.run([np.zeros(5, np.float32)], device=device)
    assert [call[1] for call in device.named("allocate")] == [20, 20, 80, 12]
    assert device.named("semaphores") == [("semaphores", 7)]
    assert device.live == {}


def test_inplace_update_reaches_the_callers_array(device, make_kernel) -> None:
    device.behaviours["add_one"] = add_one
    program = HostProgram(("x",), ("x", "x"), (LaunchKernel(make_kernel(), ("x", "x")),))
    base = np.arange(10, dtype=np.float32)
    x = base[2:6]
    first, second = program.run([x], device=device)
    assert first is x
    assert second is x
    np.testing.assert_array_equal(base, [0, 1, 3, 4, 5, 6, 6, 7, 8, 9])


def test_reversed_arrays_are_laid_out_anew_and_written_back(device, make_kernel) -> None:
    device.behaviours["add_one"] = add_one
    program = HostProgram(("x",), ("x",), (LaunchKernel(make_kernel(), ("x", "x")),))
    base = np.arange(4, dtype=np.float32)
    (x,) = program.run([base[::-1]], device=device)
    np.testing.assert_array_equal(base, [1, 2, 3, 4])
    np.testing.assert_array_equal(x, [4, 3, 2, 1])


def test_overlapping_and_read_only_arrays_are_not_updated(device, make_kernel) -> None:
    program = HostProgram(("x",), (), (LaunchKernel(make_kernel(), ("x", "x")),))
    with pytest.raises(InputRuntimeError, match=r"Input 0, x, is updated in place, but its elements overlap in memory"):
        program.run([np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (4,), (0,))], device=device)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InputRuntimeError, match="it is read-only"):
        program.run([frozen], device=device)
    assert device.calls == []


def test_expanded_inputs_keep_their_stride(device, make_kernel) -> None:
    s = symbol("s", None)
    kernel = make_kernel(bindings={n: ExtentOf(0, 0), s: StrideOf(0, 0)})
    program = HostProgram(("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(kernel, ("x", "y"))))
    program.run([np.broadcast_to(np.float32(3), (1000,))], device=device)
    assert device.named("launch")[0][3][2:] == (1000, 0)
    assert device.named("copy_from_host") == [("copy_from_host", 4)]


def test_outputs_have_the_strides_asked_for(device) -> None:
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (extent("x", 0), extent("x", 1)), DataType.BFloat16, (1, N)), Fill("y", 1.5))
    )
    (y,) = program.run([np.zeros((3, 4), np.float32)], device=device)
    assert y.shape == (3, 4)
    assert y.strides == (2, 6)
    assert y.dtype == ml_dtypes.bfloat16
    assert (y.astype(np.float32) == 1.5).all()


@pytest.mark.parametrize(("value", "bits"), [(1 + 2.0**-8 + 2.0**-40, 0x3F81), (2.0**32 + 2.0**24 + 1, 0x4F81)])
def test_fills_of_16_bits_round_once(device, value: float, bits: int) -> None:
    program = HostProgram(("x",), ("x",), (Fill("x", value),))
    (x,) = program.run([np.zeros(3, ml_dtypes.bfloat16)], device=device)
    np.testing.assert_array_equal(x.view(np.uint16), [bits] * 3)


def test_views_of_inputs_launch_nothing_and_share_memory(device) -> None:
    program = HostProgram(
        ("x",),
        ("row", "t", "row"),
        (
            Alias("row", "x", (extent("x", 1),), (stride("x", 1),), stride("x", 0)),
            Alias("t", "x", (extent("x", 1), N), (stride("x", 1), stride("x", 0))),
        ),
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    row, t, again = program.run([x], device=device)
    np.testing.assert_array_equal(row, x[1])
    np.testing.assert_array_equal(t, x.T)
    assert np.shares_memory(row, x)
    assert np.shares_memory(t, x)
    assert again is row
    assert device.calls == []


def test_views_of_results_share_one_copy(device) -> None:
    program = HostProgram(
        ("x",),
        ("y", "half"),
        (Allocate("y", (4,), DataType.Float), Fill("y", 2.0), Alias("half", "y", (2,), offset=2)),
    )
    y, half = program.run([np.zeros(1)], device=device)
    assert np.shares_memory(y, half)
    assert half.shape == (2,)
    assert device.live == {}


def test_alias_outside_its_memory_is_refused(device) -> None:
    program = HostProgram(("x",), ("y",), (Alias("y", "x", (N,), offset=1),))
    with pytest.raises(InputRuntimeError, match=r"needs bytes \[4, 20\) of 'x', which has \[0, 16\)"):
        program.run([np.zeros(4, np.float32)], device=device)


@pytest.mark.parametrize(
    ("x", "strides"),
    [
        (np.arange(12, dtype=np.float32).reshape(3, 4), (4, 1)),
        (np.arange(12, dtype=np.float32).reshape(3, 4), (1, 3)),
        (np.arange(24, dtype=np.float32).reshape(3, 8)[:, ::2], (5, 1)),
        (np.broadcast_to(np.arange(4, dtype=np.float32), (3, 4)), (1, 4)),
        (np.arange(12, dtype=np.float32).reshape(4, 3).T, (1, 3)),
        (np.arange(1, dtype=np.float32).reshape(1, 1), (7, 9)),
    ],
    ids=["same", "transposed", "padded", "expanded", "column major", "one element"],
)
def test_copy_between_any_layouts(device, x, strides) -> None:
    program = HostProgram(
        ("x",),
        ("y",),
        (Allocate("y", (extent("x", 0), extent("x", 1)), DataType.Float, strides), Fill("y", -1.0), Copy("y", "x")),
    )
    (y,) = program.run([x], device=device)
    np.testing.assert_array_equal(y, x)
    assert y.strides == tuple(4 * s for s in strides)
    assert device.live == {}


def test_copy_writes_only_the_elements_of_its_target(device) -> None:
    program = HostProgram(
        ("x",),
        ("y",),
        (
            Allocate("y", (2, 4), DataType.Float),
            Fill("y", -1.0),
            Alias("odd", "y", (2, 2), (4, 2), 1),
            Copy("odd", "x"),
        ),
    )
    (y,) = program.run([np.arange(4, dtype=np.float32).reshape(2, 2)], device=device)
    np.testing.assert_array_equal(y, [[-1, 0, -1, 1], [-1, 2, -1, 3]])


def test_fill_of_a_strided_slot(device) -> None:
    program = HostProgram(
        ("x",),
        ("y",),
        (Allocate("y", (6,), DataType.Int), Fill("y", 7), Alias("even", "y", (3,), (2,)), Fill("even", 5)),
    )
    (y,) = program.run([np.zeros(1)], device=device)
    np.testing.assert_array_equal(y, [5, 7, 5, 7, 5, 7])
    assert device.live == {}


def test_shapes_of_a_copy_must_agree(device) -> None:
    program = HostProgram(("x", "y"), (), (Copy("y", "x"),))
    with pytest.raises(InputRuntimeError, match=r"'x' of shape \[3\] is copied to 'y' of shape \[1\]"):
        program.run([np.zeros(3), np.zeros(1)], device=device)


def test_deallocate_frees_at_once(device, make_kernel) -> None:
    kernel = make_kernel()
    program = HostProgram(
        ("x",),
        ("z",),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y")),
            Allocate("z", (N,), DataType.Float),
            LaunchKernel(kernel, ("y", "z")),
            Deallocate("y"),
            Fill("z", 0.0),
        ),
    )
    program.run([np.zeros(4, np.float32)], device=device)
    order = [call[0] for call in device.calls]
    assert order.index("release") < order.index("fill")
    assert device.live == {}


def test_scalar_sizes(device) -> None:
    program = HostProgram(("rows",), ("y",), (Allocate("y", (scalar("rows") * 2,), DataType.Float), Fill("y", 1.0)))
    (y,) = program.run([3], device=device)
    assert y.shape == (6,)
    np.testing.assert_array_equal(y.numpy(), np.ones(6, np.float32))
    (y,) = program.run([np.array(2)], device=device)
    assert y.shape == (4,)
    with pytest.raises(InputTypeError, match=r"Scalar value 1\.5 of rows is used as a size and must be an integer"):
        program.run([1.5], device=device)
    del y
    assert device.live == {}


def test_arguments_that_do_not_fit(device, program) -> None:
    cases: list[tuple[list[Any], type[InputError], str]] = [
        ([], InputRuntimeError, r"Expected 1 inputs \(x\), got 0"),
        ([1.0], InputTypeError, "Expected input 0, x, to be a tensor but got scalar 1.0"),
        ([np.zeros(2)], InputTypeError, "tensor of dtype float, but got a tensor of dtype double"),
        ([np.zeros(2, np.int8)], InputTypeError, "tensors of dtype int8 are not supported"),
        ([None], InputTypeError, "expected an array or a number, got NoneType"),
        ([np.zeros((), np.float32)], InputRuntimeError, "rank 0"),
    ]
    for inputs, kind, message in cases:
        with pytest.raises(kind, match=message):
            program.run(inputs, device=device)
        assert device.live == {}
    assert device.named("launch") == []


def test_launch_constraints_must_agree(device, make_kernel) -> None:
    def build(launch: LaunchParams) -> HostProgram:
        return HostProgram(
            ("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(make_kernel(), ("x", "y"), launch))
        )

    x = np.zeros(256, np.float32)
    build(LaunchParams(2, -1, -1, 128, 1, 1)).run([x], device=device)
    with pytest.raises(LaunchError, match="asks for bdimx=64, but its schedule needs 128"):
        build(LaunchParams(-1, -1, -1, 64, -1, -1)).run([x], device=device)
    with pytest.raises(LaunchError, match="asks for 16 bytes of dynamic shared memory"):
        build(LaunchParams(shared=16)).run([x], device=device)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"block": (1025, 1, 1)}, "1025 threads"),
        ({"block": (64, 32, 1)}, "2048 threads"),
        ({"block": (1, 1, 65)}, r"block.z is 65, outside \[1, 64\]"),
        ({"grid": (1, 65536, 1)}, r"grid.y is 65536, outside \[1, 65535\]"),
        ({"grid": (2**31, 1, 1)}, r"grid.x is 2147483648"),
        ({"shared": 2**20}, "1048576 bytes of dynamic shared memory"),
    ],
)
def test_launches_beyond_the_device_are_refused(device, make_kernel, sizes, message) -> None:
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(make_kernel(**sizes), ("x", "y")))
    )
    with pytest.raises(LaunchError, match=message):
        program.run([np.zeros(4, np.float32)], device=device)
    assert device.named("launch") == []
    assert device.live == {}


def test_raw_kernels_get_their_arguments_as_declared(device) -> None:
    from fuser.runtime.devices.strided_copy import strided_copy_kernel

    kernel = strided_copy_kernel(4, 1, "sm_90a")
    program = HostProgram(
        ("x", "total"),
        ("y",),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("y", "x", "total", 4, 1, 1), LaunchParams(2, 1, 1, 64, 1, 1)),
        ),
    )
    program.run([np.zeros(4, np.float32), 4], device=device)
    ((_, _, launch, arguments),) = device.named("launch")
    assert (launch.grid, launch.block, arguments[2:]) == ((2, 1, 1), (64, 1, 1), (4, 4, 1, 1))


def _busy_program(make_kernel) -> HostProgram:
    kernel = make_kernel(
        "busy",
        workspaces=[Workspace("partial", DataType.Float, n)],
        semaphores=as_int(1),
    )
    return HostProgram(
        ("x", "w"),
        ("z", "w", "part"),
        (
            Allocate("y", (N,), DataType.Float),
            LaunchKernel(kernel, ("x", "y")),
            Allocate("z", (N, 2), DataType.Float, (3, 1)),
            Fill("z", 0.0),
            Alias("column", "z", (N,), (3,)),
            Copy("column", "y"),
            LaunchKernel(kernel, ("y", "w")),
            Deallocate("y"),
            Alias("part", "z", (1,)),
        ),
    )


def test_every_failing_call_raises_and_leaks_nothing(device, make_kernel) -> None:
    program = _busy_program(make_kernel)
    x = np.arange(5, dtype=np.float32)

    def run() -> list[Any]:
        device.calls.clear()
        device.released.clear()
        return program.run([x, np.zeros(5, np.float32)], device=device)

    run()
    total = len(device.calls)
    assert total > 20
    assert device.live == {}
    for k in range(total):
        device.fail_at = k
        w = np.full(5, 9, np.float32)
        device.calls.clear()
        device.released.clear()
        with pytest.raises(LaunchError, match=f"planted failure of call {k}"):
            program.run([x, w], device=device)
        assert device.live == {}, f"call {k} failing leaks"
        assert len(set(device.released)) <= len(device.named("allocate"))
    device.fail_at = None
    run()
    assert device.live == {}


def test_failed_runs_do_not_count(device, program) -> None:
    device.fail_at = 3
    with pytest.raises(LaunchError):
        program.run([np.zeros(4, np.float32)], device=device)
    assert program.counters()["runs"] == 0


def test_threads_share_a_program(device, make_kernel) -> None:
    program = HostProgram(
        ("x",), ("y",), (Allocate("y", (N,), DataType.Float), LaunchKernel(make_kernel(), ("x", "y")))
    )
    failures: list[Any] = []

    def work(seed: int) -> None:
        own = type(device)()
        own.behaviours["add_one"] = add_one
        for size in range(1, 30):
            (y,) = program.run([np.full(size, seed, np.float32)], device=own)
            if not (y == seed + 1).all():
                failures.append((seed, size))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    assert program.counters()["launches"] == 4 * 29


@pytest.mark.parametrize(
    ("instruction", "text"),
    [
        (Allocate("y", (extent("x", 0) // scalar("n"),), DataType.Float), r"extent\('x', 0\)//scalar\('n'\)"),
        (If(less(extent("x", 0) % scalar("n"), 1), ()), r"select\(extent\('x', 0\)%scalar\('n'\) < 1, 0, 1\)"),
    ],
)
def test_a_size_that_is_divided_by_0_names_the_instruction(instruction: Instruction, text: str) -> None:
    program = HostProgram(("x", "n"), ("x",), (instruction,))
    program.run([np.ones(4, np.float32), 2], device="simulator")
    for _ in range(2):
        with pytest.raises(InputRuntimeError, match=f"these arguments ask for a division by 0: {text}") as caught:
            program.run([np.ones(4, np.float32), 0], device="simulator")
        assert any(
            "while running instruction 0 of a host program" in note for note in getattr(caught.value, "__notes__", [])
        )
