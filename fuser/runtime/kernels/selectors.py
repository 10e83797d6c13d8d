"""Selectors: a number in device memory, and which of several bodies it asks for.

    of a Switch     body `bodies[value]` for a value from 0 up to their number, else `default`, which is told as an error
    of an If        body `bodies[0]` for every value but 0, `bodies[1]` for 0; no value is out of range

Whoever runs bodies asks here: the host that has read the value, and the kernel that sets a conditional node
(`cuda_switches.py`), which does the same in its own words.
"""

from __future__ import annotations

from fuser.ir.ops.dtypes import DataType
from fuser.records import record

NO_BODY = -1
"""The number of a body that does nothing, and is not there."""


@record
class Selector:
    """What a value on the device decides.

    text          whose it is, for messages
    dtype         of the value: Int, Int32, UInt64, Bool
    bodies        of each case the number of the body that runs, NO_BODY for none; several cases may share one
    default       the same for all other values
    is_condition  whether it is a condition, of two cases
    """

    text: str
    dtype: DataType
    bodies: tuple[int, ...]
    default: int
    is_condition: bool = False

    def case_of(self, value: int) -> int | None:
        """The number of the case that a value asks for; None for one out of range."""
        if self.is_condition:
            return 0 if value else 1
        return value if 0 <= value < len(self.bodies) else None

    def body_of(self, value: int) -> int:
        """The number of the body that runs."""
        case = self.case_of(value)
        return self.default if case is None else self.bodies[case]

    def complaint(self, value: int) -> str:
        """What is told of a value out of range."""
        cases = f"are cases 0 to {len(self.bodies) - 1}" if len(self.bodies) > 1 else "is only case 0"
        return (
            f"the selector of {self.text} was {value} on the device, and there {cases}: its default was run instead. "
            "Let what writes the selector keep it in range"
        )
