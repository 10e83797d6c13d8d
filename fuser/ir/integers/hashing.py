"""SHA-256 without OpenSSL."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any


@cache
def sha256() -> Any:
    """The hash, without OpenSSL, which `hashlib` loads and which takes longer than many a pass: as `random` takes its own."""
    for module in ("_sha2", "_sha256"):  # from Python 3.12 on, and before
        try:
            return import_module(module).sha256
        except ImportError:
            continue
    return import_module("hashlib").sha256
