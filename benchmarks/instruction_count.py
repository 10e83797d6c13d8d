"""Instructions of the public pointwise kernels per element, by the unit that runs them. Needs no GPU.

    python -m benchmarks.instruction_count [case ...] [--nvdisasm PATH]

What an H200 can issue while it moves an element is the limit shown: 132 SMs of 128 lanes at 1.7 GHz against 4.1 TB/s. An
instruction of the half-rate units (integers, logic, selections) or of the quarter-rate one (ex2, rcp, conversions) also
keeps its own unit busy longer, which the columns show. Machine code is read with NVIDIA's nvdisasm (package
nvidia-cuda-nvdisasm, or a CUDA toolkit); without it PTX is counted, which has fewer instructions than what runs.

Instructions are counted as the text has them: in the longest loop if there is one, else up to the last EXIT, the slow
paths of divisions and roots, which are functions behind it, left out. Elements are counted by the bytes that the same
part stores, or loads where it stores nothing.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from fuser.errors import FuserError
from fuser.runtime.kernels.compiled_kernel import CompiledKernel

LANES_PER_SECOND = 132 * 128 * 1.7e9
BYTES_PER_SECOND = 4.1e12

# First parts of opcodes, by unit; anything else is `other`. The order counts.
UNITS = (
    ("fma", r"FADD|FMUL|FFMA|IMAD|HFMA2|HADD2|HMUL2|FADD32I"),
    ("quarter", r"MUFU|I2F|F2I|F2F|FRND|FCHK|POPC"),
    ("half", r"FSETP|FSEL|FMNMX|ISETP|SEL|LOP3|SHF|PRMT|IADD3|VIADD|LEA|IABS|IMNMX|VIMNMX|F2FP|PLOP3|MOV|R2P|P2R|FSET"),
    ("memory", r"LDG|STG|LDS|STS|LDL|STL|ATOM|RED|LDGSTS|UBLKCP"),
    ("control", r"BRA|BSSY|BSYNC|EXIT|BREAK|CALL|RET|WARPSYNC|BAR|BRX|YIELD"),
)
_ACCESS = re.compile(r"(LDG|STG)\.E(?:\.\w+)*?(?:\.(128|64|U16|U8))?(?:\.[A-Z]\w*)*")
_ACCESS_BYTES = {"128": 16, "64": 8, None: 4, "U16": 2, "U8": 1}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of machine code: its address, opcode with modifiers, and where it jumps."""

    address: int
    opcode: str
    target: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """Instructions of one kernel's hot part, for `elements` elements of one thread."""

    case: str
    units: dict[str, int]
    elements: float
    budget: float
    registers: int
    spill_bytes: int

    def __str__(self) -> str:
        total = sum(self.units.values())
        per_unit = " ".join(f"{name} {n / self.elements:5.2f}" for name, n in self.units.items())
        over = "  OVER" if total / self.elements > self.budget else ""
        return (
            f"{self.case:42} {total / self.elements:6.2f} of {self.budget:5.1f} per element: {per_unit}; "
            f"{self.registers} registers, {self.spill_bytes} spilled{over}"
        )


def find_nvdisasm() -> str | None:
    """The disassembler on the path, of a toolkit, or of a wheel beside this Python."""
    found = shutil.which("nvdisasm")
    if found:
        return found
    folders = [*map(Path, sys.path), Path("/usr/local/cuda/bin")]
    names = (p for folder in folders for p in (folder / "nvidia").glob("*/bin/nvdisasm"))
    return next((str(p) for p in (Path("/usr/local/cuda/bin/nvdisasm"), *names) if p.exists()), None)


