"""Instructions of host programs.

Grammar
    program     := HostProgram(inputs, outputs, instructions)
    instruction := Allocate(slot, shape, dtype, strides)      new uninitialised memory
                 | Deallocate(slot)                           its memory may be reused; no later use
                 | Alias(slot, of, sizes, strides, offset)    another view of the memory of `of`
                 | Copy(dst, src)                             elementwise, any layouts of equal shape
                 | Fill(slot, value)                          every element
                 | RequireDisjoint(slots, others)             inputs that must not share memory
                 | LaunchKernel(kernel, args, launch)
                 | CallLibrary(op, outputs, arguments)        what a library computes, into slots that are there
                 | SetStream(stream)                          what follows goes to that stream
                 | RecordEvent(event)                         the event is what stands on the stream by now
                 | WaitEvent(event)                           what follows on the stream waits for the event
                 | Synchronize()                              the host waits for all streams of the program
                 | If(condition, then, otherwise)             one of two bodies
                 | Switch(selector, cases, default)           one of several
                 | ForLoop(index, start, stop, step, body)    a body as often as `range` says
    body        := instruction*
    condition   := comparison of sizes | condition and condition | condition or condition | name of a tensor
    selector    := size | name of a tensor
    slot        := name of an input (array or number) or of what Allocate or Alias made
    arg         := slot | number | size
    stream      := 0, the caller's | a number or a name, beside it
    event       := a number or a name

Slots hold tensors in device memory, or numbers. Shapes and strides are sizes (`expressions.py`), strides and offsets in
elements. Memory and numbers are all that passes from one instruction to the next.

Instructions on one stream run in order. A stream beside the caller's begins where the program first turns to it: behind
what it has put on stream 0 until then. Between streams there is no other order than that of events and `Synchronize`. Two
instructions on different streams that touch the memory of one slot, or of aliases of one, and not both to read it, must
be in order; so must all that touch it with its `Allocate` and `Deallocate`. Behind the program the caller's stream comes
after all others, so that from outside it ran on one. A recorded graph has no streams: its edges are those of the bytes.

Which bodies run is known when the program is called where conditions, selectors and bounds are sizes. The name of a slot
instead is a tensor of one element, an integer or a Bool, and the value is the one that it has when the device comes there: in a
graph the device itself chooses, else the host waits for the value and reads it. The bodies of such a choice hold launches,
copies, fills, views, memory and other instructions with bodies: no streams, no events, no Synchronize. Their memory is there
around the whole choice, whichever body runs. A selector out of range runs the default, and LaunchError is raised: at the end
of a run in which the host read it, else when the host next synchronises with the device. A slot that is made in a body
ends with it, and so does its memory, but for one that all bodies of an If or Switch allocate alike: that is there behind
them. A name stands for one memory in the whole program. What a loop writes counts as written, however often it runs.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, get_args

from fuser.errors import DefinitionTypeError
from fuser.host_ir.instructions.expressions import GivenSize, Size, as_condition, as_size, as_sizes
from fuser.ir.integers.integers import Cond, Int
from fuser.ir.ops.dtypes import DataType, as_dtype, dtype_remedy
from fuser.records import record
from fuser.runtime.kernels.compiled_kernel import CompiledKernel
from fuser.runtime.scalars import is_scalar, python_number
from fuser.tracebacks import short_tracebacks

if TYPE_CHECKING:
    from fuser.runtime.kernels.launch_params import LaunchParams
    from fuser.runtime.rtc_kernel import RtcKernel

Argument = str | bool | int | float | complex | Int
LibraryArgument = Argument | None


@short_tracebacks
@record
class Allocate:
    """New memory for a tensor: row major, unless `strides` (not negative) are given.

    It is taken in the order of the stream that this stands on, which is stream 0 for memory that goes out.
    """

    slot: str
    shape: tuple[Size, ...]
    dtype: DataType
    strides: tuple[Size, ...] | None = None

    if TYPE_CHECKING:
        # What is given may be any sequence; what is kept is a tuple.
        def __init__(
            self, slot: str, shape: Sequence[GivenSize], dtype: DataType, strides: Sequence[GivenSize] | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes(self.shape, "Allocate"))
        dtype = as_dtype(self.dtype)
        if dtype is None or not dtype.itemsize:
            raise DefinitionTypeError(f"Allocate takes a DataType, got {self.dtype!r}: {dtype_remedy(self.dtype)}")
        object.__setattr__(self, "dtype", dtype)
        if self.strides is not None:
            object.__setattr__(self, "strides", as_sizes(self.strides, "Allocate"))


@short_tracebacks
@record
class Deallocate:
    """The end of a slot that Allocate made, and of every alias of it."""

    slot: str


@short_tracebacks
@record
class Alias:
    """`slot` is the memory of `of`, seen with another layout `offset` elements further on; None keeps what `of` has.

    New sizes without strides are row major.
    """

    slot: str
    of: str
    sizes: tuple[Size, ...] | None = None
    strides: tuple[Size, ...] | None = None
    offset: Size = 0

    if TYPE_CHECKING:

        def __init__(
            self,
            slot: str,
            of: str,
            sizes: Sequence[GivenSize] | None = None,
            strides: Sequence[GivenSize] | None = None,
            offset: GivenSize = 0,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.sizes is not None:
            object.__setattr__(self, "sizes", as_sizes(self.sizes, "Alias"))
        if self.strides is not None:
            object.__setattr__(self, "strides", as_sizes(self.strides, "Alias"))
        object.__setattr__(self, "offset", as_size(self.offset, "Alias"))


@short_tracebacks
@record
class Copy:
    """Elements of `src` into `dst`, of the same shape and dtype. If the two overlap, `src` is read as it was before."""

    dst: str
    src: str


@short_tracebacks
@record
class Fill:
    """One value into every element, converted to the slot's dtype."""

    slot: str
    value: bool | int | float | complex

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _plain(self.value))
        if not isinstance(self.value, (bool, int, float, complex)):
            kind = type(self.value).__name__
            raise DefinitionTypeError(f"Fill takes a number, got {kind}; Copy(dst, src) writes what another slot holds")


