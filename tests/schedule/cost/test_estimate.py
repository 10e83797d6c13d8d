"""The estimate: time follows the device, more work never takes less, and what parts say adds up."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuser.ir.device_info import H200, DeviceInfo
from fuser.schedule.cost.estimate import Estimate, TimeModel, Work, estimate, total_time

NEAR = 1e-9


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Any: as many blocks as make whole clusters."""
    cluster = draw(st.sampled_from([1, 1, 1, 2, 4, 8, 16]))
    amount = st.floats(0, 1e6)
    return Work(
        blocks=cluster * draw(st.one_of(st.integers(1, 300), st.integers(1, 100_000))),
        resident=draw(st.integers(1, 16)),
        cluster=cluster,
        iterations=draw(st.integers(1, 50)),
        warps=draw(st.integers(1, 32)),
        moved=draw(amount),
        cached=draw(amount),
        instructions=draw(st.floats(0, 1e4)),
        lines=draw(st.floats(0, 1e3)),
        latency=draw(st.floats(0, 50)),
        exchange=draw(st.floats(0, 50)),
    )


DEVICES = st.sampled_from([DeviceInfo.preset(name) for name in ("H200", "sm_80", "sm_75", "sm_120a")])
COUNTED = ("moved", "cached", "instructions", "lines", "latency", "exchange", "iterations", "warps")


@settings(max_examples=200, deadline=None)
@given(works(), st.sampled_from([0.25, 0.5, 2.0, 3.0]))
def test_a_device_of_another_speed_takes_that_much_less(work: Work, speed: float) -> None:
    """What a block takes by itself is a time of the device."""
    faster = work._replace(latency=work.latency / speed, exchange=work.exchange / speed)
    assert total_time(faster, H200.with_speed(speed)) == pytest.approx(total_time(work, H200) / speed)


@settings(max_examples=300, deadline=None)
@given(works(), DEVICES, st.sampled_from(COUNTED), st.sampled_from([1.01, 1.5, 3.0]))
def test_more_work_of_a_block_never_takes_less(work: Work, device: DeviceInfo, name: str, factor: float) -> None:
    value = getattr(work, name)
    more = value * 2 if isinstance(value, int) else value * factor + 1e-3
    assert total_time(work._replace(**{name: more}), device) >= total_time(work, device) * (1 - NEAR)


@settings(max_examples=300, deadline=None)
@given(works(), DEVICES, st.integers(2, 9))
def test_more_blocks_never_take_less(work: Work, device: DeviceInfo, factor: int) -> None:
    if work.cluster > 1 and not device.clusters(work.cluster):
        return
    more = work._replace(blocks=work.blocks * factor)
    assert total_time(more, device) >= total_time(work, device) * (1 - NEAR)


@settings(max_examples=300, deadline=None)
@given(works(), st.sampled_from(["memory_bytes_per_ns", "sm_bytes_per_ns", "l2_bytes_per_ns", "clock_ghz"]))
def test_a_rate_that_is_higher_never_takes_more(work: Work, name: str) -> None:
    if hasattr(H200, name):
        faster = replace(H200, **{name: 2 * getattr(H200, name)})
    else:
        faster = replace(H200, rates=replace(H200.rates, **{name: 2 * getattr(H200.rates, name)}))
    assert total_time(work, faster) <= total_time(work, H200) * (1 + NEAR)


@settings(max_examples=300, deadline=None)
@given(works(), DEVICES)
def test_parts_are_times(work: Work, device: DeviceInfo) -> None:
    if work.cluster > 1 and not device.clusters(work.cluster):
        return
    found = estimate(work, device)
    assert found.total == total_time(work, device)
    assert all(getattr(found, f.name) >= 0 for f in fields(Estimate))
    assert found.exchange == work.exchange
    longest = max(found.memory, found.issue, found.latency, found.tail)
    assert device.launch + longest <= found.total * (1 + NEAR), "what decides is not hidden"
    assert found.total <= (device.launch + 3 * (found.memory + found.issue + found.latency)) * (1 + NEAR) + 1e3 * NEAR
    assert f"{found.total:.1f} us (memory " in str(found)


@settings(max_examples=100, deadline=None)
@given(works(), st.integers(1, 4))
def test_a_wave_that_is_full_has_no_tail(work: Work, waves: int) -> None:
    full = work._replace(cluster=1, blocks=waves * work.resident * H200.sm_count)
    assert estimate(full, H200).tail == pytest.approx(0, abs=1e-6 * estimate(full, H200).total)


def test_the_last_wave_is_waited_for() -> None:
    """One block more than there are places is a wave more; of many waves it does not show."""
    one = Work(H200.sm_count, 1, 8, moved=0.0, instructions=1000.0, lines=0.0, latency=5.0)
    more = one._replace(blocks=one.blocks + 1)
    assert total_time(more, H200) > total_time(one, H200) + 4
    assert estimate(more, H200).tail > 1
    many = one._replace(blocks=40 * one.blocks)
    assert total_time(many._replace(blocks=many.blocks + 1), H200) < total_time(many, H200) * 1.01


@settings(max_examples=200, deadline=None)
@given(works(), st.integers(1, 3))
def test_clusters_of_a_last_wave_take_as_long_as_a_full_one(work: Work, waves: int) -> None:
    """They lie together: an SM that has some of them has as many blocks as it holds."""
    work = work._replace(cluster=4, resident=2)
    places = int(float(H200.sm_count) * H200.clustered(4) * 2 // 4) * 4
    started, full = work._replace(blocks=waves * places + 4), work._replace(blocks=(waves + 1) * places)
    of_sm = [estimate(w._replace(moved=0.0, cached=0.0), H200) for w in (started, full)]
    handed_out = (full.blocks - started.blocks) / H200.sm_count * H200.latencies.cluster_hand_out_ns / 1e3
    assert of_sm[0].issue == pytest.approx(of_sm[1].issue, abs=handed_out * (1 + NEAR))


def test_memory_decides_where_there_is_much_of_it() -> None:
    """The floor of a copy."""
    work = Work(100_000, 4, 8, moved=64 * 1024.0, instructions=100.0, lines=10.0, latency=2.0, exchange=0.1)
    floor = work.blocks * work.moved / H200.memory_rate
    assert floor <= total_time(work, H200) < 1.25 * floor


@settings(max_examples=300, deadline=None)
@given(works(), DEVICES, st.floats(0, 50), st.floats(0, 50))
def test_no_launch_takes_less_than_the_least_times(work: Work, device: DeviceInfo, ending: float, start: float) -> None:
    """Whatever number of blocks they were asked for, and where that is how often blocks begin, whatever number of
    iterations."""
    if work.cluster > 1 and not device.clusters(work.cluster):
        return
    work = work._replace(epilogue_us=ending, start=start)
    time = total_time(work, device)
    for bound in TimeModel(device).lower_bound_by_blocks(work._replace(blocks=7)):
        assert bound.start + bound.each * work.blocks <= time
    for bound in TimeModel(device).lower_bound_by_blocks(work._replace(blocks=7, iterations=3), begin_again=True):
        assert bound.start + bound.each * work.blocks * work.iterations <= time


@settings(max_examples=100, deadline=None)
@given(works(), DEVICES)
def test_of_many_blocks_the_least_times_are_not_far_from_the_time(work: Work, device: DeviceInfo) -> None:
    if work.cluster > 1 and not device.clusters(work.cluster):
        return
    many = work._replace(blocks=1 << 30)
    least = max(bound.start + bound.each * many.blocks for bound in TimeModel(device).lower_bound_by_blocks(work))
    assert least > 0.8 * total_time(many, device)
