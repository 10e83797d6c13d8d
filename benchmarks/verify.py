"""Is a result right? Errors are counted in ulps of the output's dtype against float64, and held against torch eager's.

    error(i) := |result(i) - reference(i)| / ulp(max(|reference(i)|, floor * max|reference|))
    floor    := 2**-10 for 16-bit results, 2**-4 for wider ones

The floor is there for elements that cancel: what torch and we compute in is as wide as a wide result, so that its small
elements may differ by much of themselves. A result of zeros, of another row or of a lower precision is far above any
limit. nan and infinities have to be the reference's. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case, Either, TorchWide, as_tuple

_CHUNK = 1 << 26
# dtype name -> (bits with the leading one, exponent of the smallest normal number)
_FORMATS = {"bfloat16": (8, -126), "float16": (11, -14), "float32": (24, -126), "float64": (53, -1022)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one result.

    error    largest error over all outputs in ulps; inf where classes or shapes differ
    limit    the most that is accepted
    is_poisoned  whether every output was written over memory that held nan
    """

    is_right: bool
    error: float
    limit: float
    text: str
    is_poisoned: bool = True


def largest_error(result: Any, reference: Any) -> float:
    """In ulps of the result's dtype. inf for another shape, a nan or an infinity in the wrong place."""
    import torch

    if tuple(result.shape) != tuple(reference.shape):
        return float("inf")
    name = str(result.dtype).removeprefix("torch.")
    both = (reference.lower, reference.upper) if isinstance(reference, Either) else (reference,)
    if name not in _FORMATS:
        # Each bit has to be one of those that are right: an integer may hold several numbers, each rounded either way.
        differs = result.to(both[0].dtype) ^ both[0]
        if len(both) > 1:
            differs = differs & (result.to(both[1].dtype) ^ both[1])
        return float("inf") if bool(differs.any()) else 0.0
    digits, smallest = _FORMATS[name]
    flat = result.reshape(-1)
    # Not those that sum exactly: nothing is summed here.
    expected = [r.reshape(-1).as_subclass(torch.Tensor) for r in both]
    floor = 0.0
    for begin in range(0, flat.numel(), _CHUNK):
        part = expected[0][begin : begin + _CHUNK]
        finite = torch.where(torch.isfinite(part), part.abs(), 0.0)
        floor = max(floor, float(finite.max()))
    floor *= 2.0**-10 if result.element_size() == 2 else 2.0**-4
    least = max(floor, 2.0**smallest)
    worst = 0.0
    for begin in range(0, flat.numel(), _CHUNK):
        got = flat[begin : begin + _CHUNK]
        found = [_errors(got, e[begin : begin + _CHUNK], least, digits) for e in expected]
        error = found[0] if len(found) == 1 else torch.minimum(*found)
        worst = max(worst, float(error.max())) if error.numel() else worst
    return worst


def largest_error_of_double(result: Any, reference: Any) -> float:
    """The same of a float64 tensor, against an array of longdoubles."""
    import numpy as np

    got = result.cpu().numpy()
    if got.shape != np.shape(reference):
        return float("inf")
    with np.errstate(all="ignore"):
        want = np.where(np.isfinite(reference.astype(np.float64)), reference, reference.astype(np.float64))
        finite = np.isfinite(want)
        size = np.abs(np.where(finite, want, 0))
        least = max(float(size.max(initial=0)) * 2.0**-4, 2.0**-1022)
        unit = np.ldexp(np.ones(size.shape), np.frexp(np.maximum(size, least).astype(np.float64))[1] - 53)
        error = np.nan_to_num(np.abs(got - want) / unit, nan=np.inf, posinf=np.inf)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        return float(np.where(finite, error, np.where(same, 0, np.inf)).max(initial=0))


def _errors(result: Any, want: Any, least: float, digits: int) -> Any:
    """In ulps of the result's dtype, whose numbers have `digits` bits, at no less than `least`; inf for nan or an infinity
    in the wrong place, and for nan where a number belongs."""
    import torch

    # What does not fit the dtype is an infinity in it.
    want = torch.where(torch.isfinite(want), want, want.to(result.dtype).double())
    got = result.double()
    finite = torch.isfinite(want)
    exponent = torch.frexp(want.abs().clamp(min=least)).exponent - digits
    error = (got - want).abs() * torch.exp2(-exponent.double())
    error = error.nan_to_num(float("inf"), float("inf"))
    same = got.nan_to_num(1.0, 2.0, 3.0) == want.nan_to_num(1.0, 2.0, 3.0)
    return torch.where(finite, error, torch.where(same & ~torch.isfinite(got), 0.0, float("inf")))


def _least_limit(result: Any) -> float:
    """Ulps that are always granted: one for 16-bit results, what differs between two good summations for wider ones.

    Of integers and Bools every one has to be right.
    """
    if not result.is_floating_point():
        return 0.5
    return 1.0 if result.element_size() == 2 else 32.0


def poisoned_run(run: Callable[[], Any], inputs: Sequence[Any]) -> tuple[tuple[Any, ...], bool]:
    """The outputs of a run whose output memory held nan before, and whether that could be arranged.

    The outputs of a first run are filled and given back, so that torch's allocator hands out the same blocks again.
    """
    blocks = _poison(as_tuple(run()), inputs)
    outputs = as_tuple(run())
    return outputs, all(o.untyped_storage().data_ptr() in blocks for o in outputs)


def _poison(outputs: tuple[Any, ...], inputs: Sequence[Any]) -> set[int]:
    """Fill outputs that are not an input's storage; the addresses of their storages. Keeps no reference to them."""
    owned = {t.untyped_storage().data_ptr() for t in inputs}
    blocks: set[int] = set()
    for output in outputs:
        address = output.untyped_storage().data_ptr()
        if address not in owned:
            blocks.add(address)
            output.fill_(float("nan") if output.is_floating_point() else -1)
    return blocks


def verify(case: Case, run: Callable[[], Any], inputs: Sequence[Any]) -> Verdict:
    """Compare a run of ours with float64, element by element, on inputs that are on the GPU."""
    import torch

    if case.check is not None:
        is_right, text = case.check(torch, run, inputs)
        return Verdict(is_right, 0.0 if is_right else float("inf"), 0.0, text)
    outputs, is_poisoned = poisoned_run(run, inputs)
    references = case.reference(TorchWide(), *inputs)
    if len(outputs) != len(references):
        return Verdict(False, float("inf"), 0.0, f"{len(outputs)} outputs, expected {len(references)}")
    mine = [largest_error(o, r) for o, r in zip(outputs, references, strict=True)]
    eager = [largest_error(o, r) for o, r in zip(as_tuple(case.eager(torch)(*inputs)), references, strict=True)]
    for k, (output, reference) in enumerate(zip(outputs, references, strict=True)):
        if tuple(output.shape) != tuple(reference.shape):
            text = f"output {k} has shape {tuple(output.shape)}, expected {tuple(reference.shape)}"
            return Verdict(False, float("inf"), 0.0, text, is_poisoned)
    limits = [max(_least_limit(o), 2 * e if e < float("inf") else 0.0) for o, e in zip(outputs, eager, strict=True)]
    worst = max(range(len(mine)), key=lambda k: mine[k] / limits[k])
    text = f"{mine[worst]:.2f} ulp (eager {eager[worst]:.2f})"
    if len(mine) > 1 and mine[worst] > limits[worst]:
        text = f"output {worst}: {text}"
    return Verdict(mine[worst] <= limits[worst], mine[worst], limits[worst], text, is_poisoned)
