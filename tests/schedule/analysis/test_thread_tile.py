"""A thread takes whole cells where the innermost dims are few elements: whole vectors on both sides, each element read once."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.ir.device_info import DeviceInfo
from fuser.ir.dtypes import DataType as Type
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.params import PointwiseParams
from tests.random_cells import generate

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32


class TextOnly:
    """A device that no machine code is made for."""

    kind, index = "simulator", 0
    info = DeviceInfo.preset("H200")


def dense(*sizes: int, dtype: Type = BFloat16) -> TensorDescriptor:
    strides = [int(np.prod(sizes[k + 1 :])) for k in range(len(sizes))]
    return TensorDescriptor(dtype, sizes, tuple(strides), 256, 0)


def sources(define: Callable[[Any], Sequence[Any]], inputs: Sequence[TensorDescriptor]) -> list[str]:
    """The bodies of the kernels for an H200."""
    with FusionDefinition() as fd:
        for t in define(fd):
            fd.add_output(t)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    recorder = KeepingRecorder()
    device: Any = TextOnly()
    compile_fusion(fusion, bind_inputs(fusion, list(inputs)), device, recorder=recorder)
    texts = [text for name, text in recorder.stages.items() if name.endswith("kernel.cu")]
    return [text[text.index('extern "C"') :] for text in texts]


def accesses(body: str) -> tuple[list[int], list[int]]:
    """Bytes of the statements that load from arguments, and of those that store to them."""
    arguments = re.findall(r"(\w+)[,)]", body[: body.index("{")])
    sizes = {"uint4": 16, "uint2": 8, "unsigned int": 4, "unsigned short": 2}
    loads, stores = list[int](), list[int]()
    for statement in body[body.index("{") :].split(";"):
        for side, found in zip(statement.partition(" = ")[::2], (stores, loads), strict=True):
            for name in arguments:
                wide = re.search(rf"reinterpret_cast<(?:const )?([a-z0-9 ]+)\*>\(&{name}\[", side)
                if wide is not None:
                    found.append(sizes[wide[1]])
                elif re.search(rf"(?<![\w&]){name}\[", side):
                    found.append(0)
    return loads, stores


def stacked(fd: Any, parts: Sequence[Any], shape: Sequence[int]) -> Any:
    lead = list(range(len(shape)))
    return fd.ops.cat([fd.ops.broadcast_in_dim(p, [*shape, 1], lead) for p in parts], len(shape))


def element(fd: Any, t: Any, shape: Sequence[int], k: int) -> Any:
    n = len(shape)
    return fd.ops.squeeze(fd.ops.slice(t, [0] * n + [k], [*shape, k + 1]), [n])


def doubled(fd: Any, t: Any) -> Any:
    return fd.ops.cast(fd.ops.cast(t, Float) * 2.0, BFloat16)


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
    """Neighbouring threads store neighbouring cells, one access each, and a block has more than one short row of them."""
    chosen = tiles(monkeypatch)
    shape = (16, 48, 61, length)
    (body,) = sources(define_of(dtype, shape, r), [dense(*shape, dtype=dtype)])
    _, stores = accesses(body)
    assert set(stores) == {r * dtype.itemsize}
    (p,) = set(chosen)
    assert p.whole
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
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    # Tiles of few elements, and several rows a thread.
    monkeypatch.setattr(pointwise, "LEAST_THREADS", 0)
    monkeypatch.setattr(pointwise, "LEAST_WAVES", 0)
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
    """Half of a row is no part of a cell: each half is a read of its own."""

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        gate, up = fd.ops.slice(x, [0, 0], [4096, 2048]), fd.ops.slice(x, [0, 2048], [4096, 4096])
        return [fd.ops.cast(fd.ops.silu(gate) * up, BFloat16)]

    (body,) = sources(define, [dense(4096, 4096)])
    loads, _ = accesses(body)
    assert len(loads) == 2


def interleaved_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        parts = [fd.ops.abs(fd.define_tensor([-1, -1], True, dtype)) for _ in range(k)]
        return [fd.ops.reshape(fd.ops.cast(stacked(fd, parts, [4096, 2048]), dtype), [4096, 2048 * k])]

    return define


def taken_apart_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.define_tensor([-1, -1], True, dtype), [4096, 2048, k])
        return [fd.ops.cast(fd.ops.abs(element(fd, x, [4096, 2048], i)), dtype) for i in range(k)]

    return define


def repeated_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        x = fd.ops.cast(fd.ops.abs(fd.define_tensor([-1, -1], True, dtype)), dtype)
        t = fd.ops.expand(fd.ops.broadcast_in_dim(x, [4096, 2048, 1], [0, 1]), [4096, 2048, k])
        return [fd.ops.reshape(t, [4096, 2048 * k])]

    return define


KINDS = {"interleaved": interleaved_of, "taken apart": taken_apart_of, "repeated": repeated_of}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [BFloat16, Float, DataType.Double], ids=str)
@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 8])
def test_runs_of_a_thread_are_no_longer_than_needed(
    kind: str, dtype: DataType, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accesses of neighbouring threads lie as far apart as a thread's run is long."""
    chosen = tiles(monkeypatch)
    inputs = {"interleaved": [dense(4096, 2048, dtype=dtype)] * k, "taken apart": [dense(4096, 2048 * k, dtype=dtype)]}
    (body,) = sources(KINDS[kind](dtype, k), inputs.get(kind, [dense(4096, 2048, dtype=dtype)]))
    loads, stores = accesses(body)
    size = dtype.itemsize
    is_wide = k & (k - 1) == 0
    if not chosen:
        # A thread takes one cell, for which no tile is needed, or cells are too large.
        assert max(stores) == 16 if is_wide else k * size > 16
        return
    (p,) = set(chosen)
    # What is beside the cells is a whole line for a warp, if anything allows it.
    narrow = p.vector * size
    assert narrow >= 4 or kind == "repeated"
    assert all(n == 0 or n >= 4 for n in (*loads, *stores)) or kind == "repeated"
    if p.vector * k * size > 16:
        # Longer runs than one access: there is no shorter tile with whole accesses on the other side.
        assert k * size > 16 or not is_wide or narrow == 4
    for name in set(p.runs) - dict(p.tails).keys():
        width = dict(p.widths)[name] * size
        assert width == (min(16, p.vector * k * size) if is_wide else (p.vector * k * size) & -(p.vector * k * size))


