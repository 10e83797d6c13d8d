"""Comparisons of floats stay in the machine code where ptxas knows bounds of what is compared: nan has none.

Read without a disassembler: the opcode of an instruction is in the last bits of its 16 bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np
import pytest

from fuser.codegen.device_functions import function_closure
from fuser.ir.ops.cuda_spelling import CUDA_TYPES, CudaSpelling
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import POINTWISE, cuda_literal, device_names
from fuser.runtime.kernels import nvrtc
from tests.judging.accuracy import Array

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

# What has bounds although it may be nan, and the same in NumPy.
BOUNDED: dict[str, Callable[[Array], Array]] = {
    "fabsf(x)": np.abs,
    "(- fabsf(x))": lambda x: -np.abs(x),
    "(x * x)": np.square,
    "(fabsf(x) + 1.0f)": lambda x: np.abs(x) + 1,
    "(-1.0f - fabsf(x))": lambda x: -1 - np.abs(x),
    "exp2f(x)": np.exp2,
}
CONSTANTS = (-0.5, 0.0, 2.0)
SAMPLES = np.array([-9.0, -1.0, -0.25, 0.0, 0.25, 1.0, 9.0, np.nan], np.float32)

FSETP, FSET, FMNMX, DSETP = 0x00B, 0x00A, 0x009, 0x02A
COMPARING = {FSETP, FSET, FMNMX, DSETP}


def opcodes(cubin: bytes, entry: str) -> list[int]:
    """The opcodes of a kernel of sm_90 in order, without the bits that say where operands come from."""
    sections_at, size, count, names = struct.unpack_from("<Q10xHHH", cubin, 40)
    headers = [struct.unpack_from("<IIQQQQ", cubin, sections_at + i * size) for i in range(count)]
    (found,) = (h for h in headers if _name(cubin, headers[names][4] + h[0]) == f".text.{entry}")
    code = cubin[found[4] : found[4] + found[5]]
    return [struct.unpack_from("<H", code, at)[0] & 0x1FF for at in range(0, len(code), 16)]


def _name(cubin: bytes, at: int) -> str:
    return cubin[at : cubin.index(b"\0", at)].decode()


def texts(dtype: DataType) -> dict[str, str]:
    """Comparing ops of a bounded value and constants, as the op table writes them, where not all results are the same."""
    found: dict[str, str] = {}
    for bounded, function in BOUNDED.items():
        text = bounded if dtype is DataType.Float else f"(double){bounded}"
        values = function(SAMPLES).astype(dtype.numpy)

        def add(
            op: str, *operands: float | None, name: str = bounded, text: str = text, values: Array = values
        ) -> None:
            """`None` stands for the bounded value."""
            row = POINTWISE[op]
            results = row.numpy(*(values if o is None else np.full_like(values, o) for o in operands))
            if not np.array_equal(results, np.full_like(results, results[-1]), equal_nan=results.dtype.kind == "f"):
                what = f"{op}({', '.join(name if o is None else str(o) for o in operands)})"
                written = [text if o is None else cuda_literal(o, dtype) for o in operands]
                found[what] = row.cuda(dtype).apply(*written)

        add("relu", None)
        for c in CONSTANTS:
            for op in ("lt", "le", "gt", "ge", "maximum", "minimum"):
                add(op, None, c)
                add(op, c, None)
            add("threshold", None, c, 7.0)
            add("clamp", None, c, c + 1)
    return found


def kernel(name: str, dtype: DataType, text: str) -> str:
    """A kernel that stores a value of one element `x`."""
    result = CUDA_TYPES[dtype]
    return f"""extern "C" __global__ void {name}(const float* in, {result}* out) {{
  float x = in[threadIdx.x];
  out[threadIdx.x] = {text};
}}"""


def compared(dtype: DataType, written: dict[str, str]) -> dict[str, bool]:
    """By text: whether the machine code compares anything."""
    kernels = [kernel(f"k{i}", dtype, text) for i, text in enumerate(written.values())]
    functions = function_closure(device_names("\n".join(kernels)))
    entries = [f"k{i}" for i in range(len(kernels))]
    cubin = nvrtc.compile_to_cubin("\n".join((*functions, *kernels)), entries, "sm_90a").cubin
    return {what: not COMPARING.isdisjoint(opcodes(cubin, entry)) for what, entry in zip(written, entries, strict=True)}


def test_the_machine_code_is_read():
    given = {"none": "x + 1.0f", "one": "x > 1.0f ? 2.0f : x", "of nan": "x != x ? 2.0f : x"}
    assert compared(DataType.Float, given) == {"none": False, "one": True, "of nan": True}


@pytest.mark.parametrize("dtype", [DataType.Float, DataType.Double], ids=lambda d: d.name)
def test_comparisons_stay(dtype: DataType):
    """|nan| > -1 is False, and relu(-|nan|) is nan."""
    found = compared(dtype, texts(dtype))
    assert len(found) > 150
    assert [what for what, stays in found.items() if not stays] == []


def test_texts_of_floats_have_no_ordered_comparison():
    """A new row that compares is to use what the rows above do."""
    for row in POINTWISE.values():
        for dtype in (DataType.Float, DataType.Double):
            try:
                spelling: CudaSpelling = row.cuda(dtype)
            except TypeError:
                continue
            if row.name != "isfinite":  # an infinite constant is beyond no bound
                assert re.search(r" [<>]=? ", spelling.template) is None, row.name
