"""A thread reduces few elements that lie apart: whole vectors on both sides, each element read once, nothing exchanged."""

from __future__ import annotations

import importlib
import math
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.schedule.cost import pointwise_space
from fuser.schedule.params import ReductionParams, ThreadReductionParams
from fuser.schedule.scheduler import Refused, SegmentInputs
from fuser.schedule.schedulers import thread_reduction
from fuser.schedule.schedulers.reduction import ReductionScheduler
from fuser.schedule.schedulers.thread_reduction import propose_by_thread
from tests.fuzzing.random_reshapes import laid_out
from tests.schedule.analysis.cell_programs import accesses, dense, sources

BFloat16, Float, Double = DataType.BFloat16, DataType.Float, DataType.Double
DTYPES = (Float, DataType.Half, BFloat16, Double)


def pooled(fd: Any, shape: Sequence[int], dtype: DataType, how: str, *, window: int = 2) -> Any:
    n, c, h, w = shape
    x = fd.ops.cast(fd.define_tensor([-1] * 4, True, dtype), Float)
    parts = fd.ops.reshape(x, [n, c, h // window, window, w // window, window])
    return fd.ops.cast(getattr(parts, how)([3, 5]), dtype)


@pytest.mark.parametrize("how", ["sum", "max", "mean"])
@pytest.mark.parametrize("dtype", [BFloat16, Float], ids=str)
def test_windows_are_read_by_whole_vectors(how: str, dtype: DataType) -> None:
    shape = (32, 96, 112, 112)
    (body,) = sources(lambda fd: [pooled(fd, shape, dtype, how)], [dense(*shape, dtype=dtype)])
    loads, stores = accesses(body)
    assert loads == [16]  # in a loop over the rows of a window
    assert stores == [8]
    assert "shared" not in body


def test_windows_of_odd_rows_are_read_by_windows() -> None:
    """Rows of 61 results begin anywhere: an access is two elements of an input, no less."""
    shape = (5, 320, 122, 122)
    (body,) = sources(lambda fd: [pooled(fd, shape, BFloat16, "sum")], [dense(*shape)])
    loads, _ = accesses(body)
    assert set(loads) == {4}
    assert "shared" not in body


def test_windows_with_channels_last() -> None:
    """Neighbours are channels: vectors along those, of each place of a window."""
    n, c, h, w = 16, 64, 256, 256

    def define(fd: Any) -> list[Any]:
        x = fd.define_tensor([-1] * 4, True, BFloat16)
        return [fd.ops.max(fd.ops.reshape(x, [n, h // 2, 2, w // 2, 2, c]), [2, 4])]

    (body,) = sources(define, [dense(n, h, w, c)])
    assert accesses(body) == ([16], [16])


def overlapping(fd: Any, shape: Sequence[int], dtype: DataType, *, channels_last: bool) -> Any:
    """Windows of 3x3 at every second place, rows and columns of zeros around: pairs, and the first of the next pair."""
    n, c, h, w = shape
    x = fd.define_tensor(
        shape=[-1] * 4, contiguity=True, dtype=dtype, stride_order=[3, 0, 2, 1] if channels_last else None
    )
    padded = fd.ops.pad(fd.ops.cast(x, Float), [1, 1, 1, 1])
    pairs = fd.ops.reshape(padded, [n, c, h // 2 + 1, 2, w // 2 + 1, 2])

    def part(y: Any, dim: int, start: int, *, first: bool) -> Any:
        ends = [n, c, h // 2, 2, w // 2, 2] if dim == 2 else [n, c, h // 2, w // 2, 2]
        starts, ends = [0] * len(ends), list(ends)
        ends[-2] = w // 2 + 1 if dim == 2 else ends[-2]
        starts[dim], ends[dim] = start, start + (h if dim == 2 else w) // 2
        if first:
            ends[dim + 1] = 1
        return fd.ops.slice(y, starts, ends)

    rows = fd.ops.sum(part(pairs, 2, 0, first=False), [3]) + fd.ops.squeeze(part(pairs, 2, 1, first=True), [3])
    found = fd.ops.sum(part(rows, 3, 0, first=False), [4]) + fd.ops.squeeze(part(rows, 3, 1, first=True), [4])
    return fd.ops.cast(found, dtype)


@pytest.mark.parametrize("channels_last", [False, True])
def test_overlapping_windows_are_those_of_a_thread(*, channels_last: bool) -> None:
    """Each window lies at places of its own: threads gain nothing by sharing one, and channels are read by vectors."""
    _, c, h, w = shape = (16, 64, 56, 56)
    strides = (h * w * c, 1, w * c, c) if channels_last else (c * h * w, h * w, w, 1)
    lies = TensorDescriptor(BFloat16, shape, strides, 256, 0)
    (body,) = sources(lambda fd: [overlapping(fd, shape, BFloat16, channels_last=channels_last)], [lies])
    assert "shfl" not in body
    assert "shared" not in body
    if channels_last:
        loads, stores = accesses(body)
        assert min(loads) >= 8
        assert stores == [min(loads)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("shape", [(2, 8, 6, 8), (3, 5, 2, 4), (1, 4, 12, 2)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_overlapping_windows_are_right(shape: tuple[int, int, int, int], *, channels_last: bool) -> None:
    with FusionDefinition() as fd:
        fd.add_output(overlapping(fd, shape, Float, channels_last=channels_last))
    x = np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32)
    if channels_last:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    (y,) = fd.execute([x], device="simulator")
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    np.testing.assert_array_equal(y, windows.sum((4, 5)))


def merged_parts(fd: Any, dtype: DataType) -> list[Any]:
    """Parts of an attention, weighted by their exponentials."""
    parts, sums = fd.define_tensor([-1] * 3, True, dtype), fd.define_tensor([-1] * 2, True, dtype)
    parts, sums = fd.ops.cast(parts, Float), fd.ops.cast(sums, Float)
    weights = fd.ops.exp(sums - fd.ops.broadcast(fd.ops.max(sums, [0]), [True, False]))
    weights = weights / fd.ops.broadcast(fd.ops.sum(weights, [0]), [True, False])
    return [fd.ops.cast(fd.ops.sum(parts * fd.ops.broadcast(weights, [False, False, True]), [0]), BFloat16)]


def test_parts_are_merged_in_registers() -> None:
    (body,) = sources(
        lambda fd: merged_parts(fd, Float), [dense(9, 16385, 128, dtype=Float), dense(9, 16385, dtype=Float)]
    )
    loads, stores = accesses(body)
    # The sums of a row are those of all threads along it; of the parts each thread has as many elements as it stores.
    assert loads[0] == 0
    assert [2 * width for width in stores] == loads[1:] != [4]
    assert "shared" not in body
    # The weights are those of all results of a thread: computed before the loop over these.
    assert body.count("fuser_exp(") == 1, "of the weights: that of their sum is an approximate one"
    assert body.rindex("exp") < body.rindex("_partial = 0.0f")


@pytest.mark.parametrize(
    ("shape", "dims", "why"),
    [
        ((1 << 20, 4), [1], "what is reduced is one run in memory"),
        ((512, 1 << 16), [0], "elements are no few"),
        ((64, 1 << 16), [0], "a thread would hold 256 bytes"),
        ((4, 1000), [0], "too few results"),
    ],
)
def test_other_reductions_are_those_of_blocks(shape: tuple[int, ...], dims: list[int], why: str) -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(fd.define_tensor([-1, -1], True, Float), dims))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [dense(*shape, dtype=Float)])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    refused = propose_by_thread(fusion, inputs, H200)
    assert isinstance(refused, Refused)
    assert why in refused.reason
    assert isinstance(ReductionScheduler().propose(fusion, inputs, H200), ReductionParams)


def distances(fd: Any, dtype: DataType, *, is_transposed: bool = False) -> list[Any]:
    """Of all points of one set from all of another, and their likelihoods."""
    a, b = (fd.ops.cast(fd.define_tensor([-1, -1], True, dtype), Float) for _ in range(2))
    flags = [False, True, False], [True, False, False]
    apart = fd.ops.broadcast(a, flags[is_transposed]) - fd.ops.broadcast(b, flags[not is_transposed])
    squares = fd.ops.sum(apart * apart, [2])
    return [fd.ops.cast(fd.ops.exp(squares * -0.5), dtype), fd.ops.sqrt(squares)]


@pytest.mark.parametrize("dtype", [BFloat16, Float], ids=str)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 16])
def test_results_of_inputs_that_lack_a_kept_dim_are_those_of_a_thread(
    count: int, is_transposed: bool, dtype: DataType
) -> None:
    """What is reduced is one run of each input, of which a thread needs all: neighbouring threads store neighbours."""
    with FusionDefinition() as fd:
        for t in distances(fd, dtype, is_transposed=is_transposed):
            fd.add_output(t)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    bound = bind_inputs(fusion, [dense(n, count, dtype=dtype) for n in (2048, 1536)])
    inputs = SegmentInputs(bound.tensors, bound.evaluate)
    assert isinstance(ReductionScheduler().propose(fusion, inputs, H200), Refused)
    params = propose_by_thread(fusion, inputs, H200)
    assert isinstance(params, ThreadReductionParams)
    assert params.loops.order[:2] == (0, 1), "as the results lie, whichever input is the larger one"


def test_results_of_odd_rows_are_stored_by_neighbours() -> None:
    (body,) = sources(lambda fd: distances(fd, Float), [dense(3001, 3, dtype=Float), dense(2999, 3, dtype=Float)])
    assert "shared" not in body
    assert "shfl" not in body
    stores = re.findall(r"^ *t\d+\[(.*)\] = ", body, re.MULTILINE)
    assert len(stores) == 4, "of two results, in whole blocks and at the end"
    assert all(place.endswith("+ tid_x") for place in stores)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads reduce however few results there are."""
    for module in (pointwise_space, thread_reduction):
        monkeypatch.setattr(module, "MIN_THREADS", 0)


_EXTENTS = (1, 2, 3, 5, 8, 16, 24, 33)


class Random:
    """A definition with reductions over some dims of few elements, and its values in NumPy."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.dtype = rng.choice(DTYPES)
        rank = rng.choice((2, 3, 4, 4, 5))
        self.dims = sorted(rng.sample(range(rank - 1), rng.randint(1, min(2, rank - 1))))
        if rng.random() < 0.5 and rank - 1 not in self.dims and rank - 2 not in self.dims:
            self.dims.append(rank - 1)
        self.shape = tuple(rng.choice((1, 2, 2, 3, 4)) if d in self.dims else rng.choice(_EXTENTS) for d in range(rank))
        self.symbolic = rng.random() < 0.5
        self.fd = FusionDefinition()
        self.arguments: list[Any] = []

    def input(self, shape: Sequence[int]) -> tuple[Any, Any]:
        declared = [-1 if self.symbolic and n != 1 else n for n in shape]
        is_odd = self.rng.random() < 0.3
        x = (self.numbers.integers(-8, 9, shape) / 4).astype(self.dtype.numpy)
        self.arguments.append(laid_out(self.rng, x) if is_odd else x)
        t = self.fd.define_tensor(declared, [None if n == 1 else not is_odd for n in declared], self.dtype)
        wide = Double if self.dtype is Double else Float
        return self.fd.ops.cast(t, wide), x.astype(np.float64)

    def run(self) -> tuple[FusionDefinition, list[Any], list[Any]]:
        """The definition, its arguments and what it should give."""
        o: Any = self.fd.ops
        axes = tuple(self.dims)
        flags = [d in self.dims for d in range(len(self.shape))]
        results: list[tuple[Any, Any]] = []
        with self.fd:
            t, x = self.input(self.shape)
            if self.rng.random() < 0.5:
                # What all of a row, or all of a window, have in common.
                along = [d for d in range(len(self.shape)) if self.rng.random() < 0.5] or [len(self.shape) - 1]
                u, y = self.input([self.shape[d] for d in along])
                one = [n if d in along else 1 for d, n in enumerate(self.shape)]
                t, x = t * o.broadcast_in_dim(u, list(self.shape), along), x * y.reshape(one)
            for kind in self.rng.sample(
                ("sum", "max", "mean", "var", "softmax", "scaled", "beside"), self.rng.randint(1, 2)
            ):
                results += self.reduced(kind, t, x, axes, flags)
            for r, _ in results:
                self.fd.add_output(o.cast(r, self.dtype))
        return self.fd, self.arguments, [y for _, y in results]

    def reduced(self, kind: str, t: Any, x: Any, axes: tuple[int, ...], flags: list[bool]) -> list[tuple[Any, Any]]:
        o: Any = self.fd.ops
        match kind:
            case "sum" | "max" | "mean":
                return [(getattr(t, kind)(list(axes)), getattr(x, kind)(axes))]
            case "var":
                return [(o.var(t, list(axes), 0, False), x.var(axes))]
            case "softmax":
                e = o.exp(t - o.broadcast(o.max(t, list(axes)), flags))
                y = np.exp(x - x.max(axes, keepdims=True))
                return [(e / o.broadcast(o.sum(e, list(axes)), flags), y / y.sum(axes, keepdims=True))]
            case "scaled":
                top = o.max(o.abs(t), list(axes)) + 1.0
                shown = np.abs(x).max(axes, keepdims=True) + 1
                return [(o.sum(t / o.broadcast(top, flags), list(axes)), (x / shown).sum(axes))]
            case _:
                return [(o.sum(t, list(axes)), x.sum(axes)), (t + 1.0, x + 1)]


def noted(monkeypatch: pytest.MonkeyPatch) -> list[ThreadReductionParams]:
    """What is proposed from now on, as it is applied."""
    module = importlib.import_module("fuser.schedule.schedulers.thread_reduction")
    seen: list[ThreadReductionParams] = []
    apply = module.ThreadReductionScheduler.apply

    def kept(self: Any, segment: Any, params: Any) -> Any:
        seen.append(params)
        return apply(self, segment, params)

    monkeypatch.setattr(module.ThreadReductionScheduler, "apply", kept)
    return seen


@pytest.mark.in_turns
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(96))
def test_random_definitions(seed: int) -> None:
    program = Random(seed)
    fd, arguments, expected = program.run()
    if math.prod(program.shape) == 1:
        pytest.skip("nothing is reduced")
    tolerance = {Double: 1e-12, Float: 2e-6, DataType.Half: 2e-3, BFloat16: 1.6e-2}[program.dtype]
    for found, wanted in zip(fd.execute(arguments, device="simulator"), expected, strict=True):
        shown = np.asarray(found).astype(np.float64)
        np.testing.assert_allclose(shown, wanted, rtol=tolerance, atol=tolerance * 4)


@pytest.mark.usefixtures("small")
def test_random_definitions_are_reduced_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above is about happens there: runs of inner tiles, whole or in part, and vectors across them."""
    seen = noted(monkeypatch)
    for seed in range(96):
        fd, arguments, _ = Random(seed).run()
        fd.execute(arguments, device="simulator")
    loops = [p.loops for p in seen]
    assert len(loops) > 40
    assert any(n in p.tile_contiguous and not tail for p in loops for n, tail in p.tile_vector_dims)
    assert any(n in p.tile_contiguous and tail for p in loops for n, tail in p.tile_vector_dims)
    assert any(p.vector > 1 and len(p.merged_dims) > 1 for p in loops)
    assert any(p.vector == 1 for p in loops)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parts_are_merged_right(dtype: DataType) -> None:
    with FusionDefinition() as fd:
        for t in merged_parts(fd, dtype):
            fd.add_output(t)
    rng = np.random.default_rng(3)
    parts, sums = (rng.normal(size=n).astype(dtype.numpy) for n in ((8, 37, 16), (8, 37)))
    weights = np.exp(sums.astype(np.float64))
    weights /= weights.sum(0)
    (found,) = fd.execute([parts, sums], device="simulator")
    expected = (parts.astype(np.float64) * weights[..., None]).sum(0)
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, rtol=8e-3, atol=1e-3)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("n", "m", "count"), [(37, 45, 3), (64, 32, 4), (9, 16, 16), (1, 40, 5), (33, 1, 2)])
@pytest.mark.parametrize("dtype", [BFloat16, Float], ids=str)
def test_distances_are_right(dtype: DataType, n: int, m: int, count: int, is_transposed: bool) -> None:
    with FusionDefinition() as fd:
        for t in distances(fd, dtype, is_transposed=is_transposed):
            fd.add_output(t)
    rng = np.random.default_rng(5)
    a, b = (rng.normal(size=(rows, count)).astype(dtype.numpy) for rows in (n, m))
    x, y = (v.astype(np.float64) for v in (a, b))
    squares = ((x[:, None] - y) ** 2).sum(-1)
    squares = squares.T if is_transposed else squares
    likely, far = fd.execute([a, b], device="simulator")
    np.testing.assert_allclose(np.asarray(likely).astype(np.float64), np.exp(squares * -0.5), rtol=8e-3, atol=1e-6)
    np.testing.assert_allclose(np.asarray(far).astype(np.float64), np.sqrt(squares), rtol=2e-6, atol=1e-6)


def reduced_lookups(seed: int) -> tuple[FusionDefinition, list[Any], Any, DataType]:
    """Rows or elements that are looked up, weighted or not, and reduced over some dims; arguments and result."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    dtype = rng.choice(DTYPES)
    n, k, d, rows = rng.choice((1, 5, 16, 33)), rng.choice((2, 3, 4, 8, 20)), rng.choice((1, 4, 8, 12, 32)), 11
    kind = rng.choice(("rows", "rows", "rows", "elements", "columns"))
    dims = rng.choice(([1], [1], [2], [0], [1, 2], [0, 1], [0, 2]))
    symbolic = rng.random() < 0.5
    fd = FusionDefinition()
    arguments: list[Any] = []

    def given(values: Any, of: DataType) -> Any:
        is_odd = rng.random() < 0.3
        arguments.append(laid_out(rng, values) if is_odd else values)
        contiguity = [None if m == 1 else not is_odd for m in values.shape]
        return fd.define_tensor([-1 if symbolic and m != 1 else m for m in values.shape], contiguity, of)

    wide = Double if dtype is Double else Float
    with fd:
        o: Any = fd.ops
        shape = {"rows": (rows, d), "columns": (d, rows), "elements": (n, rows, d)}[kind]
        x = (numbers.integers(-8, 9, shape) / 4).astype(dtype.numpy)
        table = given(x, dtype)
        if kind == "elements":
            index = numbers.integers(0, rows, (n, k, d))
            t, y = o.gather(table, given(index, DataType.Int), 1), np.take_along_axis(x, index, 1)
        else:
            index = numbers.integers(0, rows, (n, k))
            flat = o.reshape(given(index, DataType.Int), [n * k])
            t = o.index_select(table, flat, int(kind == "columns"))
            if kind == "rows":
                t, y = o.reshape(t, [n, k, d]), x[index]
            else:
                t, y = o.permute(o.reshape(t, [d, n, k]), [1, 2, 0]), x.T[index]
        t, y = o.cast(t, wide), y.astype(np.float64)
        if rng.random() < 0.5:
            w = (numbers.integers(-8, 9, (n, k)) / 4).astype(dtype.numpy)
            t = t * o.broadcast_in_dim(o.cast(given(w, dtype), wide), [n, k, d], [0, 1])
            y = y * w.astype(np.float64)[..., None]
        how = rng.choice(("sum", "max"))
        fd.add_output(o.cast(getattr(o, how)(t, dims), dtype))
    return fd, arguments, getattr(y, how)(tuple(dims)), dtype


@pytest.mark.in_turns
@pytest.mark.parametrize("by_thread", [True, False])
@pytest.mark.parametrize("seed", range(64))
def test_random_lookups_are_reduced(
    seed: int, by_thread: bool, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    if by_thread:
        request.getfixturevalue("small")
    fd, arguments, expected, dtype = reduced_lookups(seed)
    tolerance = {Double: 1e-12, Float: 2e-6, DataType.Half: 2e-3, BFloat16: 1.6e-2}[dtype]
    (found,) = fd.execute(arguments, device="simulator")
    shown = np.asarray(found).astype(np.float64)
    np.testing.assert_allclose(shown, expected, rtol=tolerance, atol=tolerance * 4)
    assert "cannot be lowered" not in caplog.text


@pytest.mark.parametrize("dtype", [BFloat16, Float], ids=str)
@pytest.mark.parametrize("k", [4, 20])
@pytest.mark.parametrize("d", [32, 64, 1024])
def test_rows_that_are_looked_up_are_read_by_vectors(dtype: DataType, k: int, d: int) -> None:
    """Neighbours are those of the table, whether a thread reduces all of them or in turns."""
    n = 1 << 15

    def define(fd: Any) -> list[Any]:
        table = fd.define_tensor([-1, -1], True, dtype)
        index = fd.define_tensor([-1, -1], True, DataType.Int)
        rows = fd.ops.index_select(table, fd.ops.reshape(index, [n * k]), 0)
        return [fd.ops.max(fd.ops.reshape(rows, [n, k, d]), [1])]

    (body,) = sources(define, [dense(5000, d, dtype=dtype), dense(n, k, dtype=DataType.Int)])
    assert "const uint4*>(&t0[" in body
    assert "= t0[" not in body
