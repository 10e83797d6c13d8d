"""Candidates of segments, compiled: what cannot win for what its binary is, is out before anything runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from fuser import options
from fuser.compiler.builds import Builds
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.compiler.program_cache import Planned
from fuser.compiler.recorder import Recorder
from fuser.compiler.tuning_record import Fate, mark_of
from fuser.errors import FuserError
from fuser.ir.device_info import DeviceInfo
from fuser.records import record
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.schedule.params import Params

SCHEDULERS_OF_SM = 4
"""Warps below which some of an SM's schedulers have nothing to issue."""

THREAD_NAME = "fuser candidates"
"""Of the threads that compile in the background."""


@record(eq=False)
class Candidate:
    """A candidate on its way. `fate` is None as long as nothing speaks against it."""

    params: Params
    kernel: CompiledKernel | None
    fate: Fate | None
    why: str


class Compilation:
    """The candidates of all segments of a program, at most so many of each: begun in the background, or made when asked for."""

    def __init__(self, parts: Sequence[Planned], device: Device, most: int) -> None:
        self._parts = parts
        self._device = device
        self._most = most
        # By the names of what a segment makes: a later call has planned it anew.
        self._made: dict[tuple[str, ...], Sequence[Candidate]] = {}
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Compile in a thread."""
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether what was started has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def wait(self) -> None:
        """Until what was started has ended."""
        if self._thread is not None:
            self._thread.join()

    def candidates_of(self, part: Planned) -> Sequence[Candidate]:
        """Those of a segment with a kernel, the proposal first. Raises what compiling them raised, if that was no refusal."""
        self.wait()
        if self._error is not None:
            raise self._error
        found = self._made.get(_place_of(part))
        return compiled_candidates(part, self._device, self._most) if found is None else found

    def _run(self) -> None:
        try:
            for part in self._parts:
                if part.kernel is not None:
                    self._made[_place_of(part)] = compiled_candidates(part, self._device, self._most)
        except BaseException as error:
            self._error = error


def _place_of(part: Planned) -> tuple[str, ...]:
    return tuple(t.name for t in part.segment.fusion.output_tensors)


def compiled_candidates(part: Planned, device: Device, most: int) -> list[Candidate]:
    """All candidates of a segment, the proposal first, with their kernels; those that are out already say why."""
    kernel, inputs, compiler = part.kernel, part.inputs, part.compiler
    assert kernel is not None
    assert inputs is not None
    assert compiler is not None
    given = compiler.candidates(part.segment, inputs)[:most]
    silent = KernelCompiler.with_options(device, compiler.options, Recorder())
    begun: list[Callable[[], CompiledKernel] | str] = []
    found = [Candidate(given[0], kernel, None, "")]
    with Builds(len(given) - 1) as builds:
        for params in given[1:]:
            try:
                begun.append(silent.start_segment(part.segment, inputs, params, builds.start))
            except FuserError as error:
                begun.append(error.message.splitlines()[0])
        for params, finish in zip(given[1:], begun, strict=True):
            made: CompiledKernel | str = finish if isinstance(finish, str) else _finished(finish)
            if isinstance(made, str):
                found.append(Candidate(params, None, Fate.refused, made))
                options.logger().debug("a candidate is not compiled: %s", made)
            else:
                found.append(_pruned(params, made, found, device.info))
    return found


def _finished(finish: Callable[[], CompiledKernel]) -> CompiledKernel | str:
    """A candidate's kernel, or why there is none."""
    try:
        return finish()
    except FuserError as error:
        return error.message.splitlines()[0]


def _pruned(params: Params, kernel: CompiledKernel, before: Sequence[Candidate], info: DeviceInfo) -> Candidate:
    """A candidate, out if its kernel is another's, spills, or leaves an SM with too few threads."""
    proposal = before[0].kernel
    assert proposal is not None
    for n, other in enumerate(before):
        if other.kernel is not None and mark_of(other.kernel) == mark_of(kernel):
            return Candidate(params, kernel, Fate.same, "the proposal" if n == 0 else f"candidate {n}")
    spilled, allowed = (0 if k.resources is None else k.resources.spill_bytes for k in (kernel, proposal))
    if spilled > allowed:
        return Candidate(params, kernel, Fate.spills, f"{spilled} bytes")
    warps, usual = (_warps(k, info) for k in (kernel, proposal))
    if warps < min(usual, SCHEDULERS_OF_SM):
        return Candidate(params, kernel, Fate.occupancy, f"{warps} warps on an SM, of the proposal {usual}")
    return Candidate(params, kernel, None, "")


def _warps(kernel: CompiledKernel, info: DeviceInfo) -> int:
    """Warps of a kernel that an SM has registers for."""
    most = info.max_threads_per_sm // info.warp_size
    if kernel.resources is None:
        return most
    return min(info.registers_per_sm // (max(1, kernel.resources.registers) * info.warp_size), most)
