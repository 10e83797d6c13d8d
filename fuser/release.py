"""The project's version: a string that compares as a version."""

from __future__ import annotations

import re

from fuser.errors import InputValueError

__version__ = "0.1.0"

# The parts of a release that count: numbers, and what comes before the first final release.
_RELEASE = re.compile(
    r"\s*v?(\d+(?:\.\d+)*)(?:[-_.]?(a|alpha|b|beta|c|rc|pre|preview|dev)[-_.]?(\d*))?(?:\.?dev(\d*))?"
)
_STAGES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "preview": -1}

Key = tuple[tuple[int, ...], int, int]


def version_key(text: str) -> Key:
    """What versions are compared by; the part after `+` is ignored. Raises InputValueError for text that is none."""
    found = _RELEASE.fullmatch(text.partition("+")[0].strip())
    if found is None:
        raise InputValueError(f"{text!r} is not a version; expected numbers as in 0.1.0")
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = _STAGES[found[2]] if found[2] else (-4 if found[4] is not None else 0)
    return tuple(numbers), stage, int(found[3] or found[4] or 0)


class Version(str):
    """A version: equal to and ordered with strings and `packaging` versions, as versions.

    Comparing with anything else raises InputValueError.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return version_key(str(self)) == _key_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: object) -> bool:
        return version_key(str(self)) < _key_of(other)

    def __le__(self, other: object) -> bool:
        return version_key(str(self)) <= _key_of(other)

    def __gt__(self, other: object) -> bool:
        return version_key(str(self)) > _key_of(other)

    def __ge__(self, other: object) -> bool:
        return version_key(str(self)) >= _key_of(other)

    def __hash__(self) -> int:
        return hash(version_key(str(self)))


def _key_of(other: object) -> Key:
    if isinstance(other, str):
        return version_key(str(other))
    # packaging.version.Version, without importing it.
    if type(other).__module__.startswith("packaging") and hasattr(other, "release"):
        return version_key(str(other))
    raise InputValueError(f"a version can be compared with a string or a packaging version, not {type(other).__name__}")


def version() -> Version:
    """The project's own version."""
    return Version(__version__)
