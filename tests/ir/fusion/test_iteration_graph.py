"""The iteration-domain graph: what is the same dimension, what transforms make of it, promotion of broadcasts."""

from __future__ import annotations

from fuser.ir.fusion.fusion import Fusion, Tensor, tensor_outputs
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.iteration_graph import Group, IterationGraph, leaves, unify
from fuser.ir.integers.integers import ONE, const, exclusive_or, symbol
from fuser.ir.ops.dtypes import DataType
from fuser.ir.schedule.schedule import ScheduleBuilder
from fuser.lowering.loop_nests.indexing import Indexer

Float = DataType.Float


def biased() -> tuple[Fusion, Tensor, Tensor, Tensor, Tensor]:
    """out = x + broadcast(bias); fusion, x, bias, wide, out."""
    b = FusionBuilder()
    x, bias = b.input_tensor(Float, [-1, -1]), b.input_tensor(Float, [-1])
    wide = b.broadcast(bias, [True, False])
    out = b.pointwise("add", [x, wide], Float)
    b.add_output(out)
    return b.freeze(), x, bias, wide, out


def graph_of(fusion: Fusion, **options: bool) -> IterationGraph:
    return IterationGraph(fusion.tensor_exprs, fusion.tensors, **options)


def test_ops_group_dims_and_a_broadcast_stays_apart() -> None:
    fusion, x, bias, wide, out = biased()
    g = graph_of(fusion)
    assert g.group(x.logical[0]) is g.group(out.logical[0])
    assert g.group(x.logical[1]) is g.group(out.logical[1]) is g.group(wide.logical[1]) is g.group(bias.logical[0])
    assert g.group(wide.logical[0]) is not g.group(x.logical[0])
    assert g.group(wide.logical[0]).is_broadcast


def test_resolving_view_joins_a_broadcast_with_what_resolves_it() -> None:
    fusion, x, _, wide, _ = biased()
    g = graph_of(fusion, resolving=True)
    assert g.group(wide.logical[0]) is g.group(x.logical[0])
    assert not g.group(wide.logical[0]).is_broadcast


def test_dims_known_to_have_one_element_are_like_broadcast_ones_unless_they_are_reduced() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [-1])
    kept, total = b.pointwise("neg", [x], Float), b.reduction("sum", y, [0], Float)
    b.add_output(kept)
    b.add_output(total)
    fusion = b.freeze()
    g = IterationGraph(fusion.tensor_exprs, fusion.tensors, rewrite=lambda _: ONE)
    assert g.group(x.logical[0]) is g.group(kept.logical[0])
    assert g.group(x.logical[0]).is_broadcast
    assert g.split(g.group(x.logical[0]), const(128), True).inner.is_broadcast
    assert not g.group(y.logical[0]).is_broadcast
    assert not graph_of(fusion).group(x.logical[0]).is_broadcast


def test_permute_and_reduction_keep_dims_apart() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    y = b.permute(x, [1, 0])
    r = b.reduction("sum", y, [0], Float)
    b.add_output(r)
    g = graph_of(b.freeze())
    assert g.group(x.logical[0]) is g.group(y.logical[1]) is g.group(r.logical[1])
    assert g.group(x.logical[1]) is g.group(y.logical[0]) is g.group(r.logical[0])
    assert g.group(x.logical[0]) is not g.group(x.logical[1])


def test_transforms_are_shared() -> None:
    fusion, _, _, _, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_before(out.name)
    for name in (cached, out.name):
        s.merge(name, 0)
        s.split(name, 0, 8)
    g = IterationGraph(s.exprs, s.tensors)
    groups = [[g.group(a) for a in s.state(n).loop] for n in (cached, out.name)]
    assert groups[0] == groups[1]
    s.split(out.name, 0, 2, False)
    assert g.group(s.state(out.name).loop[0]) is not groups[0][0]
    assert str(g.group(s.state(out.name).loop[0]).extent) == "2"


def test_extents_of_transforms() -> None:
    g = IterationGraph((), ())
    source = Group("i", const(10), False)
    split = g.split(source, const(4), True)
    assert (split.outer.extent.value, split.inner.extent.value, split.divides) == (3, 4, False)
    outer = g.split(source, const(5), False)
    assert (outer.outer.extent.value, outer.inner.extent.value, outer.divides) == (5, 2, True)
    assert g.split(source, const(4), True) is split
    merge = g.merge(split.outer, split.inner)
    assert merge.result.extent.value == 12
    assert g.find_merge(split.outer, split.inner) is merge.result
    assert g.find_merge(split.inner, split.outer) is None


def test_a_constant_extent_names_the_group() -> None:
    b = FusionBuilder()
    x, y = b.input_tensor(Float, [-1]), b.input_tensor(Float, [7])
    b.add_output(b.pointwise("add", [x, y], Float))
    g = graph_of(b.freeze())
    assert g.group(x.logical[0]).extent.value == 7


