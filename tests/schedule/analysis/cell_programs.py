"""Definitions whose innermost dims are few elements, the texts of their kernels, and the accesses of those."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.compiler.bind_inputs import bind_inputs
from fuser.compiler.compile_fusion import compile_fusion
from fuser.compiler.recorder import KeepingRecorder
from fuser.ir.device_info import DeviceInfo
from fuser.ir.facts import TensorDescriptor
from fuser.ir.ops.dtypes import DataType as Type
from fuser.schedule.params import PointwiseParams

BFloat16, Float, Int32 = DataType.BFloat16, DataType.Float, DataType.Int32


class TextOnly:
    """A device that no machine code is made for."""

    kind, index = "simulator", 0
    info = DeviceInfo.preset("H200")


def dense(*sizes: int, dtype: Type = BFloat16) -> TensorDescriptor:
    strides = [int(np.prod(sizes[k + 1 :])) for k in range(len(sizes))]
    return TensorDescriptor(dtype, sizes, tuple(strides), 256, 0)


def sources(define: Callable[[Any], Sequence[Any]], inputs: Sequence[TensorDescriptor]) -> list[str]:
    """The bodies of the kernels for an H200."""
    with FusionDefinition() as fd:
        for t in define(fd):
            fd.add_output(t)
    assert fd.fusion is not None
    fusion = fd.fusion.ir_fusion
    recorder = KeepingRecorder()
    device: Any = TextOnly()
    compile_fusion(fusion, bind_inputs(fusion, list(inputs)), device, recorder=recorder)
    texts = [text for name, text in recorder.stages.items() if name.endswith("kernel.cu")]
    return [text[text.index('extern "C"') :] for text in texts]


def accesses(body: str) -> tuple[list[int], list[int]]:
    """Bytes of the statements that load from arguments, and of those that store to them."""
    arguments = re.findall(r"(\w+)[,)]", body[: body.index("{")])
    sizes = {"uint4": 16, "uint2": 8, "unsigned int": 4, "unsigned short": 2}
    loads, stores = list[int](), list[int]()
    for statement in body[body.index("{") :].split(";"):
        for side, found in zip(statement.partition(" = ")[::2], (stores, loads), strict=True):
            for name in arguments:
                wide = re.search(rf"reinterpret_cast<(?:const )?([a-z0-9 ]+)\*>\(&{name}\[", side)
                if wide is not None:
                    found.append(sizes[wide[1]])
                elif re.search(rf"(?<![\w&]){name}\[", side):
                    found.append(0)
    return loads, stores


def stacked(fd: Any, parts: Sequence[Any], shape: Sequence[int]) -> Any:
    lead = list(range(len(shape)))
    return fd.ops.cat([fd.ops.broadcast_in_dim(p, [*shape, 1], lead) for p in parts], len(shape))


def element(fd: Any, t: Any, shape: Sequence[int], k: int) -> Any:
    n = len(shape)
    return fd.ops.squeeze(fd.ops.slice(t, [0] * n + [k], [*shape, k + 1]), [n])


def doubled(fd: Any, t: Any) -> Any:
    return fd.ops.cast(fd.ops.cast(t, Float) * 2.0, BFloat16)


def interleaved_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        parts = [fd.ops.abs(fd.define_tensor([-1, -1], True, dtype)) for _ in range(k)]
        return [fd.ops.reshape(fd.ops.cast(stacked(fd, parts, [4096, 2048]), dtype), [4096, 2048 * k])]

    return define


def taken_apart_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        x = fd.ops.reshape(fd.define_tensor([-1, -1], True, dtype), [4096, 2048, k])
        return [fd.ops.cast(fd.ops.abs(element(fd, x, [4096, 2048], i)), dtype) for i in range(k)]

    return define


def repeated_of(dtype: DataType, k: int) -> Callable[[Any], list[Any]]:
    def define(fd: Any) -> list[Any]:
        x = fd.ops.cast(fd.ops.abs(fd.define_tensor([-1, -1], True, dtype)), dtype)
        t = fd.ops.expand(fd.ops.broadcast_in_dim(x, [4096, 2048, 1], [0, 1]), [4096, 2048, k])
        return [fd.ops.reshape(t, [4096, 2048 * k])]

    return define


KINDS = {"interleaved": interleaved_of, "taken apart": taken_apart_of, "repeated": repeated_of}


def tiles(monkeypatch: pytest.MonkeyPatch) -> list[PointwiseParams]:
    """Where choices with inner tiles are noted from now on."""
    pointwise = importlib.import_module("fuser.schedule.schedulers.pointwise")
    seen: list[PointwiseParams] = []
    choose = pointwise._params_with_inner_tile  # noqa: SLF001

    def kept(*arguments: Any) -> PointwiseParams | None:
        found: PointwiseParams | None = choose(*arguments)
        seen.extend([found] if found is not None else [])
        return found

    monkeypatch.setattr(pointwise, "_params_with_inner_tile", kept)
    return seen
