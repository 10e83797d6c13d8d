"""Tracebacks of errors that a user can mend: the user's frames, and none of this package's.

What went wrong and in which of the user's lines stands in the error itself; the frames between say how the package is
built. `FUSER_TRACEBACK=full` keeps them. An `InternalError` is a bug of the package and always has all of them.

    @short_tracebacks        every method that users call
    class FusionDefinition: ...

    @short_traceback         a function that users call
    def inline_most(...): ...
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from fuser.errors import FuserError, InputValueError, InternalError
from fuser.options import TRACEBACK
from fuser.source_location import caller_location, is_of_package

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def shorten(error: FuserError) -> None:
    """Give an error that is about to leave the package the caller's line if it has none, and drop the package's frames.

    For an `except` clause that ends in `raise`: Python adds the frames of the callers while the error passes them, but not
    that of the clause.
    """
    if error.location is None:
        error.location = caller_location()
    if isinstance(error, InternalError) or _keeps_frames(error):
        return
    error.__traceback__ = None
    # What an error of the package replaced is told only where it is named as the cause. What the user was handling stays.
    context = error.__context__
    while context is not None and _was_caught_by_package(context):
        context = context.__context__
    error.__context__ = context
    error.__suppress_context__ = context is None or error.__cause__ is not None


def _keeps_frames(error: BaseException) -> bool:
    """Whether FUSER_TRACEBACK asks for all frames. What is wrong with the environment must not hide the error: a value that is
    none of the option's is told beside it, and names of options are not checked here.
    """
    try:
        return TRACEBACK.get(os.environ) == "full"
    except InputValueError as wrong:
        if wrong.message not in getattr(error, "__notes__", ()):
            error.add_note(wrong.message)
        return False


def _was_caught_by_package(error: BaseException) -> bool:
    caught = error.__traceback__  # from the frame that caught it
    return caught is None or is_of_package(caught.tb_frame.f_code)


def _misused(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> FuserError | None:
    """What Python's error of a call stands for: a method without its object, or arguments that do not bind; None for others."""
    is_unbound = not (function.__name__.startswith("__") or _has_its_object(function, args))
    # Only a call that did not bind fails in the very frame that calls.
    fails_here = error.__traceback__ is not None and error.__traceback__.tb_next is None
    if not is_unbound and not (fails_here and isinstance(error, TypeError)):
        return None
    from fuser.unbound_calls import unbound_call, without_its_object

    return without_its_object(function, args) if is_unbound else unbound_call(function, args, kwargs)


def _has_its_object(function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """False for a method that was called on its class, `FusionDefinition.define_tensor([2])`."""
    path = function.__qualname__.split(".")
    if len(path) == 1 or path[-2] == "<locals>":
        return True
    return bool(args) and path[-2] in (cls.__name__ for cls in type(args[0]).__mro__)


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with `shorten` for its errors. A call that does not bind is a DefinitionTypeError, and so is that of a
    method without its object.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                return function(*args, **kwargs)
            except (TypeError, AttributeError) as error:
                if isinstance(error, FuserError):
                    raise
                told = _misused(function, args, kwargs, error)
                if told is None:
                    raise
                raise told from None
        except FuserError as error:
            shorten(error)
            raise
        except OSError as error:
            # What reads or writes a file of the user's raises by its docstring; it names the file.
            if error.filename is not None and not _keeps_frames(error):
                error.__traceback__ = None
            raise

    return call


def short_tracebacks(cls: type[C]) -> type[C]:
    """The class, each of whose public methods, operators and properties has `short_traceback`.

    A method that calls `shorten` in a clause of its own, as those of every execution do, is left without the frame more.
    """
    for name, member in list(vars(cls).items()):
        if (name.startswith("_") and not name.endswith("__")) or name == "__getattr__":
            continue
        if isinstance(member, FunctionType) and "shorten" not in member.__code__.co_names:
            setattr(cls, name, short_traceback(member))
        elif isinstance(member, property):
            getter: Any = member.fget
            setattr(cls, name, property(short_traceback(getter), member.fset, member.fdel, member.__doc__))
    return cls
