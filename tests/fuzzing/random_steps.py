"""Steps of random definitions: inputs of any layout, ops of the whole surface, each with what NumPy makes of the same numbers.

    steps = Steps(seed)
    steps.input();  steps.grow()           one more input; one more op on what is there
    steps.steps                            what was made so far
    Steps(seed, again=steps.draws.log, run=1)    the same, step by step, on inputs of other extents, layouts and numbers

Most numbers are multiples of a quarter that every dtype on the way holds exactly: `error` is 0 and results are compared bit by
bit. What is rounded (exponentials, quotients, statistics) carries a bound of its error along, and nothing that could turn a
small error into a large one (a comparison, a floor) takes it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fuser import DataType, FusionDefinition
from tests.fuzzing.random_draws import Draws, Unfit

Array = np.ndarray[Any, Any]
Define = Callable[..., Any]
"""The tensor of a step, from the definition and the tensors of its operands."""

_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 65, 100, 129)
_EVEN = (16, 24, 64, 96, 128, 256)
_LONG = (255, 513, 1030, 2049)
MOST_ELEMENTS = 20_000
_LARGEST = float(1 << 20)  # multiples of a quarter up to it, and four of them added, are exact in Float
_FLOATS = (DataType.Float, DataType.Double, DataType.Half, DataType.BFloat16)
_INTEGERS = (DataType.Int, DataType.Int32)
_DTYPES = (*_FLOATS, *_INTEGERS, DataType.Bool)
_EPSILON = {DataType.Double: 2.0**-50, DataType.Float: 2.0**-21, DataType.Half: 2.0**-9, DataType.BFloat16: 2.0**-6}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A value of a program.

    operands   the steps whose tensors `define` takes
    wide       its elements as float64, int64 or bool
    ones       the dims that are known to have one element when they are defined: these broadcast
    error      how far an element may be off, absolutely; 0: not at all
    argument   of an input: what is passed for it
    """

    operands: tuple[int, ...]
    define: Define
    wide: Array
    dtype: DataType
    ones: tuple[bool, ...]
    error: float = 0.0
    argument: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.wide.shape

    @property
    def ndim(self) -> int:
        return self.wide.ndim

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in _INTEGERS

    @property
    def largest(self) -> float:
        return float(np.max(np.abs(self.wide.astype(np.float64)), initial=0))


def held(wide: Array, dtype: DataType) -> Array:
    """The numbers as `dtype` holds them: rounded, cut to whole ones, or True where they are not zero."""
    if dtype is DataType.Bool:
        return np.asarray(wide != 0)
    if dtype in _INTEGERS:
        return np.asarray(np.trunc(wide).astype(dtype.numpy).astype(np.int64))
    with np.errstate(over="ignore"):
        return np.asarray(wide.astype(np.float64).astype(dtype.numpy).astype(np.float64))


def input_step(argument: Array, dtype: DataType, declared: Sequence[int], contiguity: Any = True) -> Step:
    """An input that is passed `argument`; `declared`: its extents, -1 for symbolic ones."""
    shape = list(declared)
    wide = held(argument.astype(np.float64 if dtype in _FLOATS else np.int64), dtype)
    ones = tuple(n == 1 for n in shape)
    return Step((), lambda fd: fd.define_tensor(shape, contiguity, dtype), wide, dtype, ones, argument=argument)