def test_threads_move_as_much_as_those_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a thread would have less, two accesses to a run of an input are no loss: they share sectors in the cache."""

    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.ops.cast(fd.define_tensor([-1, -1], True, BFloat16), Float), [8192, 4096, 2])
        gate, up = (element(fd, x, [8192, 4096], k) for k in range(2))
        return [fd.ops.cast(gate * up, BFloat16)]

    chosen = tiles(monkeypatch)
    (body,) = sources(define, [dense(8192, 8192)])
    assert accesses(body) == ([16], [16])
    assert {p.vector for p in chosen} == {8}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_longer_and_shorter_tiles_are_candidates_that_can_be_lowered(
    kind: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    scheduler = pointwise.PointwiseScheduler
    found: list[PointwiseParams] = []
    propose = scheduler.propose

    def noted(self: Any, *arguments: Any) -> PointwiseParams:
        if not found:
            monkeypatch.setattr(scheduler, "propose", propose)
            found.extend(self.candidates(*arguments))
        return found[0]

    monkeypatch.setattr(scheduler, "propose", noted)
    inputs = {"interleaved": [dense(4096, 2048)] * k, "taken apart": [dense(4096, 2048 * k)]}
    given = inputs.get(kind, [dense(4096, 2048)])
    define = KINDS[kind](BFloat16, k)
    proposed = accesses(sources(define, given)[0])
    assert len(set(found)) == len(found)
    longer = [p for p in found[1:] if p.vector != found[0].vector]
    assert longer
    for p in found[1:]:
        monkeypatch.setattr(scheduler, "propose", lambda *_, p=p: p)
        (body,) = sources(define, given)
        # No access is of single elements that was not one before.
        assert p.vector == 1 or 0 not in (*accesses(body)[0], *accesses(body)[1]) or 0 in (*proposed[0], *proposed[1])


def tiles(monkeypatch: pytest.MonkeyPatch) -> list[PointwiseParams]:
    """Where choices with cells are noted from now on."""
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    seen: list[PointwiseParams] = []
    choose = pointwise._tiled  # noqa: SLF001

    def kept(*arguments: Any) -> PointwiseParams | None:
        found: PointwiseParams | None = choose(*arguments)
        seen.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(pointwise, "_tiled", kept)
    return seen


@pytest.mark.parametrize("seed", range(48))
def test_random_definitions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of small tensors, on the simulator."""
    monkeypatch.setattr(importlib.import_module("fuser.schedule.schedulers.pointwise"), "LEAST_THREADS", 0)
    fd, arguments, expected = generate(seed)
    for found, wanted in zip(fd.execute(arguments, device="simulator"), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_random_definitions_have_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is about happens there: cells of several kinds."""
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    monkeypatch.setattr(pointwise, "LEAST_THREADS", 0)
    seen = tiles(monkeypatch)
    for seed in range(24):
        fd, arguments, _ = generate(seed)
        fd.execute(arguments, device="simulator")
    assert any(p.held and p.whole and p.vector > 1 for p in seen)
    assert any(p.held and not p.whole and p.vector > 1 for p in seen)
    assert any(n in p.runs and count == 0 for p in seen for n, count in p.tails)
    assert any(p.vector == 1 for p in seen)
