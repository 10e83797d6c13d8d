"""sdpfa_fwd, sdpfa_bwd and grouped_mm: against NumPy in double precision, and errors."""

from __future__ import annotations

import itertools
import re
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError, LaunchError, NotSupportedError
from tests.frontend.library_operands import laid_out

Array = np.ndarray[Any, Any]
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
# Of results that are sums of a few rounded terms.
BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def reference(operands: list[Array], scale: float, bias: Any = 0.0, seen: Any = True) -> tuple[Array, Array, Array]:
    """(result, logarithms of sums, weights)."""
    q, k, v = operands
    scores = np.where(seen, q @ np.swapaxes(k, -1, -2) * scale + bias, -np.inf)
    largest = np.maximum(scores.max(-1, keepdims=True), -1e300)
    sums = np.log(np.exp(scores - largest).sum(-1)) + largest[..., 0]
    weights = np.exp(scores - sums[..., None])
    return weights @ v, sums, weights


def operands(rng: np.random.Generator, dtype: Any, batch: tuple[int, ...] = (2,), which: int = 0) -> list[Array]:
    h, n, s, e, ev = 3, 5, 4, 8, 6
    shapes = ((*batch, h, n, e), (*batch, h, s, e), (*batch, h, s, ev))
    return [laid_out(rng, shape, dtype, which) for shape in shapes]


def causal(rows: int, columns: int) -> Array:
    return np.arange(columns) <= np.arange(rows)[:, None]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_attention_is_softmax_between_two_products(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    bound = BOUNDS[np.dtype(dtype).name]
    layouts = itertools.cycle(range(4))
    for batch, is_causal, scale in itertools.product(((2,), (2, 2)), (None, True, False), (None, 0.1)):
        arrays = operands(rng, dtype, batch, next(layouts))
        with FusionDefinition() as fd:
            out, sums, seed, offset = fd.ops.sdpfa_fwd(
                *(fd.from_array(a) for a in arrays), is_causal=is_causal, scale=scale
            )
            assert seed.dtype() is offset.dtype() is DataType.UInt64
            assert (seed.ndim, offset.ndim) == (1, 0)
            fd.add_output(out)
            fd.add_output(sums)
        wide = [a.astype(np.float64) for a in arrays]
        seen = causal(5, 4) if is_causal else True
        wanted, logs, _ = reference(wide, 8**-0.5 if scale is None else scale, seen=seen)
        found, found_logs = fd.execute(arrays)
        assert found.dtype == np.dtype(dtype)
        assert found_logs.dtype == np.float32
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=bound, atol=bound)
        np.testing.assert_allclose(found_logs, logs, rtol=1e-5, atol=1e-5)


def test_bias_and_mask_broadcast() -> None:
    rng = np.random.default_rng(1)
    arrays = operands(rng, np.float32)
    bias = rng.standard_normal((1, 3, 5, 4)).astype(np.float32)
    mask = rng.random((2, 1, 5, 4)) > 0.4
    mask[0, 0, 1] = False  # a row that sees nothing
    with FusionDefinition() as fd:
        tensors = [fd.from_array(a) for a in (*arrays, bias, mask)]
        fd.add_output(fd.ops.sdpfa_fwd(*tensors)[0])
        fd.add_output(fd.ops.sdpfa_fwd(*tensors[:3], mask=tensors[4])[1])
    found, sums = fd.execute([*arrays, bias, mask])
    wide = [a.astype(np.float64) for a in arrays]
    with np.errstate(all="ignore"):
        wanted, _, _ = reference(wide, 8**-0.5, bias, mask)
        _, logs, _ = reference(wide, 8**-0.5, 0.0, mask)
    np.testing.assert_allclose(found, np.where(np.isnan(wanted), 0, wanted), rtol=1e-5, atol=1e-5)
    seen = np.broadcast_to(mask.any(-1), logs.shape)
    np.testing.assert_allclose(sums[seen], logs[seen], rtol=1e-5, atol=1e-5)
    assert np.isneginf(sums[~seen]).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_attention(dtype: Any, is_causal: bool) -> None:
    rng = np.random.default_rng(2)
    arrays = operands(rng, dtype, which=2)
    grad = rng.standard_normal((2, 3, 5, 6)).astype(dtype)
    with FusionDefinition() as fd:
        q, k, v, g = (fd.from_array(a) for a in (*arrays, grad))
        out, sums, seed, offset = fd.ops.sdpfa_fwd(q, k, v, is_causal=is_causal)
        for t in fd.ops.sdpfa_bwd(g, q, k, v, out, sums, None, is_causal, seed, offset, None):
            fd.add_output(t)
    q, k, v, g = (a.astype(np.float64) for a in (*arrays, grad))
    scale = 8**-0.5
    out, _, weights = reference([q, k, v], scale, seen=causal(5, 4) if is_causal else True)
    slopes = weights * (g @ np.swapaxes(v, -1, -2) - (g * out).sum(-1, keepdims=True)) * scale
    wanted = (slopes @ k, np.swapaxes(slopes, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ g)
    bound = 3 * BOUNDS[np.dtype(dtype).name]
    for found, want in zip(fd.execute([*arrays, grad]), wanted, strict=True):
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=bound, atol=bound)


