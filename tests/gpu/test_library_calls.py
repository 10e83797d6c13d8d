"""Library calls on a GPU: what torch and CuPy compute from our slots, on the right stream, in graphs, for any layout."""

from __future__ import annotations

import importlib
import itertools
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.host_ir.instructions.instructions import CallLibrary, LaunchKernel
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device
from tests.frontend.library_operands import ERRORS, bounded, laid_out
from tests.fusions.llama_block import WEIGHTS, Sizes, define, forward, inputs

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
_LEFT = ((3,), (5, 3), (1, 3), (2, 5, 3), (2, 1, 5, 3))
_RIGHT = ((3,), (3, 4), (3, 1), (2, 3, 4), (1, 3, 4))


@pytest.fixture
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    return torch


@pytest.fixture
def cupy() -> Any:
    return pytest.importorskip("cupy")


def on_torch(array: Any) -> Any:
    """A NumPy array as a CUDA tensor of the same strides."""
    import torch as module

    from fuser.runtime.arrays.torch_arrays import torch_from_numpy

    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // array.itemsize
    strides = tuple(s // array.itemsize for s in array.strides)
    flat = module.zeros(max(span, 1), dtype=torch_from_numpy(np.zeros(1, array.dtype)).dtype, device="cuda")
    # The elements as they lie: torch does not write through dims of stride 0.
    if array.size:
        flat.copy_(torch_from_numpy(np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,)).copy()))
    return flat.as_strided(array.shape, strides)


def from_torch(tensor: Any) -> Any:
    from fuser.runtime.arrays.torch_arrays import torch_to_numpy

    return torch_to_numpy(tensor.detach().cpu())


def defined(op: str, arrays: Any) -> FusionDefinition:
    with FusionDefinition() as fd:
        fd.add_output(getattr(fd.ops, op)(*(fd.from_array(a) for a in arrays)))
    return fd


def check_products(dtype: Any, run: Any) -> None:
    rng = np.random.default_rng(0)
    layouts = itertools.cycle(itertools.product(range(4), range(4)))
    for left, right in itertools.product(_LEFT, _RIGHT):
        first, second = next(layouts)
        a, b = laid_out(rng, left, dtype, first), laid_out(rng, right, dtype, second)
        out = run("matmul", a, b)
        wide = a.astype(np.float64), b.astype(np.float64)
        exact = np.matmul(*wide)
        assert (out.shape, out.dtype) == (exact.shape, np.dtype(dtype))
        assert bounded(out, exact, np.matmul(*map(np.abs, wide)))
    for left, rows, has_bias in itertools.product(_LEFT, (4, 1), (False, True)):
        first, second = next(layouts)
        a, w = laid_out(rng, left, dtype, first), laid_out(rng, (rows, 3), dtype, second)
        bias = (laid_out(rng, (rows,), dtype, 0),) if has_bias else ()
        out = run("linear", a, w, *bias)
        wide = [x.astype(np.float64) for x in (a, w, *bias)]
        exact = wide[0] @ wide[1].T + (wide[2] if has_bias else 0)
        magnitude = np.abs(wide[0]) @ np.abs(wide[1].T) + (np.abs(wide[2]) if has_bias else 0)
        assert out.shape == exact.shape
        # A library may add the bias to what is rounded already.
        error = 2 * ERRORS[out.dtype.name] * magnitude + 2.0**-20 * magnitude
        assert np.all(np.abs(out.astype(np.float64) - exact) <= error)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_products_by_torch(torch: Any, dtype: Any) -> None:
    def run(op: str, *arrays: Any) -> Any:
        tensors = [on_torch(a) for a in arrays]
        fd = defined(op, tensors)
        first = from_torch(fd.execute(tensors)[0])
        assert np.array_equal(first.astype(np.float64), from_torch(fd.execute(tensors)[0]).astype(np.float64))
        return first

    check_products(dtype, run)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_products_by_cupy_of_arrays_of_no_library(cupy: Any, dtype: Any) -> None:
    device: Any = get_device("cuda", 0)

    def run(op: str, *arrays: Any) -> Any:
        tensors = [DeviceTensor.from_numpy(np.ascontiguousarray(a), device) for a in arrays]
        fd = defined(op, tensors)
        fd.execute(tensors)
        return np.asarray(fd.execute(tensors)[0])

    check_products(dtype, run)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=lambda d: np.dtype(d).name)