def test_welford_results_share_their_dims() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, -1])
    mean, m2, count = b.welford(x, [1])
    b.add_output(mean)
    g = IterationGraph(b.exprs, (x, mean, m2, count))
    for d in range(2):
        assert g.group(mean.logical[d]) is g.group(m2.logical[d]) is g.group(count.logical[d]) is g.group(x.logical[d])


def test_unify_promotes_broadcast_leaves() -> None:
    fusion, _, bias, wide, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(bias.name)
    s.merge(out.name, 0)
    s.split(out.name, 0, 8)
    s.transform_like(out.name)
    g = IterationGraph(s.exprs, s.tensors)
    for name in (wide.name, cached):
        promoted: dict[Group, Group] = {}
        for mine, theirs in zip(s.state(name).loop, s.state(out.name).loop, strict=True):
            assert unify(g, mine, g.group(theirs), promoted)
        assert len(promoted) == 1
        assert [g.group(a, promoted) for a in s.state(name).loop] == [g.group(a) for a in s.state(out.name).loop]


def test_unify_refuses_another_transform() -> None:
    fusion, x, _, _, out = biased()
    s = ScheduleBuilder(fusion)
    cached = s.cache_after(x.name)
    s.split(cached, 0, 4)
    s.split(out.name, 0, 8)
    g = IterationGraph(s.exprs, s.tensors)
    assert not unify(g, s.state(cached).loop[0], g.group(s.state(out.name).loop[0]), {})
    assert tensor_outputs(s.exprs[-1])[0].name == out.name


def test_a_slice_makes_a_dim_of_its_own_and_equal_slices_the_same() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1, 16])
    rows = x.visible[0].extent

    def part(start: int, end: int) -> Tensor:
        return b.slice(x, [const(0), const(start)], [rows, const(end)])

    first, again, second = part(0, 8), part(0, 8), part(8, 16)
    for t in (first, again, second):
        b.add_output(t)
    g = graph_of(b.freeze())
    assert g.group(first.logical[0]) is g.group(x.logical[0])
    assert g.group(first.logical[1]) is not g.group(x.logical[1])
    assert g.group(first.logical[1]) is g.group(again.logical[1])
    assert g.group(first.logical[1]) is not g.group(second.logical[1])


def test_halves_that_meet_are_one_dim() -> None:
    """Their offsets differ: what is read where belongs to each slice, not to the dim."""
    b = FusionBuilder()
    x = b.input_tensor(Float, [16])
    first, second = b.slice(x, [const(0)], [const(8)]), b.slice(x, [const(8)], [const(16)])
    b.add_output(b.pointwise("add", [first, second], Float))
    g = graph_of(b.freeze())
    assert g.group(first.logical[0]) is g.group(second.logical[0])
    assert g.group(first.logical[0]) is not g.group(x.logical[0])


def test_a_swizzle_is_made_once_and_is_no_dim_of_its_own() -> None:
    graph = ScheduleBuilder(biased()[0]).graph()
    row, place = Group("row", const(8), False), Group("place", const(8), False)
    made = graph.swizzle(row, place)
    assert graph.swizzle(row, place) is made
    assert made.result.origin is made
    assert made in place.uses
    assert leaves(made.result) == {place}
    i, j = symbol("i", 0, 31), symbol("j", 0, 7)
    indexer = Indexer(graph, {row: i, place: j})
    assert str(indexer.index(made.result)) in ("(i % 8 ^ j)", "(j ^ i % 8)", "(i%8 ^ j)", "(j ^ i%8)")
    back = Indexer(graph, {row: i, made.result: j}).index(place)
    assert back is exclusive_or(j, i % 8), "a swizzle undoes itself"


def test_only_groups_with_a_broadcast_dim_are_promoted() -> None:
    """The others are what they are, whatever is promoted: a walk down to their dims would find the same."""
    fusion, x, _, wide, out = biased()
    builder = ScheduleBuilder(fusion)
    for name in (x.name, wide.name, out.name):
        builder.merge(name, 0)
        builder.split(name, 0, 128)
    g = graph_of(fusion)
    for axis in builder.state(out.name).loop:
        assert not g.group(axis).has_broadcast
        assert g.group(axis, {Group("other", const(1), True): g.group(x.logical[0])}) is g.group(axis)
    for axis in builder.state(wide.name).loop:
        # Merged with a dim that is none, a broadcast dim is still one of those that it is made of.
        assert g.group(axis).has_broadcast
        assert not g.group(axis).is_broadcast
    assert g.swizzle(g.group(wide.logical[0]), g.group(x.logical[1])).result.has_broadcast


def test_classes_keep_their_dims_in_order_of_first_sight() -> None:
    b = FusionBuilder()
    x = b.input_tensor(Float, [-1])
    chain = [x]
    for _ in range(5):
        chain.append(b.pointwise("neg", [chain[-1]], Float))
    other = b.input_tensor(Float, [-1])
    b.add_output(b.pointwise("add", [other, chain[-1]], Float))
    fusion = b.freeze()
    g = graph_of(fusion)
    seen = [d for t in fusion.tensors for d in t.logical]
    for d in seen:
        assert g.same_dims(d) == seen
