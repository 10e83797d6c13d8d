from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InputRuntimeError
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.concretize import concretize, dynamic_extents
from fuser.ir.fusion.extent_binding import bind_extents, check_constraints
from fuser.ir.fusion.fusion import Broadcast, Full, Fusion, Reduction, Resize, Squeeze
from fuser.ir.fusion.verify_fusion import verify_fusion

D = DataType


def ir(body: Callable[[FusionDefinition], list[Any]]) -> Fusion:
    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(out)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def test_nothing_dynamic() -> None:
    fusion = ir(lambda fd: [fd.ops.sin(fd.define_tensor([-1, 3]))])
    assert dynamic_extents(fusion) == ()
    assert concretize(fusion, {"t0_size0": 1}) is fusion


def test_larger_extents_leave_the_fusion() -> None:
    fusion = ir(lambda fd: [fd.ops.full([fd.define_scalar(D.Int)], 1.0, D.Float)])
    assert [str(e) for e in dynamic_extents(fusion)] == ["(c0, 1)"]
    assert concretize(fusion, {"c0": 2}) is fusion


def reduced(fd: FusionDefinition) -> list[Any]:
    n = fd.define_scalar(D.Int)
    x = fd.define_tensor([-1, -1], True)
    f = fd.ops.full([n, x.size(1)], 2.0, D.Float)
    return [
        fd.ops.add(x, f),
        fd.ops.sum(f, [0]),
        fd.ops.sum(f, [0, 1]),
        fd.ops.max(fd.ops.add(f, f), [0], keepdim=True),
        *fd.ops.welford(f, [0]),
        *fd.ops.var_mean(f, [0, 1], 0),
        fd.ops.permute(f, [1, 0]),
        fd.ops.squeeze(f, [0]),
        fd.ops.broadcast(f, [False, True, False]),
    ]


def test_rebuilt_under_the_same_names() -> None:
    fusion = ir(reduced)
    concrete = concretize(fusion, {"c0": 1, "t1_size0": 4, "t1_size1": 3})
    verify_fusion(concrete)
    assert [o.tensor.name for o in concrete.outputs] == [o.tensor.name for o in fusion.outputs]
    assert concrete.outputs[0].tensor.visible[0].extent is fusion.input_tensors[0].visible[0].extent
    assert any(isinstance(e, Squeeze) for e in concrete.exprs)
    assert sum(isinstance(e, Reduction) for e in concrete.exprs) == 1
    names = [t.name for t in concrete.tensors]
    assert len(set(names)) == len(names)
    for expr in concrete.exprs:
        if isinstance(expr, Reduction):
            source = expr.input.visible
            assert not any(source[i].is_broadcast for i, d in enumerate(expr.output.produced) if d.is_reduction)


def test_values() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    outs = evaluate_fusion(ir(reduced), [1, x])
    f = np.full((1, 3), 2, np.float32)
    expected = [
        x + f,
        f.sum(0),
        f.sum(),
        (f + f).max(0, keepdims=True),
        f[0],
        0 * f[0],
        [1, 1, 1],
        0,
        2,
        f.T,
        f[0],
        f[:, None],
    ]
    for out, ref in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(out, ref)


def test_expanded_dims() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        x = fd.define_tensor([1, -1], True)
        y = fd.define_tensor([-1, -1], True)
        n = fd.define_scalar(D.Int)
        return [fd.ops.mul(fd.ops.expand(x, [n, -1]), y)]

    fusion = ir(body)
    concrete = concretize(fusion, {"c2": 1, "t0_size1": 3, "t1_size0": 4, "t1_size1": 3})
    check_constraints(concrete, {"c2": 1, "t0_size1": 3, "t1_size0": 4, "t1_size1": 3})
    x, y = np.array([[1, 2, 3]], np.float32), np.ones((4, 3), np.float32)
    np.testing.assert_array_equal(evaluate_fusion(fusion, [x, y, 1])[0], x * y)
    np.testing.assert_array_equal(evaluate_fusion(fusion, [x, y, 4])[0], x * y)
    with pytest.raises(RuntimeError, match="a conflict was found with 2 different sizes, 2 and 4"):
        evaluate_fusion(fusion, [x, y, 2])


