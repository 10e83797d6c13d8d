"""Cases of every op, dtype and layout, the same for the simulator (test_ops.py) and a GPU (gpu/test_ops.py).

Grammar
    family  := unary | binary | ternary | scalars | mixed | casts | reductions | moments | shapes | factories
    suite   := family, dtype -> [batch]
    batch   := name, define: FusionDefinition -> outputs labelled, runs
    run     := layout, inputs, one case per output
    case    := op, check(result), wrong() -> Counts

A batch is one definition with many ops on shared inputs, so that one kernel serves them all; its runs give it the same
values in several layouts, or other sizes. Ops share inputs if their rows draw from the same domains (`Samples`).
The judge is tests/accuracy.py; what fails is collected and told at once, with op, dtype, layout, index, got, want and ulp.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.ir.op_table import POINTWISE, PointwiseOp
from fuser.ir.promotion import DtypeRule
from tests.accuracy import (
    Array,
    Counts,
    Number,
    assert_wrong_pointwise_fail,
    check_pointwise,
    draw_inputs,
    pointwise_cases,
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
    for name, d in pointwise_cases():
        row = POINTWISE[name]
        if d is dtype and row.arity in arities:
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


def _case(row: PointwiseOp, operands: Sequence[Array | Number]) -> Case:
    return Case(
        row.name,
        lambda got: check_pointwise(row, operands, got),
        lambda: assert_wrong_pointwise_fail(row, operands),
    )


def _define_rows(
    fd: FusionDefinition, rows: Sequence[PointwiseOp], operands: Sequence[Any]
) -> None:
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
