"""Keyword arguments of a wrong name: the error names the one that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fuser import FusionDefinition
from fuser.errors import DefinitionTypeError

CALLS: list[tuple[Callable[[FusionDefinition, Any], object], str, str]] = [
    (lambda fd, x: fd.ops.sum(x, axis=1), "axis", "dim"),
    (lambda fd, x: fd.ops.sum(x, axes=[1]), "axes", "dims"),
    (lambda fd, x: fd.ops.max(x, [1], keepdims=True), "keepdims", "keepdim"),
    (lambda fd, x: fd.ops.var(x, [1], ddof=1), "ddof", "correction"),
    (lambda fd, x: fd.ops.permute(x, axes=[1, 0]), "axes", "dims"),
    (lambda fd, x: fd.ops.reshape(x, shape=[6]), "shape", "new_shape"),
    (lambda fd, x: fd.define_tensor(shape=[2], contiguous=True), "contiguous", "contiguity"),
    (lambda fd, x: fd.define_tensor(shape=[2], dtpye=None), "dtpye", "dtype"),
]


@pytest.mark.parametrize(("call", "given", "meant"), CALLS, ids=[f"{c[1]}-{c[2]}" for c in CALLS])
def test_the_argument_that_was_meant(call: Callable[[FusionDefinition, Any], object], given: str, meant: str) -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 3], True)
        with pytest.raises(DefinitionTypeError, match=rf"'{given}'.*; did you mean '{meant}'\? Called as "):
            call(fd, x)


def test_no_name_is_like_it() -> None:
    with FusionDefinition() as fd:
        x = fd.define_tensor([2, 3], True)
        with pytest.raises(DefinitionTypeError) as caught:
            fd.ops.cat([x, x], where=1)
    assert caught.value.message == (
        "cat(): incompatible function arguments. cat() got an unexpected keyword argument 'where'. "
        "Called as cat(list[TensorView], where=int); supported:\n"
        "    cat(tensors: Sequence[TensorView], dim: int = 0, manual_padding: bool = False) -> TensorView"
    )
