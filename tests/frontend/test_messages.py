"""Whole messages of mistakes in a definition, as the author of a program reads them."""

from __future__ import annotations

import contextlib
import math
import operator
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuser import (
    Allocate,
    Copy,
    DataType,
    DeviceInfo,
    Fill,
    ForLoop,
    FusionDefinition,
    HostProgram,
    If,
    KernelCompiler,
    LaunchKernel,
    LaunchParams,
    ParallelType,
    RtcKernel,
    SchedulerType,
    extent,
    load,
    save,
)
from fuser.errors import FuserError
from fuser.ir.device_info import _PRESETS  # type: ignore[reportPrivateUsage]

Mistake = Callable[[Any, Any], Any]

SPLIT = (
    "split() schedules a loop axis of a tensor; the parts that split gives in other libraries are slices: "
    "x[:, :4], x[:, 4:]"
)

ADD_OUTPUT = (
    "add_output(): incompatible function arguments. It takes a TensorView and, for an in-place update, a TensorView that "
    "is a fusion input; got "
)

MATRIX: list[tuple[Mistake, str]] = [
    (
        lambda fd, x: operator.setitem(x, 0, 1.0),
        "elements of a tensor cannot be set: make another tensor, as with fd.ops.where(condition, value, x) or "
        "fd.ops.cat([x[:1], y])",
    ),
    (
        lambda fd, x: operator.delitem(x, 0),
        "elements of a tensor cannot be set: make another tensor, as with fd.ops.where(condition, value, x) or "
        "fd.ops.cat([x[:1], y])",
    ),
    (
        lambda fd, x: x.to("cuda:0"),
        "to(): incompatible function arguments. dtype must be a DataType, got str 'cuda:0': a definition has no device, "
        "fd.execute(inputs, device=...) chooses one. Called as to(TensorView, str); supported:\n"
        "    to(arg: TensorView, dtype: DataType) -> TensorView",
    ),
    (
        lambda fd, x: x.mean(0.5),
        "mean(): incompatible function arguments. dim must be a sequence, got float. Called as mean(TensorView, float); "
        "supported:\n    mean(arg: TensorView, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.cat(x, x),
        "cat(): incompatible function arguments. tensors must be a sequence, got TensorView: write [x, y]. Called as "
        "cat(TensorView, TensorView); supported:\n"
        "    cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.exp(x, out=x),
        "exp(): incompatible function arguments. exp() got an unexpected keyword argument 'out': what is called makes new "
        "tensors; fd.add_output(y, x) writes one into an input. Called as exp(TensorView, out=TensorView); supported:\n"
        "    exp(x: TensorView | Val | number, /) -> TensorView | Val",
    ),
    (
        lambda fd, x: x.float16(),
        "a TensorView has no attribute 'float16'; write fd.ops.cast(x, DataType.Half)",
    ),
    (lambda fd, x: fd.add_output(x.sum), f"{ADD_OUTPUT}method: call it"),
    (
        lambda fd, x: fd.add_output(np.ones(3)),
        f"{ADD_OUTPUT}ndarray: arrays are handed to execute, for an input that fd.define_tensor or fd.from_array defines",
    ),
    (
        lambda fd, x: x.merge(0, 1, 2),
        "merge(): incompatible function arguments. too many positional arguments. Called as merge(int, int, int); "
        "supported:\n    merge(axis_o: int, axis_i: int | None = None) -> TensorView",
    ),
    (
        lambda fd, x: x.split(dim=1, factor=4),
        "split(): incompatible function arguments. got an unexpected keyword argument 'dim'; did you mean 'axis'? "
        "Called as split(dim=int, factor=int); supported:\n"
        f"    split(axis: int, factor: int, inner_split: bool = True) -> TensorView\n{SPLIT}",
    ),
    (
        lambda fd, x: x.split(4, 1),
        "no output is named yet, and split() is a scheduling verb: x.split(4, 1) after the last fd.add_output splits a "
        "loop axis. The parts that split gives in other libraries are slices: x[:, :4], x[:, 4:]",
    ),
    (
        lambda fd, x: x.split(-1, 2),
        "no output is named yet, and split() is a scheduling verb: x.split(-1, 2) after the last fd.add_output splits a "
        "loop axis. The parts that split gives in other libraries are slices: x[:, :2], x[:, 2:]",
    ),
    (
        lambda fd, x: list(x),
        "a TensorView cannot be iterated over or unpacked: fd.ops take all of its elements at once, max and min give values "
        "alone, x[i] is one row, and x[:2], x[2:] are two parts",
    ),
    (
        lambda fd, x: x.size(),
        "size(): incompatible function arguments. missing a required argument: 'dim'. Called as size(); supported:\n"
        "    size(dim: int) -> Val",
    ),
    (
        lambda fd, x: x.axis(0).split(4),
        "an axis has no attribute 'split'; it is a method of tensors: x.split(...)",
    ),
    (
        lambda fd, x: x.parallelize(ParallelType.block_x),
        "a TensorView has no attribute 'parallelize': axes are parallelized: x.axis(0).parallelize(ParallelType.block_x)",
    ),
    (
        lambda fd, x: x.add_(1.0),
        "a TensorView has no attribute 'add_': no op changes its operands; write x = x.add(...)",
    ),
    (
        lambda fd, x: x.scaled_mm(),
        "a TensorView has no attribute 'scaled_mm': scaled_mm is not supported yet: matrix products of 8- and 4-bit floats "
        "need sm100",
    ),
    (
        lambda fd, x: fd.sched.split(x, 1, 4),
        "there is no scheduling function 'split'; it is a method of tensors: x.split(...)",
    ),
    (
        lambda fd, x: fd.sched.inline_mots([x]),
        "there is no scheduling function 'inline_mots'; did you mean fd.sched.inline_most?",
    ),
    (
        lambda fd, x: fd.from_numpy(x),
        "'FusionDefinition' object has no attribute 'from_numpy'; did you mean fd.from_array?",
    ),
    (
        lambda fd, x: np.cumsum(x, axis=0),
        "numpy.cumsum takes arrays, and a tensor of a definition has no values; "
        "call fd.ops.cumsum(arg: TensorView, dim: int, init: Val | number | None = None) -> TensorView",
    ),
    (
        lambda fd, x: np.clip(x, 0, 1),
        "numpy.clip takes arrays, and a tensor of a definition has no values; write fd.ops.clamp(x, min, max)",
    ),
    (
        lambda fd, x: np.repeat(x, 2, 0),
        "numpy.repeat takes arrays, and a tensor of a definition has no values; it is written with other ops:\n"
        "    y = x.unsqueeze(1).expand(-1, 2, -1).reshape(-1, x.size(1))",
    ),
    (
        lambda fd, x: np.split(x, 2),
        "numpy.split takes arrays, and a tensor of a definition has no values; it is written with other ops:\n"
        "    n = (x.size(0) + 1) // 2  # two halves of dim 0\n    y, z = x[:n], x[n:]",
    ),
    (
        lambda fd, x: x.chunk(2, 1),
        "a TensorView has no attribute 'chunk'; it is written with other ops:\n"
        "    n = (x.size(1) + 1) // 2  # two halves of dim 1\n    y, z = x[:, :n], x[:, n:]",
    ),
    (
        lambda fd, x: x.flip(0),
        "a TensorView has no attribute 'flip'; it is written with other ops:\n"
        "    dim = -1\n    n = x.size(dim)\n    y = fd.ops.index_select(x, fd.ops.iota(n, n - 1, -1), dim)",
    ),
    (
        lambda fd, x: fd.ops.sum(x, [2]),
        "sum(): dim 2 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 2. total index: 2",
    ),
    (
        lambda fd, x: fd.ops.cumsum(x, -3),
        "cumsum(): dim -3 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index -3. total index: 2",
    ),
    (
        lambda fd, x: x.size(5),
        "size(): dim 5 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 5. total index: 2",
    ),
    (
        lambda fd, x: x.axis(5),
        "axis(): loop axis 5 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 5. total index: 2",
    ),
    (
        lambda fd, x: fd.ops.sum(fd.ops.sum(x), [1]),
        "sum(): dim 1 is out of range: there is 1, called 0 or -1. "
        "Tried to access out of boundary index 1. total index: 1",
    ),
    (
        lambda fd, x: fd.ops.squeeze(x, [2]),
        "squeeze(): Squeeze dim is outside of Tensor size! dim 2 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 2. total index: 2",
    ),
    (
        lambda fd, x: fd.ops.cat([x, x], 2),
        "Invalid dimension to cat: dim 2 is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 2. total index: 2",
    ),
    (
        lambda fd, x: fd.ops.permute(x, [1, 2]),
        "permute(): dims argument is out of range, expects values between -2 and 1, got 2",
    ),
    (
        lambda fd, x: fd.ops.sum(x, [1, -1]),
        "sum(): Reduction axes are not unique: [1, -1] are [1, 1] of a tensor of rank 2",
    ),
    (lambda fd, x: fd.ops.sum(x, []), "sum(): No reduction axis specified: leave dims out to reduce over all of them"),
    (
        lambda fd, x: fd.ops.squeeze(x, [1]),
        "Can not squeeze dim 1: its size is 4, not 1; fd.ops.select takes one position of a dim",
    ),
    (
        lambda fd, x: fd.ops.full([x.size(0) / 2, 8], 0.0, DataType.Float),
        "full(): shape[0] must be an integer, got a scalar of dtype Float; sizes are divided by //",
    ),
    (
        lambda fd, x: x + np.ones(4, np.float32),
        "add(): incompatible function arguments. rhs must be a TensorView, a Val or a number, got ndarray: arrays are "
        "handed to "
        "execute, for an input that fd.define_tensor or fd.from_array defines. Called as add(TensorView, ndarray); supported:\n"
        "    add(lhs: TensorView | Val | number, rhs: TensorView | Val | number, /) -> TensorView | Val",
    ),
    (
        lambda fd, x: fd.add_output(fd.define_scalar(DataType.Int)),
        "add_output() takes tensors, got the scalar c1: Int; to return it, make a tensor of it with "
        "fd.ops.full([1], scalar, dtype)",
    ),
    (
        lambda fd, x: fd.add_output([x, x]),
        "add_output(): incompatible function arguments. It takes a TensorView and, for an in-place update, a TensorView that "
        "is a fusion input; got list: call it once per output",
    ),
    (
        lambda fd, x: fd.add_output(3.0),
        f"{ADD_OUTPUT}float: fd.ops.full([1], value, dtype) makes a tensor of a number",
    ),
    (
        lambda fd, x: fd.ops.where(condition=x > 0, input=x, other=0.0),
        "where(): incompatible function arguments. where() got some positional-only arguments passed as keyword arguments: "
        "'condition': they are given in their order, without names. Called as where(condition=TensorView, input=TensorView, "
        "other=float); supported:\n    where(condition: TensorView | Val | number, x: TensorView | Val | number, y: "
        "TensorView | Val | number, /) -> TensorView | Val",
    ),
    (
        lambda fd, x: fd.ops.cast(x, "bf16"),
        "cast(): incompatible function arguments. dtype must be a DataType, got str 'bf16': did you mean DataType.BFloat16? "
        "Called as cast(TensorView, str); supported:\n"
        "    cast(arg: TensorView | Val | number, dtype: DataType) -> TensorView | Val",
    ),
    (
        lambda fd, x: fd.ops.cast(x, DataType.Float8_e5m2),
        "cast(): Illegal Cast value from DataType: Float to DataType: Float8_e5m2: Float8_e5m2 is not supported yet",
    ),
    (lambda fd, x: x.bmm(x), "a TensorView has no attribute 'bmm'; write fd.ops.matmul(x, y)"),
    (
        lambda fd, x: fd.ops.linear(input=x, weight=x),
        "linear(): incompatible function arguments. linear() got an unexpected keyword argument 'input'; did you mean 'arg1'? "
        "Called as linear(input=TensorView, weight=TensorView); supported:\n"
        "    linear(arg1: TensorView, arg2: TensorView, bias: TensorView | None = None) -> TensorView",
    ),
    (
        lambda fd, x: x.at[0].set(1.0),
        "a TensorView has no attribute 'at': no op changes its operands: fd.ops.where or fd.ops.cat make another tensor, and "
        "fd.add_output(y, x) writes y into input x",
    ),
    (lambda fd, x: fd.add_output(x.shape), f"{ADD_OUTPUT}Shape: call it once per output"),
    (lambda fd, x: fd.add_output(DataType.Half), f"{ADD_OUTPUT}DataType"),
    (
        lambda fd, x: fd.ops.cast(DataType.Half, x),
        "cast(): incompatible function arguments. arg must be a TensorView, a Val or a number, got DataType. Called as "
        "cast(DataType, TensorView); supported:\n"
        "    cast(arg: TensorView | Val | number, dtype: DataType) -> TensorView | Val",
    ),
    (
        lambda fd, x: fd.ops.rand_like(x.shape),
        "rand_like(): incompatible function arguments. x must be a TensorView, got Shape. Called as rand_like(Shape[Val]); "
        "supported:\n    rand_like(x: TensorView, /) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.full(x, 1.0, DataType.Float),
        "full(): incompatible function arguments. shape must be a sequence, got TensorView: write x.shape. Called as "
        "full(TensorView, float, DataType); supported:\n"
        "    full(shape: Sequence[Val | int], fill_value: Val | number, dtype: DataType) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.index_select(x, [0, 1], 0),
        "index_select(): incompatible function arguments. index must be a TensorView, got list: np.array makes an array of "
        "numbers, to be handed to execute for an input that fd.define_tensor defines. Called as index_select(TensorView, "
        "list[int], int); supported:\n    index_select(arg: TensorView, index: TensorView, dim: int) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.index_select(x, 1, 0),
        "index_select(): incompatible function arguments. index must be a TensorView, got int: fd.ops.full(shape, value, "
        "dtype) makes a tensor of a number. Called as index_select(TensorView, int, int); supported:\n"
        "    index_select(arg: TensorView, index: TensorView, dim: int) -> TensorView",
    ),
    (
        lambda fd, x: fd.ops.cat([x, ROWS]),
        "cat(): incompatible function arguments. tensors[1] must be a TensorView, got ndarray: arrays are handed to execute, "
        "for an input that fd.define_tensor or fd.from_array defines. Called as cat(list[TensorView | ndarray]); supported:\n"
        "    cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> TensorView",
    ),
    (
        lambda fd, x: x.reshape(None, 12),
        "reshape(): incompatible function arguments. new_shape[0] must be an int, got None: -1 keeps a size, or takes what the "
        "others leave. Called as reshape(TensorView, list[NoneType | int]); supported:\n"
        "    reshape(arg: TensorView, new_shape: Sequence[Val | int]) -> TensorView",
    ),
    (
        lambda fd, x: x.axis(0).parallelize("blockIdx.x"),
        "parallelize(): incompatible function arguments. parallel_type must be a ParallelType, got str: write "
        "ParallelType.grid_x. Called as parallelize(IterDomain, str); supported:\n"
        "    parallelize(parallel_type: ParallelType) -> None",
    ),
    (
        lambda fd, x: max(x, 0),
        "a TensorView has no truth value while defining; select elements with ops.where, ops.maximum or ops.minimum, join "
        "conditions with & and |, and ask whether two names are one value with `is`",
    ),
]


