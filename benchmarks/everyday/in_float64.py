"""What a torch function says in float64: run as it is written, with every floating dtype in it read as float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.case import FLOAT_ERROR, Either, as_tuple


def in_float64(torch: Any, function: Callable[..., Any], tensors: Sequence[Any]) -> Sequence[Any]:
    """The results of `function(torch, *tensors)` in float64; Either where it rounds to whole numbers on the way.

    What is rounded was computed in Float: a value within Float's error of the middle of two numbers may become either.
    """
    wide = [t.double() if t.is_floating_point() else t for t in tensors]
    low, high = _double_mode(torch)(-1), _double_mode(torch)(1)
    with low:
        lower = as_tuple(function(torch, *wide))
    if not low.has_rounded:
        return lower
    with high:
        upper = as_tuple(function(torch, *wide))
    return [Either(a, b) for a, b in zip(lower, upper, strict=True)]


def _double_mode(torch: Any) -> Any:
    """A mode (sign) in which floats are float64 and what is rounded is off by Float's error, up or down."""
    from torch.overrides import TorchFunctionMode

    narrow = (torch.float32, torch.bfloat16, torch.float16)
    casts = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
    rounding = (torch.round, torch.Tensor.round)

    def widened(argument: Any) -> Any:
        return torch.float64 if any(argument is dtype for dtype in narrow) else argument

    class Double(TorchFunctionMode):
        def __init__(self, sign: int) -> None:
            super().__init__()
            self.sign = sign
            self.has_rounded = False

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            arguments = [widened(a) for a in args]
            named = {name: widened(a) for name, a in (kwargs or {}).items()}
            if function in casts:
                return arguments[0].double()
            if function in rounding:
                self.has_rounded = True
                arguments[0] = arguments[0] * (1 + self.sign * FLOAT_ERROR)
            return function(*arguments, **named)

    return Double
