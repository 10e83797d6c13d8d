import pytest

import fuser
from fuser import (
    BroadcastOp,
    DataType,
    Expr,
    FusionDefinition,
    IterDomain,
    Merge,
    ParallelType,
    Split,
    SqueezeOp,
    TensorView,
    Val,
)
from tests.frontend.building import define

D = DataType


def definition():
    """(fd, x, y, z): z = sum(exp(x), [1])."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, 16], True)
        y = fd.ops.exp(x)
        z = fd.ops.sum(y, [1])
        fd.add_output(z)
    return fd, x, y, z


def test_properties():
    _, x, _, z = definition()
    assert isinstance(x, TensorView)
    assert isinstance(x, Val)
    assert (x.ndim, z.ndim) == (2, 1)
    assert x.dtype() is D.Float
    assert x.is_tensor()
    assert x.is_symbolic()
    assert [str(n) for n in x.shape()] == ["t0_size0: Int", "16"]
    assert not x.has_root()
    assert str(x.domain()) == "[t0_size0, 16]"
    assert [a.is_reduction() for a in z.get_logical_domain()] == [False, True]
    assert z.get_root_domain() == z.get_logical_domain() == z.get_loop_domain()


def test_handles_are_interned():
    fd, x, y, z = definition()
    assert fd.fusion.inputs() == [x]
    assert fd.fusion.outputs()[0] is z
    assert fd.fusion.vals() == [x, y, z]
    assert y.definition() is y.definition()
    assert y.definition().input(0) is x
    assert y.definition().output(-1) is y
    assert x.uses() == [y.definition()]
    assert x.definition() is None
    assert z.uses() == []
    assert x.axis(0) is x.get_loop_domain()[0]
    assert x.axis(-1) is x.axis(1)
    assert x.size(0) is x.shape()[0]
    assert len({x.axis(0), x.axis(0), x.axis(1)}) == 2


def test_classes_of_exprs():
    with FusionDefinition() as fd:
        x = fd.define_tensor([1, 2])
        assert type(fd.ops.broadcast(x, [True, False, False]).definition()) is BroadcastOp
        assert type(fd.ops.squeeze(x, [0]).definition()) is SqueezeOp
        assert type(fd.ops.neg(x).definition()) is Expr
        n = fd.ops.add(fd.define_scalar(), 1.0)
        assert isinstance(n.definition(), Expr)
        assert [e.output(0) for e in n.definition().input(0).uses()] == [n]
        assert str(fd.ops.neg(x).definition()).startswith("tv")


def test_extents_of_axes():
    _, x, _, _ = definition()
    assert not x.axis(1).extent().is_symbolic()
    assert x.axis(0).extent() is x.size(0)
    with FusionDefinition() as fd:
        y = fd.define_tensor([-1, 3])
        n = y.axis(0).extent()
        # Usable in ops while the definition is open.
        fd.add_output(fd.ops.full([n], 1.0, D.Float))
    assert "fd.ops.size(tv0, dim=0)" in repr(fd)


@pytest.mark.parametrize("index", [2, -3])
def test_axis_out_of_range(index):
    _, x, _, _ = definition()
    with pytest.raises(RuntimeError, match=rf"Tried to access out of boundary index {index}. total index: 2"):
        x.axis(index)
    with pytest.raises(RuntimeError, match="out of boundary"):
        x.size(index)
    with pytest.raises(RuntimeError, match="out of boundary"):
        x.uses()[0].input(index)


# --- verbs ---


def test_split_merge_reorder():
    _, x, _, _ = definition()
    assert x.split(0, 4) is x
    assert [str(a) for a in x.get_loop_domain()][1:] == ["4", "16"]
    made = x.axis(0).definition()
    assert type(made) is Split
    assert (made.outer(), made.inner()) == (x.axis(0), x.axis(1))
    assert x.get_logical_domain()[0].uses() == [made]
    assert x.merge(1) is x
    merged = x.axis(1).definition()
    assert type(merged) is Merge
    assert str(x.axis(1)) == "64"
    assert merged.outer().uses() == [merged]
    assert x.reorder({0: 1}) is x
    assert str(x.axis(0)) == "64"
    assert x.axis(1).uses() == []


def test_directions_of_splits():
    _, x, _, _ = definition()
    x.inner_split(1, 2)
    assert [str(a) for a in x.get_loop_domain()][1:] == ["8", "2"]
    x.outer_split(2, 2)
    assert [str(a) for a in x.get_loop_domain()][1:] == ["8", "2", "1"]


def test_caches_and_rfactor():
    fd, x, y, z = definition()
    copy = x.cache_after()
    assert y.definition().input(0) is copy
    assert copy.definition().input(0) is x
    before = z.cache_before()
    assert z.definition().input(0) is before
    before.split(1, 4)
    partial = before.rfactor([1])
    assert before.definition().input(0) is partial
    assert fd.fusion.outputs() == [z]
    assert "cache" in fd.fusion.print_math()
    copy.set_memory_type(fuser.MemoryType.shared)


def test_parallelize():
    _, x, _, z = definition()
    z.split(0, 128)
    z.axis(0).parallelize(ParallelType.grid_x)
    z.axis(1).parallelize(ParallelType.block_x)
    assert z.fusion.schedule.state("t2").parallel_type(z.axis(1).node) is ParallelType.block_x
    stale = x.axis(0)
    x.split(0, 2)
    with pytest.raises(RuntimeError, match="no longer in the loop domain"):
        stale.parallelize(ParallelType.block_y)


@pytest.mark.parametrize(
    ("verb", "kind", "text"),
    [
        (lambda x: x.split(0.5, 2), TypeError, r"split\(\): incompatible function arguments"),
        (lambda x: x.split(0, "2"), TypeError, r"split\(\): incompatible function arguments"),
        (lambda x: x.split(0, 0), RuntimeError, "the factor must be positive"),
        (lambda x: x.split(7, 2), RuntimeError, "7"),
        (lambda x: x.merge("a"), TypeError, r"merge\(\): incompatible function arguments"),
        (lambda x: x.reorder([0, 1]), TypeError, r"reorder\(\): incompatible function arguments"),
        (lambda x: x.rfactor([0]), RuntimeError, "rfactor"),
        (lambda x: x.rfactor(0), TypeError, r"rfactor\(\): incompatible function arguments"),
        (lambda x: x.cache_before(), RuntimeError, "cache"),
        (lambda x: x.cache_after(3), TypeError, r"cache_after\(\): incompatible function arguments"),
        (lambda x: x.set_memory_type(fuser.MemoryType.shared), RuntimeError, "inputs and outputs stay in global"),
        (lambda x: x.set_memory_type(1), TypeError, r"set_memory_type\(\): incompatible function arguments"),
        (lambda x: x.axis(0).parallelize("x"), TypeError, r"parallelize\(\): incompatible function arguments"),
        (lambda x: x.set_allocation_domain([0, 1], True), TypeError, "must hold IterDomains"),
    ],
)
def test_mistakes_in_verbs(verb, kind, text):
    _, x, _, _ = definition()
    with pytest.raises(kind, match=text) as caught:
        verb(x)
    assert caught.value.location.filename == __file__


def test_set_allocation_domain():
    _, _, y, _ = definition()
    y.set_allocation_domain([y.axis(1), y.axis(0)], True)


def test_scheduling_within_the_definition_freezes_it():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True)
        y = fd.ops.exp(x)
        fd.add_output(y)
        y.split(0, 128)
        for call in (lambda: fd.ops.sin(x), lambda: fd.add_output(x), lambda: fd.define_scalar()):
            with pytest.raises(RuntimeError, match="scheduling has begun; define every op, input and output before"):
                call()
    assert len(y.get_loop_domain()) == 2
    assert "# The schedule of this fusion is not part of this text." in repr(fd)


def test_queries_do_not_freeze():
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1], True)
        x.axis(0), x.get_loop_domain(), x.uses(), str(x.domain())
        fd.add_output(fd.ops.exp(x))


def test_verbs_on_dead_tensors():
    def body(fd):
        x = fd.define_tensor([-1], True)
        dead = fd.ops.exp(x)
        fd.add_output(fd.ops.sin(x))
        with pytest.raises(RuntimeError, match="no output of the fusion needs it"):
            dead.split(0, 2)

    define(body)


def test_unsupported_verbs():
    _, x, _, _ = definition()
    with pytest.raises(NotImplementedError, match="swizzle"):
        x.swizzle(0, 1)
    with pytest.raises(NotImplementedError, match="several GPUs"):
        x.swizzle1d(0, ParallelType.mesh_x)
    with pytest.raises(NotImplementedError, match="several GPUs"):
        x.set_device_mesh([0])


def test_schedules_do_not_count_in_equality():
    a, x, _, _ = definition()
    b, _, _, _ = definition()
    x.split(0, 4)
    assert a.fusion == b.fusion
    assert hash(a.fusion) == hash(b.fusion)


def test_values_stay_printable():
    fd, x, _, z = definition()
    del fd._fusion
    del fd
    assert str(z) == "tv2: Float[t0_size0, r 16]"
    assert isinstance(x.axis(0), IterDomain)
    assert repr(x) == str(x)