def test_iota_of_length_1() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        n = fd.define_scalar(D.Int)
        return [fd.ops.add(fd.ops.iota(n, 5), fd.define_tensor([-1], True, D.Int))]

    assert evaluate_fusion(ir(body), [1, np.arange(3)])[0].tolist() == [5, 6, 7]


def test_scalars_computed_from_extents() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        x = fd.define_tensor([-1], True)
        n = fd.define_scalar(D.Int)
        f = fd.ops.full([n - 1], 1.0, D.Float)
        return [fd.ops.add(f, x), fd.ops.mul(f, f.size(0))]

    fusion = ir(body)
    assert [a.tolist() for a in evaluate_fusion(fusion, [np.array([1, 2], np.float32), 2])] == [[2, 3], [1]]
    assert [a.tolist() for a in evaluate_fusion(fusion, [np.array([1, 2], np.float32), 3])] == [[2, 3], [2, 2]]


# --- binding ---


def test_binding() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        x = fd.define_tensor([-1, 4], True)
        n = fd.define_scalar(D.Int)
        return [fd.ops.full([n * 2, x.size(0)], fd.define_scalar(D.Float), D.Float)]

    fusion = ir(body)
    bound = bind_extents(fusion, [(3, 4), 5, 0.1])
    assert bound.extents["t0_size0"] == 3
    full = next(e for e in fusion.exprs if isinstance(e, Full))
    assert [bound.extent(d.extent) for d in full.output.visible] == [10, 3]
    assert bound.scalar(full.value) == np.float32(0.1)


def test_static_sizes_are_checked() -> None:
    fusion = ir(lambda fd: [fd.define_tensor([-1, 4], True)])
    with pytest.raises(InputRuntimeError, match="Expected input 0, t0, to have size 4 in dim 1, but got 5") as caught:
        bind_extents(fusion, [(3, 5)])
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_constraints_name_the_users_line() -> None:
    fusion = ir(lambda fd: [fd.ops.add(fd.define_tensor([-1]), fd.define_tensor([-1]))])
    check_constraints(fusion, {"t0_size0": 2, "t1_size0": 2})
    with pytest.raises(
        InputRuntimeError, match="add, dim 0: a conflict was found with 2 different sizes, 2 and 3"
    ) as caught:
        check_constraints(fusion, {"t0_size0": 2, "t1_size0": 3})
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_dead_constraints_are_dropped() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
        fd.ops.add(x, y)
        return [fd.ops.sin(x)]

    assert ir(body).constraints == ()
    assert not any(isinstance(e, Broadcast) for e in ir(body).exprs)


def test_extents_of_dead_code_do_not_count() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        n = fd.define_scalar(D.Int)
        fd.ops.full([n], 1.0, D.Float)
        return [fd.ops.mul(fd.define_tensor([-1], True), n)]

    assert ir(body).extent_scalars == {}
    assert evaluate_fusion(ir(body), [-2, np.array([1, 2], np.float32)])[0].tolist() == [-2, -4]


def test_scalars_that_turn_out_to_be_1_are_constants() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        n = fd.define_scalar(D.Int)
        y = fd.define_tensor([-1, -1], True)
        f = fd.ops.full([n, n * 1], 2.0, D.Float)
        e = fd.ops.expand(fd.ops.full([1, 3], 1.0, D.Float), [y.size(0), -1])
        return [
            fd.ops.mul(f, f.size(0) * f.size(1)),
            fd.ops.full([f.size(0) * 3], f.size(1), D.Int),
            fd.ops.add(e, e.size(0)),
            fd.ops.add(fd.ops.iota(f.size(0) + 1, f.size(0)), 1),
        ]

    fusion = ir(body)
    verify_fusion(fusion)
    sizes = {"c0": 1, "t1_size0": 1, "t1_size1": 2}
    bound = bind_extents(fusion, [1, (1, 2)])
    concrete = concretize(fusion, bound.extents)
    assert sizes.items() <= bound.extents.items()
    verify_fusion(concrete)
    outs = evaluate_fusion(fusion, [1, np.zeros((1, 2), np.float32)])
    assert [o.tolist() for o in outs] == [[[2]], [1, 1, 1], [[2, 2, 2]], [2, 3]]
    outs = evaluate_fusion(fusion, [2, np.zeros((2, 2), np.float32)])
    assert [o.tolist() for o in outs] == [[[8, 8], [8, 8]], [2] * 6, [[3, 3, 3]] * 2, [3, 4, 5]]


