"""`FusionExecutorCache`: automatic execution of one fusion. Also `Explanation`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from fuser.compiler.bind_inputs import BoundInputs, bind_inputs, drawn_state
from fuser.compiler.compile_fusion import compile_fusion, resolved_reshapes
from fuser.compiler.kernel_compiler import CompileOptions, SchedulableFusion, checked_fusion, options_from_lists
from fuser.compiler.program_cache import MAX_EXACT, ProgramCache
from fuser.compiler.recorder import KeepingRecorder
from fuser.errors import FuserError, InputRuntimeError, NotSupportedError
from fuser.host_ir.program import HostProgram
from fuser.ir.concretize import concretize, dynamic_extents, reshapes_of
from fuser.ir.extent_binding import check_constraints
from fuser.ir.fusion import Fusion
from fuser.ir.reshape_dims import Resolution
from fuser.records import record
from fuser.runtime.arrays import ArrayView, resolve_device
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.device import Device
from fuser.source_location import caller_location


@record
class Explanation:
    """Every stage of one compilation: `stages` maps stage names to texts, in order; `str()` is the whole."""

    stages: dict[str, str]

    def __str__(self) -> str:
        return "\n".join(f"=== {name} ===\n{text.rstrip()}\n" for name, text in self.stages.items())


class FusionExecutorCache:
    """Runs a fusion on any inputs that fit it, compiling what is not compiled yet.

    fusion         a frontend fusion (taken over); fusion_id is the caller's number
    auto_schedule  False is not supported: use KernelExecutor
    """

    def __init__(self, fusion: SchedulableFusion, fusion_id: int = 0, auto_schedule: bool = True) -> None:
        if not auto_schedule:
            raise NotSupportedError(
                "FusionExecutorCache schedules by itself; use KernelExecutor for a schedule of your own"
            )
        self._handle = fusion
        self.fusion_id = fusion_id
        self._ir: Fusion = checked_fusion(fusion, "FusionExecutorCache")
        self._dynamic = dynamic_extents(self._ir)
        self._has_reshapes = bool(reshapes_of(self._ir))
        self._lock = threading.Lock()
        self._caches: dict[tuple[object, ...], ProgramCache] = {}
        self._by_shape: dict[object, tuple[Resolution, ...]] = {}
        self._recent: tuple[BoundInputs, Device] | None = None

    def fusion(self) -> Any:
        """The owned fusion, as it was handed in."""
        return self._handle

    # --- execution ---

    def execute(
        self,
        inputs: Iterable[Any],
        *,
        device: Any = None,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
    ) -> list[Any]:
        """Run. One array or number per input, in order; one array per plain output.

        Raises InputError classes for arguments that do not fit, before anything is compiled or enqueued.
        """
        try:
            options = options_from_lists(_enable_options, _disable_options)
            bound = bind_inputs(self._ir, inputs, check_extents=False)
            target = _device_for(bound, device)
            program = self._cache_for(bound).program(bound, target, options)
            self._recent = (BoundInputs((), bound.tensors, bound.scalars, bound.extents), target)
            return program.run((*bound.values, *drawn_state(self._ir, bound, target)), device=target)
        except FuserError as error:
            # What is wrong in no line of the definition belongs to the call.
            if error.location is None:
                error.location = caller_location()
            raise

    def program(self, inputs: Iterable[Any], device: Any = None) -> HostProgram:
        """The program that `execute` would run for these inputs.

        Where the fusion draws from the generator, the program has two inputs more: the seed and the offset, `rng_seed` and
        `rng_offset`.
        """
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        return self._cache_for(bound).program(bound, _device_for(bound, device), CompileOptions())

    def _cache_for(self, bound: BoundInputs) -> ProgramCache:
        """The cache of the fusion with the factory dims that turned out to be 1 made broadcast dims and reshapes resolved."""
        pattern: tuple[object, ...] = tuple(bound.evaluate(e) == 1 for e in self._dynamic)
        extents = {s.name: n for s, n in bound.extents.items()}
        resolved = self._resolutions(bound) if self._has_reshapes else ()
        pattern += resolved
        found = self._caches.get(pattern)
        if found is None:
            with self._lock:
                found = self._caches.get(pattern)
                if found is None:
                    fusion = concretize(self._ir, extents, resolved) if any(pattern) else self._ir
                    found = self._caches[pattern] = ProgramCache(fusion)
        check_constraints(found.fusion, extents)
        return found

    def _resolutions(self, bound: BoundInputs) -> tuple[Resolution, ...]:
        """How each reshape is done for these inputs, remembered by their shapes and strides."""
        key = tuple((t.sizes, t.strides) for t in bound.tensors.values()), tuple(bound.extents.values())
        found = self._by_shape.get(key)
        if found is None:
            found = resolved_reshapes(self._ir, bound)
            with self._lock:
                while len(self._by_shape) >= MAX_EXACT:
                    self._by_shape.pop(next(iter(self._by_shape)))
                self._by_shape[key] = found
        return found

    # --- questions ---

    def is_compiled(self, inputs: Iterable[Any], device: Any = 0) -> bool:
        """Whether these inputs find a program without compiling."""
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        target = _device_for(bound, None if device == 0 else device)
        return self._cache_for(bound).lookup(bound, target, CompileOptions()) is not None

    def kernels(self, inputs: Iterable[Any], device: Any = None) -> tuple[CompiledKernel, ...]:
        """The kernels that run for these inputs."""
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        return self._cache_for(bound).kernels(bound, _device_for(bound, device), CompileOptions())

    def get_cuda_kernel(self, inputs: Iterable[Any], intrinsic_code: bool = False, device: Any = 0) -> str:
        """CUDA source of all segments. `intrinsic_code` changes nothing: the source is complete, it has no device library."""
        return "\n".join(k.source for k in self.kernels(inputs, None if device == 0 else device))

    def get_scheduled_ir(self, inputs: Iterable[Any], tensor_transforms: bool = False, device: Any = 0) -> str:
        """Schedules of all segments for these inputs. `tensor_transforms` changes nothing: they are always shown."""
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        return self._scheduled_ir(bound, _device_for(bound, None if device == 0 else device))

    def get_most_recent_scheduled_ir(self, tensor_transforms: bool = False) -> str:
        """Schedules of the program that ran last. Raises InputRuntimeError if none did."""
        if self._recent is None:
            raise InputRuntimeError("nothing was executed yet", location=caller_location())
        return self._scheduled_ir(*self._recent)

    def _scheduled_ir(self, bound: BoundInputs, device: Device) -> str:
        stages = self._explain(bound, device).stages
        return "\n".join(text for name, text in stages.items() if name.endswith("schedule.py"))

    def get_output_shardings(self) -> list[Any]:
        """How outputs are spread over devices: empty, they are not."""
        return []

    def explain(self, inputs: Iterable[Any], device: Any = None) -> Explanation:
        """Every stage for these inputs, compiled as `execute` would."""
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        return self._explain(bound, _device_for(bound, device))

    def _explain(self, bound: BoundInputs, device: Device) -> Explanation:
        cache = self._cache_for(bound)
        recorder = KeepingRecorder()
        program = compile_fusion(cache.fusion, bound, device, CompileOptions(), recorder)
        # The program that ran tells how it did.
        ran = cache.lookup(bound, device, CompileOptions())
        recorder.stages["launches"] = (ran if ran is not None else program).explain()
        return Explanation(recorder.stages)

    def counters(self) -> dict[str, int]:
        """Sums of the program caches' counters."""
        total: dict[str, int] = {}
        for cache in self._caches.values():
            c = cache.counters
            for name in ("exact_hits", "program_hits", "kernel_hits", "kernels_compiled"):
                total[name] = total.get(name, 0) + getattr(c, name)
        return total


def _device_for(bound: BoundInputs, requested: Any) -> Device:
    views = [v for v in bound.values if isinstance(v, ArrayView) and v.array is not None]
    return resolve_device(views, requested)
