"""What rounding loses between the statistics of a row and its results, carried along beside every value.

Before: t6 = x - mean;  t7 = t6 * r;  y = t7 * w + b
After:  t6 + t6_rest = x - mean - mean_rest;  t7 = t6 * r, t7_rest = what the product lost + t6 * r_rest + t6_rest * r;
        y = fma(t7, w, b) + t7_rest * w

A normalised value comes of four roundings, and those of its row's statistics. Where the bias nearly cancels what it is added to
they are many units of the result's last place; and each of thousands of elements is a chance to have them all in one direction.
Here a result is off by its own rounding and one more.

A rest is a register beside a value, so only values in registers have one: sums, products, quotients and roots of Floats and
Doubles that depend on a reduction, that no reduction follows, and that show in an output to more than 16 bits; sums over a row;
and products of which the sum is subtracted from elements. What carries none (an input, an exponential) is taken as exact.

A value with a rest is what it would be without, so that infinities and nan are where they would be: rests that are no numbers
belong to values that are none, and are numbers again where the last of a chain takes them in.
"""

from __future__ import annotations

from collections.abc import Set

from fuser.errors import InternalError
from fuser.ir.dtypes import DataType
from fuser.ir.enums import MemoryType
from fuser.ir.exact_ops import BOUNDED, FMA, PRODUCT, REST_OF, TOTAL
from fuser.ir.fusion import (
    COPIES,
    Broadcast,
    Permute,
    Pointwise,
    Reducing,
    Reduction,
    Reshape,
    Squeeze,
    Tensor,
    TensorExpr,
    tensor_inputs,
    tensor_outputs,
)
from fuser.ir.integers import ONE, ZERO, Int
from fuser.ir.kernel import Allocate, Buffer, Call, Cast, Literal, Load, Stmt, Store, Value
from fuser.ir.schedule import ScheduleBuilder
from fuser.ir.wide_results import WIDE, wide_results
from fuser.lowering.combiners.compensated_sum import cancelling_sums, compensated_sums, split_sum

_DIVISIONS = frozenset(("div", "truediv"))
_TAKING = frozenset(("add", "sub", "mul", "sqrt", "rsqrt", FMA.name)) | _DIVISIONS


def carried_rests(builder: ScheduleBuilder) -> frozenset[str]:
    """Names of the tensors that have a rest that something takes."""
    if not any(isinstance(e, Reducing) for e in builder.exprs):
        return frozenset()
    wide = wide_results(builder)
    if not wide:
        return frozenset()
    before = _before_reductions(builder)
    possible = _possible(builder, wide, before)
    carried = _terms(builder)
    takers: dict[str, list[TensorExpr]] = {}
    for expr in reversed(builder.exprs):
        t = tensor_outputs(expr)[0]
        if t.name in possible:
            # A mean that is a result is rounded twice as it is: sum and quotient.
            is_sum = isinstance(expr, Reduction)
            is_spread = isinstance(expr, Broadcast)
            for u in takers.get(t.name, []):
                skips = _is_in(u, before) or (is_sum and _is_division(u)) or (is_spread and _is_fma(u))
                if _is_in(u, carried) or _is_rest_of(u) or (_takes(u, wide, t) and not skips):
                    carried.add(t.name)
        for operand in dict.fromkeys(tensor_inputs(expr)):
            takers.setdefault(operand.name, []).append(expr)
    return frozenset(carried)


def _before_reductions(builder: ScheduleBuilder) -> set[str]:
    """Names of the tensors that a reduction follows."""
    before: set[str] = set()
    for expr in reversed(builder.exprs):
        if isinstance(expr, Reducing) or any(t.name in before for t in tensor_outputs(expr)):
            before.update(t.name for t in tensor_inputs(expr))
    return before


def _terms(builder: ScheduleBuilder) -> set[str]:
    """Names of the products in sums that are subtracted from elements: their roundings may be most of what is left."""
    sums = compensated_sums(builder) & cancelling_sums(builder)
    found: set[str] = set()
    for e in builder.exprs if sums else ():
        if isinstance(e, Reduction) and e.output.name in sums and e.input.dtype is e.output.dtype:
            found.update([e.input.name] if _is_inside(builder, builder.definition(e.input.name), "mul") else [])
    return found


def _is_inside(builder: ScheduleBuilder, expr: TensorExpr | None, *ops: str) -> bool:
    """Whether one of these ops computes a register."""
    if not (isinstance(expr, Pointwise) and expr.op in ops and takes_rests(expr)):
        return False
    name = expr.output.name
    return name not in builder.output_names and builder.state(name).memory is MemoryType.local


