"""Values of a row that are packed into words: one kernel with the statistics of the row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.device_info import H200
from fuser.ir.facts import TensorDescriptor
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.pipeline import optimize_fusion
from fuser.optimize.unroll_packed_dims import unroll_packed_dims
from fuser.schedule.params import InnerPersistentParams
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.schedule.block_reductions import propose as propose_reduction

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32
ROWS, WORDS = 5, 12


def quantised(o: Any, x: Any, count: int, most: float) -> Any:
    """Whole numbers up to `most`, of the scale of their rows, and the scales."""
    wide = o.cast(x, Float)
    scale = o.div(o.maximum(o.max(wide.abs(), [1, 2]), 1e-5), most)
    scaled = o.div(wide, o.broadcast(scale, [False, True, True]))
    return o.cast(o.clamp(o.round(scaled), -most, most), Int32), scale


def packed(count: int) -> Callable[[Any, Any], Any]:
    """`count` numbers in each word."""

    def build(o: Any, x: Any) -> Any:
        bits = 32 // count
        whole, scale = quantised(o, x, count, 2.0 ** (bits - 1) - 1)
        shifts = o.broadcast(o.iota(count, 0, bits, Int32), [True, True, False])
        word = o.bitwise_left_shift(o.bitwise_and(whole, 2**bits - 1), shifts)
        return o.sum(word, [2], dtype=Int32), scale

    return build


def put_together(o: Any, x: Any) -> Any:
    """Four bytes in each word, taken one by one."""
    whole, scale = quantised(o, x, 4, 127.0)
    bytes_ = o.bitwise_and(whole, 255)
    word = bytes_[..., 0]
    for k in range(1, 4):
        word = o.bitwise_or(word, o.bitwise_left_shift(bytes_[..., k], 8 * k))
    return word, scale


def largest_of_pairs(o: Any, x: Any) -> Any:
    """Of what is left of the mean of a row."""
    wide = o.cast(x, Float)
    mean = o.div(o.sum(wide, [1, 2]), 24.0)
    return o.max(o.sub(wide, o.broadcast(mean, [False, True, True])), [2])


def fusion_of(build: Callable[[Any, Any], Any], count: int) -> tuple[FusionDefinition, Fusion]:
    with FusionDefinition() as fd:
        x = fd.define_tensor([ROWS, WORDS * count], True, BFloat16)
        results = build(fd.ops, fd.ops.reshape(x, [ROWS, WORDS, count]))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    assert fd.fusion is not None
    return fd, fd.fusion.ir_fusion


CASES = {
    "bytes": (packed(4), 4),
    "bytes one by one": (put_together, 4),
    "nibbles": (packed(8), 8),
    "pairs": (largest_of_pairs, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_are_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    fd, fusion = fusion_of(*CASES[name])
    x = np.random.default_rng(1).standard_normal((ROWS, WORDS * CASES[name][1])).astype(BFloat16.numpy)
    optimized = optimize_fusion(fusion, lambda stage, text: None)
    (kernel,) = (s for s in segment_fusion(optimized).segments if s.has_kernel)
    assert kernel.scheduler.params is InnerPersistentParams
    for found, wanted in zip(fd.execute([x], device="simulator"), evaluate_fusion(fusion, [x]), strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_the_same(name: str) -> None:
    _, fusion = fusion_of(*CASES[name])
    found = unroll_packed_dims(fusion)
    assert found is not fusion
    verify_fusion(found)
    assert unroll_packed_dims(found) is found
    assert [t.name for t in found.output_tensors] == [t.name for t in fusion.output_tensors]
    x = np.random.default_rng(1).standard_normal((ROWS, WORDS * CASES[name][1])).astype(BFloat16.numpy)
    for a, b in zip(evaluate_fusion(found, [x]), evaluate_fusion(fusion, [x]), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=1e-6)


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "no statistics": lambda o, x: o.sum(o.cast(x, Float), [2]),
    "all values are stored": lambda o, x: (packed(4)(o, x)[0], quantised(o, x, 4, 127.0)[0]),
    "statistics that are not needed": lambda o, x: (o.sum(o.cast(x, Float), [2]), o.max(o.cast(x, Float), [1, 2])),
    "one scale for all": lambda o, x: o.max(o.sub(o.cast(x, Float), o.max(o.cast(x, Float))), [2]),
    "a scan": lambda o, x: (packed(4)(o, x)[0], o.max(o.cumsum(o.cast(x, Float), 2), [1, 2])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    _, fusion = fusion_of(OTHERS[name], 4)
    assert unroll_packed_dims(fusion) is fusion


def test_every_few_elements_are_read_by_neighbouring_threads() -> None:
    """Two of eight values of a sector are in other threads' accesses, were an access more than one."""
    with FusionDefinition() as fd:
        o, x = fd.ops, fd.define_tensor([4096, 2048], True, BFloat16)
        pairs = o.reshape(x, [4096, 1024, 2])
        left, right = (o.squeeze(o.slice(pairs, [0, 0, k], [4096, 1024, k + 1]), [2]) for k in range(2))
        fd.add_output(o.sum(o.mul(o.cast(left, Float), o.cast(right, Float)), [1]))
    assert fd.fusion is not None
    optimized = optimize_fusion(fd.fusion.ir_fusion, lambda stage, text: None)
    (kernel,) = (s for s in segment_fusion(optimized).segments if s.has_kernel)
    given = TensorDescriptor(BFloat16, (4096, 1024, 2), (2048, 2, 1), 256)
    assert propose_reduction(kernel.fusion, [given], H200).vector == 1


