"""Which fusion is active: the one that inputs, and ops without operands of a fusion, belong to.

`fuser.frontend.fusion_handle.FusionGuard` makes a fusion the active one.
"""

from __future__ import annotations

from contextvars import ContextVar

from fuser.errors import DefinitionRuntimeError
from fuser.frontend.handles import Owner
from fuser.source_location import caller_location

# (id of the guard, fusion), innermost last. The guard itself is not held: its collection ends it.
_active: ContextVar[tuple[tuple[int, Owner], ...]] = ContextVar("fuser_active_fusions", default=())


def active_fusion() -> Owner | None:
    """The fusion that ops without operands of one belong to."""
    entries = _active.get()
    return entries[-1][1] if entries else None


def require_active_fusion(what: str) -> Owner:
    """The active fusion. Raises DefinitionRuntimeError naming `what` if there is none."""
    found = active_fusion()
    if found is None:
        raise DefinitionRuntimeError(
            f"{what}: there is no active fusion; call it inside `with FusionDefinition() as fd:` or under a FusionGuard, in "
            "the thread that entered it",
            location=caller_location(),
        )
    return found


def activate(guard: int, fusion: Owner) -> None:
    """Make `fusion` the active one until `deactivate(guard)`; `guard` is the id of the object that stands for that time."""
    _active.set((*_active.get(), (guard, fusion)))


def deactivate(guard: int) -> None:
    """End what `activate` began under this id. Does nothing if it has ended."""
    _active.set(tuple(entry for entry in _active.get() if entry[0] != guard))
