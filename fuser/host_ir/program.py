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

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from fuser.host_ir.instructions import Instruction, LaunchKernel
from fuser.host_ir.launcher import Launcher
from fuser.host_ir.print import label_kernels, print_program
from fuser.host_ir.side_by_side import Beside, side_by_side
from fuser.host_ir.verify import ProgramFacts, verify_program
from fuser.runtime.compiled_kernel import CompiledKernel

COUNTERS = (
    "runs",
    "replays",
    "launches",
    "launches_beside",
    "launches_kept_apart",
    "skipped_launches",
    "allocations",
    "deallocations",
    "copies",
    "fills",
    "host_to_device",
    "device_to_host",
    "compiles",
    "recompiles",
    "variant_hits",
)


class HostProgram:
    """A sequence of instructions over named slots. Immutable; compares by inputs, outputs and instructions.

    `inputs` name the slots that `run` fills, in order: arrays or numbers. `outputs` name what it returns; an input named
    here is returned as the caller's own array. Inputs that instructions write are updated in place.

    Raises DefinitionRuntimeError or DefinitionTypeError, naming the instruction, for a program that is not well formed.
    """

    __slots__ = (
        "_counters",
        "_inputs",
        "_instructions",
        "_kernels",
        "_launcher",
        "_lock",
        "_outputs",
        "facts",
        "root_names",
        "roots",
        "side_by_side",
    )

    def __init__(self, inputs: Iterable[str], outputs: Iterable[str], instructions: Iterable[Instruction]) -> None:
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._instructions = tuple(instructions)
        self.facts: ProgramFacts = verify_program(self._inputs, self._outputs, self._instructions)
        # Memory that slots go back to, numbered: inputs and what Allocate makes.
        # Inputs come first, in order.
        self.root_names: tuple[str, ...] = tuple(dict.fromkeys(self.facts.roots.values()))
        self.roots: dict[str, int] = {slot: self.root_names.index(root) for slot, root in self.facts.roots.items()}
        self.side_by_side: dict[int, Beside] = side_by_side(self._instructions)
        self._launcher = Launcher(self)
        self._kernels = label_kernels(self._instructions)
        self._lock = threading.Lock()
        self._counters: dict[str, int] = dict.fromkeys(COUNTERS, 0)

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
        return dict(self._kernels)

    @property
    def updates(self) -> tuple[str, ...]:
        """Inputs whose memory the program writes."""
        return self.facts.updates

    def run(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> list[Any]:
        """Run once and return the outputs, arrays of the kind of the first tensor input.

        inputs   one array or number per input slot; an ArrayView of one is taken as well
        stream   raw handle, or a torch or CuPy stream; None: the current stream of the inputs' library
        device   what `resolve_device` takes, or a Device

        Raises InputError classes for arguments that do not fit (a fact that a kernel was compiled for and that does not
        hold is InputRuntimeError), LaunchError for launches that the device cannot hold and for driver errors. After an
        error nothing is returned and all memory is given back.
        """
        return self._launcher.run(inputs, stream, device)

    def interpret(self, inputs: Sequence[Any], stream: Any = None, *, device: Any = None) -> list[Any]:
        """`run` by the reference executor, which keeps nothing from earlier runs."""
        from fuser.host_ir.interpreter import interpret

        return interpret(self, inputs, stream, device)

    def counters(self) -> dict[str, int]:
        """How often since the program was built, over all threads.

        Of the launches of kernels that are made to run beside the one before, launches_beside did, and launches_kept_apart
        did not: something stood between them, or the one before had nothing to do. replays are runs whose sizes and
        launches were known from an earlier run.
        compiles and recompiles (a kernel's first binary, and later ones for larger blocks) and variant_hits count what
        launches of this program asked of the process-wide table of variants.
        """
        with self._lock:
            total = dict(self._counters)
        for name, n in self._launcher.counters().items():
            total[name] += n
        return total

    def count(self, deltas: dict[str, int]) -> None:
        """Add to the counters (for executors)."""
        with self._lock:
            for name, n in deltas.items():
                self._counters[name] += n

    def interpreted(self) -> dict[str, int]:
        """Runs that were left to the interpreter although their like was seen before, by reason."""
        return self._launcher.interpreted()

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
        """The LaunchKernel instructions, in order."""
        return [i for i in self._instructions if isinstance(i, LaunchKernel)]
