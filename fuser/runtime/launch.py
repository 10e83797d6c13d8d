"""One launch in numbers: its sizes, and the values of a kernel's parameters."""

from __future__ import annotations

from fuser.records import record


@record
class Launch:
    """Concrete launch sizes; shared memory in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    # Starts when the blocks of the kernel before it on the stream have all said so, instead of when they are done.
    co_resident: bool = False
    # Starts when the blocks of the kernel before it have all ended, and waits within for what they stored.
    early: bool = False
    # Of two launches beside each other: an SM may have blocks of both, as its memory is divided alike for them.
    shares_sms: bool = False

    @property
    def threads(self) -> int:
        """Threads of one block."""
        return self.block[0] * self.block[1] * self.block[2]


ArgumentValue = int | float | complex | bool
