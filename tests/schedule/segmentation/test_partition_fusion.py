"""What no scheduler takes whole becomes few kernels, and none of them stores what its readers can as well compute again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Fusion, LibraryOp, tensor_inputs, tensor_outputs
from fuser.optimize.pipeline import optimize_fusion
from fuser.schedule.segmentation.partition_fusion import RECOMPUTABLE, partition_fusion
from fuser.schedule.segmentation.segment import Segment, choose_scheduler
from fuser.schedule.segmentation.segmentation import segment_fusion
from tests.fuzzing.random_fusions import generate
from tests.schedule.segments import check_cut

BFloat16, Float, Int = DataType.BFloat16, DataType.Float, DataType.Int


def defined(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return optimize_fusion(fd.fusion.ir_fusion, lambda name, text: None)


def kernels(fusion: Fusion) -> list[Segment]:
    check_cut(fusion)
    return [s for s in segment_fusion(fusion).segments if s.has_kernel]


def exprs(segment: Segment) -> list[str]:
    return [getattr(e, "op", type(e).__name__) for e in segment.fusion.tensor_exprs]


# --- fusions that were cut into many kernels --------------------------------------------------------------------------


def turned(fd: FusionDefinition, x: Any, cosine: Any, sine: Any) -> Any:
    """A rotary embedding of one tensor [heads, rows, 8], in Float."""
    o = fd.ops
    wide: Any = o.cast(x, Float)
    heads = x.shape()[0]
    rows = x.shape()[1]
    low, high = (o.slice(wide, [0, 0, at], [heads, rows, at + 4]) for at in (0, 4))
    half = o.cat([o.neg(high), low], dim=2)
    c, s = (o.broadcast(t, [True, False, False]) for t in (cosine, sine))
    return o.cast(o.add(o.mul(wide, c), o.mul(half, s)), BFloat16)


def rotary(fd: FusionDefinition, count: int) -> None:
    """Of `count` tensors of as many heads as they like."""
    inputs = [fd.define_tensor([-1, -1, 8], True, BFloat16) for _ in range(count)]
    cosine, sine = (fd.define_tensor([-1, 8], True, Float) for _ in range(2))
    for x in inputs:
        fd.add_output(turned(fd, x, cosine, sine))


def laplacian(fd: FusionDefinition) -> None:
    """Rows and columns of one matrix scaled by its sums, taken from the identity."""
    o = fd.ops
    x = fd.define_tensor([7, 7], True, Float)
    scale = o.rsqrt(o.sum(o.abs(x), [1]) + 1.0)
    rows, columns = o.broadcast(scale, [False, True]), o.broadcast(scale, [True, False])
    one = o.eq(o.broadcast(o.iota(7), [False, True]), o.broadcast(o.iota(7), [True, False]))
    fd.add_output(o.sub(o.cast(one, Float), o.mul(o.mul(x, rows), columns)))


def decay(fd: FusionDefinition) -> None:
    """exp of the differences of running sums, below the diagonal."""
    o = fd.ops
    x = fd.define_tensor([-1, 6], True, Float)
    total = o.cumsum(x, 1)
    later, earlier = o.broadcast(total, [False, False, True]), o.broadcast(total, [False, True, False])
    below = o.ge(o.broadcast(o.iota(6), [False, True]), o.broadcast(o.iota(6), [True, False]))
    fd.add_output(o.exp(o.where(o.broadcast(below, [True, False, False]), o.sub(later, earlier), -1e4)))


def variation(fd: FusionDefinition) -> None:
    """Mean differences of neighbours along two dims."""
    o = fd.ops
    x = fd.define_tensor([9, 8], True, BFloat16)
    down = o.sub(o.cast(o.slice(x, [1, 0], [9, 8]), Float), o.cast(o.slice(x, [0, 0], [8, 8]), Float))
    right = o.sub(o.cast(o.slice(x, [0, 1], [9, 8]), Float), o.cast(o.slice(x, [0, 0], [9, 7]), Float))
    fd.add_output(o.add(o.sum(o.abs(down), [0, 1]), o.sum(o.abs(right), [0, 1])))


def clipped(fd: FusionDefinition) -> None:
    """Gradients scaled by the norms of rows of weights that have other columns."""
    o = fd.ops
    g, w = (fd.define_tensor([-1, -1], True, BFloat16) for _ in range(2))
    wide = o.cast(g, Float)
    norm = o.sqrt(o.sum(o.mul(wide, wide), [1]))
    limit = o.sqrt(o.sum(o.mul(o.cast(w, Float), o.cast(w, Float)), [1])) * 0.01
    scale = o.minimum(o.div(limit, o.maximum(norm, 1e-6)), 1.0)
    fd.add_output(o.cast(o.mul(wide, o.broadcast(scale, [False, True])), BFloat16))


def mixed(fd: FusionDefinition) -> None:
    """A mixture of two pictures, and its shades of grey."""
    o = fd.ops
    a, b = (fd.define_tensor([-1, 3, -1], True, BFloat16) for _ in range(2))
    both = o.add(o.mul(o.cast(a, Float), 0.25), o.mul(o.cast(b, Float), 0.75))
    fd.add_output(o.cast(both, BFloat16))
    batch, columns = a.shape()[0], a.shape()[2]
    shades = [o.squeeze(o.slice(both, [0, c, 0], [batch, c + 1, columns]), [1]) for c in range(3)]
    fd.add_output(o.cast(o.add(o.add(shades[0], shades[1]), shades[2]), BFloat16))


def pooled(fd: FusionDefinition) -> None:
    """A mean over the tokens that count, then a row of length one."""
    o = fd.ops
    x, mask = fd.define_tensor([-1, -1, -1], True, BFloat16), fd.define_tensor([-1, -1], True, DataType.Bool)
    counts = o.cast(mask, Float)
    total = o.sum(o.mul(o.cast(x, Float), o.broadcast(counts, [False, False, True])), [1])
    mean = o.div(total, o.broadcast(o.maximum(o.sum(counts, [1]), 1.0), [False, True]))
    norm = o.sqrt(o.sum(o.mul(mean, mean), [1]))
    fd.add_output(o.cast(o.div(mean, o.broadcast(o.maximum(norm, 1e-6), [False, True])), BFloat16))


def differences(fd: FusionDefinition) -> None:
    """Sums of three neighbours, from running sums that are read at two places."""
    o = fd.ops
    x = fd.define_tensor([-1, 9], True, Float)
    total = o.cumsum(x, 1)
    rows = x.shape()[0]
    ahead, behind = o.slice(total, [0, 3], [rows, 9]), o.slice(total, [0, 0], [rows, 6])
    fd.add_output(o.mul(o.sub(ahead, behind), 1 / 3))


def rolled(fd: FusionDefinition) -> None:
    """Rows of a picture moved round, in windows."""
    o = fd.ops
    x = fd.define_tensor([8, 4], True, BFloat16)
    moved = o.cat([o.slice(x, [3, 0], [8, 4]), o.slice(x, [0, 0], [3, 4])], dim=0)
    windows = o.permute(o.reshape(moved, [2, 4, 4]), [1, 0, 2])
    fd.add_output(o.mul(windows, 2.0))


def contrasted(fd: FusionDefinition) -> None:
    """The mean loss of rows and of columns of one matrix, whose diagonal is right."""
    o = fd.ops
    x, scale = fd.define_tensor([7, 7], True, BFloat16), fd.define_tensor([1], True, Float)
    scores = o.mul(o.cast(x, Float), o.broadcast(o.exp(scale), [True, False]))
    at = o.iota(7)
    is_right = o.eq(o.broadcast(at, [False, True]), o.broadcast(at, [True, False]))
    right = o.sum(o.where(is_right, scores, 0.0), [1])
    losses: list[Any] = []
    for dim in (1, 0):
        largest = o.max(scores, [dim], keepdim=True)
        total = o.sum(o.exp(o.sub(scores, largest)), [dim])
        losses.append(o.sum(o.sub(o.add(o.squeeze(largest, [dim]), o.log(total)), right), [0]))
    fd.add_output(o.mul(o.add(losses[0], losses[1]), 0.5 / 7))


def placed(fd: FusionDefinition) -> None:
    """Values of the row and of the column of a square, side by side: none of its elements is stored."""
    o = fd.ops
    x, at = fd.define_tensor([6, 6, 2, 4], True, Float), fd.define_tensor([6, 4], True, Float)
    rows, columns = (o.broadcast_in_dim(at, [6, 6, 1, 4], dims) for dims in ([0, 3], [1, 3]))
    fd.add_output(o.mul(x, o.cat([rows, columns], 2)))


def ranked(fd: FusionDefinition) -> None:
    """Sums of all pairs of a row, and of those of each element, of pairs that two inputs compare."""
    o = fd.ops
    x, y = fd.define_tensor([-1, 7], True, Float), fd.define_tensor([-1, 7], True, Float)
    better = o.gt(o.broadcast(y, [False, False, True]), o.broadcast(y, [False, True, False]))
    apart = o.sub(o.broadcast(x, [False, False, True]), o.broadcast(x, [False, True, False]))
    fd.add_output(o.sum(o.where(better, o.tanh(apart), 0.0), [2]))
    fd.add_output(o.sum(o.where(better, o.abs(apart), 0.0), [1, 2]))


def tempered(fd: FusionDefinition) -> None:
    """Gradients of scores and of their temperature by head: one kernel has the rows, another sums up what they give."""
    o = fd.ops
    d, p, x = (fd.define_tensor([-1, 6, -1, -1], True, BFloat16) for _ in range(3))
    scale = fd.define_tensor([6], True, Float)
    given, share = o.cast(d, Float), o.cast(p, Float)
    scores = o.mul(o.sub(given, o.sum(o.mul(given, share), [3], keepdim=True)), share)
    by_head = o.broadcast(o.broadcast(scale, [False, True, True]), [True, False, False, False])
    fd.add_output(o.cast(o.mul(scores, by_head), BFloat16))
    fd.add_output(o.sum(o.mul(scores, o.cast(x, Float)), [0, 2, 3]))


def both_sides(fd: FusionDefinition) -> None:
    """An activation, and sums along either side of images: one of these is in the kernel that has the activation."""
    o = fd.ops
    x, bias = fd.define_tensor([-1, 6, 7], True, BFloat16), fd.define_tensor([7], True, Float)
    values = o.add(o.cast(x, Float), o.broadcast(bias, [True, True, False]))
    fd.add_output(o.cast(o.maximum(values, 0.0), BFloat16))
    fd.add_output(o.sum(values, [2]))
    fd.add_output(o.sum(values, [1]))


CASES: dict[str, tuple[Callable[[FusionDefinition], None], int]] = {
    "laplacian": (laplacian, 2),
    "decay": (decay, 2),
    "variation": (variation, 1),
    "clipped": (clipped, 2),
    "mixed": (mixed, 2),
    "pooled": (pooled, 2),
    "differences": (differences, 2),
    "rolled": (rolled, 1),
    "contrasted": (contrasted, 2),
    "placed": (placed, 1),
    "ranked": (ranked, 2),
    "tempered": (tempered, 2),
    "both_sides": (both_sides, 2),
}


@pytest.mark.parametrize("name", list(CASES))
def test_number_of_kernels(name: str) -> None:
    define, count = CASES[name]
    with FusionDefinition() as fd:
        define(fd)
    made = kernels(defined(fd))
    assert len(made) == count, [exprs(s) for s in made]
    check_stored(made)
    if name == "ranked":
        assert all(sum(not d.is_broadcast for d in t.visible) <= 2 for s in made for t in s.fusion.output_tensors)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_each_tensor_that_is_turned_is_one_kernel(count: int) -> None:
    with FusionDefinition() as fd:
        rotary(fd, count)
    made = kernels(defined(fd))
    assert [len(s.fusion.output_tensors) for s in made] == [1] * count
    check_stored(made)


# --- what is stored ---------------------------------------------------------------------------------------------------


def check_stored(made: Sequence[Segment]) -> None:
    """No kernel stores, for others alone, values that they could compute of inputs of no more bytes than a store and a load."""
    shown = {t.name for t in made[-1].fusion.output_tensors}
    for k, segment in enumerate(made):
        fusion = segment.fusion
        read = {t.name for s in made[k + 1 :] for t in s.fusion.input_tensors}
        only_read = [t for t in fusion.output_tensors if t.name in read and t.name not in shown]
        given = {t.name for s in made[:k] for t in s.fusion.output_tensors}
        if not only_read or given & {t.name for t in fusion.input_tensors}:
            continue
        cheap = all(isinstance(e, RECOMPUTABLE) for e in fusion.tensor_exprs)
        nbytes = sum(t.dtype.itemsize for t in fusion.input_tensors)
        ends = {
            t.name
            for s in made[k + 1 :]
            for e in s.fusion.tensor_exprs
            for t in tensor_inputs(e)
            if type(e).__name__ in ("Resize", "Gather", "Reshape")
        }
        for t in only_read:
            assert not cheap or t.name in ends or nbytes > 2 * t.dtype.itemsize or len(fusion.output_tensors) > 1, (
                f"{t.name} is stored: {exprs(segment)}"
            )


def test_values_of_many_bytes_are_stored() -> None:
    """What is computed of three tensors, and needed by two kernels, is stored: to read it again is less than to read them."""
    with FusionDefinition() as fd:
        o = fd.ops
        a, b, c = (fd.define_tensor([-1, -1], True, Float) for _ in range(3))
        y, z = (fd.define_tensor([-1], True, Float) for _ in range(2))
        shared = o.add(o.mul(a, b), c)
        one, other = (o.sum(o.mul(shared, o.broadcast(t, [False, True])), [d]) for t, d in ((y, 0), (z, 1)))
        fd.add_output(o.sum(o.exp(one), [0]))
        fd.add_output(o.sum(o.exp(other), [0]))
    fusion = defined(fd)
    parts = [part for part, _ in partition_fusion(fusion, lambda part: choose_scheduler(part)[0] is not None)]
    makers = [p for p in parts if any(a.name == t.name for t in p.input_tensors)]
    assert len(makers) == 1


def test_random_fusions_are_cut_well() -> None:
    for seed in range(60):
        check_cut(generate(seed).fd.fusion.ir_fusion)  # type: ignore[union-attr]


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, "rotary"])
def test_cut_fusions_are_right(name: str) -> None:
    """On the simulator, against the definition evaluated expr by expr."""
    with FusionDefinition() as fd:
        if name == "rotary":
            rotary(fd, 2)
        else:
            CASES[name][0](fd)
    random = np.random.default_rng(1)
    fusion = fd.fusion
    assert fusion is not None
    arrays: list[Any] = []
    for t in fusion.ir_fusion.input_tensors:
        # Sizes that are not known are those of the dims that they must be equal to.
        sizes = [d.extent.value if d.extent.is_const else 6 - (k == 0) for k, d in enumerate(t.logical)]
        if name == "rotary" and t.ndim == 2:
            sizes = [6, 8]
        if name == "pooled":
            sizes = [5, 6, 6][: t.ndim]
        values = random.standard_normal(sizes)
        arrays.append((values > 0) if t.dtype is DataType.Bool else values.astype(t.dtype.numpy))
    found = fd.execute(arrays, device="simulator")
    expected = evaluate_fusion(fusion.ir_fusion, arrays)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(f, np.float64), np.asarray(e, np.float64), rtol=2e-2, atol=1e-5)


def test_updates_of_inputs_come_behind_every_read() -> None:
    """An input that several kernels read, one of which makes its new value."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, w = fd.define_tensor([6, 5], True, Float), fd.define_tensor([6, 4], True, Float)
        new = o.mul(x, 2.0)
        fd.add_output(o.add(o.sum(o.abs(o.sub(x, 1.0)), [0, 1]), o.sum(w, [0, 1])))
        fd.add_output(o.sum(o.exp(x), [0]))
        fd.add_output(new, alias_input=x)
    random = np.random.default_rng(2)
    a, b = random.standard_normal((6, 5)).astype(np.float32), random.standard_normal((6, 4)).astype(np.float32)
    before = a.copy()
    total, columns = fd.execute([a, b], device="simulator")[:2]
    np.testing.assert_allclose(total, np.abs(before - 1).sum() + b.sum(), rtol=1e-5)
    np.testing.assert_allclose(columns, np.exp(before).sum(0), rtol=1e-5)
    np.testing.assert_allclose(a, before * 2)