@pytest.mark.parametrize(("mistake", "text"), MATRIX, ids=[text.partition(":")[0] for _, text in MATRIX])
def test_message(mistake: Mistake, text: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([3, 4], True)
        with pytest.raises(FuserError) as caught:
            mistake(fd, x)
    assert caught.value.message == text
    assert caught.value.args == (text,)


def test_ops_after_the_definition() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x)
    ended = "nothing can be added to this fusion: its definition is complete, the `with` block has ended"
    with pytest.raises(FuserError) as caught:
        fd.ops.exp(x)
    assert caught.value.message == f"exp(): {ended}"
    with FusionDefinition() as other:
        other.define_tensor([-1])
        with pytest.raises(FuserError) as caught:
            other.ops.exp(x)
    assert caught.value.message == (f"exp(): {ended}; values are used in the block that made them, and this is another")
    with pytest.raises(FuserError) as caught:
        fd.add_output(x)
    assert caught.value.message == ended


def test_values_of_another_definition() -> None:
    where = "values are used in the `with` block that made them"
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x)
    with FusionDefinition() as other:
        y = other.define_tensor([-1])
        with pytest.raises(FuserError) as caught:
            _ = x + y
        assert caught.value.message == f"add(): the operands belong to two different fusions; {where}"
        with pytest.raises(FuserError) as caught:
            other.add_output(x)
        assert caught.value.message == f"add_output(): tv0: Float[t0_size0] belongs to another fusion; {where}"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("exp", "; did you mean fd.ops.exp?"),
        ("where", "; did you mean fd.ops.where?"),
        ("inline_most", "; did you mean fd.sched.inline_most?"),
        ("fec", ": the executor cache is there after fd.execute(...)"),
        ("ke", ": the executor of a manual schedule is there after fd.manual_execute(...)"),
        ("run", "; did you mean fd.execute?"),
        ("output", "; did you mean fd.add_output?"),
        ("source", ": fd.explain(inputs, file=False).stage('kernel.cu') is the text of its kernels"),
        ("save", ": fuser.save(fd.program(inputs), path) writes its program to a file"),
        ("capture", ": fd.execute(inputs, graph=True) launches a graph, fd.program(inputs).capture(inputs) gives one"),
        ("to", ": fd.execute(inputs, device=...) chooses a device"),
        (
            "benchmark",
            ": it reports no times; a profiler of the device does, around calls of fd.execute(inputs)",
        ),
        ("define_output", "; did you mean fd.add_output?"),
        ("define_tensors", "; did you mean fd.define_tensor?"),
        ("nothing_of_the_kind", ""),
        ("_private", ""),
    ],
)
def test_attributes_that_are_elsewhere(name: str, meant: str) -> None:
    fd = FusionDefinition()
    assert not hasattr(fd, name)
    with pytest.raises(AttributeError) as caught:
        getattr(fd, name)
    assert str(caught.value).split("\n")[0] == f"'FusionDefinition' object has no attribute {name!r}{meant}"


