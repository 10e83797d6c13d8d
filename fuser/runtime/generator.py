"""Where the random numbers of an execution start: the state of a generator, (seed, offset).

Callers of torch on a GPU share the generator of torch's device (`torch.manual_seed` sets it); all others share the project's
own, which `manual_seed` sets. Offsets given out count calls of Philox. torch counts 32-bit words, four per call.
"""

from __future__ import annotations

import threading

from fuser import locks
from fuser.errors import InputTypeError
from fuser.runtime.array_view import ArrayView
from fuser.runtime.arrays.frameworks import framework_for
from fuser.runtime.devices.device import Device
from fuser.tracebacks import short_traceback

DEFAULT_SEED = 0
"""Seed of the project's own generator before `manual_seed`."""

_lock = locks.lock()
_drawn = threading.local()
_seed = DEFAULT_SEED
_offset = 0


@short_traceback
def manual_seed(seed: int) -> None:
    """Start the project's own generator anew from `seed`, any integer of 64 bits.

    The i-th execution after that (from 0) of a fusion with one random op draws what `rng_seed=seed, rng_offset=i` gives.
    Callers of torch seed with `torch.manual_seed`. Raises InputTypeError for what is no such integer.
    """
    global _seed, _offset
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
        raise InputTypeError(f"manual_seed takes an integer of 64 bits, got {seed!r}")
    with _lock:
        _seed, _offset = _signed(seed), 0


def draw_state(first: ArrayView | None, device: Device, count: int) -> tuple[int, int]:
    """(seed, offset) for an execution with `count` random ops, and advance the generator past them.

    `first` is the first tensor input, None if there is none. The j-th op takes offset + j.
    """
    global _offset
    if device.kind == "cuda" and framework_for(first, device).kind == "torch":
        from fuser.runtime.arrays.torch_arrays import advance_generator

        with _lock:
            seed, words = advance_generator(device.index, 4 * count)
        state = _signed(seed), words // 4
    else:
        with _lock:
            state = _seed, _offset
            _offset = _signed(_offset + count)
    _drawn.state = state
    return state


def last_draw() -> tuple[int, int] | None:
    """What `draw_state` gave this thread last."""
    return getattr(_drawn, "state", None)


def _signed(value: int) -> int:
    """The signed integer with the same 64 bits."""
    return (value + 2**63) % 2**64 - 2**63
