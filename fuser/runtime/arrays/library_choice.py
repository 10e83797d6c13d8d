"""Which library computes a library op. It follows from whose arrays a program runs on:

simulator                  NumPy
tensors of torch           torch
other arrays on a GPU      CuPy; torch where CuPy is not installed and the program has torch already
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

from fuser.errors import LaunchError
from fuser.runtime.devices.device import Device


def library_for(op: str, kind: str, device: Device) -> str:
    """The library that computes `op` for arrays of a kind.

    Raises LaunchError, naming what to install, where there is none.
    """
    if device.kind != "cuda":
        return "numpy"
    if kind == "torch":
        return "torch"
    if _is_installed("cupy"):
        return "cupy"
    if "torch" in sys.modules:
        return "torch"
    raise LaunchError(
        f"{op}() is computed by a library, and none is installed that takes arrays of {kind} on a GPU: install CuPy, "
        "pip install 'fuser[cupy]', or hand in tensors of torch, pip install 'fuser[torch]'"
    )


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None