def largest_kept(o: Any, x: Any) -> Any:
    """What is the largest of its window; zero in place of the others."""
    return o.where(o.eq(x, o.max(x, [1, 3], keepdim=True)), x, 0.0)


def softmax_of_windows(o: Any, x: Any) -> Any:
    e = o.exp(x - o.max(x, [1, 3], keepdim=True))
    return e / o.sum(e, [1, 3], keepdim=True)


TILES: dict[str, Callable[[Any, Any], Any]] = {
    "largest of windows": largest_kept,
    "softmax of windows": softmax_of_windows,
    "scaled blocks": lambda o, x: o.round(x / o.max(x.abs(), [1, 3], keepdim=True) * 7.0),
    "products": lambda o, x: x - o.prod(x, [1, 3], keepdim=True) + o.min(x, [1, 3], keepdim=True),
    "of columns": lambda o, x: softmax_of_windows(o, x.permute(2, 1, 0, 3)),
    "a loss": lambda o, x: o.sum(o.exp(x - o.sum(x, [1, 3], keepdim=True) * 0.25)),
}


@pytest.mark.parametrize("shape", [(3, 2, 8, 2), (4, 2, 3, 4), (2, 3, 5, 2)])
@pytest.mark.parametrize("name", TILES)
def test_windows_are_computed_where_their_elements_are(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rows, columns = shape[0] * shape[1], shape[2] * shape[3]
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    x[0, 1] = np.nan
    with FusionDefinition() as fd:
        t = fd.define_tensor([-1, -1], True, Float)
        fd.add_output(TILES[name](fd.ops, t.reshape(*shape)))
    assert fd.fusion is not None
    assert len(fd.program([x]).launches()) == 1
    (found,) = fd.execute([x], device="simulator")
    (expected,) = evaluate_fusion(fd.fusion.ir_fusion, [x])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def largest_of_normalised(o: Any, x: Any) -> Any:
    return largest_kept(o, x / (o.sum(x * x, [2, 3], keepdim=True) + 1.0))


STORED: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "nothing but the results": (lambda o, x: o.max(x, [1, 3]), (3, 2, 8, 2)),
    "results where other results are": (lambda o, x: o.max(x, [1, 3]) * o.sum(x, [1, 3]), (3, 2, 8, 2)),
    "many elements": (softmax_of_windows, (3, 4, 8, 4)),
    # Their threads hold the elements of a row, and not their neighbours' in other rows.
    "windows of normalised rows": (largest_of_normalised, (3, 2, 8, 2)),
    "rows of windows": (lambda o, x: softmax_of_windows(o, x) - o.max(x, [3], keepdim=True), (3, 2, 8, 2)),
    "windows of running sums": (lambda o, x: largest_kept(o, o.cumsum(x, 2)), (3, 2, 8, 2)),
    "neighbours": (lambda o, x: x - o.max(x, [2, 3], keepdim=True), (3, 2, 4, 2)),
}


