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
    # A thread holds 32 bytes of the output, and what it is made of.
    assert loads == [32 // k] * k
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
    assert stores == [32 // k] * k


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
    assert accesses(body) == ([16], [16])


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
    assert loads == [16]
    assert stores == [16]


def test_repeated_values_are_read_once() -> None:
    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        t = fd.ops.expand(fd.ops.broadcast_in_dim(doubled(fd, x), [4096, 2048, 1], [0, 1]), [4096, 2048, 4])
        return [fd.ops.reshape(t, [4096, 8192])]

    (body,) = sources(define, [dense(4096, 2048)])
    assert accesses(body) == ([8], [16])


def test_parts_of_long_rows_are_no_cells() -> None:
    """Half of a row is no part of a cell: each half is a read of its own."""

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1, -1], True, BFloat16)
        gate, up = fd.ops.slice(x, [0, 0], [4096, 2048]), fd.ops.slice(x, [0, 2048], [4096, 4096])
        return [fd.ops.cast(fd.ops.silu(gate) * up, BFloat16)]

    (body,) = sources(define, [dense(4096, 4096)])
    loads, _ = accesses(body)
    assert len(loads) == 2


@pytest.mark.parametrize("seed", range(48))
def test_random_definitions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of small tensors, on the simulator."""
    monkeypatch.setattr(importlib.import_module("fuser.schedule.pointwise"), "LEAST_THREADS", 0)
    fd, arguments, expected = generate(seed)
    for found, wanted in zip(fd.execute(arguments, device="simulator"), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)


def test_random_definitions_have_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is about happens there: cells of several kinds."""
    pointwise = importlib.import_module("fuser.schedule.pointwise")
    monkeypatch.setattr(pointwise, "LEAST_THREADS", 0)
    seen: list[PointwiseParams] = []
    choose = pointwise._tiled  # noqa: SLF001

    def kept(*arguments: Any) -> PointwiseParams | None:
        found: PointwiseParams | None = choose(*arguments)
        seen.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(pointwise, "_tiled", kept)
    for seed in range(24):
        fd, arguments, _ = generate(seed)
        fd.execute(arguments, device="simulator")
    assert any(p.held and p.whole and p.vector > 1 for p in seen)
    assert any(p.held and not p.whole and p.vector > 1 for p in seen)
    assert any(p.across for p in seen)
    assert any(p.vector == 1 for p in seen)