@short_tracebacks
@record
class RequireDisjoint:
    """Memory of `slots` overlaps neither that of `others` nor that of one another: InputRuntimeError if it does.

    What a program rests on that writes an input before it has read all others. It checks arguments, and does nothing to them.
    """

    slots: tuple[str, ...]
    others: tuple[str, ...] = ()

    if TYPE_CHECKING:

        def __init__(self, slots: Sequence[str], others: Sequence[str] = ()) -> None: ...

    def __post_init__(self) -> None:
        for name in ("slots", "others"):
            given: object = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise DefinitionTypeError(f"{name} of RequireDisjoint are a sequence of slots, got {given!r}")
            object.__setattr__(self, name, tuple(given))


@short_tracebacks
@record
class LaunchKernel:
    """Run a kernel.

    args    a planned kernel's tensor inputs, then its outputs, then its user scalars; a raw kernel's parameters.
            Numbers may be expressions of extents
    launch  None: the kernel's own plan. A planned kernel's launch sizes must agree with those set here; a raw kernel
            has no plan and needs them

    `kernel` is a CompiledKernel, or a raw kernel that was compiled.
    """

    kernel: CompiledKernel
    args: tuple[Argument, ...]
    launch: LaunchParams | None = None

    if TYPE_CHECKING:

        def __init__(
            self, kernel: CompiledKernel | RtcKernel, args: Sequence[Argument], launch: LaunchParams | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, CompiledKernel):
            object.__setattr__(self, "kernel", _kernel_of(self.kernel))
        if isinstance(self.args, str) or not isinstance(self.args, Sequence):
            raise DefinitionTypeError(f"LaunchKernel takes a sequence of slots and numbers, got {self.args!r}")
        object.__setattr__(self, "args", tuple(_plain(a) for a in self.args))
        if self.launch is not None:
            _check_launch(self.launch)
        for arg in self.args:
            if not isinstance(arg, (str, bool, int, float, complex, Int)):
                raise DefinitionTypeError(
                    f"an argument of LaunchKernel is the name of a slot, a number or a size, got {arg!r}"
                )


