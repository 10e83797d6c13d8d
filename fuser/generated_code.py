"""Code objects of texts that the package generates: a text that comes again is not compiled again.

Texts name what they work on by position (`p0`, `s3`, `n1007`), and are run in a space that holds it: kernels, launch plans and
index functions that differ in nothing else have the same text.
"""

from __future__ import annotations

from types import CodeType

from fuser import locks

# The table is dropped when the texts in it are this long together: one that has all turns of a loop in it can have a megabyte.
_MAX_CHARACTERS = 1 << 22
_codes: dict[tuple[str, str], CodeType] = {}
_characters = 0
_lock = locks.lock()


def code_of(text: str, name: str) -> CodeType:
    """`compile(text, name, "exec")`, once for each text and name."""
    global _characters
    found = _codes.get((text, name))
    if found is None:
        found = compile(text, name, "exec")
        with _lock:
            _characters += len(text)
            if _characters > _MAX_CHARACTERS:
                _codes.clear()
                _characters = len(text)
            _codes[text, name] = found
    return found
