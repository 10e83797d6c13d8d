"""Tiles of inner tiles: no longer than accesses need, and as much of a thread as one of a copy moves."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from fuser import DataType
from fuser.schedule.params import PointwiseParams
from tests.schedule.analysis.cell_programs import KINDS, accesses, dense, element, sources, tiles

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [BFloat16, Float, DataType.Double], ids=str)
@pytest.mark.parametrize("k", [2, 3, 4, 5, 6, 8])
def test_runs_of_a_thread_are_no_longer_than_needed(
    kind: str, dtype: DataType, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The accesses of neighbouring threads lie as far apart as a thread's run is long."""
    chosen = tiles(monkeypatch)
    inputs = {"interleaved": [dense(4096, 2048, dtype=dtype)] * k, "taken apart": [dense(4096, 2048 * k, dtype=dtype)]}
    (body,) = sources(KINDS[kind](dtype, k), inputs.get(kind, [dense(4096, 2048, dtype=dtype)]))
    loads, stores = accesses(body)
    size = dtype.itemsize
    is_wide = k & (k - 1) == 0
    if not chosen:
        # A thread takes one inner tile, for which no tile is needed, or inner tiles are too large.
        assert max(stores) == 16 if is_wide else k * size > 16
        return
    (p,) = set(chosen)
    # What is beside the inner tiles is a whole line for a warp, if anything allows it.
    narrow = p.vector * size
    assert narrow >= 4 or kind == "repeated"
    assert all(n == 0 or n >= 4 for n in (*loads, *stores)) or kind == "repeated"
    if p.vector * k * size > 16:
        # Longer runs than one access: there is no shorter tile with whole accesses on the other side.
        assert k * size > 16 or not is_wide or narrow == 4
    for name in set(p.tile_contiguous) - dict(p.tile_vector_dims).keys():
        width = dict(p.vector_widths)[name] * size
        assert width == (min(16, p.vector * k * size) if is_wide else (p.vector * k * size) & -(p.vector * k * size))


def test_threads_move_as_much_as_those_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a thread would have less, two accesses to a run of an input are no loss: they share sectors in the cache."""

    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.ops.cast(fd.define_tensor([-1, -1], True, BFloat16), Float), [8192, 4096, 2])
        gate, up = (element(fd, x, [8192, 4096], k) for k in range(2))
        return [fd.ops.cast(gate * up, BFloat16)]

    chosen = tiles(monkeypatch)
    (body,) = sources(define, [dense(8192, 8192)])
    assert accesses(body) == ([16], [16])
    assert {p.vector for p in chosen} == {8}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_longer_and_shorter_tiles_are_candidates_that_can_be_lowered(
    kind: str, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    scheduler = pointwise.PointwiseScheduler
    found: list[PointwiseParams] = []
    propose = scheduler.propose

    def noted(self: Any, *arguments: Any) -> PointwiseParams:
        if not found:
            monkeypatch.setattr(scheduler, "propose", propose)
            found.extend(self.candidates(*arguments))
        return found[0]

    monkeypatch.setattr(scheduler, "propose", noted)
    inputs = {"interleaved": [dense(4096, 2048)] * k, "taken apart": [dense(4096, 2048 * k)]}
    given = inputs.get(kind, [dense(4096, 2048)])
    define = KINDS[kind](BFloat16, k)
    proposed = accesses(sources(define, given)[0])
    assert len(set(found)) == len(found)
    longer = [p for p in found[1:] if p.vector != found[0].vector]
    assert longer
    for p in found[1:]:
        monkeypatch.setattr(scheduler, "propose", lambda *_, p=p: p)
        (body,) = sources(define, given)
        # No access is of single elements that was not one before.
        assert p.vector == 1 or 0 not in (*accesses(body)[0], *accesses(body)[1]) or 0 in (*proposed[0], *proposed[1])
