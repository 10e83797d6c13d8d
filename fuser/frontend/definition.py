"""`FusionDefinition`: the front end. What a fusion is made of, and the calls that run it."""

from __future__ import annotations

import os
from abc import ABCMeta
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Never, NoReturn, Self, SupportsIndex, overload

from fuser.errors import (
    DefinitionAssertionError,
    DefinitionAttributeError,
    DefinitionRuntimeError,
    DefinitionTypeError,
    DefinitionValueError,
    ElementTypeError,
    FuserError,
    InputTypeError,
    NotSupportedError,
)
from fuser.frontend.define import define_scalar_in, define_tensor_in, define_vector_in
from fuser.frontend.fusion_handle import Fusion, FusionGuard
from fuser.frontend.handles import TensorView, Val
from fuser.ir.ops.dtypes import DataType, dtype_remedy
from fuser.missing_names import like_names
from fuser.options import logger
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback, short_tracebacks, shorten
from fuser.unbound_calls import NOT_GIVEN, asks_for_inputs

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO

    from fuser.compiler.executor_cache import FusionExecutorCache
    from fuser.compiler.explanation import Explanation
    from fuser.compiler.kernel_executor import KernelExecutor
    from fuser.compiler.preparing import Prepared
    from fuser.compiler.tuning import Tuning
    from fuser.frontend.argument_types import Dtype, Flag, Number
    from fuser.host_ir.program import HostProgram
    from fuser.source_location import SourceLocation

NO_FUSION = "Fusion does not exist! Use `with FusionDefinition() as fd: ...` to define a fusion."

EMPTY = "Fusion is empty!"
NO_OUTPUT = "No output is named: call fd.add_output(tensor) in the `with` block."

_ONE_WAY = "A definition is run in one of the two ways: define it again for the other."

_FOREIGN_FUNCTION = "functions of NumPy and torch do not take its tensors: fd.ops has ones that do, as in fd.ops.exp(x)"
_NO_VALUE = (
    "its scalars and extents have no value yet: compute with operators and fd.ops, as in fd.ops.sqrt(x.size(1)), "
    "or define what must be known as a constant"
)

_ADVICE = (
    ("item assignment", "elements cannot be set: make another tensor, as with fd.ops.where or fd.ops.cat"),
    ("has no len()", "extents are x.shape, their number is x.ndim"),
    ("__round__", "write fd.ops.round(x)"),
    ("__format__", "a definition has no values; they are what fd.execute(...) returns"),
    ("int() argument", "write fd.ops.cast(x, DataType.Int)"),
    ("float() argument", "write fd.ops.cast(x, DataType.Double)"),
    ("no setter", "attributes of tensors and scalars cannot be set"),
    ("read-only", "attributes of tensors and scalars cannot be set"),
    ("divmod()", "write x // y and x % y"),
    ("has no attribute", "attributes of tensors and scalars cannot be set"),
    ("is not iterable", "`in` asks for a value: fd.ops.max(x == 1.0) tells whether an element is 1.0"),
    ("TensorView", _FOREIGN_FUNCTION),
)
"""Part of Python's or NumPy's message about a value of a fusion, and what to say then."""


def _advice(error: BaseException) -> str:
    """What to do about an error of Python or of another library that a tensor or scalar of the definition led to."""
    text = str(error)
    if "object is not callable" in text:
        return "; a tensor is no function; attributes such as x.T, x.mT, x.ndim, x.shape and x.dtype need no ()"
    if isinstance(error, TypeError) and "'method'" in text:
        return "; a method of a tensor is called: x.size(0), x.float()"
    if "'Val'" in text or "not Val" in text:
        return f"; {_NO_VALUE}"
    if "TensorView" not in text:
        return ""
    return f"; {next(advice for part, advice in _ADVICE if part in text)}"


if TYPE_CHECKING:
    _DefinitionClass = type
else:

    class _DefinitionClass(ABCMeta):
        """The class of `FusionDefinition`: `with FusionDefinition as fd:` is told to call it. Type checkers say so themselves.

        An ABCMeta, so that a subclass may have abstract classes for bases as well.
        """

        @short_traceback
        def __enter__(cls) -> NoReturn:
            raise DefinitionTypeError(f"{cls.__name__} is a class: write `with {cls.__name__}() as fd:`")

        def __exit__(cls, *_: object) -> None:
            """Not reached; Python asks for it before it enters."""


