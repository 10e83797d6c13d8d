"""`HostProgram`: a verified program with the ways to run it, any number of times.

program = HostProgram(
    inputs=("x",),
    outputs=("y",),
    instructions=(
        Allocate("y", (extent("x", 0),), DataType.Float),
        LaunchKernel(kernel, ("x", "y")),
    ),
)
(y,) = program.run([x])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Never

from fuser.errors import FuserError, LaunchError
from fuser.host_ir.executors.derived_steps import derived_steps
from fuser.host_ir.executors.families import Derived
from fuser.host_ir.executors.interpreter import interpret_and_bind
from fuser.host_ir.executors.launcher import Launcher
from fuser.host_ir.executors.run_history import RunHistory
from fuser.host_ir.executors.run_inputs import check_stream
from fuser.host_ir.executors.steps import BoundProgram, memory_of
from fuser.host_ir.instructions.bodies import walk
from fuser.host_ir.instructions.instructions import Instruction, LaunchKernel
from fuser.host_ir.passes.print_program import print_program
from fuser.host_ir.passes.verified_program import VerifiedProgram, verified_program
from fuser.missing_names import KnownNames, says_instead
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.arrays import input_sequence
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.kernels.library_calls import LibraryCall
from fuser.runtime.scalars import Scalar
from fuser.tracebacks import short_tracebacks, shorten
from fuser.unbound_calls import NOT_GIVEN, asks_for_inputs

# Captured programs, explanations and rewrites are loaded when they are asked for: most programs are only run.
if TYPE_CHECKING:
    from fuser.host_ir.executors.captured_program import CapturedProgram

_RUN = "program.run([x, y]) runs it, on a list of all inputs"


@says_instead(
    _RUN,
    {
        **dict.fromkeys(("execute", "launch", "call", "forward"), _RUN),
        "save": "fuser.save(program, path) writes it to a file",
    },
    items="its parts are program.inputs, .outputs, .instructions and .kernels",
)
@short_tracebacks
class HostProgram:
    """A sequence of instructions over named slots. Immutable; compares by inputs, outputs and instructions.

    `inputs` name the slots that `run` fills, in order: arrays or numbers. `outputs` name what it returns; an input named
    here is returned as the caller's own array. Inputs that instructions write are updated in place.

    Raises DefinitionRuntimeError or DefinitionTypeError, naming the instruction, for a program that is not well formed.
    """

    __slots__ = ("_launcher", "history", "verified")

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str], instructions: Iterable[Instruction]) -> None:
        self.verified: VerifiedProgram = verified_program(inputs, outputs, instructions)
        self.history: RunHistory = RunHistory()
        self._launcher = Launcher(self._bind, _arrays_of_views, self._derive)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies have the text and its kernels, and nothing of earlier runs."""
        return HostProgram, (self.inputs, self.outputs, self.instructions)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.verified.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.verified.outputs

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.verified.instructions

    @property
    def kernels(self) -> dict[str, CompiledKernel]:
        """Every kernel of the program by its short name, as the printed text calls it."""
        kernels = self.verified.kernels
        known = ", ".join(map(repr, kernels)) or "none"
        return KnownNames(kernels, lambda name: f"no kernel of this program is called {name!r}; there are {known}")

    @property
    def updates(self) -> tuple[str, ...]:
        """Inputs whose memory the program writes."""
        return self.verified.facts.updates

    @asks_for_inputs
    def run(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None, **unknown: Never) -> list[Any]:
        """Run once and return the outputs, arrays of the kind of the first tensor input.

        inputs   one array or number per input slot; an ArrayView of one is taken as well
        stream   raw handle, or a torch or CuPy stream; None: the current stream of the inputs' library
        device   what `resolve_device` takes, or a Device

        Raises InputError classes for arguments that do not fit (a fact that a kernel was compiled for and that does not
        hold is InputRuntimeError), LaunchError for launches that the device cannot hold, for driver errors, and within a
        stream capture for a program with Synchronize. After an error nothing is returned and all memory is given back; of the
        inputs that the program updates some may have been.
        """
        try:
            if stream is not None:
                check_stream(stream, "run() takes one list of all inputs")
            if unknown or inputs is NOT_GIVEN:
                from fuser.unbound_calls import no_such_arguments

                raise no_such_arguments(HostProgram.run, (self, inputs), unknown)
            if not isinstance(inputs, (list, tuple)):
                inputs = list(input_sequence(inputs))
            return self._launcher.run(inputs, stream, device)
        except FuserError as error:
            shorten(error)
            raise

    def bind(self, inputs: Sequence[Any], stream: Any = None, device: Any = None) -> tuple[list[Any], BoundProgram]:
        """A run by the interpreter, and its steps, for executors that keep them."""
        results, bound = interpret_and_bind(self.verified, self.history, inputs, stream, device)
        self.history.note_memory(memory_of(bound.steps))
        if bound.why_not is not None:
            self.history.note_interpreted(bound.why_not)
        return results, bound

    def _bind(self, inputs: Sequence[Any], stream: Any, device: Any, _: Any) -> tuple[list[Any], BoundProgram]:
        return self.bind(inputs, stream, device)

    def _derive(self, values: Sequence[ArrayView | Scalar], device: Any, _: Any) -> Derived:
        """`_bind` for inputs whose sizes may be numbers of a trace, which runs nothing."""
        return Derived(self.derive(values, device), lambda bound, layouts: True)

    def derive(self, values: Sequence[ArrayView | Scalar], device: Any = None) -> BoundProgram:
        """The steps of a run with these inputs, in memory of a device, for executors.

        Raises UntraceableError where they do not follow from sizes.
        """
        return derived_steps(self.verified, self.history, values, device)

    def capture(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> CapturedProgram:
        """Run once, and record the run as a graph of the device, to be launched again on these inputs or on others.

        The arguments are those of `run`; arrays must be in the memory of the device (torch, CuPy, DeviceTensor). Numbers are
        those of the call. The first run is a run: `outputs` of the captured program are its outputs, and inputs that the
        program updates have been updated once. `device` is that of all later runs, too.

        Raises what `run` raises, InputRuntimeError for arrays in host memory and those of other libraries, and LaunchError
        for a program with Synchronize.
        """
        from fuser.host_ir.executors.captured_program import CapturedProgram

        if self.verified.facts.synchronizes:
            raise LaunchError(
                "a program with Synchronize cannot be captured: in a graph there is no place where the host waits; leave "
                "it out, and wait for the stream that the graph was launched on"
            )
        numbers = {i: name for i, name in enumerate(self.inputs) if name in self.verified.facts.scalar_inputs}
        captured = CapturedProgram(self._launcher, numbers, device)
        captured.run(inputs, stream)
        return captured

    def on_streams(self, streams: int) -> HostProgram:
        """A program that does the same with launches that do not depend on each other on up to so many streams.

        It takes more memory, and its events cost the host time: worth it for kernels that leave a GPU half empty. Inputs that
        share memory are refused where one of them is updated on another stream. Raises DefinitionRuntimeError for a program
        that names streams itself or has bodies, DefinitionTypeError for a number that is none.
        """
        from fuser.host_ir.passes.assign_streams import assign_streams

        return HostProgram(self.inputs, self.outputs, assign_streams(self.instructions, streams))

    def inlined(self, inputs: Sequence[str], outputs: Sequence[str], prefix: str) -> tuple[Instruction, ...]:
        """The instructions of this program as a part of another one, such as a case of its Switch.

        inputs   the slots of that program which take the place of this one's inputs
        outputs  where its outputs go: slots that are there, of their shapes. Their memory is not that of an input, but where a
                 slot is both: then the output is computed apart and copied there
        prefix   stands before all other names of this program: slots, indices of loops, streams and events

        Raises DefinitionTypeError and DefinitionRuntimeError for names that do not fit.
        """
        from fuser.host_ir.passes.inline import inline_program

        return inline_program(self.verified, inputs, outputs, prefix)

    def interpret(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> list[Any]:
        """`run` by the reference executor, which keeps nothing from earlier runs."""
        return interpret_and_bind(self.verified, self.history, inputs, stream, device)[0]

    def counters(self) -> dict[str, int]:
        """How often since the program was built, over all threads.

        Of the launches of kernels that are made to run beside the one before, launches_beside did, and launches_kept_apart
        did not: something stood between them, or the one before had nothing to do. launches_early may start while the one
        before ends; where a binary turns out not to wait first they do not, as a warning says. replays are runs whose sizes and
        launches were known from an earlier run. host_reads are those of tensors that decide what is run, for which the host
        waited.
        compiles and recompiles (a kernel's first binary, and later ones for larger blocks) and variant_hits count what
        launches of this program asked of the process-wide table of variants.
        """
        return self.history.counters()

    def interpreted(self) -> dict[str, int]:
        """Runs by the interpreter of calls whose like will not be known to the launcher either, by reason."""
        return self.history.interpreted()

    def library_calls(self) -> list[LibraryCall]:
        """Calls of libraries that runs have made so far, each different one once; of many sizes the first ones."""
        return self.history.library_calls()

    def memory(self) -> tuple[int, int] | None:
        """(most bytes that a run has of the device at a time, all that it asks for), of the latest new sizes; None before."""
        return self.history.memory()

    def explain(self) -> str:
        """The program with each kernel's launch plan, facts and resources, and how it was run so far."""
        from fuser.host_ir.explain import explain_program

        return explain_program(self.verified, self.history)

    def __repr__(self) -> str:
        return print_program(self.verified)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostProgram):
            return NotImplemented
        mine = (self.inputs, self.outputs, self.instructions)
        return mine == (other.inputs, other.outputs, other.instructions)

    def __hash__(self) -> int:
        return hash((self.inputs, self.outputs, len(self.instructions)))

    def launches(self) -> list[LaunchKernel]:
        """The LaunchKernel instructions, in order, those of bodies too."""
        return [i for i in walk(self.instructions) if isinstance(i, LaunchKernel)]


def _arrays_of_views(inputs: Sequence[Any]) -> Sequence[Any]:
    """Inputs with the arrays that views are of."""
    if ArrayView not in map(type, inputs):
        return inputs
    return [value.array if type(value) is ArrayView else value for value in inputs]