def _possible(builder: ScheduleBuilder, wide: frozenset[str], before: Set[str]) -> set[str]:
    """Names of the registers that could have a rest: sums, their quotients by a number, and what no reduction follows."""
    after: set[str] = set()
    found: set[str] = set()
    sums = compensated_sums(builder)
    outside = builder.input_names | set(builder.output_names)
    for expr in builder.exprs:
        operands = tensor_inputs(expr)
        if not (isinstance(expr, Reducing) or any(t.name in after for t in operands)):
            continue
        after.update(t.name for t in tensor_outputs(expr))
        t = tensor_outputs(expr)[0]
        if t.name in outside or builder.state(t.name).memory is not MemoryType.local:
            continue
        if isinstance(expr, Reduction):
            is_possible = t.name in sums
        elif t.name in before:
            is_mean = _is_division(expr) and len(operands) == 1 and _takes(expr, wide)
            is_possible = operands[0].name in found and (is_mean or _is_passing(expr))
        else:
            # A chain begins at what a row has in common. What an fma loses takes eight instructions.
            begins = any(t.name in found or (t.name in after and _is_common(builder, t)) for t in operands)
            is_taking = begins and _takes(expr, wide) and not _is_fma(expr)
            is_possible = is_taking or (_is_passing(expr) and operands[0].name in found)
        if is_possible:
            found.add(t.name)
    return found


def takes_rests(expr: TensorExpr) -> bool:
    """Whether the rests of operands can be taken in by an op."""
    if not (isinstance(expr, Pointwise) and expr.op in _TAKING and expr.output.dtype in WIDE):
        return False
    dtype = expr.output.dtype
    return all(v.dtype is dtype if isinstance(v, Tensor) else not v.dtype.is_complex for v in expr.inputs)


def _takes(expr: TensorExpr, wide: frozenset[str], operand: Tensor | None = None) -> bool:
    """Whether an op of interest takes in rests, that of `operand` above all: what is divided by is as exact as it is, for a
    quotient with a rest takes six instructions."""
    if not (takes_rests(expr) and tensor_outputs(expr)[0].name in wide):
        return False
    return operand is None or not (_is_division(expr) and operand is not tensor_inputs(expr)[0])


def _is_fma(expr: TensorExpr) -> bool:
    return isinstance(expr, Pointwise) and expr.op == FMA.name


def _is_division(expr: TensorExpr) -> bool:
    return isinstance(expr, Pointwise) and expr.op in _DIVISIONS


def _is_in(expr: TensorExpr, carried: Set[str]) -> bool:
    return tensor_outputs(expr)[0].name in carried


def _is_passing(expr: TensorExpr) -> bool:
    """Whether the result is the operand, seen in another way."""
    return isinstance(expr, (Broadcast, Permute, Reshape, Squeeze)) or (
        isinstance(expr, Pointwise) and expr.op in COPIES and isinstance(expr.inputs[0], Tensor)
    )


def _is_common(builder: ScheduleBuilder, t: Tensor) -> bool:
    return isinstance(builder.definition(t.name), (Broadcast, Reducing))


def _is_rest_of(expr: TensorExpr) -> bool:
    return isinstance(expr, Pointwise) and expr.op == REST_OF.name


