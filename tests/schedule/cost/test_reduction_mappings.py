"""All mappings of a reduction fit and do the whole work; the one that is proposed follows the device."""

from __future__ import annotations

import inspect
import random
from dataclasses import replace

import pytest

from fuser.ir.device_info import H200, DeviceInfo
from fuser.schedule.cost.estimate import CLOSE, TimeModel, Work, total_time
from fuser.schedule.cost.mapping_search import best_mapping
from fuser.schedule.cost.reduction_mappings import REDUCTIONS, reduction_mappings, reduction_work_of
from fuser.schedule.cost.reduction_space import ReductionSpace
from fuser.schedule.cost.rounding import LENGTH, OF_ROWS, round_to_significant_bits, round_up_length
from fuser.schedule.cost.scratch_budget import scratch_bytes

ROWS = ReductionSpace(inner=True, kept=1 << 14, reduced=4096, run=4096, runs=1, vector=4, bytes_per_step=16)
LONG_ROWS = replace(ROWS, kept=3, reduced=1 << 22, run=1 << 22)
COLUMNS = ReductionSpace(inner=False, kept=4096, reduced=1 << 14, run=1, runs=1 << 14, vector=4, bytes_per_step=16)
CHANNELS = ReductionSpace(inner=True, kept=64, reduced=32 * 12544, run=12544, runs=32, vector=4, bytes_per_step=16)
DEVICES = [DeviceInfo.preset(name) for name in ("sm_75", "sm_80", "H200", "sm_120")]