# --- groups of outputs ------------------------------------------------------------------------------------------------


def test_groups_come_in_the_order_of_their_outputs() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        a, b, c = fd.ops.exp(x), fd.ops.exp(y), fd.ops.neg(x)
        for t in (a, b, c, fd.ops.tanh(b)):
            fd.add_output(t)
    made = kernels(defined(fd))
    assert [len(s.fusion.output_tensors) for s in made] == [2, 2]
    assert [s.fusion.input_tensors[0].name for s in made] == [x.node.name, y.node.name]


def test_a_long_list_of_outputs_asks_few_questions() -> None:
    """Outputs of other dims are not asked about together."""
    with FusionDefinition() as fd:
        for _ in range(40):
            fd.add_output(fd.ops.exp(fd.define_tensor([-1])))
    asked = 0

    def is_accepted(part: Fusion) -> bool:
        nonlocal asked
        asked += 1
        return choose_scheduler(part)[0] is not None

    assert len(partition_fusion(defined(fd), is_accepted)) == 40
    assert asked <= 2 * 40 + 1


def rotated(fd: FusionDefinition, x: Any, c: Any) -> Any:
    """The halves of rows turned: a kernel, but cut anywhere in the middle it is many."""
    ops = fd.ops
    a, b = ops.slice(x, [0, 0], [4, 4]), ops.slice(x, [0, 4], [4, 8])
    return ops.cat([ops.sub(ops.mul(a, c), b), ops.add(ops.mul(b, c), a)], dim=1)


