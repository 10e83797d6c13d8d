"""All mappings of a pointwise segment do the whole work, and right; the proposed one fills the device, and follows it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.device_info import H200, WARP, DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.cost.mapping_search import MAX_EXPLAINED
from fuser.schedule.cost.pointwise_mappings import POINTWISE, pointwise_mappings
from fuser.schedule.cost.pointwise_work import (
    BLOCKS,
    AccessPattern,
    PointwiseCosts,
    PointwiseMapping,
    PointwiseProblem,
    grid_of,
    loop_counts,
)
from fuser.schedule.params import PointwiseParams
from fuser.schedule.scheduler import SegmentInputs
from fuser.schedule.schedulers.pointwise import PointwiseScheduler, plan_of

DEVICES = [DeviceInfo.preset(name) for name in ("sm_75", "sm_80", "H200", "sm_120")]


def dense(lengths: Sequence[int], parts: Sequence[int], itemsize: int, *, is_stored: bool = False) -> AccessPattern:
    """An argument that has some parts, in this order, slowest first, next to one another in memory."""
    spans, running = [0] * len(lengths), itemsize
    for p in reversed(parts):
        spans[p], running = running, running * lengths[p]
    access = 16 if parts and parts[-1] == len(lengths) - 1 else itemsize
    return AccessPattern(itemsize, access, is_stored, tuple(spans))


def random_work(chance: random.Random) -> PointwiseProblem:
    """Of few parts of any lengths, read in any order, stored in another."""
    count = chance.randrange(1, 6)
    lengths = [max(1, int(2 ** chance.uniform(0, 24 / count))) for _ in range(count)]
    lengths[-1] = max(8, lengths[-1] // 8 * 8)
    patterns: list[AccessPattern] = []
    for k in range(chance.randrange(1, 5)):
        own = [p for p in range(count - 1) if k == 0 or chance.random() < 0.7]
        chance.shuffle(own)
        has_last = k == 0 or chance.random() < 0.8
        patterns.append(dense(lengths, [*own, *([count - 1] if has_last else [])], chance.choice([1, 2, 4, 8])))
    patterns.append(dense(lengths, range(count), chance.choice([1, 2, 4, 8]), is_stored=True))
    everything = (1 << count) - 1
    total = int(np.prod(lengths))
    return PointwiseProblem(
        lengths=tuple(lengths),
        vectors=(8, 4, 2, 1),
        access_patterns=tuple(patterns),
        read=total * patterns[0].itemsize,
        written=total * patterns[-1].itemsize,
        computed=((everything, chance.randrange(1, 100)), (chance.randrange(1 << count), chance.randrange(200))),
        most_elements=chance.choice([64, 256]),
        may_merge=chance.random() < 0.8,
        may_iterate=chance.random() < 0.8,
    )


def total_of(work: PointwiseProblem) -> int:
    return int(np.prod(work.lengths))


@pytest.mark.parametrize("seed", range(30))
def test_mappings_do_the_whole_work(seed: int) -> None:
    chance = random.Random(seed)
    work, device = random_work(chance), chance.choice(DEVICES)
    costs = PointwiseCosts(work, device)
    found = list(pointwise_mappings(work, device))
    assert found
    for m in found if len(found) < 300 else chance.sample(found, 300):
        counts = loop_counts(work, m.vector, m.loops)
        assert sorted(p for loop in m.loops for p in loop) == list(range(len(work.lengths)))
        assert m.loops[-1][-1] == len(work.lengths) - 1, "threads of x go along what is fastest in memory"
        assert math.prod(grid_of(counts, m)) * m.threads * m.unroll * m.vector >= total_of(work)
        assert m.threads <= device.max_threads_per_block
        resident = costs.resident_blocks(m)
        assert resident >= 1
        assert m.unroll * m.vector <= work.most_elements or m.unroll == 1
        assert costs.time(m) > device.launch


@pytest.mark.parametrize("seed", range(10))
def test_mappings_share_nothing_that_differs(seed: int) -> None:
    """What a mapping costs is found with others, whose costs it shares in part, or by itself: it is the same."""
    chance = random.Random(4000 + seed)
    work, device = random_work(chance), chance.choice(DEVICES)
    costs = PointwiseCosts(work, device)
    found = list(pointwise_mappings(work, device))
    for m in found if len(found) < 100 else chance.sample(found, 100):
        assert costs.time(m) == PointwiseCosts(work, device).time(m)


@pytest.mark.parametrize("seed", range(60))
def test_the_proposal_fills_the_device(seed: int) -> None:
    """No tiny blocks where there is work for more threads, no idle SMs, no lanes without work but few, no narrow accesses."""
    chance = random.Random(1000 + seed)
    work, device = random_work(chance), chance.choice(DEVICES)
    (_, m), *_ = POINTWISE.ranked(work, device)
    counts = loop_counts(work, m.vector, m.loops)
    blocks, total = math.prod(grid_of(counts, m)), total_of(work)
    if total >= 64 * BLOCKS[0] * device.sm_count and work.may_merge:
        assert -(-m.threads // WARP) * WARP >= BLOCKS[0]
        assert blocks >= device.sm_count
        assert blocks * -(-m.threads // WARP) * WARP * m.unroll * m.vector < 2 * total
        assert m.vector * max(s.itemsize for s in work.access_patterns if s.spans[-1]) >= 8


@pytest.mark.parametrize("seed", range(10))
def test_a_device_that_does_all_in_twice_the_time_gets_the_same_mapping(seed: int) -> None:
    work = random_work(random.Random(2000 + seed))
    (fast, m), *_ = POINTWISE.ranked(work, H200)
    (slow, same), *_ = POINTWISE.ranked(work, H200.with_speed(0.5))
    assert same == m
    assert slow == pytest.approx(2 * fast)


@pytest.mark.parametrize(
    "other",
    [replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 5), replace(H200, sm_count=H200.sm_count // 2)],
    ids=["a fifth of the bandwidth", "half of the SMs"],
)
def test_mappings_follow_the_device(other: DeviceInfo) -> None:
    works = [random_work(random.Random(3000 + seed)) for seed in range(30)]
    assert any(POINTWISE.ranked(w, other)[0][1] != POINTWISE.ranked(w, H200)[0][1] for w in works)


def waits(device: DeviceInfo) -> int:
    """Iterations of a thread of a plain sum with a row, where latency is all that differs."""
    lengths = (1 << 15, 1 << 11)
    patterns = (dense(lengths, (0, 1), 2), dense(lengths, (1,), 2), dense(lengths, (0, 1), 2, is_stored=True))
    total = lengths[0] * lengths[1] * 2
    work = PointwiseProblem(lengths, (8,), patterns, total, total, ((3, 2),), 256)
    return POINTWISE.ranked(work, device)[0][1].unroll


def test_threads_do_more_where_a_block_waits_longer_for_its_share() -> None:
    """Memory hides what a block waits for; where it is faster, or farther away, threads ask for more at once."""
    far = replace(H200, latencies=replace(H200.latencies, dram_ns=4 * H200.latencies.dram_ns))
    slow = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 5)
    assert waits(slow) <= waits(H200) <= waits(far)
    assert waits(slow) < waits(far)


def test_what_takes_long_is_computed_once_for_values_that_share_it() -> None:
    """Cosines of positions by frequencies, for all heads: threads go along positions, and over heads one after another."""
    lengths = (8192, 12, 64)
    patterns = (dense(lengths, (0, 1, 2), 2), dense(lengths, (0,), 8), dense(lengths, (0, 1, 2), 2, is_stored=True))
    total = 8192 * 12 * 64 * 2
    work = PointwiseProblem(lengths, (8, 4), patterns, total, total, ((7, 10), (5, 300)), 256)
    m = POINTWISE.ranked(work, H200)[0][1]
    assert m.iterated == (1,)
    assert m.unroll >= 4
    cheap = work._replace(computed=((7, 10), (5, 1)))
    assert POINTWISE.ranked(cheap, H200)[0][1].unroll < m.unroll


def test_a_thread_may_have_all_of_a_short_loop_but_the_slowest() -> None:
    lengths = (9, 50, 9, 17, 128)
    patterns = (dense(lengths, range(5), 2), dense(lengths, range(5), 2, is_stored=True))
    total = 2 * math.prod(lengths)
    work = PointwiseProblem(lengths, (8,), patterns, total, total, ((31, 2),), 256)
    found = {(m.iterated, m.unroll) for m in pointwise_mappings(work, H200) if m.unroll > 1}
    counts = {p: {n for iterated, n in found if iterated == (p,)} for p in range(4)}
    assert counts == {0: {2, 4, 8}, 1: {2, 4, 8}, 2: {2, 4, 8, 9}, 3: {2, 4, 8}}


def test_dims_of_an_iterated_loop_are_found_for_each_iteration() -> None:
    """Those of the others once."""
    lengths = (64, 50, 30, 128)
    patterns = (dense(lengths, range(4), 2), dense(lengths, range(4), 2, is_stored=True))
    work = PointwiseProblem(lengths, (8,), patterns, 1 << 24, 1 << 24, ((15, 2),), 256)
    costs = PointwiseCosts(work, H200)

    def instructions(loops: tuple[tuple[int, ...], ...], unroll: int, along: int) -> float:
        return costs.mapping_group(8, loops).thread(PointwiseMapping(8, loops, 16, 1, unroll, along)).instructions

    plain, merged = ((0,), (1,), (2,), (3,)), ((0, 1), (2,), (3,))
    once = instructions(merged, 4, 1) - instructions(plain, 4, 1)
    each = instructions(merged, 4, 2) - instructions(plain, 4, 3)
    assert once > 0
    assert each == pytest.approx(4 * once)


def test_the_best_are_explained() -> None:
    work = random_work(random.Random(7))
    reasons = list(POINTWISE.reasons(work, H200))
    assert 1 < len(reasons) <= MAX_EXPLAINED
    for words in reasons:
        assert "elements a thread" in words
        assert "us (memory" in words


# --- right, whatever the mapping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_random_mappings_are_right(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permuted, broadcast and shared values by any mapping, at several sizes."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    chance = random.Random(seed)
    seen: list[PointwiseMapping] = []

    def propose(
        self: PointwiseScheduler, segment: Fusion, inputs: SegmentInputs, device: DeviceInfo
    ) -> PointwiseParams:
        _, order, space = plan_of(segment, inputs, device)
        assert space is not None
        plan = chance.choice(space.plans())
        seen.append(chance.choice(list(pointwise_mappings(plan.work, device))))
        return space.params_of(order, plan, seen[-1])

    monkeypatch.setattr(PointwiseScheduler, "propose", propose)
    dims = chance.randrange(2, 5)
    order, is_permuted = list(range(dims)), dims > 2 and chance.random() < 0.6
    chance.shuffle(order)
    kept = [chance.random() < 0.5 for _ in range(dims - 1)]
    kept.insert(chance.randrange(dims), not any(kept))
    dtype = chance.choice([DataType.Float, DataType.Half])
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1] * dims, True, dtype), fd.define_tensor([-1] * sum(kept), True, DataType.Float)
        shared = fd.ops.sin(y)
        shared = shared if all(kept) else fd.ops.broadcast(shared, [not k for k in kept])
        t = fd.ops.relu(fd.ops.cast(x, DataType.Float) * shared)
        fd.add_output(fd.ops.permute(t, order) if is_permuted else t)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        shape = [chance.choice([2, 3, 5, 8, 9, 16, 24]) for _ in range(dims)]
        a = rng.integers(-4, 5, shape).astype(dtype.numpy)
        b = rng.normal(size=[n for n, k in zip(shape, kept, strict=True) if k]).astype(np.float32)
        (found,) = fd.execute([a, b], device="simulator")
        spread = np.sin(b).reshape([n if k else 1 for n, k in zip(shape, kept, strict=True)])
        wanted = np.maximum(a.astype(np.float32) * spread, 0)
        np.testing.assert_allclose(found, np.transpose(wanted, order) if is_permuted else wanted, rtol=1e-5, atol=1e-6)
    assert seen