def test_products_of_cupy_arrays(cupy: Any, dtype: Any) -> None:
    def run(op: str, *arrays: Any) -> Any:
        tensors = [cupy.asarray(a) for a in arrays]
        return defined(op, tensors).execute(tensors)[0].get()

    check_products(dtype, run)


def test_it_is_bit_for_bit_what_torch_gives(torch: Any) -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        a, w, bias = (torch.randn(s, dtype=dtype, device="cuda") for s in ((4, 128, 256), (512, 256), (512,)))
        assert torch.equal(
            defined("linear", (a, w, bias)).execute([a, w, bias])[0], torch.nn.functional.linear(a, w, bias)
        )
        assert torch.equal(defined("matmul", (a, w.T)).execute([a, w.T])[0], a @ w.T)


def test_it_works_on_the_streams_of_the_caller(torch: Any) -> None:
    a = torch.randn(1024, 1024, device="cuda")
    fd = defined("matmul", (a, a))
    wanted = [(a + k) @ (a + k) for k in range(8)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    outs: list[Any] = []
    for k in range(8):
        with torch.cuda.stream(streams[k % 3]):
            torch.cuda._sleep(2_000_000)  # noqa: SLF001
            outs.append(fd.execute([a + k, a + k])[0])
    torch.cuda.synchronize()
    for out, want in zip(outs, wanted, strict=True):
        assert torch.equal(out, want)


def around(torch: Any) -> tuple[FusionDefinition, list[Any]]:
    """A product between two kernels."""
    x, w, b = (torch.randn(s, dtype=torch.bfloat16, device="cuda") for s in ((64, 128), (128, 96), (96,)))
    with FusionDefinition() as fd:
        tx, tw, tb = (fd.from_pytorch(t) for t in (x, w, b))
        h = fd.ops.cast(fd.ops.relu(fd.ops.mul(tx, 2.0)), DataType.BFloat16)
        y = fd.ops.add(fd.ops.matmul(h, tw), fd.ops.broadcast(tb, [True, False]))
        fd.add_output(fd.ops.cast(fd.ops.tanh(y), DataType.BFloat16))
    return fd, [x, w, b]


def eager(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.tanh((torch.relu(x.float() * 2).bfloat16() @ w).float() + b.float()).bfloat16()


def test_what_stands_around_a_product_is_two_kernels(torch: Any) -> None:
    fd, tensors = around(torch)
    torch.testing.assert_close(fd.execute(tensors)[0], eager(torch, *tensors))
    program = fd.program(tensors)
    kinds = [type(i) for i in program.instructions if isinstance(i, (LaunchKernel, CallLibrary))]
    assert kinds == [LaunchKernel, CallLibrary, LaunchKernel]
    program.run(tensors)
    assert "by torch" in program.explain()


def test_a_recorded_call_runs_in_the_graph(torch: Any) -> None:
    fd, tensors = around(torch)
    captured = fd.program(tensors).capture(tensors)
    for k in range(4):
        others = [torch.randn_like(t) for t in tensors]
        torch.testing.assert_close(captured.run(others)[0], eager(torch, *others), msg=f"run {k}")
        for t in others:
            t.neg_()
        torch.testing.assert_close(captured.replay()[0], eager(torch, *others), msg=f"replay {k}")
    assert captured.counters()["instantiated"] == 1
    captured.close()


def test_a_recorded_call_of_cupy_is_made_at_each_launch(cupy: Any, unlowered: list[str]) -> None:
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((64, 32), (32, 16))]
    placed = [cupy.asarray(a) for a in arrays]
    captured = defined("matmul", placed).program(placed).capture(placed)
    assert unlowered == ["a program with matmul is no graph: CuPy computes nothing on a stream that is captured"]
    unlowered.clear()
    placed[0] *= 2
    np.testing.assert_allclose(captured.replay()[0].get(), 2 * arrays[0] @ arrays[1], rtol=1e-4, atol=1e-4)
    others = [a + 1 for a in placed]
    np.testing.assert_allclose(
        captured.run(others)[0].get(), (2 * arrays[0] + 1) @ (arrays[1] + 1), rtol=1e-4, atol=1e-4
    )


def test_it_joins_the_graph_of_a_caller(torch: Any) -> None:
    fd, tensors = around(torch)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        fd.execute(tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        (out,) = fd.execute(tensors)
    for t in tensors:
        t.copy_(torch.randn_like(t))
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, eager(torch, *tensors))


def test_memory_of_captures_is_given_back(torch: Any) -> None:
    fd, tensors = around(torch)
    captured = fd.program(tensors).capture(tensors)
    for _ in range(3):
        captured.run([torch.randn_like(t) for t in tensors])
    torch.cuda.synchronize()
    before = torch.cuda.memory_reserved()
    for _ in range(100):
        captured.run([torch.randn_like(t) for t in tensors])
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() <= before + (64 << 20)


def test_captures_leave_graphs_of_the_caller_alone(torch: Any) -> None:
    """Graphs hold addresses of workspaces that torch keeps by stream: nothing of ours may have it give them back."""
    a = torch.randn(64, 1 << 16, device="cuda", dtype=torch.bfloat16)  # sums so long are cut, by way of a workspace
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        wanted = a @ a.T
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        out = a @ a.T
    fd, tensors = around(torch)
    programs = [fd.program(tensors).capture(tensors) for _ in range(3)]
    del programs[0]
    taken = [torch.zeros(1 << 25, dtype=torch.uint8, device="cuda") for _ in range(8)]
    for _ in range(3):
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, wanted)
        assert not any(bool(t.any()) for t in taken)
    for program in programs:
        torch.testing.assert_close(program.replay()[0], eager(torch, *tensors))