@short_tracebacks
@record
class CallLibrary:
    """Have a library compute: torch on tensors of torch, CuPy on other arrays of a GPU, NumPy on the simulator.

    op         a row of `fuser.ir.fusion.library_ops`, such as "matmul"
    outputs    slots of its results, of any layout, in order
    arguments  by parameter: slots of tensors, numbers, slots of numbers, sizes. What is left out is as in the definition's op
    """

    op: str
    outputs: tuple[str, ...]
    arguments: tuple[tuple[str, LibraryArgument], ...]

    if TYPE_CHECKING:

        def __init__(
            self,
            op: str,
            outputs: Sequence[str],
            arguments: Mapping[str, LibraryArgument] | Sequence[tuple[str, LibraryArgument]],
        ) -> None: ...

    def __post_init__(self) -> None:
        from fuser.ir.fusion.library_ops import LIBRARY_OPS

        if self.op not in LIBRARY_OPS:
            known = ", ".join(map(repr, LIBRARY_OPS))
            raise DefinitionTypeError(f"CallLibrary takes the name of an op, one of {known}, got {self.op!r}")
        if isinstance(self.outputs, str) or not isinstance(self.outputs, Sequence):
            raise DefinitionTypeError(f"outputs of CallLibrary are a sequence of slots, got {self.outputs!r}")
        object.__setattr__(self, "outputs", tuple(self.outputs))
        if not isinstance(self.arguments, (Mapping, tuple)):
            raise DefinitionTypeError(
                f"arguments of CallLibrary are a dict, as in {{'arg1': 'x', 'arg2': 'y'}}, got {self.arguments!r}"
            )
        given: dict[str, Any] = dict(self.arguments)
        object.__setattr__(self, "arguments", tuple((name, _plain(value)) for name, value in given.items()))


@short_tracebacks
@record
class SetStream:
    """Instructions that follow go to this stream, up to the next SetStream: 0 is the caller's, on which a program begins.

    What a program calls a stream is bound to one of the device for each run.
    """

    stream: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream", _name("SetStream", "a stream", self.stream))


@short_tracebacks
@record
class RecordEvent:
    """The event is what stands on the current stream by now. One that is recorded again is the later one from then on."""

    event: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", _name("RecordEvent", "an event", self.event))


@short_tracebacks
@record
class WaitEvent:
    """What follows on the current stream waits, on the device, for what the event is by now."""

    event: int | str

    def __post_init__(self) -> None:
        object.__setattr__(self, "event", _name("WaitEvent", "an event", self.event))


@short_tracebacks
@record
class Synchronize:
    """The host waits until the device has done all that came before, on all streams of the program.

    It has no place in a graph: programs with it are not captured, and not run within the capture of a caller.
    """


@short_tracebacks
@record
class If:
    """`then` where the condition holds, else `otherwise`. The condition is one of sizes; a size alone: whether it is not 0.

    The name of a slot: whether the one element of that tensor, an integer or a Bool, is not 0 when the device comes there.
    """

    condition: Cond | Size | str
    then: tuple[Instruction, ...]
    otherwise: tuple[Instruction, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self, condition: Cond | GivenSize | str, then: Sequence[Instruction], otherwise: Sequence[Instruction] = ()
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.condition, str):
            object.__setattr__(self, "condition", as_condition(self.condition, "If"))
        object.__setattr__(self, "then", _body(self.then, "If"))
        object.__setattr__(self, "otherwise", _body(self.otherwise, "If"))


