"""What the front end's tests share: short ways to define, rebuild and evaluate a fusion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.verify_fusion import verify_fusion

NUMPY_DTYPES = (
    DataType.Double,
    DataType.Float,
    DataType.Half,
    DataType.BFloat16,
    DataType.Int,
    DataType.Int32,
    DataType.Bool,
    DataType.ComplexFloat,
    DataType.ComplexDouble,
)


def define(body: Callable[[FusionDefinition], Any]) -> FusionDefinition:
    """A finished definition; values that `body` returns become outputs."""
    with FusionDefinition() as fd:
        results = body(fd)
        if results is not None:
            for result in results if isinstance(results, tuple | list) else (results,):
                fd.add_output(result)
    assert fd.fusion is not None
    verify_fusion(fd.fusion.ir_fusion)
    return fd


def evaluate(fd: FusionDefinition, *inputs: Any) -> list[np.ndarray]:
    """Outputs by the reference evaluator."""
    assert fd.fusion is not None
    return evaluate_fusion(fd.fusion.ir_fusion, inputs)


def rebuild(fd: FusionDefinition) -> FusionDefinition:
    """The definition that the printed text makes."""
    namespace: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": DataType}
    exec(repr(fd), namespace)
    with FusionDefinition() as again:
        namespace["nvfuser_fusion"](again)
    return again


def lines(fd: FusionDefinition) -> list[str]:
    """The body of the printed text, without indentation."""
    return [line.strip() for line in repr(fd).splitlines()[1:]]


def op_names(fd: FusionDefinition) -> list[str]:
    """Names of the ops in the printed text."""
    return [line.partition("fd.ops.")[2].partition("(")[0] for line in lines(fd) if "fd.ops." in line]