def test_programs_that_run_at_once_have_workspaces_of_their_own(torch: Any) -> None:
    def cut(scale: float) -> tuple[Any, Any]:
        x = torch.randn(64, 1 << 16, device="cuda", dtype=torch.bfloat16) * scale
        return defined("matmul", (x, x.T)).program([x, x.T]).capture([x, x.T]), x

    made = [cut(scale) for scale in (1.0, 2.0, 4.0)]
    wanted = [program.replay()[0].clone() for program, _ in made]
    for want, (_, x) in zip(wanted, made, strict=True):
        torch.testing.assert_close(want, x @ x.T)
    streams = [torch.cuda.Stream() for _ in made]
    torch.cuda.synchronize()
    for _ in range(20):
        outs = [program.replay(stream)[0] for (program, _), stream in zip(made, streams, strict=True)]
        torch.cuda.synchronize()
        for out, want in zip(outs, wanted, strict=True):
            assert torch.equal(out, want)


def test_a_thread_that_comes_first_hears_no_warning(torch: Any) -> None:
    a = torch.randn(32, 32, device="cuda")
    fd, found = defined("matmul", (a, a)), []
    other = threading.Thread(target=lambda: found.extend(fd.execute([a, a])))
    other.start()
    other.join()
    torch.testing.assert_close(found[0], a @ a)


def test_modes_of_the_caller_change_nothing(torch: Any) -> None:
    a = torch.randn(32, 32, device="cuda")
    fd = defined("matmul", (a, a))
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
        (inside,) = fd.execute([a, a])
    assert torch.equal(inside, fd.execute([a, a])[0])
    q = torch.randn((2, 2, 8, 8), device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sdpfa_fwd(*(fd.from_pytorch(q) for _ in range(3)))[0])
    with torch.autocast("cuda", torch.bfloat16):
        (inside,) = fd.execute([q, q, q])
    assert torch.equal(inside, fd.execute([q, q, q])[0])


