"""Binaries that wait for the launches before them first, and those that do not."""

from __future__ import annotations

import struct

import pytest

from fuser.runtime import nvrtc
from fuser.runtime.machine_code import why_not_first

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
ARCHS = ("sm_90a", "sm_100a", "sm_120a")
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")


def binary(body: str, arch: str = "sm_90a") -> bytes:
    text = (
        f'extern "C" __global__ void k(float* x, float* y, int n) {{ int i = blockIdx.x * 256 + threadIdx.x; {body} }}'
    )
    made = nvrtc.compile_to_cubin(text, ["k"], arch, ())
    assert made.cubin is not None
    return made.cubin


def image(*words: int, name: str = ".text.k") -> bytes:
    """An ELF file of two sections: names, and instructions of these first words."""
    names = b"\0.shstrtab\0" + name.encode() + b"\0"
    code = b"".join(struct.pack("<QQ", word, 0) for word in words)
    table = 64 + len(names) + len(code)
    header = bytearray(64)
    struct.pack_into("<Q", header, 40, table)
    struct.pack_into("<HHH", header, 58, 64, 2, 0)
    section = struct.Struct("<IIQQQQIIQQ")
    sections = section.pack(1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    sections += section.pack(11, 1, 0, 0, 64 + len(names), len(code), 0, 0, 1, 0)
    return bytes(header) + names + code + sections


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_binaries_of_nvrtc(arch: str) -> None:
    work = "if (i < n) y[i] = x[i] + 1.0f;"
    assert why_not_first(binary(WAIT + work, arch), "k") is None
    for body in (work, "", "y[i] = 1.0f;" + WAIT, "float f = x[i];" + WAIT + "y[i] = f;"):
        assert why_not_first(binary(body, arch), "k") is not None, body
    # Some threads pass it by.
    assert why_not_first(binary(f"if (x[i] > 0.0f) {{ {WAIT} }} {work}", arch), "k") is not None
    assert why_not_first(binary(f"if (i < n) {{ {WAIT} }} {work}", arch), "k") is not None


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_a_read_that_ptxas_moves_ahead(arch: str) -> None:
    """What stands behind the wait in the text is in front of it in the binary: a barrier makes room for that."""
    shared = f"__shared__ float s[256]; s[threadIdx.x] = y[i]; __syncthreads(); {WAIT} y[i] = s[255 - threadIdx.x] + "
    assert "before its wait" in (why_not_first(binary(shared + "__ldg(x + i);", arch), "k") or "")


@needs_nvrtc
def test_other_entries_and_files() -> None:
    made = binary(WAIT)
    assert why_not_first(made, "other") == "its machine code has no other"
    for data in (b"", b".version 8.0\n.target sm_90\n" * 10, made[:100], made[: len(made) // 2]):
        assert why_not_first(data, "k") == "its machine code has no k"


MOV, WAITS, LOAD, TEST, EXIT = 0x7202, 0x782E, 0x7981, 0x720C, 0x794D


def test_opcodes() -> None:
    assert why_not_first(image(MOV, TEST, WAITS, LOAD, EXIT), "k") is None
    assert "opcode 0x981" in (why_not_first(image(MOV, LOAD, WAITS), "k") or "")
    assert "opcode 0x94d" in (why_not_first(image(MOV, EXIT, WAITS), "k") or "")
    # @P0 ACQBULK
    assert "not all of its threads" in (why_not_first(image(MOV, 0x082E), "k") or "")
    assert "does not wait" in (why_not_first(image(MOV, MOV), "k") or "")
    assert "does not wait" in (why_not_first(image(), "k") or "")
    assert "has no k" in (why_not_first(image(WAITS, name=".text.k2"), "k") or "")
