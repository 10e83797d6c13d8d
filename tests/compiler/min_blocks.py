"""Schedules that ask for several blocks an SM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fuser.compiler import kernel_compiler


def asking_for_four_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every kernel be lowered from a schedule that asks for four blocks a processor."""
    plain = kernel_compiler.lower_fusion

    def lowered(*given: Any, **named: Any) -> Any:
        return replace(plain(*given, **named), min_blocks=4)

    monkeypatch.setattr(kernel_compiler, "lower_fusion", lowered)