def by_both(cupy: Any, body: Any, arrays: list[Any]) -> None:
    """Results of CuPy on a GPU, against those of NumPy on the simulator."""
    with FusionDefinition() as fd:
        results = body(fd.ops, *(fd.from_array(a) for a in arrays))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    found = fd.execute([cupy.asarray(a) for a in arrays])
    for one, other in zip(found, fd.execute(arrays, device="simulator"), strict=True):
        bound = 2.0**-8 if other.dtype == np.float16 else 1e-5
        np.testing.assert_allclose(one.get(), np.asarray(other), rtol=bound, atol=bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_cupy_sorts_and_scatters_as_numpy_does(cupy: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((6, 5, 4)) * 9).astype(dtype)
    for dim, flag in itertools.product((0, 1, -1), (False, True)):
        by_both(cupy, lambda ops, t: ops.argsort(t, dim, flag, True), [x])  # noqa: B023
        by_both(cupy, lambda ops, t: ops.topk(t, 3, dim, flag, True), [x])  # noqa: B023
    index = np.argsort(x, 0)[:4]
    by_both(cupy, lambda ops, *t: ops.scatter(*t, 0), [x, index, x])
    by_both(cupy, lambda ops, *t: ops.scatter(*t, 2, 0), [x, index])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_cupy_computes_attention_and_groups_as_numpy_does(cupy: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    q, k, v, g = (rng.standard_normal((2, 2, n, 4)).astype(dtype) for n in (5, 7, 7, 5))

    def attention(ops: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
        out, sums, seed, offset = ops.sdpfa_fwd(q, k, v, is_causal=True)
        return (out, sums, *ops.sdpfa_bwd(g, q, k, v, out, sums, None, True, seed, offset, None))

    by_both(cupy, attention, [q, k, v, g])
    mask = rng.random((2, 2, 5, 7)) > 0.5
    by_both(cupy, lambda ops, q, k, v, m: ops.sdpfa_fwd(q, k, v, mask=m)[0], [q, k, v, mask])
    for first, second, cut in (((5, 9), (9, 6), 9), ((5, 9), (3, 9, 6), 5), ((3, 5, 9), (9, 6), 6)):
        a, b = (rng.standard_normal(s).astype(dtype) for s in (first, second))
        by_both(cupy, lambda ops, *t: ops.grouped_mm(*t), [a, b, np.asarray([2, 2, cut], np.int32)])


def test_sums_without_terms_are_zeros(torch: Any, cupy: Any) -> None:
    for made in (lambda shape: torch.ones(shape, device="cuda"), lambda shape: cupy.ones(shape, "float32")):
        a, b = made((4, 0)), made((0, 5))
        (out,) = defined("matmul", (a, b)).execute([a, b])
        assert out.shape == (4, 5)
        assert not bool(out.any())


# --- a Llama block ----------------------------------------------------------------------------------------------------

SIZES = Sizes(batch=2, seq=128, heads=4, head=64, hidden=512)


def exact_gradients(torch: Any, arrays: list[Any]) -> list[Any]:
    """y and all gradients by torch, in double precision."""
    exact = [torch.tensor(a.astype(np.float64), device="cuda") for a in arrays]
    leaves = [exact[0], *exact[5:]]
    for t in leaves:
        t.requires_grad_()
    exact[4] = exact[4].clamp(min=-1e4)  # of exponentials without a maximum
    y = forward(torch, SIZES, exact)
    y.backward(exact[1])
    return [y.detach(), *(t.grad for t in leaves)]


# torch's own threads begin without a context.
_BACKWARD = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")


@_BACKWARD
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_llama_block_is_one_program_and_one_graph(torch: Any, dtype: str) -> None:
    numpy_dtype: Any = np.float32 if dtype == "float32" else ml_dtypes.bfloat16
    arrays = inputs(SIZES, numpy_dtype)
    tensors = [on_torch(a) for a in arrays]
    fd = define(SIZES, DataType.Float if dtype == "float32" else DataType.BFloat16)
    outputs = fd.execute(tensors)
    wanted = exact_gradients(torch, arrays)
    # 16-bit: some roundings of 2^-8 on the way; as far off as torch's own in that type is.
    bound = 2.0**-8 * 6 if dtype == "bfloat16" else 1e-5
    for name, out, want in zip(("y", "x", *WEIGHTS), outputs, wanted, strict=True):
        error = (out.double() - want).norm() / want.norm()
        assert error < bound, f"{name}: {float(error)}"
    program = fd.program(tensors)
    assert len(program.launches()) <= 16
    captured = program.capture(tensors)
    for _ in range(3):
        for out, again in zip(outputs, captured.replay(), strict=True):
            assert torch.equal(out, again)
    assert captured.counters()["instantiated"] == 1


# --- sorting, scatter, attention, groups ------------------------------------------------------------------------------


def many(body: Any, tensors: list[Any]) -> list[Any]:
    """The results of a body on tensors, run twice."""
    with FusionDefinition() as fd:
        results = body(fd.ops, *(fd.from_pytorch(t) for t in tensors))
        for t in results if isinstance(results, tuple) else (results,):
            fd.add_output(t)
    fd.execute(tensors)
    return fd.execute(tensors)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64"])
def test_sorting_is_that_of_torch(torch: Any, dtype: str) -> None:
    for shape in ((), (128,), (128, 7, 32)):
        x = torch.randn(shape, device="cuda").mul(100).to(getattr(torch, dtype))
        for dim, flag in itertools.product(range(-len(shape), len(shape)) if shape else (0,), (False, True)):
            order = many(lambda ops, t: ops.argsort(t, dim, flag, True), [x])[0]  # noqa: B023
            assert torch.equal(order, torch.argsort(x, dim=dim, descending=flag, stable=True))
            n = x.shape[dim] if shape else 1
            for k in {1, n}:
                found, where = many(lambda ops, t: ops.topk(t, k, dim, flag, True), [x])  # noqa: B023
                assert torch.equal(found, torch.topk(x, k, dim, flag, True)[0])
                assert not shape or torch.equal(torch.gather(x, dim, where), found)


def test_scatter_is_that_of_torch(torch: Any) -> None:
    x, src = torch.randn(128, 96, device="cuda"), torch.randn(64, 96, device="cuda")
    _, index = torch.topk(x, 64, 0)
    assert torch.equal(many(lambda ops, *t: ops.scatter(*t, 0), [x, index, src])[0], torch.scatter(x, 0, index, src))
    assert torch.equal(
        many(lambda ops, t, i: ops.scatter(t, i, 1.5, 0), [x, index])[0], torch.scatter(x, 0, index, 1.5)
    )


@_BACKWARD
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("is_causal", "scale"), [(None, None), (True, None), (False, 1e-2)])
@pytest.mark.parametrize("head", [8, 12, 64])
def test_attention_is_that_of_torch(torch: Any, dtype: str, is_causal: Any, scale: Any, head: int) -> None:
    kind = getattr(torch, dtype)
    q, k, v, g = (torch.randn((4, 8, 16, head), dtype=kind, device="cuda", requires_grad=True) for _ in range(4))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=bool(is_causal), scale=scale)
    wanted.backward(g)
    tensors = [t.detach() for t in (q, k, v, g)]

    def body(ops: Any, q: Any, k: Any, v: Any, g: Any) -> Any:
        out, sums, seed, offset = ops.sdpfa_fwd(q, k, v, is_causal=is_causal, scale=scale)
        return (out, *ops.sdpfa_bwd(g, q, k, v, out, sums, None, is_causal, seed, offset, scale))

    bound = 1e-4 if dtype == "float32" else 2e-2
    for found, want in zip(many(body, tensors), (wanted, q.grad, k.grad, v.grad), strict=True):
        torch.testing.assert_close(found, want.detach(), rtol=bound, atol=bound)


@_BACKWARD
def test_dropout_is_that_of_torch_forward_and_backward(torch: Any) -> None:
    attention: Any = importlib.import_module("torch.nn.attention")
    q, k, v, g = (torch.randn((4, 8, 16, 8), dtype=torch.bfloat16, device="cuda", requires_grad=True) for _ in range(4))
    with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION):
        torch.manual_seed(0)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        wanted.backward(g)
    with FusionDefinition() as fd:
        a, b, c, d = (fd.from_pytorch(t) for t in (q, k, v, g))
        out, sums, seed, offset = fd.ops.sdpfa_fwd(a, b, c, dropout_p=0.2)
        fd.add_output(out)
        for t in fd.ops.sdpfa_bwd(d, a, b, c, out, sums, 0.2, None, seed, offset, None):
            fd.add_output(t)
    for _ in range(2):
        torch.manual_seed(0)
        for found, want in zip(fd.execute([q, k, v, g]), (wanted, q.grad, k.grad, v.grad), strict=True):
            torch.testing.assert_close(found, want.detach())


