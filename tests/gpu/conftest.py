"""Memory of the GPU, which all processes of a run share: given back after every test, and much of it used by one at a time.

torch and our own pools keep what they once had. With sixteen processes that is more than a device holds.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fuser.runtime.devices.device import get_device

# JAX would take three quarters of the device with its first array.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Up to this many bytes a process may keep: giving back waits for the device.
_KEPT = 1 << 29


def give_back(kept: int = _KEPT) -> None:
    """Return to the driver what this process holds for later, if that is more than `kept` bytes for some library."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > kept:
        torch.cuda.empty_cache()
    if "fuser.runtime.devices.cuda_device" in sys.modules:
        device: Any = get_device("cuda", 0)
        device.trim(kept)
    cupy = sys.modules.get("cupy")
    if cupy is not None and cupy.get_default_memory_pool().total_bytes() > kept:
        cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture(autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    yield
    give_back()


@pytest.fixture
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run share, and no other run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture
def much_memory(run_folder: Path) -> Iterator[None]:
    """For a test that needs more than about two GB: such tests run one at a time, whatever process they are in."""
    with open(run_folder / "much_memory.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        give_back(0)
