"""Random numbers as CUDA text: it compiles without spills, and a thread calls Philox once for four numbers.

The PTX is counted: a call of Philox has two products of 32 by 32 bits per round, so 20 instructions `mul.hi`. The first round
multiplies the offset, which all elements share, so that further calls have 19.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.codegen.random_functions import RANDOM_FUNCTIONS
from fuser.runtime.kernels import nvrtc

D = DataType
SHAPE = (8192, 1024)
SMALL = (1024, 1024)  # so small that a thread has one access, of Doubles too
FIRST, FURTHER = 20, 19


def source_of(body: Callable[[FusionDefinition, Any], Any], dtype: DataType, shape: tuple[int, ...] = SHAPE) -> str:
    """CUDA text for a fusion of one input, large enough for wide accesses."""
    with FusionDefinition() as fd:
        fd.add_output(body(fd, fd.define_tensor([-1] * len(shape), True, dtype)))
    stages = fd.explain([np.broadcast_to(np.zeros((), dtype.numpy), shape).copy()], file=False).stages
    return stages["kernel.cu"]


def products(text: str) -> int:
    """Instructions `mul.hi` in the PTX of a text."""
    result = nvrtc.compile_to_ptx(text, ["fuser_kernel"], "sm_90a", ["-DFUSER_MAX_THREADS=256"])
    return result.cubin.count(b"mul.hi.u32")


def dropout(fd: FusionDefinition, x: Any) -> Any:
    kept = fd.ops.ge(fd.ops.rand_like(x), 0.1)
    return fd.ops.cast(x * kept * (1 / 0.9), x.dtype())


@pytest.fixture(autouse=True)
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")


# Elements that a thread takes in one access of 16 bytes, and the calls of Philox that serve them.
@pytest.mark.parametrize(
    ("dtype", "calls", "shape"), [(D.BFloat16, 2, SHAPE), (D.Half, 2, SHAPE), (D.Float, 1, SHAPE), (D.Double, 1, SMALL)]
)
def test_a_call_serves_four_numbers(dtype: DataType, calls: int, shape: tuple[int, ...]) -> None:
    assert products(source_of(dropout, dtype, shape)) == FIRST + (calls - 1) * FURTHER


def test_a_pair_of_normal_numbers_shares_its_logarithm() -> None:
    text = source_of(lambda fd, x: fd.ops.add(x, fd.ops.randn_like(x)), D.Float)
    assert products(text) == FIRST
    ptx = nvrtc.compile_to_ptx(text, ["fuser_kernel"], "sm_90a", ["-DFUSER_MAX_THREADS=256"]).cubin.decode()
    assert len(re.findall(r"\brsqrt\.", ptx)) == 2
    assert len(re.findall(r"\bbra\b", ptx)) <= 1


def with_calls_apart(text: str) -> str:
    """The text with another counter for every element, so that no two of them can share a call."""
    call = re.compile(r"fuser_philox\(rng_seed, rng_offset, (.*)\), (\w+) % 4\)")
    apart, found = call.subn(r"fuser_philox(rng_seed, rng_offset, 4 * (long long)(\1) + \2 % 4), \2 % 4)", text)
    assert found
    return apart


def row_sums(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(dropout(fd, x), [1])


def column_sums(fd: FusionDefinition, x: Any) -> Any:
    return fd.ops.sum(dropout(fd, x), [0])


def softmax(fd: FusionDefinition, x: Any) -> Any:
    e = fd.ops.exp(fd.ops.sub(x, fd.ops.max(x, [1], True)))
    return dropout(fd, fd.ops.cast(fd.ops.div(e, fd.ops.sum(e, [1], True)), D.BFloat16))


@pytest.mark.parametrize("body", [row_sums, column_sums, softmax])
@pytest.mark.parametrize("columns", [1024, 8192])
def test_calls_are_shared_in_reductions(body: Callable[[FusionDefinition, Any], Any], columns: int) -> None:
    """Whatever the loops around them are, elements of a vector share calls: a row starts at a multiple of the vector."""
    text = source_of(body, D.BFloat16, (512, columns))
    # Calls apart still have in common what depends on the offset alone.
    assert products(with_calls_apart(text)) > 3 * products(text)


def test_numbers_without_any_input() -> None:
    """Outputs of constant extents are written in vectors, so calls are shared there, too."""
    with FusionDefinition() as fd:
        fd.add_output(fd.ops.uniform(0.0, 1.0, list(SHAPE), dtype=D.Half))
    text = fd.explain([], file=False).stages["kernel.cu"]
    assert "uint4" in text
    assert products(text) == FIRST + FURTHER


def test_uniform_numbers_in_0_to_1_are_not_scaled() -> None:
    text = source_of(lambda fd, x: fd.ops.add(x, fd.ops.rand_like(x)), D.Float)
    assert "fuser_standard_uniform_float(" in text
    assert "fuser_uniform_float" not in text
    text = source_of(lambda fd, x: fd.ops.add(x, fd.ops.uniform(0.0, 2.0, x.shape())), D.Float)
    assert "fuser_uniform_float(" in text


def test_texts_without_random_numbers_have_none_of_it() -> None:
    text = source_of(lambda fd, x: fd.ops.add(x, 1.0), D.Float)
    assert not any(name in text for name in RANDOM_FUNCTIONS)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120a"])
def test_every_function_compiles(arch: str) -> None:
    """Every distribution in every dtype, standard or not, without spills and without a stack frame."""

    def body(fd: FusionDefinition, x: Any) -> Any:
        total = x
        for dtype in (D.Float, D.Double, D.Half, D.BFloat16):
            for op in (fd.ops.uniform, fd.ops.normal):
                for parameters in ((0.0, 1.0), (-1.5, 2.5)):
                    total = total + fd.ops.cast(op(*parameters, x.shape(), dtype=dtype), D.Float)
        return total

    text = source_of(body, D.Float, (64, 64))
    assert all(name in text for name in RANDOM_FUNCTIONS)
    result = nvrtc.compile_to_cubin(text, ["fuser_kernel"], arch, ["-DFUSER_MAX_THREADS=256"])
    resources = result.resources["fuser_kernel"]
    assert resources.spill_bytes == resources.stack_bytes == 0
    assert "warning" not in result.log
