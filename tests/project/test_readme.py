"""README's programs run, one after another as a reader would type them, and print what the page says they print."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_hashes(text: str) -> str:
    """Kernel names end in a hash of their source, which any change of generated text changes; the page shows none."""
    return re.sub(r"(fuser_kernel)_([0-9a-f]{8}|<hash>)", r"\1", text).rstrip()


def test_programs_print_what_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSER_DEVICE", "simulator")
    namespace: dict[str, object] = {}
    blocks = BLOCK.findall(README.read_text(encoding="utf-8"))
    programs = 0
    for (language, program), (next_language, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if language != "python":
            continue
        assert next_language == "text", f"no output follows the program that begins {program[:40]!r}"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, str(README), "exec"), namespace)
        assert without_hashes(printed.getvalue()) == without_hashes(expected)
        programs += 1
    assert programs == 6
