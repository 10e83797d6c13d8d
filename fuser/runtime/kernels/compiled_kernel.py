"""`CompiledKernel`: the one object that crosses from compilation to execution. Immutable and free of any driver.

Its file form is versioned and has a checksum; nothing in a file is executed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import get_args

from fuser.ir.facts import Fact, Facts
from fuser.ir.fusion.fusion import Distribution
from fuser.ir.integers.hashing import sha256
from fuser.ir.kernel.kernel import Buffer, Kernel, Parameter, Role, ShuffleKind, Stmt, Value
from fuser.ir.kernel.kernel_statements import GivenIndex
from fuser.ir.kernel.launch_plan import (
    Binding,
    BlockExchange,
    ExtentOf,
    LaunchPlan,
    ScalarOf,
    ScalarStep,
    StrideOf,
    Workspace,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp, MemoryType, ParallelType
from fuser.ir.record_files import RecordFile
from fuser.missing_names import says_instead
from fuser.records import record
from fuser.runtime.cache.user_files import load_from, save_to
from fuser.runtime.kernels.raw_signature import RawKind, RawParameter
from fuser.source_location import SourceLocation
from fuser.tracebacks import short_traceback


@record
class Resources:
    """What ptxas reported for one entry. Bytes, but `registers` per thread."""

    registers: int
    spill_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    constant_bytes: int = 0


class BlocksBy(Enum):
    """Who says how many blocks a processor must have room for.

    compiler  nobody: ptxas chooses
    schedule  the schedule, for speed, or because all blocks must be there at once
    user      an option of the caller: it is never changed
    spills    nobody asked for so few, but the kernel spills with more, or would have to
    """

    compiler = "the compiler"
    schedule = "its schedule"
    user = "an option"
    spills = "spills"


_LAUNCHED = (
    "a host program launches it: HostProgram(inputs, outputs, (Allocate(...), LaunchKernel(kernel, slots))).run(arrays); "
    "fd.execute(arrays) does all of it for a definition"
)


@says_instead(
    _LAUNCHED,
    {
        **dict.fromkeys(("run", "launch", "execute"), _LAUNCHED),
        **dict.fromkeys(("ptx", "sass", "binary", "code", "text"), "source is its CUDA text, cubin its binary"),
    },
)
@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class CompiledKernel:
    """A compiled kernel.

    source             CUDA text (the same for all variants)
    entry              name of the `extern "C"` entry, or the lowered name of a raw kernel
    arch               `sm_90a`, ...
    cubin              machine code of this binary; None when compiled for the simulator only
    kernel_ir          verified kernel IR, what the simulator runs; None for raw source
    parameters         kernel parameters in order (raw source: parsed declarations)
    plan               launch plan; None for raw source
    facts              what the kernel assumes; checked at every launch
    resources          ptxas report of this binary; None without a cubin
    max_block_size     largest block this binary serves (top of its rung); 0 without a cubin
    register_limit     registers per thread that rung allows
    register_cap       explicit `maxrregcount` below 255, else None
    min_blocks         second launch-bounds argument, 0 for none
    blocks_by          who chose that number
    spilled_with       numbers of blocks, as `min_blocks`, that it was compiled for and with which it spills
    options            every NVRTC option but the bounds
    nvrtc_version      (major, minor) that made the cubin, or None
    content_hash       hex digest of source, options, arch, NVRTC version
    log                NVRTC and ptxas output
    bounded            True if the text carries __launch_bounds__(FUSER_MAX_THREADS); a raw source may not
    fixed_bounds       largest block that a raw source's own launch bounds allow, None if it has none
    name_expression    how NVRTC is asked for the entry of a raw source (`scale<float, 4>`), "" if that is `entry`
    """

    source: str
    entry: str
    arch: str
    cubin: bytes | None
    kernel_ir: Kernel | None
    parameters: tuple[Parameter, ...] | tuple[RawParameter, ...]
    plan: LaunchPlan | None
    facts: Facts
    resources: Resources | None
    max_block_size: int
    register_limit: int
    options: tuple[str, ...]
    nvrtc_version: tuple[int, int] | None
    content_hash: str
    register_cap: int | None = None
    min_blocks: int = 0
    blocks_by: BlocksBy = BlocksBy.compiler
    spilled_with: tuple[int, ...] = ()
    log: str = field(default="", repr=False)
    bounded: bool = True
    fixed_bounds: int | None = None
    name_expression: str = ""

    def __reduce__(self) -> tuple[Callable[[bytes], CompiledKernel], tuple[bytes]]:
        """Pickles hold the file form."""
        return kernel_of_bytes, (KERNEL_FILE.to_bytes(self),)

    def __copy__(self) -> CompiledKernel:
        return self

    def __deepcopy__(self, memo: object) -> CompiledKernel:
        return self

    @short_traceback
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file that `load` reads: versioned, with a checksum, without code of Python.

        Raises OSError where that is not possible.
        """
        save_to(path, KERNEL_FILE, self)

    @staticmethod
    @short_traceback
    def load(path: str | os.PathLike[str]) -> CompiledKernel:
        """The kernel of a file that `save` wrote.

        Raises InputValueError, with the reason, for a file that is damaged, of another version, or no kernel's, and OSError
        for one that cannot be read.
        """
        found = load_from(path, KERNEL_FILE)
        assert isinstance(found, CompiledKernel)
        return found

    @property
    def launch_plan(self) -> LaunchPlan | None:
        """Symbolic grid, block, shared memory and workspaces; None for raw source."""
        return self.plan

    @property
    def blocks_text(self) -> tuple[str, ...]:
        """Sentences about the blocks that it was compiled for: who chose how many, and what it spills all the same."""
        counts = ", ".join(str(n) if n else "as many as ptxas chose" for n in self.spilled_with)
        lines: list[str] = []
        if self.min_blocks:
            who = (
                f"because it spills with {counts or 'more'}"
                if self.blocks_by is BlocksBy.spills
                else f"by {self.blocks_by.value}"
            )
            lines.append(f"compiled for {self.min_blocks} blocks a processor at least, {who}")
        if self.resources is not None and self.resources.spill_bytes and self.spilled_with:
            lines.append(f"spills {self.resources.spill_bytes} bytes; blocks a processor that were tried: {counts}")
        return tuple(lines)


KERNEL_CLASSES: tuple[type, ...] = (
    *(CompiledKernel, Resources, BlocksBy, RawParameter, RawKind),
    *(Kernel, Buffer, Role, ShuffleKind, GivenIndex, SourceLocation),
    *(LaunchPlan, Binding, ExtentOf, StrideOf, ScalarOf, ScalarStep, Workspace, BlockExchange),
    *(DataType, MemoryType, ParallelType, CacheOp, Distribution),
    *(c for union in (Stmt, Value, Parameter, Fact) for c in get_args(union)),
)
"""Those of which a CompiledKernel may consist."""

KERNEL_FILE = RecordFile("kernel", 1, KERNEL_CLASSES)


def kernel_of_bytes(data: bytes) -> CompiledKernel:
    """What a pickle holds. Raises UnreadableError for one of another version."""
    return KERNEL_FILE.from_bytes(data)


def content_hash(
    source: str, options: Sequence[str], arch: str, nvrtc_version: tuple[int, int] | None, entry: str = ""
) -> str:
    """Hex digest of what decides the binary. Every part is length-prefixed, so that no two inputs run together."""
    digest = sha256()()
    for part in (source, arch, repr(nvrtc_version), entry, *options):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