def test_numbers_may_be_inputs() -> None:
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor([-1] * 4, dtype=DataType.Float) for _ in range(3)]
        numbers = [fd.define_scalar(None, d) for d in (DataType.Double, DataType.Bool, DataType.Double)]
        fd.add_output(fd.ops.sdpfa_fwd(*tensors, dropout_p=numbers[0], is_causal=numbers[1], scale=numbers[2])[0])
    arrays = operands(np.random.default_rng(3), np.float32)
    wide = [a.astype(np.float64) for a in arrays]
    for is_causal, scale in ((True, 0.2), (False, 0.2), (False, 0.5), (True, 0.2)):
        wanted, _, _ = reference(wide, scale, seen=causal(5, 4) if is_causal else True)
        np.testing.assert_allclose(fd.execute([*arrays, 0.0, is_causal, scale])[0], wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(LaunchError, match="dropout within attention draws random numbers of torch"):
        fd.execute([*arrays, 0.5, False, 0.1])


def test_the_result_lies_as_the_query_does() -> None:
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor([-1] * 4, contiguity=True, stride_order=[3, 1, 2, 0]) for _ in range(3)]
        fd.add_output(fd.ops.sdpfa_fwd(*tensors)[0])
    rng = np.random.default_rng(4)
    arrays = [np.swapaxes(rng.standard_normal((2, n, 3, 8)).astype(np.float32), 1, 2) for n in (5, 4, 4)]
    (out,) = fd.execute(arrays)
    assert out.shape == (2, 3, 5, 8)
    assert np.swapaxes(out, 1, 2).flags.c_contiguous
    wanted, _, _ = reference([a.astype(np.float64) for a in arrays], 8**-0.5)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