@pytest.mark.parametrize(
    ("mistake", "advice"),
    [
        (lambda x: math.exp(x), "functions of NumPy and torch do not take its tensors: fd.ops has ones that do"),
        *(
            (mistake, "a tensor is no function; attributes such as x.T, x.mT, x.ndim, x.shape and x.dtype need no ()")
            for mistake in (lambda x: x.T(), lambda x: x(1), lambda x: x.ndim())
        ),
        (lambda x: divmod(x, 2), "write x // y and x % y"),
        (lambda x: x.size / 2, "a method of a tensor is called: x.size(0), x.float()"),
        (lambda x: len(x), "extents are x.shape, their number is x.ndim"),
        (lambda x: round(x), "write fd.ops.round(x)"),
        (lambda x: int(x), "write fd.ops.cast(x, DataType.Int)"),
        (lambda x: float(x), "write fd.ops.cast(x, DataType.Double)"),
        (lambda x: f"{x:.2f}", "a definition has no values; they are what fd.execute(...) returns"),
        (lambda x: setattr(x, "name", "x"), "attributes of tensors and scalars cannot be set"),
        (lambda x: setattr(x, "label", "x"), "attributes of tensors and scalars cannot be set"),
        (lambda x: 1.0 in x, "`in` asks for a value: fd.ops.max(x == 1.0) tells whether an element is 1.0"),
        (
            lambda x: math.sqrt(x.size(0)),
            "its scalars and extents have no value yet: compute with operators and fd.ops",
        ),
        (lambda x: float(x.size(0)), "its scalars and extents have no value yet: compute with operators and fd.ops"),
        (lambda x: range(x.shape[0]), "its scalars and extents have no value yet: compute with operators and fd.ops"),
        (lambda x: np.zeros(x.shape), "its scalars and extents have no value yet: compute with operators and fd.ops"),
    ],
)
def test_what_python_does_with_numbers_only(mistake: Callable[[Any], object], advice: str) -> None:
    with pytest.raises((TypeError, AttributeError)) as caught, FusionDefinition() as fd:
        mistake(fd.define_tensor([-1, -1]))
    assert f" exprs; {advice}" in caught.value.__notes__[0]


