"""Philox against its published answers, and the distributions made of its words."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fuser.ir.fusion.fusion import Distribution
from fuser.ir.fusion.random_numbers import lanes_of, philox, random_values
from fuser.ir.ops.dtypes import DataType

Array = npt.NDArray[Any]
D = DataType
FLOATS = [D.Float, D.Double, D.Half, D.BFloat16]

# Random123's kat_vectors for philox4x32, 10 rounds: counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def plain_philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """The generator as its paper has it, in Python's integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return tuple(c)


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]) -> None:
    assert plain_philox(counter, key) == words
    seed, offset, position = key[1] << 32 | key[0], counter[1] << 32 | counter[0], counter[3] << 32 | counter[2]
    assert tuple(int(w) for w in philox(seed, offset, position)) == words


def test_words_of_many_counters() -> None:
    rng = np.random.default_rng(0)
    seed, offset, position = (rng.integers(-(2**63), 2**63, 50) for _ in range(3))
    words = philox(seed, offset, position)
    for i in range(50):
        s, o, p = (int(v[i]) % 2**64 for v in (seed, offset, position))
        halves = [v >> shift & 0xFFFFFFFF for v in (o, p) for shift in (0, 32)]
        assert tuple(int(w[i]) for w in words) == plain_philox(tuple(halves), (s & 0xFFFFFFFF, s >> 32))


def draw(distribution: Distribution, n: int, dtype: DataType, parameters: tuple[float, float], seed: int = 5) -> Array:
    return random_values(distribution, seed, 1, np.arange(n), parameters, dtype)


def test_elements_take_the_words_in_turn() -> None:
    words = np.stack(philox(9, 4, np.arange(3)), 1)
    flat = words.reshape(-1).astype(np.float32)
    drawn = random_values(Distribution.uniform, 9, 4, np.arange(12), (0.0, 1.0), D.Float)
    np.testing.assert_array_equal(drawn, flat * np.float32(2.0**-32) + np.float32(2.0**-33))
    pairs = words.reshape(-1, 2)
    whole = (pairs[:, 0] << np.uint64(32) | pairs[:, 1]) >> np.uint64(11)
    drawn = random_values(Distribution.uniform, 9, 4, np.arange(6), (0.0, 1.0), D.Double)
    np.testing.assert_array_equal(drawn, (whole.astype(np.float64) + 0.5) * 2.0**-53)
    assert [lanes_of(d) for d in FLOATS] == [4, 2, 4, 4]


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.5, 3.7), (-3.7, 0.3), (0.3, 5.1)])
@pytest.mark.parametrize("dtype", [D.Half, D.BFloat16], ids=lambda d: d.name)
def test_uniform_numbers_reach_from_the_lower_end_to_right_below_the_upper_one(
    dtype: DataType, low: float, high: float
) -> None:
    """Both ends as the type rounds them: 3.7 is below 3.7 in Half and above it in BFloat16."""
    u = draw(Distribution.uniform, 1 << 17, dtype, (low, high))
    first, end = (np.asarray(v).astype(dtype.numpy) for v in (low, high))
    assert u.min() == first
    assert u.max() == np.nextafter(end, first)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_moments(dtype: DataType) -> None:
    n = 1 << 18
    u = draw(Distribution.uniform, n, dtype, (-2.0, 3.0)).astype(np.float64)
    assert u.min() >= -2
    assert u.max() < 3
    # Six standard errors; rounding to 8 bits, and the upper end taken to the lower one, shift the mean by less than 2**-9.
    rounding = 5 * 2.0**-8 if dtype is D.BFloat16 else 5 * 2.0**-11 if dtype is D.Half else 0.0
    assert abs(u.mean() - 0.5) < 6 * 5 / np.sqrt(12 * n) + rounding
    z = draw(Distribution.normal, n, dtype, (1.0, 2.0)).astype(np.float64)
    assert abs(z.mean() - 1) < 6 * 2 / np.sqrt(n)
    assert abs(z.var() / 4 - 1) < 6 * np.sqrt(2 / n) + rounding / 8
    # Neighbours, which share a call, are not correlated.
    for shift in (1, 2, 3):
        for x in (u, z):
            assert abs(np.corrcoef(x[:-shift], x[shift:])[0, 1]) < 6 / np.sqrt(n)


