"""Variants: cubins of one kernel for different block sizes, compiled on demand and cached.

A variant is the same source compiled with other launch bounds, without scheduling or lowering. A *rung* is a class of block
sizes with one limit of registers per thread, named by the largest (256, 384, 512, 640, 768, 896, 1024 threads: 255, 168, 128,
96, 80, 72, 64 registers). One cubin is used for a whole rung and for every smaller block.

Bounds by kind of kernel
    bounded source      -DFUSER_MAX_THREADS=<top of the rung> [-DFUSER_MIN_BLOCKS=<n>], which fill the macro FUSER_BOUNDS
    with a register cap -DFUSER_MAX_REGISTERS=<r> (FUSER_BOUNDS becomes __maxnreg__), one binary for every block it can hold
    raw, unbounded      nothing first; above what that binary allows --maxrregcount=<limit of the rung>
    raw, fixed bounds   nothing; a block above them is an error

    table := KernelVariants: VariantKey -> Binary | failure | build under way
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from fuser import locks
from fuser.errors import CompilationError, FuserError, LaunchError, VariantUnavailableError
from fuser.runtime.kernels.compiled_kernel import CompiledKernel, Resources, content_hash

if TYPE_CHECKING:
    from fuser.runtime.kernels.nvrtc import CompileResult

MAX_BLOCK = 1024
MAX_REGISTERS = 255
REGISTERS_PER_SM = 65536
_QUARTER = 128  # threads that give each of the four schedulers of an SM one warp more


def registers_among(threads: int) -> int:
    """Registers that each of so many threads of an SM may have.

    The register file has four quarters of 16384; a quarter runs a fourth of the warps, and a warp takes registers in
    units of 256.
    """
    return min(REGISTERS_PER_SM // 4 // -(-threads // _QUARTER) // 256 * 256 // 32, MAX_REGISTERS)


def _rung(warps_per_quarter: int) -> tuple[int, int]:
    # A quarter with one warp could give 512 registers, and the instruction set ends at 255: one rung with two warps.
    top = max(2, warps_per_quarter) * _QUARTER
    return top, registers_among(top)


_BY_WARPS = tuple(map(_rung, range(MAX_BLOCK // _QUARTER + 1)))


def rung_of(block: int) -> tuple[int, int]:
    """(largest block of the rung that `block` threads fall in, registers a thread may have there).

    Raises LaunchError for a block that no device holds.
    """
    if not 1 <= block <= MAX_BLOCK:
        raise LaunchError(f"a block has 1 to {MAX_BLOCK} threads, not {block}")
    return _BY_WARPS[-(-block // _QUARTER)]


RUNGS: tuple[int, ...] = tuple(range(2 * _QUARTER, MAX_BLOCK + 1, _QUARTER))


def largest_block(registers: int) -> int:
    """Largest block (a top of a rung) whose threads may have `registers` registers each."""
    return max((top for top in RUNGS if rung_of(top)[1] >= registers), default=0)


def bound_options(
    top: int, *, min_blocks: int = 0, register_cap: int | None = None, bounded: bool = True, uncapped: bool = False
) -> tuple[str, ...]:
    """The NVRTC options that bound a binary for blocks up to `top` threads (the table at the head of this module).

    `uncapped` leaves a raw text without bounds free.
    """
    options = [f"-DFUSER_MAX_THREADS={top}"]
    if register_cap is not None:
        options.append(f"-DFUSER_MAX_REGISTERS={register_cap}" if bounded else f"--maxrregcount={register_cap}")
    elif bounded:
        if min_blocks:
            options.append(f"-DFUSER_MIN_BLOCKS={min_blocks}")
    elif not uncapped:
        options.append(f"--maxrregcount={rung_of(top)[1]}")
    return tuple(options)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Binary:
    """Machine code of one variant; compares by identity.

    `max_threads` is the largest block it serves, `entry` the name to look up in it. `resources` is None for PTX, which
    the driver compiles. `is_unbounded`: made without a bound by threads, so that its registers decide what it serves.
    """

    cubin: bytes = field(repr=False)
    entry: str
    resources: Resources | None
    max_threads: int
    log: str = field(default="", repr=False)
    nvrtc_version: tuple[int, int] | None = None
    is_unbounded: bool = False


class VariantKey(NamedTuple):
    """What decides a variant. `source` is a digest; `rung` 0 stands for a binary without a bound by threads."""

    source: str
    entry: str
    options: tuple[str, ...]
    nvrtc_version: tuple[int, int] | None
    arch: str
    rung: int
    min_blocks: int
    register_cap: int | None


@dataclass(slots=True)
class VariantCounters:
    """How often: a binary was compiled, found, waited for in another thread, could not be made, or an earlier failure was
    raised again; `seeded` counts binaries that came with their kernel."""

    compiles: int = 0
    hits: int = 0
    waits: int = 0
    failures: int = 0
    repeated_failures: int = 0
    seeded: int = 0


Compile = Callable[..., "CompileResult"]


class KernelVariants:
    """The table. Safe to use from several threads; a binary that many ask for at once is compiled once.

    `compile_text` is called as `nvrtc.compile_to_cubin`, and that is the default; NVRTC is imported only on a miss.
    """

    def __init__(self, compile_text: Compile | None = None) -> None:
        self._compile_text = compile_text
        self._lock = locks.lock()
        self._families: dict[VariantKey, _Family] = {}
        self._of_kernel: weakref.WeakKeyDictionary[CompiledKernel, _Family] = weakref.WeakKeyDictionary()
        self._counters = VariantCounters()
        locks.in_child_of(self, KernelVariants._forget_builds)

    def binary_for(self, kernel: CompiledKernel, threads: int) -> Binary:
        """The binary that runs `kernel` with blocks of `threads` threads: the one for the least block that will do.

        Raises LaunchError for a block that the kernel's own bounds or register cap cannot hold, CompilationError (each
        time anew, with the log) where a variant does not compile, VariantUnavailableError where NVRTC is missing.
        """
        family = self._of_kernel.get(kernel) or self._adopt(kernel)
        found = family.find(threads)
        if found is not None:
            with self._lock:
                self._counters.hits += 1
            return found
        return self._make(family, kernel, threads)

    def binaries_of(self, kernel: CompiledKernel) -> tuple[Binary, ...]:
        """The binaries present for the kernel, by rising block size."""
        return (self._of_kernel.get(kernel) or self._adopt(kernel)).binaries

    def add(self, kernel: CompiledKernel, binary: Binary) -> None:
        """Put in a binary made elsewhere (another process, a saved program), unless there is one that serves as much."""
        family = self._of_kernel.get(kernel) or self._adopt(kernel)
        with self._lock:
            if all(b.max_threads != binary.max_threads for b in family.binaries):
                family.add(binary)
                self._counters.seeded += 1

    def counters(self) -> VariantCounters:
        """A copy of the counters."""
        with self._lock:
            c = self._counters
            return VariantCounters(c.compiles, c.hits, c.waits, c.failures, c.repeated_failures, c.seeded)

    def _forget_builds(self) -> None:
        """In a forked child: the threads that were at them are not there."""
        for family in self._families.values():
            family.pending.clear()

    # --- filling the table ---

    def _adopt(self, kernel: CompiledKernel) -> _Family:
        """The family of kernels with the same text and options; the kernel's own binary goes into it."""
        key = VariantKey(
            content_hash(kernel.source, (), "", None),
            kernel.name_expression or kernel.entry,
            kernel.options,
            kernel.nvrtc_version,
            kernel.arch,
            0,
            kernel.min_blocks,
            kernel.register_cap,
        )
        with self._lock:
            family = self._families.get(key)
            if family is None:
                family = self._families[key] = _Family(key)
            if kernel not in self._of_kernel:
                self._of_kernel[kernel] = family
                own = _own_binary(kernel)
                if own is not None and all(b.max_threads != own.max_threads for b in family.binaries):
                    family.add(own)
                    self._counters.seeded += 1
        return family

    def _make(self, family: _Family, kernel: CompiledKernel, threads: int) -> Binary:
        top, limit = rung_of(threads)
        # A raw text without bounds may serve this block without a cap, and a capped one if it uses few registers: one
        # binary decides. Everything else is made for the rung.
        if _has_no_thread_bound(kernel):
            if family.unbounded is None:
                self._build(family, kernel, 0, threads)
                found = family.find(threads)
                if found is not None:
                    return found
            if kernel.fixed_bounds is not None:
                raise LaunchError(
                    f"kernel {kernel.entry}: a block of {threads} threads is above the launch bounds of its source, "
                    f"{kernel.fixed_bounds}. Use a smaller block, or __launch_bounds__(FUSER_MAX_THREADS) in the source"
                )
            if kernel.register_cap is not None:
                used = family.unbounded.resources if family.unbounded is not None else None
                registers = kernel.register_cap if used is None else used.registers
                raise LaunchError(
                    f"kernel {kernel.entry}: a block of {threads} threads can have {limit} registers a thread, and with "
                    f"maxrregcount={kernel.register_cap} the kernel uses {registers}. Use a smaller block or a lower cap"
                )
        return self._build(family, kernel, top, threads)

    def _build(self, family: _Family, kernel: CompiledKernel, rung: int, threads: int) -> Binary:
        """Compile for `rung` (0: without a bound), or wait for the thread that does, or raise what it raised before."""
        with self._lock:
            present = family.at(rung)
            if present is not None:
                self._counters.hits += 1
                return present
            failure = family.failures.get(rung)
            if failure is not None:
                self._counters.repeated_failures += 1
                raise failure.error(kernel, threads)
            pending = family.pending.get(rung)
            mine = pending is None
            if pending is None:
                pending = family.pending[rung] = _Pending()
            else:
                self._counters.waits += 1
        if not mine:
            pending.done.wait()
            if pending.binary is not None:
                return pending.binary
            failure = family.failures.get(rung)
            if failure is not None:
                raise failure.error(kernel, threads)
            # The other thread was interrupted, or found no NVRTC: see for ourselves.
            return self._build(family, kernel, rung, threads)
        try:
            binary = self._compile(kernel, rung, threads)
        except VariantUnavailableError:
            raise  # not kept: NVRTC may be installed by the next time
        except FuserError as error:
            log = error.log if isinstance(error, CompilationError) else ""
            failure = _Failure(error.message, log, rung)
            with self._lock:
                family.failures[rung] = failure
                self._counters.failures += 1
            raise failure.error(kernel, threads) from None
        else:
            with self._lock:
                family.add(binary)
                pending.binary = binary
                self._counters.compiles += 1
            return binary
        finally:
            with self._lock:
                family.pending.pop(rung, None)
            pending.done.set()

    def _compile(self, kernel: CompiledKernel, rung: int, threads: int) -> Binary:
        compile_text = self._compile_text
        if compile_text is None:
            from fuser.runtime.kernels.nvrtc import compile_to_cubin

            compile_text = compile_to_cubin
        from fuser.runtime.kernels.nvrtc import NvrtcUnavailableError

        # Where no bound by threads applies, the text still sees FUSER_MAX_THREADS: what the binary is asked for first.
        top = rung or (MAX_BLOCK if kernel.register_cap is not None else RUNGS[0])
        bounds = bound_options(
            top,
            min_blocks=kernel.min_blocks,
            register_cap=kernel.register_cap,
            bounded=kernel.bounded,
            uncapped=rung == 0,
        )
        name = kernel.name_expression or kernel.entry
        try:
            result = compile_text(kernel.source, (name,), kernel.arch, (*kernel.options, *bounds))
        except NvrtcUnavailableError as error:
            raise VariantUnavailableError(
                f"kernel {kernel.entry}: a block of {threads} threads needs a binary for blocks up to {top}, and it cannot "
                f"be compiled: {error.message}"
            ) from None
        resources = result.resources.get(name)
        serves = _served(kernel, rung, resources)
        if rung and resources is not None and resources.registers > rung_of(rung)[1]:
            raise CompilationError(
                f"the register limit of {rung_of(rung)[1]} did not take effect: the entry uses {resources.registers}",
                log=result.log,
            )
        return Binary(result.cubin, result.lowered[name], resources, serves, result.log, result.version, rung == 0)


