"""Programs that outlive their process: `save` writes one to a file, `load` reads it where there is no compiler.

A file has the host program, its kernels with their kernel IR, text and binary, and the variants that were made of them. It is
versioned and has a checksum (`ir/record_files.py`); nothing in it is executed when it is read.
"""

from __future__ import annotations

import os
from typing import get_args

from fuser.errors import InputTypeError, InputValueError, LaunchError, VariantUnavailableError
from fuser.host_ir.instructions.instructions import Instruction
from fuser.host_ir.program import HostProgram
from fuser.ir.record_files import ByHand, RecordFile
from fuser.records import record
from fuser.runtime.cache.user_files import load_from, save_to
from fuser.runtime.kernels.compiled_kernel import KERNEL_CLASSES, CompiledKernel
from fuser.runtime.kernels.launch_params import LaunchParams
from fuser.runtime.kernels.variants import MAX_BLOCK, RUNGS, VARIANTS, Binary, KernelVariants, rung_of
from fuser.tracebacks import short_traceback


@record
class SavedProgram:
    """What a file holds. `variants` has the binaries of each kernel besides its own."""

    program: HostProgram
    variants: tuple[tuple[CompiledKernel, tuple[Binary, ...]], ...]


def _launch_parts(launch: LaunchParams) -> tuple[object, ...]:
    return tuple(launch.extents), launch.shared, launch.cluster


def _launch_of(extents: tuple[int, ...], shared: int, cluster: tuple[int, int, int] | None) -> LaunchParams:
    return LaunchParams(*extents, shared=shared, cluster=cluster)


PROGRAM_FILE = RecordFile(
    "program",
    1,
    (SavedProgram, Binary, *get_args(Instruction), *KERNEL_CLASSES),
    {
        HostProgram: ByHand(
            ("inputs", "outputs", "instructions"), lambda p: (p.inputs, p.outputs, p.instructions), HostProgram
        ),
        LaunchParams: ByHand(("extents", "shared", "cluster"), _launch_parts, _launch_of),
    },
)


@short_traceback
def save(program: HostProgram, path: str | os.PathLike[str], max_threads: int | None = None) -> None:
    """Write a program to a file that `load` reads, in this process or another, with or without a compiler.

    program      as `fd.program(inputs)` gives it, or built by hand
    max_threads  the file has the binaries that were made for its kernels so far; with a number, also those for all blocks
                 of up to so many threads, which NVRTC makes now. A program that was compiled for the simulator has none

    Raises InputTypeError and InputValueError for other arguments, OSError where the file cannot be written, and, with
    `max_threads`, VariantUnavailableError without NVRTC and CompilationError for a kernel that it refuses.
    """
    if not isinstance(program, HostProgram):
        raise InputTypeError(
            f"save() takes a HostProgram, as fd.program(inputs) gives it, and a path, got {type(program).__name__}"
        )
    if max_threads is not None and (type(max_threads) is not int or not 1 <= max_threads <= MAX_BLOCK):
        raise InputValueError(f"max_threads is a number of threads from 1 to {MAX_BLOCK}, got {max_threads!r}")
    variants: list[tuple[CompiledKernel, tuple[Binary, ...]]] = []
    for kernel in program.kernels.values():
        if max_threads is not None:
            _make_binaries(VARIANTS, kernel, max_threads)
        others = tuple(b for b in VARIANTS.binaries_of(kernel) if b.cubin is not kernel.cubin)
        if others:
            variants.append((kernel, others))
    save_to(path, PROGRAM_FILE, SavedProgram(program, tuple(variants)))


@short_traceback
def load(path: str | os.PathLike[str]) -> HostProgram:
    """The program of a file that `save` wrote.

    Its kernels run as they are in the file: load none from a source that you do not trust.

    Raises InputValueError, with the reason, for a file that is damaged, of another version, or no program's, and OSError for
    one that cannot be read. A run that needs a binary for larger blocks than the file has raises VariantUnavailableError
    where there is no NVRTC to make it.
    """
    found = load_from(path, PROGRAM_FILE)
    if not isinstance(found, SavedProgram):
        raise InputValueError(f"{os.fspath(path)} cannot be loaded as a program: it holds something else")
    for kernel, binaries in found.variants:
        for binary in binaries:
            VARIANTS.add(kernel, binary)
    return found.program


def _make_binaries(table: KernelVariants, kernel: CompiledKernel, max_threads: int) -> None:
    """Those for all blocks of up to `max_threads` threads that the kernel may have."""
    highest, _ = rung_of(max_threads)
    for threads in RUNGS:
        if threads > highest:
            return
        try:
            table.binary_for(kernel, threads)
        except VariantUnavailableError:
            raise
        except LaunchError:
            return  # above the bounds that a raw text has, or the registers that its cap leaves
