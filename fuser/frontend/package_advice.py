"""What to write instead of a name that the package does not export, as in `fuser.jit` or `fuser.exp`."""

from __future__ import annotations

from collections.abc import Collection

from fuser.frontend.advice import ABSENT, RECIPES, RENAMED, advice_on
from fuser.frontend.ops import OPS
from fuser.ir.ops.dtypes import DataType, as_dtype
from fuser.missing_names import like_names

_WHOLE_PACKAGE: dict[str, str] = {
    **dict.fromkeys(
        ("jit", "compile", "fuse", "fusion", "trace", "function", "kernel"),
        "a fusion is defined in `with fuser.FusionDefinition() as fd:` and run by fd(x)",
    ),
    **dict.fromkeys(
        ("Tensor", "tensor", "array", "asarray", "from_numpy", "placeholder"),
        "fd.define_tensor(shape) defines an input; its values are an array of NumPy, torch, CuPy or JAX",
    ),
    **dict.fromkeys(
        ("cuda", "device", "set_device"), "fd.execute(inputs, device=...) and FUSER_DEVICE choose a device"
    ),
    **dict.fromkeys(("Alloc", "Empty", "Malloc"), "fuser.Allocate makes memory for a slot"),
    **dict.fromkeys(("For", "Loop", "While"), "fuser.ForLoop runs a body as often as `range` says"),
    **dict.fromkeys(("Launch", "Call"), "fuser.LaunchKernel runs a kernel"),
    **dict.fromkeys(
        ("execute", "run", "launch", "call"), "fd.execute([x, y]) runs a definition, program.run([x, y]) a host program"
    ),
    **dict.fromkeys(
        ("nn", "functional", "F", "numpy", "np", "math", "lax", "jnp"), "ops belong to a definition: fd.ops"
    ),
    **dict.fromkeys(("tune", "autotune"), "fd.execute(inputs, tune=True) measures candidates on a GPU"),
    **dict.fromkeys(("seed", "random", "set_seed"), "fuser.manual_seed(seed) seeds the generator of random numbers"),
    "Kernel": "fuser.RtcKernel compiles CUDA text, fuser.KernelCompiler a definition",
    "Program": "fuser.HostProgram is a sequence of instructions, fd.program(inputs) that of a definition",
}
"""What other packages have under such a name, and what does that here."""


def advice_on_package(name: str, exports: Collection[str]) -> str:
    """The end of a message about a name that the package does not export: the dtype, the op or the exports it may mean."""
    if name in _WHOLE_PACKAGE:
        return f"; {_WHOLE_PACKAGE[name]}"
    if name.lower() in {**RENAMED, **RECIPES, **ABSENT, **OPS} and name not in OPS:
        name = name.lower()
    dtype = DataType.__members__.get(name) or as_dtype(name)
    if dtype is not None:
        return f"; did you mean fuser.{dtype!r}?"
    if name in OPS or name in RENAMED or name in RECIPES or name in ABSENT:
        return (
            f": ops belong to a definition, fd.ops.{name}, or from fuser.ops import {name}"
            if name in OPS
            else advice_on(name, OPS, "fd.ops.")
        )
    close = like_names(name, exports)[:1]
    return f"; did you mean fuser.{close[0]}?" if close else ""