def random_reduction(chance: random.Random) -> ReductionSpace:
    """Of any extents, with few or many results of each element."""

    def extent(digits: int) -> int:
        return (
            round_to_significant_bits(int(2 ** chance.uniform(0, 24)), digits)
            if chance.random() < 0.9
            else chance.randrange(4)
        )

    inner, vector = chance.random() < 0.5, chance.choice([1, 2, 4, 8, 16])
    run, runs = extent(LENGTH), chance.choice([0, 1, 1, 2, 49, extent(LENGTH)])
    return ReductionSpace(
        inner=inner,
        kept=extent(OF_ROWS),
        reduced=run * max(1, runs) if inner else run,
        run=run if inner else 1,
        runs=runs if inner else run,
        vector=vector,
        bytes_per_step=vector * chance.choice([0, 1, 2, 4, 8, 64]),
        statistics=chance.random() < 0.3,
        may_split=chance.random() < 0.7,
        exponentials=chance.random() < 0.2,
        misaligned=chance.random() < 0.3,
        joined=chance.choice([0, 4, 64, 400, 4000]),
        written=chance.choice([0, 0, 2, 8]),
        partials=chance.choice([1, 2, 4, 30]),
        most_unroll=chance.choice([1, 2, 16]),
        reuse=chance.choice([1, 1, 4, 256]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_every_reduction_has_mappings_and_all_of_them_fit(seed: int) -> None:
    chance = random.Random(seed)
    for device in DEVICES:
        space = random_reduction(chance)
        found = list(reduction_mappings(space, device))
        assert found
        assert len(set(found)) == len(found)
        assert REDUCTIONS.ranked(space, device)[0][0] > device.launch
        for m in found:
            assert 1 <= m.threads <= device.max_threads_per_block
            assert m.resident >= 1
            assert m.unroll <= max(1, space.most_unroll)
            assert m.sharing == 1 or space.may_split
            assert not m.cluster or m.sharing <= device.max_cluster
            joining, width = m.along * max(1, m.outer), 1 if space.inner else space.vector
            assert (
                joining == 1 or scratch_bytes(space.joined, m.across, joining, width) <= device.shared_per_block_optin
            )


@pytest.mark.parametrize("seed", range(150))
def test_the_search_finds_what_asking_for_every_time_finds(seed: int) -> None:
    chance = random.Random(seed)
    space = replace(
        random_reduction(chance),
        element_work=chance.choice([1, 10, 200]),
        row_work=chance.choice([0, 50]),
        results=chance.choice([1, 2, 7]),
        sector_misaligned=chance.random() < 0.3,
        exact=chance.random() < 0.2,
    )
    for device in DEVICES:
        assert inspect.unwrap(best_mapping)(REDUCTIONS, space, device) == REDUCTIONS.ranked(space, device)[0]


@pytest.mark.parametrize("space", [ROWS, LONG_ROWS, COLUMNS, CHANNELS], ids=["rows", "long", "columns", "channels"])
def test_the_search_asks_for_few_times(space: ReductionSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Work] = []

    def noting(model: TimeModel, work: Work) -> float:
        asked.append(work)
        return total(model, work)

    total = TimeModel.total
    monkeypatch.setattr(TimeModel, "total", noting)
    inspect.unwrap(best_mapping)(REDUCTIONS, space, H200)
    assert len(asked) < len(list(reduction_mappings(space, H200))) / 2


@pytest.mark.parametrize("space", [ROWS, LONG_ROWS, COLUMNS, CHANNELS], ids=["rows", "long", "columns", "channels"])
def test_mappings_do_the_whole_work(space: ReductionSpace) -> None:
    bytes_read = space.kept * space.reduced * space.bytes_per_step / space.vector
    for m in reduction_mappings(space, H200):
        work = reduction_work_of(space, m, H200)
        assert work.blocks * work.iterations * work.moved >= 0.999 * bytes_read
        accesses = work.blocks * work.iterations * m.threads * m.unroll
        assert accesses >= space.kept * space.reduced / space.vector


@pytest.mark.parametrize("space", [ROWS, LONG_ROWS, COLUMNS, CHANNELS], ids=["rows", "long", "columns", "channels"])
def test_the_proposal_is_as_fast_as_any(space: ReductionSpace) -> None:
    times = {m: total_time(reduction_work_of(space, m, H200), H200) for m in reduction_mappings(space, H200)}
    ranked = REDUCTIONS.ranked(space, H200)
    assert {m for _, m in ranked} == set(times)
    assert ranked[0][0] - H200.launch <= CLOSE * (min(times.values()) - H200.launch)
    assert [t for t, _ in ranked[1:]] == sorted(t for t, _ in ranked[1:])
    assert "us" in list(REDUCTIONS.reasons(space, H200))[1]


def test_few_long_rows_are_shared_and_many_are_not() -> None:
    assert REDUCTIONS.ranked(ROWS, H200)[0][1].sharing == 1
    shared = REDUCTIONS.ranked(LONG_ROWS, H200)[0][1]
    assert shared.sharing * LONG_ROWS.kept * 2 >= H200.sm_count, "half of the processors are busy at least"


def test_half_a_device_takes_longer_where_instructions_count() -> None:
    costly = replace(ROWS, element_work=200)
    half = replace(H200, sm_count=H200.sm_count // 2)
    assert REDUCTIONS.ranked(costly, half)[0][0] > 1.5 * REDUCTIONS.ranked(costly, H200)[0][0]


def test_without_clusters_none_is_proposed() -> None:
    few = replace(LONG_ROWS, reduced=1 << 16, run=1 << 16)
    assert REDUCTIONS.ranked(few, H200)[0][1].cluster
    assert not any(m.cluster for _, m in REDUCTIONS.ranked(few, replace(H200, max_cluster=1)))


def test_slow_memory_takes_longer() -> None:
    slow = replace(H200, memory_bytes_per_ns=H200.memory_bytes_per_ns / 5)
    for space in (ROWS, LONG_ROWS, COLUMNS, CHANNELS):
        assert REDUCTIONS.ranked(space, slow)[0][0] > 3 * REDUCTIONS.ranked(space, H200)[0][0]


def test_what_is_read_again_comes_from_caches() -> None:
    """Once for each block, which therefore has the results side by side that share it."""
    columns = ReductionSpace(False, 1 << 15, 4096, 4096, 1, 4, 16)
    reuse = replace(columns, reuse=256)
    (once, mapped), (time, shared) = (REDUCTIONS.ranked(space, H200)[0] for space in (columns, reuse))
    assert time < once
    works = [reduction_work_of(reuse, replaced, H200) for replaced in (shared, shared._replace(across=32))]
    moved, cached = ([getattr(w, name) * w.iterations * w.blocks for w in works] for name in ("moved", "cached"))
    assert max(moved) < 2 * columns.kept * columns.reduced * 4 / reuse.reuse
    assert cached[0] < cached[1]
    assert reduction_work_of(columns, mapped, H200).cached == 0


def test_channels_have_threads_on_other_planes_where_planes_are_short() -> None:
    short = replace(CHANNELS, reduced=49 * 4096, run=49, runs=4096, vector=1, bytes_per_step=4)
    assert REDUCTIONS.ranked(short, H200)[0][1].outer > 1


@pytest.mark.parametrize("digits", [1, 2, 6])
def test_rounding_is_to_the_nearest_of_few_digits(digits: int) -> None:
    for n in [*range(300), 4095, 4097, 50257, (1 << 40) + 12345]:
        found = round_to_significant_bits(n, digits)
        assert abs(found - n) * 2 <= max(1, 1 << max(0, n.bit_length() - digits))
        assert round_to_significant_bits(found, digits) == found


def test_lengths_are_rounded_up_so_that_no_column_is_left_out() -> None:
    for n in [*range(1, 600), 5120, 50_257, 128_256, 250_003]:
        found = round_up_length(n)
        assert n <= found <= n * (1 + 2.0 ** (1 - LENGTH))
        assert round_up_length(found) == found
