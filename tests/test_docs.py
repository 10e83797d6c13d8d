"""What the pages for people name must exist: files, make targets, options. A page that lags behind fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fuser import options

ROOT = Path(__file__).parent.parent
PAGES = [
    path
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md")
    for path in sorted(ROOT.glob(pattern))
    if path.name != "ARCHITECTURE.md"  # has a test of its own
]
PLACES = (ROOT, ROOT / "fuser", ROOT / "tests")

# -D macros of generated text, not options
MACROS = {"FUSER_MAX_THREADS", "FUSER_MIN_BLOCKS"}


def named(page: Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    names = named(page, r"`([\w./-]+/[\w.-]+\.(?:py|md|toml))`")
    assert sorted(name for name in names if not any((place / name).exists() for place in PLACES)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named(page, r"`make ([a-z-]+)") <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_options_exist(page: Path) -> None:
    assert named(page, r"\b(FUSER_[A-Z_]+)\b") <= {row.env for row in options.OPTIONS} | MACROS
