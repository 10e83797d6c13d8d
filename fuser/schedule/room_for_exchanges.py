"""Bytes of shared memory that schedules leave beside the data that a block keeps there, for what its threads exchange.

Schedules choose before buffers are laid out, so these are bounds; a launch that needs more than a block may have is refused by
the device, and one that needs a little more than is counted here may have a block less on a processor.
"""

from __future__ import annotations

DRIVER = 1024
"""What the driver takes for itself of a processor's shared memory, for each block on it; no part of what a block may have."""

EXCHANGES = 1024
"""What the threads of rows join: values of each warp and of each block of a cluster, or of a bundle of rows. So many bytes
of small buffers lie side by side (`PLENTY` in lowering/allocate_shared.py). The table of powers that exponentials of Doubles
read, 512 bytes, is among them (codegen/exponentials.py): beside it each of 32 warps at most leaves a maximum and a sum."""

BESIDE_ROW = EXCHANGES + DRIVER
"""Beside a row, or part of one, that lies in shared memory."""

BESIDE_COLUMNS = 8 * 1024
"""Beside rows of gradients over all blocks of the grid: statistics of sixteen rows at once, of each warp."""

OF_COLUMN_THREAD = 48
"""For each thread of blocks that share columns: its part of the statistics of those, about, at most."""
