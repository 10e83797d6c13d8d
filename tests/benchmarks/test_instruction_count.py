"""Counting instructions: units, moved bytes and the hot part, on listings written here."""

from __future__ import annotations

from benchmarks.instruction_count import Instruction, hot_part, moved_bytes, unit_of


def listing(*opcodes: str) -> list[Instruction]:
    """Instructions 16 bytes apart; `BRA back` jumps to `.L_x_0`."""
    return [
        Instruction(16 * i, text.split()[0], ".L_x_0" if text.endswith("back") else None)
        for i, text in enumerate(opcodes)
    ]


def test_units() -> None:
    units = {
        "FFMA": "fma",
        "IMAD.WIDE": "fma",
        "MUFU.EX2": "quarter",
        "FSETP.GEU.AND": "half",
        "UIADD3": "half",
        "F2FP.BF16.F32.PACK_AB": "half",
        "LDG.E.128": "memory",
        "BSSY": "control",
        "S2R": "other",
    }
    assert {opcode: unit_of(opcode) for opcode in units} == units


def test_moved_bytes() -> None:
    code = listing("LDG.E.128", "LDG.E.128.CONSTANT", "LDG.E.EF.64", "STG.E", "STG.E.U16", "FADD")
    assert moved_bytes(code, "LDG") == 40
    assert moved_bytes(code, "STG") == 6


def test_hot_part_is_the_longest_loop_or_all_up_to_the_last_exit() -> None:
    straight = listing("LDG.E", "EXIT", "FADD", "STG.E", "EXIT", "FMUL", "RET")
    assert [i.opcode for i in hot_part(straight, {})] == ["LDG.E", "EXIT", "FADD", "STG.E", "EXIT"]
    looped = listing("S2R", "LDG.E", "FADD", "STG.E", "BRA back", "EXIT")
    assert [i.opcode for i in hot_part(looped, {".L_x_0": 16})] == ["LDG.E", "FADD", "STG.E", "BRA"]
