import pytest

from fuser import DataType, FusionDefinition

D = DataType


def ir(body):
    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(*out) if isinstance(out, tuple) else fd.add_output(out)
    return fd.fusion.ir_fusion


def base(fd, *, dtype=D.Float, constant=1.0, op="add", dims=(1,), contiguity=True, shape=(-1, -1)):
    x = fd.define_tensor(shape, contiguity, dtype)
    return [fd.ops.sum(getattr(fd.ops, op)(x, constant), list(dims))]


def test_equal_definitions():
    a, b = ir(base), ir(base)
    assert a is not b
    assert a == b
    assert hash(a) == hash(b)
    assert len({a, b}) == 1


def test_names_and_dead_code_do_not_count():
    def body(fd):
        x = fd.define_tensor((-1, -1), True)
        fd.define_scalar(4)
        fd.ops.sin(x)
        return [fd.ops.sum(fd.ops.add(x, 1.0), [1])]

    assert ir(body) == ir(base)


def test_order_of_independent_exprs_does_not_count():
    def one(fd):
        x = fd.define_tensor([-1])
        a, b = fd.ops.sin(x), fd.ops.cos(x)
        return [fd.ops.add(a, b)]

    def other(fd):
        x = fd.define_tensor([-1])
        b, a = fd.ops.cos(x), fd.ops.sin(x)
        return [fd.ops.add(a, b)]

    def swapped(fd):
        x = fd.define_tensor([-1])
        return [fd.ops.add(fd.ops.cos(x), fd.ops.sin(x))]

    assert ir(one) == ir(other)
    assert ir(one) != ir(swapped)


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": D.Double},
        {"constant": 2.0},
        {"constant": -0.0},
        {"constant": 1j},
        {"op": "sub"},
        {"dims": (0,)},
        {"dims": (0, 1)},
        {"contiguity": False},
        {"contiguity": [True, False]},
        {"shape": (-1, 4)},
        {"shape": (3, 4)},
    ],
)
def test_differences(change):
    assert ir(base) != ir(lambda fd: base(fd, **change))


def test_zeros_of_both_signs_and_nan():
    def constant(value):
        return ir(lambda fd: base(fd, constant=value))

    assert constant(0.0) != constant(-0.0)
    assert constant(float("nan")) == constant(float("nan"))


def test_shared_and_repeated_work_differ():
    def shared(fd):
        x = fd.define_tensor([-1])
        y = fd.ops.sin(x)
        return [fd.ops.add(y, y)]

    def repeated(fd):
        x = fd.define_tensor([-1])
        return [fd.ops.add(fd.ops.sin(x), fd.ops.sin(x))]

    assert ir(shared) != ir(repeated)


def test_outputs_and_aliases():
    def outputs(make):
        def body(fd):
            x, y = fd.define_tensor([-1]), fd.define_tensor([-1])
            return make(x, y, fd.ops.add(x, y))

        return ir(body)

    variants = [
        outputs(lambda x, y, z: [z]),
        outputs(lambda x, y, z: [z, z]),
        outputs(lambda x, y, z: [(z, x)]),
        outputs(lambda x, y, z: [(z, y)]),
        outputs(lambda x, y, z: [x]),
        outputs(lambda x, y, z: [y]),
        outputs(lambda x, y, z: [z, x]),
        outputs(lambda x, y, z: [x, z]),
    ]
    assert len(set(variants)) == len(variants)


def test_extents_of_factories():
    def full(shape):
        def body(fd):
            a, b = fd.define_scalar(D.Int), fd.define_scalar(D.Int)
            return [fd.ops.full([{"a": a, "b": b}.get(s, s) for s in shape], 1.0, D.Float)]

        return ir(body)

    variants = [full(["a", 2]), full(["b", 2]), full(["a", 3]), full([2, "a"]), full(["a", "b"]), full(["a", "a"])]
    assert len(set(variants)) == len(variants)
    assert full(["a", 2]) == full(["a", 2])


def test_inputs_count_even_if_unused():
    def one(fd):
        return [fd.define_tensor([-1])]

    def two(fd):
        x = fd.define_tensor([-1])
        fd.define_scalar()
        return [x]

    assert ir(one) != ir(two)
