"""Kernels of the benchmark's cases as ptxas sees them: registers, spills, shared memory. Needs NVRTC, no GPU.

    python3 -m benchmarks.resources                     the public cases, for an H200
    python3 -m benchmarks.resources --sweep --bad       of the sweep's shapes, those that spill or have a stack frame
    python3 -m benchmarks.resources --device sm_80

The exit code is 1 if a kernel spills or has a stack frame, or a case does not compile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks.asked_cases import asked_cases
from benchmarks.case import Case
from benchmarks.compile_case import compile_case
from fuser.errors import FuserError, NotSupportedError
from fuser.ir.device_info import DeviceInfo

HEADER = f"{'case':48s} {'kernel':>6s} {'regs':>5s} {'spill':>6s} {'stack':>6s} {'shared':>7s} {'block':>6s}"


def lines_of(case: Case, info: DeviceInfo) -> tuple[list[str], bool]:
    """A line for each kernel, in order of launch, and whether any is bad."""
    try:
        launches = compile_case(case, info).launches()
    except NotSupportedError as error:
        return [f"{case.name:48s} unsupported: {str(error).splitlines()[0]}"], False
    except FuserError as error:
        return [f"{case.name:48s} {type(error).__name__}: {str(error).splitlines()[0]}"], True
    lines: list[str] = []
    is_bad = False
    for k, launch in enumerate(launches):
        found = launch.kernel.resources
        assert found is not None
        is_bad |= bool(found.spill_bytes or found.stack_bytes)
        lines.append(
            f"{case.name:48s} {k:6d} {found.registers:5d} {found.spill_bytes:6d} {found.stack_bytes:6d} "
            f"{found.static_shared_bytes:7d} {launch.kernel.max_block_size:6d}"
        )
    return lines or [f"{case.name:48s} no kernel"], is_bad


def main(arguments: Sequence[str]) -> int:
    """Compile and print."""
    asked = asked_cases(
        "resources", __doc__, ("--bad", "print only kernels that spill or have a stack frame"), arguments
    )
    bad = 0
    print(HEADER)
    for case in asked.cases:
        lines, is_bad = lines_of(case, asked.info)
        bad += is_bad
        if is_bad or not asked.only_notable:
            print("\n".join(lines), flush=True)
    print(f"{len(asked.cases)} cases, {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
