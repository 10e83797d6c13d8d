"""Mappings of persistent rows: all that are enumerated fit the device, no thread is idle, and what they ask for is theirs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.device_info import REGISTER_STEP, WARP, DeviceInfo
from fuser.schedule.analysis.rows import find_rows
from fuser.schedule.cost.estimate import total_time
from fuser.schedule.cost.persistent_buffer_size import persistent_buffer_size
from fuser.schedule.cost.row_mappings import (
    CLUSTERS,
    RowMapping,
    clusters_of,
    row_mapping_of,
    row_mappings,
    row_work_of,
)
from fuser.schedule.cost.row_space import BLOCKS_OF_ROWS, MAX_BATCH, RowSpace, row_space
from fuser.schedule.cost.scratch_budget import BESIDE_ROW
from fuser.schedule.scheduler import Refused
from tests.fusions.rows import (
    Definition,
    add_norm,
    described,
    fusion_of,
    inputs_for,
    layer_norm,
    shapes_of,
    softmax,
)
from tests.schedule.forced_rows import Kind, propose_only, proposed
from tests.schedule.random_row_work import random_row_work

H200 = DeviceInfo.preset("H200")
DEVICES = {name: DeviceInfo.preset(name) for name in ("H200", "sm_80", "sm_75", "sm_120a")}
DEVICES["small"] = replace(H200, sm_count=2, max_threads_per_block=256, registers_per_thread=96)
SEEDS = range(60)


def mappings(row: RowSpace, device: DeviceInfo) -> list[RowMapping]:
    return list(row_mappings(replace(row, may_use_shared=device.copies_to_shared), device))


def held_bytes(row: RowSpace, m: RowMapping) -> int:
    """Of shared memory, by a block."""
    return m.threads * m.batch * row.vector * row.loaded + BESIDE_ROW if m.in_shared else 0


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_mappings_fit(name: str, seed: int) -> None:
    device, row = DEVICES[name], random_row_work(random.Random(seed))
    found = mappings(row, device)
    assert len(set(found)) == len(found)
    for m in found:
        assert 1 <= m.threads * m.rows <= device.max_threads_per_block
        assert m.threads % WARP == 0 or (m.threads < WARP and m.threads.bit_count() == 1)
        assert 1 <= m.batch <= MAX_BATCH
        assert m.threads * m.batch * m.sharing * row.vector >= row.length, "the row is held"
        assert held_bytes(row, m) <= device.shared_per_block_optin
        assert m.registers <= device.registers_per_thread
        # Blocks that are there at once.
        warps = m.resident * -(-m.threads * m.rows // WARP)
        assert m.resident >= 1
        assert warps * WARP <= device.max_threads_per_sm
        assert -(-m.registers // REGISTER_STEP) * REGISTER_STEP * warps * WARP <= device.registers_per_sm
        assert m.resident * held_bytes(row, m) <= device.shared_per_sm
        assert m.resident <= device.max_blocks_per_sm
        if m.groups:
            assert m.groups <= row.rows
            assert m.groups * m.sharing <= m.resident * device.sm_count, "all blocks are there at once"
            assert m.in_shared or m.groups == row.rows
        else:
            assert m.sharing == 1 or device.clusters(m.sharing) >= 1
        assert m.rows == 1 or (m.sharing == 1 and m.threads <= WARP)
        assert m.one_pass in row.passes


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_thread_is_without_an_access(name: str, seed: int) -> None:
    """But for those that make the last warp of a block whole, or the threads of a part of one a power of two."""
    device, row = DEVICES[name], random_row_work(random.Random(seed))
    for m in mappings(row, device):
        mine = -(-row.accesses // m.sharing)
        assert m.threads * (m.batch - 1) < mine, "the last access of a thread is one of some"
        fewer = m.threads - WARP if m.threads > WARP else m.threads // 2
        if m.groups:
            assert m.threads * m.batch * (m.sharing - 1) < row.accesses, "no block is idle"
        else:
            assert fewer * m.batch < mine, "no warp is idle"


@pytest.mark.parametrize("seed", SEEDS)
def test_kinds_are_asked_for(seed: int) -> None:
    row, device = random_row_work(random.Random(seed)), H200
    for may_use_block_groups in (False, True):
        for may_use_shared in (False, True):
            asked = replace(row, may_use_block_groups=may_use_block_groups, may_use_shared=may_use_shared)
            found = list(row_mappings(asked, device))
            assert may_use_block_groups or not any(m.groups for m in found)
            assert may_use_shared or not any(m.in_shared for m in found)
            if may_use_block_groups and may_use_shared:
                continue
            assert set(found) <= set(row_mappings(row, device))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_rows_of_any_length_up_to_a_block_are_held(name: str, rows: int) -> None:
    """No gap is in what fits: however few rows there are."""
    device = DEVICES[name]
    plain = random_row_work(random.Random(3), rows, 1, is_double=False, is_misaligned=False)
    for length in (*range(1, 70), 127, 128, 129, 1000, 1024, 1025):
        row = replace(plain, length=length)
        assert any(m.sharing == 1 and not m.in_shared for m in mappings(row, device)), length


@pytest.mark.parametrize("seed", SEEDS)
def test_work_is_positive_and_of_the_whole_row(seed: int) -> None:
    row, device = random_row_work(random.Random(seed)), H200
    for m in mappings(row, device):
        work = row_work_of(row, m, device)
        assert min(work.blocks, work.resident, work.cluster, work.iterations, work.warps) >= 1
        assert min(work.moved, work.instructions, work.latency) > 0
        assert min(work.cached, work.lines, work.exchange) >= 0
        moved = work.blocks * work.iterations * work.moved
        assert moved >= row.rows * row.length * row.moved * (1 - 1e-9)
        blocks = m.rows * (m.groups or 1)
        assert moved <= (row.rows + blocks) * row.length * row.moved * (1 + 1e-9), "of the last block or trip more"


@pytest.mark.parametrize("seed", SEEDS)
def test_more_rows_never_take_less(seed: int) -> None:
    """Of one mapping."""
    row, device = random_row_work(random.Random(seed)), H200
    for m in mappings(row, device):
        more = replace(row, rows=row.rows * 3 + 1)
        assert total_time(row_work_of(more, m, device), device) >= total_time(row_work_of(row, m, device), device) * (
            1 - 1e-9
        )


@pytest.mark.parametrize("name", DEVICES)
def test_clusters_are_those_of_the_device(name: str) -> None:
    device = DEVICES[name]
    row = random_row_work(random.Random(0), length=1_000_000)
    found = list(clusters_of(row, device))
    assert found[0] == 1
    assert max(found) == max((n for n in CLUSTERS if device.clusters(n) >= 1), default=1)
    assert list(clusters_of(replace(row, length=row.vector), device)) == [1]


def test_several_rows_of_a_block_are_no_more_than_there_are() -> None:
    device = H200
    for rows in (1, 2, 5, 100):
        row = random_row_work(random.Random(0), rows, 64, is_double=False, is_misaligned=False)
        found = {m.rows for m in mappings(row, device)}
        assert max(found) < max(2, 2 * rows)
        assert max(found) <= max(BLOCKS_OF_ROWS)


KINDS: dict[str, Kind] = {
    "registers": lambda m: not m.in_shared and m.sharing == 1 and not m.load_all_first,
    "early": lambda m: m.load_all_first and m.sharing == 1,
    "cluster": lambda m: not m.in_shared and m.sharing > 1 and not m.groups,
    "shared": lambda m: m.in_shared and not m.groups,
    "group": lambda m: m.groups > 0,
}


@pytest.mark.parametrize(
    ("kind", "define"),
    [(k, d) for k in KINDS for d in (softmax, layer_norm, add_norm) if k != "early" or d is layer_norm],
)
@pytest.mark.parametrize("length", [16384, 12001])
def test_a_mapping_is_what_its_parameters_say(
    kind: str, define: Definition, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[RowMapping] = []

    def noted(m: RowMapping) -> bool:
        kept.extend([m] if KINDS[kind](m) else [])
        return KINDS[kind](m)

    propose_only(monkeypatch, noted)
    fusion, shapes = fusion_of(define, DataType.BFloat16), shapes_of(define, 9, length)
    params = proposed(fusion, *shapes, dtype=DataType.BFloat16)
    found = find_rows(fusion, inputs_for(fusion, *(described(DataType.BFloat16, *s) for s in shapes)))
    assert not isinstance(found, Refused)
    mapping = row_mapping_of(row_space(fusion, found, H200), params, H200)
    assert mapping._replace(registers=0) in [m._replace(registers=0) for m in kept]


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_behind_a_reduction_is_waited_for_in_registers(seed: int) -> None:
    """Access by access, between stores. Copies to shared memory are on their way before."""
    row = random_row_work(random.Random(seed))
    late = replace(row, has_late_input=True)
    for m in mappings(row, H200):
        times = [total_time(row_work_of(r, m, H200), H200) for r in (row, late)]
        assert times[0] == times[1] if m.in_shared else times[0] < times[1]


def test_accesses_that_some_threads_lack_are_waited_for() -> None:
    """Behind those that no test is around."""
    row = replace(
        random_row_work(random.Random(0), 100, 8192, is_double=False, is_misaligned=False), vector=8, is_cut=False
    )
    m = RowMapping(256, 4)
    whole, longer = (row_work_of(replace(row, length=n), m, H200).latency for n in (8192, 8184))
    assert longer - whole == pytest.approx(H200.latencies.dram_ns / 1e3)
    single = RowMapping(1024, 1)
    assert row_work_of(row, single, H200).latency == row_work_of(replace(row, length=8184), single, H200).latency


@pytest.mark.parametrize("seed", range(20))
def test_weights_take_registers_or_time(seed: int) -> None:
    """They are waited for behind the last exchange, or held from the first on."""
    row = replace(random_row_work(random.Random(seed)), late_bytes=4)
    found = mappings(row, H200)
    early = [m for m in found if m.load_all_first]
    for m in early:
        (other,) = (
            o
            for o in found
            if o._replace(registers=0, resident=0) == m._replace(load_all_first=False, registers=0, resident=0)
        )
        assert m.registers - other.registers == m.batch * row.vector
        assert m.resident <= other.resident
        mine, others = (row_work_of(row, each, H200) for each in (m, other))
        assert mine.start < others.start
        assert mine._replace(start=0, resident=0) == others._replace(start=0, resident=0)
    assert not any(m.load_all_first for m in mappings(replace(row, late_bytes=0), H200))


@pytest.mark.parametrize("is_late", [False, True])
def test_which_inputs_are_read_behind_a_reduction(is_late: bool) -> None:
    """Of full size, and not what the reduction needs as well; weights are read late in every norm."""
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        weight = fd.define_tensor([-1], True, DataType.Float)
        total = fd.ops.sum(x if is_late else x * y, [1], keepdim=True)
        fd.add_output((x - total * fd.ops.exp(y)) * weight)
    assert fd.fusion is not None
    assert persistent_buffer_size(fd.fusion.ir_fusion, one_pass=False).has_late_input is is_late
