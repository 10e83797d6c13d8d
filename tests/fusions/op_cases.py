"""Cases of every op, dtype and layout, the same for the simulator (end_to_end/test_ops.py) and a GPU (gpu/test_ops.py).

Grammar
    family  := unary | binary | ternary | scalars | mixed | casts | reductions | scans | moments | shapes | factories
    suite   := family, dtype -> [batch]
    batch   := name, define: FusionDefinition -> outputs labelled, runs
    run     := layout, inputs, one case per output
    case    := op, check(result), wrong() -> Counts

A batch is one definition with many ops on shared inputs, so that one kernel serves them all; its runs give it the same
values in several layouts, or other sizes. Ops share inputs if their rows draw from the same domains (`Samples`).
The judge is tests/judging/accuracy.py; what fails is collected and told at once, with op, dtype, layout, index, got, want and
ulp.
"""

from __future__ import annotations

import itertools
import math
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.errors import DefinitionRuntimeError
from fuser.ir.ops.approximate_ops import in_fusion
from fuser.ir.ops.dtypes import numpy_dtype, real_of, scalar_type, widen
from fuser.ir.ops.op_table import POINTWISE, REDUCTIONS, SCANS, PointwiseOp, kind_of, numpy_cast
from fuser.ir.ops.pointwise_op import DtypeRule
from fuser.ir.ops.promotion import OperandClass, operand_dtype, result_dtype
from fuser.runtime.devices.device import get_device
from tests.judging.accuracy import (
    SMALLEST_JUDGED,
    Array,
    Counts,
    Number,
    assert_exact,
    assert_wrong_pointwise_fail,
    assert_wrong_reduction_fail,
    assert_wrong_results_fail,
    check_pointwise,
    check_reduction,
    check_scan,
    draw_inputs,
    draw_reduction_input,
    epsilon,
    pointwise_cases,
    reference_reduction,
    reference_scan,
)

ROWS, COLUMNS = 16, 72
"""Large enough for 16-byte accesses on a small device, not a multiple of a block."""

TABLE_DTYPES = (
    DataType.Double,
    DataType.Float,
    DataType.Half,
    DataType.BFloat16,
    DataType.Int,
    DataType.Int32,
    DataType.Bool,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
    DataType.UInt64,
)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One output: `check` raises AssertionError unless it is right, `wrong` shows that wrong results are rejected."""

    op: str
    check: Callable[[Array], None]
    wrong: Callable[[], Counts]


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Arguments of one execution and a case per output."""

    layout: str
    inputs: Sequence[Array | Number]
    cases: Sequence[Case]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """A definition and its executions. `define` registers inputs and outputs; `runs` is called when the batch runs."""

    name: str
    define: Callable[[FusionDefinition], None]
    runs: Callable[[], Iterable[Run]]


@dataclass(slots=True)
class Result:
    """What running batches came to."""

    cases: int
    counts: Counts
    failures: list[str]


def run_batches(batches: Iterable[Batch], device: str) -> Result:
    """Run everything, also after failures."""
    result = Result(0, Counts(0, 0), [])
    for batch in batches:
        try:
            with FusionDefinition() as fd:
                batch.define(fd)
        except Exception as error:
            result.failures.append(f"{batch.name}: cannot be defined: {type(error).__name__}: {error}")
            continue
        for run in batch.runs():
            _run(batch, fd, run, device, result)
    return result


def _run(batch: Batch, fd: FusionDefinition, run: Run, device: str, result: Result) -> None:
    place = f"{batch.name} {run.layout}"
    try:
        outputs = fd.execute(list(run.inputs), device=device)
    except Exception as error:
        result.failures.append(f"{place}: {type(error).__name__}: {str(error)[:1500]}")
        return
    if len(outputs) != len(run.cases):
        result.failures.append(f"{place}: {len(outputs)} outputs, expected {len(run.cases)}")
        return
    for case, got in zip(run.cases, outputs, strict=True):
        result.cases += 1
        try:
            case.check(np.asarray(got))
            result.counts += case.wrong()
        except AssertionError as error:
            result.failures.append(f"{place}: {case.op}: {error}")


def run_suite(family: str, dtype: DataType, device: str) -> Result:
    """Every batch of a family for a dtype."""
    return run_batches(FAMILIES[family].batches(dtype), device)


