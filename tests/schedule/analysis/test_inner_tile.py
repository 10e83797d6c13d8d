"""A thread takes whole inner tiles where the innermost dims are few elements: whole vectors on both sides, each
element read once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.schedule.cost import pointwise_space
from tests.fuzzing.random_cells import generate
from tests.schedule.analysis.cell_programs import accesses, dense, doubled, element, sources, stacked, tiles

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32


SHAPES = [(8192, 4096), (4096, 1000), (3333, 2040)]


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_interleaved_parts_are_whole_vectors(m: int, n: int, k: int) -> None:
    def define(fd: Any) -> list[Any]:
        parts = [fd.define_tensor([-1, -1], True, BFloat16) for _ in range(k)]
        return [fd.ops.reshape(stacked(fd, [doubled(fd, p) for p in parts], [m, n]), [m, k * n])]

    (body,) = sources(define, [dense(m, n)] * k)
    loads, stores = accesses(body)
    # A thread holds one access of the output if the parts of that are no less than a line for a warp.
    assert loads == [max(16 // k, 4)] * k
    assert stores == [16]
    assert "%" not in body  # no index is divided


@pytest.mark.parametrize("k", [2, 4, 8])
@pytest.mark.parametrize(("m", "n"), SHAPES)
def test_each_element_of_an_input_in_slices_is_read_once(m: int, n: int, k: int) -> None:
    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.define_tensor([-1, -1], True, BFloat16), [m, n, k])
        return [doubled(fd, element(fd, x, [m, n], i)) for i in range(k)]

    (body,) = sources(define, [dense(m, k * n)])
    loads, stores = accesses(body)
    assert loads == [16]
    assert stores == [max(16 // k, 4)] * k


@pytest.mark.parametrize("k", [2, 3, 4, 8])
def test_no_test_an_element_but_of_constants(k: int) -> None:
    """Which part an element is of follows from the counter of an unrolled loop."""

    def define(fd: Any) -> list[Any]:
        parts = [fd.define_tensor([-1, -1], True, Float) for _ in range(k)]
        return [stacked(fd, parts, [4096, 2048])]

    (body,) = sources(define, [dense(4096, 2048, dtype=Float)] * k)
    tests = re.findall(r"if \((.*)\) \{", body)
    per_element = [t for t in tests if "threadIdx" not in t and "tid_" not in t]
    assert all(
        re.fullmatch(r"\(?(i\d+ < \d+|\d+ <= i\d+|\d+ < i\d+|\d+ == i\d+|i\d+ == \d+)\)?", t) for t in per_element
    )
    assert len(tests) - len(per_element) <= 1


def test_rotary_embedding_of_neighbours() -> None:
    """Slices and a concatenation of the innermost dim at once."""
    b, s, h, d = 3, 1777, 24, 48

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1] * 4, True, BFloat16)
        c, z = (
            fd.ops.broadcast_in_dim(fd.define_tensor([-1, -1], True, Float), [b, s, h, d], [1, 3]) for _ in range(2)
        )
        pairs = fd.ops.reshape(fd.ops.cast(x, Float), [b, s, h, d, 2])
        even, odd = (element(fd, pairs, [b, s, h, d], i) for i in range(2))
        turned = stacked(fd, [even * c - odd * z, even * z + odd * c], [b, s, h, d])
        return [fd.ops.cast(fd.ops.reshape(turned, [b, s, h, 2 * d]), BFloat16)]

    (body,) = sources(define, [dense(b, s, h, 2 * d), *[dense(s, d, dtype=Float)] * 2])
    loads, stores = accesses(body)
    assert sorted(loads) == [16, 16, 16]
    assert stores == [16]


def test_unpacked_words_are_read_once() -> None:
    m, n = 4096, 2048

    def define(fd: Any) -> list[Any]:
        words = fd.define_tensor([-1, -1], True, Int32)
        parts = [fd.ops.bitwise_right_shift(fd.ops.bitwise_left_shift(words, 24 - 8 * k), 24) for k in range(4)]
        t = stacked(fd, [fd.ops.cast(p, Float) for p in parts], [m, n])
        return [fd.ops.cast(fd.ops.reshape(t, [m, 4 * n]), BFloat16)]

    (body,) = sources(define, [dense(m, n, dtype=Int32)])
    assert accesses(body) == ([8], [16])


def test_complex_products_read_both_parts_at_once() -> None:
    """The extent of the innermost dim is not declared: the kernel is one for the extent at hand."""

    def define(fd: Any) -> list[Any]:
        x, y = (fd.define_tensor([-1, -1, -1], True, Float) for _ in range(2))
        (a, b), (c, d) = ([element(fd, t, [4096, 2048], k) for k in range(2)] for t in (x, y))
        return [stacked(fd, [a * c - b * d, a * d + b * c], [4096, 2048])]

    (body,) = sources(define, [dense(4096, 2048, 2, dtype=Float)] * 2)
    loads, stores = accesses(body)
    assert loads == [16, 16]
    assert stores == [16]


@pytest.mark.parametrize("back", [False, True])
def test_pixels_are_shuffled_by_whole_vectors(back: bool) -> None:
    b, c, h, w, r = 16, 64, 64, 64, 2

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1] * 4, True, BFloat16)
        cut, order = ([b, c, h, r, w, r], [0, 1, 3, 5, 2, 4]) if back else ([b, c, r, r, h, w], [0, 1, 4, 2, 5, 3])
        shape = [b, c * r * r, h, w] if back else [b, c, h * r, w * r]
        return [fd.ops.reshape(fd.ops.permute(fd.ops.reshape(doubled(fd, x), cut), order), shape)]

    shape = (b, c, h * r, w * r) if back else (b, c * r * r, h, w)
    (body,) = sources(define, [dense(*shape)])
    loads, stores = accesses(body)
    assert loads == [16 if back else 8]
    assert stores == [8 if back else 16]


def shuffled_of(dtype: DataType, shape: Sequence[int], r: int) -> Callable[[Any], list[Any]]:
    b, c, h, w = shape

    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.ops.neg(fd.define_tensor([-1] * 4, True, dtype)), [b, c // (r * r), r, r, h, w])
        t = fd.ops.reshape(fd.ops.permute(x, [0, 1, 4, 2, 5, 3]), [b, c // (r * r), h * r, w * r])
        return [fd.ops.cast(t, dtype)]

    return define


def upsampled_of(dtype: DataType, shape: Sequence[int], r: int) -> Callable[[Any], list[Any]]:
    b, c, h, w = shape

    def define(fd: Any) -> list[Any]:
        x = fd.ops.cast(fd.ops.neg(fd.define_tensor([-1] * 4, True, dtype)), dtype)
        t = fd.ops.broadcast_in_dim(x, [b, c, h, 1, w, 1], [0, 1, 2, 4])
        return [fd.ops.reshape(fd.ops.expand(t, [b, c, h, r, w, r]), [b, c, h * r, w * r])]

    return define


@pytest.mark.parametrize("define_of", [shuffled_of, upsampled_of])
@pytest.mark.parametrize("dtype", [BFloat16, Float], ids=str)
@pytest.mark.parametrize("r", [2, 4])
@pytest.mark.parametrize("length", [61, 257])
def test_rows_without_a_divisor_are_stored_by_cells(
    define_of: Callable[..., Any], dtype: DataType, r: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbouring threads store neighbouring inner tiles, one access each, and a block has more than one short row of them."""
    chosen = tiles(monkeypatch)
    shape = (16, 48, 61, length)
    (body,) = sources(define_of(dtype, shape, r), [dense(*shape, dtype=dtype)])
    _, stores = accesses(body)
    assert set(stores) == {r * dtype.itemsize}
    (p,) = set(chosen)
    assert p.tile_dims
    assert p.vector == 1
    assert p.unroll * r * dtype.itemsize >= 8