def resized(fd: FusionDefinition) -> list[Any]:
    n = fd.define_scalar(D.Int)
    x = fd.define_tensor([-1, 3], True)
    first = fd.ops.slice(x, [0, 0], [n, 3])
    return [
        fd.ops.add(x, first),
        fd.ops.pad(first, [1, 1]),
        fd.ops.cat([first, x], 0),
        fd.ops.sum(first, [0]),
        fd.ops.slice(first, [0, 1], [1, 3]),
    ]


def test_slices_of_one_row() -> None:
    """A slice that turns out to have one row combines with any number of them."""
    fusion = ir(resized)
    assert dynamic_extents(fusion)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    sizes = bind_extents(fusion, [1, (4, 3)]).extents
    concrete = concretize(fusion, sizes)
    verify_fusion(concrete)
    check_constraints(concrete, sizes)
    first = x[:1]
    expected = [x + first, np.pad(first, [(0, 0), (1, 1)]), np.concatenate([first, x]), first.sum(0), first[:1, 1:]]
    for out, ref in zip(evaluate_fusion(fusion, [1, x]), expected, strict=True):
        np.testing.assert_array_equal(out, ref)
    with FusionDefinition() as fd:
        for out in resized(fd):
            fd.add_output(out)
    for out, ref in zip(fd.execute([1, x], device="simulator"), expected, strict=True):
        np.testing.assert_array_equal(out, ref)


