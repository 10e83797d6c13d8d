"""`ProgramCache`: the programs of one fusion, by what the inputs look like.

Level 1   exact shapes, strides and alignments -> program: one dictionary lookup
Level 2   signature (dtypes, ranks, stride order, contiguity, index width) and equal Params, facts that hold -> same kernels
Level 3   compile

A kernel is looked up by (segment, Params, signature) and taken if its facts hold; so one kernel serves every shape that
satisfies them. Programs are kept per tuple of kernels. Thread safe; kernels of one key are compiled once.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.compile_fusion import compile_segments, plan_fusion, until_sizes_fit
from fuser.compiler.kernel_compiler import CompileOptions, KernelCompiler
from fuser.compiler.recorder import Recorder, recorder_from_environment
from fuser.host_ir.program import HostProgram
from fuser.ir.fact_collection import INDEX_LIMIT
from fuser.ir.facts import TensorDescriptor, first_broken, layout_facts
from fuser.ir.fusion import Fusion
from fuser.options import logger
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device
from fuser.schedule.params import Params
from fuser.schedule.print_params import params_line
from fuser.schedule.segment import Segment, SegmentedFusion, SizesRefused

MAX_EXACT = 1024


@dataclass(slots=True)
class CacheCounters:
    """How often each level answered, and kernels made."""

    exact_hits: int = 0
    program_hits: int = 0
    kernel_hits: int = 0
    kernels_compiled: int = 0


class ProgramCache:
    """Programs of one (concretized) fusion."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.counters = CacheCounters()
        self._lock = threading.RLock()
        # By who refused the sizes of what.
        self._segmented: dict[frozenset[SizesRefused], SegmentedFusion] = {}
        self._exact: OrderedDict[object, tuple[HostProgram, tuple[CompiledKernel | None, ...]]] = OrderedDict()
        self._kernels: dict[object, list[CompiledKernel]] = {}
        self._programs: dict[tuple[CompiledKernel | None, ...], HostProgram] = {}

    def lookup(self, bound: BoundInputs, device: Device, options: CompileOptions) -> HostProgram | None:
        """The program for exactly these inputs, if it is there."""
        found = self._exact.get(self._exact_key(bound, device, options))
        return found[0] if found is not None else None

    def program(self, bound: BoundInputs, device: Device, options: CompileOptions) -> HostProgram:
        """The program for these inputs, compiled if need be."""
        key = self._exact_key(bound, device, options)
        found = self._exact.get(key)
        if found is not None:
            self.counters.exact_hits += 1
            return found[0]
        with self._lock:
            found = self._exact.get(key)
            if found is None:
                found = self._make(bound, device, options)
                self._exact[key] = found
                while len(self._exact) > MAX_EXACT:
                    self._exact.popitem(last=False)
        return found[0]

    def kernels(self, bound: BoundInputs, device: Device, options: CompileOptions) -> tuple[CompiledKernel, ...]:
        """Kernels of the program for these inputs."""
        self.program(bound, device, options)
        _, kernels = self._exact[self._exact_key(bound, device, options)]
        return tuple(k for k in kernels if k is not None)

    def _exact_key(self, bound: BoundInputs, device: Device, options: CompileOptions) -> object:
        tensors = tuple(
            (t.sizes, t.strides, t.alignment & 255, overlaps)
            for t, overlaps in zip(bound.tensors.values(), overlapping(bound), strict=True)
        )
        extents = tuple(bound.extents.values())
        return tensors, extents, device.kind, device.index, device.info, options

    def _make(
        self, bound: BoundInputs, device: Device, options: CompileOptions
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        recorder = recorder_from_environment()
        try:
            return self._compile(bound, device, options, recorder)
        finally:
            recorder.finish()

    def _compile(
        self, bound: BoundInputs, device: Device, options: CompileOptions, recorder: Recorder
    ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
        def attempt(
            without: frozenset[SizesRefused], reasons: Sequence[str]
        ) -> tuple[HostProgram, tuple[CompiledKernel | None, ...]]:
            segmented = self._segmented.get(without)
            if segmented is None:
                segmented = self._segmented[without] = plan_fusion(self.fusion, recorder, without, reasons)
            several = len(segmented.segments) > 1

            def make(k: int, segment: Segment, inputs: BoundInputs) -> CompiledKernel:
                compiler = KernelCompiler.with_options(device, options, recorder, f"s{k}." if several else "")
                return self._kernel((without, k), segment, inputs, compiler)

            return compile_segments(segmented, bound, make, recorder)

        program, kernels = until_sizes_fit(attempt)
        known = self._programs.get(kernels)
        if known is not None:
            self.counters.program_hits += 1
            return known, kernels
        self._programs[kernels] = program
        return program, kernels

    def _kernel(
        self,
        place: tuple[frozenset[SizesRefused], int],
        segment: Segment,
        inputs: BoundInputs,
        compiler: KernelCompiler,
    ) -> CompiledKernel:
        _, k = place
        params: Params = compiler.propose(segment, inputs)
        target = compiler.target()
        key = (place, params, _signature(inputs), target, compiler.options)
        log = logger()
        known = self._kernels.get(key, ())
        for kernel in known:
            if first_broken(kernel.facts, inputs.tensors, inputs.evaluate) is None:
                self.counters.kernel_hits += 1
                log.info("segment %d: kernel %s serves these inputs as well", k, kernel.content_hash[:8])
                return kernel
        begin = time.perf_counter()
        kernel, _ = compiler.compile_segment(segment, inputs, params)
        took = 1e3 * (time.perf_counter() - begin)
        why = "facts of the kernels there do not hold" if known else "no kernel of these parameters and layouts"
        chosen = params_line(params)
        log.info("segment %d: kernel %s compiled in %.0f ms (%s): %s", k, kernel.content_hash[:8], took, why, chosen)
        self.counters.kernels_compiled += 1
        self._kernels.setdefault(key, []).append(kernel)
        return kernel


def overlapping(bound: BoundInputs) -> list[bool]:
    """Whether each tensor's bytes meet another input's: in-place kernels may not assume they do not."""
    found = [False] * len(bound.tensors)
    if len(found) < 2:
        return found
    ranges = sorted((*t.byte_range, i) for i, t in enumerate(bound.tensors.values()))
    # The one of those so far that reaches farthest: the next one meets it, if any.
    reach, farthest = 0, -1
    for low, high, i in ranges:
        if low == high:
            continue
        if farthest >= 0 and low < reach:
            found[i] = found[farthest] = True
        if farthest < 0 or high > reach:
            reach, farthest = high, i
    return found


def _signature(inputs: BoundInputs) -> object:
    """What of the inputs' layout may change generated text."""
    return tuple(_tensor_signature(name, t) for name, t in inputs.tensors.items())


def _tensor_signature(name: str, t: TensorDescriptor) -> object:
    reach = sum((n - 1) * abs(s) for n, s in zip(t.sizes, t.strides, strict=True))
    return t.dtype, frozenset(layout_facts(name, t)), reach <= INDEX_LIMIT
