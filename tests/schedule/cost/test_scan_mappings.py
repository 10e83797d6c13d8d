"""All mappings of a scan fit and cover it; the one to propose is near the best that was measured, and follows the device."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuser.ir.device_info import H200, DeviceInfo
from fuser.schedule.cost.estimate import tie_threshold, total_time
from fuser.schedule.cost.scan_mappings import (
    SCANS,
    ScanMapping,
    ScanSpace,
    scan_blocks,
    scan_mappings,
    scan_work_of,
    steps_of,
)
from tests.schedule.random_scan_work import random_scan_work

DEVICES = [DeviceInfo.preset(name) for name in ("sm_75", "sm_80", "H200", "sm_120")]


@pytest.mark.parametrize("seed", range(40))
def test_every_scan_has_mappings_and_all_of_them_fit_and_cover_it(seed: int) -> None:
    chance = random.Random(seed)
    scan, device = random_scan_work(chance), chance.choice(DEVICES)
    found = list(scan_mappings(scan, device))
    assert found
    for m in found:
        assert 1 <= m.threads <= device.max_threads_per_block
        assert m.threads % 32 == 0
        assert m.vector <= scan.vector
        # Blocks exchange what their threads have scanned together.
        assert m.sharing == 1 or (device.clusters(m.sharing) >= 1 and m.along > 1)
        assert m.resident >= 1
        along = m.along * m.batch * m.sharing * (m.vector if scan.inner else 1)
        assert steps_of(scan, m) * along >= scan.length
        assert scan_blocks(scan, m) // m.sharing * m.across * (1 if scan.inner else m.vector) >= scan.kept
        work = scan_work_of(scan, m, device)
        assert min(work) >= 0
        assert total_time(work, device) > device.launch


@pytest.mark.parametrize("seed", range(20))
def test_the_first_of_the_ranking_takes_about_as_long_as_the_fastest(seed: int) -> None:
    chance = random.Random(seed)
    scan, device = random_scan_work(chance), chance.choice(DEVICES)
    times = [time for time, _ in SCANS.ranked(scan, device)]
    assert times[0] <= tie_threshold(min(times), device)
    assert times[1:] == sorted(times[1:])
    assert len(list(SCANS.reasons(scan, device))) == 1 + min(5, len(times))


def rows(kept: int, length: int, itemsize: int) -> ScanSpace:
    """Running sums of rows, which begin anywhere where their length says so."""
    vector = 16 // max(itemsize, 2)
    missing = vector - 1 if length % vector else 0
    sizes = {"itemsize": itemsize, "narrowest": itemsize, "loaded": itemsize, "moved": 2 * itemsize}
    return ScanSpace(
        True, length + missing, kept, vector, **sizes, arguments=2, scans=1, live=1, operations=0, most=1000,
        is_cut=missing > 0, is_divided=False, is_apart=missing > 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("scan", "measured"),
    [
        # (threads, accesses, blocks of a row, loads ahead): us on an H200
        (
            rows(105, 250003, 2),
            {(512, 4, 2, False): 56.5, (256, 8, 2, False): 44.3, (256, 8, 4, False): 45.1, (256, 2, 4, False): 47.3},
        ),
        (rows(93, 50257, 2), {(512, 4, 4, False): 15.3, (256, 4, 8, False): 14.0}),
        (rows(3, 250003, 4), {(512, 4, 16, False): 10.1, (512, 8, 16, False): 8.5}),
        (rows(22, 128256, 4), {(256, 8, 16, False): 12.1, (512, 8, 8, False): 12.0}),
        (rows(47, 50257, 8), {(256, 4, 8, False): 21.2, (256, 8, 16, False): 18.8, (512, 4, 8, False): 23.3}),
        (rows(88, 50257, 8), {(256, 4, 4, False): 32.0, (256, 4, 4, True): 28.7}),
        (rows(748, 5120, 4), {(512, 2, 1, False): 13.5, (256, 5, 1, False): 12.1, (640, 2, 1, False): 12.4}),
        (rows(16384, 4096, 4), {(512, 2, 1, False): 131.0, (256, 4, 1, False): 134.0}),
    ],
)
def test_estimates_of_rows_that_were_measured(
    scan: ScanSpace, measured: dict[tuple[int, int, int, bool], float]
) -> None:
    """Each within a third, and the one that should be fastest nearly is."""
    known = {m: m for m in scan_mappings(scan, H200)}
    times: dict[float, float] = {}
    for (threads, batch, sharing, ahead), us in measured.items():
        asked = ScanMapping(threads, 1, batch, scan.vector, sharing, ahead)
        m = next((m for m in known if m._replace(resident=1) == asked), None)
        assert m is not None, asked
        time = total_time(scan_work_of(scan, m, H200), H200)
        assert us / 1.33 < time < us * 1.33, (asked, time, us)
        times[time] = us
    assert times[min(times)] <= min(times.values()) * 1.06


def test_blocks_share_scans_where_few_would_leave_sms_idle() -> None:
    for few in (rows(4, 1 << 20, 4), rows(22, 128256, 4), replace(rows(64, 65536, 4), inner=False)):
        assert SCANS.ranked(few, H200)[0][1].sharing > 1
        assert SCANS.ranked(few, replace(H200, max_cluster=1))[0][1].sharing == 1
        assert SCANS.ranked(replace(few, kept=1 << 16, length=4096), H200)[0][1].sharing == 1


def test_threads_of_columns_fold_several_rows_before_they_meet() -> None:
    """An exchange for each row would cost more than the scan itself."""
    for kept, length in ((4096, 4096), (6007, 5003), (8192, 1999)):
        columns = replace(rows(kept, length, 4), inner=False)
        assert SCANS.ranked(columns, H200)[0][1].batch >= 4