def test_names_of_inputs_that_nothing_reads_are_taken() -> None:
    """What the reshape makes had the name of the input that is updated: the last value defined, and no operand."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True)
        rows = fd.ops.squeeze(fd.ops.reshape(x, [2, 8, -1, 1]), [3])
        updated = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.sum(rows, [0]), updated)
        fd.add_output(rows)
    array, target = np.arange(32, dtype=np.float32), np.zeros((8, 2), np.float32)
    (found,) = fd.execute([array, target], device="simulator")
    np.testing.assert_array_equal(found, array.reshape(2, 8, 2))
    np.testing.assert_array_equal(target, array.reshape(2, 8, 2).sum(0))


BIG = 2**31 - 1


def clamped(fd: FusionDefinition) -> list[Any]:
    """[1:, :40] of something of rank 2, and more of that."""
    x = fd.define_tensor([-1, -1], True)
    part = fd.ops.slice(x, [1, 0], [BIG, 40])
    return [part, fd.ops.slice(part, [0, 0], [4, BIG]), fd.ops.pad(part, [1, 2]), fd.ops.cat([part, part], 1)]


@pytest.mark.parametrize(("rows", "columns"), [(9, 40), (9, 12), (9, 41), (5, 40), (5, 7), (4, 1), (2, 1), (1, 3)])
def test_slices_of_whole_dims(rows: int, columns: int) -> None:
    """A dim that is taken whole is the dim of the input, in what follows too."""
    fusion = ir(clamped)
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
    sizes = bind_extents(fusion, [x.shape]).extents
    concrete = concretize(fusion, sizes)
    verify_fusion(concrete)
    part, four, padded, joined = (o.tensor for o in concrete.outputs)
    if 1 < columns <= 40:
        assert [str(t.visible[1].extent) for t in (part, four, padded, joined)] == [
            "t0_size1",
            "t0_size1",
            "t0_size1 + 3",
            "2*t0_size1",
        ]

    assert (part.visible[0].extent is four.visible[0].extent) is (rows <= 5)
    expected = x[1:, :40]
    found = evaluate_fusion(concrete, [x])
    for a, b in zip(
        found,
        [expected, expected[:4], np.pad(expected, [(0, 0), (1, 2)]), np.concatenate([expected] * 2, 1)],
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def edges(fd: FusionDefinition) -> list[Any]:
    """Reflected, repeated, and without both ends."""
    h = fd.define_tensor([-1, -1], True) * 2.0
    return [
        fd.ops.cat([h[:, 1:3], h, h[:, -3:-1]], 1),
        fd.ops.cat([h[:, :1], h[:, :-1]], 1),
        h[:, 2:-2],
        h[:, 3:5] + h[:, :2],
    ]


@pytest.mark.parametrize("columns", [8, 7, 6, 5, 3, 2, 1])
def test_bounds_of_slices_that_lie_in_the_dim(columns: int) -> None:
    """Where a dim reaches as far as a slice, the slice begins and ends where the user says; shorter ones are clamped."""
    fusion = ir(edges if columns >= 5 else lambda fd: edges(fd)[:3])
    x = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
    concrete = concretize(fusion, bind_extents(fusion, [x.shape]).extents)
    verify_fusion(concrete)
    places = {str(e) for r in concrete.exprs if isinstance(r, Resize) for w in r.windows for e in (w.offset, w.end)}
    if columns >= 5:
        assert not any("min" in text or "max" in text for text in places)
    h = x * 2
    wanted = [
        np.concatenate([h[:, 1:3], h, h[:, -3:-1] if columns > 2 else h[:, max(0, columns - 3) : columns - 1]], 1),
        np.concatenate([h[:, :1], h[:, :-1]], 1),
        h[:, 2 : max(2, columns - 2)],
    ]
    for found, expected in zip(evaluate_fusion(concrete, [x]), wanted, strict=False):
        np.testing.assert_array_equal(found, expected)


def test_one_definition_of_edges_serves_all_sizes() -> None:
    with FusionDefinition() as fd:
        for out in edges(fd)[:3]:
            fd.add_output(out)
    for columns in (9, 2, 6, 1, 3, 4, 5, 9):
        x = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
        fd.validate([x], device="simulator")


def test_slices_of_another_tensors_size() -> None:
    """An end that is another tensor's extent: the dims are one where the extents turn out to be equal."""

    def body(fd: FusionDefinition) -> list[Any]:
        x, y = fd.define_tensor([-1], True), fd.define_tensor([-1], True)
        return [fd.ops.slice(x, [0], [y.size(0)])]

    fusion = ir(body)
    for n, extent in ((5, "t0_size0"), (4, "min(t0_size0, t1_size0)"), (6, "t0_size0")):
        concrete = concretize(fusion, bind_extents(fusion, [(5,), (n,)]).extents)
        assert str(concrete.outputs[0].tensor.visible[0].extent) == extent


def test_a_pad_that_leaves_less_than_nothing_is_refused_beside_dims_of_one_element() -> None:
    """What the fusion asks of its extents is asked of the concrete one too."""

    def body(fd: FusionDefinition) -> list[Any]:
        x = fd.define_tensor([-1], True)
        return [fd.ops.pad(x, [-1, -1]), fd.ops.slice(x, [0], [1])]

    fusion = ir(body)
    for n, is_right in ((1, False), (2, True), (3, True)):
        sizes = bind_extents(fusion, [(n,)]).extents
        concrete = concretize(fusion, sizes)
        assert concrete is not fusion
        if is_right:
            check_constraints(concrete, sizes)
        else:
            with pytest.raises(InputRuntimeError, match="Invalid resized domain extent"):
                check_constraints(concrete, sizes)


def test_the_extent_of_dims_of_which_each_may_be_1() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        f, g = (fd.ops.full([fd.define_scalar(D.Int)], 1.0, D.Float) for _ in range(2))
        return [fd.ops.pad(fd.ops.add(f, g), [1, 1])]

    fusion = ir(body)
    (n, m), (padded,) = (v.name for v in fusion.inputs), fusion.output_tensors
    (extent,) = (d.extent for d in padded.visible)
    for sizes, expected in (((3, 3), n), ((1, 3), m), ((3, 1), n)):
        values = dict(zip((n, m), sizes, strict=True))
        assert extent.evaluate(values) == 5
        concrete = concretize(fusion, values)
        assert [str(d.extent) for d in concrete.output_tensors[0].visible] == [f"{expected} + 2"]
        check_constraints(concrete, values)
    with pytest.raises(InputRuntimeError, match="add, dim 0: a conflict was found with 2 different sizes, 2 and 3"):
        check_constraints(concretize(fusion, {n: 2, m: 3}), {n: 2, m: 3})