def test_attention_prints_and_rebuilds() -> None:
    with FusionDefinition() as fd:
        q, k, v, g = (fd.define_tensor([-1] * 4, dtype=DataType.BFloat16) for _ in range(4))
        mask = fd.define_tensor([-1] * 4, dtype=DataType.Bool)
        out, sums, seed, offset = fd.ops.sdpfa_fwd(q, k, v, is_causal=True)
        fd.add_output(out)
        for t in fd.ops.sdpfa_bwd(g, q, k, v, out, sums, None, True, seed, offset, None):
            fd.add_output(t)
        fd.add_output(fd.ops.sdpfa_fwd(q, k, v, mask=mask, scale=0.5)[0])
    text = repr(fd)
    assert "fd.ops.sdpfa_fwd(tv0, tv1, tv2, is_causal=True)" in text
    assert "fd.ops.sdpfa_fwd(tv0, tv1, tv2, mask=tv4, scale=0.500000)" in text
    space: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(text, space)
    with FusionDefinition() as again:
        space["nvfuser_fusion"](again)
    assert again.fusion == fd.fusion


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (([2, 5, 8],) * 3, "operands have one rank of at least 4, [N.., H, L, E], got query 3, key 3, value 3"),
        (([2, 3, 5, 8], [2, 3, 4, 8], [3, 4, 8]), "operands have one rank of at least 4"),
        (([2, 3, 5, 8], [2, 3, 4, 6], [2, 3, 4, 8]), "the last dims of query and key: they have extents 8 and 6"),
        (([2, 3, 5, 8], [2, 3, 4, 8], [2, 3, 5, 8]), "the lengths of key and value: they have extents 4 and 5"),
        (
            ([2, 3, 5, 8], [2, 2, 4, 8], [2, 3, 4, 8]),
            "the batches and heads of query and key: they have extents 3 and 2",
        ),
    ],
)
def test_what_attention_does_not_take(shapes: Any, message: str) -> None:
    with FusionDefinition() as fd:
        tensors = [fd.define_tensor(s, dtype=DataType.Half) for s in shapes]
        with pytest.raises(DefinitionRuntimeError, match=re.escape(message)):
            fd.ops.sdpfa_fwd(*tensors)
        with pytest.raises(DefinitionRuntimeError, match="must have one dtype"):
            fd.ops.sdpfa_fwd(tensors[0], tensors[1], fd.ops.cast(tensors[2], DataType.Float))
        fd.add_output(tensors[0])


# --- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("which", range(4))
def test_grouped_products(dtype: Any, which: int) -> None:
    rng = np.random.default_rng(5)
    g, m, k, n = 3, 8, 6, 10
    bound = BOUNDS[np.dtype(dtype).name]
    for first, second, cut in (((m, k), (k, n), k), ((g, m, k), (k, n), n), ((m, k), (g, k, n), m)):
        a, b = laid_out(rng, first, dtype, which), laid_out(rng, second, dtype, which)
        ends = np.array([cut // 3, cut // 3, cut], np.int32)  # one of them is empty
        with FusionDefinition() as fd:
            fd.add_output(fd.ops.grouped_mm(*(fd.from_array(x) for x in (a, b, ends))))
        (out,) = fd.execute([a, b, ends])
        wide, other = a.astype(np.float64), b.astype(np.float64)
        spans = [slice(s, e) for s, e in zip([0, *ends[:-1]], ends, strict=True)]
        if a.ndim == b.ndim:
            wanted = np.stack([wide[:, s] @ other[s] for s in spans])
        elif a.ndim == 3:
            wanted = np.concatenate([wide[i] @ other[:, s] for i, s in enumerate(spans)], axis=1)
        else:
            wanted = np.concatenate([wide[s] @ other[i] for i, s in enumerate(spans)], axis=0)
        assert out.dtype == np.dtype(dtype)
        np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize(
    ("shapes", "dtypes", "message"),
    [
        (
            ([2, 3, 4], [2, 4, 5], [2]),
            None,
            "one of the matrices, or none, has 3 dims and the others 2, got ranks 3 and 3",
        ),
        (([3, 4], [4, 5], [2, 1]), None, "offsets are the ends of groups, Int32[g], got Int32 of rank 2"),
        (
            ([3, 4], [4, 5], [2]),
            ("Float", "Float", "Int"),
            "offsets are the ends of groups, Int32[g], got Int of rank 1",
        ),
        (([3, 4], [5, 5], [2]), None, "the dims that are summed over: they have extents 4 and 5"),
        (([3, 4], [3, 4, 5], [2]), None, "the number of groups: they have extents 3 and 2"),
    ],
)
def test_what_groups_do_not_take(shapes: Any, dtypes: Any, message: str) -> None:
    with FusionDefinition() as fd:
        names = dtypes or ("Float", "Float", "Int32")
        tensors = [fd.define_tensor(s, dtype=getattr(DataType, d)) for s, d in zip(shapes, names, strict=True)]
        with pytest.raises(DefinitionRuntimeError, match=re.escape(message)):
            fd.ops.grouped_mm(*tensors)
        with pytest.raises(NotSupportedError, match="scales are not supported yet"):
            cast(Any, fd.ops.grouped_mm)(*tensors, tensors[0], tensors[1])
        fd.add_output(tensors[0])
