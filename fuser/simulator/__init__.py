"""A NumPy SIMT machine: runs expanded kernel IR and reports races, stray accesses and unwritten values."""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
