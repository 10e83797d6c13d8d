"""Error classes: one base per family, and under it one class per builtin type that callers catch.

    FuserError
      DefinitionError   a call while defining a fusion       (…RuntimeError, …TypeError, …ValueError, NotSupportedError, …)
      InputError        what was handed to execute           (InputRuntimeError, InputTypeError, InputValueError, …)
      SchedulingError   a schedule that cannot be applied or lowered
      CompilationError  NVRTC refused the text; carries the log
      LaunchError       a launch that the kernel or the device cannot hold; driver errors
      InternalError     a bug of this project; names the pass

Every message says what was wrong in the user's terms, and the `location` attribute holds the user's
file and line where one is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from fuser.source_location import caller_imports_name, caller_location

if TYPE_CHECKING:
    from fuser.source_location import SourceLocation


class FuserError(Exception):
    """Base of every error raised on purpose by the project.

    `location` is the user's source line the error belongs to, when one is known; it is appended to the text.
    """

    def __init__(self, message: str, *, location: SourceLocation | None = None) -> None:
        self.message = message
        self.location = location
        super().__init__(message)

    def __str__(self) -> str:
        if self.location is None:
            return self.message
        return f"{self.message}\n{self.location.describe()}"


class DefinitionError(FuserError):
    """A mistake in a call that defines a fusion."""


class DefinitionRuntimeError(DefinitionError, RuntimeError):
    """A definition call with values that cannot work."""


class DefinitionTypeError(DefinitionError, TypeError):
    """A call that matches no overload."""


class DefinitionAttributeError(DefinitionError, AttributeError):
    """A name that is no op, or no attribute of a value. `name` is the name."""

    def __init__(self, message: str, name: str, *, location: SourceLocation | None = None) -> None:
        super().__init__(message, location=location)
        self.name = name
        # Known, so that the interpreter does not look for similar names once more.
        self.obj = None


class DefinitionImportError(DefinitionError, ImportError):
    """A name that cannot be imported, because the module has none such. `name` is the name."""

    def __init__(self, message: str, name: str, *, location: SourceLocation | None = None) -> None:
        super().__init__(message, location=location)
        self.name = name


class DefinitionValueError(DefinitionError, ValueError):
    """A definition call with a value outside its domain."""


class DefinitionKeyError(DefinitionError, KeyError):
    """A name in brackets that an enumeration does not have, as in `DataType["float32"]`."""


class DefinitionIndexError(DefinitionError, IndexError):
    """A position that a sequence of a definition does not have."""


class DefinitionAssertionError(DefinitionError, AssertionError):
    """A definition used in a state that forbids it."""


class NotSupportedError(DefinitionError, NotImplementedError):
    """A name that exists but is not supported yet, or a definition that is empty."""


class InputError(FuserError):
    """Arguments of an execution that do not fit the definition."""


class InputRuntimeError(InputError, RuntimeError):
    """Inputs whose count, shape, device or overlap do not fit."""


class InputTypeError(InputError, TypeError):
    """An input of a kind that cannot be used."""


class ElementTypeError(InputTypeError):
    """An array whose elements are of a type that is not supported."""


class InputValueError(InputError, ValueError):
    """An input value outside its domain."""


class InputAssertionError(InputError, AssertionError):
    """A device that cannot be used, or results that differ from the references."""


class SchedulingError(FuserError, RuntimeError):
    """A schedule that is illegal or cannot be lowered."""


class CompilationError(FuserError, RuntimeError):
    """NVRTC or ptxas refused the text. `log` holds their output."""

    def __init__(self, message: str, *, log: str = "", location: SourceLocation | None = None) -> None:
        super().__init__(message, location=location)
        self.log = log


class LaunchError(FuserError, RuntimeError):
    """A launch outside the limits of the kernel or the device, or a failed driver call."""


class LaunchLimitError(LaunchError):
    """Sizes that the device cannot launch. `resource` is what there is too much of: "block", "grid.y", "shared", ..."""

    def __init__(self, message: str, *, resource: str = "", location: SourceLocation | None = None) -> None:
        super().__init__(message, location=location)
        self.resource = resource


class LaunchTypeError(LaunchError, TypeError):
    """An argument of a raw kernel that does not fit its declaration."""


class LaunchValueError(LaunchError, ValueError):
    """An argument of a raw kernel outside the range of its declared type."""


class LaunchMemoryError(LaunchError, MemoryError):
    """Memory that the device does not have; the message says how much was asked for."""


class VariantUnavailableError(LaunchError):
    """A binary for this block size is needed and NVRTC is not there to make it."""


class NoDeviceError(LaunchError):
    """The operation needs a GPU (or a kernel the simulator can run) and there is none."""


class InternalError(FuserError, RuntimeError):
    """A bug of this project. `pass_name` is the pass that failed, `reproducer` a script that shows it again."""

    def __init__(
        self,
        message: str,
        *,
        pass_name: str = "",
        reproducer: str | None = None,
        location: SourceLocation | None = None,
    ) -> None:
        super().__init__(message, location=location)
        self.pass_name = pass_name
        self.reproducer = reproducer


def missing_from_module(message: str, name: str) -> DefinitionAttributeError | DefinitionImportError:
    """The error of a module's `__getattr__`.

    `from module import name` throws an AttributeError away and raises an ImportError that tells nothing. So it gets one.
    """
    return (DefinitionImportError if caller_imports_name() else DefinitionAttributeError)(message, name)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        from difflib import get_close_matches

        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        classes = {known.lower(): known for known, value in globals().items() if isinstance(value, type)}
        like = get_close_matches(name.lower(), classes, n=1, cutoff=0.75)
        families = ", ".join(family.__name__ for family in FuserError.__subclasses__())
        meant = f"did you mean {classes[like[0]]}?" if like else f"each is a FuserError, and one of {families}"
        try:
            raise missing_from_module(f"there is no error {name!r}; {meant}", name)
        except FuserError as error:
            # `shorten` of tracebacks stands above this module.
            error.location = caller_location()
            error.__traceback__ = None
            raise