def test_no_array_of_a_tensor() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x)
    for make in (np.asarray, np.array):
        with pytest.raises(FuserError) as caught:
            make(x)
        assert caught.value.message == (
            "a definition has no values, so that no array can be made of them; they are what fd.execute(...) returns"
        )
    with pytest.raises(FuserError) as caught:
        np.prod(x.shape)
    assert caught.value.message == (
        "a definition has no values, so that no array can be made of them; they are what fd.execute(...) returns, and "
        "math.prod(x.shape) is a product of extents"
    )
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__, "NumPy asks, for this file"


@pytest.mark.parametrize("name", ["gelu", "astype", "nothing_of_the_kind"])
def test_a_missing_attribute_shows_the_users_line_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_TRACEBACK", "short")
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1])
        fd.add_output(x)
    for value in (x, fd):
        with pytest.raises(AttributeError) as caught:
            getattr(value, name)
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert [frame.filename for frame in frames] == [__file__]
        assert isinstance(caught.value, FuserError)
        assert caught.value.location is not None


def test_functions_of_numpy() -> None:
    with pytest.raises(TypeError) as caught, FusionDefinition() as fd:
        np.exp(fd.define_tensor([-1]))
    (note,) = caught.value.__notes__
    assert note == (
        "raised while defining a fusion, after 1 inputs and 0 exprs; functions of NumPy and torch do not take its tensors: "
        "fd.ops has ones that do, as in fd.ops.exp(x)"
    )


