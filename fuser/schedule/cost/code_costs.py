"""What generated code takes, in instructions and cycles: counts that mappings of all kinds share.

They were fitted to measured kernels of persistent rows on an H200 (`docs/decisions/0022-one-estimate-and-a-search.md`); the
device says how long an instruction or a cycle is.
"""

from __future__ import annotations

from fuser.ir.device_info import DeviceInfo

OPERATION = 0.32
"""Instructions for each that `op_instructions` counts: it counts the longest way through an op."""
ACCESS = 7.9
"""Instructions of an access to an input or output: its address, its test, conversions of the values."""
JOIN = 2.9
"""Instructions of each step of an exchange in which lanes combine their partial results."""
ROW = 14.0
"""Instructions for a row, or the result of a reduction, besides those of values that it has one of."""
LOOKUP = 0.64
"""Cycles of the first-level cache for a line of an access of a warp."""
MISSED = 0.5
"""Of what a block reads again, or another block of its SM has read, the part that is no longer in the L1 cache."""
DEPENDENT = 2.0
"""Cycles from an instruction of a thread to the next that needs its result, of those for an element."""
LOADED = 31.0
"""Cycles that each 16 bytes of a thread's loads take to come, one behind the other."""
WHOLE_ROW = 120.0
"""Cycles from what all threads of a row have told to what each of them goes on with."""
STATISTICS_STEP = 34.0
"""Cycles of each step in which partial results are joined: those of means and sums of squares have quotients."""
WARP_JOINS = 7.1
"""Cycles that each warp of a block adds to an exchange."""
BLOCK_EXCHANGE = 0.25
"""What an exchange of a block takes, of the sum of the latencies of its steps: they overlap."""


def operations_of(count: int, device: DeviceInfo, *, is_double: bool) -> float:
    """Operations as many as an SM has lanes for: those on Doubles take more turns."""
    return count * (device.rates.fp32 / device.rates.fp64 if is_double else 1.0)
