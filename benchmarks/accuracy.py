"""Are we as exact as torch eager where inputs are unkind? Norms, softmax, variance, losses and their gradients.

    python3 -m benchmarks.accuracy [--case softmax] [--seed 1] [--out DIR]

Each family runs on inputs with large means, wide ranges, constants, nan and infinities. Our largest error against float64
(in ulps of the output, see `verify.py`) may be two ulps, or twice what torch eager's is on the same input; nan and infinities
have to be where float64 has them, unless eager's are elsewhere, too. Of few results one rounding decides: what fails is drawn
again with other seeds, and the largest errors of both are compared. Double is compared with longdouble, on the host, by all of
its cores. Needs a GPU and torch. The exit code is 1 if a line fails.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any

from benchmarks.case import Case, LongWide, TorchWide, as_tuple, define_fusion, wide_dtype
from benchmarks.environment import missing
from benchmarks.inputs import BF16, F16, F32, torch_inputs
from benchmarks.norm_cases import (
    add_rms_norm,
    batch_norm,
    group_norm,
    layer_norm,
    layer_norm_backward,
    rms_norm,
    softmax,
    softmax_backward,
)
from benchmarks.reduction_cases import cross_entropy, sum_over, var_mean_outer
from benchmarks.verify import largest_error, largest_error_of_double
from fuser.errors import NotSupportedError
from fuser.ir.ops.dtypes import DataType

F64 = DataType.Double
ROWS, COLUMNS = 300, 5003
MOST_THREADS = 32
DRAWN_AGAIN = 7
"""Other seeds for a line that fails."""


@dataclass(frozen=True, slots=True)
class Line:
    """Errors of one family on one kind of input, in ulps; None where it could not run."""

    case: str
    kind: str
    ours: float | None
    eager: float | None
    text: str = ""

    @property
    def is_right(self) -> bool:
        return self.ours is not None and self.eager is not None and self.ours <= max(2.0, 2 * self.eager)

    def __str__(self) -> str:
        ours, eager = ("-" if v is None else f"{v:.2f}" for v in (self.ours, self.eager))
        verdict = "ok" if self.is_right else "FAILS"
        return f"{self.case:40s} {self.kind:22s} {ours:>12s} {eager:>12s}  {verdict} {self.text}".rstrip()


def over_seeds(lines: Sequence[Line]) -> Line:
    """A line for a case and kind under several seeds: the largest errors of each side. One that could not run stays."""
    first = lines[0]
    errors = [(n.ours, n.eager) for n in lines if n.ours is not None and n.eager is not None]
    if len(lines) == 1 or len(errors) < len(lines):
        return next((n for n in lines if n.ours is None or n.eager is None), first)
    ours, eager = (max(side) for side in zip(*errors, strict=True))
    return Line(first.case, first.kind, ours, eager, f"over {len(lines)} seeds")


def cases() -> list[Case]:
    """Every family with statistics, in each dtype; row lengths that no vector divides."""
    found: list[Case] = []
    for dtype in (BF16, F16, F32, F64):
        found += [
            softmax(ROWS, COLUMNS, dtype),
            softmax_backward(ROWS, COLUMNS, dtype),
            layer_norm(ROWS, COLUMNS, dtype),
            rms_norm(ROWS, COLUMNS, dtype),
            add_rms_norm(ROWS, COLUMNS, dtype),
            layer_norm_backward(ROWS, COLUMNS, dtype),
            var_mean_outer(COLUMNS, ROWS, dtype),
            cross_entropy(ROWS, COLUMNS, dtype),
            batch_norm(8, 30, 17, 19, dtype),
            group_norm(8, 30, 17, 19, 5, dtype),
        ]
    # More than fits one block, and fewer than a warp.
    found += [softmax(3, 1_000_003, F32), layer_norm(3, 1_000_003, F32), softmax(500, 7, F32), layer_norm(500, 7, F32)]
    # Other schedules: rows over clusters and groups of blocks, few and many columns, contiguous channels.
    found += [
        softmax(37, 20_011, F32),
        softmax_backward(3, 100_003, F32),
        layer_norm(4, 250_003, F32),
        layer_norm(1, 4096, F32),
        rms_norm(3, 1_000_003, F32),
        add_rms_norm(77, 769, F32),
        layer_norm_backward(37, 20_011, F32),
        layer_norm_backward(2000, 64, F32),
        var_mean_outer(37, 2011, F32),
        cross_entropy(77, 30_011, F32),
        batch_norm(4, 12, 31, 33, F32, last=False),
        batch_norm(2, 64, 56, 57, F16, last=False),
        group_norm(2, 6, 101, 103, 3, F32),
        sum_over(1, 37, 20_011),
        sum_over(0, 20_011, 37),
        sum_over(None, 300, 5003),
    ]
    return found


def _one_of_each(value: float) -> Callable[[Any], Any]:
    """`value` at one place of every seventh row."""

    def put(x: Any) -> Any:
        rows = x.reshape(x.shape[0], -1)
        rows[::7, rows.shape[1] // 3] = value
        return x

    return put


def _scaled_rows(x: Any) -> Any:
    import torch

    scales = torch.logspace(-4, 4, x.shape[0], dtype=torch.float64, device=x.device)
    return (x.double() * scales.reshape(-1, *([1] * (x.dim() - 1)))).to(x.dtype)


def _masked(x: Any) -> Any:
    rows = x.reshape(x.shape[0], -1)
    rows[:, : rows.shape[1] // 2] = float("-inf")
    rows[-1] = float("-inf")
    return x


KINDS: dict[str, Callable[[Any], Any]] = {
    "normal": lambda x: x,
    "mean 1000": lambda x: x + 1000.0,
    "mean 1000, deviation 1/8": lambda x: x * 0.125 + 1000.0,
    "wide range": lambda x: (x.double().sign() * (x.double().abs() * 6.0).exp() * 1e-4).clamp(-1e4, 1e4).to(x.dtype),
    "rows from 1e-4 to 1e4": _scaled_rows,
    "constant 3.25": lambda x: x * 0 + 3.25,
    "constant 12345": lambda x: x * 0 + 12345.0,
    "zeros": lambda x: x * 0,
    "tiny": lambda x: x * 1e-6,
    "some nan": _one_of_each(float("nan")),
    "some inf": _one_of_each(float("inf")),
    "some -inf": _one_of_each(float("-inf")),
    "half -inf": _masked,
}
"""What is made of the input that holds the data: the one with the most elements that comes first."""


def first_runs(cases: Sequence[Case], seed: int, pool: Executor) -> list[Any]:
    """A definition for each case whose kernels are compiled and loaded; None where an op is not there yet.

    NVRTC takes most of the time, several programs at once.
    """

    def run(case: Case) -> Any:
        try:
            fd = define_fusion(case)
        except NotSupportedError:
            return None
        with suppress(Exception):  # `compare` meets it again, and makes a line of it
            fd.execute(torch_inputs(case.inputs, seed))
        return fd

    return list(pool.map(run, cases))


def compare(
    case: Case, fd: Any, seed: int, beside: Executor, done: Callable[[Line], None], kinds: Iterable[str] = tuple(KINDS)
) -> None:
    """Hand `done` a line for each of these kinds of input.

    The GPU makes both results and, in float64, the reference. References in longdouble, and errors against those, take a core
    of the host a good part of a second each: they are made `beside`, where `done` is called from.
    """
    import torch

    if fd is None:
        done(Line(case.name, "all", None, None, "unsupported: an op of it is not there yet"))
        return
    position = max(range(len(case.inputs)), key=lambda k: case.inputs[k].numel)
    is_double = wide_dtype(case.inputs[position].dtype) is F64
    for kind in kinds:
        inputs = torch_inputs(case.inputs, seed)
        data = inputs[position]
        data.copy_(KINDS[kind](data.clone()))
        try:
            eager, ours = as_tuple(case.eager(torch)(*inputs)), as_tuple(fd.execute(inputs))
            # On the host from here on: what waits there takes no memory of the GPU.
            given = [[t.cpu() if is_double else t for t in tensors] for tensors in (inputs, ours, eager)]
        except Exception as failure:
            done(_failed(case, kind, failure))
            continue
        if is_double:
            beside.submit(lambda k, g: done(_line(case, k, LongWide(), largest_error_of_double, *g)), kind, given)
        else:
            done(_line(case, kind, TorchWide(), largest_error, *given))


def _line(
    case: Case,
    kind: str,
    wide: Any,
    error: Callable[[Any, Any], float],
    inputs: Sequence[Any],
    ours: Sequence[Any],
    eager: Sequence[Any],
) -> Line:
    """The largest error of ours, over that of eager."""
    try:
        references = case.reference(wide, *inputs)
        pairs = [(error(o, r), error(e, r)) for o, e, r in zip(ours, eager, references, strict=True)]
        return Line(case.name, kind, *max(pairs, key=lambda p: p[0] / max(p[1], 1.0)))
    except Exception as failure:
        return _failed(case, kind, failure)


def _failed(case: Case, kind: str, failure: Exception) -> Line:
    return Line(case.name, kind, None, None, f"{type(failure).__name__}: {str(failure).splitlines()[0][:120]}")


class Waiting(Executor):
    """A pool that takes no more than twice as much as it has threads: what waits there holds its inputs."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads)
        self._room = BoundedSemaphore(2 * threads)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See Executor; waits for room."""
        self._room.acquire()
        job = self._pool.submit(fn, *args, **kwargs)
        job.add_done_callback(lambda _: self._room.release())
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See Executor."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def main(arguments: Sequence[str]) -> int:
    """Compare, print, write. Returns 1 if a line fails."""
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.accuracy", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", action="append", default=[], help="only cases with this in their name; repeatable")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for accuracy.txt and accuracy.json")
    asked = parser.parse_args(arguments)
    if lacking := missing():
        print(f"benchmarks.accuracy {lacking}", file=sys.stderr)
        return 2
    # Doubles first: the host judges them while the GPU goes on.
    found = [c for c in cases() if not asked.case or any(p in c.name for p in asked.case)]
    found.sort(key=lambda c: all(i.dtype is not F64 for i in c.inputs))
    lines: list[Line] = []
    lock = Lock()

    def done(line: Line) -> None:
        with lock:
            lines.append(line)
            print(line, flush=True)

    threads = min(MOST_THREADS, len(os.sched_getaffinity(0)))
    with Waiting(threads) as pool:
        definitions = first_runs(found, asked.seed, pool)
        for case, fd in zip(found, definitions, strict=True):
            compare(case, fd, asked.seed, pool, done)
    # What is no number in the wrong place is no luck.
    again = [n for n in lines if not n.is_right and n.ours is not None and math.isfinite(n.ours)]
    with Waiting(threads) as pool:
        for case, fd in zip(found, definitions, strict=True):
            kinds = [n.kind for n in again if n.case == case.name]
            for seed in range(asked.seed + 1, asked.seed + 1 + DRAWN_AGAIN) if kinds else ():
                compare(case, fd, seed, pool, done, kinds)
    drawn: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        drawn.setdefault((line.case, line.kind), []).append(line)
    lines = [over_seeds(same) for same in drawn.values()]
    order = {c.name: k for k, c in enumerate(found)}
    kinds = list(KINDS)
    lines.sort(key=lambda n: (order[n.case], kinds.index(n.kind) if n.kind in kinds else -1))
    failing = [line for line in lines if not line.is_right]
    text = "\n".join([f"{len(lines)} lines, {len(failing)} fail", *map(str, failing)])
    print(f"\n{'case':40s} {'input':22s} {'ours, ulp':>12s} {'eager, ulp':>12s}\n{text}")
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "accuracy.txt").write_text("\n".join([*map(str, lines), "", text, ""]), encoding="utf-8")
        (asked.out / "accuracy.json").write_text(json.dumps([asdict(n) for n in lines]) + "\n", encoding="utf-8")
    return int(bool(failing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