def test_verbs_name_the_tensor() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = fd.ops.mul(x, 2.0)
        fd.add_output(y)
        with pytest.raises(FuserError) as caught:
            y.split(3, 4)
    assert caught.value.message == (
        f"split(): loop axis 3 of y ({y.name}) is out of range: there are 2, from -2 to 1. "
        "Tried to access out of boundary index 3. total index: 2"
    )


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda fd, y: y.split(0, 0), "cannot split y (t2) by 0: the factor must be positive"),
        (
            lambda fd, y: y.axis(0).parallelize("block_x"),
            "parallelize(): incompatible function arguments. parallel_type must be a ParallelType, got str: write "
            "ParallelType.block_x. Called as parallelize(IterDomain, str); supported:\n"
            "    parallelize(parallel_type: ParallelType) -> None",
        ),
        (
            lambda fd, y: [y.axis(d).parallelize(ParallelType.block_x) for d in range(2)],
            "y (t2) has two loop axes on block_x: a block_x axis appears once per tensor",
        ),
        (
            lambda fd, y: y.axis(1).parallelize(ParallelType.vectorize),
            "y (t2) cannot be vectorized: only a copy can (cache_before or cache_after makes one)",
        ),
    ],
)
def test_schedules_of_tensors_with_names(build: Mistake, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")

    def run() -> None:
        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, 4], True)
            y = x * 2.0
            fd.add_output(y)
            build(fd, y)
        fd.manual_execute([np.ones((3, 4), np.float32)])

    with pytest.raises(FuserError) as caught:
        run()
    assert caught.value.message == text
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__


def test_options_that_are_like_it() -> None:
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]) * 2.0)
    with pytest.raises(FuserError) as caught:
        fd.execute([np.ones(3, np.float32)], _enable_options=["fastmath"])
    assert caught.value.message == "Unrecognized enable_option: fastmath; did you mean fast_math?"


ROWS = np.ones((4, 3), np.float32)


def doubled(schedule: Mistake | None = None) -> tuple[Any, Any]:
    """A definition of `x * 2.0`, and its result."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        y = x * 2.0
        fd.add_output(y)
        if schedule is not None:
            schedule(fd, y)
    return fd, y


def negated(part: Mistake, *more: object) -> None:
    """The negative of a part of ROWS."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], True)
        fd.add_output(fd.ops.neg(part(fd, x)))
    fd.execute([ROWS, *more])


def left_definition() -> FusionDefinition:
    fd = FusionDefinition()
    with contextlib.suppress(ValueError), fd:
        raise ValueError("mine")
    return fd


def edited_params(name: str) -> None:
    fd, _ = doubled()
    params = fd.sched.compute_heuristics(fd.fusion, SchedulerType.pointwise, [ROWS])
    setattr(params, name, 1)


def scheduled_after(execute: Callable[[FusionDefinition], object], verb: Mistake) -> None:
    fd, y = doubled()
    for _ in range(2):
        execute(fd)
    verb(fd, y)


def of_another_definition(verb: Mistake) -> None:
    _, y = doubled()
    with FusionDefinition() as fd:
        fd.add_output(fd.define_tensor([-1]))
        verb(fd, y)


WRONG_FILLS: tuple[Any, ...] = ("0", ROWS, None)
FILL: Any = Fill("x", 1.0)
COMPARISONS: tuple[Any, ...] = (operator.lt, operator.le, operator.gt, operator.ge)