def disassemble(cubin: bytes, nvdisasm: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of the first kernel, and the address each label stands for."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([nvdisasm, "-c", file.name], capture_output=True, text=True, check=True).stdout
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            waiting.append(label[1])
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", line):
            address = int(found[1], 16)
            if instructions and address == 0:
                break  # the next function
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            target = re.search(r"`\((\.L_x_\d+)\)", found[3]) if found[2].startswith("BRA") else None
            instructions.append(Instruction(address, found[2], target[1] if target else None))
    return instructions, labels


def hot_part(instructions: Sequence[Instruction], labels: dict[str, int]) -> list[Instruction]:
    """The longest loop, else everything up to the last EXIT."""
    longest: list[Instruction] = []
    for jump in instructions:
        start = labels.get(jump.target or "", jump.address)
        if start < jump.address:
            loop = [i for i in instructions if start <= i.address <= jump.address]
            longest = max(longest, loop, key=len)
    if longest:
        return longest
    end = max(i.address for i in instructions if i.opcode == "EXIT")
    return [i for i in instructions if i.address <= end]


def unit_of(opcode: str) -> str:
    """The name of the unit that runs an opcode."""
    first = opcode.split(".")[0].removeprefix("U")
    return next((name for name, pattern in UNITS if re.fullmatch(pattern, first)), "other")


def moved_bytes(instructions: Sequence[Instruction], name: str) -> int:
    """Bytes that one thread loads (LDG) or stores (STG)."""
    found = (_ACCESS.fullmatch(i.opcode) for i in instructions)
    return sum(_ACCESS_BYTES[m[2]] for m in found if m and m[1] == name)


def count_kernel(case: Case, kernel: CompiledKernel, nvdisasm: str) -> Count | None:
    """The count of one kernel; None if its hot part touches no memory."""
    assert kernel.cubin is not None
    assert kernel.resources is not None
    instructions, labels = disassemble(kernel.cubin, nvdisasm)
    hot = [i for i in hot_part(instructions, labels) if not i.opcode.startswith("NOP")]
    itemsize = case.inputs[0].dtype.itemsize
    elements = (moved_bytes(hot, "STG") or moved_bytes(hot, "LDG")) / itemsize
    if not elements:
        return None
    units = collections.Counter(unit_of(i.opcode) for i in hot)
    budget = LANES_PER_SECOND / BYTES_PER_SECOND * case.nbytes / case.inputs[0].nbytes * itemsize
    named = {name: units[name] for name in (*(n for n, _ in UNITS), "other")}
    return Count(case.name, named, elements, budget, kernel.resources.registers, kernel.resources.spill_bytes)


def count_ptx(case: Case, kernel: CompiledKernel) -> str:
    """One line about the PTX of a kernel."""
    from fuser.runtime.kernels.nvrtc import compile_to_ptx

    flags = (*kernel.options, f"-DFUSER_MAX_THREADS={kernel.max_block_size or 1024}")
    text = compile_to_ptx(kernel.source, (kernel.entry,), kernel.arch, flags).cubin.decode("utf-8", "replace")
    body = text[text.index("{", text.index(".entry")) :]
    lines = [line for line in body.splitlines() if re.match(r"\s+(?:@!?%p\d+\s+)?[a-z][\w.:]+\s.*;", line)]
    return f"{case.name:42} {len(lines):6} instructions of PTX in the text"


def main(arguments: list[str]) -> int:
    """Print a line per kernel."""
    parser = argparse.ArgumentParser(prog="benchmarks.instruction_count", description="Instructions per element.")
    parser.add_argument("cases", nargs="*", help="names of public cases, or the beginnings of them; all if none")
    parser.add_argument("--nvdisasm", default=find_nvdisasm(), help="NVIDIA's disassembler")
    asked = parser.parse_args(arguments)
    for case in public_cases():
        if asked.cases and not any(case.name.startswith(name) for name in asked.cases):
            continue
        try:
            program = compile_case(case)
        except FuserError as error:
            print(f"{case.name:42} {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        for kernel in program.kernels.values():
            if asked.nvdisasm is None:
                print(count_ptx(case, kernel))
            else:
                print(count_kernel(case, kernel, asked.nvdisasm) or f"{case.name:42} touches no memory in its loop")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
