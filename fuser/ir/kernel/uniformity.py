"""Which conditions and loops differ between the threads that a barrier, a shuffle or a collective names.

    varies      a symbol varies between threads if it derives from `threadIdx` or from the result of an atomic; what is
                loaded from memory at an index that is the same for the block counts as the same
    diverges    a condition or loop diverges in a block if symbols of its text vary; in a warp, if lanes may decide it
                differently: it compares `threadIdx.x` (or `threadIdx.y`, `.z` where rows of threads are no whole warps)
                with anything but a boundary between warps. Whole rows of threads may make up a warp: 16 x 8 threads are
                warps of two rows each, and `threadIdx.y < 2` is a boundary. So is a multiple of 32 for the number of a
                thread in its block, whatever the length of its rows
Undecided means: does not diverge in a warp.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.ir.integers.integers import ONE, AllOf, AnyOf, Compare, Cond, Int, Symbol
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, For
from fuser.ir.ops.enums import ParallelType

_WARP = 32
_THREAD_X = THREAD_SYMBOLS[ParallelType.block_x]
_THREAD_Y = THREAD_SYMBOLS[ParallelType.block_y]
_THREAD_Z = THREAD_SYMBOLS[ParallelType.block_z]


class Uniformity:
    """What is known at one place of a kernel, for a walk that tells it of definitions, conditions and loops."""

    def __init__(self, block: tuple[Int, Int, Int]) -> None:
        self._block_varying = {symbol for axis, symbol in THREAD_SYMBOLS.items() if axis.is_block}
        self._warp_varying = _lane_symbols(block)
        self._runs = _runs(block)
        # Of a thread in its block: a warp has 32 numbers that follow one another, the first a multiple of 32.
        self._number = _THREAD_X + block[0] * (_THREAD_Y + block[1] * _THREAD_Z)
        if block[2] is ONE:
            self._number = _THREAD_X + block[0] * _THREAD_Y
        # What Let symbols stand for, written out.
        self._values: dict[Symbol, Int] = {}
        # The conditions and loops around this place that differ between threads of the block: (text, lanes may differ).
        self._around: list[tuple[str, bool]] = []

    def define(self, symbol: Symbol, sources: Iterable[Int], value: Int | None = None) -> None:
        """`symbol` is computed from `sources`; `value` is what it equals, if it is a Let."""
        used = frozenset[Symbol]().union(*(source.symbols for source in sources))
        for varying in (self._block_varying, self._warp_varying):
            # A sibling scope may have defined the symbol before, from something else.
            varying.discard(symbol)
            if used & varying:
                varying.add(symbol)
        self._values.pop(symbol, None)
        if value is not None:
            known = {s: self._values[s] for s in value.symbols if s in self._values}
            self._values[symbol] = value.substitute(known)

    def define_varying(self, symbol: Symbol) -> None:
        """`symbol` is another number in every thread."""
        self._values.pop(symbol, None)
        self._block_varying.add(symbol)
        self._warp_varying.add(symbol)

    def enter_condition(self, condition: Cond) -> bool:
        """Step under a condition. True if threads of a block may decide it differently: then `leave` must follow."""
        symbols = condition.symbols
        if not symbols & self._block_varying:
            return False
        whole = condition.substitute({s: v for s, v in self._values.items() if s in symbols})
        self._around.append((f"the condition {condition}", self._divides_warps(whole)))
        return True

    def enter_loop(self, loop: For) -> bool:
        """Step into a loop. True if threads may leave it after different iterations: then `leave` must follow."""
        symbols = loop.stop.symbols | loop.step.symbols
        if (loop.start.symbols & self._block_varying) and not _trips_agree(loop):
            symbols |= loop.start.symbols
        if not symbols & self._block_varying:
            return False
        self._around.append((f"the loop over {loop.symbol}", bool(symbols & self._warp_varying)))
        return True

    def leave(self) -> None:
        """Step out of the innermost condition or loop that was entered with True."""
        self._around.pop()

    def divergence(self, *, in_block: bool) -> str | None:
        """What around this place differs between threads of a block, or between lanes of a warp; None if nothing does."""
        for what, between_lanes in self._around:
            if in_block or between_lanes:
                return what
        return None

    def _divides_warps(self, condition: Cond) -> bool:
        match condition:
            case AllOf() | AnyOf():
                return any(self._divides_warps(argument) for argument in condition.arguments)
            case Compare():
                return self._comparison_divides_warps(condition)
            case _:
                return False

    def _comparison_divides_warps(self, comparison: Compare) -> bool:
        varying = comparison.symbols & self._warp_varying
        if not varying:
            return False
        if len(varying) > 1:
            slope = next((c for monomial, c in comparison.operand.terms if monomial == (_THREAD_X,)), 0)
            rest = comparison.operand - slope * self._number
            if slope == 0 or comparison.kind != ">=" or rest.symbols & self._warp_varying:
                return True
            return _divides_runs(rest, slope, _WARP)
        (position,) = varying
        run = self._runs.get(position)
        if run is None:
            return True
        slope = next((c for monomial, c in comparison.operand.terms if monomial == (position,)), 0)
        rest = comparison.operand - slope * position
        if slope == 0 or position in rest.symbols:
            return position is not _THREAD_X  # it stands inside a quotient or a product: not decided
        if comparison.kind != ">=":
            return True
        return _divides_runs(rest, slope, run)


def _divides_runs(rest: Int, slope: int, run: int) -> bool:
    """Whether `rest + slope * (run * w + step)` may change its sign for steps of one run: it does not if no multiple of
    run * slope lies between its first and last value, which the remainder of `rest` tells."""
    stride = run * abs(slope)
    remainder = rest.constant % stride
    if (rest - rest.constant).multiple % stride != 0:
        return True
    return remainder >= slope if slope > 0 else remainder < (run - 1) * -slope


def _runs(block: tuple[Int, Int, Int]) -> dict[Symbol, int]:
    """Position symbols that run through so many neighbouring values in a warp, the first a multiple of how many they are."""
    x, y, z = block
    flat = y.is_const and z.is_const and y.value * z.value == 1
    runs: dict[Symbol, int] = {}
    # Rows of 48 threads: the second warp has the end of one and the beginning of the next.
    if flat or not x.is_const or x.value <= _WARP or x.value % _WARP == 0:
        runs[_THREAD_X] = _WARP
    if x.is_const and x.value > 0 and _WARP % x.value == 0:
        run = _WARP // x.value
        if (z.is_const and z.value == 1) or y.multiple % run == 0:
            runs[_THREAD_Y] = run
    rows = x * y
    if rows.is_const and rows.value > 0 and _WARP % rows.value == 0:
        runs[_THREAD_Z] = _WARP // rows.value
    return runs


def _lane_symbols(block: tuple[Int, Int, Int]) -> set[Symbol]:
    """The position symbols that are known to differ between lanes of a warp."""
    varying = {_THREAD_X}
    rows = block[0] * block[1]
    for axis, threads in ((ParallelType.block_y, block[0]), (ParallelType.block_z, rows)):
        if threads.is_const and threads.value % _WARP != 0:
            varying.add(THREAD_SYMBOLS[axis])
    return varying


def _trips_agree(loop: For) -> bool:
    """Whether every start in `[0, step)` gives the same number of iterations, and the start is one."""
    start, step = loop.start, loop.step
    if not step.is_const or start.lo is None or start.hi is None:
        return False
    return start.lo >= 0 and start.hi < step.value and loop.stop.multiple % step.value == 0
