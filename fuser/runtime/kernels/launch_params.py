"""`LaunchParams`: the launch sizes a caller asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from fuser.errors import InputTypeError, InputValueError
from fuser.runtime.launch import Launch
from fuser.tracebacks import short_tracebacks

UNSET = -1


_NAMES = ("gdimx", "gdimy", "gdimz", "bdimx", "bdimy", "bdimz")


def _checked(name: str, n: int) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise InputTypeError(f"{name} is an integer, got {type(n).__name__}")
    n = n.__index__()
    if n != UNSET and n < 1:
        raise InputValueError(f"{name} is at least 1, or -1 for unset; got {n}")
    return n


class _Extent:
    """One of the six extents: reads as 1 while unset."""

    def __init__(self, position: int, doc: str) -> None:
        self._position = position
        self.__doc__ = doc

    @overload
    def __get__(self, params: None, owner: type) -> _Extent: ...
    @overload
    def __get__(self, params: LaunchParams, owner: type) -> int: ...
    def __get__(self, params: LaunchParams | None, owner: type) -> _Extent | int:
        if params is None:
            return self
        n = params.extents[self._position]
        return 1 if n == UNSET else n

    def __set__(self, params: LaunchParams, n: int) -> None:
        params.set_extent(self._position, n)


@short_tracebacks
class LaunchParams:
    """Grid, block, dynamic shared memory (bytes) and cluster of a launch.

    `LaunchParams()` or `LaunchParams(gdimx, gdimy, gdimz, bdimx, bdimy, bdimz)`. An extent that is not set reads as 1;
    one that is set constrains the schedule, or, for a raw kernel, is what is launched.

    Raises InputTypeError for arguments that are no integers and InputValueError for sizes below 1.
    """

    __slots__ = ("_cluster", "_extents", "_shared")

    def __init__(self, *extents: int, shared: int = 0, cluster: Sequence[int] | None = None) -> None:
        if len(extents) not in (0, 6):
            raise InputTypeError(
                f"LaunchParams takes no extents or six (gdimx, gdimy, gdimz, bdimx, bdimy, bdimz), got {len(extents)}"
            )
        self._extents = [_checked(name, n) for name, n in zip(_NAMES, extents or (UNSET,) * 6, strict=True)]
        if isinstance(shared, bool) or not hasattr(shared, "__index__"):
            raise InputTypeError(f"shared is a number of bytes, got {type(shared).__name__}")
        if int(shared) < 0:
            raise InputValueError(f"shared is a number of bytes, got {shared}")
        self._shared = int(shared)
        self._cluster: tuple[int, int, int] | None = None
        if cluster is not None:
            if len(cluster) != 3:
                raise InputValueError(f"cluster is three extents (x, y, z), got {tuple(cluster)}")
            x, y, z = (_checked(f"cluster.{axis}", n) for axis, n in zip("xyz", cluster, strict=True))
            if UNSET in (x, y, z):
                raise InputValueError(f"cluster is three extents of at least 1, got {tuple(cluster)}")
            self._cluster = (x, y, z)

    @property
    def shared(self) -> int:
        """Dynamic shared memory in bytes."""
        return self._shared

    @property
    def cluster(self) -> tuple[int, int, int] | None:
        return self._cluster

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.gdimx, self.gdimy, self.gdimz

    @property
    def block(self) -> tuple[int, int, int]:
        return self.bdimx, self.bdimy, self.bdimz

    @property
    def extents(self) -> tuple[int, ...]:
        """The six extents as set, -1 where one is not."""
        return tuple(self._extents)

    def set_extent(self, position: int, n: int) -> None:
        """Set one of the six extents, in the order of the constructor."""
        self._extents[position] = _checked(_NAMES[position], n)

    def launch(self) -> Launch:
        """The sizes to launch, unset extents being 1."""
        return Launch(self.grid, self.block, self._shared, self._cluster)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LaunchParams):
            return NotImplemented
        return (self.extents, self._shared, self._cluster) == (other.extents, other._shared, other._cluster)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        extents = ", ".join(map(str, self._extents)) if any(n != UNSET for n in self._extents) else ""
        more = [f"shared={self._shared}"] if self._shared else []
        more += [f"cluster={self._cluster}"] if self._cluster else []
        return f"LaunchParams({', '.join([extents, *more] if extents else more)})"

    gdimx = _Extent(0, "Blocks along x.")
    gdimy = _Extent(1, "Blocks along y.")
    gdimz = _Extent(2, "Blocks along z.")
    bdimx = _Extent(3, "Threads of a block along x.")
    bdimy = _Extent(4, "Threads of a block along y.")
    bdimz = _Extent(5, "Threads of a block along z.")