def test_two_rotations_between_calls_are_two_kernels() -> None:
    with FusionDefinition() as fd:
        x, v, w = fd.define_tensor([4, 8]), fd.define_tensor([4]), fd.define_tensor([8, 8])
        c = fd.ops.broadcast(fd.ops.cos(v), [True, False])
        q, k = (rotated(fd, fd.ops.matmul(x, m), c) for m in (w, fd.ops.neg(w)))
        fd.add_output(fd.ops.matmul(q, fd.ops.permute(k, [1, 0])))
    segments = segment_fusion(defined(fd)).segments
    kinds = ["call" if s.call is not None else "kernel" if s.has_kernel else "views" for s in segments]
    assert kinds.count("call") == 3
    assert kinds.count("kernel") == 3  # what is negated, and the rotations
    assert [e.op for s in segments for e in s.fusion.tensor_exprs if isinstance(e, LibraryOp)] == ["matmul"] * 3


def test_every_expr_of_a_part_is_needed_by_its_outputs() -> None:
    for seed in range(40):
        handle = generate(seed).fd.fusion
        assert handle is not None
        for part, _ in partition_fusion(handle.ir_fusion, lambda part: choose_scheduler(part)[0] is not None):
            needed = set(part.output_tensors)
            for e in reversed(part.tensor_exprs):
                assert needed & set(tensor_outputs(e))
                needed.update(tensor_inputs(e))


