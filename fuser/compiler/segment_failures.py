"""What becomes of a segment that cannot be compiled as it was cut: refusals, for the fusion to be cut again by.

A scheduler may refuse the sizes at hand. Or reductions are better done in two steps at those. Or a stage fails on a segment: a
scheduler raises an error, what it proposes cannot be lowered, NVRTC refuses the text. That is a bug, whatever class the error
is of, and treated alike: users get a program that is cut further, in the end to single exprs
(`schedule/schedulers/fallback.py`), a warning with a script that shows the bug again, and the reason in `explain`. Under
FUSER_VERIFY, and where FUSER_FAULT planted the bug, it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from fuser import options as environment
from fuser.compiler.bind_inputs import BoundInputs
from fuser.compiler.reproducer import script_or_why_none, write_segment_reproducer
from fuser.errors import DefinitionError, FuserError, InputError, LaunchError, SchedulingError
from fuser.ir.fusion.fusion import Fusion, tensor_outputs
from fuser.ir.ops.enums import SchedulerType
from fuser.records import record
from fuser.schedule.cost.kernel_split import KernelSplit
from fuser.schedule.cost.two_kernel_reduction import TwoKernelSplit
from fuser.schedule.segmentation.segment import AcceptError, SizeRefusal

Recut = SizeRefusal | KernelSplit | TwoKernelSplit
"""What an attempt has found of how the fusion should be cut."""

_T = TypeVar("_T")


@record(eq=False)
class Failure:
    """A bug that a segment met. `reproduce` writes a script that shows it again and returns its path."""

    error: Exception
    reproduce: Callable[[], str]


class SizesRefusedError(SchedulingError):
    """A segment cannot be compiled as it is.

    refusals   name the schedulers that were asked, or what to reduce in two steps
    failure    a stage has failed
    others     the same of other segments of the attempt
    """

    def __init__(
        self,
        message: str,
        refusals: frozenset[Recut],
        failure: Failure | None = None,
        others: Sequence[SizesRefusedError] = (),
    ) -> None:
        super().__init__(message)
        self.refusals = refusals
        self.failure = failure
        self.others = tuple(others)


def refused(segment: Fusion, by: Sequence[SchedulerType], why: str) -> SizesRefusedError:
    """Schedulers take a segment's structure, and none its sizes."""
    return SizesRefusedError(_about(segment, why), frozenset(SizeRefusal(t, _made(segment)) for t in by))


def in_steps(segment: Fusion, steps: TwoKernelSplit, why: str) -> SizesRefusedError:
    """The reductions of a segment are better done in two steps, and it is cut there."""
    return SizesRefusedError(_about(segment, why), frozenset((steps,)))


def ending(segment: Fusion, ends: KernelSplit, why: str) -> SizesRefusedError:
    """A segment had better be several kernels."""
    return SizesRefusedError(_about(segment, why), frozenset((ends,)))


def failed(
    segment: Fusion, scheduler: SchedulerType, what: str, error: Exception, bound: BoundInputs | None = None
) -> SizesRefusedError:
    """A stage failed. `what`: as in "what pointwise proposes cannot be lowered"; `bound`: the inputs, if there are any yet.

    Raises `error` itself where that is no bug.
    """
    # On first need: the module loads what compilations for the simulator do without.
    from fuser.runtime.kernels.nvrtc import NvrtcUnavailableError

    # A mistake of the user, or something that this machine lacks: no other cut helps.
    if isinstance(error, (InputError, DefinitionError, LaunchError, NvrtcUnavailableError, MemoryError, OSError)):
        raise error
    message = error.message if isinstance(error, FuserError) else f"{type(error).__name__}: {error}"
    why = f"{what}: {message}"

    def reproduce() -> str:
        written = getattr(error, "reproducer", None)
        return written or write_segment_reproducer(why, segment, scheduler, bound)

    refusals = frozenset((SizeRefusal(scheduler, _made(segment), divisor=2),))
    return SizesRefusedError(_about(segment, why), refusals, Failure(error, reproduce))


def too_large(segment: Fusion, scheduler: SchedulerType, why: str, parts: int) -> SizesRefusedError:
    """A kernel for all of a segment asks more than there is; the scheduler may take one of so many parts."""
    refusals = frozenset((SizeRefusal(scheduler, _made(segment), divisor=max(2, parts)),))
    return SizesRefusedError(_about(segment, why), refusals)


def not_accepted(error: AcceptError) -> SizesRefusedError:
    """A scheduler raised an error when it was asked about a structure. Raises that error where it is no bug."""
    assert isinstance(error.__cause__, Exception)
    return failed(error.fusion, error.scheduler, f"{error.scheduler.name} answers nothing", error.__cause__)


def all_refused(errors: Sequence[SizesRefusedError]) -> SizesRefusedError:
    """One error for the segments of an attempt: each attempt should learn as much as it can, for the next one begins anew."""
    first, *others = errors
    return SizesRefusedError(first.message, first.refusals, first.failure, others)


def to_keep(error: SizesRefusedError) -> SizesRefusedError:
    """The same without what it happened in, which holds on to inputs. For failures that were warned of, with their script."""
    if error.failure is None:
        return SizesRefusedError(error.message, error.refusals)
    return SizesRefusedError(error.message, error.refusals, Failure(SchedulingError(error.message), lambda: ""))


def until_sizes_fit(attempt: Callable[[frozenset[Recut], Sequence[str]], _T], told: set[str] | None = None) -> _T:
    """Call `attempt` with no refusals first, then with those of the sizes of segments, and with what they say.

    Segments are cut by structure: where nobody takes the sizes of one, or a stage fails on it, the fusion is cut again, and who
    refused is not asked about the exprs of that segment, who failed not about more than half of them. Raises SchedulingError if
    that does not help, what failed if the process is to stop there. `told`: failures that were warned of before, to which
    those of this call are added.
    """
    told = set() if told is None else told
    without: frozenset[Recut] = frozenset()
    reasons: tuple[str, ...] = ()
    while True:
        try:
            return attempt(without, reasons)
        except SizesRefusedError as error:
            each = (error, *error.others)
            failures = [e.failure for e in each if e.failure is not None]
            if failures and shows_bugs():
                raise failures[0].error from failures[0].error.__cause__
            refusals = without.union(*(e.refusals for e in each))
            if refusals == without:
                _add_reasons(error, reasons)
                raise
            for e in each:
                if e.failure is not None and e.message not in told:
                    told.add(e.message)
                    _, again = script_or_why_none(e.failure.reproduce)
                    environment.logger().warning(
                        "%s. This is a bug of fuser; the fusion is cut further instead. %s",
                        e.message.splitlines()[0],
                        again,
                    )
            without = refusals
            reasons = (*reasons, *(e.message for e in each))
        except SchedulingError as error:
            _add_reasons(error, reasons)
            raise


def shows_bugs() -> bool:
    """Whether a bug ends a compilation: what is verified must hold, and who plants a fault wants to see it."""
    return bool(environment.VERIFY.get()) or environment.FAULT.get() is not None


def _add_reasons(error: SchedulingError, reasons: Sequence[str]) -> None:
    for reason in reasons:
        error.add_note(f"the fusion was cut again because of {reason}")


def _about(segment: Fusion, why: str) -> str:
    return f"the segment of {', '.join(t.name for t in segment.output_tensors)}: {why}"


def _made(segment: Fusion) -> frozenset[str]:
    return frozenset(t.name for e in segment.tensor_exprs for t in tensor_outputs(e))
