"""Random numbers on a GPU: the simulator's bit by bit where they are uniform, and torch's generator where torch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition
from fuser.frontend.validate import host_array
from fuser.ir.fusion.fusion import Distribution
from fuser.ir.fusion.random_numbers import random_values

D = DataType
FLOATS = [D.Float, D.Double, D.Half, D.BFloat16]


def define(body: Callable[[FusionDefinition], Any]) -> FusionDefinition:
    """A definition that returns what `body` returns."""
    with FusionDefinition() as fd:
        made = body(fd)
        for tensor in made if isinstance(made, list | tuple) else [made]:
            fd.add_output(tensor)
    return fd


def reference(
    distribution: Distribution,
    state: tuple[int, int],
    shape: tuple[int, ...],
    ends: tuple[float, float],
    dtype: DataType,
) -> Any:
    """Numbers by NumPy."""
    return random_values(distribution, *state, np.arange(int(np.prod(shape))).reshape(shape), ends, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.5, 2.25), (0.1, 0.3)])
@pytest.mark.parametrize("shape", [(512, 1024), (37, 129), (1, 7)])
def test_uniform_numbers_are_those_of_numpy(dtype: DataType, ends: tuple[float, float], shape: tuple[int, ...]) -> None:
    state = (-123456789012345, 2**33 + 5)

    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1], True, dtype)
        drawn = fd.ops.uniform(*ends, x.shape(), rng_seed=state[0], rng_offset=state[1], dtype=dtype)
        return drawn, fd.ops.cast(fd.ops.add(x, drawn), dtype)

    x = np.ones(shape, dtype.numpy)
    drawn, _ = define(body).execute([x], device="cuda")
    expected = reference(Distribution.uniform, state, shape, ends, dtype)
    np.testing.assert_array_equal(host_array(drawn).view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_normal_numbers_are_close_to_those_of_numpy(dtype: DataType) -> None:
    shape = (1024, 1024)
    fd = define(lambda fd: fd.ops.normal(0.5, 2.0, list(shape), rng_seed=1, rng_offset=2, dtype=dtype))
    drawn = host_array(fd.execute([], device="cuda")[0]).astype(np.float64)
    expected = reference(Distribution.normal, (1, 2), shape, (0.5, 2.0), dtype).astype(np.float64)
    eps = {D.Float: 2.0**-23, D.Double: 2.0**-52, D.Half: 2.0**-10, D.BFloat16: 2.0**-7}[dtype]
    # The angle is below 2 pi and rounded once more or less by either side; its sine is stretched by a radius of up to 8.6,
    # which 53 random bits cannot exceed, and by the deviation of 2.
    stretch = 2 * 8.6 if dtype is D.Double else 1
    np.testing.assert_allclose(drawn, expected, rtol=8 * eps, atol=8 * eps * stretch)


def test_own_generator() -> None:
    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1, -1])))
    x = np.zeros((64, 96), np.float32)
    fuser.manual_seed(17)
    for i in range(3):
        expected = reference(Distribution.uniform, (17, i), x.shape, (0.0, 1.0), D.Float)
        np.testing.assert_array_equal(fd.execute([x], device="cuda")[0], expected)


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


def test_torch_seeds_and_its_generator_advances(torch: Any) -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1], True, D.Float)
        return fd.ops.rand_like(x), fd.ops.uniform(-1.0, 1.0, x.shape())

    fd = define(body)
    x = torch.zeros(64, 128, device="cuda")
    index = torch.cuda.current_device()
    for seed in (0, 1234, 2**63 + 11):
        torch.manual_seed(seed)
        signed = seed - 2**64 if seed >= 2**63 else seed
        for call in range(3):
            before = torch.cuda.default_generators[index].get_offset()
            assert before == 8 * call
            a, b = fd.execute([x])
            assert torch.cuda.default_generators[index].get_offset() == before + 8
            shape = (64, 128)
            first = reference(Distribution.uniform, (signed, 2 * call), shape, (0.0, 1.0), D.Float)
            second = reference(Distribution.uniform, (signed, 2 * call + 1), shape, (-1.0, 1.0), D.Float)
            np.testing.assert_array_equal(a.cpu().numpy(), first)
            np.testing.assert_array_equal(b.cpu().numpy(), second)


def test_torch_continues_behind_us(torch: Any) -> None:
    """What torch draws after an execution is not what it would have drawn without it, and a saved state comes back."""
    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1], True, D.Float)))
    x = torch.zeros(1 << 12, device="cuda")
    torch.manual_seed(3)
    state = torch.cuda.get_rng_state()
    (first,) = fd.execute([x])
    torch.cuda.set_rng_state(state)
    (again,) = fd.execute([x])
    assert torch.equal(first, again)
    torch.rand(8, device="cuda")
    (later,) = fd.execute([x])
    assert not torch.equal(first, later)


def test_a_fusion_without_inputs_uses_torch(torch: Any) -> None:
    fd = define(lambda fd: fd.ops.uniform(0.0, 1.0, [33, 5]))
    torch.manual_seed(21)
    (drawn,) = fd.execute([])
    assert drawn.device.type == "cuda"
    expected = reference(Distribution.uniform, (21, 0), (33, 5), (0.0, 1.0), D.Float)
    np.testing.assert_array_equal(drawn.cpu().numpy(), expected)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.5, 3.7), (-3.7, 0.3)])
@pytest.mark.parametrize("dtype", [D.Half, D.BFloat16], ids=lambda d: d.name)
def test_ends_of_16_bits(torch: Any, dtype: DataType, low: float, high: float) -> None:
    """From the lower end to the number right below the upper one, both as the type rounds them."""
    n = 1 << 17
    fd = define(lambda fd: fd.ops.uniform(low, high, [n], rng_seed=21, rng_offset=0, dtype=dtype))
    got = host_array(fd.execute([], device="cuda")[0])
    np.testing.assert_array_equal(got, reference(Distribution.uniform, (21, 0), (n,), (low, high), dtype))
    first, end = (np.asarray(v).astype(dtype.numpy) for v in (low, high))
    assert got.min() == first
    assert got.max() == np.nextafter(end, first)


def test_state_in_device_memory(torch: Any) -> None:
    def body(fd: FusionDefinition) -> Any:
        x = fd.define_tensor([-1, -1], True, D.BFloat16)
        seed, offset = fd.define_tensor([], dtype=D.Int), fd.define_tensor([], dtype=D.Int)
        drawn = fd.ops.uniform(0.0, 1.0, x.shape(), rng_seed=seed, rng_offset=offset, dtype=D.BFloat16)
        return fd.ops.cast(fd.ops.mul(x, fd.ops.ge(drawn, 0.1)), D.BFloat16)

    fd = define(body)
    x = torch.ones(256, 512, device="cuda", dtype=torch.bfloat16)
    for seed, offset in ((5, 0), (-7, 2**40)):
        state = [torch.tensor(v, device="cuda") for v in (seed, offset)]
        (out,) = fd.execute([x, *state])
        kept = reference(Distribution.uniform, (seed, offset), (256, 512), (0.0, 1.0), D.BFloat16) >= np.float32(0.1)
        np.testing.assert_array_equal(out.float().cpu().numpy(), kept.astype(np.float32))


def test_repeated_calls_are_replays(torch: Any) -> None:
    """Drawing anew neither compiles nor leaves the launcher's fast path."""
    fd = define(lambda fd: fd.ops.rand_like(fd.define_tensor([-1, 8], True, D.Float)))
    x = torch.zeros(4, 8, device="cuda")
    results = [fd.execute([x])[0] for _ in range(5)]
    assert not any(torch.equal(results[0], r) for r in results[1:])
    assert fd.fec.counters()["kernels_compiled"] == 1
    assert fd.fec.program([x]).counters()["replays"] == 4
