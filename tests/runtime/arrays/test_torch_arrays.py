"""Tensors of torch, without torch: what is asked of the module by name."""

from __future__ import annotations

import subprocess
import sys

from fuser.ir.ops.dtypes import DataType, numpy_dtype

CODE = """
import sys, types
torch = sys.modules["torch"] = types.ModuleType("torch")
names = "float64 float32 float16 bfloat16 int64 int32 uint64 bool complex64 complex128".split()
for name in names:
    setattr(torch, name, f"torch.{name}")
from fuser.ir.ops.dtypes import DataType
from fuser.runtime.arrays.torch_arrays import torch_dtype
print(*(torch_dtype(d) for d in DataType if d.is_supported))
assert "ml_dtypes" not in sys.modules
"""


def test_types_of_torch_are_found_without_those_of_numpy() -> None:
    """What NumPy lacks costs an import, which a program of torch tensors does not need."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    wanted = [f"torch.{numpy_dtype(d).name}" for d in DataType if d.is_supported]
    assert done.stdout.split() == wanted
    assert "torch.bfloat16" in wanted


def test_stored_names_are_those_of_numpy() -> None:
    for dtype in DataType:
        if dtype is not DataType.Null:
            assert numpy_dtype(dtype).name == dtype.stored_name
