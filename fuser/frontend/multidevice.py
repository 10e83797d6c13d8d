"""Names of what runs on several GPUs, so that programs that import them can be imported. Using one is an error.

`DeviceMesh` is a class, because callers ask whether a value is one.
"""

from __future__ import annotations

from typing import NoReturn

from fuser.errors import NotSupportedError
from fuser.source_location import caller_location

_REASON = "fusions run on one GPU; run each shard's own definition on its device instead"


class DeviceMesh:
    """The devices over which a tensor is cut. Raises NotSupportedError when made."""

    def __init__(self, devices: object) -> None:
        raise NotSupportedError(f"DeviceMesh() is not supported yet: {_REASON}", location=caller_location())


def execute_with_dtensors(fd: object, in_dtensors: object) -> NoReturn:
    """Run a definition on the shards of DTensors. Raises NotSupportedError."""
    raise NotSupportedError(f"execute_with_dtensors() is not supported yet: {_REASON}", location=caller_location())
