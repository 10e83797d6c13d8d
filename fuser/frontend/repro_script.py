"""Programs that define a fusion again and execute it on inputs like the given ones.

Grammar
    script := comment* import* definition with-block [inputs execute]
    inputs := `inputs = [` line* `]`                 one line per input: a constructor of its layout, or an exact literal
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fuser.frontend.fusion_handle import Fusion
from fuser.frontend.input_descriptors import FakeInput, describe_inputs
from fuser.frontend.translate import translate_fusion
from fuser.ir.fusion.print_fusion import literal
from fuser.ir.ops.dtypes import DataType


def repro_script(fusion: Fusion, inputs: Iterable[Any] | None = None, package: str = "fuser") -> str:
    """A complete program; with `inputs` (arrays, numbers, or what `fake_inputs` holds) it also executes.

    Inputs are made by torch if one of them is a torch tensor or the program imported torch and hands in no tensor, else
    by NumPy. `package` is what FusionDefinition and DataType are imported from.
    """
    described = None if inputs is None else _described(inputs)
    tensors = [d for d in described or [] if isinstance(d, FakeInput)]
    with_torch = any(t.kind == "torch" for t in tensors) or (not tensors and "torch" in sys.modules)
    lines = [*_comments(tensors, with_torch), *_imports(tensors, with_torch, package), ""]
    lines += [translate_fusion(fusion), "with FusionDefinition() as fd:", "    nvfuser_fusion(fd)"]
    if described is not None:
        lines += ["", "inputs = ["]
        lines += [f"    {_input_text(d, with_torch)}," for d in described]
        lines += ["]", "fd.execute(inputs)"]
    return "\n".join(lines) + "\n"


def _described(inputs: Iterable[Any]) -> list[object]:
    flat: list[object] = []
    for value in inputs:
        flat.extend([value] if isinstance(value, FakeInput) else describe_inputs([value]))
    return flat


def _comments(tensors: Sequence[FakeInput], with_torch: bool) -> list[str]:
    devices = ", ".join(dict.fromkeys(t.device for t in tensors)) or "none"
    comments = [f"# devices of the inputs: {devices}"]
    torch: Any = sys.modules.get("torch")
    if with_torch and torch is not None:
        comments.append(f"# torch {torch.__version__}, built for CUDA {torch.version.cuda}")
    from fuser.runtime.driver import driver_version

    major, minor = driver_version()
    comments.append(f"# CUDA driver: {major}.{minor}" if major else "# CUDA driver: none")
    return comments


def _imports(tensors: Sequence[FakeInput], with_torch: bool, package: str) -> list[str]:
    lines = ["import torch"] if with_torch else []
    if tensors and not with_torch:
        if any(_is_foreign(t.dtype) for t in tensors):
            lines.append("import ml_dtypes")
        lines.append("import numpy")
    return [*lines, f"from {package} import FusionDefinition, DataType"]


def _is_foreign(dtype: DataType) -> bool:
    """Whether NumPy needs ml_dtypes for a dtype."""
    return dtype.is_reduced_float and dtype is not DataType.Half


def _input_text(described: object, with_torch: bool) -> str:
    if isinstance(described, FakeInput):
        return _torch_text(described) if with_torch else _numpy_text(described)
    assert isinstance(described, bool | int | float | complex)
    return literal(described)


def _span(t: FakeInput) -> int:
    """Elements from the first to past the last one stored."""
    if 0 in t.shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride, strict=True))


def _is_dense(t: FakeInput) -> bool:
    """Whether the tensor is row major without gaps; size-1 dims may have any stride."""
    expected = 1
    for n, stride in zip(reversed(t.shape), reversed(t.stride), strict=True):
        if n != 1 and stride != expected:
            return 0 in t.shape
        expected *= n
    return True


def _torch_text(t: FakeInput) -> str:
    dtype = "int64" if t.dtype is DataType.Index else t.dtype.numpy.name
    dtype = "bool" if t.dtype is DataType.Bool else dtype
    where = f"dtype=torch.{dtype}, device='{t.device}'"
    if _is_dense(t):
        return f"torch.testing.make_tensor({t.shape}, {where})"
    layout = f".as_strided({t.shape}, {t.stride})"
    if t.dtype.is_floating or t.dtype.is_complex:
        return f"torch.randn({_span(t)}, {where}){layout}"
    high = 2 if t.dtype is DataType.Bool else 10
    return f"torch.randint(0, {high}, ({_span(t)},), {where}){layout}"


def _numpy_text(t: FakeInput) -> str:
    dtype = f"ml_dtypes.{t.dtype.numpy.name}" if _is_foreign(t.dtype) else repr(t.dtype.numpy.name)
    dense = _is_dense(t)
    shape = t.shape if dense else (_span(t),)
    if t.dtype.is_floating or t.dtype.is_complex:
        values = f"numpy.random.standard_normal({shape})"
    else:
        values = f"numpy.random.randint(0, {2 if t.dtype is DataType.Bool else 10}, {shape})"
    # A rank-0 draw is a number, which has no layout of its own.
    array = f"numpy.asarray({values}, dtype={dtype})" if not t.shape else f"{values}.astype({dtype})"
    if dense:
        return array
    strides = tuple(s * t.dtype.itemsize for s in t.stride)
    return f"numpy.lib.stride_tricks.as_strided({array}, {t.shape}, {strides})"
