"""What early launches gain: chains of kernels, each on what the one before has made, with FUSER_PDL on and off.

    python3 -m benchmarks.chain_time                needs a GPU of compute capability 9.0 or later, and torch
    python3 -m benchmarks.chain_time --only norms   one kind of them

Ten kernels of one kind on a matrix, by its sizes: RMS norms of BFloat16 rows, a * x + b of Floats, softmax of long rows (blocks
of a cluster share one), sums over rows that the next kernel subtracts, transposes. Times are microseconds of a whole chain on
the GPU, launched kernel by kernel behind a kernel that sleeps (stream) and as a CUDA graph; the two settings take turns, and
their results are compared bit by bit. `early` is the number of launches that started early.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from benchmarks.timing import Stopwatch
from fuser import DataType, FusionDefinition
from fuser.host_ir.program import HostProgram

LENGTH = 10
ROUNDS = 7
WAYS = ("stream", "graph")


def norms() -> FusionDefinition:
    """RMS norms of BFloat16 rows. Inputs: rows, then the weights of each."""
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.BFloat16, contiguity=True)
        for w in [fd.define_tensor([-1], dtype=DataType.BFloat16, contiguity=True) for _ in range(LENGTH)]:
            f = fd.ops.cast(x, DataType.Float)
            y = f * fd.ops.rsqrt((f * f).mean(1, keepdim=True) + 1e-6)
            x = fd.ops.segment_set(fd.ops.cast(y * fd.ops.broadcast(w, [True, False]), DataType.BFloat16))
        fd.add_output(x)
    return fd


def _chain(step: Callable[[FusionDefinition, Any], Any]) -> FusionDefinition:
    with FusionDefinition() as fd:
        x = fd.define_tensor([-1, -1], dtype=DataType.Float, contiguity=True)
        for _ in range(LENGTH):
            x = fd.ops.segment_set(step(fd, x))
        fd.add_output(x)
    return fd


def sums() -> FusionDefinition:
    """a * x + b of Floats."""
    return _chain(lambda fd, x: x * 0.99 + 0.25)


def softmaxes() -> FusionDefinition:
    """Softmax of the rows, times 1000, so that the next one has something to tell apart."""

    def step(fd: FusionDefinition, x: Any) -> Any:
        e = fd.ops.exp(x - x.max(1, keepdim=True))
        return e / e.sum(1, keepdim=True) * 1000.0

    return _chain(step)


def columns() -> FusionDefinition:
    """Rows without the mean of their columns: a kernel for the means, and one for what is left."""

    def step(fd: FusionDefinition, x: Any) -> Any:
        return x * 1.01 - fd.ops.segment_set(x.mean(0, keepdim=True))

    return _chain(step)


def transposes() -> FusionDefinition:
    """Transposes, times a half."""
    return _chain(lambda fd, x: fd.ops.permute(x, [1, 0]) * 0.5)


KINDS: dict[str, tuple[Callable[[], FusionDefinition], Sequence[tuple[int, int]]]] = {
    "norms": (norms, ((1, 1024), (132, 1024), (1056, 1024), (4224, 1024), (16896, 1024), (132, 8192), (4224, 8192))),
    "sums": (sums, ((4, 1024), (64, 1024), (256, 1024), (1024, 1024), (4096, 1024), (16384, 1024))),
    "softmaxes": (softmaxes, ((16, 4096), (132, 16384), (16, 131072), (132, 131072), (4096, 4096))),
    "columns": (columns, ((132, 1024), (1024, 1024), (16384, 1024))),
    "transposes": (transposes, ((128, 128), (1024, 1024), (4096, 4096))),
}


def early(setting: str) -> AbstractContextManager[Any]:
    """With early launches on or off: programs are bound under it."""
    return patch.dict(os.environ, {"FUSER_PDL": setting})


def ways(program: HostProgram, inputs: Sequence[Any]) -> tuple[dict[str, Callable[[], Any]], dict[str, int]]:
    """What runs the program on these inputs, bound as the setting of the moment says, and the counters of a single run."""
    captured = program.capture(inputs)
    captured.replay()
    own = HostProgram(program.inputs, program.outputs, program.instructions)
    own.run(inputs)
    return {"stream": lambda: own.run(inputs)[0], "graph": lambda: captured.replay()[0]}, own.counters()


def inputs_of(kind: str, rows: int, columns: int) -> list[Any]:
    """Random tensors on the GPU."""
    import torch

    x = torch.randn(rows, columns, device="cuda")
    if kind != "norms":
        return [x]
    return [x.bfloat16(), *((torch.rand(columns, device="cuda") + 0.5).bfloat16() for _ in range(LENGTH))]


def compared(watch: Stopwatch, kind: str, rows: int, columns: int) -> tuple[dict[str, tuple[float, float]], int, int]:
    """Of each way the microseconds with early launches and without; how many of how many launches are early."""
    import torch

    inputs = inputs_of(kind, rows, columns)
    program = KINDS[kind][0]().program(inputs)
    with early("on"):
        on, counters = ways(program, inputs)
    with early("off"):
        off, _ = ways(program, inputs)
    found: dict[str, tuple[float, float]] = {}
    for way in WAYS:
        first = off[way]().clone()
        for _ in range(20):
            if not torch.equal(on[way](), first):
                raise SystemExit(f"{kind} {rows}x{columns}: an early launch has changed a result")
        times: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            times.append((watch.measure(on[way]).median, watch.measure(off[way]).median))
        found[way] = statistics.median(t for t, _ in times), statistics.median(t for _, t in times)
    return found, counters["launches_early"], counters["launches"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python3 -m benchmarks.chain_time", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--only", choices=list(KINDS), help="one kind of chain")
    asked = parser.parse_args(arguments)
    from fuser.runtime.driver import device_count

    if not device_count():
        print("benchmarks.chain_time needs a GPU", file=sys.stderr)
        return 2
    watch = Stopwatch(4)
    head = "".join(f"{w:>10s}{'off':>8s}{'ratio':>7s}" for w in WAYS)
    print(f"{'chain':>24s} {'early':>7s}{head}   microseconds")
    for kind, (_, sizes) in KINDS.items():
        for rows, length in sizes if asked.only in (None, kind) else ():
            found, early_ones, launches = compared(watch, kind, rows, length)
            cells = (f"{on:10.1f}{off:8.1f}{on / off:7.3f}" for on, off in found.values())
            print(f"{f'{kind} {rows}x{length}':>24s} {f'{early_ones}/{launches}':>7s}" + "".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
