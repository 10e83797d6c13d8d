"""How an everyday case is written: a function of sizes that returns a Recipe.

    @everyday(m=(10007, 7), n=(3072, 33))                # name=(size measured, small size for machines without a GPU)
    def rmsnorm(m, n):
        def define(x, w):                                # tensors of the DSL -> output or outputs
            h = x.float()
            return (h * ((h * h).mean(-1, keepdim=True) + 1e-6).rsqrt() * w.float()).bfloat16()

        def eager(torch, x, w):                          # the same in torch; timed, and compiled by torch.compile
            return torch.nn.functional.rms_norm(x, (n,), w, 1e-6)

        return Recipe([bf16(m, n), weights(n)], define, eager)

The case is called `rmsnorm_bf16_10007x3072`: the function, the dtype and the shape of the first input. Definitions compute in
Float and round once, at the end. What is right is what `eager` gives in float64 (`in_float64`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case, Check, Wide, as_tuple
from benchmarks.compile_case import bind_case, ir_fusion
from benchmarks.everyday.in_float64 import in_float64
from benchmarks.inputs import BF16, BOOL, F16, F32, INT32, INT64, SHORT_NAMES, Fill, Input

CHANNELS_LAST = (0, 2, 3, 1)
"""Memory order, slowest dim first, of [batch, channels, height, width]."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One fusion at given sizes.

    inputs      in the order in which `define` and `eager` take them
    define      tensors of the DSL -> output or outputs
    eager       (torch, *tensors) -> the same in torch
    read_bytes  bytes of the inputs that have to be read, where that is not all of them
    drawn       position of an output that holds random decisions, None if nothing is random. `given` takes it then, as a
                last argument, and gives the other outputs
    by_rows     rows of the first dim do not depend on each other: float64 takes a few of them at a time, where all of
                them would not fit the memory
    """

    inputs: Sequence[Input]
    define: Callable[..., Any]
    eager: Callable[..., Any]
    read_bytes: int | None = None
    drawn: int | None = None
    given: Callable[..., Any] | None = None
    by_rows: bool = False


@dataclass(frozen=True, slots=True)
class Everyday:
    """A recipe for any sizes, with those that are measured and small ones."""

    make: Callable[..., Recipe]
    sizes: dict[str, tuple[Any, Any]]

    def case(self, *, small: bool = False) -> Case:
        """At the sizes measured, or at small ones. Nothing is allocated."""
        recipe = self.make(**{name: pair[small] for name, pair in self.sizes.items()})
        first = recipe.inputs[0]
        shape = "x".join(map(str, first.shape))
        name = f"{self.make.__name__}_{SHORT_NAMES[first.dtype]}_{shape}"
        return case_of(recipe, name, self.make.__module__.rpartition(".")[2])


def everyday(**sizes: tuple[Any, Any]) -> Callable[[Callable[..., Recipe]], Everyday]:
    """Decorates a function of `sizes` that returns a Recipe."""
    return lambda make: Everyday(make, sizes)


def case_of(recipe: Recipe, name: str, family: str) -> Case:
    """The case of a recipe; the bytes of its outputs follow from the definition."""

    def define(fd: Any, *tensors: Any) -> Sequence[Any]:
        return as_tuple(recipe.define(*tensors))

    def eager(torch: Any) -> Callable[..., Any]:
        return lambda *tensors: recipe.eager(torch, *tensors)

    def reference(m: Wide, *tensors: Any) -> Sequence[Any]:
        return in_float64(m.xp, recipe.eager, tensors)

    check = _check_of(recipe)
    without_bytes = Case(name, family, tuple(recipe.inputs), 0, define, eager, reference)
    nbytes = _output_bytes(without_bytes)
    return Case(name, family, tuple(recipe.inputs), nbytes, define, eager, reference, recipe.read_bytes, check)


def _output_bytes(case: Case) -> int:
    fusion = ir_fusion(case)
    bound = bind_case(case, fusion)
    outputs = [output.tensor for output in fusion.outputs]
    return sum(t.dtype.itemsize * math.prod(bound.evaluate(d.extent) for d in t.visible) for t in outputs)


def _check_of(recipe: Recipe) -> Check | None:
    """What stands in for the comparison of whole outputs, None for most cases."""
    if recipe.drawn is not None:
        return lambda torch, run, inputs: _check_drawn(torch, recipe, run, inputs)
    if recipe.by_rows:
        return lambda torch, run, inputs: _check_by_rows(torch, recipe, run, inputs)
    return None


def _check_drawn(torch: Any, recipe: Recipe, run: Callable[[], Any], inputs: Sequence[Any]) -> tuple[bool, str]:
    """The rate of what was drawn, a new draw each time, and all else given the draw."""
    # Here, so that a table of cases can be made without torch.
    from benchmarks.verify import largest_error

    assert recipe.drawn is not None
    assert recipe.given is not None
    first, outputs = as_tuple(run())[recipe.drawn], list(as_tuple(run()))
    keep = outputs.pop(recipe.drawn)
    rate = float(keep.double().mean())
    # Six deviations of a mean of independent draws.
    margin = 6 * (KEEP_RATE * (1 - KEEP_RATE) / keep.numel()) ** 0.5
    if abs(rate - KEEP_RATE) > margin:
        return False, f"{rate:.5f} are kept"
    if torch.equal(first, keep):
        return False, "the second run drew the same"
    expected = in_float64(torch, recipe.given, [*inputs, keep])
    error = max(largest_error(o, e) for o, e in zip(outputs, expected, strict=True))
    return error <= 1.0, f"{error:.2f} ulp given the draw, {rate:.4f} kept"


def _check_by_rows(torch: Any, recipe: Recipe, run: Callable[[], Any], inputs: Sequence[Any]) -> tuple[bool, str]:
    from benchmarks.verify import largest_error

    outputs = as_tuple(run())
    rows, error = inputs[0].shape[0], 0.0
    for first in range(0, rows, _ROWS):
        part = [t[first : first + _ROWS] if t.shape[0] == rows else t for t in inputs]
        for output, expected in zip(outputs, in_float64(torch, recipe.eager, part), strict=True):
            error = max(error, largest_error(output[first : first + _ROWS], expected))
    return error <= 1.0, f"{error:.2f} ulp, by rows"


_ROWS = 4096

KEEP_RATE = 0.9
"""Of every dropout."""


# --- inputs -----------------------------------------------------------------------------------------------------------


def bf16(*shape: int, fill: Fill = Fill.NORMAL, order: tuple[int, ...] | None = None) -> Input:
    """A BFloat16 tensor."""
    return Input(shape, BF16, fill, order=order)


def f16(*shape: int, fill: Fill = Fill.NORMAL, order: tuple[int, ...] | None = None) -> Input:
    """A Half tensor."""
    return Input(shape, F16, fill, order=order)


def f32(*shape: int, fill: Fill = Fill.NORMAL, order: tuple[int, ...] | None = None) -> Input:
    """A Float tensor."""
    return Input(shape, F32, fill, order=order)


def mask(*shape: int) -> Input:
    """A Bool tensor, True in three of four places."""
    return Input(shape, BOOL, Fill.MOSTLY)


def ids(limit: int, *shape: int) -> Input:
    """An Int tensor of numbers in [0, limit)."""
    return Input(shape, INT64, Fill.INDEX, limit)


def words(*shape: int) -> Input:
    """An Int32 tensor of any bits: packed bytes."""
    return Input(shape, INT32, Fill.BITS)


SHIFTED, POSITIVE, RISING, ANGLE, PROBABILITY = (
    Fill.SHIFTED,
    Fill.POSITIVE,
    Fill.RISING,
    Fill.ANGLE,
    Fill.PROBABILITY,
)
