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


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with `shorten` for its errors. A call that does not bind is a DefinitionTypeError."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                # Only a call that did not bind fails in this very frame.
                if (
                    isinstance(error, FuserError)
                    or error.__traceback__ is None
                    or error.__traceback__.tb_next is not None
                ):
                    raise
                from fuser.unbound_calls import unbound_call

                unbound = unbound_call(function, args, kwargs)
                if unbound is None:
                    raise
                raise unbound from None
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
