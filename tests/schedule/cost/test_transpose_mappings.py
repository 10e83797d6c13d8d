"""All tiles fit on the device; the proposed one follows it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuser.ir.device_info import H200, WARP, DeviceInfo
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.mapping_search import MAX_EXPLAINED
from fuser.schedule.cost.pointwise_work import AccessPattern
from fuser.schedule.cost.transpose_mappings import (
    TRANSPOSES,
    TransposeProblem,
    shared_bytes,
    transpose_mappings,
    transpose_resident_blocks,
    transpose_work_of,
)

DEVICES = [DeviceInfo.preset(name) for name in ("sm_75", "sm_80", "H200", "sm_120")]


def random_work(chance: random.Random) -> TransposeProblem:
    m, n = (int(2 ** chance.uniform(4, 13)) for _ in range(2))
    itemsize, other = chance.choice([2, 4, 8]), chance.choice([2, 4, 8])
    vectors = [chance.choice([1, 16 // size]) for size in (itemsize, other)]
    even = chance.random() < 0.5
    staged = AccessPattern(itemsize, vectors[0] * itemsize, False, (itemsize, m * itemsize), is_even=even)
    others = [AccessPattern(other, vectors[1] * other, True, (n * other, other))]
    if chance.random() < 0.5:
        others.append(AccessPattern(other, vectors[1] * other, False, (n * other, other)))
    batch = chance.choice([1, 1, 3, 40])
    total = m * n * batch
    return TransposeProblem(
        (m, n),
        batch,
        ((vectors[0], vectors[1]),),
        (staged,),
        tuple(others),
        total * itemsize,
        total * other,
        chance.randrange(60),
    )


@pytest.mark.parametrize("seed", range(30))
def test_tiles_fit(seed: int) -> None:
    chance = random.Random(seed)
    work, device = random_work(chance), chance.choice(DEVICES)
    found = list(transpose_mappings(work, device))
    assert found
    for m in found:
        for tile, vector, lanes in zip(m.tile, m.vectors, m.lanes, strict=True):
            assert tile % (vector * lanes) == 0
            assert lanes <= WARP
        assert all(m.elements % (m.threads * v) == 0 for v in m.vectors), "no thread is without an access"
        assert m.threads <= device.max_threads_per_block
        assert shared_bytes(work, m) <= device.shared_per_block
        assert transpose_resident_blocks(work, m, device) >= 1
        assert total_time(transpose_work_of(work, m, device), device) > device.launch


@pytest.mark.parametrize("seed", range(30))
def test_the_proposal_fills_the_device(seed: int) -> None:
    work = random_work(random.Random(100 + seed))
    (_, m), *_ = TRANSPOSES.ranked(work, H200)
    blocks = transpose_work_of(work, m, H200).blocks
    total = work.lengths[0] * work.lengths[1] * work.batch
    assert blocks >= min(H200.sm_count, total // 2048)
    assert m.threads >= 64 or total < 64 * WARP * H200.sm_count or min(work.lengths) < 64


@pytest.mark.parametrize("seed", range(5))
def test_a_device_that_does_all_in_twice_the_time_gets_the_same_tiles(seed: int) -> None:
    work = random_work(random.Random(200 + seed))
    (fast, m), *_ = TRANSPOSES.ranked(work, H200)
    (slow, same), *_ = TRANSPOSES.ranked(work, H200.with_speed(0.5))
    assert same == m
    assert slow == pytest.approx(2 * fast)


@pytest.mark.parametrize(
    "other",
    [replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 5), replace(H200, sm_count=H200.sm_count // 2)],
    ids=["a fifth of the bandwidth", "half of the SMs"],
)
def test_tiles_follow_the_device(other: DeviceInfo) -> None:
    works = [random_work(random.Random(300 + seed)) for seed in range(40)]
    assert any(TRANSPOSES.ranked(w, other)[0][1] != TRANSPOSES.ranked(w, H200)[0][1] for w in works)


def test_the_best_are_explained() -> None:
    reasons = list(TRANSPOSES.reasons(random_work(random.Random(7)), H200))
    assert 1 < len(reasons) <= MAX_EXPLAINED
    assert all("tiles of" in words and "us (memory" in words for words in reasons)
