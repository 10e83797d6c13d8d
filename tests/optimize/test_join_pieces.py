"""Pieces of one tensor that a concatenation puts side by side are one read: of which tensors, and that values stay."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fuser import DataType, FusionDefinition
from fuser.frontend.reference import evaluate_fusion
from fuser.ir.fusion.fusion import Cat, Fusion, Resize
from fuser.ir.fusion.print_fusion import definition_text
from fuser.ir.fusion.verify_fusion import verify_fusion
from fuser.optimize.hoist_displaced_reads import hoist_displaced_reads
from fuser.optimize.join_pieces import join_pieces

D = DataType
X = np.arange(48, dtype=np.float64).reshape(6, 8) - 20


def rolled(o: Any, x: Any, shift: int, axis: int) -> Any:
    """torch.roll(x, -shift, axis)."""
    ends = [x.size(d) for d in range(x.ndim)]
    later = [shift if d == axis else 0 for d in range(x.ndim)]
    return o.cat(
        [o.slice(x, later, ends), o.slice(x, [0] * x.ndim, [shift if d == axis else e for d, e in enumerate(ends)])],
        axis,
    )


def joined(build: Callable[[Any, Any], Any], *, symbolic: bool = False) -> Fusion:
    """The fusion of an output over x [6, 8] after the pass; values are compared."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1] if symbolic else [6, 8], True, D.Double)
        fd.add_output(build(fd.ops, x))
    assert fd.fusion is not None
    made = join_pieces(fd.fusion.ir_fusion)
    verify_fusion(made)
    assert join_pieces(made) is made
    after = hoist_displaced_reads(made)
    verify_fusion(after)
    expected = evaluate_fusion(fd.fusion.ir_fusion, [X])[0]
    np.testing.assert_array_equal(evaluate_fusion(after, [X])[0], expected)
    np.testing.assert_array_equal(fd.execute([X])[0], expected)
    return after


def parts(fusion: Fusion) -> tuple[int, int]:
    """How many reads and concatenations there are."""
    return tuple(sum(isinstance(e, kind) for e in fusion.tensor_exprs) for kind in (Resize, Cat))  # type: ignore[return-value]


ONE_READ: dict[str, Callable[[Any, Any], Any]] = {
    "roll": lambda o, x: rolled(o, x, 2, 0),
    "roll of the fastest dim": lambda o, x: rolled(o, x, 3, 1),
    "roll of all dims": lambda o, x: rolled(o, rolled(o, x, 2, 0), 3, 1),
    "roll of a value": lambda o, x: rolled(o, o.exp(x) * 2.0, 2, 1),
    "roll of a roll": lambda o, x: rolled(o, rolled(o, x, 2, 1), 3, 1),
    "slice of a roll": lambda o, x: o.slice(rolled(o, x, 2, 1), [1, 1], [5, 8]),
    "three pieces": lambda o, x: o.cat([o.slice(x, [0, a], [6, b]) for a, b in ((5, 8), (2, 5), (0, 2))], 1),
    "what comes twice": lambda o, x: o.cat([o.slice(x, [0, 3], [6, 8]), x], 1),
    "a circular pad": lambda o, x: o.cat([o.slice(x, [0, 6], [6, 8]), x, o.slice(x, [0, 0], [6, 2])], 1),
}


@pytest.mark.parametrize("name", ONE_READ)
def test_pieces_of_one_tensor_are_one_read(name: str) -> None:
    assert parts(joined(ONE_READ[name])) == (1, 0)


@pytest.mark.parametrize("name", ["roll", "roll of the fastest dim", "roll of all dims", "roll of a value"])
def test_shifts_of_symbolic_extents_are_one_read(name: str) -> None:
    assert parts(joined(ONE_READ[name], symbolic=True)) == (1, 0)


def test_a_roll_is_printed_as_it_is_defined() -> None:
    after = joined(lambda o, x: rolled(o, rolled(o, x, 2, 0), 3, 1))
    names: dict[str, Any] = {"FusionDefinition": FusionDefinition, "DataType": D}
    exec(definition_text(after), names)
    with FusionDefinition() as fd:
        names["nvfuser_fusion"](fd)
    np.testing.assert_array_equal(fd.execute([X])[0], np.roll(X, (-2, -3), (0, 1)))


SEVERAL: dict[str, Callable[[Any, Any], Any]] = {
    "different tensors": lambda o, x: o.cat([x, o.neg(x)], 1),
    "moved along another dim": lambda o, x: o.cat([o.slice(x, [1, 0], [4, 8]), o.slice(x, [2, 0], [5, 8])], 1),
    "a filled part": lambda o, x: o.cat([o.pad(x, [0, 2], 3.0), x], 1),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_other_parts_stay(name: str) -> None:
    assert parts(joined(SEVERAL[name]))[1] == 1


def test_different_fills_stay() -> None:
    after = joined(lambda o, x: o.pad(o.cat([o.pad(x, [2, 0], 3.0), o.pad(x, [0, 2], 4.0)], 1), [1, 1], 5.0))
    assert parts(after)[1] == 1


@pytest.mark.in_turns
@pytest.mark.parametrize("dtype", [D.Half, D.Float, D.Double])
@pytest.mark.parametrize("seed", range(6))
def test_rolls_of_random_shapes(dtype: DataType, seed: int) -> None:
    """Vectors lie within a piece, or elements are read one by one; strided inputs as well."""
    rng = random.Random(seed)
    for _ in range(6):
        shape = [rng.choice((1, 2, 7, 16, 33, 64)) for _ in range(rng.randint(1, 3))]
        axes = rng.sample(range(len(shape)), rng.randint(1, len(shape)))
        shifts = [rng.randint(0, shape[a]) // rng.choice((1, 1, 8)) * 1 for a in axes]
        x = np.random.default_rng(seed).integers(-4, 5, [*shape[:-1], shape[-1] * 2]).astype(dtype.numpy)
        x = x[..., ::2] if rng.random() < 0.3 else np.ascontiguousarray(x[..., : shape[-1]])
        dense = x.flags.c_contiguous
        with FusionDefinition() as fd:
            t = fd.define_tensor([-1 if n != 1 else 1 for n in shape], dense, dtype)
            y = t * 2.0
            for a, s in zip(axes, shifts, strict=True):
                y = rolled(fd.ops, y, s, a)
            fd.add_output(fd.ops.cast(y, dtype))
        (result,) = fd.execute([x])
        np.testing.assert_array_equal(result, np.roll(x * 2, [-s for s in shifts], axes))
