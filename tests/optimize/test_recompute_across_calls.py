"""What costs next to nothing is computed again behind a library call instead of stored before it."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.host_ir.instructions.instructions import Allocate
from fuser.host_ir.program import HostProgram
from fuser.ir.fusion.fusion import Fusion, LibraryOp
from fuser.ir.fusion.print_fusion import math_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.recompute_across_calls import recompute_across_calls
from tests.fusions.llama_block import Sizes, define, inputs
from tests.fuzzing.random_library_programs import generate


def defined(fd: FusionDefinition) -> Fusion:
    assert fd.fusion is not None
    return fd.fusion.ir_fusion


def stored(program: HostProgram) -> list[DataType]:
    """Element types of what is stored that does not go out."""
    made = [i for i in program.instructions if isinstance(i, Allocate)]
    return [i.dtype for i in made if i.slot not in program.outputs]


def residual() -> FusionDefinition:
    with FusionDefinition() as fd:
        x, w = (fd.define_tensor([-1, -1], dtype=DataType.BFloat16) for _ in range(2))
        wide = fd.ops.cast(x, DataType.Float)
        y = fd.ops.matmul(fd.ops.cast(fd.ops.mul(wide, wide), DataType.BFloat16), w)
        fd.add_output(fd.ops.add(y, wide))
    return fd


def test_a_cast_that_both_sides_read_is_made_on_both() -> None:
    fd = residual()
    again = recompute_across_calls(defined(fd))
    verify_fusion(again, "recompute_across_calls")
    assert math_text(again).count("cast(tv0, dtype=DataType.Float)") == 2
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((4, 4)).astype(ml_dtypes.bfloat16) for _ in range(2)]
    assert set(stored(fd.program(arrays))) == {DataType.BFloat16}
    fd.validate(arrays)


def test_expansions_and_factories_are_not_stored() -> None:
    with FusionDefinition() as fd:
        x, b = fd.define_tensor([8, 8], dtype=DataType.Float), fd.define_tensor([8], dtype=DataType.Float)
        rows = fd.ops.broadcast_in_dim(b, [8, 8], [1])
        ones = fd.ops.full([8, 8], 1.0, DataType.Float)
        y = fd.ops.matmul(fd.ops.add(fd.ops.add(x, rows), ones), x)
        fd.add_output(fd.ops.mul(fd.ops.add(y, rows), ones))
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((8, 8), (8,))]
    program = fd.program(arrays)
    assert len(stored(program)) == 2  # the operand and the result of the product
    fd.validate(arrays)


def test_what_is_narrower_than_its_operand_or_an_output_stays() -> None:
    with FusionDefinition() as fd:
        x, w = fd.define_tensor([-1, -1], dtype=DataType.Float), fd.define_tensor([-1, -1], dtype=DataType.BFloat16)
        narrow = fd.ops.cast(x, DataType.BFloat16)
        wide = fd.ops.cast(w, DataType.Float)
        y = fd.ops.matmul(narrow, w)
        z = fd.ops.matmul(fd.ops.cast(fd.ops.add(y, narrow), DataType.BFloat16), w)
        fd.add_output(fd.ops.add(z, wide))
        fd.add_output(wide)
    fusion = defined(fd)
    assert recompute_across_calls(fusion) is fusion


def test_fusions_without_calls_are_left_alone() -> None:
    with FusionDefinition() as fd:
        x = fd.ops.cast(fd.define_tensor([-1], dtype=DataType.Half), DataType.Float)
        fd.add_output(fd.ops.segment_set(x))
        fd.add_output(fd.ops.sum(x, dims=[0]))
    fusion = defined(fd)
    assert recompute_across_calls(fusion) is fusion


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_stay_programs(seed: int) -> None:
    fusion = defined(generate(random.Random(seed))[0])
    again = recompute_across_calls(fusion)
    verify_fusion(again, "recompute_across_calls")
    calls: list[Any] = [[e.op for e in f.exprs if isinstance(e, LibraryOp)] for f in (fusion, again)]
    assert calls[0] == calls[1]


def test_a_llama_block_stores_no_activations_in_float_but_a_softmax() -> None:
    sizes = Sizes()
    program = define(sizes, DataType.BFloat16).program(inputs(sizes, ml_dtypes.bfloat16))
    shapes = [i.shape for i in program.instructions if isinstance(i, Allocate) and i.dtype is DataType.Float]
    rows = (sizes.batch, sizes.seq, 1)
    scores = (sizes.batch, sizes.heads, sizes.seq, sizes.seq)
    assert sorted(shapes) == sorted([rows, rows, scores])
