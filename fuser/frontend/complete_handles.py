"""The classes of handles as users know them: those of `handles.py`, and on them what is made of ops and schedules.

Ops take and give handles, and handles have ops as operators and methods. So the classes stand below the ops, and get these
members here, above them. No other module puts members on the classes; each table is written where its members are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fuser.frontend.handles import (
    BroadcastOp,
    Expr,
    IterDomain,
    Merge,
    ReshapeOp,
    Split,
    SqueezeOp,
    Statement,
    TensorDomain,
    TensorView,
    Val,
)
from fuser.frontend.methods import METHODS, PROPERTIES
from fuser.frontend.operators import OPERATORS
from fuser.frontend.subscripts import subscript
from fuser.frontend.unknown_attributes import no_attribute, no_axis_attribute, no_numpy_function
from fuser.frontend.verbs import AXIS_VERBS, VERBS
from fuser.tracebacks import short_traceback

__all__ = [
    "BroadcastOp",
    "Expr",
    "IterDomain",
    "Merge",
    "ReshapeOp",
    "Split",
    "SqueezeOp",
    "Statement",
    "TensorDomain",
    "TensorView",
    "Val",
]


def _put(cls: type, members: Mapping[str, Callable[..., Any] | property]) -> None:
    for name, member in members.items():
        setattr(cls, name, member)


_put(Val, {**OPERATORS, "__getattr__": no_attribute, "__array_function__": no_numpy_function})
_put(TensorView, {**VERBS, **METHODS, "__getitem__": short_traceback(subscript)})
_put(
    TensorView,
    {name: property(short_traceback(getter), doc=getter.__doc__) for name, getter in PROPERTIES.items()},
)
_put(IterDomain, {**AXIS_VERBS, "__getattr__": no_axis_attribute})
