"""Calls that match no signature: why, how they were called, and what there is.

split(): missing a required argument: 'factor'. Called as split(int); supported:
    split(axis: int, factor: int, inner_split: bool = True) -> TensorView
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from fuser.errors import DefinitionTypeError


class Annotation(str):
    """An annotation as it is written; `help` shows it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


F = TypeVar("F", bound=Callable[..., Any])

NOT_GIVEN: Any = object()
"""The default of `inputs` where a call without them is told what to write."""


def asks_for_inputs(function: F) -> F:
    """A method whose first argument, `inputs`, may be left out of a call: it then is NOT_GIVEN, and the method tells how it is
    called. Type checkers know it as one that is needed.

    For methods of every execution: `short_traceback` would be one more frame of each.
    """
    found: Any = function
    found.__defaults__ = (NOT_GIVEN, *(found.__defaults__ or ()))
    return function


# What other libraries call an argument, and what it may be called here.
_OTHER_NAMES = {
    "axis": ("dim", "dims"),
    "axes": ("dims", "dim"),
    "dim": ("dims", "axis"),
    "dims": ("dim", "broadcast_dims", "axes"),
    "keepdims": ("keepdim",),
    "ddof": ("correction",),
    "unbiased": ("correction",),
    "inner": ("inner_split",),
    "input": ("arg", "x", "inputs", "arg1"),
    "weight": ("arg2",),
    "x": ("arg", "lhs"),
    "a": ("arg", "lhs", "x"),
    "other": ("rhs", "arg2"),
    "y": ("rhs",),
    "size": ("shape", "new_shape"),
    "shape": ("new_shape", "sizes"),
    "split_size_or_sections": ("factor",),
    "stride": ("strides",),
    "value": ("fill_value",),
    "repeats": ("shape",),
}

_ELSEWHERE = {
    "device": "a definition has no device, fd.execute(inputs, device=...) chooses one",
    **dict.fromkeys(("grid", "block"), "the extents are gdimx, gdimy, gdimz, bdimx, bdimy, bdimz, in this order"),
    "tune": "fd.execute(inputs, tune=True) measures candidates on a GPU",
    "graph": "fd.execute(inputs, graph=True) launches a graph",
    "out": "what is called makes new tensors; fd.add_output(y, x) writes one into an input",
    **dict.fromkeys(
        ("rtol", "atol", "tolerance", "tol"), "fuser.get_val_tolerances gives those that it uses; np.testing has others"
    ),
    "requires_grad": "a definition computes no gradients",
    "stream": "kernels run on the current stream of torch or CuPy, and fd.program(inputs).run(inputs, stream) takes one",
}
"""What is no argument of a call, and how it is said."""

OTHER_MEANINGS = {
    "DeviceInfo": "DeviceInfo.preset('sm_90') has the limits of a GPU by its name",
    "split": (
        "split() schedules a loop axis of a tensor; the parts that split gives in other libraries are slices: x[:, :4], "
        "x[:, 4:]"
    ),
}
"""What is said behind the signatures of a call: methods that other libraries have for something else, what is rarely called."""


def mismatch_text(
    name: str, signatures: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object], reason: str
) -> str:
    """Why a call matches none of `signatures`, how it was called, and the signatures."""
    given = [kind_text(a) for a in args] + [f"{k}={kind_text(v)}" for k, v in kwargs.items()]
    if "positional-only" in reason:
        meant = ": they are given in their order, without names."
    else:
        meant = _meant_argument(signatures, kwargs)
    why = reason.rstrip(".") + meant
    if why[-1] not in ".?":
        why += "."
    other = f"\n{OTHER_MEANINGS[name]}" if name in OTHER_MEANINGS else ""
    return (
        f"{name}(): incompatible function arguments. {why} Called as {name}({', '.join(given)}); supported:"
        + "".join(f"\n    {s}" for s in signatures)
        + other
    )


def unbound_call(
    function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> DefinitionTypeError | None:
    """The error of a call whose arguments do not fit the parameters of a function; None if they do."""
    signature = inspect.signature(function)
    # Parameters that nothing can be given for are there to tell what was.
    given = [
        p.replace(default=p.empty) if p.default is NOT_GIVEN else p
        for p in signature.parameters.values()
        if p.annotation != "Never"
    ]
    signature = signature.replace(parameters=given)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = [k for k in kwargs if k not in signature.parameters]
        reason = f"got an unexpected keyword argument {unknown[0]!r}" if unknown else str(error)
    else:
        return None
    owner, _, name = function.__qualname__.rpartition(".")
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name == "self":
        parameters, args = parameters[1:], args[1:]
    if name == "__init__":
        name = owner.rpartition(".")[2]
        signature = signature.replace(return_annotation=signature.empty)
    shown = signature.replace(
        parameters=[p.replace(annotation=_written(p.annotation)) for p in parameters],
        return_annotation=_written(signature.return_annotation),
    )
    return DefinitionTypeError(mismatch_text(name, [f"{name}{shown}"], args, kwargs, reason))


def without_its_object(function: Callable[..., Any], args: Sequence[object]) -> DefinitionTypeError:
    """The error of a method that was called on its class."""
    owner, name = function.__qualname__.split(".")[-2:]
    got = f"got {kind_text(args[0])} in its place" if args else "and there is none"
    return DefinitionTypeError(f"{owner}.{name}() was called on the class: it is a method of a {owner}, {got}")


def no_such_arguments(
    function: Callable[..., Any], args: Sequence[object], unknown: Mapping[str, object]
) -> DefinitionTypeError:
    """The error of keywords that a function does not have, or of arguments that are NOT_GIVEN."""
    error = unbound_call(function, [a for a in args if a is not NOT_GIVEN], unknown)
    assert error is not None
    return error


def _written(annotation: object) -> object:
    """An annotation that is kept as text, as it is shown."""
    return Annotation(annotation) if isinstance(annotation, str) else annotation


def _meant_argument(signatures: Sequence[str], kwargs: Mapping[str, object]) -> str:
    """`; did you mean 'dim'?` if a keyword is like a parameter's name, or what other libraries call one."""
    parameters = dict.fromkeys(p for s in signatures for p in re.findall(r"[(,] ?(\w+):", s.partition(") ->")[0]))
    for keyword in kwargs:
        if keyword in parameters:
            continue
        like = [n for n in _OTHER_NAMES.get(keyword, ()) if n in parameters]
        like += difflib.get_close_matches(keyword, parameters, 1)
        if like:
            return f"; did you mean {like[0]!r}?"
        if keyword in _ELSEWHERE:
            return f": {_ELSEWHERE[keyword]}."
        if hasattr(kwargs[keyword], "shape") and any("inputs: " in s for s in signatures):
            return ": arrays are given in the order in which they are defined, without a name."
    return ""


def kind_text(value: object) -> str:
    """The type of an argument as an error shows it."""
    if isinstance(value, list | tuple) and value:
        inner = dict.fromkeys(kind_text(v) for v in value)
        return f"{type(value).__name__}[{' | '.join(inner)}]"
    return type(value).__name__