@pytest.mark.parametrize("dtype", [D.Float, D.Double], ids=lambda d: d.name)
def test_distributions(dtype: DataType) -> None:
    """Kolmogorov and Smirnov: the largest distance of the distribution function from the true one."""
    stats = pytest.importorskip("scipy.stats")
    n = 1 << 16
    for lane in range(4):
        u = draw(Distribution.uniform, 4 * n, dtype, (0.0, 1.0))[lane::4]
        assert stats.kstest(u.astype(np.float64), "uniform").pvalue > 1e-4
        z = draw(Distribution.normal, 4 * n, dtype, (0.0, 1.0))[lane::4]
        assert stats.kstest(z.astype(np.float64), "norm").pvalue > 1e-4


def words_at(monkeypatch: pytest.MonkeyPatch, words: Array) -> None:
    """Make Philox give these words, four per position."""
    rows = words.astype(np.uint64).reshape(-1, 4)

    def given(seed: object, offset: object, position: Array) -> tuple[Array, ...]:
        del seed, offset
        return tuple(rows[position, k] for k in range(4))

    monkeypatch.setattr("fuser.ir.fusion.random_numbers.philox", given)


@pytest.mark.parametrize("dtype", [D.Float, D.Half, D.BFloat16], ids=lambda d: d.name)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.0, 0.1), (-3.0, 0.1), (0.5, 1000.0), (1.0, 1.0009765625)])
def test_the_upper_end_is_never_returned(
    monkeypatch: pytest.MonkeyPatch, dtype: DataType, low: float, high: float
) -> None:
    """The words whose unit differs in Float are 2**24 apart at the top: every one of the last 2**16, and all powers of two."""
    top = 2**32 - 1 - np.arange(1 << 18, dtype=np.uint64) * np.uint64(64)
    words = np.concatenate([top, np.uint64(1) << np.arange(32, dtype=np.uint64)])
    words_at(monkeypatch, words)
    drawn = random_values(Distribution.uniform, 0, 0, np.arange(words.size), (low, high), dtype).astype(np.float64)
    assert drawn.max() < np.float32(high)
    lowest = np.asarray(np.float32(low)).astype(dtype.numpy).astype(np.float64)
    assert drawn.min() >= lowest
    # What would have been the upper end is the lower one, and that happens.
    assert drawn[0] == lowest


@pytest.mark.parametrize("dtype", [D.Half, D.BFloat16], ids=lambda d: d.name)
def test_every_unit_from_a_half_on(monkeypatch: pytest.MonkeyPatch, dtype: DataType) -> None:
    """None of the numbers of Float between 1/2 and 1, which are 2**-24 apart, is returned as 1."""
    for start in range(1 << 23, 1 << 24, 1 << 22):
        words_at(monkeypatch, np.arange(start, start + (1 << 22), dtype=np.uint64) << np.uint64(8))
        drawn = random_values(Distribution.uniform, 0, 0, np.arange(1 << 22), (0.0, 1.0), dtype)
        assert float(drawn.max()) < 1.0
        assert float(drawn.min()) >= 0.0


def test_ends_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    words_at(monkeypatch, np.asarray([0xFFFFFFFF] * 2 + [0] * 2))
    drawn = random_values(Distribution.uniform, 0, 0, np.arange(2), (0.0, 1.0), D.Double)
    assert drawn.tolist() == [0.0, 2.0**-54]


def test_empty_intervals_give_the_lower_end() -> None:
    assert (draw(Distribution.uniform, 64, D.Float, (2.0, 2.0)) == 2).all()
    assert (draw(Distribution.uniform, 64, D.Float, (2.0, -1.0)) == 2).all()


def test_a_normal_number_is_always_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = np.asarray([0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF])
    words_at(monkeypatch, ends)
    for dtype, n in ((D.Float, 8), (D.Double, 4)):
        drawn = random_values(Distribution.normal, 0, 0, np.arange(n), (0.0, 1.0), dtype)
        assert np.isfinite(drawn).all()
        assert np.abs(drawn).max() < 9
