"""Bind calls of new sizes by a recorded trace, where all decisions for them are those of earlier calls.

    family  := calls that differ only in sizes, strides, addresses and scalars that are just passed on
    trace   the comparisons and arithmetic on those numbers, from arguments to bound steps (`fuser.ir.integers.number_trace`)
    find    the trace as one function: numbers -> steps with all sizes filled in; None if a comparison has another result

The first calls of a family are bound the long way (the whole way, in names): checks of arguments, choice of schedulers, params
and kernels, checks of launches. After so many of them that tracing takes no longer than it saves, that way is taken once more,
with numbers that record what is done to them. The function contains all of these checks and choices; a call that fails one of
them is bound the long way, which raises the error if there is one.

Only device arrays, and only programs whose steps follow from sizes (`derived_steps.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fuser import locks
from fuser.host_ir.executors.steps import BoundProgram, OutputPlan, Step, memory_of
from fuser.ir.integers.number_trace import Find, NumberTrace, UntraceableError
from fuser.options import DISABLE, DUMP, ENABLE, FAULT, PDL, TUNE, VERIFY, logger
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.arrays import describe_array
from fuser.runtime.call_keys import KINDS, exact, texts_of
from fuser.runtime.scalars import Scalar, is_scalar, python_number

# Calls that go the whole way before a trace is made. It takes as long as these do for pointwise fusions, some times that where
# many shapes of rows are compared.
CALLS_PER_TRACE = 8
# Traces of one family: each is a function to try.
MOST_TRACES = 8
MOST_FAMILIES = 256
# Of the integer types that parameters have.
_WIDTHS = (31, 63, 64)

# Options that look into the whole way, and those by which it may lead elsewhere.
_inside = texts_of(DUMP, VERIFY, FAULT)
_outside = texts_of(ENABLE, DISABLE, TUNE, PDL)

Value = ArrayView | Scalar
Layouts = tuple[Value, ...]
"""Inputs without their arrays."""


class Derived(NamedTuple):
    """What a family's calls are bound to.

    bound   sizes, strides and addresses in it are those of the inputs it was derived for
    take    told of each call that a function has bound, (the bound program, inputs without their arrays); False if the whole
            way leads elsewhere for a reason that is none of sizes
    """

    bound: BoundProgram
    take: Callable[[BoundProgram, Callable[[], Layouts]], bool]


Derive = Callable[[Sequence[Value], Any, Any], Derived]
"""(inputs, device, also) -> what they are bound to; changes nothing. Raises UntraceableError, or an error, where that would."""


class _Trace(NamedTuple):
    find: Find
    derived: Derived


@dataclass(slots=True, eq=False)
class _Family:
    """`left`: calls that still go the whole way before the next trace; None: there will be none."""

    layouts: Layouts
    left: int | None
    traces: list[_Trace] = field(default_factory=list)


class _Call(NamedTuple):
    """A call apart from its numbers, and these."""

    family: object
    numbers: tuple[int, ...]
    values: tuple[Value, ...]


class Families:
    """Those of one program, or of one fusion. Safe to use from several threads."""

    def __init__(self, derive: Derive, fixing: frozenset[int]) -> None:
        self._derive = derive
        # Positions of numbers whose values are no numbers of a trace.
        self._fixing = fixing
        self._families: dict[object, _Family] = {}
        self._lock = locks.lock()

    def bound_for(self, inputs: Sequence[Any], device: Any, also: Any) -> tuple[BoundProgram, tuple[Value, ...]] | None:
        """Steps for these inputs, if a function of their family finds them, and what was found of the inputs."""
        if not self._families:
            return None
        call = self._call(inputs, device, also)
        family = None if call is None else self._families.get(call.family)
        if call is None or family is None:
            return None
        for trace in family.traces:
            try:
                found = trace.find(call.numbers)
            except (ArithmeticError, ValueError):  # the whole way raises it as well, or does not come to it
                found = None
            if found is None:
                continue
            *parts, memory = found
            bound = _bound(trace.derived.bound, *parts)
            if not trace.derived.take(bound, lambda: with_numbers(family.layouts, call.numbers)):
                return None
            bound.history.note_memory(memory)
            return bound, call.values
        return None

    def went_whole_way(self, inputs: Sequence[Any], bound: BoundProgram, device: Any, also: Any) -> None:
        """Take note of a call that no function has bound; makes a trace if it is time."""
        if bound.why_not is not None or bound.path is not None:
            return
        if not bound.fixing <= self._fixing:
            self._fixing |= bound.fixing
            self._families.clear()
        call = self._call(inputs, device, also)
        if call is None:
            return
        with self._lock:
            family = self._families.get(call.family)
            if family is None:
                if len(self._families) >= MOST_FAMILIES:
                    self._families.clear()
                family = self._families[call.family] = _Family(tuple(map(_without_array, call.values)), CALLS_PER_TRACE)
            if family.left is None:
                return
            family.left -= 1
            if family.left > 0:
                return
            family.left = None
        try:
            trace = self._trace(call, device, also)
        except (UntraceableError, Exception) as why:
            # Also what goes wrong by itself: the whole way was gone, and has told what there is to tell.
            logger().debug("new sizes of this program are always bound step by step: %s", why)
            return
        family.traces.append(trace)
        family.left = CALLS_PER_TRACE if len(family.traces) < MOST_TRACES else None

    def _trace(self, call: _Call, device: Any, also: Any) -> _Trace:
        """What is decided for a call. Raises UntraceableError and all errors that the way raises."""
        trace = NumberTrace()
        leaves = [trace.leaf(n) for n in call.numbers]
        derived = self._derive(with_numbers(call.values, leaves), device, also)
        bound = derived.bound
        if bound.why_not is not None or bound.path is not None:
            raise UntraceableError(bound.why_not or "numbers decide which steps there are")
        find = trace.function((bound.steps, bound.outputs, bound.spans, memory_of(bound.steps)))
        kept = replace(bound, steps=(), outputs=(), spans=(), note=None)
        return _Trace(find, Derived(kept, derived.take))

    def _call(self, inputs: Sequence[Any], device: Any, also: Any) -> _Call | None:
        """None for what has no family."""
        if any(_inside()):
            return None
        parts: list[object] = [also, None if device is None else (type(device), device), *_outside()]
        numbers: list[int] = []
        values: list[Value] = []
        try:
            for i, value in enumerate(inputs):
                if is_scalar(value):
                    number = python_number(value)
                    parts += (type(number), exact(value) if i in self._fixing else _bits(number))
                    values.append(number)
                    continue
                view = describe_array(value)
                if view.is_host or view.owner is not view.array or view.kind not in KINDS:
                    return None
                place = view.owner.device if view.kind == "fuser" else view.device
                parts += (view.kind, view.dtype, len(view.sizes), place)
                numbers += (*view.sizes, *view.strides, view.address)
                values.append(view)
            family = tuple(parts)
            hash(family)
        except Exception:  # the whole way says what is wrong with such arguments
            return None
        return _Call(family, tuple(numbers), tuple(values))


def _bits(number: Scalar) -> object:
    """What decides whether a type holds a number that is passed on."""
    if type(number) is not int:
        return None
    bits = (number if number >= 0 else ~number).bit_length()
    # Whether a float holds one that no integer type does is not told by its bits.
    return number < 0, next((width for width in _WIDTHS if bits <= width), number)


def _bound(t: BoundProgram, steps: tuple[Step, ...], outputs: tuple[OutputPlan, ...], spans: Any) -> BoundProgram:
    """What was bound, with other steps."""
    return BoundProgram(
        t.program,
        t.history,
        steps,
        outputs,
        t.counts,
        t.device,
        t.framework,
        t.kind,
        t.tensors,
        spans,
        t.numbers,
        t.backs,
        t.roots,
        None,
        t.fixing,
        t.sharing_matters,
        t.alignment,
        t.streams,
        t.synchronizes,
        None,
        t.draw,
    )


def _without_array(value: Value) -> Value:
    return value._replace(owner=None, array=None) if isinstance(value, ArrayView) else value


def with_numbers(values: Sequence[Value], numbers: Sequence[Any]) -> Layouts:
    """Inputs with other numbers."""
    given = iter(numbers)
    found: list[Value] = []
    for value in values:
        if isinstance(value, ArrayView):
            sizes, strides = (tuple(next(given) for _ in value.sizes) for _ in range(2))
            value = value._replace(sizes=sizes, strides=strides, address=next(given))
        found.append(value)
    return tuple(found)


__all__ = ["CALLS_PER_TRACE", "Derive", "Derived", "Families", "Layouts", "Value", "with_numbers"]
