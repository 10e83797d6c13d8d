"""`FusionExecutorCache`: automatic execution of one fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fuser import locks
from fuser import options as environment
from fuser.compiler.bind_inputs import BoundInputs, bind_inputs, drawing, drawn_state, fixing_scalars, flatten
from fuser.compiler.compile_fusion import compile_fusion, resolved_reshapes
from fuser.compiler.explanation import Explanation
from fuser.compiler.kernel_compiler import CompileOptions, SchedulableFusion, checked_fusion, options_from_lists
from fuser.compiler.preparing import Prepared, prepare
from fuser.compiler.program_cache import MAX_EXACT, ProgramCache
from fuser.compiler.recorder import KeepingRecorder
from fuser.errors import FuserError, InputRuntimeError, NotSupportedError
from fuser.host_ir.executors.families import Derived, Layouts, Value
from fuser.host_ir.executors.launcher import Launcher
from fuser.host_ir.executors.steps import BoundProgram
from fuser.host_ir.program import HostProgram
from fuser.ir.fusion.concretize import concretize, dynamic_extents, equal_extents, reshapes_of
from fuser.ir.fusion.extent_binding import check_constraints
from fuser.ir.fusion.fusion import Fusion, Scalar
from fuser.ir.fusion.reshape_dims import Resolution
from fuser.ir.fusion.user_names import input_name
from fuser.ir.integers.number_trace import UntraceableError, settled
from fuser.missing_names import says_instead
from fuser.runtime.array_view import MAX_ALIGNMENT, ArrayView
from fuser.runtime.arrays.arrays import input_sequence
from fuser.runtime.arrays.device_choice import resolve_device
from fuser.runtime.devices.device import Device
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks, shorten

if TYPE_CHECKING:
    from fuser.compiler.tuning import Tuning
    from fuser.host_ir.executors.captured_program import CapturedProgram


_RUN = "fd.execute([x, y]) runs a definition, fec.execute([x, y]) the fusion of a cache"


@says_instead(_RUN, {"run": _RUN})
@short_tracebacks
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
        self._lock = locks.lock()
        self._caches: dict[tuple[object, ...], ProgramCache] = {}
        self._by_shape: dict[object, tuple[Resolution, ...]] = {}
        self._updates = any(o.alias_of is not None for o in self._ir.outputs)
        self._fixing = frozenset(i for i, spec in enumerate(self._ir.inputs) if spec in fixing_scalars(self._ir))
        # Whether what was bound last is not for later calls, as something is to be measured then.
        self._asks_again = False
        self._launcher = Launcher(self._bind, self._flat, self._derive, takes_options=True, fixing=self._fixing)
        # By the device that was asked for.
        self._graphs: dict[Any, CapturedProgram] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies have the fusion, and compile anew."""
        return FusionExecutorCache, (self._handle, self.fusion_id)

    def fusion(self) -> Any:
        """The owned fusion, as it was handed in."""
        return self._handle

    # --- execution ---

    def execute(
        self,
        inputs: Iterable[Any],
        *,
        device: Any = None,
        graph: bool = False,
        tune: bool | Tuning | None = None,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
    ) -> list[Any]:
        """Run. One array or number per input, in order; one array per plain output.

        graph   launch all kernels as one graph of the device; arrays must be in its memory (`HostProgram.capture`)
        tune    measure parameters on these inputs, once for their sizes and layouts; None: where FUSER_TUNE says so

        Raises InputError classes for arguments that do not fit, before anything is compiled or enqueued.
        """
        try:
            if self._asks_again:
                self._asks_again = False
                self._launcher.forget()
            if not isinstance(inputs, (list, tuple)):
                inputs = list(input_sequence(inputs))
            also = None
            if _enable_options or _disable_options or tune is not None:
                also = (_listed(_enable_options), _listed(_disable_options), tune)
            if graph:
                return self._captured(device).run(self._flat(inputs), None, also)
            return self._launcher.run(inputs, None, device, also)
        except FuserError as error:
            shorten(error)
            raise

    def _captured(self, device: Any) -> CapturedProgram:
        """The graph of a device."""
        found = self._graphs.get(device)
        if found is None:
            from fuser.host_ir.executors.captured_program import CapturedProgram

            numbers = {i: input_name(self._ir, i) for i, spec in enumerate(self._ir.inputs) if isinstance(spec, Scalar)}
            with self._lock:
                found = self._graphs.setdefault(device, CapturedProgram(self._launcher, numbers, device))
        return found

    def _bind(self, inputs: Sequence[Any], stream: Any, device: Any, also: Any) -> tuple[list[Any], BoundProgram]:
        """A call whose key is not known: inputs checked, a program found or made, and run."""
        enable, disable, tune = (None, None, None) if also is None else also
        options = options_from_lists(enable, disable)
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        target = _device_for(bound, device)
        self._tune(bound, target, options, tune)
        program = self._cache_for(bound).program(bound, target, options)
        state = drawn_state(self._ir, bound, target)
        results, steps = program.bind((*bound.values, *state), stream, target)
        looks = BoundInputs((), bound.tensors, bound.scalars, bound.extents)
        steps.note = lambda: (looks, target)
        self._make_own(steps, bound, target)
        converted = (
            isinstance(v, ArrayView) and v.array is not given for v, given in zip(bound.values, inputs, strict=False)
        )
        if len(inputs) != len(bound.values) or any(converted):
            steps.why_not = steps.why_not or "inputs that are converted first"
        return results, steps

    def _make_own(self, steps: BoundProgram, bound: BoundInputs, target: Device) -> None:
        """Add what a key needs of a fusion to what its program needs."""
        steps.fixing |= self._fixing
        steps.alignment = MAX_ALIGNMENT
        steps.sharing_matters = steps.sharing_matters or self._updates
        if self._ir.draws:
            steps.draw = drawing(self._ir, bound, target)

    def _derive(self, values: Sequence[Value], device: Any, also: Any) -> Derived:
        """`_bind` for inputs whose sizes may be numbers of a trace: compiles nothing, measures nothing and runs nothing.

        Raises UntraceableError where something would have to be compiled, or is to be measured.
        """
        enable, disable, tune = (None, None, None) if also is None else also
        if tune is not None or environment.TUNE.get() in ("on", "later"):
            raise UntraceableError("parameters are measured")
        options = options_from_lists(enable, disable)
        bound = bind_inputs(self._ir, values, check_extents=False)
        target = _device_for(bound, device)
        extents = {s.name: n for s, n in bound.extents.items()}
        resolve = partial(resolved_reshapes, self._ir)
        cache = self._caches.get(settled(self._pattern(bound, extents, resolve)))
        if cache is None:
            raise UntraceableError("a fusion that was not compiled")
        check_constraints(cache.fusion, extents)
        program, kernels = cache.known(bound, target, options)
        # What is drawn is no part of the steps.
        state = (0, 0) if self._ir.draws else ()
        steps = program.derive((*bound.values, *state), target)
        self._make_own(steps, bound, target)

        def take(found: BoundProgram, layouts: Callable[[], Layouts]) -> bool:
            def looks() -> BoundInputs:
                return bind_inputs(self._ir, layouts(), check_extents=False)

            # What was measured counts for the very sizes.
            if cache.may_be_tuned() and cache.tuned(looks(), target, options) is not None:
                return False
            found.note = lambda: (looks(), target)
            cache.count_known(kernels)
            return True

        return Derived(steps, take)

    def _tune(self, bound: BoundInputs, device: Device, options: CompileOptions, tune: object) -> None:
        """Measure for these inputs, if that is asked for. Raises InputTypeError for a `tune` that is none."""
        if tune is None and environment.TUNE.get() not in ("on", "later"):
            return
        from fuser.compiler.tuning import tune_program, tuning_asked

        tuning = tuning_asked(tune)
        if tuning is None:
            return
        tuned = tune_program(self._cache_for(bound), bound, device, options, tuning)
        if tuned.is_new:
            # What earlier calls were bound to, under whatever options, is not what they are for now.
            self._launcher.forget()
        self._asks_again |= tuned.is_later

    def _flat(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Inputs without lists among them, where these are as many as there must be."""
        if list not in map(type, inputs) and tuple not in map(type, inputs) and ArrayView not in map(type, inputs):
            return inputs
        flat = [value.array if type(value) is ArrayView else value for value in flatten(inputs)]
        return flat if len(flat) == len(self._ir.inputs) else inputs

    def program(self, inputs: Iterable[Any], device: Any = None) -> HostProgram:
        """The program that `execute` would run for these inputs.

        Where the fusion draws from the generator, the program has two inputs more: the seed and the offset, `rng_seed` and
        `rng_offset`.
        """
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        return self._cache_for(bound).program(bound, _device_for(bound, device), CompileOptions())

    def prepare(self, inputs: Iterable[Any], device: Any = None) -> Prepared:
        """Compile the program for these inputs in the background; `execute` waits for it, if it comes before it is there.

        Inputs are checked here; only what they look like counts, and none is kept.

        Raises InputError classes for arguments that do not fit. What compiling raises is logged; `Prepared.wait` raises it,
        and so does `execute`, which tries again.
        """
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        target = _device_for(bound, device)
        cache = self._cache_for(bound)
        looks = BoundInputs((), bound.tensors, bound.scalars, bound.extents)
        return prepare(lambda: cache.program(looks, target, CompileOptions()))

    def _cache_for(self, bound: BoundInputs) -> ProgramCache:
        """The cache of the fusion with what depends on the sizes decided: see fuser.ir.fusion.concretize."""
        extents = {s.name: n for s, n in bound.extents.items()}
        pattern = self._pattern(bound, extents, self._resolutions)
        found = self._caches.get(pattern)
        if found is None:
            with self._lock:
                found = self._caches.get(pattern)
                if found is None:
                    fusion = concretize(self._ir, extents, pattern[1:]) if any(pattern) else self._ir
                    found = self._caches[pattern] = ProgramCache(fusion)
        check_constraints(found.fusion, extents)
        return found

    def _pattern(
        self, bound: BoundInputs, extents: dict[str, int], resolve: Callable[[BoundInputs], tuple[Resolution, ...]]
    ) -> tuple[Any, ...]:
        """What depends on the sizes: which dynamic extents are equal, and how each reshape is done."""
        equal = equal_extents(self._dynamic, extents) if self._dynamic else None
        return (equal, *(resolve(bound) if self._has_reshapes else ()))

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
        inputs = list(input_sequence(inputs))
        bound = bind_inputs(self._ir, inputs, check_extents=False)
        target = _device_for(bound, None if device == 0 else device)
        if self._cache_for(bound).lookup(bound, target, CompileOptions()) is not None:
            return True
        # Or they were bound as others of their family.
        return self._launcher.bound_for(inputs, None if device == 0 else device) is not None

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
        latest = self._launcher.latest
        if latest is None:
            raise InputRuntimeError("nothing was executed yet", location=caller_location())
        recent: Any = latest.note
        return self._scheduled_ir(*recent())

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
        chosen = cache.tuned(bound, device, CompileOptions())
        program = compile_fusion(cache.fusion, bound, device, CompileOptions(), recorder, chosen)
        # The program that ran tells how it did.
        ran = cache.lookup(bound, device, CompileOptions())
        if ran is None and chosen is None:
            with suppress(UntraceableError):
                ran, _ = cache.known(bound, device, CompileOptions())
        recorder.stages["launches"] = (ran if ran is not None else program).explain()
        return Explanation(recorder.stages)

    def counters(self) -> dict[str, int]:
        """Sums of the program caches' counters."""
        total: dict[str, int] = {}
        for cache in self._caches.values():
            c = cache.counters
            for name in ("exact_hits", "program_hits", "kernel_hits", "programs_from_disk", "kernels_compiled"):
                total[name] = total.get(name, 0) + getattr(c, name)
        # Calls whose key led straight to their program.
        if total:
            total["exact_hits"] += self._launcher.replays()
        return total


def _listed(names: Sequence[str] | None) -> Sequence[str] | None:
    # One text is told from a sequence of them where the lists are checked.
    return names if names is None or isinstance(names, str) else tuple(names)


def _device_for(bound: BoundInputs, requested: Any) -> Device:
    views = [v for v in bound.values if isinstance(v, ArrayView) and v.array is not None]
    return resolve_device(views, requested)
