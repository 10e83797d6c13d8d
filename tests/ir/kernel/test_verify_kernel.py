"""Every rule of kernel IR has a kernel that breaks it, and kernels that come close without breaking any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuser.errors import InternalError
from fuser.ir.integers.integers import Int, all_of, any_of, as_int, const, equal, less, less_equal, symbol
from fuser.ir.kernel.kernel import (
    THREAD_SYMBOLS,
    Allocate,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Cast,
    DivisorParameter,
    ExtentParameter,
    Fence,
    For,
    If,
    IndexValue,
    Kernel,
    Let,
    Literal,
    LoadIndex,
    Parameter,
    Post,
    Receive,
    Reduce,
    ScalarArgument,
    ScalarParameter,
    Scan,
    SemaphoreParameter,
    Shuffle,
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    TensorParameter,
    VectorMove,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.ir.kernel.verify_kernel import verify_kernel
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, MemoryType, ParallelType
from tests.codegen.golden_corpus import (
    BID,
    FLOAT,
    HALF,
    INT32,
    TID,
    ZERO,
    N,
    at,
    call,
    corpus_kernels,
    kernel,
    loop,
    registers,
    shared,
    store,
    tensor,
)

OUT, COUNTERS = tensor("out", FLOAT), tensor("counters", INT32, 4)
R, R4, S = registers("r", FLOAT), registers("r4", FLOAT, 4), shared("s", FLOAT, 128)
ONE = Literal(1.0, FLOAT)
ROW, J, K = symbol("i", 0, 2**20), symbol("j", 0, 3), symbol("k", 0, 3)
TID_Y = THREAD_SYMBOLS[ParallelType.block_y]
DOUBLE = DataType.Double


def of(*body: Stmt) -> Kernel:
    """A kernel with an output, four counters and the shared buffer `s` placed."""
    return kernel("k", (COUNTERS,), (OUT,), *body, shared_buffers=(S,), scalars=(("s0", FLOAT),))


def message(k: Kernel, *, is_final: bool = True) -> str:
    """What the verifier says."""
    with pytest.raises(InternalError) as caught:
        verify_kernel(k, "some_pass", is_final=is_final)
    assert caught.value.pass_name == "some_pass"
    return str(caught.value)


def test_the_corpus_is_well_formed() -> None:
    for k in corpus_kernels():
        verify_kernel(k, is_final=True)


def test_the_whole_message() -> None:
    k = of(Let(ROW, BID * 128 + TID), If(less(ROW, N), (store(OUT, ONE, ROW + J), store(R, ONE))))
    assert message(k) == (
        "kernel k is malformed after some_pass\n"
        "  let i = 128*blockIdx.x + threadIdx.x\n"
        "  if i < n  # predicate\n"
        ">   out[i + j] = 1.0:Float\n"
        "    ^ not defined here: j\n"
        ">   r[0] = 1.0:Float\n"
        "    ^ buffer r is neither a parameter nor allocated before"
    )


def test_the_whole_message_about_a_header() -> None:
    k = replace(of(), index_bits=16, parameters=())
    assert message(k) == (
        "kernel k is malformed after some_pass\n"
        "  index_bits is 16, expected 32 or 64\n"
        "kernel k: int16 indices\n"
        "  # k\n"
        "  launch grid ((n + 127)//128, 1, 1), block (128, 1, 1), shared 512 bytes\n"
        "  shared s at byte 0\n"
        "\n"
    )


def reduce_of(*partials: Buffer, combine: str = "add", identities: int = 1) -> Reduce:
    """A reduction over the threads of a block."""
    zeros = (Literal(0.0, FLOAT),) * identities
    return Reduce(partials, combine, zeros, (ParallelType.block_x,), (), False, ZERO, const(1), "r0")


def shuffle(lanes: int = 16, width: int = 32) -> Shuffle:
    """`r` from another lane."""
    return Shuffle(R, ZERO, at(R), ShuffleKind.xor, const(lanes), width)


ALLOCATED = (Allocate(R), store(R, ONE))
ALLOCATED4 = (Allocate(R4), *(store(R4, ONE, n) for n in range(4)))
NAMED_TWICE = Buffer("out", FLOAT, MemoryType.local, const(1))
SYMBOLIC = Buffer("sized", FLOAT, MemoryType.local, as_int(N))
UNPLACED = shared("unplaced", FLOAT, 8)
ODD = symbol("odd", 0, 2**20)
SCANNED = (*ALLOCATED, *ALLOCATED4)


def scan_of(
    values: Buffer = R4,
    combine: str = "add",
    tiles: tuple[tuple[int, int], ...] = ((4, 1),),
    axis: ParallelType = ParallelType.block_x,
) -> Scan:
    """A scan over the threads of a block, its carry in `r`."""
    return Scan(values, R, combine, Literal(0.0, FLOAT), (axis,), (), tiles, (), "s0")


BROKEN: dict[str, tuple[tuple[Stmt, ...], str]] = {
    # names
    "symbol before its let": ((store(OUT, ONE, ROW), Let(ROW, TID)), "not defined here: i"),
    "symbol of an inner scope": ((loop(J, 4, store(OUT, ONE, J)), store(OUT, ONE, J)), "not defined here: j"),
    "let twice": ((Let(ROW, TID), Let(ROW, TID)), "i is already defined here"),
    "loop over a visible symbol": ((Let(J, ZERO), loop(J, 4)), "j is already defined here"),
    "another symbol of the same name": (
        (Let(symbol("i", 0, 7), TID), store(OUT, ONE, ROW)),
        "not defined here: i (another symbol of that name is)",
    ),
    "buffer of an inner scope": (
        (If(less(BID, N), (*ALLOCATED,)), store(OUT, at(R))),
        "buffer r is not visible here",
    ),
    "allocated twice": ((Allocate(R), Allocate(R)), "two buffers are named r"),
    "two buffers of one name": ((Allocate(NAMED_TWICE),), "two buffers are named out"),
    "unknown scalar": ((store(OUT, ScalarArgument("s1", FLOAT)),), "there is no scalar parameter s1 of Float"),
    "scalar of another dtype": ((store(R, ScalarArgument("s0", HALF)),), "there is no scalar parameter s0 of Half"),
    "symbol in a condition": ((If(less(ROW, N), ()),), "not defined here: i"),
    # types
    "store of another dtype": ((store(OUT, Literal(1.0, HALF)),), "stores Half into out, which is Float"),
    "move of another dtype": (
        (Allocate(h := registers("h", HALF, 4)), VectorMove(h, ZERO, OUT, ZERO, 4)),
        "moves Float into h, which is Half",
    ),
    "shuffle of another dtype": (
        (Allocate(R), Shuffle(R, ZERO, Literal(1.0, HALF), ShuffleKind.xor, const(1))),
        "shuffles Half into r, which is Float",
    ),
    "unknown op": ((store(OUT, call("nop", ONE)),), "the op table has no row 'nop' that kernels can run"),
    "op of the front end": ((store(OUT, call("sign", ONE)),), "the op table has no row 'sign' that kernels can run"),
    "wrong arity": ((store(OUT, call("add", ONE)),), "add takes 2 arguments, has 1"),
    "computing in half": (
        (store(OUT, call("neg", ONE, compute=HALF, dtype=FLOAT)),),
        "neg cannot compute in Half",
    ),
    "op without that dtype": (
        (store(OUT, call("bitwise_not", ONE)),),
        "bitwise_not is not defined for Float",
    ),
    "condition of where": (
        (store(OUT, call("where", ONE, ONE, ONE)),),
        "the condition of where is Float, expected Bool",
    ),
    "impossible cast": (
        (Store(OUT, ZERO, Cast(Literal(1.0, DataType.Null), FLOAT)),),
        "Null cannot be cast to Float",
    ),
    "index as a float": (
        (store(OUT, IndexValue(TID, FLOAT)),),
        "an index becomes a value of Int, Int32 or Index, not Float",
    ),
    "complex literal of a real dtype": ((store(OUT, Literal(1j, FLOAT)),), "the complex literal 1j is Float"),
    "atomic on floats": ((AtomicAdd(None, OUT, ZERO, const(1)),), "out is Float, expected Int32"),
    "looked at as it is published": (
        (AtomicAdd(ROW, COUNTERS, ZERO, const(1), release=True),),
        "what is added to publish something is not looked at",
    ),
    "index from a float": ((LoadIndex(ROW, OUT, ZERO),), "out is Float, expected Int32"),
    "index from a float in a register": (
        (Allocate(n := registers("n32", FLOAT)), store(n, Literal(1.0, FLOAT)), LoadIndex(ROW, n, ZERO)),
        "n32 is Float, expected Int, Int32 or Index",
    ),
    # registers
    "symbolic register array": (
        (Allocate(SYMBOLIC),),
        "register array sized needs a constant size of at least 1, has n",
    ),
    "empty register array": (
        (Allocate(registers("none", FLOAT, 0)),),
        "register array none needs a constant size of at least 1, has 0",
    ),
    "array in device memory": (
        (Allocate(tensor("fresh", FLOAT)),),
        "allocates fresh in global memory; only local and shared can be",
    ),
    "register past its end": ((*ALLOCATED4, store(R4, ONE, 4)), "r4[4] is past its end, it has 4 elements"),
    "register below its start": ((*ALLOCATED4, store(R4, ONE, -1)), "r4[-1] is below the buffer"),
    "move past the end": (
        (*ALLOCATED4, VectorMove(R4, const(2), OUT, ZERO, 4)),
        "r4[2] is past its end, it has 4 elements",
    ),
    "register indexed by a thread": (
        (*ALLOCATED4, store(R4, ONE, TID % 4)),
        "register array r4 is indexed by threadIdx.x, which no unrolled loop turns into constants",
    ),
    "register indexed by a serial loop": (
        (*ALLOCATED4, loop(J, 4, store(R4, ONE, J))),
        "register array r4 is indexed by j, which no unrolled loop turns into constants",
    ),
    "unrolled loop without constant bounds": ((loop(ROW, N, unroll=True),), "an unrolled loop needs constant bounds"),
    "read and never written": ((Allocate(R), store(OUT, at(R))), "r is read but written nowhere"),
    # moves
    "move of 12 bytes": (
        (*ALLOCATED4, VectorMove(R4, ZERO, OUT, ZERO, 3)),
        "moves 12 bytes in one access, expected one of (2, 4, 8, 16)",
    ),
    "cut move of what is written": (
        (*ALLOCATED4, VectorMove(R4, ZERO, OUT, ZERO, 4, cut=True), store(OUT, ONE)),
        "out is not read-only: the kernel writes it",
    ),
    "cut move of one element": (
        (*ALLOCATED4, VectorMove(R4, ZERO, OUT, ZERO, 1, cut=True)),
        "only an aligned access of several elements may take what is not asked for",
    ),
    "register off the width": (
        (*ALLOCATED4, VectorMove(R4, const(1), OUT, ZERO, 2)),
        "r4[1] does not start at a multiple of the width 2",
    ),
    "hint on shared memory": (
        (Allocate(S), store(OUT, at(S, 0, CacheOp.streaming))),
        "the cache hint streaming is for device memory only",
    ),
    # loops and barriers
    "step of zero": ((For(ROW, ZERO, as_int(N), ZERO, ()),), "the step 0 may be below 1"),
    "barrier under a thread's condition": (
        (If(less(TID, const(64)), (BlockBarrier(),)),),
        "a block barrier under the condition threadIdx.x < 64, which differs between threads of a block",
    ),
    "barrier under a predicate": (
        (Let(ROW, BID * 128 + TID), If(less(ROW, N), (BlockBarrier(),))),
        "a block barrier under the condition i < n, which differs between threads of a block",
    ),
    "barrier in the other branch": (
        (If(equal(TID, ZERO), (Fence(),), (BlockBarrier(),)),),
        "a block barrier under the condition threadIdx.x == 0, which differs between threads of a block",
    ),
    "barrier in a thread's loop": (
        (For(ROW, TID, as_int(N), const(128), (BlockBarrier(),)),),
        "a block barrier under the loop over i, which differs between threads of a block",
    ),
    "barrier under an atomic's result": (
        (AtomicAdd(ROW, COUNTERS, ZERO, const(1)), If(equal(ROW, ZERO), (BlockBarrier(),))),
        "a block barrier under the condition i == 0, which differs between threads of a block",
    ),
    "shuffle under one lane": (
        (*ALLOCATED, If(equal(TID, ZERO), (shuffle(),))),
        "a shuffle under the condition threadIdx.x == 0, which differs between lanes of a warp",
    ),
    "shuffle inside a warp": (
        (*ALLOCATED, If(less(TID, const(40)), (shuffle(),))),
        "a shuffle under the condition threadIdx.x < 40, which differs between lanes of a warp",
    ),
    "shuffle under a predicate": (
        (*ALLOCATED, Let(ROW, BID * 128 + TID), If(less(ROW, N), (shuffle(),))),
        "a shuffle under the condition i < n, which differs between lanes of a warp",
    ),
    "warp barrier in a lane's loop": (
        (For(ROW, ZERO, TID, const(1), (WarpBarrier(),)),),
        "a warp barrier under the loop over i, which differs between lanes of a warp",
    ),
    "one bad part of a condition": (
        (*ALLOCATED, If(all_of(less(BID, N), less_equal(TID, const(40))), (shuffle(),))),
        "which differs between lanes of a warp",
    ),
    "shuffle of three lanes": ((*ALLOCATED, shuffle(1, 3)), "a group of 3 lanes is no power of two up to 32"),
    "waiting without a cooperative launch": (
        (SpinWait(COUNTERS, ZERO, const(1)),),
        "waits for other blocks, but the launch is not cooperative",
    ),
    "post to an odd word": ((Post(COUNTERS, const(1), (Literal(1.0, FLOAT),)),), "word 1 may begin no pair of words"),
    "post of a flag": (
        (Post(COUNTERS, ZERO, (Literal(True, DataType.Bool),)),),
        "a Bool is posted, expected values of 4 or 8 bytes",
    ),
    "post to a tensor": ((Post(OUT, ZERO, (Literal(1.0, FLOAT),)),), "out is Float, expected Int32"),
    "receiving by some lanes": (
        (*ALLOCATED, If(less(TID, const(3)), (Receive((R,), COUNTERS, ZERO, const(2), const(4)),))),
        "receiving posts under the condition threadIdx.x < 3, which differs between lanes of a warp",
    ),
    "receiving odd words": (
        (*ALLOCATED, Receive((R,), COUNTERS, ZERO, const(3), const(4))),
        "3 words from one post to the next",
    ),
    # collectives
    "collective in the end": ((*ALLOCATED, reduce_of(R)), "a collective is left; expand_collectives must have run"),
    "collective under a condition": (
        (*ALLOCATED, If(less(TID, const(64)), (reduce_of(R),))),
        "a collective under the condition threadIdx.x < 64, which differs between threads of a block",
    ),
    "two identities": ((*ALLOCATED, reduce_of(R, identities=2)), "1 partials and 2 identities"),
    "half a welford": ((*ALLOCATED, reduce_of(R, combine="welford")), "1 partials and 1 identities"),
    "unknown combination": (
        (*ALLOCATED, reduce_of(R, combine="blend")),
        "combines by 'blend', which the op table does not have",
    ),
    "shared partial": (
        (Allocate(S), store(S, ONE, TID), reduce_of(S)),
        "the partial s is in shared memory, expected registers",
    ),
    "scan in the end": ((*SCANNED, scan_of()), "a collective is left; expand_collectives must have run"),
    "scan under a condition": (
        (*SCANNED, If(less(TID, const(64)), (scan_of(),))),
        "a collective under the condition threadIdx.x < 64, which differs between threads of a block",
    ),
    "scan of other elements": ((*SCANNED, scan_of(tiles=((3, 1),))), "r4 has 4 elements, not 3"),
    "scan of shared memory": (
        (Allocate(S), store(S, ONE, TID), *SCANNED, scan_of(values=S)),
        "s is in shared memory, expected registers",
    ),
    "scan with an unknown combination": (
        (*SCANNED, scan_of(combine="blend")),
        "combines by 'blend', which the op table does not have",
    ),
    "scan of blocks": ((*SCANNED, scan_of(axis=ParallelType.grid_x)), "a scan runs over axes of a block"),
    # shared memory
    "shared without a place": ((Allocate(UNPLACED),), "shared buffer unplaced has no place in shared memory"),
    "shared past its end": ((Allocate(S), store(S, ONE, 128)), "s[128] is past its end, it has 128 elements"),
}


@pytest.mark.parametrize(("body", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_broken(body: tuple[Stmt, ...], expected: str) -> None:
    assert expected in message(of(*body))


def test_only_final_kernels_need_places_and_expanded_collectives() -> None:
    verify_kernel(of(Allocate(UNPLACED), *ALLOCATED, reduce_of(R)))


def test_shared_place_of_another_alignment() -> None:
    k = replace(of(Allocate(S)), shared_offsets={"s": const(2)})
    assert "s starts at byte 2, no multiple of 4" in message(k)


SOUND: dict[str, tuple[Stmt, ...]] = {
    "sibling scopes define a symbol again": (loop(J, 4, store(OUT, ONE, J)), loop(J, 4, store(OUT, ONE, J))),
    "sibling scopes allocate a buffer again": (If(less(BID, N), ALLOCATED, (Allocate(R), store(R, ONE))),),
    "registers indexed by unrolled loops and what is made of them": (
        *ALLOCATED4,
        loop(J, 2, Let(K, J * 2 + 1), store(R4, ONE, K), unroll=True),
    ),
    "unrolled loop in an unrolled loop": (
        Allocate(r16 := registers("r16", FLOAT, 16)),
        loop(J, 4, loop(K, 4, store(r16, ONE, J * 4 + K), unroll=True), unroll=True),
    ),
    "barrier under a condition of the block": (If(less(BID, N), (BlockBarrier(),)),),
    "barrier in a loop of the block": (For(ROW, BID, as_int(N), const(128), (BlockBarrier(),)),),
    "barrier in a loop with as many trips for every thread": (
        For(ROW, TID % 128, const(1024), const(128), (BlockBarrier(),)),
    ),
    "barrier under what shared memory says": (
        Allocate(flag := shared("s", INT32, 128)),
        LoadIndex(J, flag, ZERO),
        If(equal(J, const(1)), (BlockBarrier(),)),
    ),
    "shuffle in whole warps": (*ALLOCATED, If(less(TID, const(64)), (shuffle(),))),
    "shuffle from the second warp on": (*ALLOCATED, If(less_equal(const(32), TID), (shuffle(),))),
    "shuffle in the first warp": (*ALLOCATED, If(equal(TID // 32, ZERO), (shuffle(),))),
    "shuffle under a predicate on whole warps": (
        *ALLOCATED,
        Let(ODD, BID * 128 + TID),
        If(less(ODD, symbol("n", 0, 2**30) // 32 * 32), (shuffle(),)),
    ),
    "shuffle under a predicate on vectors of whole warps": (
        *ALLOCATED,
        If(any_of(less(TID * 4 + 3, const(256)), less(BID, N)), (shuffle(),)),
    ),
    "shuffle under another row": (*ALLOCATED, If(equal(TID_Y, ZERO), (shuffle(),))),
    "a stored Index is an Int": (
        Allocate(n64 := registers("n64", DataType.Int)),
        store(n64, IndexValue(TID, DataType.Index)),
    ),
}


@pytest.mark.parametrize("body", SOUND.values(), ids=SOUND.keys())
def test_sound(body: tuple[Stmt, ...]) -> None:
    verify_kernel(of(*body), is_final=True)


def test_rows_that_are_no_whole_warps() -> None:
    k = of(*ALLOCATED, If(equal(TID_Y, ZERO), (shuffle(),)))
    k = replace(k, plan=replace(k.plan, block=(const(16), const(8), const(1))))
    assert "a shuffle under the condition threadIdx.y == 0, which differs between lanes of a warp" in message(k)


def test_parameters() -> None:
    k = of()
    plan = k.plan

    def said(*parameters: Parameter) -> str:
        return message(replace(k, parameters=parameters))

    assert "out: no tensor argument 2 in the launch plan" in said(TensorParameter(OUT, "out", 2, True))
    assert "out: argument 0 is counters, not out" in said(TensorParameter(OUT, "out", 0, True))
    assert "parameter r is in local memory" in said(TensorParameter(R, "out", 1, True))
    assert "two buffers are named counters" in said(*k.parameters, WorkspaceParameter(COUNTERS))
    work = tensor("work", FLOAT)
    assert "workspace work is not supplied by the launch plan" in said(WorkspaceParameter(work))
    assert "semaphores work are Float, expected Int32" in said(SemaphoreParameter(work))
    assert "semaphores work are not supplied by the launch plan" in said(SemaphoreParameter(work))
    extent = ExtentParameter(symbol("m", 0, 9))
    assert "extent m is not bound by the launch plan" in said(extent)
    assert "extent n is a parameter twice" in said(*k.parameters, *k.parameters[2:3])
    divisor = DivisorParameter(2 * N + 1)
    verify_kernel(replace(k, parameters=(*k.parameters, divisor)), is_final=True)
    assert "divisor 2*n + 1 is a parameter twice" in said(*k.parameters, divisor, DivisorParameter(2 * N + 1))
    assert "divisor m is not computed by the launch plan" in said(*k.parameters, DivisorParameter(symbol("m", 0, 9)))
    wide = replace(k, parameters=(*k.parameters, divisor), index_bits=64)
    assert "2*n + 1 is a divisor of 64-bit indices" in message(wide)
    assert "scalar s9 is not supplied by the launch plan" in said(ScalarParameter("s9", FLOAT))
    assert "scalar s0 is a parameter twice" in said(*k.parameters, ScalarParameter("s0", FLOAT))
    unbound = replace(k, plan=replace(plan, grid=(symbol("m", 0, 9), const(1), const(1))))
    assert "the launch plan computes m from m, which it does not bind" in message(unbound)
    assert "the name 'a b' is no identifier" in message(replace(k, name="a b"))


def test_clusters_of_blocks_that_wait_for_the_whole_grid() -> None:
    k = of()
    clusters = replace(k.plan, cluster=(2, 1, 1))
    verify_kernel(replace(k, plan=replace(clusters, cooperative=False)), is_final=True)
    assert "the launch is cooperative and has clusters" in message(replace(k, plan=replace(clusters, cooperative=True)))


def test_a_statement_in_two_places_is_fine() -> None:
    shared_statement = store(OUT, ONE)
    verify_kernel(of(If(less(BID, N), (shared_statement,), (shared_statement,))), is_final=True)


def test_many_findings_are_cut() -> None:
    undefined: Int = symbol("zz", 0, 9)
    text = message(of(*(store(OUT, Literal(float(n), FLOAT), undefined) for n in range(40))))
    assert text.count("not defined here") == 8
    assert text.endswith("...")
