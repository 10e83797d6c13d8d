"""Every rule of `verify_fusion` rejects a planted mistake, and what the front end makes is well formed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import InternalError
from fuser.ir.fusion.fusion import (
    Broadcast,
    Cat,
    Expand,
    ExtentConstraint,
    ExtentOp,
    Fusion,
    Gather,
    Iota,
    IterDomain,
    IterKind,
    Output,
    Permute,
    Pointwise,
    Reduction,
    Resize,
    Scalar,
    ScalarOp,
    Split,
    Squeeze,
    Tensor,
    Welford,
    Window,
)
from fuser.ir.fusion.fusion_builder import FusionBuilder
from fuser.ir.fusion.verify_fusion import fusion_problems, verify_fusion
from fuser.ir.integers.integers import const, symbol
from tests.judging.python_calls import python_calls

D = DataType


def fusion_of(body) -> Fusion:
    with FusionDefinition() as fd:
        for out in body(fd):
            fd.add_output(out)
    return fd.fusion.ir_fusion


def everything(fd):
    x = fd.define_tensor([-1, 1, -1], True, D.Half)
    y = fd.define_tensor([-1], True, D.Int32)
    n = fd.define_scalar(D.Int)
    s = fd.ops.sum(x, [0, 1])
    return [
        x,
        s,
        fd.ops.add(x, y),
        fd.ops.where(fd.ops.gt(x, 0), x, n),
        *fd.ops.var_mean(x, [2], keepdim=True),
        fd.ops.permute(fd.ops.squeeze(x, [1]), [1, 0]),
        fd.ops.broadcast_in_dim(y, [n, y.size(0)], [1]),
        fd.ops.full([n * 2], 1, D.Bool),
        fd.ops.iota(n),
        fd.ops.segment_set(x),
        fd.ops.set(y),
        fd.ops.logical_not(y),
        fd.ops.max(x),
    ]


def small(fd):
    x = fd.define_tensor([-1, -1], True)
    return [fd.ops.sum(fd.ops.sin(x), [1])]


def test_what_the_front_end_makes_is_well_formed():
    fusion = fusion_of(everything)
    assert fusion_problems(fusion) == []
    verify_fusion(fusion)


def test_it_costs_little():
    def calls(exprs: int) -> int:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], True)
            for _ in range(exprs):
                x = fd.ops.add(x, 1.0)
            fd.add_output(x)
        fusion = fd.fusion.ir_fusion
        assert len(fusion.exprs) == exprs
        return python_calls(lambda: verify_fusion(fusion))

    # 22 an op: 6 microseconds.
    assert calls(40) - calls(20) <= 20 * 30
    assert calls(20) <= 20 * 30


def test_the_error_names_the_pass_and_shows_the_exprs():
    fusion = fusion_of(small)
    broken = Fusion(fusion.inputs, tuple(reversed(fusion.exprs)), fusion.outputs)
    with pytest.raises(
        InternalError, match=r"malformed after some_pass\n.*t2 reads t1, which nothing before"
    ) as caught:
        verify_fusion(broken, "some_pass")
    assert caught.value.pass_name == "some_pass"
    assert "sin(" in str(caught.value)


def test_a_definition_is_checked_when_it_is_complete():
    def define() -> None:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1], True)
            fd.add_output(fd.ops.sin(x))
            builder = fd.fusion.builder()
            builder.exprs[0] = Pointwise("sine", builder.exprs[0].inputs, builder.exprs[0].output)

    with pytest.raises(InternalError, match="malformed after define"):
        define()


def broken(fusion, exprs=None, outputs=None, constraints=None, inputs=None) -> str:
    made = Fusion(
        fusion.inputs if inputs is None else inputs,
        fusion.exprs if exprs is None else exprs,
        fusion.outputs if outputs is None else outputs,
        fusion.constraints if constraints is None else constraints,
        fusion.extent_scalars,
    )
    return "; ".join(fusion_problems(made))


# --- names, order, outputs --------------------------------------------------------------------------------------------


def test_outputs():
    fusion = fusion_of(small)
    sine, total = (e.output for e in fusion.exprs)
    assert "the output t2 is not defined" in broken(fusion, exprs=fusion.exprs[:1])
    assert "is written to t1, which is no input" in broken(fusion, outputs=(Output(total, sine),))
    assert "(Float, rank 1) is written to t0 (Float, rank 2)" in broken(
        fusion, outputs=(Output(total, fusion.inputs[0]),)
    )
    assert "without a copy" in broken(fusion, outputs=(Output(fusion.inputs[0], fusion.inputs[0]),))


def test_names():
    fusion = fusion_of(small)
    assert "t1 is defined twice" in broken(fusion, exprs=(fusion.exprs[0], *fusion.exprs))
    sine, total = fusion.exprs
    renamed = Reduction("sum", sine.output, replace(total.output, name="t1"))
    assert "two values are named 't1'" in broken(fusion, exprs=(sine, renamed), outputs=(Output(renamed.output),))
    assert "an input is listed twice" in broken(fusion, inputs=fusion.inputs * 2)


def test_constant_input():
    fusion = fusion_of(small)
    assert "the input c9 is a constant" in broken(fusion, inputs=(*fusion.inputs, Scalar("c9", D.Float, 1.0)))


# --- tensors ----------------------------------------------------------------------------------------------------------


def one_tensor(change: Callable[[Tensor], Tensor]) -> str:
    """Findings for t1 = sin(t0), with t1 changed."""
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, 1])
    y = b.pointwise("sin", [x], D.Float)
    b.add_output(y)
    fusion = b.freeze()
    assert fusion_problems(fusion) == []
    new = change(y)
    return broken(fusion, exprs=(Pointwise("sin", (x,), new),), outputs=(Output(new),))


def test_a_dim_belongs_to_one_tensor():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, 1])
    y = replace(b.pointwise("sin", [x], D.Float), logical=x.logical)
    fusion = Fusion((x,), (Pointwise("sin", (x,), y),), (Output(y),))
    assert "dim t0.0 belongs to t0 and to t1" in "; ".join(fusion_problems(fusion))


def test_dims():
    def made_by_a_transform(t: Tensor) -> Tensor:
        d = IterDomain("d", t.logical[0].extent)
        d.definition = Split(d, const(4), True, d, d)
        return replace(t, logical=(d, t.logical[1]))

    assert "is made by a transform" in one_tensor(made_by_a_transform)
    assert "the broadcast dim b of t1 has extent 3" in one_tensor(
        lambda t: replace(t, logical=(t.logical[0], IterDomain("b", const(3), IterKind.broadcast)))
    )
    assert "has a reduced dim, but is not the result of a reduction" in one_tensor(
        lambda t: replace(t, logical=(*t.logical, IterDomain("r", const(3), IterKind.reduction)))
    )
    assert "has a root domain" in one_tensor(lambda t: replace(t, root=t.logical))
    assert "stride order (0, 0)" in one_tensor(lambda t: replace(t, stride_order=(0, 0)))
    assert "contiguity (True, True)" in one_tensor(lambda t: replace(t, contiguity=(True, True)))
    assert "does not follow from the operands" in one_tensor(
        lambda t: replace(t, logical=(t.logical[0], IterDomain("i", const(1))), contiguity=(True, True))
    )
    assert "mentions n, which no input and no scalar gives" in one_tensor(
        lambda t: replace(t, logical=(IterDomain("i", symbol("n")), t.logical[1]))
    )


# --- exprs ------------------------------------------------------------------------------------------------------------


def test_pointwise_rules():
    fusion = fusion_of(small)
    x, (sine, total) = fusion.inputs[0], fusion.exprs
    assert "no row 'sine'" in broken(fusion, exprs=(Pointwise("sine", (x,), sine.output), total))
    assert "sin takes 1 operands" in broken(fusion, exprs=(Pointwise("sin", (x, x), sine.output), total))
    wrong = replace(sine.output, dtype=D.Double)
    assert "sin of Float gives Float, not Double" in broken(fusion, exprs=(Pointwise("sin", (x,), wrong),), outputs=())
    assert "set of Float gives Float, not Double" in broken(fusion, exprs=(Pointwise("set", (x,), wrong),), outputs=())
    null = replace(sine.output, dtype=D.Null)
    assert "Float cannot be cast to Null" in broken(fusion, exprs=(Pointwise("cast", (x,), null),), outputs=())
    flat = replace(total.output, logical=total.output.visible)
    assert "t0 of rank 2 meets rank 1" in broken(fusion, exprs=(Pointwise("sin", (x,), flat),), outputs=())
    one = Scalar("c9", D.Int, 1)
    assert "the scalar operand 1 is Int beside Float" in broken(
        fusion, exprs=(Pointwise("add", (x, one), sine.output),), outputs=()
    )
    assert "has no tensor operand" in broken(fusion, exprs=(Pointwise("sin", (one,), sine.output),), outputs=())


def two_inputs(dtypes: tuple[DataType, DataType], shapes=((-1, -1), (-1, -1))):
    b = FusionBuilder()
    x, y = (b.input_tensor(d, s) for d, s in zip(dtypes, shapes, strict=True))
    return b, x, y


def test_operands_have_one_dtype():
    b, x, y = two_inputs((D.Float, D.Double))
    b.add_output(b.pointwise("add", [x, y], D.Double))
    assert "add of Float and Double; one of them needs a cast" in "; ".join(fusion_problems(b.freeze()))


def test_narrow_floats_are_widened_first():
    b, x, y = two_inputs((D.Half, D.Half))
    b.add_output(b.pointwise("add", [x, y], D.Half))
    assert "add runs in Float; operands are Half" in "; ".join(fusion_problems(b.freeze()))


def test_kinds_of_operands():
    b, x, y = two_inputs((D.Float, D.Float))
    b.add_output(b.pointwise("bitwise_and", [x, y], D.Float))
    b.add_output(b.pointwise("logical_and", [x, y], D.Bool))
    b.add_output(b.pointwise("where", [x, x, y], D.Float))
    found = "; ".join(fusion_problems(b.freeze()))
    assert "bitwise_and does not take Float" in found
    assert "logical_and of Float, expected Bool" in found
    assert "the condition is Float, expected Bool" in found


def test_extents_that_meet_are_equal_or_constrained():
    b, x, y = two_inputs((D.Float, D.Float))
    b.add_output(b.pointwise("add", [x, y], D.Float))
    fusion = b.freeze()
    assert len(fusion.constraints) == 2
    assert fusion_problems(fusion) == []
    assert "of t1 cannot meet" in broken(fusion, constraints=fusion.constraints[:1])
    alien = ExtentConstraint(symbol("n", 0), fusion.constraints[0].left, "add")
    assert "a constraint of add mentions n" in broken(fusion, constraints=(*fusion.constraints, alien))


def part(kind) -> tuple[Fusion, object]:
    fusion = fusion_of(everything)
    return fusion, next(e for e in fusion.exprs if isinstance(e, kind))


def swapped(kind, **changes) -> str:
    fusion, expr = part(kind)
    return broken(fusion, exprs=tuple(replace(e, **changes) if e is expr else e for e in fusion.exprs))


@pytest.mark.parametrize("kind", [Broadcast, Squeeze])
def test_flags(kind):
    assert "flags (True,) do not fit the ranks" in swapped(kind, flags=(True,))


def test_new_dims_are_broadcast():
    fusion, expr = part(Broadcast)
    assert "a new dim is not of kind broadcast" in broken(
        fusion, exprs=tuple(replace(e, flags=e.flags[::-1]) if e is expr else e for e in fusion.exprs)
    )


def test_squeezed_dims_have_one_element():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, -1])
    b.add_output(b.squeeze(x, [True, False]))
    fusion = b.freeze()
    assert fusion_problems(fusion) == []
    assert "is not known to be 1" in broken(fusion, constraints=())


def test_expansion():
    assert "extents do not fit the ranks" in swapped(Expand, extents=(None,) * 5)
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [4, 1])
    y = b.expand(x, [None, const(3)])
    b.add_output(y)
    fusion = b.freeze()
    assert fusion_problems(fusion) == []
    assert "cannot become" in broken(fusion, exprs=(Permute(x, y, (0, 1)),))


def test_permutation():
    assert "dims (0, 0) do not fit" in swapped(Permute, dims=(0, 0))
    fusion, expr = part(Permute)
    assert isinstance(expr, Permute)
    wrong = replace(expr, output=replace(expr.output, dtype=D.Double))
    assert "is Double, its operand" in broken(fusion, exprs=tuple(wrong if e is expr else e for e in fusion.exprs))


def test_reductions():
    fusion = fusion_of(small)
    sine, total = fusion.exprs
    assert "no reduction 'total'" in broken(fusion, exprs=(sine, Reduction("total", sine.output, total.output)))
    double = replace(total.output, dtype=D.Double)
    found = broken(fusion, exprs=(sine, Reduction("sum", sine.output, double)), outputs=(Output(double),))
    assert "sum of Float gives Double" in found
    alike = replace(
        sine.output, name="t2", logical=tuple(IterDomain(f"n{i}", d.extent) for i, d in enumerate(sine.output.logical))
    )
    assert "t2 has no reduced dim" in broken(
        fusion, exprs=(sine, Reduction("sum", sine.output, alike)), outputs=(Output(alike),)
    )


def test_broadcast_dims_are_not_reduced():
    b = FusionBuilder()
    x = b.input_tensor(D.Float, [-1, 1])
    b.add_output(b.reduction("sum", x, [1], D.Float))
    assert "the broadcast dim t0.1 of t0 is reduced, squeeze it" in "; ".join(fusion_problems(b.freeze()))


def test_welford():
    fusion, expr = part(Welford)
    assert isinstance(expr, Welford)

    def with_expr(new: Welford) -> str:
        return broken(fusion, exprs=tuple(new if e is expr else e for e in fusion.exprs))

    assert "the count of a welford is Int" in with_expr(replace(expr, count=replace(expr.count, dtype=D.Int)))
    assert "welford of Float gives Float and Double" in with_expr(replace(expr, m2=replace(expr.m2, dtype=D.Double)))
    assert "only a schedule makes welfords of partial results" in with_expr(
        replace(expr, partial=(expr.m2, expr.count))
    )
    kinds = [IterKind.iteration if d.is_reduction else IterKind.reduction for d in expr.m2.logical]
    other = tuple(IterDomain(d.name, d.extent, k) for d, k in zip(expr.m2.logical, kinds, strict=True))
    assert "of one welford, are reduced over different dims" in with_expr(
        replace(expr, m2=replace(expr.m2, logical=other))
    )


def test_factories():
    fusion, expr = part(Iota)
    assert isinstance(expr, Iota)
    assert "cannot be cast to Null" in broken(
        fusion,
        exprs=tuple(replace(e, output=replace(e.output, dtype=D.Null)) if e is expr else e for e in fusion.exprs),
    )


def test_scalars():
    fusion = fusion_of(everything)
    product = next(e for e in fusion.exprs if isinstance(e, ScalarOp) and e.op == "mul")

    def swap(**changes) -> str:
        return broken(fusion, exprs=tuple(replace(e, **changes) if e is product else e for e in fusion.exprs))

    assert "no row 'nothing'" in swap(op="nothing")
    assert "takes 1 operands, got 2" in swap(op="neg")
    assert "mul gives Int, not Double" in swap(output=replace(product.output, dtype=D.Double))
    assert "is not the extent of dim 7" in swapped(ExtentOp, dim=7)


def parts(fd):
    x = fd.define_tensor([4, 6], True)
    i = fd.define_tensor([3], True, D.Int)
    return [
        fd.ops.slice(x, [1, 0], [3, 6]),
        fd.ops.pad(x, [1, 1], 2.0),
        fd.ops.cat([x, x], 1),
        fd.ops.index_select(x, i, 0),
        fd.ops.take_along_axis(x, fd.ops.broadcast(i, [True, False]), 1),
    ]


def exchanged(kind, change):
    """Findings when the first expr of a kind is another."""
    fusion = fusion_of(parts)
    assert fusion_problems(fusion) == []
    expr = next(e for e in fusion.exprs if isinstance(e, kind))
    return broken(fusion, exprs=tuple(replace(e, **change(e)) if e is expr else e for e in fusion.exprs))


def test_resizes():
    assert "1 windows do not fit the ranks" in exchanged(Resize, lambda e: {"windows": e.windows[:1]})
    half = Window(const(0), const(0), const(1))
    assert "nothing fills what is outside" in exchanged(Resize, lambda e: {"windows": (half, e.windows[1])})
    assert "is Double, its operand" in exchanged(Resize, lambda e: {"output": replace(e.output, dtype=D.Double)})
    moved = Window(symbol("c99", 0), const(0), const(2))
    assert "mentions c99" in exchanged(Resize, lambda e: {"windows": (moved, e.windows[1])})


def test_concatenations():
    assert "do not fit the ranks" in exchanged(Cat, lambda e: {"bounds": ()})
    assert "do not fit the ranks" in exchanged(Cat, lambda e: {"dim": 2})
    assert "does not follow from" in exchanged(Cat, lambda e: {"inputs": (e.inputs[0], fusion_input(e))})


def fusion_input(expr):
    """A tensor of other extents, beside an expr."""
    return replace(
        expr.inputs[0], logical=tuple(IterDomain(f"z{i}", const(9)) for i, _ in enumerate(expr.inputs[0].logical))
    )


def test_gathers():
    assert "do not fit the ranks" in exchanged(Gather, lambda e: {"dim": 2})
    assert "expected integers on the device" in exchanged(Gather, lambda e: {"index": e.input})
