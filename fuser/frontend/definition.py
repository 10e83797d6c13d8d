"""`FusionDefinition`: the front end. What a fusion is made of, and the calls that run it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fuser.errors import (
    DefinitionAssertionError,
    DefinitionRuntimeError,
    DefinitionValueError,
    NotSupportedError,
)
from fuser.frontend.define import define_scalar_in, define_tensor_in, define_vector_in
from fuser.frontend.fusion_handle import Fusion, FusionGuard
from fuser.frontend.handles import TensorView, Val
from fuser.source_location import caller_location

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO

    from fuser.compiler.executor_cache import FusionExecutorCache
    from fuser.compiler.kernel_executor import KernelExecutor

NO_FUSION = "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."


class FusionDefinition:
    """A definition of a fusion, and the executors that run it.

        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], contiguity=True)
            fd.add_output(fd.ops.sum(x, dims=[1]))
        (y,) = fd.execute([array])

    `fec` and `ke`, the automatic and the manual executor, are attributes that exist once they are created; a definition
    has one of them at most. Instances take any other attribute.
    """

    fec: FusionExecutorCache
    ke: KernelExecutor
    fake_inputs: list[object]
    _fusion: Fusion | None

    def __init__(self) -> None:
        self._fusion = None
        self._guard: FusionGuard | None = None

    # --- life cycle ---

    def __enter__(self) -> FusionDefinition:
        if self.fusion is not None:
            raise DefinitionRuntimeError(
                "this FusionDefinition has been defined already; make a new one", location=caller_location()
            )
        self._fusion = Fusion()
        self._guard = FusionGuard(self._fusion)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fusion, guard = self._fusion, self._guard
        if guard is not None:
            guard.close()
        self._guard = None
        if error is None:
            if fusion is not None:
                fusion.close()
                self._fusion = None
                fusion.check_leaves()
                self._fusion = fusion
                from fuser.ir.verify_fusion import verify_fusion

                verify_fusion(fusion.ir_fusion)
            return
        # What was half defined cannot be executed; values obtained from it stay printable.
        if fusion is not None:
            fusion.close("its definition was left by an exception")
            error.add_note(
                f"raised while defining a fusion, after {len(fusion.inputs())} inputs and {len(fusion.all_exprs)} exprs"
            )
        self._fusion = None

    @property
    def ops(self) -> ModuleType:
        """The ops of the DSL."""
        from fuser.frontend import ops

        return ops

    @property
    def sched(self) -> ModuleType:
        """The scheduling functions."""
        import importlib

        return importlib.import_module("fuser.frontend.schedule")

    @property
    def fusion(self) -> Fusion | None:
        """The fusion: the executor cache's once there is one, else the one being defined, else None."""
        if "fec" in self.__dict__:
            return self.fec.fusion()
        return self.__dict__.get("_fusion")

    def _open_fusion(self, call: str) -> Fusion:
        fusion = self.fusion
        if fusion is None:
            raise DefinitionRuntimeError(
                f"{call}(): call it inside `with FusionDefinition() as fd:`", location=caller_location()
            )
        return fusion

    # --- inputs and outputs ---

    def define_tensor(self, *args: Any, **kwargs: Any) -> TensorView:
        """A tensor, registered as the next fusion input. Three overloads:

            define_tensor(shape, contiguity: [bool or None], dtype=Float, is_cpu=False, stride_order=[])
            define_tensor(shape, contiguity: bool = False, dtype=Float, is_cpu=False, stride_order=[])
            define_tensor(sizes, strides, dtype=Float, static_sizes=False, is_cpu=False)

        Shape entries: -1 symbolic, 0 empty, 1 broadcast, above 1 static. Raises DefinitionRuntimeError for values that
        cannot be, DefinitionTypeError for a call that matches no overload.
        """
        return define_tensor_in(self._open_fusion("define_tensor"), args, kwargs, register=True)

    def define_scalar(self, *args: Any, **kwargs: Any) -> Val:
        """A scalar: `define_scalar(dtype=Double)` is the next fusion input, `define_scalar(value, dtype=None)` a constant."""
        return define_scalar_in(self._open_fusion("define_scalar"), args, kwargs, register=True)

    def define_vector(self, size: int) -> list[Val]:
        """`size` Int scalars, all inputs in order; one list or tuple feeds them at execute."""
        return define_vector_in(self._open_fusion("define_vector"), size)

    def add_output(self, output: Val, alias_input: Val | None = None) -> None:
        """Return `output`; with `alias_input` write it to that input's storage instead and return nothing."""
        self._open_fusion("add_output").add_output(output, alias_input)

    def from_array(self, x: Any, static_sizes: bool = False) -> TensorView:
        """A fusion input of the layout and dtype of an array; its sizes as well if `static_sizes`.

        Raises DefinitionValueError for a host array of rank > 0 that only a GPU library could have made, and
        InputTypeError for a dtype that is not supported.
        """
        from fuser.runtime.arrays import describe_array

        view = describe_array(x)
        if view.is_host and view.sizes and view.kind not in ("numpy",) and not _simulated():
            raise DefinitionValueError(
                f"Found unsupported device {view.device[0]}, only scalar CPU or CUDA tensors are supported",
                location=caller_location(),
            )
        is_scalar_on_host = view.is_host and not view.sizes and view.kind != "numpy"
        return self.define_tensor(
            sizes=view.sizes,
            strides=view.strides,
            dtype=view.dtype,
            static_sizes=static_sizes,
            is_cpu=is_scalar_on_host,
        )

    def from_pytorch(self, tensor: Any, static_sizes: bool = False) -> TensorView:
        """A fusion input of the layout and dtype of a tensor; see `from_array`."""
        return self.from_array(tensor, static_sizes)

    def validate_definition(self) -> tuple[bool, str | None]:
        """(True, None), or (False, why the definition cannot be executed)."""
        fusion = self.fusion
        if fusion is None:
            return False, NO_FUSION
        if not fusion.outputs():
            return False, "Fusion is empty!"
        return True, None

    # --- execution ---

    def _require_defined(self) -> Fusion:
        fusion = self.fusion
        if fusion is None:
            raise NotSupportedError(NO_FUSION, location=caller_location())
        if not fusion.outputs():
            raise NotSupportedError("Fusion is empty!", location=caller_location())
        if fusion.is_open and self._guard is not None:
            raise DefinitionRuntimeError(
                "the definition is not complete: execute it after its `with` block", location=caller_location()
            )
        return fusion

    def _executor_cache(self) -> FusionExecutorCache:
        """`fec`, made on first use."""
        found = self.__dict__.get("fec")
        if found is not None:
            return found
        if "ke" in self.__dict__:
            raise DefinitionAssertionError(
                "KernelExecutor already exists! Use manual_execute() to execute the fusion.", location=caller_location()
            )
        fusion = self._require_defined()
        from fuser.compiler.executor_cache import FusionExecutorCache

        self.fec = FusionExecutorCache(fusion)
        self.__dict__.pop("_fusion", None)
        return self.fec

    def execute(
        self,
        inputs: Iterable[Any],
        *,
        device: Any = None,
        save_repro_inputs: bool | None = False,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
    ) -> list[Any]:
        """Run the fusion. One array or number per input, in order; one array per plain output.

        device                              None for that of the inputs, an index, "cuda:1", "simulator", a torch device
        save_repro_inputs                   remember a descriptor of each input in `fake_inputs`
        _enable_options, _disable_options   option names in force for this call
        """
        executor = self.__dict__.get("fec") or self._executor_cache()
        if save_repro_inputs:
            inputs = list(inputs)
            from fuser.frontend.input_descriptors import describe_inputs

            self.fake_inputs = describe_inputs(inputs)
        return executor.execute(
            inputs, device=device, _enable_options=_enable_options, _disable_options=_disable_options
        )

    def manual_execute(self, inputs: Iterable[Any], heuristic_params: Any = None) -> list[Any]:
        """Compile the fusion exactly as scheduled, one kernel, and run it.

        With `heuristic_params`, its lparams, cparams and scheduler_type are used.
        """
        if "fec" in self.__dict__:
            raise DefinitionAssertionError(
                "FusionExecutorCache already exists! Use execute() to execute the fusion.", location=caller_location()
            )
        fusion = self._require_defined()
        arguments = list(inputs)
        launch: dict[str, Any] = {}
        compilation: dict[str, Any] = {}
        if heuristic_params is not None:
            launch = {"launch_constraints": heuristic_params.lparams, "compile_params": heuristic_params.cparams}
            compilation = {**launch, "scheduler_type": heuristic_params.scheduler_type}
        executor = self.__dict__.get("ke")
        if executor is None:
            from fuser.compiler.kernel_executor import KernelExecutor

            executor = KernelExecutor()
            executor.compile(fusion, arguments, **compilation)
            # Only a kernel that compiled makes the two ways of execution exclusive.
            self.ke = executor
        elif not executor.is_compiled():
            executor.compile(fusion, arguments, **compilation)
        return executor.run(arguments, **launch)

    def validate(
        self,
        inputs: Iterable[Any],
        reference_outputs: Sequence[Any] | None = None,
        device: Any = None,
        **execute_kwargs: Any,
    ) -> list[Any]:
        """`execute`, then compare with references, or with the reference evaluator if there are none.

        Raises InputAssertionError on mismatch with references, InputRuntimeError on mismatch without.
        """
        from fuser.frontend.validate import validate_outputs

        arguments = list(inputs)
        kept = self._copies_before_update(arguments)
        outputs = self.execute(arguments, device=device, **execute_kwargs)
        fusion = self._require_defined()
        validate_outputs(fusion.ir_fusion, outputs, kept, reference_outputs)
        return outputs

    def manual_validate(self, inputs: Iterable[Any], reference_outputs: Sequence[Any] | None = None) -> list[Any]:
        """`manual_execute`, then compare as `validate` does."""
        from fuser.frontend.validate import validate_outputs

        arguments = list(inputs)
        kept = self._copies_before_update(arguments)
        outputs = self.manual_execute(arguments)
        validate_outputs(self._require_defined().ir_fusion, outputs, kept, reference_outputs)
        return outputs

    def _copies_before_update(self, inputs: list[Any]) -> list[Any]:
        """The inputs as they are before the execution: host copies where an in-place output will change them."""
        from fuser.frontend.validate import flatten_inputs, host_array

        fusion = self._require_defined().ir_fusion
        updated = {o.alias_of for o in fusion.outputs if o.alias_of is not None}
        flat = flatten_inputs(inputs)
        return [
            host_array(value).copy() if spec in updated else value
            for spec, value in zip(fusion.inputs, flat, strict=False)
        ]

    def explain(self, inputs: Iterable[Any], *, file: IO[str] | bool | None = None) -> Any:
        """Every stage of the compilation for these inputs, as `execute` would compile; printed to `file`.

        `file`: None for stdout, False to print nothing. The result's `stages` maps stage names to texts, `str()` is all.
        """
        explanation = self._executor_cache().explain(list(inputs))
        if file is not False:
            print(explanation, file=None if file is None or file is True else file)
        return explanation

    def program(self, inputs: Iterable[Any]) -> Any:
        """The host program that `execute` would run for these inputs."""
        return self._executor_cache().program(list(inputs))

    # --- text ---

    def __repr__(self) -> str:
        fusion = self.fusion
        if fusion is None:
            return "FusionDefinition()"
        from fuser.frontend.translate import translate_fusion

        return translate_fusion(fusion)

    def repro_script_for(self, inputs: Sequence[Any] | None = None) -> str:
        """A complete program that defines the fusion and, with inputs, executes it on inputs like these."""
        from fuser.frontend.repro_script import repro_script

        fusion = self._open_fusion("repro_script_for")
        return repro_script(fusion, inputs)

    def last_repro_script(self) -> str:
        """`repro_script_for` the inputs of the last `execute(save_repro_inputs=True)`.

        Raises DefinitionAssertionError if there was none.
        """
        if "fake_inputs" not in self.__dict__:
            raise DefinitionAssertionError(
                "fd.last_repro_script() cannot provide a repro because fd.execute(inputs, save_repro_inputs=True) was "
                "not executed!",
                location=caller_location(),
            )
        return self.repro_script_for(self.fake_inputs)


def _simulated() -> bool:
    """Whether arrays on the host go to the simulated device."""
    from fuser.runtime.arrays import has_gpu

    return not has_gpu()
