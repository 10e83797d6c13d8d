"""Kernels of the benchmark's cases as ptxas sees them: registers, spills, shared memory. Needs NVRTC, no GPU.

    python3 -m benchmarks.resources                     the public cases, for an H200
    python3 -m benchmarks.resources --sweep --bad       of the sweep's shapes, those that spill or have a stack frame
    python3 -m benchmarks.resources --device sm_80

The exit code is 1 if a kernel spills or has a stack frame, or a case does not compile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from benchmarks.sweep_cases import sweep_cases
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
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.resources", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--sweep", action="store_true", help="the shapes of the sweep instead of the public cases")
    parser.add_argument("--seed", type=int, default=0, help="of the sweep's list")
    parser.add_argument("--bad", action="store_true", help="print only kernels that spill or have a stack frame")
    parser.add_argument("--device", default="H200", help="a preset of DeviceInfo")
    asked = parser.parse_args(arguments)
    info = DeviceInfo.preset(asked.device)
    cases = sweep_cases(asked.seed) if asked.sweep else public_cases()
    cases = [c for c in cases if not asked.case or any(p in c.name for p in asked.case)]
    bad = 0
    print(HEADER)
    for case in cases:
        lines, is_bad = lines_of(case, info)
        bad += is_bad
        if is_bad or not asked.bad:
            print("\n".join(lines), flush=True)
    print(f"{len(cases)} cases, {bad} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