def generator(*key: object) -> np.random.Generator:
    """Random numbers that depend on the names alone."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


# --- layouts ----------------------------------------------------------------------------------------------------------


def arranged(x: Array, layout: str) -> Array:
    """A rank-2 array with the values of `x` (of its first row, first element or none for the layouts that say so)."""
    match layout:
        case "contiguous":
            return np.ascontiguousarray(x)
        case "transposed":
            return np.asfortranarray(x)
        case "strided":
            # The elements between are other values of the same kind: a kernel that reads them gives another result.
            rows, columns = x.shape
            spread = np.ascontiguousarray(np.resize(x[::-1], (2 * rows, 3 * columns)))
            view = spread[::2, ::3]
            view[...] = x
            return view
        case "padded":
            # Rows that start at odd places: nothing can be read in wide accesses.
            rows, columns = x.shape
            spread = np.ascontiguousarray(np.resize(x[::-1], (rows, columns + 1)))
            view = spread[:, 1:]
            view[...] = x
            return view
        case "expanded":
            return np.broadcast_to(np.ascontiguousarray(x[:1]), x.shape)
        case "expanded column":
            return np.broadcast_to(np.ascontiguousarray(x[:, :1]), x.shape)
        case "size-1":
            return np.ascontiguousarray(x[:1, :1])
        case "empty":
            return np.ascontiguousarray(x[:, :0])
        case _:
            raise ValueError(f"unknown layout {layout!r}")


MIXED = ("contiguous", "transposed", "strided", "padded")


# --- pointwise ops ----------------------------------------------------------------------------------------------------

_SCALAR_OPERANDS = {"clamp": (1, 2), "threshold": (1, 2), "addcmul": (3,)}
"""Operands that the front end takes as scalars only."""

CHUNK = 16
"""Outputs of one kernel."""


def _groups(dtype: DataType, arities: Sequence[int]) -> Iterator[list[PointwiseOp]]:
    """Rows that share operands: same domains, same operands that must be scalars."""
    groups: dict[object, list[PointwiseOp]] = {}
    wanted = DataType.Int if dtype is DataType.Index else dtype
    for name, d in pointwise_cases():
        row = POINTWISE[name]
        if d is wanted and row.arity in arities:
            key = (row.samples, row.rule is DtypeRule.SELECT, _SCALAR_OPERANDS.get(name, ()))
            groups.setdefault(key, []).append(row)
    for rows in groups.values():
        for start in range(0, len(rows), CHUNK):
            yield rows[start : start + CHUNK]


def pointwise_batches(dtype: DataType, arities: Sequence[int]) -> Iterator[Batch]:
    """Every op of these arities in every layout."""
    for rows in _groups(dtype, arities):
        yield _plain(rows, dtype)
        yield _broadcast(rows, dtype)
        yield _of_shape(rows, dtype, "expanded (declared)", (-1, -1), (None, True))
        yield _of_shape(rows, dtype, "0-d", (), ())
        yield _of_shape(rows, dtype, "size-1 (declared)", (1, 1), (None, None))


def _names(rows: Sequence[PointwiseOp]) -> str:
    return rows[0].name if len(rows) == 1 else f"{rows[0].name}..{rows[-1].name}"


def _operand_dtypes(row: PointwiseOp, dtype: DataType) -> list[DataType]:
    select = row.rule is DtypeRule.SELECT
    return [DataType.Bool if select and i == 0 else dtype for i in range(row.arity)]


def _draw(rows: Sequence[PointwiseOp], dtype: DataType) -> list[Array]:
    """Operands; the first row, which is all that some layouts take, has special values enough by itself."""
    rng = generator(rows[0].name, dtype.name)
    drawn = draw_inputs(rows[0], dtype, (ROWS, COLUMNS), rng)
    for x, row in zip(drawn, draw_inputs(rows[0], dtype, (COLUMNS,), rng), strict=True):
        x[0] = row
    return drawn


def _numbers(rows: Sequence[PointwiseOp], drawn: Sequence[Array]) -> dict[int, Number]:
    """The operands that must be scalars, as numbers."""
    return {i: drawn[i].reshape(-1)[5].item() for i in _SCALAR_OPERANDS.get(rows[0].name, ())}


def _case(
    row: PointwiseOp, operands: Sequence[Array | Number], *, label: str = "", equal_is_skipped: bool = False
) -> Case:
    return Case(
        label or row.name,
        lambda got: check_pointwise(in_fusion(row), operands, got),
        lambda: assert_wrong_pointwise_fail(row, operands, equal_is_skipped=equal_is_skipped),
    )


def _define_rows(fd: FusionDefinition, rows: Sequence[PointwiseOp], operands: Sequence[Any]) -> None:
    for row in rows:
        fd.add_output(getattr(fd.ops, row.name)(*operands))


def _plain(rows: Sequence[PointwiseOp], dtype: DataType) -> Batch:
    """Symbolic rank 2: one definition for all layouts that an array can have at run time."""
    drawn = _draw(rows, dtype)
    numbers = _numbers(rows, drawn)

    def define(fd: FusionDefinition) -> None:
        operands: list[Any] = []
        for i, d in enumerate(_operand_dtypes(rows[0], dtype)):
            operands.append(numbers[i] if i in numbers else fd.define_tensor([-1, -1], contiguity=True, dtype=d))
        _define_rows(fd, rows, operands)

    def run(name: str, layouts: Sequence[str]) -> Run:
        operands: list[Array | Number] = []
        for i, x in enumerate(drawn):
            operands.append(numbers[i] if i in numbers else arranged(x, layouts[i % len(layouts)]))
        inputs = [x for i, x in enumerate(operands) if i not in numbers]
        return Run(name, inputs, [_case(row, operands) for row in rows])

    def runs() -> Iterator[Run]:
        for layout in ("contiguous", "transposed", "strided", "expanded", "size-1", "empty"):
            yield run(layout, [layout])
        if len(drawn) - len(numbers) > 1:
            yield run("mixed", MIXED)
        else:
            yield run("padded", ["padded"])

    return Batch(f"{_names(rows)}[{dtype.name}]", define, runs)


def _broadcast(rows: Sequence[PointwiseOp], dtype: DataType) -> Batch:
    """Operands of different extents and ranks; a single operand goes through broadcast_in_dim.

    Two forms per op, so that every operand is once the full one and once a broadcast one.
    """
    drawn = _draw(rows, dtype)
    numbers = _numbers(rows, drawn)
    dtypes = _operand_dtypes(rows[0], dtype)
    tensors = [i for i in range(len(drawn)) if i not in numbers]
    # Full, row, column, lower rank: by position, then rotated.
    shapes = ([-1, -1], [1, -1], [-1, 1], [-1])
    forms = (0, 1) if len(tensors) > 1 else (0,)

    def part(x: Array, kind: int) -> Array:
        return (x, x[:1], np.ascontiguousarray(x[:, :1]), x[0])[kind]

    def kind_of_operand(form: int, position: int) -> int:
        if len(tensors) == 1:
            return 3
        order = (0, 1, 2, 3) if form == 0 else (3, 0, 2, 1)
        return order[position % 4]

    def define(fd: FusionDefinition) -> None:
        for form in forms:
            operands: list[Any] = []
            for i, d in enumerate(dtypes):
                if i in numbers:
                    operands.append(numbers[i])
                    continue
                tv = fd.define_tensor(shapes[kind_of_operand(form, tensors.index(i))], contiguity=True, dtype=d)
                if len(tensors) == 1:
                    tv = fd.ops.broadcast_in_dim(tv, [ROWS, COLUMNS], [1])
                operands.append(tv)
            _define_rows(fd, rows, operands)

    def runs() -> Iterator[Run]:
        inputs: list[Array | Number] = []
        cases: list[Case] = []
        for form in forms:
            operands: list[Array | Number] = []
            for i, x in enumerate(drawn):
                if i in numbers:
                    operands.append(numbers[i])
                    continue
                given = part(x, kind_of_operand(form, tensors.index(i)))
                inputs.append(given)
                operands.append(np.broadcast_to(given, (ROWS, COLUMNS)) if len(tensors) == 1 else given)
            cases += [_case(row, operands) for row in rows]
        yield Run("broadcast", inputs, cases)

    return Batch(f"{_names(rows)}[{dtype.name}]", define, runs)


def _of_shape(
    rows: Sequence[PointwiseOp],
    dtype: DataType,
    layout: str,
    shape: Sequence[int],
    contiguity: Sequence[bool | None],
) -> Batch:
    """Declared shapes: expanded dims, size-1 dims, rank 0."""
    drawn = _draw(rows, dtype)
    numbers = _numbers(rows, drawn)

    def define(fd: FusionDefinition) -> None:
        operands: list[Any] = []
        for i, d in enumerate(_operand_dtypes(rows[0], dtype)):
            if i in numbers:
                operands.append(numbers[i])
            else:
                operands.append(fd.define_tensor(shape, contiguity=contiguity, dtype=d))
        _define_rows(fd, rows, operands)

    def given(x: Array) -> Array:
        if not shape:
            return np.array(x[3, 7])
        return arranged(x, "size-1" if shape == (1, 1) else "expanded")

    def runs() -> Iterator[Run]:
        operands = [numbers[i] if i in numbers else given(x) for i, x in enumerate(drawn)]
        yield Run(layout, [x for i, x in enumerate(operands) if i not in numbers], [_case(r, operands) for r in rows])

    return Batch(f"{_names(rows)}[{dtype.name}]", define, runs)


# --- operands that are no tensors of full rank ------------------------------------------------------------------------

_FORMS = {
    2: ("Tn", "nT", "Ts", "sT", "Tc", "cT", "Tz", "zT", "zn", "zs", "cz"),
    3: ("TTn", "TnT", "nTT", "TTs", "TzT", "Tcn", "Tns"),
}
"""By arity, how each operand is carried: T tensor, n Python number, s scalar input, c rank-0 host tensor, z rank-0 tensor."""
_SELECT_FORMS = ("TTn", "TnT", "Tnn", "Tns", "TTc", "TzT", "nTT", "sTT", "zTT", "cTT")
_CLAMP_FORMS = ("Tns", "Tsn", "Tss")


def scalar_batches(dtype: DataType) -> Iterator[Batch]:
    """Ops of several operands with numbers, scalar inputs and rank-0 tensors in every place."""
    for rows in _groups(dtype, (2, 3, 4)):
        if rows[0].name == "addcmul":
            forms: Sequence[str] = ("TTTs", "TTcn", "zTTn", "nTTs")
        elif rows[0].name in _SCALAR_OPERANDS:
            forms = _CLAMP_FORMS
        elif rows[0].rule is DtypeRule.SELECT:
            forms = _SELECT_FORMS
        else:
            forms = _FORMS[rows[0].arity]
        # By form: ops on the same tensors stand together, and become one kernel.
        pairs = [(row, form) for form in forms for row in rows if _takes_form(row, form, dtype)]
        for start in range(0, len(pairs), 2 * CHUNK):
            yield _with_scalars(pairs[start : start + 2 * CHUNK], dtype)
    if kind_of(dtype) in POINTWISE["clamp"].kinds:
        yield _clamps(dtype)


def _clamps(dtype: DataType) -> Batch:
    """clamp without one of its bounds or both, and with bounds that cross; nan among the values."""
    low, high = (False, True) if dtype is DataType.Bool else (-20, 30) if dtype.is_integral else (-2.5, 3.25)
    least, most = low, high
    if dtype.is_integral:
        least, most = int(np.iinfo(numpy_dtype(dtype)).min), int(np.iinfo(numpy_dtype(dtype)).max)
    elif dtype.is_floating:
        least, most = float("-inf"), float("inf")
    row = POINTWISE["clamp"]
    calls: list[tuple[str, tuple[Any, Any], tuple[Number, Number]]] = [
        ("clamp(None, max)", (None, high), (least, high)),
        ("clamp(min, None)", (low, None), (low, most)),
        ("clamp(None, None)", (None, None), (least, most)),
        ("clamp(min > max)", (high, low), (high, low)),
    ]
    x = _draw([row], dtype)[0]

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        for _, (lower, upper), _ in calls:
            fd.add_output(fd.ops.clamp(tv, lower, upper))

    def runs() -> Iterator[Run]:
        yield Run(
            "contiguous", [x], [_case(row, [x, *known], label=name, equal_is_skipped=True) for name, _, known in calls]
        )

    return Batch(f"clamp[{dtype.name}]", define, runs)


def _takes_form(row: PointwiseOp, form: str, dtype: DataType) -> bool:
    values = form[1:] if row.rule is DtypeRule.SELECT else form
    if row.rule is DtypeRule.COMPLEX_PAIR:
        return not set(form) & set("ns")  # a scalar only beside a scalar
    # A Python number is no UInt64, and promotes with none.
    return dtype is not DataType.UInt64 or "n" not in values


def _with_scalars(pairs: Sequence[tuple[PointwiseOp, str]], dtype: DataType) -> Batch:
    rows = [row for row, _ in pairs]
    dtypes = _operand_dtypes(rows[0], dtype)
    drawn = _draw(rows, dtype)
    plain = _ordinary(rows[0], dtype)
    used = sorted({(i, letter) for _, form in pairs for i, letter in enumerate(form) if letter != "n"})

    def value(i: int, letter: str) -> Array | Number:
        match letter:
            case "T":
                return arranged(drawn[i], MIXED[i % len(MIXED)])
            case "n":
                return plain[i][0].item()
            case "s":
                return _scalar_value(plain[i][1], dtypes[i])
            case _:
                return np.array(plain[i][2 if letter == "c" else 3])

    def define(fd: FusionDefinition) -> None:
        operands: dict[tuple[int, str], Any] = {}
        for i, letter in used:
            if letter == "T":
                operands[i, letter] = fd.define_tensor([-1, -1], contiguity=True, dtype=dtypes[i])
            elif letter == "s":
                operands[i, letter] = fd.define_scalar(dtype=dtypes[i])
            else:
                operands[i, letter] = fd.define_tensor([], contiguity=[], dtype=dtypes[i], is_cpu=letter == "c")
        for row, form in pairs:
            chosen = [operands.get((i, letter), value(i, "n")) for i, letter in enumerate(form)]
            fd.add_output(getattr(fd.ops, row.name)(*chosen))

    def runs() -> Iterator[Run]:
        values = {key: value(*key) for key in used}
        inputs = [v.item() if letter == "s" and isinstance(v, np.generic) else v for (_, letter), v in values.items()]
        cases: list[Case] = []
        for row, form in pairs:
            operands = [values.get((i, letter), value(i, "n")) for i, letter in enumerate(form)]
            cases.append(_case(row, operands, label=f"{row.name}({form})", equal_is_skipped=True))
        yield Run("with scalars", inputs, cases)

    return Batch(f"{_names(rows)}[{dtype.name}]", define, runs)


def _ordinary(row: PointwiseOp, dtype: DataType) -> list[Array]:
    """Values of every operand from its domain, none of them special."""
    tame = replace(row, samples=tuple(s._replace(specials=False) for s in row.samples))
    return draw_inputs(tame, dtype, (8,), generator("ordinary", row.name, dtype.name))


def _scalar_value(x: Any, dtype: DataType) -> Any:
    """A scalar input of `dtype` as the reference takes it; 16-bit floats are Python floats of a scalar declared so."""
    return x if dtype.numpy.name == x.dtype.name else x.astype(dtype.numpy)


HOST_DTYPES = (DataType.Double, DataType.Int, DataType.Bool, DataType.ComplexDouble)
"""What a scalar input can be without rounding."""


def host_batches(dtype: DataType) -> Iterator[Batch]:
    """Ops on scalars alone, which the host computes; a kernel fills a tensor with the result."""
    for rows in _groups(dtype, (1, 2, 3, 4)):
        yield _on_host(rows, dtype)


def _on_host(rows: Sequence[PointwiseOp], dtype: DataType) -> Batch:
    dtypes = _operand_dtypes(rows[0], dtype)
    plain = _ordinary(rows[0], dtype)
    outputs = [result_dtype(row, operand_dtype(row, [OperandClass(d, "S") for d in dtypes])) for row in rows]

    def define(fd: FusionDefinition) -> None:
        scalars = [fd.define_scalar(dtype=d) for d in dtypes]
        fd.add_output(fd.ops.set(fd.define_tensor([-1], contiguity=True, dtype=DataType.Float)))
        for row, output in zip(rows, outputs, strict=True):
            fd.add_output(fd.ops.full([SMALLEST_JUDGED], getattr(fd.ops, row.name)(*scalars), output))

    def runs() -> Iterator[Run]:
        for k in range(3):
            values = [x[k] for x in plain]
            full = [np.full(SMALLEST_JUDGED, v) for v in values]
            beside = np.zeros(3, np.float32)
            cases = [_exact_case("set", beside, beside, DataType.Float, ("zeros", "first", "lower"))]
            cases += [_case(row, full, equal_is_skipped=True) for row in rows]
            yield Run(f"values {k}", [*(v.item() for v in values), beside], cases)

    return Batch(f"{_names(rows)}[{dtype.name}] on the host", define, runs)


# --- operands of different dtypes -------------------------------------------------------------------------------------

_MIXED_OPS = (
    "add",
    "mul",
    "div",
    "truediv",
    "pow",
    "atan2",
    "minimum",
    "eq",
    "lt",
    "logical_and",
    "where",
    "bitwise_xor",
    "lerp",
)
_NUMBERS: tuple[Number, ...] = (True, 3, 0.5, -0.0, float("inf"), float("nan"), 1.5 - 2j)


def mixed_batches(dtype: DataType) -> Iterator[Batch]:
    """`dtype` on the left, every other dtype, and numbers of every kind, on the right: promotion end to end."""
    for other in TABLE_DTYPES:
        if other is not dtype:
            rows = [POINTWISE[name] for name in _MIXED_OPS if _promotes(POINTWISE[name], dtype, other, "D")]
            if rows:
                yield _mixed(rows, dtype, other)
    for number in _NUMBERS:
        if dtype.is_complex and number - number != 0:
            continue  # of complex special values only the class is judged
        kind = scalar_type(number)
        rows = [POINTWISE[name] for name in _MIXED_OPS if _promotes(POINTWISE[name], dtype, kind, "S")]
        if rows:
            yield _mixed(rows, dtype, number)


def _mixed_classes(row: PointwiseOp, left: DataType, right: DataType, carrier: Any) -> list[OperandClass]:
    pair = [OperandClass(left, "D"), OperandClass(right, carrier)]
    if row.rule is DtypeRule.SELECT:
        return [OperandClass(DataType.Bool, "D"), *pair]
    return [*pair, OperandClass(left, "D")] if row.arity == 3 else pair


def _promotes(row: PointwiseOp, left: DataType, right: DataType, carrier: Any) -> bool:
    try:
        operand_dtype(row, _mixed_classes(row, left, right, carrier))
    except DefinitionRuntimeError:
        return False
    return True


def _small(dtype: DataType, key: str) -> Array:
    """Values that every type holds and every op of the mixed cases takes."""
    rng = generator("small", dtype.name, key)
    shape = (ROWS, COLUMNS)
    if dtype is DataType.Bool:
        return rng.random(shape) < 0.5
    if dtype.is_integral:
        return rng.integers(1, 7, shape).astype(dtype.numpy)
    x = rng.uniform(0.25, 6.0, shape)
    return np.asarray(x + 1j * rng.uniform(-2, 2, shape) if dtype.is_complex else x).astype(dtype.numpy)


def _mixed(rows: Sequence[PointwiseOp], dtype: DataType, other: DataType | Number) -> Batch:
    tensor = isinstance(other, DataType)

    def define(fd: FusionDefinition) -> None:
        condition = fd.define_tensor([-1, -1], contiguity=True, dtype=DataType.Bool)
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        y: Any = fd.define_tensor([-1, -1], contiguity=True, dtype=other) if isinstance(other, DataType) else other
        for row in rows:
            fd.add_output(getattr(fd.ops, row.name)(*chosen(row, condition, x, y)))

    def chosen(row: PointwiseOp, condition: Any, x: Any, y: Any) -> list[Any]:
        if row.rule is DtypeRule.SELECT:
            return [condition, x, y]
        return [x, y, x] if row.arity == 3 else [x, y]

    def runs() -> Iterator[Run]:
        condition = _small(DataType.Bool, "condition")
        x = _small(dtype, "x")
        y: Any = np.asfortranarray(_small(other, "y")) if isinstance(other, DataType) else other
        inputs = [condition, x, y] if tensor else [condition, x]
        cases = [_case(row, chosen(row, condition, x, y), equal_is_skipped=True) for row in rows]
        yield Run("mixed dtypes", inputs, cases)

    return Batch(f"{dtype.name} with {other.name if isinstance(other, DataType) else other!r}", define, runs)


# --- casts ------------------------------------------------------------------------------------------------------------

CAST_DTYPES = (*TABLE_DTYPES, DataType.Index)


def cast_batches(source: DataType) -> Iterator[Batch]:
    """`source` to every dtype in every layout."""
    whole = [d for d in CAST_DTYPES if d.is_integral]
    floating = source.is_floating or source.is_complex
    for targets in ([d for d in CAST_DTYPES if d not in whole], whole):
        # Out of range is unspecified where a float becomes an integer.
        x = _in_range(source, targets) if floating and targets is whole else _any_value(source)
        yield from _movements(
            f"cast[{source.name}]",
            x,
            source,
            lambda fd, tv, t=targets: _casts(fd, tv, t),
            [Moved(f"cast to {d.name}", (lambda a, d=d: numpy_cast(a, d)), d, ("first",)) for d in targets],
        )


def _casts(fd: FusionDefinition, tv: Any, targets: Sequence[DataType]) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # complex -> real says what it drops
        return [fd.ops.cast(tv, d) for d in targets]


def _any_value(dtype: DataType) -> Array:
    """Values over the whole range of a dtype, special ones included."""
    rng = generator("any value", dtype.name)
    storage, shape = numpy_dtype(dtype), (ROWS, COLUMNS)
    if dtype is DataType.Bool:
        return rng.random(shape) < 0.5
    if dtype.is_integral:
        limits = np.iinfo(storage)
        x = rng.integers(limits.min, limits.max, shape, dtype=storage, endpoint=True)
        x >>= rng.integers(0, 8 * storage.itemsize, shape).astype(storage)
        x[0, :5] = [limits.min, limits.max, 0, 1, limits.max - 1]
        return x
    if dtype.is_complex:
        real = _any_value(real_of(dtype))
        result = np.empty(shape, storage)
        result.real, result.imag = real, real[::-1, ::-1]
        return result
    with np.errstate(all="ignore"):
        x = np.ldexp(rng.uniform(-2, 2, shape), rng.integers(-160, 132, shape)).astype(storage)
        x[::2] = rng.uniform(-9, 9, (ROWS // 2, COLUMNS)).astype(storage)
        # Halfway between neighbours of narrower types, and next to that.
        x[1, :24] = np.array(
            [(1 + (2 * k + 1) * 2.0**-b) * s for b in (8, 9, 11, 12) for k in (0, 1, 2) for s in (1, 1 + 2.0**-20)]
        ).astype(storage)
        x[0, :12] = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519, 65520, 1e-7, 6e-8, 2.9e-8, 1e-40]
        ).astype(storage)
    return x


def _in_range(dtype: DataType, targets: Sequence[DataType]) -> Array:
    """Floats whose whole part every one of `targets` holds (UInt64 among them: none is below 0)."""
    rng = generator("in range", dtype.name)
    most = 15.9 if dtype is DataType.Half else 30.9
    x = np.exp2(rng.uniform(-3, most, (ROWS, COLUMNS)))
    x[0, :6] = [0, 0.5, 1, 1.5, 2, 1023.75]
    x = x if not dtype.is_complex else x - 7.5j
    return np.asarray(x).astype(dtype.numpy)


# --- ops that move data -----------------------------------------------------------------------------------------------


class Moved(NamedTuple):
    """One exact output of an op with one operand: its name, reference, dtype and the wrong results that are right."""

    op: str
    reference: Callable[[Array], Array]
    dtype: DataType
    trivial: tuple[str, ...] = ("first",)


def _exact_case(name: str, want: Array, first: Array, dtype: DataType, trivial: Sequence[str]) -> Case:
    def check(got: Array) -> None:
        assert got.shape == want.shape, f"shape {got.shape}, expected {want.shape}"
        assert got.dtype == want.dtype, f"dtype {got.dtype}, expected {want.dtype}"
        assert_exact(name, got, want)

    def wrong() -> Counts:
        return assert_wrong_results_fail(check, want, first, dtype, trivial=trivial, equal_is_skipped=True)

    return Case(name, check, wrong)


def _movements(
    name: str,
    x: Array,
    dtype: DataType,
    build: Callable[[FusionDefinition, Any], Sequence[Any]],
    moved: Sequence[Moved],
) -> Iterator[Batch]:
    """Exact elementwise outputs of one rank-2 tensor, in every layout."""

    def cases(a: Array) -> list[Case]:
        return [_exact_case(m.op, m.reference(a), a, m.dtype, m.trivial) for m in moved]

    def plain(fd: FusionDefinition) -> None:
        for tv in build(fd, fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)):
            fd.add_output(tv)

    def runs() -> Iterator[Run]:
        for layout in (
            "contiguous",
            "transposed",
            "strided",
            "padded",
            "expanded",
            "expanded column",
            "size-1",
            "empty",
        ):
            a = arranged(x, layout)
            yield Run(layout, [a], cases(a))

    yield Batch(name, plain, runs)

    def of_shape(layout: str, shape: Sequence[int], contiguity: Any, a: Array) -> Batch:
        def define(fd: FusionDefinition) -> None:
            for tv in build(fd, fd.define_tensor(shape, contiguity=contiguity, dtype=dtype)):
                fd.add_output(tv)

        return Batch(name, define, lambda: iter([Run(layout, [a], cases(a))]))

    yield of_shape("expanded (declared)", [-1, -1], [None, True], arranged(x, "expanded"))
    yield of_shape("size-1 (declared)", [1, 1], [None, None], arranged(x, "size-1"))
    yield of_shape("0-d", [], [], np.array(x[2, 3]))

    def broadcast(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1], contiguity=True, dtype=dtype)
        for result in build(fd, fd.ops.broadcast_in_dim(tv, list(x.shape), [1])):
            fd.add_output(result)

    yield Batch(name, broadcast, lambda: iter([Run("broadcast", [x[0].copy()], cases(np.broadcast_to(x[0], x.shape)))]))


# --- reductions -------------------------------------------------------------------------------------------------------

REDUCED_DTYPES = tuple(d for d in TABLE_DTYPES if d is not DataType.UInt64)
SHAPE = (6, 20, 24)
AXES: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (-1,), (-3, -1))


def _reduced_layouts(x: Array) -> Iterator[tuple[str, Array]]:
    """A rank-3 array in several layouts, and other sizes of it."""
    yield "contiguous", x
    yield "transposed", np.ascontiguousarray(x.transpose(2, 0, 1)).transpose(1, 2, 0)
    spread = np.ascontiguousarray(np.resize(x[::-1], (x.shape[0], 2 * x.shape[1], 3 * x.shape[2])))
    view = spread[:, ::2, 1::3]
    view[...] = x
    yield "strided", view
    yield "expanded", np.broadcast_to(x[:, :1], x.shape)
    yield "size-1", np.ascontiguousarray(x[:1, :, :1])
    yield "odd", np.ascontiguousarray(x[:5, :7, :23])
    yield "empty kept", np.ascontiguousarray(x[:0])


def _reduction_case(
    label: str, kind: str, x: Array, axes: Sequence[int], dtype: DataType, keepdims: bool, correction: int = 1
) -> Case:
    n = math.prod(x.shape[a] for a in axes)
    # The bound on a long product is wider than what rounding to BFloat16 changes.
    loose = kind == "prod" and real_of(dtype) is DataType.Float and 4 * n * epsilon(dtype) > 2.0**-11
    return Case(
        label,
        lambda got: check_reduction(kind, x, axes, got, dtype, keepdims=keepdims, correction=correction),
        lambda: assert_wrong_reduction_fail(
            kind,
            x,
            axes,
            dtype,
            keepdims=keepdims,
            correction=correction,
            trivial=("lower",) if loose else (),
            equal_is_skipped=True,
        ),
    )


class _Reduced(NamedTuple):
    """One call of a reduction: keyword arguments and the dtype of its result."""

    keepdim: bool
    requested: DataType
    dtype: DataType


def _calls(kind: str, dtype: DataType) -> list[_Reduced]:
    row = REDUCTIONS[kind]
    null = DataType.Null
    calls = [_Reduced(keepdim, null, row.result_dtype(dtype)) for keepdim in (False, True)]
    if row.widens:
        asked = (
            {DataType.Float, DataType.Double}
            if dtype.is_floating
            else {DataType.ComplexDouble}
            if dtype.is_complex
            else {DataType.Float, DataType.Int32}
        )
        asked |= {DataType.Half} if dtype is DataType.Float and kind == "sum" else set()
        calls += [_Reduced(False, d, d) for d in sorted(asked - {dtype}, key=lambda d: d.value)]
    return calls


def reduction_batches(dtype: DataType) -> Iterator[Batch]:
    """sum, prod, max and min over every set of axes, with keepdim and dtype, in several layouts; empty sets; rank 0 and 1."""
    kinds = [k for k, row in REDUCTIONS.items() if kind_of(dtype) in row.kinds]
    for kind in kinds:
        for axes in AXES:
            yield _reduction(kind, dtype, axes)
        yield _lengths(kind, dtype)
        yield _small_ranks(kind, dtype)


def _reduce(fd: FusionDefinition, kind: str, tv: Any, axes: Sequence[int], call: _Reduced) -> Any:
    given: dict[str, Any] = {"keepdim": call.keepdim}
    if call.requested is not DataType.Null:
        given["dtype"] = call.requested
    return getattr(fd.ops, kind)(tv, list(axes), **given)


def _reduction(kind: str, dtype: DataType, axes: tuple[int, ...]) -> Batch:
    calls = _calls(kind, dtype)

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=dtype)
        for call in calls:
            fd.add_output(_reduce(fd, kind, tv, axes, call))

    def cases(x: Array) -> list[Case]:
        made: list[Case] = []
        for c in calls:
            # A dtype that is asked for is what the operand is cast to before it is reduced.
            cast = numpy_cast(x, c.dtype) if c.requested.is_reduced_float else x
            label = f"{kind}(keepdim={c.keepdim}, dtype={c.dtype.name})"
            made.append(_reduction_case(label, kind, cast, axes, c.dtype, c.keepdim))
        return made

    def runs() -> Iterator[Run]:
        x = draw_reduction_input(kind, dtype, SHAPE, axes, generator(kind, dtype.name, axes))
        for layout, a in _reduced_layouts(x):
            yield Run(layout, [a], cases(a))
        if dtype.is_floating:
            a = _with_specials(x, kind, (np.nan, np.inf, -np.inf, 0.0, -0.0))
            yield Run("special values", [a], cases(a))

    return Batch(f"{kind}[{dtype.name}] over {axes}", define, runs)


def _with_specials(x: Array, kind: str, values: Sequence[float]) -> Array:
    """Special values in some places: some reduced sets see one of them, some two, some none."""
    result = x.copy()
    rng = generator("specials", kind, x.dtype.name, x.shape)
    positions = rng.choice(x.size, 12, replace=False)
    result.reshape(-1)[positions] = np.resize(np.array(values, x.dtype), 12)
    result[0, :4] = -0.0
    result[-1, 1] = np.array(0.0 if kind != "prod" else 1.0, x.dtype)
    return result


def _lengths(kind: str, dtype: DataType) -> Batch:
    """Rows and columns of lengths around the sizes of warps and blocks, 0 and 1 among them."""
    calls = _calls(kind, dtype)[:1]

    def define(fd: FusionDefinition) -> None:
        for axis in (1, 0):
            tv = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
            fd.add_output(_reduce(fd, kind, tv, [axis], calls[0]))

    def runs() -> Iterator[Run]:
        for n in (0, 1, 2, 31, 33, 255, 1025, 3000):
            shapes = ((3, n), (n, 5))
            arrays = [
                draw_reduction_input(kind, dtype, shape, [axis], generator(kind, dtype.name, n))
                for shape, axis in zip(shapes, (1, 0), strict=True)
            ]
            yield Run(
                f"length {n}",
                arrays,
                [
                    _reduction_case(f"{kind}(axis {axis})", kind, a, [axis], calls[0].dtype, keepdims=False)
                    for a, axis in zip(arrays, (1, 0), strict=True)
                ],
            )

    return Batch(f"{kind}[{dtype.name}]", define, runs)


def _small_ranks(kind: str, dtype: DataType) -> Batch:
    """All dims of rank 1 and 2 without naming them, one by number, rank 0, declared size-1 and expanded dims."""
    call = _calls(kind, dtype)[0]

    def define(fd: FusionDefinition) -> None:
        op = getattr(fd.ops, kind)
        fd.add_output(op(fd.define_tensor([-1], contiguity=True, dtype=dtype)))
        fd.add_output(op(fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)))
        fd.add_output(op(fd.define_tensor([-1, -1], contiguity=True, dtype=dtype), -1, True))
        fd.add_output(op(fd.define_tensor([], contiguity=[], dtype=dtype)))
        sized = fd.define_tensor([1, -1, 1], contiguity=True, dtype=dtype)
        fd.add_output(op(sized, [0, 1]))
        fd.add_output(op(sized, [2]))
        expanded = fd.define_tensor([-1, -1], contiguity=[None, True], dtype=dtype)
        fd.add_output(op(expanded, [0]))
        fd.add_output(op(expanded, [1], keepdim=True))

    def runs() -> Iterator[Run]:
        rng = generator("ranks", kind, dtype.name)

        def draw(shape: tuple[int, ...], axes: Sequence[int]) -> Array:
            return draw_reduction_input(kind, dtype, shape, axes, rng)

        vector, matrix, rows, sized = (
            draw((200,), [0]),
            draw((9, 40), [0, 1]),
            draw((9, 40), [1]),
            draw((1, 70, 1), [1]),
        )
        single = np.array(draw((1,), [0])[0])
        expanded = np.broadcast_to(draw((40,), [0]), (7, 40))

        def case(label: str, x: Array, axes: Sequence[int], keepdims: bool = False) -> Case:
            return _reduction_case(f"{kind}({label})", kind, x, axes, call.dtype, keepdims)

        copied = numpy_cast(single, call.dtype)
        yield Run(
            "small ranks",
            [vector, matrix, rows, single, sized, expanded],
            [
                case("rank 1", vector, [0]),
                case("rank 2", matrix, [0, 1]),
                case("last, keepdim", rows, [1], keepdims=True),
                _exact_case(f"{kind}(rank 0)", copied, single, call.dtype, ("first",)),
                case("size 1 and more", sized, [0, 1]),
                case("size 1", sized, [2]),
                case("expanded", expanded, [0]),
                case("not expanded", expanded, [1], keepdims=True),
            ],
        )

    return Batch(f"{kind}[{dtype.name}]", define, runs)


MOMENT_DTYPES = (
    DataType.Double,
    DataType.Float,
    DataType.Half,
    DataType.BFloat16,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
)


def moment_batches(dtype: DataType) -> Iterator[Batch]:
    """var, var_mean and welford over every set of axes, with correction and keepdim, in several layouts."""
    for axes in AXES:
        yield _moments(dtype, axes)


def _moments(dtype: DataType, axes: tuple[int, ...]) -> Batch:
    wide = widen(dtype)
    real = real_of(wide)

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=dtype)
        fd.add_output(fd.ops.var(tv, list(axes)))
        fd.add_output(fd.ops.var(tv, list(axes), correction=0, keepdim=True))
        for result in fd.ops.var_mean(tv, list(axes), 2, True):
            fd.add_output(result)
        if not dtype.is_complex:
            for result in fd.ops.welford(tv, list(axes)):
                fd.add_output(result)

    def cases(x: Array) -> list[Case]:
        n = math.prod(x.shape[a] for a in axes)
        made = [
            _reduction_case("var", "var", x, axes, real, keepdims=False),
            _reduction_case("var(correction=0, keepdim)", "var", x, axes, real, True, 0),
            _reduction_case("var_mean.var(correction=2, keepdim)", "var", x, axes, real, True, 2),
            _mean_case("var_mean.mean(keepdim)", x, axes, wide, keepdims=True),
        ]
        if not dtype.is_complex:
            dims = {a % x.ndim for a in axes}
            shape = tuple(size for d, size in enumerate(x.shape) if d not in dims)
            made += [
                _mean_case("welford.avg", x, axes, wide, keepdims=False),
                _reduction_case("welford.m2", "m2", x, axes, wide, keepdims=False),
                _exact_case("welford.n", np.full(shape, n, np.int64), np.zeros((), np.int64), DataType.Int, ()),
            ]
        return made

    def runs() -> Iterator[Run]:
        x = draw_reduction_input("var", dtype, SHAPE, axes, generator("var", dtype.name, axes))
        for layout, a in _reduced_layouts(x):
            yield Run(layout, [a], cases(a))
        if dtype.is_floating:
            a = _with_specials(x, "var", (np.nan, np.inf, 0.0, -0.0, -np.inf))
            yield Run("special values", [a], cases(a))

    return Batch(f"moments[{dtype.name}] over {axes}", define, runs)


def _mean_case(label: str, x: Array, axes: Sequence[int], dtype: DataType, keepdims: bool) -> Case:
    """A mean that is updated element by element: that of no elements is 0, and with an infinity in it, it is not finite."""
    case = _reduction_case(label, "mean", x, axes, dtype, keepdims)
    dims = tuple(a % x.ndim for a in axes)
    infinite = np.isinf(x.astype(np.complex128)).any(axis=dims, keepdims=keepdims)
    empty = 0 in [x.shape[d] for d in dims]

    def check(got: Array) -> None:
        if empty:
            assert got.dtype == numpy_dtype(dtype), f"dtype {got.dtype}, expected {dtype.name}"
            assert_exact(label, got, np.zeros(infinite.shape, got.dtype))
            return
        if infinite.any():
            assert not np.isfinite(got[infinite]).any(), f"finite where an element is infinite: {got[infinite]}"
            want = reference_reduction("mean", x, axes, dtype, keepdims=keepdims).value
            got = np.where(infinite, want.astype(got.dtype), got)
        case.check(got)

    return Case(label, check, case.wrong if not empty else lambda: Counts(0, 0))


def grid_batches(dtype: DataType) -> Iterator[Batch]:
    """Few long rows and columns: on a device of many processors several blocks share each reduction."""
    kinds = [k for k, row in REDUCTIONS.items() if kind_of(dtype) in row.kinds]
    if dtype in MOMENT_DTYPES:
        kinds += ["var", "m2"] if not dtype.is_complex else ["var"]
    for kind in kinds:
        yield _shared(kind, dtype)
    if dtype in (DataType.Double, DataType.Float, DataType.Int, DataType.Int32):
        yield _together(dtype)


def _together(dtype: DataType) -> Batch:
    """Values that need the results of several reductions: the same block must hold them all."""

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        total, largest = fd.ops.sum(tv, [1]), fd.ops.max(tv, [1])
        squares = fd.ops.sum(fd.ops.mul(tv, tv), [1])
        fd.add_output(fd.ops.neg(total))
        fd.add_output(fd.ops.add(total, largest))
        fd.add_output(fd.ops.sub(fd.ops.add(total, largest), squares))

    def runs() -> Iterator[Run]:
        x = generator("together", dtype.name).integers(-3, 4, (3, 20_000))  # sums of such are exact in any order
        total, largest, squares = x.sum(1), x.max(1), (x * x).sum(1)
        wanted = {"-sum": -total, "sum + max": total + largest, "sum + max - squares": total + largest - squares}
        # Sums of Int32 are Int.
        output = DataType.Int if dtype.is_integral else dtype
        zero = np.zeros((), numpy_dtype(output))
        cases = [_exact_case(name, want.astype(numpy_dtype(output)), zero, output, ()) for name, want in wanted.items()]
        yield Run("long", [x.astype(numpy_dtype(dtype))], cases)

    return Batch(f"together[{dtype.name}]", define, runs)


def _shared(kind: str, dtype: DataType) -> Batch:
    result = real_of(widen(dtype)) if kind in ("var", "m2") else _calls(kind, dtype)[0].dtype
    shapes, axes = ((2, 20_000), (20_000, 3)), (1, 0)

    def define(fd: FusionDefinition) -> None:
        for axis in axes:
            tv = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
            reduced = fd.ops.welford(tv, [axis])[1] if kind == "m2" else getattr(fd.ops, kind)(tv, [axis])
            fd.add_output(reduced)

    def runs() -> Iterator[Run]:
        rng = generator("grid", kind, dtype.name)
        arrays = [draw_reduction_input(kind, dtype, s, [a], rng) for s, a in zip(shapes, axes, strict=True)]
        yield Run(
            "long",
            arrays,
            [
                _reduction_case(f"{kind}(axis {axis})", kind, a, [axis], result, keepdims=False)
                for a, axis in zip(arrays, axes, strict=True)
            ],
        )

    return Batch(f"{kind}[{dtype.name}]", define, runs)


# --- shapes -----------------------------------------------------------------------------------------------------------


def shape_batches(dtype: DataType) -> Iterator[Batch]:
    """set, segment_set, permute, broadcast, broadcast_in_dim, expand, squeeze, size: values unchanged, in their places.

    Every result is returned as it is, which may be a view, and through `set`, which a kernel must write.
    """
    large = np.ascontiguousarray(np.resize(_any_value(dtype), (32, 160)))
    yield from _movements(
        f"set[{dtype.name}]",
        large,
        dtype,
        lambda fd, tv: [fd.ops.set(tv), fd.ops.segment_set(tv), fd.ops.set(fd.ops.segment_set(tv))],
        [Moved(name, lambda a: a, dtype) for name in ("set", "segment_set", "set of segment_set")],
    )
    yield _permutations(dtype)
    yield _broadcasts(dtype)
    yield _squeezes(dtype)


def _values3(dtype: DataType, shape: tuple[int, ...] = (5, 7, 12)) -> Array:
    return np.resize(_any_value(dtype), shape)


class _Moves:
    """Outputs that are defined and expected side by side: each as it is, and as a copy."""

    def __init__(self, fd: FusionDefinition | None) -> None:
        self.fd = fd
        self.cases: list[Case] = []

    def add(self, name: str, tv: Callable[[Any], Any], want: Array, first: Array, dtype: DataType) -> None:
        if self.fd is not None:
            result = tv(self.fd.ops)
            self.fd.add_output(result)
            self.fd.add_output(self.fd.ops.set(result))
        for label in (name, f"set of {name}"):
            self.cases.append(_exact_case(label, want, first, dtype, ("first",)))


def _permutations(dtype: DataType) -> Batch:
    orders = [*itertools.permutations(range(3)), (-1, 0, 1)]

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=dtype)
        for order in orders:
            result = fd.ops.permute(tv, list(order))
            fd.add_output(result)
            fd.add_output(fd.ops.set(result))

    def runs() -> Iterator[Run]:
        x = _values3(dtype)
        for layout, a in _reduced_layouts(x):
            cases: list[Case] = []
            for order in orders:
                want = np.transpose(a, order)
                for label in (f"permute({order})", f"set of permute({order})"):
                    # The first input has another shape; only a cube could be broadcast to the result's.
                    cases.append(_exact_case(label, want, np.zeros((), a.dtype), dtype, ("first",)))
            yield Run(layout, [a], cases)

    return Batch(f"permute[{dtype.name}]", define, runs)


def _broadcasts(dtype: DataType) -> Batch:
    x, row, one = _values3(dtype, (6, 11)), _values3(dtype, (11,)), _values3(dtype, (6, 1))

    def fill(moves: _Moves, x_tv: Any, row_tv: Any, one_tv: Any, n: Any) -> None:
        zero = np.zeros((), x.dtype)

        def add(name: str, tv: Callable[[Any], Any], want: Array) -> None:
            moves.add(name, tv, np.asarray(want), zero, dtype)

        add("broadcast in front", lambda o: o.broadcast(x_tv, [True, False, False]), x[None])
        add("broadcast within", lambda o: o.broadcast(x_tv, [False, True, False]), x[:, None])
        add("broadcast behind", lambda o: o.broadcast(x_tv, [False, False, True]), x[..., None])
        add("broadcast of none", lambda o: o.broadcast(x_tv, [False, False]), x)
        add("broadcast_in_dim row", lambda o: o.broadcast_in_dim(row_tv, [4, 11], [1]), np.broadcast_to(row, (4, 11)))
        add(
            "broadcast_in_dim column",
            lambda o: o.broadcast_in_dim(row_tv, [11, n], [0]),
            np.broadcast_to(row[:, None], (11, 9)),
        )
        add(
            "broadcast_in_dim between",
            lambda o: o.broadcast_in_dim(x_tv, [o.size(x_tv, 0), 3, o.size(x_tv, 1)], [0, 2]),
            np.broadcast_to(x[:, None], (6, 3, 11)),
        )
        add(
            "broadcast_in_dim of size 1",
            lambda o: o.broadcast_in_dim(one_tv, [6, 5], [0, 1]),
            np.broadcast_to(one, (6, 5)),
        )
        add("expand", lambda o: o.expand(one_tv, [-1, 8]), np.broadcast_to(one, (6, 8)))
        add("expand to the left", lambda o: o.expand(x_tv, [3, -1, -1]), np.broadcast_to(x, (3, 6, 11)))
        add("expand by a scalar", lambda o: o.expand(one_tv, [-1, n]), np.broadcast_to(one, (6, 9)))
        add(
            "size",
            lambda o: o.full([1], o.size(x_tv, 1), DataType.Int) if dtype is DataType.Int else o.set(x_tv),
            np.full(1, 11, np.int64) if dtype is DataType.Int else x,
        )

    def define(fd: FusionDefinition) -> None:
        tensors = [fd.define_tensor(shape, contiguity=True, dtype=dtype) for shape in ([-1, -1], [-1], [-1, 1])]
        fill(_Moves(fd), *tensors, fd.define_scalar(dtype=DataType.Int))

    def runs() -> Iterator[Run]:
        for layout in ("contiguous", "transposed", "strided"):
            moves = _Moves(None)
            fill(moves, None, None, None, None)
            spread = np.ascontiguousarray(np.resize(row[::-1], 33))[::3]
            spread[...] = row
            yield Run(layout, [arranged(x, layout), spread, one, 9], moves.cases)

    return Batch(f"broadcast[{dtype.name}]", define, runs)


def _squeezes(dtype: DataType) -> Batch:
    x = _values3(dtype, (1, 70, 1))
    wide = _values3(dtype, (6, 80))

    def define(fd: FusionDefinition) -> None:
        declared = fd.define_tensor([1, -1, 1], contiguity=True, dtype=dtype)
        symbolic = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=dtype)
        expanded = fd.define_tensor([-1, -1], contiguity=[None, True], dtype=dtype)
        for result in (
            fd.ops.squeeze(declared, [0]),
            fd.ops.squeeze(declared, [-1, 0]),
            fd.ops.squeeze(declared, []),
            fd.ops.squeeze(symbolic, [0, 2]),
            fd.ops.squeeze(expanded, [0], squeeze_expanded=True),
            fd.ops.squeeze(fd.ops.broadcast(expanded, [False, True, False]), [1]),
        ):
            fd.add_output(result)
            fd.add_output(fd.ops.set(result))

    def runs() -> Iterator[Run]:
        seen = np.broadcast_to(wide[:1], wide.shape)
        wanted = [
            ("squeeze([0])", x[0]),
            ("squeeze([-1, 0])", x[0, :, 0]),
            ("squeeze([])", x),
            ("squeeze([0, 2]) symbolic", x[0, :, 0]),
            ("squeeze expanded", seen[0]),
            ("squeeze of broadcast", seen),
        ]
        zero = np.zeros((), x.dtype)
        cases = [
            _exact_case(label, want, zero, dtype, ("first",))
            for name, want in wanted
            for label in (name, f"set of {name}")
        ]
        yield Run("contiguous", [x, x, seen], cases)

    return Batch(f"squeeze[{dtype.name}]", define, runs)


# --- factories --------------------------------------------------------------------------------------------------------


def factory_batches(dtype: DataType) -> Iterator[Batch]:
    """full and iota of every shape they can have, alone and beside a tensor."""
    yield _fulls(dtype)
    if dtype.is_floating or dtype.is_integral:
        yield _iotas(dtype)


def _fill_values(dtype: DataType) -> list[Number]:
    if dtype is DataType.Bool:
        return [True, False, 2, 0.0, 0.5]
    if dtype.is_integral:
        high = int(np.iinfo(numpy_dtype(dtype)).max) if dtype is not DataType.UInt64 else 2**63 - 1
        low = [] if dtype is DataType.UInt64 else [-high - 1, -3.75]
        return [7, high, *low, True, 2.5]
    values: list[Number] = [0.1, -0.0, float("inf"), float("-inf"), float("nan"), 3, True, 1e-42, 65519.0]
    return [*values, 1.5 - 0.25j] if dtype.is_complex else values


def _fulls(dtype: DataType) -> Batch:
    values = _fill_values(dtype)

    def define(fd: FusionDefinition) -> None:
        n = fd.define_scalar(dtype=DataType.Int)
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        for value in values:
            fd.add_output(fd.ops.full([5, n], value, dtype))
        fd.add_output(fd.ops.full([], values[0], dtype))
        fd.add_output(fd.ops.full([0, 3], values[0], dtype))
        fd.add_output(fd.ops.full([1, 70], values[0], dtype))
        condition = fd.ops.ne(x, x)
        fd.add_output(fd.ops.where(condition, x, fd.ops.full([fd.ops.size(x, 0), fd.ops.size(x, 1)], values[0], dtype)))

    def runs() -> Iterator[Run]:
        def filled(shape: tuple[int, ...], value: Number) -> Array:
            return np.full(shape, numpy_cast(np.asarray(value), dtype), numpy_dtype(dtype))

        x = _small(dtype, "full")
        wanted = [(f"full({v!r})", filled((5, 14), v)) for v in values]
        wanted += [("full rank 0", filled((), values[0])), ("full empty", filled((0, 3), values[0]))]
        wanted += [("full of size 1", filled((1, 70), values[0])), ("full beside a tensor", filled(x.shape, values[0]))]
        zero = np.zeros((), numpy_dtype(dtype))
        yield Run("contiguous", [14, x], [_exact_case(name, want, zero, dtype, ("first",)) for name, want in wanted])

    return Batch(f"full[{dtype.name}]", define, runs)


def _iotas(dtype: DataType) -> Batch:
    starts: list[tuple[Any, Any]] = (
        [(None, None), (0.5, 0.25), (-3.0, 2.0)] if dtype.is_floating else [(None, None), (3, 5)]
    )
    if dtype.is_integral and dtype is not DataType.UInt64:
        starts.append((100, -7))

    def define(fd: FusionDefinition) -> None:
        n = fd.define_scalar(dtype=DataType.Int)
        first = fd.define_scalar(dtype=DataType.Double if dtype.is_floating else DataType.Int)
        x = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
        for start, step in starts:
            fd.add_output(fd.ops.iota(n, start, step, dtype))
        fd.add_output(fd.ops.iota(70, first, None, dtype))
        fd.add_output(fd.ops.iota(0, None, None, dtype))
        fd.add_output(fd.ops.iota(1, None, None, dtype))
        position = fd.ops.iota(fd.ops.size(x, 1), None, None, dtype)
        fd.add_output(fd.ops.ge(x, position))

    def runs() -> Iterator[Run]:
        x = _small(dtype, "iota")

        def counted(n: int, start: Any, step: Any) -> Array:
            exact = (start or 0) + np.arange(n) * (1 if step is None else step)
            return np.asarray(exact).astype(np.float64 if dtype.is_floating else np.int64)

        wanted = [(f"iota({a}, {b})", numpy_cast(counted(100, a, b), dtype)) for a, b in starts]
        wanted += [("iota from a scalar", numpy_cast(counted(70, 11, None), dtype))]
        wanted += [
            ("iota of 0", numpy_cast(counted(0, 0, None), dtype)),
            ("iota of 1", numpy_cast(counted(1, 0, None), dtype)),
        ]
        zero = np.zeros((), numpy_dtype(dtype))
        cases = [_exact_case(name, want, zero, dtype, ("first",)) for name, want in wanted]
        compared = numpy_cast(x, widen(dtype)) >= numpy_cast(counted(COLUMNS, 0, None), dtype)
        cases.append(
            _exact_case("iota compared", np.asarray(compared), np.zeros((), np.bool_), DataType.Bool, ("first",))
        )
        yield Run("contiguous", [100, 11, x], cases)

    return Batch(f"iota[{dtype.name}]", define, runs)


# --- scans ------------------------------------------------------------------------------------------------------------

_FOLDS = {"cumsum": "sum", "cumprod": "prod", "cummin": "min", "cummax": "max"}
_STARTS: dict[str, Number] = {"f": 1.5, "i": -3, "b": True, "c": 0.5 - 1.5j}


def scan_batches(dtype: DataType) -> Iterator[Batch]:
    """Every scan along every axis, with and without a start, in several layouts; rows and columns of many lengths."""
    for kind in (k for k, row in SCANS.items() if kind_of(dtype) in row.kinds):
        for axis in range(3):
            yield _scan(kind, dtype, axis)
        yield _scan_lengths(kind, dtype)


def _scan_case(label: str, kind: str, x: Array, axis: int, dtype: DataType, init: Number | None = None) -> Case:
    n = x.shape[axis]
    loose = kind == "cumprod" and real_of(dtype) in (DataType.Float, DataType.Half, DataType.BFloat16)

    def wrong() -> Counts:
        want = numpy_cast(reference_scan(kind, x, axis, init).value, dtype)
        return assert_wrong_results_fail(
            lambda got: check_scan(kind, x, axis, got, init),
            want,
            x,
            dtype,
            trivial=("lower",) if loose and 4 * n * epsilon(DataType.Float) > 2.0**-11 else (),
            equal_is_skipped=True,
        )

    return Case(label, lambda got: check_scan(kind, x, axis, got, init), wrong)


def _scan(kind: str, dtype: DataType, axis: int) -> Batch:
    starts = (None, _STARTS[kind_of(dtype)])

    def define(fd: FusionDefinition) -> None:
        tv = fd.define_tensor([-1, -1, -1], contiguity=True, dtype=dtype)
        for start in starts:
            fd.add_output(getattr(fd.ops, kind)(tv, axis, start))

    def cases(x: Array) -> list[Case]:
        return [_scan_case(f"{kind}(init={start})", kind, x, axis, dtype, start) for start in starts]

    def runs() -> Iterator[Run]:
        x = draw_reduction_input(_FOLDS[kind], dtype, SHAPE, [axis], generator(kind, dtype.name, axis))
        for layout, a in _reduced_layouts(x):
            yield Run(layout, [a], cases(a))
        if dtype.is_floating:
            a = _with_specials(x, _FOLDS[kind], (np.nan, np.inf, -np.inf, 0.0, -0.0))
            yield Run("special values", [a], cases(a))

    return Batch(f"{kind}[{dtype.name}] along {axis}", define, runs)


def _scan_lengths(kind: str, dtype: DataType) -> Batch:
    """Rows and columns of lengths around the sizes of warps, tiles and steps, 0 and 1 among them."""

    def define(fd: FusionDefinition) -> None:
        for axis in (1, 0):
            tv = fd.define_tensor([-1, -1], contiguity=True, dtype=dtype)
            fd.add_output(getattr(fd.ops, kind)(tv, axis))

    def runs() -> Iterator[Run]:
        for n in (0, 1, 2, 31, 33, 255, 1025, 5000):
            shapes = ((3, n), (n, 5))
            arrays = [
                draw_reduction_input(_FOLDS[kind], dtype, shape, [axis], generator(kind, dtype.name, n))
                for shape, axis in zip(shapes, (1, 0), strict=True)
            ]
            yield Run(
                f"length {n}",
                arrays,
                [
                    _scan_case(f"{kind}(axis {axis})", kind, a, axis, dtype)
                    for a, axis in zip(arrays, (1, 0), strict=True)
                ],
            )

    return Batch(f"{kind}[{dtype.name}]", define, runs)


# --- families ---------------------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """Batches by dtype, and the dtypes there are some for.

    few_processors   the device counts as one with a single processor, so that small tensors are accessed in wide vectors
    """

    batches: Callable[[DataType], Iterator[Batch]]
    dtypes: Sequence[DataType] = TABLE_DTYPES
    few_processors: bool = True


FAMILIES: dict[str, Family] = {
    "unary": Family(lambda d: pointwise_batches(d, (1,)), CAST_DTYPES),
    "binary": Family(lambda d: pointwise_batches(d, (2,)), CAST_DTYPES),
    "ternary": Family(lambda d: pointwise_batches(d, (3, 4)), CAST_DTYPES),
    "scalars": Family(scalar_batches),
    "host": Family(host_batches, HOST_DTYPES),
    "mixed": Family(mixed_batches),
    "casts": Family(cast_batches, CAST_DTYPES),
    "reductions": Family(reduction_batches, REDUCED_DTYPES),
    "scans": Family(scan_batches, REDUCED_DTYPES),
    "moments": Family(moment_batches, MOMENT_DTYPES),
    "grid": Family(grid_batches, REDUCED_DTYPES, few_processors=False),
    "shapes": Family(shape_batches, CAST_DTYPES),
    "factories": Family(factory_batches, CAST_DTYPES),
}

SUITES = [(family, dtype) for family, f in FAMILIES.items() for dtype in f.dtypes]
SUITE_IDS = [f"{family}-{dtype.name}" for family, dtype in SUITES]

_SKIPPED = """
                Double Float Half BFloat16 Int Int32 Bool ComplexFloat ComplexDouble UInt64 Index
    unary           21    21   21       28 105   105  210           14            14     42   105
    binary           0     0    0       32   0     0   24            0             0      0     0
    ternary          0     0    0        0   0     0    0            0             0      0     0
    scalars         22    24   21       49  14    17  150           14            12      6     -
    host            85     -    -        - 135     -  278            -            26      -     -
    mixed           64    66   64       76  77    78   99           24            24     72     -
    casts           88   104  104      120  88    88  136          104            88     88    88
    reductions      31    39   56       82  35    35  201           14             2      -     -
    scans            2     6    6        6   2     2   15            4             0      -     -
    moments         18    18   18       20   -     -    -            7             7      -     -
    grid             0     2    0        0   0     0    3            2             0      -     -
    shapes         154   154  154      154 148   154  154          154           154    154   154
    factories       28    27   25       26  13    13    9           20            21     10    13
