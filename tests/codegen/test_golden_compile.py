"""Every text of the corpus compiles for every architecture, without spills and without a stack frame.

A stack frame means a register array that is indexed by something the compiler could not turn into a constant; both are
mistakes of the text or of the kernel behind it. The library's accurate sine, cosine and tangent have a frame of up to 40
bytes of their own. FUSER_EXPECT_NVRTC (`12.9`) states which compiler must be in use.
"""

from __future__ import annotations

import re

import pytest

from fuser import options
from fuser.runtime.kernels import nvrtc
from tests.codegen.golden_corpus import corpus_sources, one_program

TRIGONOMETRY = re.compile(r"\b(sin|cos|tan)f?\(")
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def test_expected_compiler() -> None:
    """The compiler that these tests run with is the one they are meant for."""
    expected = options.EXPECT_NVRTC.get()
    assert expected is None or nvrtc.version() == expected, nvrtc.library_path()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_corpus_compiles(arch: str) -> None:
    """One program per architecture: no error, no warning, no spill, no stack."""
    sources = corpus_sources()
    text, entries = one_program(sources)
    result = nvrtc.compile_to_cubin(text, entries, arch, ["-DFUSER_MAX_THREADS=256"])
    assert result.arch == arch
    assert not re.search(r"\bwarning\b", result.log), result.log
    assert set(result.resources) == set(entries)
    for source, entry in zip(sources, entries, strict=True):
        resources = result.resources[entry]
        stack = 40 if TRIGONOMETRY.search(source.text) else 0
        assert resources.spill_bytes == resources.static_shared_bytes == 0, f"{resources}\n{source.text}"
        assert resources.stack_bytes <= stack, f"{resources}\n{source.text}"


@pytest.mark.parametrize(
    ("option", "limit"), [("-DFUSER_MAX_REGISTERS=32", 32), ("-DFUSER_MIN_BLOCKS=2", 128), ("-DFUSER_PLAIN", 255)]
)
def test_bounds_variants(option: str, limit: int) -> None:
    """The same text takes each kind of register limit from `-D` values alone."""
    text, entries = one_program(corpus_sources()[:6])
    result = nvrtc.compile_to_cubin(text, entries, "sm_90a", ["-DFUSER_MAX_THREADS=256", option])
    assert all(result.resources[entry].registers <= limit for entry in entries)
