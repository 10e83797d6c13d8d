"""Outputs written into an input's storage: directly where no read is overtaken, else through a temporary."""

from __future__ import annotations

import numpy as np

from fuser.ir.dtypes import DataType
from fuser.ir.fusion import Tensor
from fuser.ir.fusion_builder import FusionBuilder
from fuser.ir.schedule import ScheduleBuilder
from tests.harness import check, integers
from tests.kernel_corpus import BX, BY, GX, SERIAL, SHARED, schedule_axes, spread

Float = DataType.Float


def updated(*, permuted: bool = False) -> tuple[ScheduleBuilder, Tensor, Tensor]:
    """x += y, or x = x.T + y."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1, -1])
    source = b.permute(x, [1, 0]) if permuted else x
    out = b.pointwise("add", [source, y], Float)
    b.add_output(out, x)
    return ScheduleBuilder(b.freeze()), x, out


def in_place(s: ScheduleBuilder, *shape: int) -> tuple[str, ...]:
    """Outputs that need no temporary; the kernel is right."""
    kernel = check(s, [integers(shape), integers(shape, seed=1)], seeds=(0, 1, 2))
    return kernel.plan.in_place


def test_elementwise_update_is_direct() -> None:
    s, _, out = updated()
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    schedule_axes(s, out.name, (GX, BX))
    assert in_place(s, 5, 7) == (out.name,)


def test_update_through_copies_in_registers_is_direct() -> None:
    s, x, out = updated()
    s.cache_after(x.name)
    s.cache_before(out.name)
    s.split(out.name, 1, 4)
    spread(s, out.name, (GX, SERIAL, BX))
    assert in_place(s, 5, 8) == (out.name,)


def test_strided_storage_is_updated_in_its_own_layout() -> None:
    s, _, out = updated()
    schedule_axes(s, out.name, (GX, BX))
    kernel = check(s, [integers((5, 14))[:, ::2], integers((5, 7), seed=1)])
    assert kernel.plan.in_place == (out.name,)


def test_transposed_read_needs_a_temporary() -> None:
    s, _, out = updated(permuted=True)
    s.inline_most()
    schedule_axes(s, out.name, (BY, BX))
    s.parallelize_like(out.name)
    assert in_place(s, 5, 5) == ()


def test_read_by_another_thread_needs_a_temporary() -> None:
    s, x, out = updated()
    cached = s.cache_after(x.name)
    s.set_memory_type(cached, SHARED)
    s.split(cached, 1, 4)
    s.split(out.name, 1, 4)
    s.parallelize(cached, 1, BX)
    s.parallelize(out.name, 2, BX)
    s.inline_at(out.name, 1)
    assert in_place(s, 3, 16) == ()


def test_read_after_the_write_needs_a_temporary() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    out = b.pointwise("add", [x, y], Float)
    late = b.pointwise("neg", [x], Float)
    b.add_output(out, x)
    b.add_output(late)
    for order in ((0, 1), (1, 0)):
        s = ScheduleBuilder(b.freeze())
        for name in (out.name, late.name):
            s.split(name, 0, 4)
            s.parallelize(name, 1, BX)
        if order == (1, 0):
            # The other output first: then nothing is read behind the write.
            s.exprs.reverse()
        kernel = check(s, [integers((9,)), integers((9,), seed=1)])
        assert kernel.plan.in_place == (() if order == (0, 1) else (out.name,))


def test_redundant_readers_need_a_temporary() -> None:
    """Threads along y all read x, one of them writes."""
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1, -1])
    out = b.pointwise("neg", [x], Float)
    wide = b.pointwise("neg", [y], Float)
    b.add_output(out, x)
    b.add_output(wide)
    s = ScheduleBuilder(b.freeze())
    s.parallelize(out.name, 0, BX)
    schedule_axes(s, wide.name, (BY, BX))
    kernel = check(s, [integers((6,)), integers((3, 6), seed=1)])
    assert kernel.plan.in_place == ()


def test_normalisation_in_place_over_a_row_that_the_block_reads_twice() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    r = b.reduction("sum", x, [1], Float)
    out = b.pointwise("sub", [x, b.broadcast(r, [False, True])], Float)
    b.add_output(out, x)
    s = ScheduleBuilder(b.freeze())
    s.split(out.name, 1, 32)
    spread(s, out.name, (GX, SERIAL, BX))
    kernel = check(s, [integers((3, 70))], seeds=(0, 1))
    assert kernel.plan.in_place == (out.name,)


def test_output_that_is_no_alias_is_not_listed() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    b.add_output(b.pointwise("neg", [x], Float))
    kernel = check(ScheduleBuilder(b.freeze()), [np.ones(3, np.float32)])
    assert kernel.plan.in_place == ()
