"""Reading what ptxas says about each entry (`--ptxas-options=-v`).

Grammar (one line each; NVRTC 12.9 and 13.0 word them alike, entries come in no particular order)
    log     := line*
    entry   := "ptxas info    : Compiling entry function 'NAME' for 'sm_90a'"
    frame   := "ptxas         .     F bytes stack frame, S bytes spill stores, L bytes spill loads"
    used    := "ptxas info    : Used N registers, used M barriers[, S bytes cumulative stack size][, B bytes smem]
                [, C bytes cmem[i]]*"
Everything else (warnings of the front end, times, `Function properties for NAME` of functions that are not inlined) is
skipped. The `Used N registers` line of the named entry is the only proof that a register limit took effect.
"""

from __future__ import annotations

import re

from fuser.runtime.kernels.compiled_kernel import Resources

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STACK = re.compile(r"(\d+) bytes cumulative stack size")
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CONSTANT = re.compile(r"(\d+)(?:\+\d+)? bytes cmem\[\d+\]")


def clean_log(raw: bytes) -> str:
    """The log as text. A NUL can stand in its middle (before a ptxas error): it becomes a newline, nothing is cut."""
    return raw.rstrip(b"\0").replace(b"\0", b"\n").decode("utf-8", "replace").strip()


def parse_ptxas_log(log: str) -> dict[str, Resources]:
    """Resources of every entry in the log, by (lowered) name. Entries without a `Used N registers` line are left out.

    Spills of a function that was not inlined follow the entry they were found with, and count for it.
    """
    found: dict[str, Resources] = {}
    entry = function = ""
    stack = spill = 0
    used: str | None = None
    for line in log.splitlines():
        if (match := _ENTRY.search(line)) is not None:
            entry = function = match.group(1)
            stack = spill = 0
            used = None
        elif not entry:
            continue
        elif (match := _PROPERTIES.search(line)) is not None:
            function = match.group(1)
            continue
        elif (match := _FRAME.search(line)) is not None:
            frame, stores, loads = (int(n) for n in match.groups())
            stack = frame if function == entry else stack
            spill += max(stores, loads)
        elif _REGISTERS.search(line) is not None:
            used = line
        else:
            continue
        if used is not None:
            found[entry] = _resources(used, stack, spill)
    return found


def _resources(used: str, stack: int, spill: int) -> Resources:
    """From a `Used N registers` line, and the frame and spills seen so far."""
    registers, cumulative, shared = _REGISTERS.search(used), _STACK.search(used), _SHARED.search(used)
    assert registers is not None
    return Resources(
        registers=int(registers.group(1)),
        spill_bytes=spill,
        stack_bytes=max(stack, int(cumulative.group(1)) if cumulative else 0),
        static_shared_bytes=int(shared.group(1)) if shared else 0,
        constant_bytes=sum(int(n) for n in _CONSTANT.findall(used)),
    )
