"""Instructions of host programs.

Grammar
    program     := HostProgram(inputs, outputs, instructions)
    instruction := Allocate(slot, shape, dtype, strides)      new uninitialised memory
                 | Deallocate(slot)                           its memory may be reused; no later use
                 | Alias(slot, of, sizes, strides, offset)    another view of the memory of `of`
                 | Copy(dst, src)                             elementwise, any layouts of equal shape
                 | Fill(slot, value)                          every element
                 | LaunchKernel(kernel, args, launch)
    slot        := name of an input (array or number) or of what Allocate or Alias made
    arg         := slot | number | size

Slots hold tensors in device memory, or numbers. Shapes and strides are sizes (`expressions.py`), strides and offsets in
elements. Instructions run in order on one stream; memory and numbers are all that passes from one to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuser.errors import DefinitionTypeError
from fuser.host_ir.expressions import Size, as_size, as_sizes
from fuser.ir.dtypes import DataType, as_dtype
from fuser.ir.integers import Int
from fuser.records import record
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from fuser.runtime.launch_params import LaunchParams

Argument = str | bool | int | float | complex | Int


@short_tracebacks
@record
class Allocate:
    """New memory for a tensor: row major, unless `strides` (not negative) are given."""

    slot: str
    shape: tuple[Size, ...]
    dtype: DataType
    strides: tuple[Size, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes(self.shape, "Allocate"))
        dtype = as_dtype(self.dtype)
        if dtype is None or not dtype.itemsize:
            raise DefinitionTypeError(f"Allocate takes a DataType, got {self.dtype!r}")
        object.__setattr__(self, "dtype", dtype)
        if self.strides is not None:
            object.__setattr__(self, "strides", as_sizes(self.strides, "Allocate"))


@short_tracebacks
@record
class Deallocate:
    """The end of a slot that Allocate made, and of every alias of it."""

    slot: str


@short_tracebacks
@record
class Alias:
    """`slot` is the memory of `of`, seen with another layout `offset` elements further on; None keeps what `of` has.

    New sizes without strides are row major.
    """

    slot: str
    of: str
    sizes: tuple[Size, ...] | None = None
    strides: tuple[Size, ...] | None = None
    offset: Size = 0

    def __post_init__(self) -> None:
        if self.sizes is not None:
            object.__setattr__(self, "sizes", as_sizes(self.sizes, "Alias"))
        if self.strides is not None:
            object.__setattr__(self, "strides", as_sizes(self.strides, "Alias"))
        object.__setattr__(self, "offset", as_size(self.offset, "Alias"))


@short_tracebacks
@record
class Copy:
    """Elements of `src` into `dst`, of the same shape and dtype. If the two overlap, `src` is read as it was before."""

    dst: str
    src: str


@short_tracebacks
@record
class Fill:
    """One value into every element, converted to the slot's dtype."""

    slot: str
    value: bool | int | float | complex


@short_tracebacks
@record
class LaunchKernel:
    """Run a kernel.

    args    a planned kernel's tensor inputs, then its outputs, then its user scalars; a raw kernel's parameters.
            Numbers may be expressions of extents
    launch  None: the kernel's own plan. A planned kernel's launch sizes must agree with those set here; a raw kernel
            has no plan and needs them

    `kernel` is a CompiledKernel, or a raw kernel that was compiled.
    """

    kernel: CompiledKernel
    args: tuple[Argument, ...]
    launch: LaunchParams | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, CompiledKernel):
            object.__setattr__(self, "kernel", _kernel_of(self.kernel))
        if isinstance(self.args, str) or not isinstance(self.args, Sequence):
            raise DefinitionTypeError(f"LaunchKernel takes a sequence of slots and numbers, got {self.args!r}")
        object.__setattr__(self, "args", tuple(self.args))
        for arg in self.args:
            if not isinstance(arg, (str, bool, int, float, complex, Int)):
                raise DefinitionTypeError(
                    f"an argument of LaunchKernel is the name of a slot, a number or a size, got {arg!r}"
                )


def _kernel_of(kernel: object) -> CompiledKernel:
    """The compiled kernel of an RtcKernel. Raises LaunchError if it is not compiled yet."""
    from fuser.runtime.rtc_kernel import RtcKernel

    if not isinstance(kernel, RtcKernel):
        raise DefinitionTypeError(
            f"LaunchKernel takes a CompiledKernel or a compiled RtcKernel, got {type(kernel).__name__}"
        )
    return kernel.kernel


Instruction = Allocate | Deallocate | Alias | Copy | Fill | LaunchKernel
