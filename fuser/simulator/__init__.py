"""Simulator: a device made of NumPy that runs kernel IR and reports races, stray accesses and unwritten values.

A kernel becomes a Python function that runs waves of blocks in lock step between barriers (compile.py, wave.py,
run_kernel.py). Every unit of shared and global memory has a shadow: who wrote it last, and who has read it since. Two
accesses by different threads, one of them a write, are a race unless a barrier, or a fence with an atomic, orders them,
whatever happened in that run (shadow.py has the rules, communication.py those between blocks). An asynchronous copy
reads its source until it is waited for (async_copies.py).

Also reported: accesses out of bounds or misaligned, reads of unwritten memory, barriers under divergent control flow,
deadlocks, more waiting blocks than a device holds, semaphores that are not zero at the end (errors.py has the class).
Commands of a recorded graph run in a random order that its edges allow, so that a missing edge is found (device.py).
Library calls are NumPy's (library_calls.py).

The simulator runs the verified kernel IR behind the last lowering pass, from which the CUDA text is generated:
collectives are expanded by then. Raw CUDA source has no kernel IR and is refused with NoDeviceError.
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
