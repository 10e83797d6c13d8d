"""`HostProgram`: inputs, instructions, outputs; verified when built, run any number of times.

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
from typing import TYPE_CHECKING, Any, Never, get_args

from fuser import locks
from fuser.errors import DefinitionTypeError, FuserError, LaunchError
from fuser.host_ir.bodies import walk
from fuser.host_ir.families import Derived
from fuser.host_ir.instructions import Instruction, LaunchKernel
from fuser.host_ir.key_needs import KeyNeeds, key_needs
from fuser.host_ir.launcher import Launcher
from fuser.host_ir.print_instruction import label_kernels
from fuser.host_ir.print_program import print_program
from fuser.host_ir.run_inputs import check_stream
from fuser.host_ir.side_by_side import Beside, side_by_side
from fuser.host_ir.steps import BoundProgram, Tally, memory_of
from fuser.host_ir.verify import ProgramFacts, verify_program
from fuser.missing_names import KnownNames, says_instead
from fuser.runtime.arrays import ArrayView, Scalar, input_sequence
from fuser.runtime.compiled_kernel import CompiledKernel
from fuser.runtime.library_calls import LibraryCall
from fuser.source_location import caller_location
from fuser.tracebacks import short_tracebacks, shorten
from fuser.unbound_calls import NOT_GIVEN, asks_for_inputs

if TYPE_CHECKING:
    from fuser.host_ir.captured_program import CapturedProgram

COUNTERS = (
    "runs",
    "replays",
    "launches",
    "launches_beside",
    "launches_kept_apart",
    "launches_early",
    "skipped_launches",
    "library_calls",
    "allocations",
    "deallocations",
    "copies",
    "fills",
    "host_to_device",
    "device_to_host",
    "host_reads",
    "compiles",
    "recompiles",
    "variant_hits",
)


# Different calls of libraries that `explain` tells of.
_MAX_CALLS = 64

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

    __slots__ = (
        "_calls",
        "_counters",
        "_inputs",
        "_instructions",
        "_interpreted",
        "_kernels",
        "_launcher",
        "_lock",
        "_memory",
        "_outputs",
        "_tallies",
        "facts",
        "needs",
        "root_names",
        "roots",
        "side_by_side",
    )

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str], instructions: Iterable[Instruction]) -> None:
        for what, names in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(names, str):
                raise DefinitionTypeError(
                    f"HostProgram: {what} must be a sequence of names, got the text {names!r}: write ({names!r},)",
                    location=caller_location(),
                )
        if isinstance(instructions, get_args(Instruction)):
            raise DefinitionTypeError(
                "HostProgram: instructions must be a sequence, got one "
                f"{type(instructions).__name__}: write ({type(instructions).__name__}(...),)",
                location=caller_location(),
            )
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._instructions = tuple(instructions)
        self.facts: ProgramFacts = verify_program(self._inputs, self._outputs, self._instructions)
        # Memory that slots go back to, numbered: inputs and what Allocate makes.
        # Inputs come first, in order.
        self.root_names: tuple[str, ...] = tuple(dict.fromkeys(self.facts.roots.values()))
        self.roots: dict[str, int] = {slot: self.root_names.index(root) for slot, root in self.facts.roots.items()}
        self.side_by_side: dict[int, Beside] = side_by_side(self._instructions)
        self.needs: KeyNeeds = key_needs(self._instructions, self.facts)
        self._launcher = Launcher(self._bind, _arrays_of_views, self._derive)
        self._kernels = label_kernels(self._instructions)
        self._lock = locks.reentrant_lock()
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)
        self._tallies: list[Tally] = []
        # Of the latest run that the interpreter made, most bytes at a time and all.
        self._memory: tuple[int, int] | None = None
        self._calls: dict[LibraryCall, None] = {}
        # Runs whose like will go to the interpreter again, by reason.
        self._interpreted: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies have the text and its kernels, and nothing of earlier runs."""
        return HostProgram, (self._inputs, self._outputs, self._instructions)

    @property
    def inputs(self) -> tuple[str, ...]:
        return self._inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._outputs

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self._instructions

    @property
    def kernels(self) -> dict[str, CompiledKernel]:
        """Every kernel of the program by its short name, as the printed text calls it."""
        known = ", ".join(map(repr, self._kernels)) or "none"
        return KnownNames(
            self._kernels, lambda name: f"no kernel of this program is called {name!r}; there are {known}"
        )

    @property
    def updates(self) -> tuple[str, ...]:
        """Inputs whose memory the program writes."""
        return self.facts.updates

    @asks_for_inputs
    def run(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None, **unknown: Never) -> list[Any]:
        """Run once and return the outputs, arrays of the kind of the first tensor input.

        inputs   one array or number per input slot; an ArrayView of one is taken as well
        stream   raw handle, or a torch or CuPy stream; None: the current stream of the inputs' library
        device   what `resolve_device` takes, or a Device

        Raises InputError classes for arguments that do not fit (a fact that a kernel was compiled for and that does not
        hold is InputRuntimeError), LaunchError for launches that the device cannot hold, for driver errors, and within a
        stream capture for a program with Synchronize. After an error nothing is returned and all memory is given back.
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
        from fuser.host_ir.interpreter import interpret_and_bind

        results, bound = interpret_and_bind(self, inputs, stream, device)
        self.remember_memory(memory_of(bound.steps))
        why = bound.why_not
        if why is not None:
            with self._lock:
                self._interpreted[why] = self._interpreted.get(why, 0) + 1
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
        from fuser.host_ir.derived_steps import derived_steps

        return derived_steps(self, values, device)

    def capture(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> CapturedProgram:
        """Run once, and record the run as a graph of the device, to be launched again on these inputs or on others.

        The arguments are those of `run`; arrays must be in the memory of the device (torch, CuPy, DeviceTensor). Numbers are
        those of the call. The first run is a run: `outputs` of the captured program are its outputs, and inputs that the
        program updates have been updated once. `device` is that of all later runs, too.

        Raises what `run` raises, InputRuntimeError for arrays in host memory and those of other libraries, and LaunchError
        for a program with Synchronize.
        """
        from fuser.host_ir.captured_program import CapturedProgram

        if self.facts.synchronizes:
            raise LaunchError(
                "a program with Synchronize cannot be captured: in a graph there is no place where the host waits; leave "
                "it out, and wait for the stream that the graph was launched on"
            )
        numbers = {i: name for i, name in enumerate(self._inputs) if name in self.facts.scalar_inputs}
        captured = CapturedProgram(self._launcher, numbers, device)
        captured.run(inputs, stream)
        return captured

    def on_streams(self, streams: int) -> HostProgram:
        """A program that does the same with launches that do not depend on each other on up to so many streams.

        It takes more memory, and its events cost the host time: worth it for kernels that leave a GPU half empty. Inputs that
        share memory are refused where one of them is updated on another stream. Raises DefinitionRuntimeError for a program
        that names streams itself or has bodies, DefinitionTypeError for a number that is none.
        """
        from fuser.host_ir.assign_streams import assign_streams

        return HostProgram(self._inputs, self._outputs, assign_streams(self._instructions, streams))

    def inlined(self, inputs: Sequence[str], outputs: Sequence[str], prefix: str) -> tuple[Instruction, ...]:
        """The instructions of this program as a part of another one, such as a case of its Switch.

        inputs   the slots of that program which take the place of this one's inputs
        outputs  where its outputs go: slots that are there, of their shapes. Their memory is not that of an input, but where a
                 slot is both: then the output is computed apart and copied there
        prefix   stands before all other names of this program: slots, indices of loops, streams and events

        Raises DefinitionTypeError and DefinitionRuntimeError for names that do not fit.
        """
        from fuser.host_ir.inline import inline_program

        return inline_program(self, inputs, outputs, prefix)

    def interpret(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> list[Any]:
        """`run` by the reference executor, which keeps nothing from earlier runs."""
        from fuser.host_ir.interpreter import interpret

        return interpret(self, inputs, stream, device)

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
        with self._lock:
            total = dict(self._counters)
            tallies = list(self._tallies)
        for tally in tallies:
            total["replays"] += tally.replays
            for name, n in tally.counts.items():
                total[name] += n * tally.replays
        return total

    def add_tally(self, tally: Tally) -> None:
        """Count what an executor counts there."""
        with self._lock:
            self._tallies.append(tally)

    def count(self, deltas: dict[str, int]) -> None:
        """Add to the counters (for executors)."""
        with self._lock:
            for name, n in deltas.items():
                self._counters[name] += n

    def interpreted(self) -> dict[str, int]:
        """Runs by the interpreter of calls whose like will not be known to the launcher either, by reason."""
        with self._lock:
            return dict(self._interpreted)

    def note_call(self, call: LibraryCall) -> None:
        """Keep what the interpreter handed to a library, for `explain` (for executors)."""
        with self._lock:
            if len(self._calls) < _MAX_CALLS:
                self._calls.setdefault(call)

    def library_calls(self) -> list[LibraryCall]:
        """Calls of libraries that runs have made so far, each different one once; of many sizes the first ones."""
        with self._lock:
            return list(self._calls)

    def remember_memory(self, memory: tuple[int, int]) -> None:
        """Note what a run with new sizes takes (for executors)."""
        self._memory = memory

    def memory(self) -> tuple[int, int] | None:
        """(most bytes that a run has of the device at a time, all that it asks for), of the latest new sizes; None before."""
        return self._memory

    def explain(self) -> str:
        """The program with each kernel's launch plan, facts and resources, and how it was run so far."""
        from fuser.host_ir.explain import explain_program

        return explain_program(self)

    def __repr__(self) -> str:
        return print_program(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HostProgram):
            return NotImplemented
        mine = (self._inputs, self._outputs, self._instructions)
        return mine == (other._inputs, other._outputs, other._instructions)

    def __hash__(self) -> int:
        return hash((self._inputs, self._outputs, len(self._instructions)))

    def launches(self) -> list[LaunchKernel]:
        """The LaunchKernel instructions, in order, those of bodies too."""
        return [i for i in walk(self._instructions) if isinstance(i, LaunchKernel)]


def _arrays_of_views(inputs: Sequence[Any]) -> Sequence[Any]:
    """Inputs with the arrays that views are of."""
    if ArrayView not in map(type, inputs):
        return inputs
    return [value.array if type(value) is ArrayView else value for value in inputs]
