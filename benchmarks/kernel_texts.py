"""What every kernel of the benchmark cases is, as hashes: a change that claims to change no kernel is held against them.

    python3 -m benchmarks.kernel_texts --write before.json             at the commit before the change
    python3 -m benchmarks.kernel_texts --compare before.json           at the change: names the cases that differ, exit code 1
    python3 -m benchmarks.kernel_texts --write before.json --texts before/    keeps the texts, for `diff -r`

The public cases and three lists of the sweep, compiled for a device without one at hand: no GPU, no NVRTC. Per kernel its CUDA
text, its launch plan with the facts it assumes, and the parameters that its scheduler chose; per case the host program.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.case import Case
from benchmarks.cases import public_cases
from benchmarks.compile_case import compile_case
from benchmarks.sweep_cases import sweep_cases
from fuser.compiler.recorder import Recorder
from fuser.errors import FuserError
from fuser.host_ir.instructions.instructions import LaunchKernel
from fuser.ir.device_info import DeviceInfo
from fuser.runtime.kernels.compiled_kernel import CompiledKernel

SEEDS = (0, 2, 4)
Hashes: TypeAlias = dict[str, dict[str, str]]
"""By case, by what was made for it."""


class TextsOfKernels(Recorder):
    """Keeps what a kernel is compiled from and run with: CUDA texts, parameters, the host program."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def stage(self, name: str, text: Callable[[], str]) -> None:
        """Keep it if it is one of these."""
        if name.endswith((".cu", "params.py", "host.py")):
            self.texts[name] = text()


def all_cases(parts: Sequence[str] = ()) -> dict[str, Case]:
    """The cases by name, those with one of the parts in it; all without parts."""
    found = {f"public/{c.name}": c for c in public_cases()}
    for seed in SEEDS:
        found.update({f"sweep{seed}/{c.name}": c for c in sweep_cases(seed)})
    return {name: c for name, c in found.items() if not parts or any(p in name for p in parts)}


def texts_of(case: Case, info: DeviceInfo) -> dict[str, str]:
    """What was made for a case, or the error that it ends in."""
    recorder = TextsOfKernels()
    try:
        program = compile_case(case, info, with_cubin=False, recorder=recorder)
    except FuserError as error:
        return {"error.txt": f"{type(error).__name__}: {error}"}
    launches = [i for i in program.instructions if isinstance(i, LaunchKernel)]
    plans = {f"s{k}.plan.txt": plan_text(launch.kernel) for k, launch in enumerate(launches)}
    return {**recorder.texts, **plans}


def plan_text(kernel: CompiledKernel) -> str:
    """The launch plan, what launch bounds are asked for, and the facts, which have no order of their own."""
    return "\n".join([str(kernel.plan), f"{kernel.min_blocks} blocks", *sorted(map(str, kernel.facts))])


def hash_of(text: str) -> str:
    """Of everything but what a text says of other texts: hashes in the names of kernels."""
    return hashlib.sha256(re.sub(r"_[0-9a-f]{8}\b", "", text).encode()).hexdigest()[:16]


def _made(name: str, info: DeviceInfo, folder: Path | None) -> tuple[str, dict[str, str]]:
    texts = texts_of(all_cases([name])[name], info)
    if folder is not None:
        place = folder / re.sub(r"[^\w./=-]", "_", name)
        place.mkdir(parents=True, exist_ok=True)
        for stage, text in texts.items():
            (place / stage).write_text(text, encoding="utf-8")
    return name, {stage: hash_of(text) for stage, text in texts.items()}


def hashes_of(
    names: Sequence[str], info: DeviceInfo, folder: Path | None = None, processes: int | None = None
) -> Hashes:
    """The hashes of cases, compiled in as many processes as there are cores."""
    work = partial(_made, info=info, folder=folder)
    # A process of its own reads no state of this one: what was compiled before cannot change what is compiled next.
    with multiprocessing.get_context("spawn").Pool(processes or os.cpu_count()) as pool:
        return dict(pool.imap_unordered(work, names, chunksize=4))


def differences(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A line for each case that is not as before: what of it differs."""
    lines: list[str] = []
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            lines.append(f"{name}: only {'after' if name in after else 'before'}")
            continue
        one, other = before[name], after[name]
        differ = [stage for stage in sorted({*one, *other}) if one.get(stage) != other.get(stage)]
        if differ:
            lines.append(f"{name}: {', '.join(differ)}")
    return lines


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.kernel_texts", description=(__doc__ or "").split("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write the hashes")
    what.add_argument("--compare", type=Path, metavar="FILE", help="hold them against those of the file")
    parser.add_argument("--texts", type=Path, metavar="FOLDER", help="write the texts too")
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--device", default="H200", help="a preset of DeviceInfo")
    asked = parser.parse_args(arguments)
    names = list(all_cases(asked.case))
    if not names:
        parser.error(f"no case has {' or '.join(asked.case)} in its name")
    try:
        info = DeviceInfo.preset(asked.device)
    except FuserError as error:
        parser.error(str(error).splitlines()[0])
    before: Hashes | None = json.loads(asked.compare.read_text(encoding="utf-8")) if asked.compare else None
    found = hashes_of(names, info, asked.texts)
    kernels = sum(stage.endswith(".cu") for stages in found.values() for stage in stages)
    if before is None:
        asked.write.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{kernels} kernels of {len(found)} cases")
        return 0
    lines = differences({n: s for n, s in before.items() if n in found or not asked.case}, found)
    print("\n".join([*lines, f"{len(lines)} of {len(found)} cases differ; {kernels} kernels"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
