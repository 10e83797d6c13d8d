"""Places of partial results: each its own, within the buffers, and where they are stored they are read."""

from __future__ import annotations

from itertools import product

from fuser.ir.integers.integers import ONE, ZERO, const
from fuser.ir.kernel.kernel import Allocate, Buffer, Literal, Reduce
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, MemoryType
from fuser.lowering.collectives.slots import shared_slots

SIZES = (3, 3, 1)
"""Of a mean, squares, and a count that all elements have in common."""
DTYPES = (DataType.Float, DataType.Float, DataType.Int32)


def statistics() -> Reduce:
    names = ("mean", "m2", "count")
    partials = tuple(
        Buffer(name, dtype, MemoryType.local, const(size))
        for name, dtype, size in zip(names, DTYPES, SIZES, strict=True)
    )
    return Reduce(partials, "welford", tuple(Literal(0, d) for d in DTYPES), (), (), False, ZERO, ONE, "t1")


def test_every_value_has_a_place_of_its_own_in_the_buffers() -> None:
    r = statistics()
    exchanges, count = 2, 4
    slots = [shared_slots(r, "warps7", const(count), exchanges, const(n)) for n in range(exchanges)]
    for i, size in enumerate(SIZES):
        places = [s.place(i, const(e), const(k)).value for s, e, k in product(slots, range(size), range(count))]
        assert places == list(range(exchanges * size * count))
        assert slots[0].buffers[i].size is const(len(places))
    assert [(b.name, b.dtype) for b in slots[0].buffers] == [
        ("mean_warps7", DataType.Float),
        ("m2_warps7", DataType.Float),
        ("count_warps7", DataType.Int32),
    ]
    assert [s.buffer for s in slots[0].allocations if isinstance(s, Allocate)] == list(slots[0].buffers)


def test_values_are_read_where_they_are_stored() -> None:
    slots = shared_slots(statistics(), "group1", const(8))
    load = slots.read(1, const(2), const(5), CacheOp["global"])
    assert (load.buffer, load.index) == slots.at(const(5))(1, const(2)) == (slots.buffers[1], const(21))
    assert load.cache is CacheOp["global"]
    only = shared_slots(statistics(), "found2", ONE)
    assert only.single(0, const(2)).index is only.place(0, const(2), ZERO) is const(2)
