"""`ProgramCache`: the programs of one fusion, by what the inputs look like.

Level 1   exact shapes, strides and alignments -> program: one dictionary lookup
Level 2   signature (dtypes, ranks, stride order, contiguity, index width) and equal Params, facts that hold -> same kernels
Level 3   a program that an earlier process compiled for exactly these inputs (`stored_programs.py`)
Level 4   compile

A kernel is looked up by (segment, Params, signature) and taken if its facts hold; so one kernel serves every shape that
satisfies them. Programs are kept per tuple of kernels, and per inputs that are updated and share no memory with others: only
those may be written before all others were read. Thread safe; kernels of one key are compiled once.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fuser import locks
from fuser import options as environment
from fuser.compiler.bind_inputs import BoundInputs, overlaps
from fuser.compiler.builds import at_once
from fuser.compiler.compile_fusion import ProgramKey, compile_segments, plan_fusion, program_key
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler, Start
from fuser.compiler.recorder import Recorder, recorder_from_environment
from fuser.compiler.segment_failures import Recut, SizesRefusedError, shows_bugs, to_keep, until_sizes_fit
from fuser.compiler.stored_programs import StoredPrograms, structure_digest
from fuser.compiler.tuning_record import TABLE, Chosen, TuningKey, key_of
from fuser.host_ir.program import HostProgram
from fuser.ir.fact_collection import INDEX_LIMIT
from fuser.ir.facts import TensorDescriptor, layout_facts
from fuser.ir.fusion.fusion import Fusion
from fuser.ir.integers.number_trace import UntraceableError, settled
from fuser.options import logger
from fuser.records import record
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.plan_evaluation import facts_hold
from fuser.schedule.params import Params
from fuser.schedule.print_params import params_line
from fuser.schedule.segmentation.registry import LAST_RESORT, scheduler_by_params
from fuser.schedule.segmentation.segment import Segment
from fuser.schedule.segmentation.segmentation import SegmentedFusion

MAX_EXACT = 1024


@dataclass(slots=True)
class CacheCounters:
    """How often each level answered, and kernels made."""

    exact_hits: int = 0
    program_hits: int = 0
    kernel_hits: int = 0
    programs_from_disk: int = 0
    kernels_compiled: int = 0


@record(eq=False)
class Planned:
    """A segment of a program, as tuning finds it.

    place     the segment's, in the cache
    inputs, compiler, kernel   None for a segment of views
    """

    segment: Segment
    place: tuple[frozenset[Recut], int]
    inputs: BoundInputs | None
    compiler: KernelCompiler | None
    kernel: CompiledKernel | None


class ProgramCache:
    """Programs of one (concretized) fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.counters = CacheCounters()
        self._updates = any(o.alias_of is not None for o in fusion.outputs)
        self._lock = locks.reentrant_lock()
        # By who refused the sizes of what.
        self._segmented: dict[frozenset[Recut], SegmentedFusion] = {}
        self._exact: OrderedDict[object, tuple[HostProgram, tuple[CompiledKernel | None, ...]]] = OrderedDict()
        self._kernels: dict[object, list[CompiledKernel]] = {}
        self._programs: dict[ProgramKey, HostProgram] = {}
        self._stored = StoredPrograms(fusion)
        self._has_warned = False
        # What could not be lowered, by the keys that its kernels would have, and the failures that were warned of.
        self._refused: dict[object, SizesRefusedError] = {}
        self._told: set[str] = set()
        self._structure: str | None = None

    def lookup(self, bound: BoundInputs, device: Device, options: CompileOptions) -> HostProgram | None:
        """The program for exactly these inputs, if it is there."""
        found = self._exact.get(self._exact_key(bound, device, options))
        return found[0] if found is not None else None

    def program(self, bound: BoundInputs, device: Device, options: CompileOptions) -> HostProgram:
        """The program for these inputs, compiled if need be."""
        return self._entry(bound, device, options)[0]

    def kernels(self, bound: BoundInputs, device: Device, options: CompileOptions) -> tuple[CompiledKernel, ...]:
        """Kernels of the program for these inputs."""
        return tuple(k for k in self._entry(bound, device, options)[1] if k is not None)

    def known(
        self, bound: BoundInputs, device: Device, options: CompileOptions
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        """The program for these inputs with proposed parameters; sizes may be numbers of a trace. Compiles and changes nothing.

        Raises UntraceableError where something would have to be compiled, or was refused with a warning.
        """
        without: frozenset[Recut] = frozenset()
        while True:
            try:
                program, kernels = self._known_attempt(bound, device, options, without)
            except SizesRefusedError as error:
                each = (error, *error.others)
                refusals = without.union(*(e.refusals for e in each))
                if refusals == without or any(e.failure is not None for e in each):
                    raise UntraceableError(error.message) from None
                without = refusals
                continue
            if self._programs.get(program_key(kernels, self.fusion, bound)) is not program:
                raise UntraceableError("a program that was not made")
            return program, kernels

    def _known_attempt(
        self, bound: BoundInputs, device: Device, options: CompileOptions, without: frozenset[Recut]
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        segmented = self._segmented.get(without)
        if segmented is None:
            raise UntraceableError("a cut that was not made")

        def make(k: int, segment: Segment, inputs: BoundInputs, _: Start) -> Callable[[], CompiledKernel]:
            compiler = KernelCompiler.with_options(device, options, Recorder())
            return self._known_kernel((without, k), segment, inputs, compiler)

        return compile_segments(segmented, bound, make, Recorder(), self._programs)

    def _known_kernel(
        self,
        place: tuple[frozenset[Recut], int],
        segment: Segment,
        inputs: BoundInputs,
        compiler: KernelCompiler,
    ) -> Callable[[], CompiledKernel]:
        """What `_kernel` gives without compiling. Kernels are added behind those that are there: it stays what it gives."""
        key = _kernel_key(place, settled(compiler.propose(segment, inputs)), inputs, compiler)
        serves = next((it for it in self._kernels.get(key, ()) if _serves(it, inputs)), None)
        if serves is not None:
            return lambda: serves
        refused = self._refused.get(key)
        if refused is not None:
            raise to_keep(refused)

        def unmade() -> CompiledKernel:
            # Not before all segments were looked at: where one is refused nobody asks for the others.
            raise UntraceableError("a kernel that was not made")

        return unmade

    def count_known(self, kernels: tuple[CompiledKernel | None, ...]) -> None:
        """Count and log a use of what `known` gives."""
        self.counters.program_hits += 1
        log = logger()
        for k, kernel in enumerate(kernels):
            if kernel is not None:
                self.counters.kernel_hits += 1
                log.info("segment %d: kernel %s serves these inputs as well", k, kernel.content_hash[:8])

    # --- tuning -------------------------------------------------------------------------------------------------------

    def may_be_tuned(self) -> bool:
        """Whether there are records at all."""
        return TABLE.has_any() and environment.TUNE.get() != "off"

    def tuned(self, bound: BoundInputs, device: Device, options: CompileOptions) -> Chosen | None:
        """What was chosen by measuring for these inputs, if there is a record of it that holds."""
        if not self.may_be_tuned():
            return None
        key = self.tuning_key(bound, device, options)
        found = None if key is None else TABLE.find(key)
        return None if found is None else Chosen(found)

    def tuning_key(self, bound: BoundInputs, device: Device, options: CompileOptions) -> TuningKey | None:
        """The key of the record for these inputs; None for a fusion of which not all can be told."""
        try:
            if self._structure is None:
                self._structure = structure_digest(self.fusion)
        except TypeError as error:
            logger().warning("this fusion is not tuned: %s", error)
            return None
        return key_of(self._structure, bound, overlaps(bound) if self._updates else (), options, device.info)

    def planned(
        self, bound: BoundInputs, device: Device, options: CompileOptions
    ) -> tuple[Fusion, tuple[Planned, ...]]:
        """The fusion as its program has it, and its segments with the kernels of what is proposed."""
        with self._lock:
            return self._compile(bound, device, options, Recorder())[1]

    def take_winners(
        self,
        bound: BoundInputs,
        device: Device,
        options: CompileOptions,
        winners: Sequence[tuple[Planned, Params, CompiledKernel]],
    ) -> None:
        """Keep the kernels that tuning has chosen; whoever asks next for these inputs gets the program of their record."""
        with self._lock:
            for planned, params, kernel in winners:
                assert planned.inputs is not None
                assert planned.compiler is not None
                key = _kernel_key(planned.place, params, planned.inputs, planned.compiler)
                known = self._kernels.setdefault(key, [])
                if not any(it.content_hash == kernel.content_hash for it in known):
                    known.append(kernel)
            self._exact.pop(self._exact_key(bound, device, options), None)

    def _entry(
        self, bound: BoundInputs, device: Device, options: CompileOptions
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        key = self._exact_key(bound, device, options)
        found = self._exact.get(key)
        if found is not None:
            self.counters.exact_hits += 1
            return found
        with self._lock:
            found = self._exact.get(key)
            if found is None:
                found = self._make(bound, device, options)
                self._exact[key] = found
                while len(self._exact) > MAX_EXACT:
                    self._exact.popitem(last=False)
        return found

    def _exact_key(self, bound: BoundInputs, device: Device, options: CompileOptions) -> tuple[object, ...]:
        tensors = tuple((t.sizes, t.strides, t.alignment) for t in bound.tensors.values())
        met = overlaps(bound) if self._updates else ()
        extents = tuple(bound.extents.values())
        return tensors, met, extents, device.kind, device.index, device.info, options

    def _make(
        self, bound: BoundInputs, device: Device, options: CompileOptions
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        # Which one of several equal devices it is matters to programs in memory only.
        *looks, _, info, made_with = self._exact_key(bound, device, options)
        exact = (*looks, info, made_with)
        chosen = self.tuned(bound, device, options)
        if chosen is not None:
            exact = (*exact, chosen.record.digest)
        # Where there are kernels already, they may serve these inputs as well, which is found out faster than what is on disk.
        found = None if self._kernels else self._stored.read(exact, device)
        if found is not None:
            self.counters.programs_from_disk += 1
            logger().info("a program of an earlier process serves these inputs: nothing is compiled")
            return found, tuple(found.kernels.values())
        recorder = recorder_from_environment()
        compiled = self.counters.kernels_compiled
        self._has_warned = False
        try:
            made, _ = self._compile(bound, device, options, recorder, chosen)
            if chosen is not None:
                recorder.stage("tuning.txt", chosen.text)
        finally:
            recorder.finish()
        # What served other inputs before is on disk for those.
        if self.counters.kernels_compiled != compiled and not self._has_warned:
            self._stored.write(exact, device, made[0])
        return made

    def _compile(
        self,
        bound: BoundInputs,
        device: Device,
        options: CompileOptions,
        recorder: Recorder,
        chosen: Chosen | None = None,
    ) -> tuple[tuple[HostProgram, tuple[CompiledKernel | None, ...]], tuple[Fusion, tuple[Planned, ...]]]:
        """A program with its kernels, and the segments that it is made of."""

        def attempt(
            without: frozenset[Recut], reasons: Sequence[str]
        ) -> tuple[tuple[HostProgram, tuple[CompiledKernel | None, ...]], tuple[Fusion, tuple[Planned, ...]]]:
            segmented = self._segmented.get(without)
            if segmented is None:
                segmented = self._segmented[without] = plan_fusion(self.fusion, recorder, without, reasons)
            several = len(segmented.segments) > 1
            given: dict[int, tuple[BoundInputs, KernelCompiler]] = {}

            def make(k: int, segment: Segment, inputs: BoundInputs, start: Start) -> Callable[[], CompiledKernel]:
                compiler = KernelCompiler.with_options(device, options, recorder, f"s{k}." if several else "")
                given[k] = inputs, compiler
                if chosen is None:
                    return self._kernel((without, k), segment, inputs, compiler, start)
                return self._chosen_kernel((without, k), segment, inputs, compiler, start, chosen)

            made = compile_segments(segmented, bound, make, recorder, self._programs)
            parts = zip(segmented.segments, made[1], strict=True)
            planned = (
                Planned(segment, (without, k), *given.get(k, (None, None)), kernel)
                for k, (segment, kernel) in enumerate(parts)
            )
            return made, (segmented.fusion, tuple(planned))

        def watched(
            without: frozenset[Recut], reasons: Sequence[str]
        ) -> tuple[tuple[HostProgram, tuple[CompiledKernel | None, ...]], tuple[Fusion, tuple[Planned, ...]]]:
            try:
                return attempt(without, reasons)
            except SizesRefusedError as error:
                self._has_warned |= any(e.failure is not None for e in (error, *error.others))
                raise

        (program, kernels), planned = until_sizes_fit(watched, self._told)
        key = program_key(kernels, self.fusion, bound)
        if key in self._programs:
            self.counters.program_hits += 1
        else:
            self._programs[key] = program
        return (program, kernels), planned

    def _chosen_kernel(
        self,
        place: tuple[frozenset[Recut], int],
        segment: Segment,
        inputs: BoundInputs,
        compiler: KernelCompiler,
        start: Start,
        chosen: Chosen,
    ) -> Callable[[], CompiledKernel]:
        """The kernel that tuning has chosen; that of the proposal where the record does not hold for the segment."""
        best = chosen.winner_for(segment)
        if best is None:
            TABLE.missed(f"it has no segment that makes {', '.join(t.name for t in segment.fusion.output_tensors)}")
            return self._kernel(place, segment, inputs, compiler, start)
        try:
            finish = self._kernel(place, segment, inputs, compiler, start, best.params)
        except SizesRefusedError as error:
            TABLE.missed(f"its winner cannot be compiled any more: {error.message.splitlines()[0]}")
            return self._kernel(place, segment, inputs, compiler, start)

        def finished() -> CompiledKernel:
            kernel = finish()
            return (
                self._kernel(place, segment, inputs, compiler, at_once)() if chosen.misses(segment, kernel) else kernel
            )

        return finished

    def _kernel(
        self,
        place: tuple[frozenset[Recut], int],
        segment: Segment,
        inputs: BoundInputs,
        compiler: KernelCompiler,
        start: Start,
        params: Params | None = None,
    ) -> Callable[[], CompiledKernel]:
        """A kernel with these parameters; None: those that are proposed."""
        _, k = place
        params = compiler.propose(segment, inputs) if params is None else params
        key = _kernel_key(place, params, inputs, compiler)
        log = logger()
        known = self._kernels.get(key, ())
        serves = next((it for it in known if _serves(it, inputs)), None)
        if serves is not None:
            self.counters.kernel_hits += 1
            log.info("segment %d: kernel %s serves these inputs as well", k, serves.content_hash[:8])
            return lambda: serves
        refused = self._refused.get(key)
        if refused is not None:
            raise to_keep(refused)
        begin = time.perf_counter()
        self._has_warned |= scheduler_by_params(params) is LAST_RESORT
        try:
            finish = compiler.start_proposal(segment, inputs, params, start)
        except SizesRefusedError as error:
            # The same schedule of the same layouts fails again, whatever the sizes.
            if not shows_bugs():
                self._refused[key] = to_keep(error)
            raise

        def finished() -> CompiledKernel:
            kernel, used = finish()
            # Reasons are put into words for those who read them: a thirtieth of a small kernel's compilation.
            if log.isEnabledFor(logging.INFO):
                took = 1e3 * (time.perf_counter() - begin)
                why = "facts of the kernels there do not hold" if known else "no kernel of these parameters and layouts"
                chosen = params_line(used)
                log.info(
                    "segment %d: kernel %s made in %.0f ms (%s): %s", k, kernel.content_hash[:8], took, why, chosen
                )
            self.counters.kernels_compiled += 1
            self._kernels.setdefault(key, []).append(kernel)
            return kernel

        return finished


def _kernel_key(
    place: tuple[frozenset[Recut], int], params: Params, inputs: BoundInputs, compiler: KernelCompiler
) -> object:
    return place, params, _signature(inputs), compiler.target(), compiler.options


def _serves(kernel: CompiledKernel, inputs: BoundInputs) -> bool:
    return facts_hold(kernel, inputs.tensors, inputs.evaluate)


def _signature(inputs: BoundInputs) -> object:
    """What of the inputs' layout may change generated text."""
    return tuple(_tensor_signature(name, t) for name, t in inputs.tensors.items())


def _tensor_signature(name: str, t: TensorDescriptor) -> object:
    reach = sum((n - 1) * abs(s) for n, s in zip(t.sizes, t.strides, strict=True))
    return t.dtype, frozenset(layout_facts(name, t)), reach <= INDEX_LIMIT
