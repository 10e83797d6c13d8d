"""What torch is asked for, on tensors of the host: any layout of operands and results, by torch's own functions."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser.errors import LaunchError
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.numpy_functions import numpy_cast
from fuser.runtime.array_view import framework_dtype
from fuser.runtime.arrays import array_library, dlpack
from fuser.runtime.kernels.library_calls import LibraryCall, Operand

torch: Any = pytest.importorskip("torch")
torch_library: Any = pytest.importorskip("fuser.runtime.arrays.torch_library")

pytestmark = pytest.mark.torch
Array = np.ndarray[Any, Any]
HOST: Any = SimpleNamespace(kind="cuda", index=0)
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def host_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_library, "_KIND", dlpack.CPU)
    monkeypatch.setattr(torch_library, "_takes_groups", lambda index, dtype, groups: False)
    monkeypatch.setattr(torch_library, "_has_flash", lambda index: False)
    torch_library._tensors.clear()


def operand(name: str, array: Array) -> Operand:
    strides = tuple(s // array.itemsize for s in array.strides)
    return Operand(name, framework_dtype(array.dtype), array.shape, strides)


def address(array: Array) -> int:
    return array.__array_interface__["data"][0]


def spread(shape: tuple[int, ...], dtype: Any, which: int) -> Array:
    """Memory for a result, dense, transposed or every other element; full of what was there before."""
    if which == 1 and len(shape) > 1:
        return np.swapaxes(np.full((*shape[:-2], shape[-1], shape[-2]), 7, dtype), -1, -2)
    if which == 2:
        return np.full(tuple(2 * n for n in shape), 7, dtype)[(*(slice(0, None, 2) for _ in shape), ...)]
    return np.full(shape, 7, dtype)


def call(op: str, inputs: dict[str, Array], results: dict[str, Array], **numbers: Any) -> None:
    both = [operand(n, a) for n, a in inputs.items()], [operand(n, a) for n, a in results.items()]
    made = LibraryCall(op, "torch", tuple(both[0]), tuple(both[1]), tuple(numbers.items()))
    addresses = [address(a) for a in (*inputs.values(), *results.values())]
    with torch.no_grad():
        torch_library._compute(made, *torch_library._operands(HOST, made, addresses))


def exact(op: str, inputs: dict[str, Array], **numbers: Any) -> tuple[Array, ...]:
    """By NumPy, floats in double precision."""
    wide = {
        name: a.astype(np.float64) if framework_dtype(a.dtype).is_floating else numpy_cast(a, framework_dtype(a.dtype))
        for name, a in inputs.items()
    }
    return tuple(np.asarray(r) for r in array_library.compute(np, op, wide, numbers))


def laid_out(shape: tuple[int, ...], dtype: Any, which: int) -> Array:
    array = spread(shape, dtype, which)
    array[...] = RNG.standard_normal(shape).astype(dtype)
    return array


_LEFT = ((3,), (5, 3), (1, 3), (2, 5, 3), (2, 1, 5, 3), (0,), (5, 0))
_RIGHT = ((3,), (3, 4), (3, 1), (2, 3, 4), (1, 3, 4), (0,), (0, 4), (2, 0, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("which", range(3))
def test_products_are_put_where_they_belong(dtype: Any, which: int) -> None:
    bound = 2.0**-7 if dtype is ml_dtypes.bfloat16 else 2.0**-10 if dtype is np.float16 else 2.0**-20
    layouts = itertools.cycle(itertools.product(range(3), range(3)))

    def check(op: str, inputs: dict[str, Array]) -> None:
        (wanted,) = exact(op, inputs)
        out = spread(wanted.shape, dtype, which)
        for _ in range(2):
            out[...] = 7
            call(op, inputs, {"out": out})
            np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=bound, atol=4 * bound)

    for left, right in itertools.product(_LEFT, _RIGHT):
        if left[-1] == right[-2:][0]:
            first, second = next(layouts)
            check("matmul", {"arg1": laid_out(left, dtype, first), "arg2": laid_out(right, dtype, second)})
    for left, rows, has_bias in itertools.product(_LEFT, (4, 1), (False, True)):
        first, second = next(layouts)
        inputs = {"arg1": laid_out(left, dtype, first), "arg2": laid_out((rows, left[-1]), dtype, second)}
        check("linear", {**inputs, "bias": laid_out((rows,), dtype, first)} if has_bias else inputs)


def test_what_was_seen_in_inference_mode_is_written_outside_of_it() -> None:
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    with torch.inference_mode():
        call("matmul", {"arg1": a, "arg2": a}, {"out": out})
    call("matmul", {"arg1": a, "arg2": a}, {"out": out})
    index = np.zeros((1, 2), np.int64)
    call("scatter", {"arg": a, "index": index, "src": a}, {"out": out}, dim=0)
    assert np.array_equal(out, a)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int64, np.bool_])
def test_sorting(dtype: Any) -> None:
    for shape, which, flag in itertools.product(((), (7,), (4, 5, 3)), range(3), (False, True)):
        x = spread(shape, dtype, which)
        x[...] = (RNG.standard_normal(shape) * 9).astype(dtype)
        for dim in range(max(len(shape), 1)):
            (wanted,) = exact("argsort", {"arg": x}, dim=dim, descending=flag)
            out = spread(shape, np.int64, which)
            call("argsort", {"arg": x}, {"indices": out}, dim=dim, descending=flag, stable=True)
            assert np.array_equal(out, wanted)
            k = 1 if not shape else shape[dim] - 1
            values, _ = exact("topk", {"arg": x}, k=k, dim=dim, largest=flag)
            found, where = spread(values.shape, dtype, 0), spread(values.shape, np.int64, 0)
            call("topk", {"arg": x}, {"values": found, "indices": where}, k=k, dim=dim, largest=flag, sorted=True)
            assert np.array_equal(found.astype(np.float64), values.astype(np.float64))
            assert not shape or np.array_equal(np.take_along_axis(x, where, dim), found)


def test_scatter() -> None:
    x, src = laid_out((6, 5), np.float32, 1), laid_out((4, 5), np.float32, 2)
    index = np.argsort(x, axis=0)[:4].astype(np.int32)
    for given, numbers in (({"src": src}, {}), ({}, {"value": 1.5})):
        inputs, out = {"arg": x, "index": index, **given}, spread((6, 5), np.float32, 2)
        call("scatter", inputs, {"out": out}, dim=0, **numbers)
        assert np.array_equal(out, exact("scatter", inputs, dim=0, **numbers)[0])


# --- groups -----------------------------------------------------------------------------------------------------------


def begins_at_16_bytes(first: Any, step: int) -> bool:
    return (first.data_ptr() % 16, step * first.itemsize % 16) == (0, 0)


def grouped_kernel(a: Any, b: Any, offs: Any) -> Any:
    """What the kernel of groups does and asks (aten/src/ATen/native/cuda/GroupMMCommon.cuh)."""
    for t in (a, b):
        down, along = t.stride()[-2:]
        assert (along == 1 and down >= t.shape[-1]) or (down == 1 and along >= t.shape[-2])
        assert begins_at_16_bytes(t, max(down, along))
        assert t.ndim == 2 or begins_at_16_bytes(t, t.stride(0))
    ends = offs.tolist()
    for size in (end - first for first, end in zip([0, *ends[:-2]], ends[:-1], strict=True)):
        if a.ndim == b.ndim:
            assert a.stride(1) != 1 or size % 8 == 0
            assert b.stride(0) != 1 or size % 8 == 0
        else:
            assert a.ndim == 2, "of three dims and two the result is cut along rows of memory"
            assert a.stride(0) != 1 or size % 8 == 0
    spans = [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
    if a.ndim == b.ndim:
        return torch.stack([a[:, s] @ b[s] for s in spans])
    return torch.cat([a[s] @ b[i] for i, s in enumerate(spans)])


@pytest.mark.parametrize("has_kernel", [False, True])
@pytest.mark.parametrize("which", range(3))
def test_groups_of_any_size_in_any_layout(monkeypatch: pytest.MonkeyPatch, which: int, has_kernel: bool) -> None:
    monkeypatch.setattr(torch_library, "_takes_groups", lambda index, dtype, groups: has_kernel)
    monkeypatch.setattr(torch, "_grouped_mm", grouped_kernel, raising=False)
    dtype = ml_dtypes.bfloat16
    for (m, k, n), ends in itertools.product(((9, 16, 24), (13, 11, 7), (16, 8, 1)), ((1, 0), (3, 5), (0, 7))):
        for first, second, cut in (((m, k), (k, n), k), ((m, k), (2, k, n), m), ((2, m, k), (k, n), n)):
            offsets = np.asarray([min(sum(ends[:1]), cut), cut], np.int32)
            inputs = {"mat1": laid_out(first, dtype, which), "mat2": laid_out(second, dtype, which), "offsets": offsets}
            (wanted,) = exact("grouped_mm", inputs)
            out = spread(wanted.shape, dtype, which)
            call("grouped_mm", inputs, {"out": out})
            np.testing.assert_allclose(out.astype(np.float64), wanted, rtol=2.0**-6, atol=2.0**-4)


def test_groups_without_elements_are_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_library, "_takes_groups", lambda index, dtype, groups: True)
    a, b = np.ones((3, 0), ml_dtypes.bfloat16), np.ones((0, 4), ml_dtypes.bfloat16)
    out = spread((2, 3, 4), ml_dtypes.bfloat16, 0)
    call("grouped_mm", {"mat1": a, "mat2": b, "offsets": np.zeros(2, np.int32)}, {"out": out})
    assert not out.astype(np.float32).any()


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_steps(dtype: Any, causal: bool) -> None:
    q, k, v, g = (
        laid_out(s, dtype, w) for s, w in (((2, 3, 5, 4), 2), ((2, 3, 6, 4), 1), ((2, 3, 6, 7), 0), ((2, 3, 5, 7), 1))
    )
    inputs = {"query": q, "key": k, "value": v}
    numbers = {"is_causal": causal, "scale": 0.3}
    wanted = exact("sdpfa_fwd", inputs, **numbers)
    results = {
        "out": spread((2, 3, 5, 7), dtype, 2),
        "logsumexp": spread((2, 3, 5), np.float32, 0),
        "philox_seed": spread((2,), np.uint64, 0),
        "philox_offset": spread((), np.uint64, 0),
    }
    call("sdpfa_fwd", inputs, results, **numbers)
    bound = 2.0**-9 if dtype is np.float16 else 1e-5
    for found, want in zip(results.values(), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=bound, atol=bound)
    more = {"grad_output": g, **inputs, "output": results["out"], **dict(list(results.items())[1:])}
    wide = {**more, "output": wanted[0], "logsumexp": wanted[1]}
    gradients = {f"grad_{name}": spread(t.shape, dtype, 1) for name, t in inputs.items()}
    call("sdpfa_bwd", more, gradients, **numbers)
    for found, want in zip(gradients.values(), exact("sdpfa_bwd", wide, **numbers), strict=True):
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=4 * bound, atol=4 * bound)


def test_dropout_asks_for_flash_attention() -> None:
    t = np.ones((1, 1, 2, 2), np.float32)
    results = {"out": t.copy(), "logsumexp": t[..., 0].copy(), "philox_seed": np.zeros(2, np.uint64)}
    with pytest.raises(LaunchError, match="dropout within attention needs operands that flash attention takes"):
        call(
            "sdpfa_fwd",
            {"query": t, "key": t, "value": t},
            {**results, "philox_offset": np.zeros((), np.uint64)},
            dropout_p=0.5,
        )


@pytest.mark.parametrize("last", [8, 12])
def test_flash_attention_gets_rows_that_begin_at_16_bytes(last: int) -> None:
    base = torch.randn(2, 3, 40, 41, dtype=torch.bfloat16)
    dense = torch.randn(2, 5, 3, last, dtype=torch.bfloat16).transpose(1, 2)
    given = [
        base[..., :5, :last],  # rows begin anywhere
        base[..., :last, :5].transpose(-1, -2),  # the last dim is not dense
        base.as_strided((2, 3, 5, last), (1200, 400, 40, 1), 1),  # only the first one does not begin where it should
        dense,
        torch.randn(2, 1, 5, last, dtype=torch.bfloat16).expand(2, 3, 5, last),
        torch.randn(2, 2, 3, 5, last, dtype=torch.bfloat16),
    ]
    for t in given:
        found = torch_library._flat(t)
        assert torch.equal(found[..., :last], t.flatten(0, -4))
        assert not found[..., last:].any()
        *outer, along = found.stride()
        assert along == 1
        assert all(begins_at_16_bytes(found, s) for s in outer)
    assert last != 8 or torch_library._flat(dense).data_ptr() == dense.data_ptr()


# --- what is recorded -------------------------------------------------------------------------------------------------


def test_what_a_graph_cannot_repeat_is_not_recorded() -> None:
    t, offsets = Operand("mat1", DataType.Float, (4, 4), (4, 1)), Operand("offsets", DataType.Int32, (2,), (1,))
    plain = LibraryCall("matmul", "torch", (t, t), (t,))
    assert not torch_library.why_not_recorded(HOST, plain)
    groups = LibraryCall("grouped_mm", "torch", (t, t, offsets), (t,))
    assert "the host reads where groups end" in torch_library.why_not_recorded(HOST, groups)
    drawn = LibraryCall("sdpfa_fwd", "torch", (t, t, t), (t,), (("dropout_p", 0.25),))
    assert "the same random numbers" in torch_library.why_not_recorded(HOST, drawn)


def test_captures_prepare_for_products_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def captured(stream: Any, pool: Any, work: Any) -> Any:
        asked.append((stream, pool))
        work()
        return SimpleNamespace(raw_cuda_graph=lambda: 0x77)

    monkeypatch.setattr(torch_library, "captured", captured)
    monkeypatch.setattr(torch_library, "_enter", lambda stack, device: None)
    lane = SimpleNamespace(stream=5)
    memory = SimpleNamespace(lane=lane, pool="pool", prepare_products=lambda: asked.append("products"))
    x, out = laid_out((4, 4), np.float32, 0), spread((4, 4), np.float32, 0)
    parts = (operand("arg1", x), operand("arg2", x)), (operand("out", out),)
    made = torch_library.Captured(
        HOST, LibraryCall("matmul", "torch", *parts), [address(t) for t in (x, x, out)], memory
    )
    assert made.graph == 0x77
    assert asked == ["products", (5, "pool")]
    np.testing.assert_allclose(out, x @ x, rtol=1e-5, atol=1e-5)
    asked.clear()
    order = spread((4, 4), np.int64, 0)
    numbers = (("dim", 1), ("descending", False), ("stable", True))
    sort = LibraryCall("argsort", "torch", (operand("arg", x),), (operand("indices", order),), numbers)
    torch_library.Captured(HOST, sort, [address(x), address(order)], memory)
    assert asked == [(5, "pool")]
    assert np.array_equal(order, np.argsort(x, 1))