CALLS: list[tuple[Callable[[], object], str]] = [
    (
        lambda: doubled(lambda fd, y: fd.add_output(None)),
        "add_output(): incompatible function arguments. It takes a TensorView and, for an in-place update, a TensorView that "
        "is a fusion input; got NoneType: does the function that made it return it?",
    ),
    (
        lambda: doubled(lambda fd, y: fd.add_output(y, y)),
        "alias_input must be a fusion input, which is updated in place, and tv2: Float[t0_size0, t0_size1] is not one; "
        "outputs are named by a call of add_output each",
    ),
    (lambda: doubled(lambda fd, y: fd.ops.normal(0.0, -1.0, [3])), "normal(): std must not be negative, got -1.0"),
    (
        lambda: doubled()[0].explain([ROWS], file="out.txt"),
        "explain(): file is an open file, None or False, got str: open('out.txt', 'w') opens it",
    ),
    (
        lambda: HostProgram(("x",), ("x",), FILL),
        "HostProgram: instructions must be a sequence, got one Fill: write (Fill(...),)",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (FILL,)).run([ROWS], [ROWS]),
        "run() takes one list of all inputs, and a stream after it: expected a stream as a raw handle, a torch or CuPy stream, "
        "or an object with __cuda_stream__; got list",
    ),
    (
        lambda: doubled()[0].manual_execute([ROWS], {"threads": 128}),
        "manual_execute(): heuristic_params must be a HeuristicParams, got dict: "
        "fd.sched.compute_heuristics(fd.fusion, scheduler_type, inputs) makes one",
    ),
    (
        lambda: edited_params("vectorisation_factor"),
        "PointwiseParams has no field 'vectorisation_factor'; did you mean vectorization_factor?",
    ),
    *(
        (
            lambda execute=execute, verb=verb: scheduled_after(execute, verb),
            f"{call}this fusion cannot be scheduled any more: fd.execute, fd.program and fd.explain schedule by themselves; "
            "schedule a new definition and run it by fd.manual_execute",
        )
        for execute in (lambda fd: fd.execute([ROWS]), lambda fd: fd.program([ROWS]))
        for verb, call in (
            (lambda fd, y: y.split(1, 4), "split(): "),
            (lambda fd, y: y.axis(0).parallelize(ParallelType.block_x), "parallelize(): "),
            (lambda fd, y: y.cache_before(), "cache_before(): "),
            (lambda fd, y: fd.sched.inline_most([y]), ""),
            (lambda fd, y: fd.sched.schedule(fd.fusion, SchedulerType.pointwise, [ROWS]), ""),
        )
    ),
    (
        lambda: scheduled_after(
            lambda fd: fd.manual_execute([ROWS]), lambda fd, y: y.axis(0).parallelize(ParallelType.block_x)
        ),
        "parallelize(): this fusion cannot be scheduled any more: its kernel is that of the first fd.manual_execute; "
        "scheduling verbs stand before it, or in a new definition",
    ),
    *(
        (
            lambda verb=verb: of_another_definition(verb),
            f"{call}tv2: Float[t0_size0, t0_size1] belongs to another fusion; "
            "it is scheduled in the `with` block that made it, or after it",
        )
        for verb, call in (
            (lambda fd, y: fd.sched.inline_at(y, 1), ""),
            (lambda fd, y: fd.sched.inline_most([y]), ""),
            (lambda fd, y: fd.sched.transform_like(y), ""),
            (lambda fd, y: y.merge(0), "merge(): "),
        )
    ),
    (
        lambda: doubled()[0].execute([ROWS], stream=0),
        "execute(): incompatible function arguments. got an unexpected keyword argument 'stream': kernels run on the current "
        "stream of torch or CuPy, and fd.program(inputs).run(inputs, stream) takes one. Called as execute(list[ndarray], "
        "stream=int); supported:\n    execute(inputs: Iterable[Any], *, device: Any = None, graph: bool = False, "
        "tune: bool | Tuning | None = None, save_repro_inputs: bool | None = False, "
        "_enable_options: Sequence[str] | None = None, _disable_options: Sequence[str] | None = None) -> list[Any]",
    ),
    (
        lambda: doubled()[0](ROWS, graph=True),
        "__call__(): incompatible function arguments. got an unexpected keyword argument 'graph': fd.execute(inputs, "
        "graph=True) launches a graph. Called as __call__(ndarray, graph=bool); supported:\n"
        "    __call__(*inputs: Any, device: Any = None) -> Any",
    ),
    (
        lambda: doubled(lambda fd, y: y.reorder([1, 0])),
        "reorder(): incompatible function arguments. old2new must be a dict, got list: write {old: new}, as in {0: 1}. "
        "Called as reorder(TensorView, list[int]); supported:\n    reorder(old2new: dict[int, int]) -> TensorView",
    ),
    (
        lambda: doubled()[0].sched.can_schedule(doubled()[0], SchedulerType.pointwise, [ROWS]),
        "incompatible function arguments. fusion must be a Fusion, got FusionDefinition: write fd.fusion",
    ),
    (
        lambda: doubled(lambda fd, y: fd.sched.can_schedule(fd.fusion, "pointwise", [ROWS])),
        "incompatible function arguments. scheduler_type must be a SchedulerType, got str: write SchedulerType.pointwise",
    ),
    (
        lambda: Allocate("y", extent("x", 0), DataType.Float),  # type: ignore[arg-type]
        "Allocate takes a sequence of ints and expressions of extent(slot, dim), got extent('x', 0): write (extent('x', 0),)",
    ),
    (
        lambda: Allocate("y", [3], "float"),  # type: ignore[arg-type]
        "Allocate takes a DataType, got 'float': it is float64 in NumPy and float32 in torch, write 'float64' or 'float32'",
    ),
    (
        lambda: LaunchKernel(doubled()[0], ("x",)),
        "LaunchKernel takes a CompiledKernel or a compiled RtcKernel, got FusionDefinition: KernelCompiler().compile(fd, "
        "inputs) makes one of a definition",
    ),
    (
        lambda: LaunchKernel(KernelCompiler().compile(doubled()[0], [ROWS]), ("x", "y"), 32),  # type: ignore[arg-type]
        "launch of LaunchKernel is a LaunchParams, got int; as in LaunchParams(8, 1, 1, 256, 1, 1)",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (FILL,)).capture(ROWS),  # type: ignore[arg-type]
        "the inputs must be a list of arrays and numbers, got a single ndarray of shape [4, 3]: put it in a list, [x]",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (FILL,)).run([[1.0]]),
        "expected an array or a number, got list: np.array(values, np.float32) makes an array of one",
    ),
    (
        lambda: DeviceInfo.preset("h200"),
        f"no device preset 'h200'; did you mean 'H200'? known: {', '.join(_PRESETS)}",
    ),
    (
        lambda: save(HostProgram(("x",), ("x",), (FILL,)), 3),  # type: ignore[arg-type]
        "path is the name of a file, a text or a Path, got int",
    ),
    (
        lambda: load(HostProgram(("x",), ("x",), (FILL,))),  # type: ignore[arg-type]
        "path is the name of a file, a text or a Path, got HostProgram",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (Copy(ROWS, "x"),)),  # type: ignore[arg-type]
        f"HostProgram, instruction 0, Copy({ROWS!r}, 'x'): a slot is named by a text, got ndarray; arrays are handed to run",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (KernelCompiler().compile(doubled()[0], [ROWS]),)),  # type: ignore[arg-type]
        "HostProgram: instruction 0 is a CompiledKernel, no instruction: write LaunchKernel(kernel, slots)",
    ),
    (
        lambda: doubled()[0].validate([ROWS], reference=[ROWS]),
        "validate(): incompatible function arguments. got an unexpected keyword argument 'reference'; did you mean "
        "'reference_outputs'? Called as validate(list[ndarray], reference=list[ndarray]); supported:\n"
        "    validate(inputs: Iterable[Any], reference_outputs: Sequence[Any] | None = None, device: Any = None, "
        "graph: bool = False, save_repro_inputs: bool | None = False, _enable_options: Sequence[str] | None = None, "
        "_disable_options: Sequence[str] | None = None) -> list[Any]",
    ),
    (
        lambda: KernelCompiler("sm_90"),  # type: ignore[arg-type]
        "KernelCompiler(): device must be a DeviceInfo, a device or None, got str; None is the current GPU, or the "
        "simulator; DeviceInfo.preset(name) makes one",
    ),
    (
        lambda: RtcKernel("text", "entry", device="sm_90"),  # type: ignore[arg-type]
        "RtcKernel: device must be a CUDA index, a device, a DeviceInfo or None, got str 'sm_90'; DeviceInfo.preset(name) "
        "makes one",
    ),
    (
        lambda: doubled()[0].validate([ROWS], ROWS),
        "reference_outputs must be a list of arrays, one per output, got one ndarray: write [reference]",
    ),
    (
        lambda: doubled()[0].execute([ROWS], _enable_options="fast_math"),
        "_enable_options is a sequence of names, got the text 'fast_math': write ['fast_math']",
    ),
    (
        lambda: KernelCompiler().compile(3, [ROWS]),  # type: ignore[arg-type]
        "KernelCompiler.compile takes a fusion, its definition or a segment, got int",
    ),
    (
        lambda: KernelCompiler().compile(FusionDefinition(), [ROWS]),
        "KernelCompiler.compile takes a fusion, its definition or a segment, got NoneType",
    ),
    *(
        (
            lambda compare=compare: compare(extent("x", 0), 3),
            "sizes have no order until a program runs; a condition of one is less(a, b), less_equal(a, b), equal(a, b) or "
            "not_equal(a, b) of fuser",
        )
        for compare in COMPARISONS
    ),
    (
        lambda: doubled()[0].explain([ROWS], file=Path("out.txt")),
        "explain(): file is an open file, None or False, got PosixPath: open('out.txt', 'w') opens it",
    ),
    (
        lambda: doubled()[0](ROWS, tune=True),
        "__call__(): incompatible function arguments. got an unexpected keyword argument 'tune': fd.execute(inputs, tune=True) "
        "measures candidates on a GPU. Called as __call__(ndarray, tune=bool); supported:\n"
        "    __call__(*inputs: Any, device: Any = None) -> Any",
    ),
    (
        lambda: ForLoop("i", 0, "n", 1, ()),  # type: ignore[arg-type]
        "ForLoop takes ints and expressions of extent(slot, dim), got 'n': scalar('n') is the number in that slot",
    ),
    *(
        (
            lambda value=value: Fill("x", value),
            f"Fill takes a number, got {type(value).__name__}; Copy(dst, src) writes what another slot holds",
        )
        for value in WRONG_FILLS
    ),
    *(
        (
            lambda condition=condition: If(condition, ()),
            "If takes a condition, less(a, b), less_equal(a, b), equal(a, b), not_equal(a, b), all_of(p, ...) or any_of(p, "
            f"...) of sizes (all of fuser), a size, or the name of a tensor of one element, got {condition}: `a == b` of sizes "
            "asks whether they are one expression",
        )
        for condition in (extent("x", 0) == 3, extent("x", 0) != 3)
    ),
    (
        lambda: extent(0, "x"),  # type: ignore[arg-type]
        "extent takes the name of a slot and a dimension from 0, got extent(0, 'x')",
    ),
    (
        lambda: HostProgram(("x",), ("y",), (Allocate("y", (extent("x", 0) - 9,), DataType.Float), Fill("y", 1.0))).run(
            [ROWS]
        ),
        "slot 'y' would have shape [-5] with strides [1], and none may be negative",
    ),
    (
        lambda: doubled()[0].program([ROWS]).run([ROWS.astype(np.float64)]),
        "Expected input 0, t0, to be bound to a tensor of dtype float, but got a tensor of dtype double: pass "
        ".astype(np.float32)",
    ),
    (
        lambda: LaunchParams(grid=(1, 1, 1), block=(32, 1, 1)),  # type: ignore[call-arg]
        "LaunchParams(): incompatible function arguments. got an unexpected keyword argument 'grid': the extents are gdimx, "
        "gdimy, gdimz, bdimx, bdimy, bdimz, in this order. Called as LaunchParams(grid=tuple[int], block=tuple[int]); "
        "supported:\n    LaunchParams(*extents: int, shared: int = 0, cluster: Sequence[int] | None = None)",
    ),
    (
        lambda: RtcKernel(Path("k.cu"), "k"),  # type: ignore[arg-type]
        f"RtcKernel: source is a text, got PosixPath {Path('k.cu')!r}: write path.read_text()",
    ),
    (
        lambda: RtcKernel('extern "C" __global__ void k() {}', "k").compile("-O3"),
        "options is a sequence of texts, not one text: write ['-O3']",
    ),
    (
        lambda: doubled()[0].execute([ROWS], device=ROWS),
        "ndarray is not a device; give an index, 'cuda:<index>' or 'simulator'",
    ),
    (
        lambda: HostProgram(("x",), ("x",), (FILL,)).run([ROWS], out=ROWS),  # type: ignore[call-arg]
        "run(): incompatible function arguments. got an unexpected keyword argument 'out': what is called makes new tensors; "
        "fd.add_output(y, x) writes one into an input. Called as run(list[ndarray], out=ndarray); supported:\n"
        "    run(inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> list[Any]",
    ),
    *(
        (
            lambda wanted=wanted: doubled(lambda fd, y: y.dtype(wanted)),
            "DataType.Float takes no arguments; x.dtype is the dtype of x, and fd.ops.cast(x, DataType.Half) converts its "
            "elements",
        )
        for wanted in ("float16", np.float16, DataType.Half)
    ),
    (
        lambda: left_definition()(ROWS),
        "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion. "
        "The `with` block of this one was left by ValueError('mine').",
    ),
    (
        lambda: negated(lambda fd, x: x[:, 5]),
        "slice of dim 1: position 5 ends behind the dim (x.size(1) - 6 is -3, and must not be negative)",
    ),
    (
        lambda: negated(lambda fd, x: x[-9, 0]),
        "slice of dim 0: position -9 begins before the dim (x.size(0) - 9 is -5, and must not be negative)",
    ),
    (
        lambda: negated(lambda fd, x: fd.ops.slice(x, [0, 2], [1, 9], manual_normalization=True)),
        "slice of dim 1: the part from 2 to 8 ends behind the dim (x.size(1) - 9 is -6, and must not be negative)",
    ),
    (
        lambda: negated(lambda fd, x: fd.ops.pad(x, [-5, -5])),
        "pad of dim 1: Invalid resized domain extent (x.size(1) - 10 is -7, and must not be negative)",
    ),
]


