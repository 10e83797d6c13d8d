"""A program as data: what is numbered and labelled, and what is refused."""

from __future__ import annotations

import pytest

from fuser.errors import DefinitionTypeError
from fuser.host_ir.instructions.expressions import extent
from fuser.host_ir.instructions.instructions import Alias, Allocate, Fill, Instruction, LaunchKernel
from fuser.host_ir.passes.verified_program import verified_program
from fuser.ir.ops.dtypes import DataType
from tests.host_ir.kernels import scale_kernel

N = extent("x", 0)
KERNEL = scale_kernel()
INSTRUCTIONS: tuple[Instruction, ...] = (
    Allocate("y", (N,), DataType.Float),
    Alias("half", "y", (N // 2,), (1,)),
    LaunchKernel(KERNEL, ("x", "y", "alpha")),
    Alias("same", "x"),
    Fill("half", 0.0),
)


def test_memory_is_numbered_inputs_first() -> None:
    made = verified_program(("x", "z", "alpha"), ("y", "z"), INSTRUCTIONS)
    assert made.root_names[:3] == made.inputs
    assert made.roots["half"] == made.roots["y"]
    assert made.roots["same"] == made.roots["x"]
    assert all(made.root_names[number] == made.facts.roots[slot] for slot, number in made.roots.items())


def test_parts_may_be_read_only_once() -> None:
    once = verified_program(iter(("x", "alpha")), iter(("y",)), iter(INSTRUCTIONS))
    again = verified_program(once.inputs, once.outputs, once.instructions)
    assert (once.inputs, once.outputs, once.instructions) == (("x", "alpha"), ("y",), INSTRUCTIONS)
    assert (once.facts, once.needs, once.roots, once.side_by_side) == (
        again.facts,
        again.needs,
        again.roots,
        again.side_by_side,
    )
    assert list(once.kernels.values()) == [KERNEL]


def test_one_name_and_one_instruction_are_no_sequences() -> None:
    with pytest.raises(
        DefinitionTypeError, match=r"HostProgram: outputs must be a sequence of names, got the text 'x'"
    ):
        verified_program(("x",), "x", ())
    with pytest.raises(DefinitionTypeError, match=r"HostProgram: instructions must be a sequence, got one Fill"):
        verified_program(("x",), ("x",), Fill("x", 1.0))  # type: ignore[arg-type]
