"""How long schedulers take to choose parameters: they are asked again for every new shape. Needs no GPU.

    python3 -m benchmarks.proposals                     the public cases, for an H200
    python3 -m benchmarks.proposals --sweep --seed 1    the sweep's shapes
    python3 -m benchmarks.proposals --over              only proposals over the limit

Each call of a scheduler's `propose` on the way to a kernel is timed by itself: the first one, right after its segment was made,
and the least of some more. In processor time of the thread, so that others on the machine count for less. The exit code is 1 if
the median of the later ones is over its limit.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from benchmarks.asked_cases import asked_cases
from benchmarks.case import Case
from benchmarks.compile_case import proposed
from fuser.compiler.gc_paused import gc_paused
from fuser.errors import FuserError, NotSupportedError
from fuser.ir.device_info import DeviceInfo
from fuser.schedule.registry import SCHEDULERS

MOST_MS = 1.0
TIMES = 5
HEADER = f"{'case':48s} {'scheduler':22s} {'first, ms':>9s} {'again, ms':>9s}"


@dataclass(slots=True)
class Proposal:
    """One call of a scheduler's `propose`; milliseconds. `call` makes it again."""

    scheduler: str
    first: float
    call: Callable[[], object]

    def again(self) -> float:
        """The least of some more calls."""
        return min(_timed(self.call)[0] for _ in range(TIMES))


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
        def propose(*given: Any) -> Any:
            if self._is_inside:
                return plain(*given)
            self._is_inside = True
            try:
                taken, answer = _timed(lambda: plain(*given))
            finally:
                self._is_inside = False
            self.found.append(Proposal(name, taken, lambda: plain(*given)))
            return answer

        return propose


def proposals_of(case: Case, info: DeviceInfo) -> list[Proposal]:
    """Every proposal on the way to the kernels of a case, refused ones included."""
    with ProposalClock() as clock:
        proposed(case, info)
    return clock.found


def verdict_of(first: Sequence[float], again: Sequence[float]) -> tuple[list[str], bool]:
    """Two lines, and whether the median of later calls is over its limit."""
    lines: list[str] = []
    for what, times in (("asked first", first), ("asked again", again)):
        over = sum(t > MOST_MS for t in times)
        lines.append(
            f"median of {len(times)} proposals, {what}: {statistics.median(times):.2f} ms, most {max(times):.2f}; "
            f"{over} over {MOST_MS:g}"
        )
    return lines, statistics.median(again) > MOST_MS


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    asked = asked_cases("proposals", __doc__, ("--over", "print only proposals over the limit"), arguments)
    first: list[float] = []
    again: list[float] = []
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
                later = proposal.again()
                first.append(proposal.first)
                again.append(later)
                if not asked.only_notable or max(proposal.first, later) > MOST_MS:
                    print(f"{case.name:48s} {proposal.scheduler:22s} {proposal.first:9.2f} {later:9.2f}", flush=True)
    if not first:
        return 1
    lines, is_over = verdict_of(first, again)
    print("\n".join(lines))
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