def test_attention_with_bias_and_mask(torch: Any) -> None:
    q = torch.randn((3, 5, 4, 2), dtype=torch.bfloat16, device="cuda").transpose(1, 2)
    k, v = (torch.randn((3, 3, 4, 2), dtype=torch.bfloat16, device="cuda").transpose(1, 2) for _ in range(2))
    bias = torch.randn((3, 4, 5, 3), dtype=torch.bfloat16, device="cuda")
    mask = torch.rand((3, 4, 5, 3), device="cuda") > 0.3
    mask[..., 0] = True
    with FusionDefinition() as fd:
        tensors = [fd.from_pytorch(t) for t in (q, k, v, bias, mask)]
        fd.add_output(fd.ops.sdpfa_fwd(*tensors[:3], bias=tensors[3], mask=tensors[4])[0])
    (out,) = fd.execute([q, k, v, bias, mask])
    seen = (bias + torch.where(mask, 0.0, float("-inf"))).to(bias.dtype)
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)
    assert out.transpose(1, 2).is_contiguous()


def test_grouped_products_are_those_of_torch(torch: Any) -> None:
    for g, m, k, n in ((4, 128, 256, 64), (2, 32, 32, 32)):
        for first, second, cut in (((m, k), (k, n), k), ((m, k), (g, k, n), m), ((g, m, k), (k, n), n)):
            a, b = (torch.randn(s, dtype=torch.bfloat16, device="cuda") for s in (first, second))
            ends = torch.arange(cut // g, cut + 1, cut // g, dtype=torch.int32, device="cuda")
            out = many(lambda ops, *t: ops.grouped_mm(*t), [a, b, ends])[0]
            assert out.shape == ((g, m, n) if a.ndim == b.ndim else (m, n))
            spans = [slice(e - cut // g, e) for e in ends.tolist()]
            wide, other = a.double(), b.double()
            if a.ndim == b.ndim:
                wanted = torch.stack([wide[:, s] @ other[s] for s in spans])
            elif a.ndim == 3:
                wanted = torch.cat([wide[i] @ other[:, s] for i, s in enumerate(spans)], 1)
            else:
                wanted = torch.cat([wide[s] @ other[i] for i, s in enumerate(spans)])
            torch.testing.assert_close(out.double(), wanted, rtol=2e-2, atol=0.2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_groups_of_any_size(torch: Any, dtype: str) -> None:
    """In memory a group begins at any element; the kernel of torch would stop the device where it is not at 16 bytes."""
    m, k, n = 37, 19, 21
    for first, second, cut in (((m, k), (k, n), k), ((m, k), (3, k, n), m), ((3, m, k), (k, n), n)):
        a, b = (torch.randn(s, dtype=getattr(torch, dtype), device="cuda") for s in (first, second))
        ends = [3, 8, cut]
        offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
        (out,) = many(lambda ops, *t: ops.grouped_mm(*t), [a, b, offsets])
        spans = [slice(x, y) for x, y in itertools.pairwise([0, *ends])]
        wide, other = a.double(), b.double()
        if a.ndim == b.ndim:
            wanted = torch.stack([wide[:, s] @ other[s] for s in spans])
        elif a.ndim == 3:
            wanted = torch.cat([wide[i] @ other[:, s] for i, s in enumerate(spans)], 1)
        else:
            wanted = torch.cat([wide[s] @ other[i] for i, s in enumerate(spans)])
        torch.testing.assert_close(out.double(), wanted, rtol=2e-2, atol=0.1)


def test_calls_that_cannot_be_recorded_run_at_each_launch(torch: Any, unlowered: list[str]) -> None:
    a, b = torch.randn(32, 16, device="cuda"), torch.randn(2, 16, 8, device="cuda")
    offsets = torch.tensor([20, 32], dtype=torch.int32, device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.grouped_mm(*(fd.from_pytorch(t) for t in (a, b, offsets))))
    captured = fd.program([a, b, offsets]).capture([a, b, offsets])
    assert "the host reads where groups end" in unlowered[0]
    offsets[0] = 5
    wanted = torch.cat([a[:5] @ b[0], a[5:] @ b[1]])
    torch.testing.assert_close(captured.replay()[0], wanted)

    q = torch.randn((2, 2, 64, 64), dtype=torch.bfloat16, device="cuda")
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sdpfa_fwd(*(fd.from_pytorch(q) for _ in range(3)), dropout_p=0.5)[0])
    drawing = fd.program([q, q, q]).capture([q, q, q])
    first = drawing.replay()[0].clone()
    assert not torch.equal(first, drawing.replay()[0])
    assert "each launch would draw the same random numbers" in unlowered[-1]
    unlowered.clear()


def test_attention_takes_any_layout(torch: Any) -> None:
    """Rows that begin anywhere, and a last dim that is not dense, which flash attention does not take."""
    base = torch.randn(2, 3, 40, 41, dtype=torch.bfloat16, device="cuda")
    for t in (base[..., 1:9], base[..., :8, :9].transpose(-1, -2)):
        (out,) = many(lambda ops, q, k, v: ops.sdpfa_fwd(q, k, v)[0], [t, t, t])
        dense = t.contiguous()
        wanted = torch.nn.functional.scaled_dot_product_attention(dense, dense, dense)
        torch.testing.assert_close(out, wanted, rtol=2e-2, atol=2e-2)


def test_sorting_of_bools(torch: Any) -> None:
    x = torch.rand(5, 9, device="cuda") > 0.5
    found, where = many(lambda ops, t: ops.topk(t, 4, 1, True, True), [x])
    assert torch.equal(found, x.int().sort(1, descending=True)[0][:, :4].bool())
    assert torch.equal(torch.gather(x, 1, where), found)


def test_attention_and_sorting_run_in_graphs(torch: Any) -> None:
    q, k, v = (torch.randn((2, 4, 64, 32), dtype=torch.bfloat16, device="cuda") for _ in range(3))
    with FusionDefinition() as fd:
        tensors = [fd.from_pytorch(t) for t in (q, k, v)]
        out = fd.ops.sdpfa_fwd(*tensors, is_causal=True)[0]
        found, where = fd.ops.topk(fd.ops.neg(out), 3, 3, True, True)
        fd.add_output(fd.ops.mul(found, 2.0))
        fd.add_output(where)
    wanted = fd.execute([q, k, v])
    captured = fd.program([q, k, v]).capture([q, k, v])
    for _ in range(3):
        for one, two in zip(captured.replay(), wanted, strict=True):
            assert torch.equal(one, two)
    others = [t + 1 for t in (q, k, v)]
    for one, two in zip(captured.run(others), fd.execute(others), strict=True):
        assert torch.equal(one, two)