@pytest.mark.parametrize("define_of", [shuffled_of, upsampled_of])
@pytest.mark.parametrize("dtype", [DataType.Half, Float, DataType.Double], ids=str)
@pytest.mark.parametrize(
    ("shape", "r"), [((2, 8, 5, 7), 2), ((1, 9, 3, 37), 3), ((3, 4, 17, 13), 2), ((1, 16, 33, 4), 4)]
)
def test_results_of_short_runs(
    define_of: Callable[..., Any], dtype: DataType, shape: tuple[int, ...], r: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tiles of few elements, and several rows a thread.
    monkeypatch.setattr(pointwise_space, "MIN_THREADS", 0)
    kind = {DataType.Half: np.float16, Float: np.float32, DataType.Double: np.float64}[dtype]
    x = (np.arange(np.prod(shape)) % 2039).astype(kind).reshape(shape)
    with FusionDefinition() as fd:
        for t in define_of(dtype, shape, r)(fd):
            fd.add_output(t)
    (found,) = fd.execute([x], device="simulator")
    b, c, h, w = shape
    if define_of is upsampled_of:
        wanted = -x.repeat(r, 2).repeat(r, 3)
    else:
        wanted = -x.reshape(b, c // (r * r), r, r, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(b, -1, h * r, w * r)
    np.testing.assert_array_equal(np.asarray(found), wanted)


def test_repeated_values_are_read_once() -> None:
    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        t = fd.ops.expand(fd.ops.broadcast_in_dim(doubled(fd, x), [4096, 2048, 1], [0, 1]), [4096, 2048, 4])
        return [fd.ops.reshape(t, [4096, 8192])]

    (body,) = sources(define, [dense(4096, 2048)])
    assert accesses(body) == ([4], [16])


def test_a_part_without_elements_is_no_cell() -> None:
    """An input of no elements, padded to the extent of what it is added to."""

    def define(fd: Any) -> list[Any]:
        x, y = fd.define_tensor([-1, -1], True, Float), fd.define_tensor([-1, 0], True, Float)
        return [x * fd.ops.pad(y, [0, 4, 0, 0])]

    (body,) = sources(define, [dense(65536, 4, dtype=Float), dense(65536, 0, dtype=Float)])
    assert accesses(body)[1]


def test_parts_of_long_rows_are_no_cells() -> None:
    """Half of a row is no part of an inner tile: each half is a read of its own."""

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        gate, up = fd.ops.slice(x, [0, 0], [4096, 2048]), fd.ops.slice(x, [0, 2048], [4096, 4096])
        return [fd.ops.cast(fd.ops.silu(gate) * up, BFloat16)]

    (body,) = sources(define, [dense(4096, 4096)])
    loads, _ = accesses(body)
    assert len(loads) == 2


@pytest.mark.in_turns
@pytest.mark.parametrize("seed", range(48))
def test_random_definitions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inner tiles of small tensors, on the simulator."""
    monkeypatch.setattr(pointwise_space, "MIN_THREADS", 0)
    fd, arguments, expected = generate(seed)
    for found, wanted in zip(fd.execute(arguments, device="simulator"), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_random_definitions_have_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is about happens there: inner tiles of several kinds."""
    monkeypatch.setattr(pointwise_space, "MIN_THREADS", 0)
    seen = tiles(monkeypatch)
    for seed in range(24):
        fd, arguments, _ = generate(seed)
        fd.execute(arguments, device="simulator")
    with FusionDefinition() as fd:
        planes, pairs = fd.define_tensor([-1, -1], True), fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.permute(planes, [1, 0]) + pairs)
    fd.execute([np.ones((2, 64), np.float32), np.ones((64, 2), np.float32)], device="simulator")
    assert any(p.whole_inputs and p.tile_dims and p.vector > 1 for p in seen)
    assert any(p.whole_inputs and not p.tile_dims and p.vector > 1 for p in seen)
    assert any(n in p.tile_contiguous and count == 0 for p in seen for n, count in p.tile_vector_dims)
    assert any(p.vector == 1 for p in seen)


def test_looked_up_rows_are_cells() -> None:
    """The rows of pairs, interleaved: vectors along each row, and all places are known before."""
    n, d = 1 << 16, 64

    def define(fd: Any) -> list[Any]:
        table = fd.define_tensor([-1, -1], True, Float)
        index = fd.define_tensor([-1, -1], True, DataType.Int)
        rows = fd.ops.index_select(table, fd.ops.reshape(index, [n * 2]), 0)
        return [fd.ops.abs(fd.ops.permute(fd.ops.reshape(rows, [n, 2, d]), [0, 2, 1]))]

    (body,) = sources(define, [dense(5000, d, dtype=Float), dense(n, 2, dtype=DataType.Int)])
    assert "const uint2*>(&t0[" in body
    loads, stores = accesses(body)
    assert 0 not in loads
    assert stores == [16]
