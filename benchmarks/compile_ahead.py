"""Compile what a worker will run, many cases at a time, into the caches that it will read. Nothing is timed.

    python3 -m benchmarks.compile_ahead --set everyday --peers compile --worker < names

A process a core, each with its share of the cases: our kernels go to FUSER_CACHE_DIR, those of torch.compile to
TORCHINDUCTOR_CACHE_DIR and TRITON_CACHE_DIR. What Inductor chooses by measuring is not kept: processes share the GPU here, and
the worker measures for itself. Needs torch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.case import Case, define_fusion
from benchmarks.case_sets import PEERS, SETS
from benchmarks.inputs import torch_inputs
from benchmarks.measure import COMPILE_MODES, compiled, first_line
from benchmarks.supervise import SPOILED, is_spoiled, report, supervise


def compile_ahead(cases: str, names: Sequence[str], peers: str, jobs: int, timeout: float) -> None:
    """Run `jobs` processes until all cases are compiled. One that does not compile is told, and costs nothing else.

    cases, peers   names of `case_sets`
    timeout        seconds for one case
    """

    def run(share: Sequence[str]) -> None:
        for found in supervise("benchmarks.compile_ahead", ["--set", cases, "--peers", peers], share, timeout):
            if why := found.get("lost", found.get("error")):
                print(f"{found['name']}: not compiled ahead: {why}", flush=True)

    shares = [names[k::jobs] for k in range(min(jobs, len(names)))]
    with ThreadPoolExecutor(max(1, len(shares))) as pool:
        list(pool.map(run, shares))


def main(arguments: Sequence[str]) -> int:
    """The worker: names on standard input."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.compile_ahead")
    parser.add_argument("--set", choices=SETS, default="public")
    parser.add_argument("--peers", choices=PEERS, default="all")
    parser.add_argument("--worker", action="store_true", required=True)
    asked = parser.parse_args(arguments)
    by_name = {c.name: c for c in SETS[asked.set]()}
    for name in sys.stdin.read().split():
        error = _compile(by_name[name], PEERS[asked.peers])
        report(name, error=error)
        if error and is_spoiled():
            return SPOILED
    return 0


def _compile(case: Case, peers: Sequence[str]) -> str:
    """Run ours and the compiled peers once; what went wrong, "" for nothing."""
    import torch
    from torch._inductor import config

    # Each process is one of many already.
    config.compile_threads = 1
    config.autotune_local_cache = False
    errors: list[str] = []
    for system in ("ours", *(p for p in peers if p in COMPILE_MODES)):
        try:
            inputs = torch_inputs(case.inputs, 0)
            run = define_fusion(case).execute if system == "ours" else _unpacked(compiled(case, system))
            run(inputs)
            torch.cuda.synchronize()
        except Exception as error:
            errors.append(f"{system}: {type(error).__name__}: {first_line(error)}")
        inputs = run = None
        torch.cuda.empty_cache()
    return "; ".join(errors)


def _unpacked(function: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda inputs: function(*inputs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