@pytest.mark.parametrize("name", STORED)
def test_other_windows_stay_reductions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    build, shape = STORED[name]
    with FusionDefinition() as fd:
        fd.add_output(build(fd.ops, fd.define_tensor(list(shape), True, Float)))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert unroll_packed_dims(fusion) is fusion
    fd.validate([np.random.default_rng(1).standard_normal(shape).astype(np.float32)], device="simulator")


# --- coordinates of pairs ---------------------------------------------------------------------------------------------


def squares(x: Any, y: Any) -> Any:
    """Of the distances of all points."""
    e = x.unsqueeze(1) - y.unsqueeze(0)
    return (e * e).sum(-1)


PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nearest": lambda o, x, y: o.min(squares(x, y), 1),
    "kernel sums": lambda o, x, y: o.sum(o.exp(-squares(x, y)), 0),
    "nearest of both, as one number": lambda o, x, y: (
        o.sum(o.min(squares(x, y), 1), 0) + o.max(o.min(squares(x, y), 0), 0)
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("count", [2, 3, 8])
def test_what_all_pairs_have_is_not_stored(name: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    rng = np.random.default_rng(0)
    given: list[Any] = [rng.integers(-4, 5, (n, count)).astype(np.float32) / 4 for n in (37, 50)]
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, count], True, Float) for _ in range(2))
        fd.add_output(PAIRS[name](fd.ops, x, y))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    (wanted,) = evaluate_fusion(fusion, given)
    (found,) = fd.execute(given, device="simulator")
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
    stored = [
        s.fusion.output_tensors for s in segment_fusion(optimize_fusion(fusion, lambda stage, text: None)).segments
    ]
    assert not any(sum(not d.is_broadcast for d in t.visible) == 2 for ts in stored for t in ts)


LARGER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "an input has the dims": lambda o, x, y: o.sum(o.max(x * y[:1], 1), 0),
    "an output is of pairs": lambda o, x, y: squares(x, y),
}


@pytest.mark.parametrize("name", LARGER)
def test_results_that_are_no_larger_or_not_reduced_again_stay_reductions(name: str) -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, 3], True, Float) for _ in range(2))
        fd.add_output(LARGER[name](fd.ops, x, y))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert unroll_packed_dims(fusion) is fusion


def smoothness(o: Any, x: Any) -> Any:
    """Of what a pixel has in all planes: one number."""
    return o.exp(-o.sum(x.abs(), [1])).mean()


def spread_and_sum(o: Any, x: Any) -> Any:
    """The planes' largest, of which each row has the sum."""
    return o.sum(o.max(x, [1]) * 2.0, [2])


@pytest.mark.parametrize("planes", [2, 3, 8])
@pytest.mark.parametrize("build", [smoothness, spread_and_sum])
@pytest.mark.parametrize("is_told", [True, False])
def test_few_planes_are_no_kernel_of_their_own(
    build: Callable[[Any, Any], Any], planes: int, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, planes if is_told else -1, -1, -1], True, Float)
        fd.add_output(build(fd.ops, x))
    assert fd.fusion is not None
    for shape in ((3, planes, 5, 33), (2, planes, 7, 8)):
        array = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        (found,) = fd.execute([array])
        (wanted,) = evaluate_fusion(fd.fusion.ir_fusion, [array])
        np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)
        assert len(fd.program([array]).launches()) == 1


def test_more_planes_than_a_few_are_reduced_by_loops() -> None:
    with FusionDefinition() as fd:
        fd.add_output(smoothness(fd.ops, fd.define_tensor([-1, 9, -1, -1], True, Float)))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert unroll_packed_dims(fusion) is fusion
