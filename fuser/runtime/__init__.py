"""Devices, NVRTC, compiled kernels, variants, raw kernels, argument packing. Knows nothing of host programs or scheduling."""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