def test_an_input_says_the_extent_where_others_may_be_1() -> None:
    def body(fd: FusionDefinition) -> list[Any]:
        f = fd.ops.full([fd.define_scalar(D.Int)], 1.0, D.Float)
        return [fd.ops.add(f, fd.define_tensor([-1]))]

    fusion = ir(body)
    assert [str(d.extent) for d in fusion.output_tensors[0].visible] == [f"{fusion.inputs[1].name}_size0"]


# --- dims of inputs that reshapes find to have one element -----------------------------------------------------------


def flattened(fd: FusionDefinition, declared: tuple[int, ...] = (-1, -1, -1)) -> list[Any]:
    """Beside a tensor of the same size, and one that is updated."""
    x, y, z = (fd.define_tensor(list(declared)) for _ in range(3))
    fd.add_output(fd.ops.add(z, 1.0), alias_input=z)
    return [fd.ops.add(fd.ops.mul(x, y), z).reshape(x.size(0), -1)]


@pytest.mark.parametrize("shape", [(1, 4, 6), (4, 1, 6), (4, 6, 1), (1, 1, 6), (1, 1, 1), (2, 4, 6)], ids=str)
def test_dims_of_one_element_that_are_reshaped_are_those_of_one_that_is_defined_as_1(
    shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        for out in flattened(fd):
            fd.add_output(out)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    concrete = concretize(fusion, bind_extents(fusion, [shape] * 3).extents)
    verify_fusion(concrete)
    assert not any(isinstance(e, Squeeze) and _picks(e) for e in concrete.exprs)
    rng = np.random.default_rng(0)
    x, y, z = (rng.integers(-4, 5, shape).astype(np.float32) for _ in range(3))
    for _ in range(2):
        wanted = (x * y + z).reshape(shape[0], -1), z + 1
        (found,) = fd.execute([x, y, z])
        np.testing.assert_array_equal(np.asarray(found), wanted[0])
        np.testing.assert_array_equal(z, wanted[1])
    with FusionDefinition() as told:
        for out in flattened(told, tuple(1 if n == 1 else -1 for n in shape)):
            told.add_output(out)
    for _ in range(2):
        told.execute([x, y, z])
    counters = [f.program([x, y, z]).counters() for f in (fd, told)]
    assert len({tuple(c[what] for what in ("launches", "allocations", "copies")) for c in counters}) == 1


def _picks(squeeze: Squeeze) -> bool:
    """Whether a dim is taken away that has one element now, and might have others."""
    return any(gone and not d.is_broadcast for d, gone in zip(squeeze.input.visible, squeeze.flags, strict=True))


@pytest.mark.parametrize("wrong", [(3, 4, 6), (1, 4, 1), (1, 1, 6)], ids=str)
def test_a_dim_that_is_1_where_it_is_reshaped_is_not_broadcast(wrong: tuple[int, int, int]) -> None:
    """Neither for inputs that are met first, nor for those of a kernel that is there."""
    for known in (False, True):
        with FusionDefinition() as fd:
            for out in flattened(fd):
                fd.add_output(out)
        right = [np.ones((1, 4, 6), np.float32) for _ in range(3)]
        if known:
            fd.execute(right, device="simulator")
        for other in (1, 2):
            given = [np.ones(wrong, np.float32) if k == other else t for k, t in enumerate(right)]
            with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes"):
                fd.execute(given, device="simulator")


def test_a_number_that_is_not_1_is_told_from_a_dim_that_is() -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([-1, -1]), fd.define_tensor([7, -1])
        fd.add_output(x.reshape(-1))
        fd.add_output(fd.ops.add(x, y))
    given = [np.ones((1, 3), np.float32), np.ones((7, 3), np.float32)]
    with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes, 7 and 1"):
        fd.execute(given, device="simulator")


@pytest.mark.parametrize("known", [False, True])
def test_a_size_that_was_told_is_refused_as_an_input_where_the_dim_has_to_be_1(known: bool) -> None:
    with FusionDefinition() as fd:
        x, y = fd.define_tensor([5]), fd.define_tensor([-1])
        t = fd.ops.mul(y, 2.0)
        fd.add_output(t.reshape(1, -1))
        fd.add_output(t, alias_input=x)
    if known:
        fd.execute([np.ones(5, np.float32), np.ones(5, np.float32)], device="simulator")
    with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes, 1 and 5"):
        fd.execute([np.ones(5, np.float32), np.ones(1, np.float32)], device="simulator")


def near_points(ops: Any, x: Any, y: Any) -> list[Any]:
    """What each point of x is from the nearest of y."""
    apart = ops.broadcast(x, [False, True, False]) - ops.broadcast(y, [True, False, False])
    return [ops.min(ops.sum(apart * apart, [2]), [1])]


def points(sizes: tuple[int, ...] = (-1, -1)) -> FusionDefinition:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor(list(sizes), True, DataType.Float) for _ in range(2))
        for out in near_points(fd.ops, x, y):
            fd.add_output(out)
    return fd


