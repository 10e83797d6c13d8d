"""The key of a call: whatever a program may depend on makes another one, and nothing else does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.stand_ins import IdleDriver, Tensor, idle_cuda
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.call_keys import Spans, exact, reader_for
from fuser.simulator.device import SimulatorDevice


@pytest.fixture
def idle() -> Iterator[IdleDriver]:
    with idle_cuda() as driver:
        yield driver


def key_of(*inputs: Any, numbers: Any = (), fixing: Any = (), **more: Any) -> Any:
    """The key without the number of its reader, for readers are made anew here."""
    for value in inputs:
        if not isinstance(value, (bool, int, float, complex, np.generic)):
            describe_array(value)
    read = reader_for([type(v) for v in inputs], set(numbers), set(fixing), **more)
    assert read is not None
    found = read(inputs, "also")
    return None if found is None else found[0][1:]


def test_torch(idle: IdleDriver) -> None:
    torch = idle.torch
    first = Tensor((4, 6), (6, 1), torch.float32, 1 << 20, 0)
    same = Tensor((4, 6), (6, 1), torch.float32, 1 << 24, 0)
    others = {
        "dtype": Tensor((4, 6), (6, 1), torch.int32, 1 << 20, 0),
        "shape": Tensor((4, 7), (6, 1), torch.float32, 1 << 20, 0),
        "rank": Tensor((4, 6, 1), (6, 1, 1), torch.float32, 1 << 20, 0),
        "strides": Tensor((4, 6), (1, 4), torch.float32, 1 << 20, 0),
        "device": Tensor((4, 6), (6, 1), torch.float32, 1 << 20, 1),
        "host": Tensor((4, 6), (6, 1), torch.float32, 1 << 20, -1),
        **{
            f"{n} bytes": Tensor((4, 6), (6, 1), torch.float32, (1 << 20) + n, 0) for n in (1, 2, 4, 8, 16, 32, 64, 128)
        },
    }
    assert key_of(first) == key_of(same)
    keys = {name: key_of(other) for name, other in others.items()}
    assert len({key_of(first), *keys.values()}) == 1 + len(others)
    # 12 and 20 are as well aligned as 4.
    for n in (12, 20, 4 + 256):
        assert key_of(Tensor((4, 6), (6, 1), torch.float32, (1 << 20) + n, 0)) == keys["4 bytes"]
    # Each position for itself.
    assert key_of(first, others["strides"]) != key_of(others["strides"], first)


def test_alignment_that_nobody_asks_for_is_no_part(idle: IdleDriver) -> None:
    near, far = (Tensor((4,), (1,), idle.torch.float32, (1 << 20) + n, 0) for n in (4, 16))
    assert key_of(near, alignment=1) == key_of(far, alignment=1)
    assert key_of(near, alignment=8) != key_of(far, alignment=8)
    aligned = Tensor((4,), (1,), idle.torch.float32, 1 << 20, 0)
    assert key_of(far, alignment=16) == key_of(aligned, alignment=16) != key_of(far, alignment=32)


def test_tensors_of_this_project() -> None:
    one, two = SimulatorDevice(), SimulatorDevice()
    values = np.zeros((4, 6), np.float32)
    first, again = (DeviceTensor.from_numpy(values, one) for _ in range(2))
    assert key_of(first) == key_of(again)
    others = [
        DeviceTensor.from_numpy(values, two),
        DeviceTensor.from_numpy(values.astype(np.int32), one),
        first.view((4, 6), (1, 4)),
        first.view((4, 5), (6, 1)),
        first.view((4, 5), (6, 1), 1),
    ]
    assert len({key_of(t) for t in (first, *others)}) == 1 + len(others)


def test_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = np.zeros(512, np.uint8)
    base = raw[-raw.ctypes.data % 16 :]

    def at(offset: int) -> np.ndarray:
        return base[offset : offset + 96].view(np.float32).reshape(4, 6)

    first = key_of(at(0))
    assert key_of(at(16)) == first
    others = [at(4), at(8), at(12), at(2), at(0).T, at(0)[::-1], at(0)[:, :5], at(0)[::2], at(0).astype(np.float16)]
    keys = {first, *map(key_of, others)}
    assert len(keys) == 1 + len(others)
    monkeypatch.setenv("FUSER_DEVICE", "cuda:1")
    assert key_of(at(0)) not in keys


def test_numbers() -> None:
    x = np.zeros(3)
    assert key_of(x, 2.0, numbers={1}) == key_of(x, 3.0, numbers={1})
    assert key_of(x, 2.0, numbers={1}, fixing={1}) != key_of(x, 3.0, numbers={1}, fixing={1})
    for values in ([0.0, -0.0], [1, 2], [complex(1, 0.0), complex(1, -0.0)], [np.float32(0), np.float32(-0.0)]):
        first, second = (key_of(x, v, numbers={1}, fixing={1}) for v in values)
        assert first != second
    nan, again = float("nan"), float("nan")
    assert key_of(x, nan, numbers={1}, fixing={1}) == key_of(x, again, numbers={1}, fixing={1})
    assert exact(1) != exact(1.0)
    # In an array of rank 0.
    assert key_of(x, np.array(2.0), numbers={1}) == key_of(x, np.array(3.0), numbers={1})
    assert key_of(x, np.array(2.0), numbers={1}) != key_of(x, np.array(2), numbers={1})
    assert key_of(x, np.array(0.0), numbers={1}, fixing={1}) != key_of(x, np.array(-0.0), numbers={1}, fixing={1})
    assert key_of(x, np.zeros(1), numbers={1}) is None


def test_what_has_no_reader(idle: IdleDriver) -> None:
    tensor = Tensor((4,), (1,), idle.torch.float32, 1 << 20, 0)
    describe_array(tensor)
    describe_array(np.zeros(3))
    assert reader_for([Tensor, np.ndarray], set(), set()) is None
    assert reader_for([float], {0}, set()) is None
    assert reader_for([Tensor, float], set(), set()) is None
    assert reader_for([], set(), set()) is None


def test_texts_of_options_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros(3)
    keys = [key_of(x, takes_options=True)]
    for name, text in (("FUSER_DISABLE", "fma"), ("FUSER_ENABLE", "fma"), ("FUSER_ENABLE", "")):
        monkeypatch.setenv(name, text)
        keys.append(key_of(x, takes_options=True))
    assert len(set(keys)) == 4
    monkeypatch.delenv("FUSER_DISABLE")
    monkeypatch.delenv("FUSER_ENABLE")
    assert key_of(x, takes_options=True) == keys[0]
    assert key_of(x) == key_of(x)


def test_inputs_that_share_memory() -> None:
    """Against all pairs, with the distance of each pair that does."""
    random = np.random.default_rng(0)
    for _ in range(300):
        count = int(random.integers(2, 6))
        addresses = [int(a) for a in random.integers(0, 40, count)]
        spans = [(i, int(low), int(low + n)) for i, (low, n) in enumerate(random.integers(0, 9, (count, 2)))]
        expected = tuple(
            (i, j, addresses[j] - addresses[i])
            for (i, low, high), (j, other_low, other_high) in itertools.combinations(spans, 2)
            if low < high
            and other_low < other_high
            and max(addresses[i] + low, addresses[j] + other_low) < min(addresses[i] + high, addresses[j] + other_high)
        )
        assert Spans(spans).of((), addresses) == expected, (addresses, spans)
