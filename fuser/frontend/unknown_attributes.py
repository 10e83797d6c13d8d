"""What handles answer where they are asked for what they do not have: attributes, and values for functions of NumPy."""

from __future__ import annotations

from typing import Any, NoReturn

from fuser.errors import DefinitionAttributeError, DefinitionTypeError
from fuser.frontend.advice import advice_on
from fuser.frontend.handles import IterDomain, TensorView, Val, public_names
from fuser.frontend.ops import OPS, UNSUPPORTED
from fuser.source_location import caller_location
from fuser.tracebacks import short_traceback


@short_traceback
def no_attribute(handle: Val, name: str) -> NoReturn:
    """The error of a name that no value has: the op or the method that it may mean."""
    # Not for what Python and libraries look for, nor for the fields of a handle that is being made.
    if name.startswith("__") or name in ("fusion", "node"):
        raise AttributeError(f"{type(handle).__name__!r} object has no attribute {name!r}")
    kind = "a TensorView" if handle.is_tensor() else "a scalar of a fusion"
    if name in UNSUPPORTED:
        advice = f": {name} is not supported yet: {UNSUPPORTED[name]}"
    elif name in OPS:
        advice = f"; call fd.ops.{name}"
    else:
        advice = advice_on(name, public_names(type(handle)), "")
    raise DefinitionAttributeError(f"{kind} has no attribute {name!r}{advice}", name)


@short_traceback
def no_axis_attribute(axis: IterDomain, name: str) -> NoReturn:
    """The error of a name that no axis has; many are verbs of its tensor."""
    if name.startswith("_") or name in ("fusion", "node", "tensor"):
        raise AttributeError(f"{type(axis).__name__!r} object has no attribute {name!r}")
    if callable(getattr(TensorView, name, None)):
        advice = f"; it is a method of tensors: x.{name}(...)"
    else:
        advice = advice_on(name, public_names(IterDomain), "")
    raise DefinitionAttributeError(f"an axis has no attribute {name!r}{advice}", name)


@short_traceback
def no_numpy_function(handle: Val, function: Any, *_: object) -> NoReturn:
    """The answer to NumPy's functions (`__array_function__`), which take arrays: what the op is called here."""
    name: str = function.__name__
    if name in OPS:
        advice = f"; call fd.ops.{getattr(OPS[name], 'overloads', (name,))[-1]}"
    else:
        # The names mean what they mean in torch: its repeat tiles, and its split takes the size of the parts.
        meant = {"repeat": "repeat_interleave", "split": "array_split"}.get(name, name)
        advice = advice_on(meant, OPS, "fd.ops.")
    raise DefinitionTypeError(
        f"numpy.{name} takes arrays, and a tensor of a definition has no values{advice}", location=caller_location()
    )
