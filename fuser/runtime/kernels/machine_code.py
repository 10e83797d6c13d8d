"""What a binary itself says: whether it waits for the launches before it ahead of all that it does with memory.

An instruction has 16 bytes from compute capability 7.0 on; the low 12 bits of the first word are its opcode, the next 4 its
predicate. What nvdisasm 13 names so, in kernels of this project for sm_90a, sm_100a and sm_120a: 0x82e is ACQBULK, which PTX
calls griddepcontrol.wait. Of 9 bits of an opcode (the others say what kind its operands are), those below 0x114 compute in
registers, from 0x100 on in the unit for conversions, roots and the like. Exceptions are LDSM and STSM (0x03b, 0x044), which
move matrices within the shared memory of a block, and PREEXIT (0x02d, griddepcontrol.launch_dependents), after which the next
kernel still waits for this one's end. Memory, barriers and branches are from 0x114 on.
"""

from __future__ import annotations

import struct

_WAIT = 0x82E
_COMPUTES_BELOW = 0x114
# Of the others NOP, S2R, BSSY, LDC, LDCU, ULDC, S2UR, which read constants and special registers, or nothing.
_HARMLESS = frozenset({0x918, 0x919, 0x945, 0xB82, 0x7AC, 0xAB9, 0x9C3})
_ALWAYS = 0x7
_SECTION = struct.Struct("<IIQQQQIIQQ")


def why_not_first(cubin: bytes, entry: str) -> str | None:
    """What keeps a binary from starting while the launches before it end, in a clause; None if it waits for them first."""
    text = _section(cubin, f".text.{entry}")
    if text is None:
        return f"its machine code has no {entry}"
    for at in range(0, len(text) - 15, 16):
        (word,) = struct.unpack_from("<Q", text, at)
        opcode, predicate = word & 0xFFF, word >> 12 & 0xF
        if opcode == _WAIT:
            return None if predicate == _ALWAYS else "not all of its threads wait for the launches before"
        if opcode & 0x1FF >= _COMPUTES_BELOW and opcode not in _HARMLESS:
            return f"an instruction of opcode {opcode:#x} stands before its wait for the launches before"
    return "its machine code does not wait for the launches before"


def _section(elf: bytes, name: str) -> bytes | None:
    """The bytes of a section of a 64-bit ELF file; None if it has none of that name."""
    try:
        (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HHH", elf, 58)
        sections = [_SECTION.unpack_from(elf, table + size * k) for k in range(count)]
        start = sections[names][4]
        for section in sections:
            begin = start + section[0]
            if elf[begin : elf.index(b"\0", begin)] == name.encode():
                return elf[section[4] : section[4] + section[5]]
    except (struct.error, IndexError, ValueError):
        pass  # it is no such file
    return None