@short_tracebacks
class FusionDefinition(metaclass=_DefinitionClass):
    """A definition of a fusion, and the executors that run it.

        with FusionDefinition() as fd:
            x = fd.define_tensor([-1, -1], contiguity=True)
            fd.add_output(fd.ops.sum(x, dims=[1]))
        y = fd(array)

    `execute` takes the inputs as a list and returns a list. `fec` and `ke`, the automatic and the manual executor, are
    attributes that exist once they are created; a definition has one of them at most. At run time instances take any other
    attribute; a subclass declares it for type checkers.
    """

    fec: FusionExecutorCache
    ke: KernelExecutor
    fake_inputs: list[object]
    _fusion: Fusion | None

    def __init__(self) -> None:
        self._fusion = None
        self._guard: FusionGuard | None = None
        # Where the `with` block stands.
        self._begun: SourceLocation | None = None
        # The exception that ended the `with` block.
        self._left_by: str | None = None

    # --- life cycle ---

    def __enter__(self) -> Self:
        if self.fusion is not None:
            raise DefinitionRuntimeError(
                "this FusionDefinition has been defined already; make a new one", location=caller_location()
            )
        self._fusion = Fusion()
        self._begun = caller_location()
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
                from fuser.ir.fusion.verify_fusion import verify_fusion

                verify_fusion(fusion.ir_fusion)
            return
        # What was half defined cannot be executed; values obtained from it stay printable.
        if fusion is not None:
            fusion.close("its definition was left by an exception")
            self._left_by = (
                f"{type(error).__name__}({str(error).splitlines()[0]!r})" if str(error) else type(error).__name__
            )
            # An error of this package has the user's line.
            if not isinstance(error, FuserError):
                error.add_note(
                    f"raised while defining a fusion, after {len(fusion.inputs())} inputs and "
                    f"{len(fusion.all_exprs)} exprs{_advice(error)}"
                )
        self._fusion = None

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            message = f"'FusionDefinition' object has no attribute {name!r}"
            # Not for what Python and libraries look for.
            if name.startswith("_"):
                raise AttributeError(message)
            try:
                raise DefinitionAttributeError(f"{message}{_where_it_is(self, name)}", name)
            except DefinitionAttributeError as error:
                shorten(error)
                raise

    if TYPE_CHECKING:
        # The modules themselves, so that type checkers know what is in them.
        from fuser.frontend import ops
        from fuser.frontend import schedule as sched
    else:

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

    @overload
    def define_tensor(
        self,
        shape: Sequence[SupportsIndex],
        contiguity: Sequence[Flag | None] | Flag = False,
        dtype: Dtype = DataType.Float,
        is_cpu: Flag = False,
        stride_order: Sequence[SupportsIndex] = (),
    ) -> TensorView: ...
    @overload
    def define_tensor(
        self,
        sizes: Sequence[SupportsIndex],
        strides: Sequence[SupportsIndex],
        dtype: Dtype = DataType.Float,
        static_sizes: Flag = False,
        is_cpu: Flag = False,
    ) -> TensorView: ...
    def define_tensor(self, *args: Any, **kwargs: Any) -> TensorView:
        """A tensor, registered as the next fusion input. Three overloads:

            define_tensor(shape, contiguity: [bool or None], dtype=Float, is_cpu=False, stride_order=[])
            define_tensor(shape, contiguity: bool = False, dtype=Float, is_cpu=False, stride_order=[])
            define_tensor(sizes, strides, dtype=Float, static_sizes=False, is_cpu=False)

        Shape entries: -1 symbolic, 0 empty, 1 broadcast, above 1 static. Raises DefinitionRuntimeError for values that
        cannot be, DefinitionTypeError for a call that matches no overload.
        """
        return define_tensor_in(self._open_fusion("define_tensor"), args, kwargs, register=True)

    @overload
    def define_scalar(self, dtype: Dtype = DataType.Double) -> Val: ...
    @overload
    def define_scalar(self, value: Number | None, dtype: Dtype | None = None) -> Val: ...
    def define_scalar(self, *args: Any, **kwargs: Any) -> Val:
        """A scalar: `define_scalar(dtype=Double)` is the next fusion input, `define_scalar(value, dtype=None)` a constant."""
        return define_scalar_in(self._open_fusion("define_scalar"), args, kwargs, register=True)

    def define_vector(self, size: SupportsIndex) -> list[Val]:
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
        from fuser.runtime.arrays.arrays import describe_array

        try:
            view = describe_array(x)
        except ElementTypeError as error:
            remedy = f": {dtype_remedy(x.dtype)}" if hasattr(x, "dtype") else ""
            raise ElementTypeError(f"{error.message}{remedy}", location=caller_location()) from None
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
            return False, EMPTY
        return True, None

    # --- execution ---

    def _require_defined(self) -> Fusion:
        fusion = self.fusion
        if fusion is None:
            left = "" if self._left_by is None else f" The `with` block of this one was left by {self._left_by}."
            raise NotSupportedError(f"{NO_FUSION}{left}", location=caller_location())
        if not fusion.outputs():
            begun = "" if self._begun is None else f"\n{self._begun.describe()}"
            raise NotSupportedError(f"{EMPTY} {NO_OUTPUT}{begun}", location=caller_location())
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
                f"KernelExecutor already exists! Use manual_execute() to execute the fusion. {_ONE_WAY}",
                location=caller_location(),
            )
        fusion = self._require_defined()
        from fuser.compiler.executor_cache import FusionExecutorCache

        if _records(fusion):
            logger().warning(
                "this fusion was scheduled by hand, and execute() schedules fusions itself: "
                "manual_execute() runs it as it was scheduled"
            )
        self.fec = FusionExecutorCache(fusion)
        fusion.end_schedule(
            "fd.execute, fd.program and fd.explain schedule by themselves; schedule a new definition and run it by "
            "fd.manual_execute"
        )
        self.__dict__.pop("_fusion", None)
        return self.fec

    @asks_for_inputs
    def execute(
        self,
        inputs: Iterable[Any],
        *more: Never,
        device: Any = None,
        graph: bool = False,
        tune: bool | Tuning | None = None,
        save_repro_inputs: bool | None = False,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
        **unknown: Never,
    ) -> list[Any]:
        """Run the fusion. One array or number per input, in order; one array per plain output.

        Outputs are arrays of the kind of the first tensor input, `DeviceTensor`s (`.numpy()` copies one to the host) where
        there is none. The list is a plain one, which torch and JAX know as a tree of arrays: `(y,) = fd.execute([x])`. An
        output that is an input, or a view of one, is the caller's own memory. Type checkers cannot know the library:
        `y: np.ndarray[Any, Any] = fd(x)` tells them.

        device                              None for that of the inputs, an index, "cuda:1", "simulator", a torch device
        graph                               launch all kernels as one CUDA graph, which is kept and updated from call to call;
                                            arrays must be in the memory of the device
        tune                                measure parameters on these inputs, unless there is a record for their sizes and
                                            layouts: True, or a `fuser.Tuning`; None: where FUSER_TUNE says so
        save_repro_inputs                   remember a descriptor of each input in `fake_inputs`
        _enable_options, _disable_options   option names in force for this call
        """
        try:
            if more:
                raise InputTypeError(
                    f"execute() takes one list of inputs, got {1 + len(more)} arguments: fd.execute([x, y])"
                )
            if unknown or inputs is NOT_GIVEN:
                from fuser.unbound_calls import no_such_arguments

                raise no_such_arguments(FusionDefinition.execute, (self, inputs), unknown)
            executor = self.__dict__.get("fec") or self._executor_cache()
            if save_repro_inputs:
                inputs = _listed(inputs)
                from fuser.frontend.input_descriptors import describe_inputs

                self.fake_inputs = describe_inputs(inputs)
            return executor.execute(
                inputs,
                device=device,
                graph=graph,
                tune=tune,
                _enable_options=_enable_options,
                _disable_options=_disable_options,
            )
        except FuserError as error:
            shorten(error)
            raise

    def __call__(self, *inputs: Any, device: Any = None) -> Any:
        """`execute` on inputs given one by one: the output itself if there is one, else a tuple of the outputs.

        The tuple is empty where every output updates an input.
        """
        outputs = self.execute(inputs, device=device)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def manual_execute(self, inputs: Iterable[Any], heuristic_params: Any = None) -> list[Any]:
        """Compile the fusion exactly as scheduled, one kernel, and run it.

        With `heuristic_params`, its lparams, cparams and scheduler_type are used.
        """
        if "fec" in self.__dict__:
            raise DefinitionAssertionError(
                f"FusionExecutorCache already exists! Use execute() to execute the fusion. {_ONE_WAY}",
                location=caller_location(),
            )
        fusion = self._require_defined()
        arguments = _listed(inputs)
        launch: dict[str, Any] = {}
        compilation: dict[str, Any] = {}
        if heuristic_params is not None:
            from fuser.frontend.heuristic_params import HeuristicParams

            if not isinstance(heuristic_params, HeuristicParams):
                raise InputTypeError(
                    f"manual_execute(): heuristic_params must be a HeuristicParams, got {type(heuristic_params).__name__}: "
                    "fd.sched.compute_heuristics(fd.fusion, scheduler_type, inputs) makes one"
                )
            launch = {"launch_constraints": heuristic_params.lparams, "compile_params": heuristic_params.cparams}
            compilation = {**launch, "scheduler_type": heuristic_params.scheduler_type}
        executor = self.__dict__.get("ke")
        if executor is None:
            from fuser.compiler.kernel_executor import KernelExecutor

            executor = KernelExecutor()
            executor.compile(fusion, arguments, **compilation)
            # Only a kernel that compiled makes the two ways of execution exclusive.
            self.ke = executor
            fusion.end_schedule(
                "its kernel is that of the first fd.manual_execute; scheduling verbs stand before it, or in a new definition"
            )
        elif not executor.is_compiled():
            executor.compile(fusion, arguments, **compilation)
        return executor.run(arguments, **launch)

    def validate(
        self,
        inputs: Iterable[Any],
        reference_outputs: Sequence[Any] | None = None,
        device: Any = None,
        graph: bool = False,
        save_repro_inputs: bool | None = False,
        _enable_options: Sequence[str] | None = None,
        _disable_options: Sequence[str] | None = None,
    ) -> list[Any]:
        """`execute`, then compare with references, or with the reference evaluator if there are none.

        Raises InputAssertionError on mismatch with references, InputRuntimeError on mismatch without.
        """
        from fuser.frontend.validate import validate_outputs

        arguments = _listed(inputs)
        kept = self._copies_before_update(arguments)
        outputs = self.execute(
            arguments,
            device=device,
            graph=graph,
            save_repro_inputs=save_repro_inputs,
            _enable_options=_enable_options,
            _disable_options=_disable_options,
        )
        fusion = self._require_defined()
        validate_outputs(fusion.ir_fusion, outputs, kept, reference_outputs)
        return outputs

    def manual_validate(self, inputs: Iterable[Any], reference_outputs: Sequence[Any] | None = None) -> list[Any]:
        """`manual_execute`, then compare as `validate` does."""
        from fuser.frontend.validate import validate_outputs

        arguments = _listed(inputs)
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

    def explain(self, inputs: Iterable[Any], *, file: IO[str] | bool | None = None) -> Explanation:
        """Every stage of the compilation for these inputs, as `execute` would compile; printed to `file`.

        file  None for stdout, False to print nothing

        Printed are the stages that changed something. The result has all of them: `stages` maps their names to texts, and
        `stage("kernel.cu")` is one of them.
        """
        if file is not None and not isinstance(file, bool) and not hasattr(file, "write"):
            opened = f": open({os.fspath(file)!r}, 'w') opens it" if isinstance(file, str | os.PathLike) else ""
            raise InputTypeError(f"explain(): file is an open file, None or False, got {type(file).__name__}{opened}")
        explanation = self._executor_cache().explain(_listed(inputs))
        if file is not False:
            print(explanation, file=None if file is None or file is True else file)
        return explanation

    def program(self, inputs: Iterable[Any]) -> HostProgram:
        """The host program that `execute` would run for these inputs."""
        return self._executor_cache().program(_listed(inputs))

    def prepare(self, inputs: Iterable[Any], *, device: Any = None) -> Prepared:
        """Compile in the background what `execute` would run for these inputs, and return at once.

        Programs of several definitions are compiled side by side: prepare all of them, then call. A call that comes before
        its program is there waits for that program only. Of the inputs only sizes, strides, types and alignment count; their
        values are not read.

        `wait()` of what is returned gives the program, or raises what compiling raised; so does the call, which tries again.
        Raises InputError classes for inputs that do not fit.
        """
        return self._executor_cache().prepare(_listed(inputs), device)

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


