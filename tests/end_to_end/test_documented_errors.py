"""One wrong program per documented error that no table of its own family has: class, words, and the line of the user.

Errors of ops are in tests/frontend/test_errors.py, those of inputs in test_bad_input.py, those of definitions, scalars and
`define_tensor` in tests/frontend, of executors in tests/compiler/test_execute_errors.py. Here are the rules that hold for all,
what shows at `execute` only, and the schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fuser
from fuser import DataType, FusionDefinition, LaunchParams, LRUCache, MemoryType, ParallelType, SchedulerType
from fuser.errors import FuserError

R, T, V, A, N = RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError
Program = Callable[[FusionDefinition], Any]
X = np.ones((4, 6), np.float32)


def x2(fd: FusionDefinition) -> Any:
    return fd.define_tensor([-1, -1], True)


# --- while a fusion is defined ----------------------------------------------------------------------------------------

DEFINING: tuple[tuple[str, Program, type[Exception], str], ...] = (
    (
        "two static extents",
        lambda fd: x2(fd) + fd.define_tensor([3, 4]) * fd.define_tensor([3, 5]),
        R,
        "sizes to match",
    ),
    ("truth of a tensor", lambda fd: bool(x2(fd)), T, "truth value"),
    ("an op that is not there yet", lambda fd: fd.ops.scaled_mm(x2(fd), x2(fd)), N, "scaled_mm() is not supported yet"),
    (
        "UInt64 with an integer",
        lambda fd: x2(fd).dtype() and fd.define_tensor([2], True, DataType.UInt64) + 1,
        R,
        "UInt64",
    ),
    ("addition of UInt64", lambda fd: fd.ops.add(*[fd.define_tensor([2], True, DataType.UInt64)] * 2), R, "UInt64"),
    ("imag of a real one", lambda fd: fd.ops.imag(x2(fd)), R, "imag not supported for non-complex tensors"),
    ("randn_like of integers", lambda fd: fd.ops.randn_like(fd.ops.cast(x2(fd), DataType.Int)), R, "floating"),
    ("rand_like of integers", lambda fd: fd.ops.rand_like(fd.ops.cast(x2(fd), DataType.Int)), R, "floating"),
    ("silu of integers", lambda fd: fd.ops.silu(fd.ops.cast(x2(fd), DataType.Int)), R, "silu"),
    ("mod of floats", lambda fd: fd.ops.mod(x2(fd), x2(fd)), R, "mod"),
    ("and of floats", lambda fd: fd.ops.bitwise_and(x2(fd), x2(fd)), R, "Integer or boolean input is required"),
    (
        "shift of booleans",
        lambda fd: fd.ops.bitwise_left_shift(*[fd.ops.gt(x2(fd), 0.0)] * 2),
        R,
        "must have integral type",
    ),
    ("not of floats", lambda fd: fd.ops.bitwise_not(x2(fd)), R, "bitwise_not"),
    ("complex of two dtypes", lambda fd: fd.ops.complex(x2(fd), fd.ops.cast(x2(fd), DataType.Double)), R, "complex"),
    ("a condition that is none", lambda fd: fd.ops.where(x2(fd), 1.0, 2.0), R, "Condition should be of DataType Bool"),
    (
        "a bound that is a tensor",
        lambda fd: fd.ops.clamp(x2(fd), x2(fd), 2.0),
        T,
        "clamp(): incompatible function arguments",
    ),
    (
        "lgamma of complex ones",
        lambda fd: fd.ops.lgamma(fd.define_tensor([2], True, DataType.ComplexFloat)),
        R,
        "Complex",
    ),
    ("max to another dtype", lambda fd: fd.ops.max(x2(fd), [0], False, DataType.Double), R, "max"),
    (
        "max of complex ones",
        lambda fd: fd.ops.max(fd.define_tensor([2], True, DataType.ComplexFloat), [0]),
        R,
        "Complex",
    ),
    ("two unknown extents", lambda fd: fd.ops.reshape(x2(fd), [-1, -1]), R, "A maximum of one value of -1"),
    ("another number of elements", lambda fd: fd.ops.reshape(fd.define_tensor([2, 3]), [7]), R, "Total element counts"),
    ("a slice that begins below 0", lambda fd: fd.ops.slice(x2(fd), [-1, 0], [2, 2]), R, "greater than or equal to 0"),
    (
        "a slice that ends early",
        lambda fd: fd.ops.slice(x2(fd), [2, 0], [1, 2]),
        R,
        "greater than or equal to start_indices",
    ),
    (
        "a slice with steps",
        lambda fd: fd.ops.slice(x2(fd), [0, 0], [2, 2], [0, 1]),
        R,
        "strides must be of const size 1",
    ),
    (
        "starts of another rank",
        lambda fd: fd.ops.slice(x2(fd), [0], [2, 2]),
        R,
        "Slice indexing attribute dimensions don't",
    ),
    (
        "strides of another rank",
        lambda fd: fd.ops.slice(x2(fd), [0, 0], [2, 2], [1]),
        R,
        "start_indices and strides don't match",
    ),
    (
        "a slice of another rank",
        lambda fd: fd.ops.slice(x2(fd), [0], [2]),
        R,
        "Number of tensor dimensions does not match",
    ),
    ("an odd number of widths", lambda fd: fd.ops.pad(x2(fd), [1]), R, "Invalid number of padding widths"),
    ("too many widths", lambda fd: fd.ops.pad(x2(fd), [1] * 6), R, "must be at most twice the input dimension"),
    ("a fill of another kind", lambda fd: fd.ops.pad(x2(fd), [1, 1], 2), R, "must have the same dtype"),
    (
        "a crop of more than all",
        lambda fd: fd.ops.pad(fd.define_tensor([3]), [-2, -2]),
        R,
        "Invalid resized domain extent",
    ),
    ("nothing to join", lambda fd: fd.ops.cat([]), R, "cat"),
    ("two dtypes to join", lambda fd: fd.ops.cat([x2(fd), fd.ops.gt(x2(fd), 0.0)]), R, "dtype"),
    ("two ranks to join", lambda fd: fd.ops.cat([x2(fd), fd.define_tensor([2])]), R, "Unexpected number of dimensions"),
    ("a dim to join that is none", lambda fd: fd.ops.cat([x2(fd)] * 2, 2), R, "Invalid dimension to cat"),
    ("an order of another rank", lambda fd: fd.ops.stride_order(x2(fd), [0]), R, "stride_order"),
    (
        "a triangle of a vector",
        lambda fd: fd.ops.triu(fd.define_tensor([2])),
        R,
        "must have 2 or more dims, but got 1 dims",
    ),
    (
        "an index of rank 2",
        lambda fd: fd.ops.index_select(x2(fd), fd.ops.cast(x2(fd), DataType.Int), 0),
        R,
        "index_select",
    ),
    ("a selection from a number", lambda fd: fd.ops.select(fd.define_tensor([]), 0, 0), R, "select"),
    (
        "an index of another rank",
        lambda fd: fd.ops.gather(x2(fd), fd.define_tensor([2], True, DataType.Int), 0),
        R,
        "dimensions",
    ),
    ("a seed without an offset", lambda fd: fd.ops.uniform(0.0, 1.0, [2], rng_seed=1), R, "must be provided together"),
    (
        "random integers",
        lambda fd: fd.ops.normal(0.0, 1.0, [2], dtype=DataType.Int),
        R,
        "only create floating point types",
    ),
    ("an impossible cast", lambda fd: fd.ops.cast(x2(fd), DataType.Null), R, "Cast"),
    ("a vector of fewer than none", lambda fd: fd.define_vector(-1), R, "-1"),
    ("an input that is one", lambda fd: fd.fusion.add_input(x2(fd)), R, "already an input"),
    ("an input that is computed", lambda fd: fd.fusion.add_input(x2(fd) + 1.0), R, "computed"),
    ("a scalar for an output", lambda fd: fd.add_output(fd.define_scalar(2.0)), R, "scalar"),
)


def assert_told(caught: pytest.ExceptionInfo[Exception], kind: type[Exception], words: str) -> None:
    """The class, the words, and this file with the text of the line."""
    error = caught.value
    assert isinstance(error, kind)
    assert isinstance(error, FuserError)
    assert words in str(error)
    assert error.location is not None, "no line"
    assert error.location.filename == __file__
    assert f'at File "{__file__}", line {error.location.lineno}' in str(error)


@pytest.mark.parametrize(("program", "kind", "words"), [e[1:] for e in DEFINING], ids=[e[0] for e in DEFINING])
def test_defining(program: Program, kind: type[Exception], words: str) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as caught, FusionDefinition() as fd:
        program(fd)
    assert_told(caught, kind, words)


# --- what shows when inputs are bound -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Late:
    """A definition that some inputs are wrong for."""

    define: Program
    inputs: tuple[Any, ...]
    words: str


def squeezed(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.squeeze(x2(fd), [1]))


def expanded(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.expand(x2(fd), [-1, 5]))


def reshaped(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.reshape(x2(fd), [5, -1]))


def emptied(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.reshape(x2(fd), [2, -1]))


def cropped(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.pad(x2(fd), [-4, -4]))


def joined(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.cat([x2(fd), x2(fd)], 0))


def added(fd: FusionDefinition) -> None:
    fd.add_output(x2(fd) + x2(fd))


def counted(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.iota(fd.define_scalar(DataType.Int)))


def filled(fd: FusionDefinition) -> None:
    fd.add_output(fd.ops.full([fd.define_scalar(DataType.Int)], 1.0, DataType.Float))


def updated(fd: FusionDefinition) -> None:
    x = x2(fd)
    fd.add_output(fd.ops.sum(x, [1], True) + x2(fd), x)


LATE = (
    Late(squeezed, (X,), "squeeze of dim 1: a conflict was found with 2 different sizes, 6 and 1"),
    Late(expanded, (X,), "expand, dim 1: a conflict was found with 2 different sizes, 6 and 5"),
    Late(reshaped, (X,), "Total element counts across view operation must match"),
    Late(emptied, (X[:0],), "Total element counts across view operation must match"),
    Late(cropped, (X,), "Invalid resized domain extent"),
    Late(joined, (X, X[:, :5]), "a conflict was found with 2 different sizes, 6 and 5"),
    Late(added, (X, X[:, :5]), "a conflict was found with 2 different sizes, 6 and 5"),
    Late(counted, (-2,), "-2"),
    Late(filled, (-2,), "-2"),
    Late(updated, (X, X[:3]), "a conflict was found with 2 different sizes"),
)


@pytest.mark.parametrize("late", LATE, ids=[late.define.__name__ for late in LATE])
def test_executing(late: Late) -> None:
    with FusionDefinition() as fd:
        late.define(fd)
    with pytest.raises(Exception, match=r"(?s).*") as caught:
        fd.execute(late.inputs, device="simulator")
    assert_told(caught, R, late.words)
    assert "fd." in str(caught.value).split("\n")[-1], "the line of the definition"


# --- the schedule -------------------------------------------------------------------------------------------------------

Verb = Callable[[Any, Any, Any, Any], Any]

SCHEDULING: tuple[tuple[str, Verb, str], ...] = (
    # x is the input, y = x * 2 over two dims, r their sum along the last one
    ("a factor of 0", lambda fd, x, y, r: y.split(0, 0), "factor"),
    ("a negative factor", lambda fd, x, y, r: y.split(0, -2), "factor"),
    ("an axis that is none", lambda fd, x, y, r: y.split(2, 4), "axis"),
    (
        "a split axis that is parallel",
        lambda fd, x, y, r: (y.axis(0).parallelize(ParallelType.grid_x), y.split(0, 4)),
        "parallel",
    ),
    ("a split axis that is inlined", lambda fd, x, y, r: (fd.sched.inline_most(), y.split(0, 4)), "inlined"),
    ("a merge with nothing", lambda fd, x, y, r: y.merge(1), "axis"),
    ("a merge of an axis with itself", lambda fd, x, y, r: y.merge(0, 0), "merge"),
    ("a merge of inlined axes", lambda fd, x, y, r: (fd.sched.inline_most(), y.merge(0)), "inlined"),
    ("an order with an axis twice", lambda fd, x, y, r: y.reorder({0: 1, 1: 1}), "reorder"),
    ("an order of an axis that is none", lambda fd, x, y, r: y.reorder({2: 0}), "axis"),
    ("an order of inlined axes", lambda fd, x, y, r: (fd.sched.inline_most(), y.reorder({0: 1})), "inlined"),
    ("rfactor of what is no reduction", lambda fd, x, y, r: y.rfactor([1]), "reduction"),
    ("rfactor of an axis that is kept", lambda fd, x, y, r: r.rfactor([0]), "rfactor"),
    ("rfactor of all axes", lambda fd, x, y, r: r.rfactor([1]), "remain"),
    ("a copy behind what nobody uses", lambda fd, x, y, r: r.cache_after(), "use"),
    ("a copy for who does not use it", lambda fd, x, y, r: x.cache_after(cached_uses=[r.definition()]), "cached_uses"),
    ("a copy before an input", lambda fd, x, y, r: x.cache_before(), "input"),
    ("an output in shared memory", lambda fd, x, y, r: r.set_memory_type(MemoryType.shared), "global"),
    ("inlining where it cannot be", lambda fd, x, y, r: (r.reorder({0: 1}), fd.sched.inline_at(r, 2)), "inline"),
)


@pytest.mark.parametrize(("verb", "words"), [e[1:] for e in SCHEDULING], ids=[e[0] for e in SCHEDULING])
def test_scheduling(verb: Verb, words: str) -> None:
    with FusionDefinition() as fd:
        x = x2(fd)
        y = x * 2.0
        r = fd.ops.sum(y, [1])
        fd.add_output(r)
        with pytest.raises(Exception, match=r"(?s).*") as caught:
            verb(fd, x, y, r)
    assert_told(caught, R, words)


def test_heuristics_of_a_scheduler_that_refuses() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.sum(x2(fd), [1]))
    with pytest.raises(RuntimeError, match="pointwise") as caught:
        fd.sched.compute_heuristics(fd.fusion, SchedulerType.pointwise, [X])
    assert_told(caught, R, "rejected")


# --- what is no definition ----------------------------------------------------------------------------------------------


def test_a_cache_of_nothing() -> None:
    with pytest.raises(RuntimeError, match="0") as caught:
        LRUCache(0)
    assert_told(caught, R, "0")


def test_versions_compare_with_versions_only() -> None:
    with pytest.raises(ValueError, match="version"):
        assert fuser.version() < 3  # pyright: ignore[reportOperatorIssue]


def test_a_launch_that_its_schedule_contradicts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    with FusionDefinition() as fd:
        y = x2(fd) * 2.0
        fd.add_output(y)
        y.axis(0).parallelize(ParallelType.block_x)
    executor = fuser.KernelExecutor()
    executor.compile(fd.fusion, [X])
    with pytest.raises(RuntimeError, match="bdimx=7") as caught:
        executor.run([X], LaunchParams(-1, -1, -1, 7, -1, -1))
    assert_told(caught, R, "which needs 4")