@pytest.mark.parametrize(("mistake", "text"), CALLS, ids=range(len(CALLS)))
def test_calls_of_a_whole_program(mistake: Callable[[], object], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    with pytest.raises(FuserError) as caught:
        mistake()
    assert caught.value.message == text
    assert caught.value.location is not None
    assert caught.value.location.filename == __file__
    assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}


@pytest.mark.parametrize(
    ("contiguity", "given"),
    [
        (np.float16, "type: write dtype=DataType.Half"),
        (DataType.Half, "DataType: write dtype=DataType.Half"),
        ("C", "'C'"),
    ],
)
def test_a_dtype_in_the_place_of_contiguity(contiguity: Any, given: str) -> None:
    with FusionDefinition() as fd, pytest.raises(FuserError) as caught:
        fd.define_tensor([-1, -1], contiguity)
    assert f"contiguity must be a bool or a sequence of bools, got {given}. Called as" in caught.value.message


def test_execute_of_what_was_scheduled_by_hand(monkeypatch: pytest.MonkeyPatch, unlowered: list[str]) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    fd, _ = doubled(lambda fd, y: y.split(1, 4))
    fd.execute([ROWS])
    fd.execute([ROWS])
    (told,) = unlowered
    assert told.startswith(
        "this fusion was scheduled by hand, and execute() schedules fusions itself: manual_execute()"
    )
    unlowered.clear()