def _served(kernel: CompiledKernel, rung: int, resources: Resources | None) -> int:
    """Largest block that a binary compiled for `rung` serves."""
    if rung:
        return rung
    by_registers = MAX_BLOCK if resources is None else largest_block(resources.registers)
    return by_registers if kernel.fixed_bounds is None else min(by_registers, kernel.fixed_bounds)


def _has_no_thread_bound(kernel: CompiledKernel) -> bool:
    """Whether the first binary is compiled without a bound by threads, so that its registers decide what it serves."""
    return kernel.register_cap is not None or not kernel.bounded


def _own_binary(kernel: CompiledKernel) -> Binary | None:
    if kernel.cubin is None:
        return None
    serves = kernel.max_block_size
    is_unbounded = _has_no_thread_bound(kernel)
    if is_unbounded and kernel.resources is not None:
        serves = _served(kernel, 0, kernel.resources)
    return Binary(kernel.cubin, kernel.entry, kernel.resources, serves, kernel.log, kernel.nvrtc_version, is_unbounded)


class _Pending:
    """A build under way in some thread."""

    __slots__ = ("binary", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.binary: Binary | None = None


class _Failure(NamedTuple):
    message: str
    log: str
    rung: int

    def error(self, kernel: CompiledKernel, threads: int) -> CompilationError:
        """A new exception each time: one object raised by many threads would grow its traceback for ever."""
        limit = rung_of(threads)[1]
        text = f"kernel {kernel.entry}: no binary for a block of {threads} threads ({limit} registers a thread"
        if self.rung:
            text += f", compiled for blocks up to {self.rung}"
        return CompilationError(f"{text}): {self.message}", log=self.log)


class _Family:
    """The variants of one text under one set of options: everything of the key but the rung."""

    def __init__(self, key: VariantKey) -> None:
        self.key = key
        # Sorted by the block they serve. Replaced as a whole, so that `find` needs no lock.
        self.binaries: tuple[Binary, ...] = ()
        self.unbounded: Binary | None = None
        self.pending: dict[int, _Pending] = {}
        self.failures: dict[int, _Failure] = {}

    def find(self, threads: int) -> Binary | None:
        for binary in self.binaries:
            if binary.max_threads >= threads:
                return binary
        return None

    def at(self, rung: int) -> Binary | None:
        """The binary that a build for `rung` would give."""
        return self.unbounded if rung == 0 else self.find(rung)

    def add(self, binary: Binary) -> None:
        self.binaries = tuple(sorted((*self.binaries, binary), key=lambda b: b.max_threads))
        if binary.is_unbounded:
            self.unbounded = binary


VARIANTS = KernelVariants()
"""The table of the process."""
