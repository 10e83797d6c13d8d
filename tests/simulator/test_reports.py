"""Defects other than races: bounds, alignment, missing values, divergence, dtypes, index range."""

from __future__ import annotations

import numpy as np
import pytest

from fuser.errors import InternalError, LaunchError
from fuser.ir.integers.integers import ZERO, equal, less, select, symbol
from fuser.ir.kernel.kernel import (
    Allocate,
    BlockBarrier,
    ExtentParameter,
    If,
    IndexValue,
    Kernel,
    Let,
    Literal,
    LoadIndex,
    Reduce,
    Shuffle,
    ShuffleKind,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import ParallelType
from fuser.runtime.launch import Launch
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.memory import DeviceMemory
from fuser.simulator.run_kernel import Report, boundary_blocks, run_kernel
from tests.simulator.kernels import (
    BX,
    FLOAT,
    INT,
    INT32,
    THREADS,
    TX,
    N,
    Run,
    as_int,
    call,
    kernel,
    load,
    loop,
    move,
    output,
    registers,
    shared,
    source,
    store,
    tensor,
)


def failure(report: Report, kind: Kind) -> SimulatorError:
    assert report.error is not None, "nothing was reported"
    assert report.error.kind is kind, report.error
    return report.error


# --- bounds and alignment ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_read_past_the_end(blocks: int) -> None:
    x, out = tensor("x", 40), tensor("out", 96)
    place = BX * THREADS + TX
    run = Run(kernel([source(x), output(out)], store(out, place, load(x, place + 9))), np.ones(40, np.float32), None)
    error = failure(run(blocks), Kind.out_of_bounds)
    assert error.buffer == "x"
    assert error.second is not None
    assert error.second.action == "read"
    assert error.second.index is not None
    assert error.second.index >= 40
    assert error.second.index == error.second.block[0] * 32 + error.second.thread[0] + 9


def test_a_write_before_the_start() -> None:
    out = tensor("out", 32)
    error = failure(Run(kernel([output(out)], store(out, TX - 1, 0.0)), None)(), Kind.out_of_bounds)
    assert error.second is not None
    assert (error.second.index, error.second.thread) == (-1, (0, 0, 0))
    assert str(error).startswith(
        "out of bounds: element -1 of out, which has 32\n  then write of out[-1] by thread (0, 0, 0)"
    )


def test_threads_that_a_predicate_excludes_may_have_any_index() -> None:
    out = tensor("out", 20)
    run = Run(kernel([output(out)], If(less(TX, 20), (store(out, TX, 1.0),))), None)
    run().check()
    failure(Run(kernel([output(out)], If(less(TX, 21), (store(out, TX, 1.0),))), None)(), Kind.out_of_bounds)


def test_the_declared_size_counts_where_the_allocation_is_larger() -> None:
    x, out = tensor("x", N), tensor("out", 32)
    tested = kernel([source(x), output(out), ExtentParameter(N)], store(out, TX, load(x, TX)))
    Run(tested, np.ones(64, np.float32), None, 32)().check()
    failure(Run(tested, np.ones(64, np.float32), None, 31)(), Kind.out_of_bounds)


def test_a_stale_pointer() -> None:
    x = tensor("x", 32)
    run = Run(kernel([source(x)], store(x, TX, 1.0)), np.ones(32, np.float32))
    run.memory.release(run.addresses["x"][0])
    failure(run(), Kind.out_of_bounds)


def test_shared_memory_bounds() -> None:
    tile = shared("tile", 32)
    tested = kernel([], Allocate(tile), store(tile, TX + 1, 0.0), offsets={"tile": 0})
    assert failure(Run(tested)(1, 32, shared_bytes=1024), Kind.out_of_bounds).buffer == "tile"
    fitting = kernel([], Allocate(tile), store(tile, TX, 0.0), offsets={"tile": 4})
    Run(fitting)(1, 32, shared_bytes=132).check()
    error = failure(Run(fitting)(1, 32, shared_bytes=128), Kind.out_of_bounds)
    assert "the bytes 4 to 132 of shared memory, the launch has 128" in error.message


@pytest.mark.parametrize("index", [4, TX % 8], ids=["constant", "varying"])
def test_register_bounds(index: object) -> None:
    r = registers("r", 4)
    tested = kernel([], Allocate(r), store(r, index, 0.0))  # type: ignore[arg-type]
    assert failure(Run(tested)(), Kind.out_of_bounds).buffer == "r"


def test_vectors_that_an_end_cuts() -> None:
    x, out = tensor("x", 30), tensor("out", 32)
    r = registers("r", 4)

    def run(first: int, threads: int = 8) -> tuple[Report, Run]:
        taken = VectorMove(r, ZERO, x, TX * 4 + first, 4, cut=True)
        tested = kernel([source(x), output(out)], Allocate(r), taken, move(out, TX * 4, r, 0, 4))
        made = Run(tested, np.arange(30, dtype=np.float32), None)
        return made(threads=threads), made

    report, made = run(0)
    report.check()
    found = made["out"]
    np.testing.assert_array_equal(found[:30], np.arange(30))
    assert np.isnan(found[30:]).all(), "what is outside has no value that passes for one"
    assert "x" in failure(run(0, threads=9)[0], Kind.out_of_bounds).message
    assert "x" in failure(run(-4)[0], Kind.out_of_bounds).message
    failure(run(2, threads=4)[0], Kind.misaligned)


def test_misaligned_vectors() -> None:
    x = tensor("x", 256)
    r = registers("r", 4)

    def run(offset: int, shift: int = 0) -> Report:
        tested = kernel([source(x)], Allocate(r), move(r, 0, x, TX * 4 + offset, 4))
        made = Run(tested, np.ones(256, np.float32))
        made.values[0] = int(made.values[0].real) + shift
        return made()

    run(0).check()
    run(4).check()
    run(0, shift=16).check()
    error = failure(run(2), Kind.misaligned)
    assert "not aligned to 16 bytes" in error.message
    assert error.second is not None
    assert error.second.index == 2
    failure(run(0, shift=8), Kind.misaligned)
    failure(run(0, shift=2), Kind.misaligned)


# --- values that were never written -----------------------------------------------------------------------------------


def test_reading_a_workspace_that_nothing_wrote() -> None:
    scratch, out = tensor("scratch", 32), tensor("out", 32)
    tested = kernel(
        [WorkspaceParameter(scratch), output(out)],
        If(less(TX, 31), (store(scratch, TX, 1.0),)),
        store(out, TX, load(scratch, TX)),
    )
    error = failure(Run(tested, None, None)(), Kind.uninitialised_read)
    assert error.buffer == "scratch"
    assert error.second is not None
    assert error.second.index == 31


def test_reading_an_output_before_it_is_written() -> None:
    out = tensor("out", 32)
    failure(Run(kernel([output(out)], store(out, TX, call("neg", load(out, TX)))), None)(), Kind.uninitialised_read)


def test_vectors_with_a_missing_element() -> None:
    x, out = tensor("x", 128), tensor("out", 128)
    r = registers("r", 4)
    tested = kernel(
        [WorkspaceParameter(x), output(out)],
        If(less(TX, 31), (store(x, TX * 4, 1.0), store(x, TX * 4 + 1, 1.0), store(x, TX * 4 + 2, 1.0))),
        Allocate(r),
        move(r, 0, x, TX * 4, 4),
    )
    error = failure(Run(tested, None, None)(), Kind.uninitialised_read)
    assert error.buffer == "x"


def test_reading_shared_memory_that_nothing_wrote() -> None:
    tile, out = shared("tile", 64), tensor("out", 64)
    tested = kernel([output(out)], Allocate(tile), store(out, TX, load(tile, TX)), offsets={"tile": 0})
    error = failure(Run(tested, None)(2, 32, shared_bytes=256), Kind.uninitialised_read)
    assert error.buffer == "tile"


def test_shared_memory_holds_nothing_in_a_new_scope() -> None:
    tile, out = shared("tile", 32), tensor("out", 32)
    i = symbol("i", 0, 1)
    once = If(equal(i, 0), (store(tile, TX, 1.0),))

    def run(*, inside: bool) -> Report:
        body = (once, store(out, TX, load(tile, TX)))
        stmts: tuple[Stmt, ...] = (
            (loop(i, 2, Allocate(tile), *body),) if inside else (Allocate(tile), loop(i, 2, *body))
        )
        return Run(kernel([output(out)], *stmts, offsets={"tile": 0}), None)(1, 32, shared_bytes=128)

    run(inside=False).check()
    failure(run(inside=True), Kind.uninitialised_read)


def test_what_another_shared_buffer_left_is_no_value() -> None:
    a, b, out = shared("a", 32), shared("b", 32), tensor("out", 32)
    tested = kernel(
        [output(out)],
        Allocate(a),
        Allocate(b),
        store(a, TX, 1.0),
        store(out, TX, load(b, TX)),
        offsets={"a": 0, "b": 0},
    )
    error = failure(Run(tested, None)(1, 32, shared_bytes=128), Kind.uninitialised_read)
    assert error.buffer == "b"
    assert "was last written as another shared buffer" in error.message


def test_registers_that_hold_nothing() -> None:
    out = tensor("out", 32)
    r = registers("r", 2)

    def run(*body: Stmt) -> Report:
        return Run(kernel([output(out)], Allocate(r), *body, store(out, TX, load(r))), None)()

    run(store(r, 0, 1.0)).check()
    error = failure(run(store(r, 1, 1.0)), Kind.uninitialised_read)
    assert error.buffer == "r"
    error = failure(run(If(less(TX, 5), (store(r, 0, 1.0),))), Kind.uninitialised_read)
    assert error.second is not None
    assert error.second.thread == (5, 0, 0)
    run(If(less(TX, 5), (store(r, 0, 1.0),), (store(r, 0, 2.0),))).check()


def test_reading_back_what_a_kernel_forgot_to_write() -> None:
    out = tensor("out", 32)
    run = Run(kernel([output(out)], If(less(TX, 30), (store(out, TX, 1.0),))), None)
    run().check()
    with pytest.raises(
        SimulatorError, match=r"8 of 128 bytes at .* were never written, the first is number 120 \(out\)"
    ):
        run["out"]


# --- divergence -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [32, 64, 96])
def test_a_block_barrier_in_a_branch(threads: int) -> None:
    Run(kernel([], If(equal(BX, 1), (BlockBarrier(),))))(2, threads).check()
    Run(kernel([], If(less(TX, threads), (BlockBarrier(),))))(2, threads).check()
    error = failure(Run(kernel([], If(less(TX, 20), (BlockBarrier(),))))(2, threads), Kind.divergent_barrier)
    assert f"20 of {threads} threads of the block reach a block barrier" in error.message
    branches = If(less(TX, 16), (BlockBarrier(),), (BlockBarrier(),))
    failure(Run(kernel([], branches))(2, threads), Kind.divergent_barrier)


def test_a_block_barrier_in_a_loop_that_some_threads_leave() -> None:
    i = symbol("i", 0)
    Run(kernel([], loop(i, BX + 1, BlockBarrier())))(3, 64).check()
    error = failure(Run(kernel([], loop(i, TX // 32 + 1, BlockBarrier())))(3, 64), Kind.divergent_barrier)
    assert error.second is not None
    assert error.second.path == "body[0].body[0]"


def test_a_warp_barrier_in_a_branch() -> None:
    Run(kernel([], If(less(TX, 32), (WarpBarrier(),))))(1, 64).check()
    failure(Run(kernel([], If(less(TX, 16), (WarpBarrier(),))))(1, 64), Kind.divergent_barrier)
    Run(kernel([], If(less(31, TX), (WarpBarrier(),))))(1, 40).check()


def test_a_shuffle_in_a_branch() -> None:
    r = registers("r")

    def run(limit: int) -> Report:
        shuffle = Shuffle(r, as_int(0), load(r), ShuffleKind.xor, as_int(1))
        return Run(kernel([], Allocate(r), store(r, 0, 1.0), If(less(TX, limit), (shuffle,))))(1, 64)

    run(32).check()
    error = failure(run(16), Kind.divergent_shuffle)
    assert "16 of 32 lanes" in error.message


def test_a_shuffle_from_a_lane_that_is_not_there() -> None:
    r = registers("r")

    def run(lane: int, threads: int, kind: ShuffleKind = ShuffleKind.xor, width: int = 32) -> Report:
        shuffle = Shuffle(r, as_int(0), load(r), kind, as_int(lane), width)
        return Run(kernel([], Allocate(r), store(r, 0, 1.0), shuffle))(1, threads)

    run(1, 48).check()
    failure(run(16, 48), Kind.inactive_lane)
    failure(run(8, 32, width=8), Kind.inactive_lane)
    failure(run(8, 32, ShuffleKind.index, width=8), Kind.inactive_lane)
    run(16, 64, ShuffleKind.down).check()


# --- IR that cannot run -----------------------------------------------------------------------------------------------


def test_stores_of_the_wrong_dtype() -> None:
    out = tensor("out", 32)
    error = failure(Run(kernel([output(out)], store(out, TX, Literal(1, INT32))), None)(), Kind.wrong_dtype)
    assert error.message == "wrong dtype: body[0] stores Int32 in out, which is Float: out[threadIdx.x] = 1:Int32"
    index = tensor("out", 32, DataType.Index)
    Run(kernel([output(index)], store(index, TX, IndexValue(TX, INT))), None)().check()


def test_a_collective_is_refused() -> None:
    r = registers("r")
    collective = Reduce(
        partials=(r,),
        combine="add",
        identity=(Literal(0.0, FLOAT),),
        block_axes=(ParallelType.block_x,),
        grid_axes=(),
        grid_broadcast=False,
        slot=as_int(0),
        slots=as_int(1),
        name="sum",
    )
    with pytest.raises(InternalError, match="expand_collectives must run first"):
        Run(kernel([], Allocate(r), store(r, 0, 0.0), collective))()


def test_unknown_names_are_refused() -> None:
    out = tensor("out", 32)
    with pytest.raises(InternalError, match="the symbol N has no value"):
        Run(kernel([output(out)], store(out, TX + N, 0.0)), None)()
    r = registers("r")
    with pytest.raises(InternalError, match="buffer r is neither a parameter nor allocated here"):
        Run(kernel([output(out)], If(less(TX, 4), (Allocate(r),)), store(r, 0, 0.0)), None)()


def test_a_loop_that_never_ends() -> None:
    i = symbol("i", 0)
    failure(Run(kernel([], loop(i, 4, step=TX * 0)))(), Kind.endless_loop)
    failure(Run(kernel([], loop(i, TX + 1, step=TX % 2)))(), Kind.endless_loop)


def test_division_by_an_extent_of_zero() -> None:
    out = tensor("out", 32)
    zero = symbol("Z", 0)
    tested = kernel([output(out), ExtentParameter(zero)], store(out, BX // zero, 0.0))
    failure(Run(tested, None, 0)(1, 1), Kind.division_by_zero)


def test_launches_that_no_device_takes() -> None:
    tested = kernel([])
    with pytest.raises(LaunchError, match=r"block\.x is 0, it must be between 1 and 1024"):
        Run(tested)(1, 0)
    with pytest.raises(LaunchError, match="bytes of shared memory; H200 has at most 232448 per block"):
        Run(tested)(1, 32, shared_bytes=300000)
    with pytest.raises(LaunchError, match="tested takes 0 arguments, got 1"):
        run_kernel(tested, Launch((1, 1, 1), (1, 1, 1)), [1], DeviceMemory())


# --- large indices ----------------------------------------------------------------------------------------------------


def copy_kernel(index_bits: int) -> Kernel:
    x, out = tensor("x", N), tensor("out", N)
    place = BX * THREADS + TX
    body = If(less(place, N), (store(out, place, load(x, place)),))
    return kernel([source(x), output(out), ExtentParameter(N)], body, index_bits=index_bits)


@pytest.mark.parametrize("elements", [2**31 - 1, 2**31 + 1, 2**33 + 5])
def test_boundary_blocks_of_tensors_without_storage(elements: int) -> None:
    tested = copy_kernel(64)
    memory = DeviceMemory()
    x = memory.map_virtual(FLOAT, elements, lambda i: (i % 1000).astype(np.float32), "x")
    out = memory.map_virtual(FLOAT, elements, None, "out")
    grid = (-(-elements // 1024), 1, 1)
    report = run_kernel(
        tested,
        Launch(grid, (1024, 1, 1)),
        [x.address, out.address, elements],
        memory,
        only_blocks=boundary_blocks(grid),
    )
    report.check()
    assert report.blocks == 5
    where = np.array([0, 1023, 2047, elements - 1, grid[0] // 2 * 1024])
    np.testing.assert_array_equal(out.read(where), where % 1000)
    with pytest.raises(SimulatorError, match=r"out\[4096\] was never written"):
        out.read(np.array([4096]))


def test_an_index_that_does_not_fit() -> None:
    elements = 2**31 - 5
    tested = copy_kernel(32)
    memory = DeviceMemory()
    x = memory.map_virtual(FLOAT, elements, lambda i: i.astype(np.float32), "x")
    out = memory.map_virtual(FLOAT, elements, None, "out")
    grid = (-(-elements // 1024), 1, 1)

    def run(size: int) -> Report:
        blocks = boundary_blocks((-(-size // 1024), 1, 1))
        return run_kernel(
            tested,
            Launch((blocks[-1][0] + 1, 1, 1), (1024, 1, 1)),
            [x.address, out.address, size],
            memory,
            only_blocks=blocks,
        )

    run(elements).check()
    launch = Launch((grid[0] + 1, 1, 1), (1024, 1, 1))
    report = run_kernel(
        tested, launch, [x.address, out.address, elements], memory, only_blocks=boundary_blocks(launch.grid)
    )
    error = failure(report, Kind.index_overflow)
    assert "is 2147483648" in error.message
    failure(
        run_kernel(tested, launch, [x.address, out.address, 2**31], memory, only_blocks=[(0, 0, 0)]),  # type: ignore[arg-type]
        Kind.index_overflow,
    )


def test_an_intermediate_result_that_does_not_fit() -> None:
    """The index is small, the product on the way is not."""
    out = tensor("out", 64)
    place = (BX * THREADS + TX) * 2**27 // (2**26 + 1)

    def run(bits: int) -> Report:
        return Run(kernel([output(out)], Let(symbol("p", None), place), index_bits=bits), None)(2, 32)

    run(64).check()
    error = failure(run(32), Kind.index_overflow)
    assert error.second is not None
    assert error.second.statement.startswith("let p")
    Run(kernel([output(out)], If(less(TX, 16), (Let(symbol("p", None), place),))), None)(1, 32).check()


def test_the_branch_of_a_selection_that_is_not_taken() -> None:
    zero = symbol("Z", 0)
    out = tensor("out", 32)
    index = select(equal(zero, 0), TX, TX // zero)
    Run(kernel([output(out), ExtentParameter(zero)], store(out, index, 1.0)), None, 0)().check()


def test_a_virtual_race_and_bounds() -> None:
    out = tensor("out", N)
    memory = DeviceMemory()
    region = memory.map_virtual(FLOAT, 2**32, None, "out")
    launch = Launch((2**20, 1, 1), (32, 1, 1))

    def run(index: object) -> Report:
        tested = kernel([output(out), ExtentParameter(N)], Store(out, index, Literal(1.0, FLOAT)), index_bits=64)  # type: ignore[arg-type]
        return run_kernel(tested, launch, [region.address, 2**32], memory, only_blocks=[(0, 0, 0), (2**20 - 1, 0, 0)])

    run((BX * THREADS + TX) * 128).check()
    error = failure(run((BX * THREADS + TX) // 2 * 128), Kind.race)
    assert error.second is not None
    assert error.second.index is not None
    assert error.second.index % 128 == 0
    error = failure(run((BX * THREADS + TX) * 129), Kind.out_of_bounds)
    assert "which has 4294967296" in error.message


def test_vectors_in_virtual_memory() -> None:
    x, out = tensor("x", N), tensor("out", N)
    r = registers("r", 4)
    place = (BX * THREADS + TX) * 4
    tested = kernel(
        [source(x), output(out), ExtentParameter(N)],
        Allocate(r),
        move(r, 0, x, place, 4),
        move(out, place, r, 0, 4),
        index_bits=64,
    )
    size = 2**32
    memory = DeviceMemory()
    virtual = memory.map_virtual(FLOAT, size, lambda i: (i % 4099).astype(np.float32), "x")
    result = memory.map_virtual(FLOAT, size, None, "out")
    launch = Launch((2**25, 1, 1), (32, 1, 1))
    run_kernel(
        tested, launch, [virtual.address, result.address, size], memory, only_blocks=boundary_blocks(launch.grid)
    ).check()
    where = np.arange(size - 256, size)
    np.testing.assert_array_equal(result.read(where), where % 4099)


def test_an_index_loaded_from_memory() -> None:
    table, out = tensor("table", 32, INT32), tensor("out", 32)
    where = symbol("where", None)
    tested = kernel([source(table), output(out)], LoadIndex(where, table, TX), store(out, where, 1.0))
    Run(tested, np.arange(32, dtype=np.int32)[::-1].copy(), None)().check()
    error = failure(Run(tested, np.full(32, 77, np.int32), None)(), Kind.out_of_bounds)
    assert error.second is not None
    assert error.second.index == 77


# --- symbols ----------------------------------------------------------------------------------------------------------


def test_extents_keep_to_what_their_symbols_declare() -> None:
    eights = symbol("M", 8, multiple=8)
    tested = kernel([ExtentParameter(eights)])
    Run(tested, 24)().check()
    error = failure(Run(tested, 20)(), Kind.symbol_range)
    assert "M is 20, declared in [8, None] and a multiple of 8" in error.message
    failure(Run(tested, 0)(), Kind.symbol_range)


def test_values_keep_to_what_their_symbols_declare() -> None:
    table = tensor("table", 32, INT32)
    values = np.arange(32, dtype=np.int32)

    def loaded(where: object, *, limit: int = 32) -> Report:
        tested = kernel(
            [source(table), ExtentParameter(N)],
            If(less(TX, limit), (LoadIndex(where, table, TX),)),  # type: ignore[arg-type]
        )
        return Run(tested, values, 30)()

    loaded(symbol("row", 0, 31)).check()
    error = failure(loaded(symbol("row", 0, 30)), Kind.symbol_range)
    assert "row is 31, declared in [0, 30]" in error.message
    loaded(symbol("row", 0, 30), limit=31).check()
    error = failure(loaded(symbol("row", 0, below=N)), Kind.symbol_range)
    assert "row is 30, declared below N, which is 30" in error.message
    loaded(symbol("row", 0, below=N), limit=30).check()
    error = failure(loaded(symbol("row", 0, multiple=2)), Kind.symbol_range)
    assert "row is 1, declared a multiple of 2" in error.message


def test_loops_keep_to_what_their_variables_declare() -> None:
    def run(stop: int) -> Report:
        return Run(kernel([ExtentParameter(N)], loop(symbol("i", 0, 7), N)), stop)()

    run(8).check()
    assert "i is 8, declared in [0, 7]" in failure(run(9), Kind.symbol_range).message


def test_a_bound_that_the_kernel_is_not_passed_is_not_checked() -> None:
    Run(kernel([], loop(symbol("i", 0, below=N), 3)))().check()


def test_division_by_zero_in_some_threads() -> None:
    p = symbol("p", None)
    Run(kernel([], If(less(0, TX), (Let(p, 7 // TX),))))().check()
    error = failure(Run(kernel([], Let(p, 7 // TX)))(), Kind.division_by_zero)
    assert error.second is not None
    assert error.second.thread == (0, 0, 0)


def test_a_loop_that_takes_too_long() -> None:
    i = symbol("i", 0)
    run = Run(kernel([], loop(i, 2**30)))
    report = run_kernel(run.kernel, Launch((1, 1, 1), (1, 1, 1)), [], run.memory, trip_limit=1000)
    failure(report, Kind.step_limit)
