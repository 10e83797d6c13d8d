"""The names that users gave to the values of a fusion, read off the lines that made them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import DataType, FusionDefinition
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.fusion.user_names import extent_text, input_label, input_list, input_name, value_name

Define = Callable[[FusionDefinition], object]


class Layer:
    """Holds inputs in attributes."""

    weights: list[Any]
    bias: Any

    def define(self, fd: FusionDefinition) -> None:
        self.bias = fd.define_tensor([-1])
        self.weights = [fd.define_tensor([-1]) for _ in range(2)]


def one_each(fd: FusionDefinition) -> None:
    x = fd.define_tensor([-1])
    scale = fd.define_scalar(DataType.Double)
    del x, scale


def over_several_lines(fd: FusionDefinition) -> None:
    x = fd.define_tensor(
        shape=[-1, -1],
        dtype=DataType.Half,
    )
    del x


def annotated(fd: FusionDefinition) -> None:
    x: Any = fd.define_tensor([-1])
    del x


def side_by_side(fd: FusionDefinition) -> None:
    x, y = fd.define_tensor([4]), fd.define_tensor([5])
    del x, y


def comprehended(fd: FusionDefinition) -> None:
    a, b = (fd.define_tensor([n]) for n in (4, 5))
    del a, b


def vectors(fd: FusionDefinition) -> None:
    sizes = fd.define_vector(2)
    n, m = fd.define_vector(2)
    del sizes, n, m


def chained(fd: FusionDefinition) -> None:
    a = b = fd.define_tensor([4])
    del a, b


def nameless(fd: FusionDefinition) -> None:
    fd.add_output(fd.define_tensor([4]) * 2.0)
    y = fd.define_tensor([4]) + 1.0
    z = [fd.define_tensor([4]), fd.define_tensor([4])]
    del y, z


def repeated(fd: FusionDefinition) -> None:
    for n in (4, 5):
        x = fd.define_tensor([n])
        del x


def by_a_function(fd: FusionDefinition) -> None:
    def make() -> Any:
        return fd.define_tensor([4])

    x = make()
    del x


def on_one_line(fd: FusionDefinition) -> None:
    x = fd.define_tensor([4]); y = fd.define_tensor([5])  # noqa: E702  # fmt: skip
    del x, y


def into_attributes(fd: FusionDefinition) -> None:
    Layer().define(fd)


def without_source(fd: FusionDefinition) -> None:
    exec(compile("x = fd.define_tensor([4])", "<nowhere>", "exec"), {"fd": fd})


def fusion_of(define: Define) -> Fusion:
    with FusionDefinition() as fd:
        define(fd)
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


@pytest.mark.parametrize(
    ("define", "names"),
    [
        (one_each, ["x", "scale"]),
        (over_several_lines, ["x"]),
        (annotated, ["x"]),
        (side_by_side, ["x", "y"]),
        (comprehended, ["a", "b"]),
        (vectors, ["sizes[0]", "sizes[1]", "n", "m"]),
        (chained, ["b"]),
        (into_attributes, ["self.bias", "self.weights[0]", "self.weights[1]"]),
        (on_one_line, [None, None]),
        (nameless, [None, None, None, None]),
        (repeated, [None, None]),
        (by_a_function, [None]),
        (without_source, [None]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_names_of_inputs(define: Define, names: list[str | None]) -> None:
    fusion = fusion_of(define)
    assert len(fusion.inputs) == len(names)
    assert [input_name(fusion, i) for i in range(len(names))] == [
        n or v.name for n, v in zip(names, fusion.inputs, strict=True)
    ]
    assert [input_label(fusion, i) for i in range(len(names))] == [
        f"input {i}, {n}" if n else f"input {i}" for i, n in enumerate(names)
    ]
    assert input_list(fusion) == ", ".join(n or f"input {i}" for i, n in enumerate(names))


def test_no_inputs() -> None:
    assert input_list(fusion_of(lambda fd: None)) == "none"


def test_names_of_results() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        y = fd.ops.exp(x) * 2.0
        mean = fd.ops.sum(x, [1]) / x.size(1)
        shifted = fd.ops.neg(y)
        var, avg = fd.ops.var_mean(x, [1])
        rows = [fd.ops.sin(shifted), fd.ops.cos(shifted)]
        for result in (y, mean, shifted, var, avg, *rows):
            fd.add_output(result)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    names = {handle.name: value_name(fusion, handle.node) for handle in fd.fusion.vals()}
    assert names[x.name] == "x"
    assert names[y.name] == f"y ({y.name})"
    assert names[shifted.name] == f"shifted ({shifted.name})"
    named = {x.name, y.name, shifted.name, mean.name}
    assert names[mean.name] == f"mean ({mean.name})"
    assert all(text == name for name, text in names.items() if name not in named)


def test_extents_in_terms_of_inputs() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1])
        n = fd.define_scalar(DataType.Int)
        y = fd.ops.reshape(x, [-1, 5])
        z = fd.ops.full([n], 0.0, DataType.Float)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    assert extent_text(fusion, x.node.visible[1].extent) == "x.size(1)"
    assert extent_text(fusion, y.node.visible[0].extent) == "(x.size(0)*x.size(1))//5"
    assert extent_text(fusion, z.node.visible[0].extent) == "n"
