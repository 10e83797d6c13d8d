"""Code of generated texts is made once, and what is kept of it is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from fuser import generated_code
from fuser.generated_code import code_of


def run(text: str, **scope: Any) -> Any:
    exec(code_of(text, "<a text>"), scope)
    return scope["f"]


def test_one_text_is_one_code_object_in_any_space() -> None:
    text = "def f(): return n"
    one, two = run(text, n=1), run(text, n=2)
    assert one.__code__ is two.__code__
    assert (one(), two()) == (1, 2)


def test_code_has_the_name_that_tracebacks_show() -> None:
    assert code_of("n = 1", "<one>") is not code_of("n = 1", "<two>")
    assert code_of("n = 1", "<two>").co_filename == "<two>"


def test_texts_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_code, "_MAX_CHARACTERS", 1000)
    monkeypatch.setattr(generated_code, "_codes", {})
    monkeypatch.setattr(generated_code, "_characters", 0)
    for n in range(300):
        assert run(f"def f(): return {n}")() == n
        assert sum(len(text) for text, _ in generated_code._codes) <= 1000
    code_of(" " * 2000, "<long>")
    assert len(generated_code._codes) == 1