"""


def _table(text: str) -> dict[str, dict[str, int]]:
    dtypes, *rows = (line.split() for line in text.strip().splitlines())
    return {name: {d: int(n) for d, n in zip(dtypes, numbers, strict=True) if n != "-"} for name, *numbers in rows}


SKIPPED = _table(_SKIPPED)
"""Per suite, how many wrong results could not be told from right ones: they are equal, or the op table says so.

A change means that the cases prove more or less than before. Most are copies, whose first input is right, and ops on
Bool, whose results are few.
"""


def check_suite(
    family: str,
    dtype: DataType,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """Run a suite; fail with a line for every failure. Prints and compares the number of wrong results not judged."""
    if FAMILIES[family].few_processors:
        target = get_device(device)
        monkeypatch.setattr(target, "info", replace(target.info, sm_count=1))
    result = run_suite(family, dtype, device)
    asserted, skipped = result.counts
    print(f"{family}[{dtype.name}]: {result.cases} cases, {asserted} wrong results rejected, {skipped} skipped")
    record_property("wrong results", [result.cases, asserted, skipped])
    if result.failures:
        pytest.fail("\n".join([f"{len(result.failures)} failures", *result.failures[:40]]), pytrace=False)
    expected = SKIPPED[family][dtype.name]
    assert skipped == expected, (
        f"{skipped} wrong results were skipped, SKIPPED in tests/fusions/op_cases.py says {expected}"
    )
