"""ELF files of a few instructions."""

from __future__ import annotations

import struct


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


MOV, WAITS, LOAD, TEST, EXIT = 0x7202, 0x782E, 0x7981, 0x720C, 0x794D