@pytest.mark.parametrize("spelled", [np.float32, np.dtype("f4"), "float32"])
def test_dtypes_are_compared_by_what_they_mean(spelled: Any) -> None:
    assert DataType.Float == spelled
    assert spelled == DataType.Float
    assert DataType.Double != spelled
    assert DataType.Float != np.float16
    assert DataType.Float not in (None, "text", 3)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (np.ones((2, 3)), "shape[0] must be an int, got ndarray: fd.from_array(x) defines an input like an array."),
        (3, "shape must be a sequence, got int: write [3]."),
        ([None, 4], "shape[0] must be an int, got NoneType: -1 takes any size."),
        (("n", 4), "shape[0] must be an int, got str: -1 takes any size."),
    ],
)
def test_shapes_that_are_none(shape: Any, reason: str) -> None:
    with FusionDefinition() as fd, pytest.raises(FuserError) as caught:
        fd.define_tensor(shape)
    assert f"incompatible function arguments. {reason} Called as" in caught.value.message


def test_a_device_of_a_tensor() -> None:
    with FusionDefinition() as fd, pytest.raises(FuserError) as caught:
        fd.define_tensor([-1], device="cuda")  # type: ignore[call-overload]
    assert ": a definition has no device, fd.execute(inputs, device=...) chooses one. Called" in caught.value.message


def test_a_dtype_before_its_value() -> None:
    with FusionDefinition() as fd, pytest.raises(FuserError) as caught:
        fd.define_scalar(DataType.Half, 3.0)  # type: ignore[call-overload]
    assert (
        ". The value comes first, and its dtype after it. Called as define_scalar(DataType, float)"
        in caught.value.message
    )


def test_one_way_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    for first, second in (("execute", "manual_execute"), ("manual_execute", "execute")):
        fd, _ = doubled()
        getattr(fd, first)([ROWS])
        with pytest.raises(
            AssertionError, match="A definition is run in one of the two ways: define it again for the other"
        ):
            getattr(fd, second)([ROWS])


def test_files_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FUSER_TRACEBACK", raising=False)
    missing = tmp_path / "folder" / "p.fuser"
    for call in (lambda: load(missing), lambda: save(HostProgram(("x",), ("x",), (FILL,)), missing)):
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert caught.value.filename == str(missing)
        assert {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)} == {__file__}