class Steps:
    """The steps of one program, in the order of their definition.

    `again`: what was drawn for a program of this seed. Its ops are made once more, on inputs of run `run`, which have numbers
    and layouts of their own; `resized`: and other extents. Raises Unfit where an op does not take them.
    """

    def __init__(self, seed: int, again: Sequence[Any] | None = None, *, run: int = 0, resized: bool = False) -> None:
        self.seed = seed
        self.rng = self.draws = Draws(seed, again)
        self.layouts = random.Random(f"{seed}.{run}")
        self.numbers = np.random.default_rng([seed, run])
        self.fd = FusionDefinition().__enter__()
        self.steps: list[Step] = []
        self.tensors: list[Any] = []
        rng = self.rng
        # Few extents, so that values combine.
        self.extents = [rng.choice(_EXTENTS) for _ in range(rng.randint(1, 3))]
        # Rows that take vectors, beside dims that turn out to have one element.
        self.extents.append(rng.choice(_EVEN if rng.random() < 0.5 else _EXTENTS))
        if rng.random() < 0.4:
            self.extents.append(1)
        if rng.random() < 0.12:
            self.extents.append(0)
        if rng.random() < 0.1:
            self.extents.append(rng.choice(_LONG))
        # Without static extents, more ops take inputs of others.
        self.is_static = rng.random() < 0.4
        if resized:
            # One for each: those that were one extent stay one, and some that were not become one.
            found = {
                n: 1 if self.layouts.random() < 0.3 else self.layouts.choice((*_EXTENTS, *_EVEN)) for n in self.extents
            }
            self.extents = [found[n] if n or self.layouts.random() < 0.5 else 0 for n in self.extents]

    # --- inputs -------------------------------------------------------------------------------------------------------

    def input(self) -> None:
        """A tensor of any rank, dtype and layout, each extent static or symbolic."""
        rng = self.rng
        found = [s for s in self.steps if isinstance(s.argument, np.ndarray)]
        if found and rng.random() < 0.25:
            self._twin(rng.choice(found))
            return
        rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        shape = [*self.shape(rank)]
        dtype = rng.choice((DataType.Float, *_DTYPES))
        declared = []
        for dim in range(rank):
            if rng.random() < 0.12:
                shape[dim] = 1
                declared.append(1)
            else:
                declared.append(shape[dim] if rng.random() < (0.4 if self.is_static else 0.0) else -1)
        array = self._numbers(shape, dtype)
        is_dense = rng.random() < 0.25
        self._append(input_step(array if is_dense else self._laid_out(array), dtype, declared, rank > 0 and is_dense))

    def _twin(self, other: Step) -> None:
        """An input like another one, in some runs in the same memory."""
        declared = [1 if one else -1 for one in other.ones]
        array = other.argument
        if other.ndim == 0 or self.layouts.random() < 0.5:
            array = self._laid_out(self._numbers(other.shape, other.dtype))
        self._append(input_step(array, other.dtype, declared, False))

    def _numbers(self, shape: Sequence[int], dtype: DataType) -> Array:
        numbers = self.numbers.integers(-16, 17, shape) / (4 if dtype in _FLOATS else 1)
        return np.asarray(numbers).astype(dtype.numpy)

    def shape(self, rank: int) -> tuple[int, ...]:
        """Extents of a tensor that is not too large."""
        while True:
            found = tuple(1 if self.rng.random() < 0.05 else self.rng.choice(self.extents) for _ in range(rank))
            if self.draws.said(math.prod(found) <= MOST_ELEMENTS):
                return found

    def _laid_out(self, array: Array) -> Array:
        """The same shape with dims in another order, gaps, an odd address, steps back, one element seen many times, or strides
        of dims of one element that say nothing."""
        rng, rank = self.layouts, array.ndim
        if rank == 0:
            return array
        dim = rng.randrange(rank)
        layouts = ("dense", "dense", "dense", "turned", "padded", "shifted", "expanded", "reversed", "spaced", "ones")
        match rng.choice(layouts):
            case "turned":
                order = rng.sample(range(rank), rank)
                return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
            case "padded":
                order = rng.sample(range(rank), rank)
                room = np.zeros([array.shape[d] + rng.randint(0, 3) for d in order], array.dtype)
                window = room[tuple(slice(array.shape[d]) for d in order)].transpose(np.argsort(order))
            case "shifted":
                begin = rng.randint(1, 3)
                window = np.zeros(array.size + begin, array.dtype)[begin:].reshape(array.shape)
            case "spaced":
                window = np.zeros([2 * n for n in array.shape], array.dtype)[(slice(None, None, 2),) * rank]
            case "expanded" if array.shape[dim]:
                strides = [0 if d == dim else s for d, s in enumerate(array.strides)]
                return np.lib.stride_tricks.as_strided(array, array.shape, strides)
            case "ones":
                pairs = zip(array.shape, array.strides, strict=True)
                strides = [s if n > 1 else rng.choice((0, 1, 3, 7, 1000)) * array.itemsize for n, s in pairs]
                return np.lib.stride_tricks.as_strided(array, array.shape, strides)
            case "reversed":
                return np.flip(array, dim)
            case _:
                return array
        window[...] = array
        return window

    def index(self, shape: Sequence[int], below: int, ones: Sequence[bool]) -> int:
        """A new input of valid indices."""
        dtype = self.rng.choice(_INTEGERS)
        numbers = np.asarray(self.numbers.integers(0, below, tuple(shape))).astype(dtype.numpy)
        return self._append(input_step(numbers, dtype, [1 if one else -1 for one in ones]))

    # --- ops ----------------------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """One more op, if the first value it is tried on has one."""
        # The ops know this class.
        from tests.fuzzing.random_step_ops import OPS

        self.rng.choice(OPS)(self)

    def pick(self, suits: Callable[[Step], bool] = lambda _: True) -> int | None:
        """A value that suits, a recent one more often than not."""
        found = [i for i, s in enumerate(self.steps) if s.argument is None or isinstance(s.argument, np.ndarray)]
        found = [i for i in found if suits(self.steps[i])]
        picked = self.draws.made(lambda r: r.choice(found[-6:] if r.random() < 0.6 else found) if found else None)
        if picked is not None and picked not in found:
            raise Unfit
        return picked

    def partner(self, i: int) -> int:
        """A value that combines elementwise with this one, which may be itself."""
        a = self.steps[i]
        found = self.pick(lambda b: combine(a, b))
        return i if found is None else found

    def add(
        self, operands: Sequence[int], define: Define, wide: Any, ones: Sequence[bool], *, error: float = 0.0
    ) -> int | None:
        """A step, unless its numbers are too many or too large. `error`: what the operands' errors and the op itself make of
        it, before the result is rounded."""
        numbers = np.asarray(wide)
        if not self.draws.said(numbers.size <= MOST_ELEMENTS):
            return None
        tensor = define(self.fd, *(self.tensors[i] for i in operands))
        dtype: DataType = tensor.dtype()
        result = held(numbers, dtype)
        largest = max(float(np.max(np.abs(x.astype(np.float64)), initial=0)) for x in (numbers, result))
        if not self.draws.said(largest <= _LARGEST):
            return None
        if dtype in _FLOATS and (error or not np.array_equal(result, numbers)):
            error += _EPSILON[dtype] * max(1.0, largest)
        self.tensors.append(tensor)
        self.steps.append(Step(tuple(operands), define, result, dtype, tuple(ones), error))
        return len(self.steps) - 1

    def scalar(self, value: float) -> int:
        """A new scalar input."""
        dtype = self.rng.choice((DataType.Double, DataType.Float)) if isinstance(value, float) else DataType.Int
        step = Step((), lambda fd: fd.define_scalar(dtype), np.asarray(value), dtype, (), argument=value)
        return self._append(step)

    def _append(self, step: Step) -> int:
        self.tensors.append(step.define(self.fd))
        self.steps.append(step)
        return len(self.steps) - 1


def aligned(step: Step, rank: int) -> list[tuple[int, bool]]:
    """(extent, whether it is known to be 1) of the dims of a value that is used as one of this rank."""
    return [(1, True)] * (rank - step.ndim) + list(zip(step.shape, step.ones, strict=True))


def combine(a: Step, b: Step) -> bool:
    """Whether two values combine elementwise, to one that is not too large."""
    rank = max(a.ndim, b.ndim)
    pairs = list(zip(aligned(a, rank), aligned(b, rank), strict=True))
    fit = all(n == m or (n == 1 and one) or (m == 1 and other) for (n, one), (m, other) in pairs)
    return fit and math.prod(max(n, m) for (n, _), (m, _) in pairs) <= MOST_ELEMENTS


def joined_ones(*steps: Step) -> tuple[bool, ...]:
    """The dims of an elementwise result that are known to have one element."""
    rank = max(s.ndim for s in steps)
    return tuple(all(one for _, one in dims) for dims in zip(*(aligned(s, rank) for s in steps), strict=True))


def rounding(dtype: DataType, largest: float) -> float:
    """What one rounding of numbers up to `largest` is off by, with room for an op that is not rounded correctly."""
    return _EPSILON[dtype] * max(1.0, largest)