def _records(fusion: Fusion) -> int:
    """How much a fusion is scheduled."""
    return 0 if fusion.schedule is None else len(fusion.schedule.records)


def _where_it_is(fd: FusionDefinition, name: str) -> str:
    """`; did you mean fd.ops.exp?` for a name that one of the modules has, or what is said instead of it or like it here."""
    if name in _MADE_BY:
        return f": {_MADE_BY[name]}"
    for module, functions in (("ops", fd.ops), ("sched", fd.sched)):
        if callable(getattr(functions, name, None)):
            return f"; did you mean fd.{module}.{name}?"
    if name in _CALLED:
        return f"; did you mean fd.{_CALLED[name]}?"
    like = like_names(name, [known for known in dir(fd) if not known.startswith("_")])
    return f"; did you mean fd.{like[0]}?" if like else ""


_MADE_BY = {
    **dict.fromkeys(
        ("kernel", "kernels", "source", "code", "cuda", "ptx", "print_kernel", "print_code"),
        "fd.explain(inputs, file=False).stage('kernel.cu') is the text of its kernels",
    ),
    **dict.fromkeys(("to", "device", "set_device"), "fd.execute(inputs, device=...) chooses a device"),
    **dict.fromkeys(
        ("profile", "benchmark", "time", "timeit"),
        "it reports no times; a profiler of the device does, around calls of fd.execute(inputs)",
    ),
    **dict.fromkeys(("manual_seed", "seed"), "fuser.manual_seed(seed) seeds the generator of random numbers"),
    **dict.fromkeys(("tune", "autotune"), "fd.execute(inputs, tune=True) measures candidates on a GPU"),
    "capture": "fd.execute(inputs, graph=True) launches a graph, fd.program(inputs).capture(inputs) gives one",
    "graph": "fd.execute(inputs, graph=True) launches a graph, fd.program(inputs).capture(inputs) gives one",
    "inputs": "fd.fusion.inputs() lists them, fd.define_tensor(shape) makes one",
    "save": "fuser.save(fd.program(inputs), path) writes its program to a file",
    "load": "fuser.load(path) is a program, which program.run(inputs) runs",
    "fec": "the executor cache is there after fd.execute(...)",
    "ke": "the executor of a manual schedule is there after fd.manual_execute(...)",
    "fake_inputs": "they are there after fd.execute(..., save_repro_inputs=True)",
}
"""What a definition does not have, or not from the beginning, and what makes or does it."""

_CALLED = {
    "run": "execute",
    "call": "execute",
    "launch": "execute",
    "forward": "execute",
    "compile": "execute",
    "output": "add_output",
    "outputs": "add_output",
    "define_output": "add_output",
    "mark_output": "add_output",
    "register_output": "add_output",
    "input": "define_tensor",
    "tensor": "define_tensor",
    "placeholder": "define_tensor",
    "define_input": "define_tensor",
    "from_numpy": "from_array",
    "from_torch": "from_pytorch",
    "scalar": "define_scalar",
    "constant": "define_scalar(value)",
    "define_constant": "define_scalar(value)",
    "schedule": "sched",
}
"""What other libraries call an attribute, and what it is called here."""


def _listed(inputs: Iterable[Any]) -> list[Any]:
    """Inputs of an execution as a list. Raises InputTypeError for what is none, a single array above all."""
    from fuser.runtime.arrays.arrays import input_sequence

    return list(input_sequence(inputs))


def _simulated() -> bool:
    """Whether arrays on the host go to the simulated device."""
    from fuser.runtime.arrays.device_choice import has_gpu

    return not has_gpu()