class Arithmetic:
    """An op on operands of one dtype that may have rests."""

    def __init__(
        self,
        op: str,
        args: tuple[Value, ...],
        rests: tuple[Value | None, ...],
        dtype: DataType,
        name: str,
        *,
        larger: int | None = None,
    ):
        """`larger`: what a sum loses is found where this term of the two is the larger, or where they nearly cancel; elsewhere
        half a unit of the other may be lost, as without a rest. None: wherever."""
        self._op, self._dtype, self._name, self._larger = op, dtype, name, larger
        self._args = tuple(_as(a, dtype) for a in args)
        self._rests = rests

    def carried(self, target: Buffer, rest: Buffer, at: Int) -> list[Stmt]:
        """target[at] + rest[at] becomes the result."""
        match self._op, self._args:
            case "add" | "sub", (a, b):
                term = b if self._op == "add" else self._neg(b)
                if self._larger is None:
                    stmts, value, lost = split_sum(a, term, self._dtype, self._name)
                else:
                    # Dekker's, for half the operations.
                    first, second = (a, term) if self._larger == 0 else (term, a)
                    stmts, value = [], self._call(TOTAL.name, a, term)
                    lost = self._call("sub", second, self._call("sub", Load(target, at), first))
                return [*stmts, Store(target, at, value), Store(rest, at, self._sum(lost, self._correction(None)))]
            case "mul", (a, b):
                lost = self._call(FMA.name, a, b, self._neg(Load(target, at)))
                return [
                    Store(target, at, self._call(PRODUCT.name, a, b)),
                    Store(rest, at, self._sum(lost, self._correction(None))),
                ]
            case _:
                # Quotients and roots: what the rounded result leaves of the operand, divided by how fast it changes.
                changed = self._correction(Load(target, at))
                assert changed is not None
                return [
                    Store(target, at, self._rounded()),
                    Store(rest, at, changed),
                    Store(rest, at, self._if_number(Load(rest, at), Literal(0.0, self._dtype))),
                ]

    def settled(self, target: Buffer, at: Int) -> list[Stmt]:
        """target[at] becomes the result with the rests of its operands, rounded last; what is no number as it is without."""
        if self._op in _DIVISIONS or self._op in ("sqrt", "rsqrt"):
            plain, both = self._register("plain"), self._register("both")
            correction = self._correction(Load(plain, ZERO))
            assert correction is not None
            return [
                Allocate(plain),
                Allocate(both),
                Store(plain, ZERO, self._rounded()),
                Store(both, ZERO, self._call("add", Load(plain, ZERO), correction)),
                Store(target, at, self._if_number(Load(both, ZERO), Load(plain, ZERO))),
            ]
        correction = self._correction(None)
        if correction is None:
            raise InternalError(f"no operand of {self._op} has a rest", pass_name="build_loop_nests")
        # A rest that is no number belongs to a value that is none, and stays so whatever number is added.
        number = self._call(BOUNDED.name, correction)
        if self._op == "mul":
            return [Store(target, at, self._call(FMA.name, *self._args, number))]
        return [Store(target, at, self._call("add", self._rounded(), number))]

    def _rounded(self) -> Value:
        """The result without any rest."""
        return self._call(self._op, *self._args)

    def _correction(self, result: Value | None) -> Value | None:
        """What the rests of the operands change, to first order; None if there is none. Quotients and roots: less what the
        rounding of `result` lost."""
        rests, args = self._rests, self._args
        match self._op:
            case "add":
                return self._any_sum(*rests)
            case "sub":
                a, b = rests
                return a if b is None else self._neg(b) if a is None else self._call("sub", a, b)
            case "mul":
                return self._of_product(*args[:2], *rests[:2])
            case FMA.name:
                return self._any_sum(self._of_product(*args[:2], *rests[:2]), rests[2])
            case "sqrt":
                # (a - s s + rest) / 2 s
                assert result is not None
                left = self._sum(self._call(FMA.name, self._neg(result), result, args[0]), rests[0])
                half = self._call("mul", self._number(0.5), self._call("reciprocal", result))
                return self._call("mul", left, half)
            case "rsqrt":
                # r (1 - a r r - rest r r) / 2, a r as the sum of a product and what it lost
                assert result is not None
                return self._of_root(args[0], rests[0], result)
            case _:
                # (a - q b + rest_a - q rest_b) / b
                assert result is not None
                left = self._sum(self._call(FMA.name, self._neg(result), args[1], args[0]), rests[0])
                if rests[1] is not None:
                    left = self._call(FMA.name, self._neg(result), rests[1], left)
                return self._call("mul", left, self._call("reciprocal", args[1]))

    def _of_product(self, a: Value, b: Value, rest_a: Value | None, rest_b: Value | None) -> Value | None:
        first = None if rest_b is None else self._call("mul", a, rest_b)
        second = None if rest_a is None else self._call("mul", rest_a, b)
        return self._any_sum(first, second)

    def _of_root(self, a: Value, rest: Value | None, r: Value) -> Value:
        g = self._call(PRODUCT.name, a, r)
        lost = self._call(FMA.name, a, r, self._neg(g))
        left = self._call(FMA.name, self._neg(g), r, self._number(1.0))
        left = self._call("sub", left, self._call("mul", lost, r))
        if rest is not None:
            left = self._call("sub", left, self._call("mul", rest, self._call("mul", r, r)))
        return self._call("mul", self._call("mul", self._number(0.5), r), left)

    def _sum(self, first: Value, *more: Value | None) -> Value:
        for v in more:
            first = first if v is None else self._call("add", first, v)
        return first

    def _any_sum(self, *values: Value | None) -> Value | None:
        there = [v for v in values if v is not None]
        return self._sum(*there) if there else None

    def _if_number(self, value: Value, other: Value) -> Value:
        is_number = Call("eq", (value, value), self._dtype, DataType.Bool)
        return Call("where", (is_number, value, other), self._dtype, self._dtype)

    def _neg(self, value: Value) -> Call:
        return self._call("neg", value)

    def _number(self, value: float) -> Literal:
        return Literal(value, self._dtype)

    def _call(self, op: str, *args: Value) -> Call:
        return Call(op, args, self._dtype, self._dtype)

    def _register(self, suffix: str) -> Buffer:
        return Buffer(f"{self._name}_{suffix}", self._dtype, MemoryType.local, ONE)


def _as(value: Value, dtype: DataType) -> Value:
    if value.dtype is dtype:
        return value
    if isinstance(value, Literal) and not isinstance(value.value, complex):
        return Literal(float(value.value), dtype)
    return Cast(value, dtype)