@short_tracebacks
@record
class Switch:
    """Case number `selector`; `default` where there is none of that number.

    The name of a slot: the number is the one element of that tensor, an integer or a Bool, when the device comes there. One for
    which there is no case runs the default, and is an error that is raised later.
    """

    selector: Size | str
    cases: tuple[tuple[Instruction, ...], ...]
    default: tuple[Instruction, ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            selector: GivenSize | str,
            cases: Sequence[Sequence[Instruction]],
            default: Sequence[Instruction] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.selector, str):
            object.__setattr__(self, "selector", as_size(self.selector, "Switch"))
        if isinstance(self.cases, (str, *_kinds())) or not isinstance(self.cases, Sequence):
            raise DefinitionTypeError(f"Switch takes a sequence of bodies, got {self.cases!r}")
        object.__setattr__(self, "cases", tuple(_body(case, "Switch") for case in self.cases))
        object.__setattr__(self, "default", _body(self.default, "Switch"))


@short_tracebacks
@record
class ForLoop:
    """The body for each number of `range(start, stop, step)`, which is `scalar(index)` in it."""

    index: str
    start: Size
    stop: Size
    step: Size
    body: tuple[Instruction, ...]

    if TYPE_CHECKING:

        def __init__(
            self, index: str, start: GivenSize, stop: GivenSize, step: GivenSize, body: Sequence[Instruction]
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("start", "stop", "step"):
            object.__setattr__(self, name, as_size(getattr(self, name), "ForLoop"))
        object.__setattr__(self, "body", _body(self.body, "ForLoop"))


def _kinds() -> tuple[type, ...]:
    return get_args(Instruction)


def _body(instructions: object, what: str) -> tuple[Instruction, ...]:
    if isinstance(instructions, Sequence) and not isinstance(instructions, str):
        found: list[Any] = list(instructions)
        for one in found:
            if not isinstance(one, _kinds()):
                raise DefinitionTypeError(f"a body of {what} is a sequence of instructions, and {one!r} is none")
        return tuple(found)
    got = f"got {instructions!r}"
    if isinstance(instructions, _kinds()):
        got = f"got one: write ({type(instructions).__name__}(...),)"
    raise DefinitionTypeError(f"a body of {what} is a sequence of instructions, {got}")


def _name(instruction: str, what: str, name: object) -> int | str:
    if isinstance(name, str) and name:
        return name
    if isinstance(name, SupportsIndex) and not isinstance(name, bool) and (number := operator.index(name)) >= 0:
        return number
    raise DefinitionTypeError(f"{instruction} takes {what} by a number from 0 or a name, got {name!r}")


def _plain(value: Any) -> Any:
    """A number as it prints: those of NumPy, and sizes that are constants, as Python's. Anything else as it is."""
    if isinstance(value, Int):
        return as_size(value, "an instruction")
    return python_number(value) if is_scalar(value) else value


def _check_launch(launch: object) -> None:
    from fuser.runtime.kernels.launch_params import LaunchParams

    if not isinstance(launch, LaunchParams):
        raise DefinitionTypeError(
            f"launch of LaunchKernel is a LaunchParams, got {type(launch).__name__}; as in LaunchParams(8, 1, 1, 256, 1, 1)"
        )


def _kernel_of(kernel: object) -> CompiledKernel:
    """The compiled kernel of an RtcKernel. Raises LaunchError if it is not compiled yet."""
    from fuser.runtime.rtc_kernel import RtcKernel

    if not isinstance(kernel, RtcKernel):
        raise DefinitionTypeError(
            f"LaunchKernel takes a CompiledKernel or a compiled RtcKernel, got {type(kernel).__name__}: "
            "KernelCompiler().compile(fd, inputs) makes one of a definition"
        )
    return kernel.kernel


Instruction = (
    Allocate
    | Deallocate
    | Alias
    | Copy
    | Fill
    | RequireDisjoint
    | LaunchKernel
    | CallLibrary
    | SetStream
    | RecordEvent
    | WaitEvent
    | Synchronize
    | If
    | Switch
    | ForLoop
)
