"""How long schedulers take to choose parameters: they are asked again for every new shape. Needs no GPU.

    python3 -m benchmarks.proposals                     the public cases, for an H200
    python3 -m benchmarks.proposals --sweep --seed 1    the sweep's shapes
    python3 -m benchmarks.proposals --over              only proposals over the limit

Each call of a scheduler's `propose` on the way to a kernel is timed by itself: the first one, right after its segment was made;
the least of some for twice to six times as many rows, each asked once; and the least of some for the same sizes. In processor
time of the thread, so that others on the machine count for less. The exit code is 1 if a median is over its limit.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from benchmarks.asked_cases import asked_cases
from benchmarks.case import Case
from benchmarks.compile_case import planned, with_more_rows
from fuser.compiler.compile_fusion import inputs_of_segments
from fuser.compiler.gc_paused import gc_paused
from fuser.compiler.kernel_compiler import KernelCompiler
from fuser.errors import FuserError, NotSupportedError
from fuser.ir.device_info import DeviceInfo
from fuser.ir.fusion.fusion import Fusion
from fuser.schedule.segmentation.registry import SCHEDULERS

LIMITS = {"first of a segment": 2.0, "other numbers of rows": 0.1, "the same again": 0.1}
"""Ways of asking, and milliseconds that the median of each may take."""
TIMES = 5
HEADER = f"{'case':48s} {'scheduler':22s} {'first, ms':>9s} {'rows, ms':>9s} {'again, ms':>9s}"


@dataclass(slots=True)
class Proposal:
    """One call of a scheduler's `propose` for a segment, and what it took in milliseconds. `call` makes it again.

    first  the first time that anything is proposed for the segment
    grown  each time that it was asked for other numbers of rows
    """

    scheduler: str
    segment: Fusion
    first: float
    call: Callable[[], object]
    grown: list[float] = field(default_factory=list[float])

    def again(self) -> float:
        """The least of some more calls."""
        return min(_timed(self.call)[0] for _ in range(TIMES))

    def rows(self) -> float | None:
        """The least of those for other numbers of rows; None if there was none."""
        return min(self.grown, default=None)


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.thread_time()
    answer = call()
    return (time.thread_time() - begin) * 1e3, answer


class ProposalClock:
    """While it is in place every call of a scheduler's `propose` is timed; not what schedulers ask one another."""

    def __init__(self) -> None:
        self.found: list[Proposal] = []
        self._is_inside = False
        self._plain: dict[type, Any] = {}

    def __enter__(self) -> ProposalClock:
        for scheduler in SCHEDULERS:
            kind = type(scheduler)
            self._plain[kind] = kind.propose
            setattr(kind, "propose", self._watching(kind.propose, scheduler.type.name))  # noqa: B010
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for scheduler, plain in self._plain.items():
            setattr(scheduler, "propose", plain)  # noqa: B010

    def _watching(self, plain: Any, name: str) -> Any:
        def propose(*given: Any, **named: Any) -> Any:
            if self._is_inside:
                return plain(*given, **named)
            self._is_inside = True
            try:
                taken, answer = _timed(lambda: plain(*given, **named))
            finally:
                self._is_inside = False
            segment: Fusion = given[1]
            known = next((p for p in self.found if p.scheduler == name and p.segment is segment), None)
            if known is None:
                self.found.append(Proposal(name, segment, taken, lambda: plain(*given, **named)))
            else:
                known.grown.append(taken)
            return answer

        return propose


def proposals_of(case: Case, info: DeviceInfo) -> list[Proposal]:
    """Every proposal on the way to the kernels of a case, refused ones included; then for some other numbers of rows."""
    compiler = KernelCompiler(info)
    with ProposalClock() as clock:
        segmented, _ = planned(case, info)
        for factor in range(2, 2 + TIMES):
            bound = with_more_rows(case, factor)
            if bound is None:
                break
            # The segments may be none for so many rows: a reshape to an extent that is a number, sizes that are refused.
            with suppress(FuserError):
                for segment, inputs in zip(segmented.segments, inputs_of_segments(segmented, bound), strict=False):
                    compiler.propose(segment, inputs)
    return clock.found


def percentile(times: Sequence[float], part: float) -> float:
    """The least of `times` that so large a part of them does not exceed."""
    return sorted(times)[max(0, math.ceil(part * len(times)) - 1)]


def verdict_of(asked: Mapping[str, Sequence[float]]) -> tuple[list[str], bool]:
    """A line for each way of asking, and whether a median is over its limit. `asked`: the times, by a name of LIMITS."""
    lines: list[str] = []
    is_over = False
    for what, limit in LIMITS.items():
        times = asked.get(what, ())
        if not times:
            continue
        median = statistics.median(times)
        is_over |= median > limit
        lines.append(
            f"{what:24s} {len(times):4d} proposals: median {median:.3f} ms of {limit:g}, "
            f"95 % up to {percentile(times, 0.95):.3f}, most {max(times):.3f}"
        )
    return lines, is_over


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    asked = asked_cases("proposals", __doc__, ("--over", "print only proposals over a limit"), arguments)
    times: dict[str, list[float]] = {what: [] for what in LIMITS}
    print(HEADER)
    # What this program keeps makes collections long: they are no part of a proposal.
    with gc_paused():
        for case in asked.cases:
            try:
                found = proposals_of(case, asked.info)
            except NotSupportedError as error:
                print(f"{case.name:48s} unsupported: {str(error).splitlines()[0]}")
                continue
            except FuserError as error:
                print(f"{case.name:48s} {type(error).__name__}: {str(error).splitlines()[0]}")
                continue
            for proposal in found:
                shown = dict(zip(LIMITS, (proposal.first, proposal.rows(), proposal.again()), strict=True))
                for what, taken in shown.items():
                    times[what] += [] if taken is None else [taken]
                if not asked.only_notable or any(t is not None and t > LIMITS[what] for what, t in shown.items()):
                    columns = " ".join(f"{'' if t is None else format(t, '.3f'):>9s}" for t in shown.values())
                    print(f"{case.name:48s} {proposal.scheduler:22s} {columns}", flush=True)
    lines, is_over = verdict_of(times)
    print("\n".join(lines))
    return int(is_over or not lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
