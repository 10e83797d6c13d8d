"""Reads under tests: all of them are on their way before the first is used, whatever the type and however tests are nested."""

from __future__ import annotations

import re

import pytest

from fuser.codegen.generate import generate_cuda
from fuser.ir.integers.integers import const, less, symbol
from fuser.ir.kernel.kernel import Allocate, If, Kernel, Literal, Role, Stmt, VectorMove
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp
from fuser.runtime.kernels import nvrtc
from tests.codegen.golden_corpus import (
    BOOL,
    FLOAT,
    HALF,
    TID,
    ZERO,
    N,
    at,
    call,
    kernel,
    loop,
    registers,
    store,
    tensor,
)

DOUBLE = DataType.Double
TRIPS = 4
J, K, V = symbol("j", below=TRIPS), symbol("k", below=TRIPS), symbol("v", below=4)


def summed(dtype: DataType, width: int, *, aligned: bool = True, nested: bool = False, blank: bool = False) -> Kernel:
    """Sums of TRIPS accesses of `width` elements a thread, each of which may lie behind the end."""
    a, b = tensor("a", dtype), tensor("b", dtype)
    x, total = registers("x", dtype, TRIPS * width), registers("total", dtype)
    first = (J * 128 + TID) * width
    wide: Stmt = VectorMove(x, J * width, a, first, width, CacheOp.unspecified, aligned)
    if width == 1:
        wide = store(x, at(a, first), J)
    read = If(less(first + (width - 1), N), (wide,))
    if nested:
        one = If(less(first + V, N), (store(x, at(a, first + V), J * width + V),))
        read = If(less(TID, N), (If(read.condition, read.then, (loop(V, width, one, unroll=True),)),))
    reads: tuple[Stmt, ...] = (read,)
    if blank:
        reads = (store(x, Literal(0.0, dtype), J, Role.initialise), read)
    add = store(total, call("add", at(total), at(x, K * width), compute=FLOAT, dtype=dtype))
    use = If(less((K * 128 + TID) * width + (width - 1), N), (add,))
    return kernel(
        "summed",
        (a,),
        (b,),
        Allocate(x),
        Allocate(total),
        store(total, Literal(0.0, dtype)),
        loop(J, TRIPS, *reads, unroll=True),
        loop(K, TRIPS, use, unroll=True),
        store(b, at(total), TID),
    )


def order(text: str) -> str:
    """L for each read of device memory and A for each addition, as the compiler left them."""
    ptx = nvrtc.compile_to_ptx(text, ("summed",), "sm_90a", ["-DFUSER_MAX_THREADS=256"]).cubin.decode()
    found = re.findall(r"\s(ld\.(?!param)|add\.(?:rn\.)?f\d+)", ptx[ptx.index(".entry") :])
    return "".join("L" if f.startswith("ld") else "A" for f in found)


@pytest.mark.parametrize("dtype", [HALF, FLOAT])
@pytest.mark.parametrize(
    ("width", "aligned", "nested"), [(1, True, False), (4, True, False), (4, False, False), (4, True, True)]
)
def test_all_reads_come_before_the_first_use(dtype: DataType, width: int, aligned: bool, nested: bool) -> None:
    text = generate_cuda(summed(dtype, width, aligned=aligned, nested=nested)).text
    assert re.fullmatch("L+A+", order(text)), text
    without = re.sub(r'.*asm\("" :.*\n', "", text)
    assert without != text


def test_elements_of_half_a_register_are_not_put_together_between_reads() -> None:
    """Where tests are nested, too: what joins two reads in a register waits for both."""
    a, b = tensor("a", HALF), tensor("b", HALF)
    x = registers("x", HALF, TRIPS)
    read = If(less(J * 128 + TID, N), (store(x, at(a, J * 128 + TID), J),))
    write = If(less(K * 128 + TID, N), (store(b, at(x, K), K * 128 + TID),))
    reads = If(less(TID, N), (loop(J, TRIPS, read, unroll=True),))
    text = generate_cuda(kernel("summed", (a,), (b,), Allocate(x), reads, loop(K, TRIPS, write, unroll=True))).text
    ptx = nvrtc.compile_to_ptx(text, ("summed",), "sm_90a", ["-DFUSER_MAX_THREADS=256"]).cubin.decode()
    loads = [m.start() for m in re.finditer(r"\sld\.global", ptx)]
    assert len(loads) == TRIPS
    assert not re.search(r"mov\.b32\s+%r\d+, \{", ptx[loads[0] : loads[-1]]), ptx


def test_cut_vectors_of_several_types_fit() -> None:
    for dtype in (DOUBLE, DataType.Int, DataType.Int32, DataType.BFloat16):
        text = generate_cuda(summed(dtype, 2, nested=True)).text if dtype is not DOUBLE else ""
        text = text or generate_cuda(summed(DOUBLE, 2, aligned=False)).text
        result = nvrtc.compile_to_cubin(text, ["summed"], "sm_90a", ["-DFUSER_MAX_THREADS=256"])
        resources = result.resources["summed"]
        assert resources.spill_bytes == resources.stack_bytes == 0
        assert "warning" not in result.log


def test_what_was_there_before_is_kept() -> None:
    """A register that has a value where the test fails keeps it."""
    text = generate_cuda(summed(FLOAT, 1, blank=True)).text
    assert "asm" not in text


def test_bytes_are_read_as_they_are() -> None:
    a, x = tensor("a", BOOL), registers("x", BOOL, 2)
    read = If(less(TID, N), (store(x, at(a, TID)),))
    assert "asm" not in generate_cuda(kernel("k", (a,), (), Allocate(x), read)).text


def test_numbers_of_reads() -> None:
    """A test for very many reads stays as it is: they would take registers before any is used."""
    a, x = tensor("a", FLOAT), registers("x", FLOAT, 16)
    for count, expected in ((8, 1), (9, 0)):
        reads = tuple(store(x, at(a, TID + k), k) for k in range(count))
        text = generate_cuda(kernel("k", (a,), (), Allocate(x), If(less(TID + const(16), N), reads))).text
        assert text.count("asm") == expected
    assert ZERO is const(0)