def test_few_coordinates_of_pairs_are_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they had been told: one definition serves any number of them."""
    monkeypatch.setenv("FUSER_VERIFY", "passes")
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    fd, rng = points(), np.random.default_rng(0)
    for n, m, count in [
        (5, 7, 3),
        (3, 3, 3),
        (6, 8, 3),
        (5, 7, 2),
        (4, 4, 1),
        (1, 1, 1),
        (9, 5, 8),
        (9, 5, 9),
        (3, 4, 40),
    ]:
        x, y = (rng.integers(-4, 5, (rows, count)).astype(np.float32) for rows in (n, m))
        (found,) = fd.execute([x, y])
        np.testing.assert_array_equal(np.asarray(found), ((x[:, None] - y) ** 2).sum(-1).min(1))
        if count <= 8:
            told = points((-1, count))
            told.execute([x, y])
            assert len(fd.program([x, y]).launches()) == len(told.program([x, y]).launches()) == 1
    for given in ((3, 2), (3, 1), (1, 3), (2, 9)):
        x, y = (np.zeros((5, count), np.float32) for count in given)
        with pytest.raises(InputRuntimeError, match="a conflict was found with 2 different sizes"):
            fd.execute([x, y])


def test_coordinates_of_what_is_no_pair_stay_symbols() -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.sum(x * y, [1]))
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert concretize(fusion, bind_extents(fusion, [(5, 3), (5, 3)]).extents) is fusion


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (12, 1), (3, 3), (9, 9)], ids=str)
def test_what_a_reshape_makes_one_element_meets_any_number_of_coordinates(sizes: tuple[int, int]) -> None:
    with FusionDefinition() as fd:
        x, y = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        for out in near_points(fd.ops, *(t.reshape(t.size(0), t.size(1)) for t in (x, y))):
            fd.add_output(out)
    x, y = (np.full((n, k), float(n), np.float32) for n, k in zip((3, 4), sizes, strict=True))
    (found,) = fd.execute([x, y], device="simulator")
    np.testing.assert_array_equal(np.asarray(found), ((x[:, None] - y) ** 2).sum(2).min(1))


@pytest.mark.parametrize("sizes", [(-1, -1), (-1, 3)], ids=str)
def test_programs_are_for_the_numbers_that_they_were_made_for(sizes: tuple[int, int]) -> None:
    """Told, or found when inputs were bound: others are read from where they are not."""
    fd = points(sizes)
    three = [np.ones((5, 3), np.float32), np.zeros((6, 3), np.float32)]
    program = fd.program(three)
    np.testing.assert_array_equal(np.asarray(program.run(three)[0]), np.full(5, 3.0))
    for count in (2, 4):
        with pytest.raises(InputRuntimeError):
            program.run([np.ones((5, count), np.float32), np.zeros((6, count), np.float32)])