def lamb_like() -> FusionDefinition:
    """Two moments, an update of them, and its norm beside that of the weights: all of it reads the gradient or the weights."""
    with FusionDefinition() as fd:
        p, g, m, v = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(4))
        m1, v1 = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
        u = m1 / (fd.ops.sqrt(v1) + 1e-6) + p * 0.01
        wanted = fd.ops.segment_set(fd.ops.sum(p * p, [0, 1]))
        own = fd.ops.segment_set(fd.ops.sum(u * u, [0, 1]))
        fd.add_output(p - u * (wanted / own))
        fd.add_output(m1)
        fd.add_output(v1)
    return fd


def test_parts_that_read_the_same_inputs_are_one_kernel() -> None:
    fd = lamb_like()
    assert fd.fusion is not None
    segments = segment_fusion(fd.fusion.ir_fusion).segments
    assert len(segments) == 2, "a pass that makes both norms and both moments, and one that updates"
    rng = np.random.default_rng(0)
    p, g, m, v = (rng.random((23, 17)).astype("f4") for _ in range(4))
    found = fd.execute([p, g, m, v], device="simulator")
    m1, v1 = m * 0.9 + g * 0.1, v * 0.999 + g * g * 0.001
    u = m1 / (np.sqrt(v1) + 1e-6) + p * 0.01
    for got, want in zip(found, (p - u * ((p * p).sum() / (u * u).sum()), m1, v1), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4)


