"""What `inspect.signature` and `help` know of ops."""

import inspect
import pydoc
from typing import Any

import pytest

from fuser import DataType, ops
from fuser.frontend.methods import METHODS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("exp", "(x: TensorView | Val | number, /) -> TensorView | Val"),
        ("add", "(lhs: TensorView | Val | number, rhs: TensorView | Val | number, /) -> TensorView | Val"),
        (
            "sum",
            "(arg: TensorView, dims: Sequence[int] = None, keepdim: bool = False, dtype: DataType = DataType.Null, "
            "*, dim: int = None) -> TensorView",
        ),
        ("permute", "(arg: TensorView, dims: Sequence[int]) -> TensorView"),
        (
            "normal",
            "(mean: Val | number, std: Val | number, shape: Sequence[Val | int], *, rng_seed: Val | int | None = None, "
            "rng_offset: Val | int | None = None, dtype: DataType = DataType.Float) -> TensorView",
        ),
    ],
)
def test_signatures(name: str, text: str) -> None:
    assert str(inspect.signature(ops.OPS[name])) == text


@pytest.mark.parametrize("name", sorted(set(ops.OPS) - set(ops.UNSUPPORTED)))
def test_every_op(name: str) -> None:
    op = ops.OPS[name]
    signature = inspect.signature(op)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not p.empty for p in signature.parameters.values())
    # Defaults are the values that the op takes for the arguments.
    for p in signature.parameters.values():
        assert p.default is p.empty or p.default is None or isinstance(p.default, bool | int | DataType), p
    assert pydoc.plain(pydoc.render_doc(op)).splitlines()[2].startswith(f"{name}({next(iter(signature.parameters))}: ")


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method(name: str) -> None:
    method: Any = METHODS[name]
    assert inspect.getdoc(method)
    assert next(iter(inspect.signature(method).parameters.values())).annotation in (
        "TensorView",
        "TensorView | Val | number",
    )


def test_the_text_is_what_the_function_takes() -> None:
    """Parameters, kinds and defaults of ops that are written out are those of their text."""
    for name, op in ops.OPS.items():
        written = getattr(op, "__wrapped__", None)
        overloads: tuple[str, ...] = getattr(op, "overloads", ())
        if written is None or len(overloads) != 1 or written.__name__ == "op":
            continue
        for taken, said in zip(
            inspect.signature(written).parameters.values(), inspect.signature(op).parameters.values(), strict=True
        ):
            assert (taken.name, taken.kind, taken.default) == (said.name, said.kind, said.default), name
