"""What programs that look at cases without a GPU are asked for: which cases, and for which device."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.case import Case
from benchmarks.case_sets import SETS
from benchmarks.sweep_cases import sweep_cases
from fuser.errors import FuserError
from fuser.ir.device_info import DeviceInfo


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer: cases in order, the device, and whether only what is worth a look is to be printed."""

    cases: list[Case]
    info: DeviceInfo
    only_notable: bool


def asked_cases(module: str, doc: str | None, notable: tuple[str, str], arguments: Sequence[str]) -> Asked:
    """Parse the arguments of `python3 -m benchmarks.<module>`, whose docstring is `doc`.

    `notable`: the option that prints only what is worth a look, and its help. Leaves the program with a message where an
    argument is wrong, also where no case has the name.
    """
    parser = argparse.ArgumentParser(prog=f"python3 -m benchmarks.{module}", description=(doc or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--set", choices=SETS, default="public", help="which cases")
    parser.add_argument("--sweep", action="store_true", help="the shapes of the sweep instead")
    parser.add_argument("--seed", type=int, default=0, help="of the sweep's list")
    parser.add_argument(notable[0], action="store_true", dest="notable", help=notable[1])
    parser.add_argument("--device", default="H200", help="a preset of DeviceInfo")
    asked = parser.parse_args(arguments)
    cases = sweep_cases(asked.seed) if asked.sweep else SETS[asked.set]()
    cases = [c for c in cases if not asked.case or any(p in c.name for p in asked.case)]
    if not cases:
        parser.error(f"no case has {' or '.join(asked.case)} in its name")
    try:
        info = DeviceInfo.preset(asked.device)
    except FuserError as error:
        parser.error(str(error).splitlines()[0])
    return Asked(cases, info, asked.notable)