def test_what_two_parts_compute_is_stored_once() -> None:
    """No scheduler takes the expansion with what it expands, which then is stored; another part updates an input with that."""
    with FusionDefinition() as fd:
        o = fd.ops
        x = fd.define_tensor([-1, -1, -1], True, Float)
        limited = o.minimum(x, 0.5)
        shared = o.expand(o.broadcast(o.squeeze(limited, [0, 1]), [True, True, False]), [1, 1, 64])
        weights = o.exp(o.sub(x, o.max(x, [0, 1, 2], keepdim=True)))
        fd.add_output(shared)
        fd.add_output(o.div(weights, o.sum(weights, [0, 1, 2], keepdim=True)))
        fd.add_output(limited, x)
    given = np.random.default_rng(0).normal(size=(1, 1, 64)).astype("f4")
    updated = given.copy()
    found = fd.execute([updated], device="simulator")
    wide = np.exp(given.astype("f8") - given.max())
    np.testing.assert_array_equal(np.asarray(found[0]), np.minimum(given, 0.5))
    np.testing.assert_allclose(np.asarray(found[1]), wide / wide.sum(), rtol=1e-6)
    np.testing.assert_array_equal(updated, np.minimum(given, 0.5))


def test_what_a_merged_part_does_not_store_nobody_reads() -> None:
    """Two lookups share a large input with what they look up in, and are merged with it one after the other."""
    with FusionDefinition() as fd:
        o = fd.ops
        x, y = fd.define_tensor([3, 2], True, Float), fd.define_tensor([3, 2], True, BFloat16)
        column, at = fd.define_tensor([2], True, Float), fd.define_tensor([3, 2], True, Int)
        wide = o.cast(y, Float)
        beside = o.broadcast(column, [True, False])
        total = o.add(o.mul(x, wide), beside)
        centred = o.tanh(o.sub(total, o.sum(o.mul(x, x), [0], keepdim=True)))
        fd.add_output(o.take_along_axis(centred, at, 1))
        scaled = o.mul(wide, beside)
        fd.add_output(o.sum(o.mul(scaled, scaled), [1]))
        fd.add_output(o.take_along_axis(total, at, 1))
        fd.add_output(o.sum(o.mul(centred, centred), [1]))
    random = np.random.default_rng(0)
    arrays: list[Any] = [random.standard_normal(s) for s in ((3, 2), (3, 2), (2,))]
    arrays = [a.astype(t.numpy) for a, t in zip(arrays, (Float, BFloat16, Float), strict=True)]
    arrays.append(random.integers(0, 2, (3, 2)))
    assert fd.fusion is not None
    for f, e in zip(fd.execute(arrays, device="simulator"), evaluate_fusion(fd.fusion.ir_fusion, arrays), strict=True):
        np.testing.assert_allclose(np.asarray(f, np.float64), np.asarray(e, np.float64), rtol=1e-5, atol=1e-6)
