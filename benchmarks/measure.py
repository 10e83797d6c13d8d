"""One case on the GPU: verified, timed, everything caught. What workers do. Needs torch."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case, define_fusion
from benchmarks.inputs import torch_inputs
from benchmarks.results_table import Row
from benchmarks.timing import Stopwatch
from benchmarks.verify import verify
from fuser.errors import NotSupportedError

COMPILE_MODES = {"compile": "default", "compile max": "max-autotune-no-cudagraphs"}
"""Peer -> mode of torch.compile."""
_EXPLAINED = ("params.py", "launches", "kernel.cubin")


@dataclass(frozen=True, slots=True)
class Request:
    """What to do with a case.

    seed      of the inputs; None draws one, which is reported with a result that is wrong
    rep_ms    GPU milliseconds of timed runs per system
    peers     which of eager, compile, compile max to time as well
    explain   print parameters and launches
    """

    seed: int | None = None
    rep_ms: float = 60.0
    peers: tuple[str, ...] = ()
    explain: bool = False


def measure(case: Case, request: Request, stopwatch: Stopwatch, copy_time: Callable[[int], float]) -> Row:
    """The row of a case. `copy_time`: bytes read plus written -> microseconds of a plain copy."""
    seed = request.seed if request.seed is not None else int.from_bytes(os.urandom(4), "little")
    found: dict[str, Any] = {"name": case.name, "nbytes": case.nbytes, "status": "failed", "text": ""}
    try:
        fd = define_fusion(case)
        inputs = torch_inputs(case.inputs, seed)

        def run() -> Any:
            return fd.execute(inputs)

        verdict = verify(case, run, inputs)
        found |= {"status": "ok" if verdict.is_right else "wrong", "text": verdict.text}
        found |= {"is_poisoned": verdict.is_poisoned, "kernels": len(fd.program(inputs).launches())}
        if not verdict.is_right:
            found["text"] += f", seed {seed}"
        if request.explain:
            print(f"--- {case.name}\n{_explained(fd, inputs)}", flush=True)
        found["copy"] = copy_time(case.nbytes)
        ours = stopwatch.measure(run, milliseconds=request.rep_ms)
        found |= {"ours": ours.median, "spread": (ours.p10, ours.p90), "host": stopwatch.host_time(run)}
        found["peers"] = tuple(_peers(case, inputs, request, stopwatch))
    except NotSupportedError as error:
        found |= {"status": "unsupported", "text": first_line(error)}
    except Exception as error:
        traceback.print_exc()
        found |= {"status": "failed", "text": f"{type(error).__name__}: {first_line(error)}, seed {seed}"}
    return Row(**found)


def _explained(fd: Any, inputs: Sequence[Any]) -> str:
    stages = fd.explain(inputs, file=False).stages
    return "\n".join(f"{name}: {text.strip()}" for name, text in stages.items() if name.endswith(_EXPLAINED))


def first_line(error: BaseException) -> str:
    """Of an error's text, cut where it is long."""
    return (str(error).strip() or repr(error)).splitlines()[0][:200]


def _peers(case: Case, inputs: Sequence[Any], request: Request, stopwatch: Stopwatch) -> Iterator[tuple[str, float]]:
    """Peers measured here. One that fails is left out, with a line that says so."""
    import torch

    for name in request.peers:
        try:
            function = compiled(case, name) if name in COMPILE_MODES else case.eager(torch)
            yield name, stopwatch.measure(lambda f=function: f(*inputs), milliseconds=request.rep_ms).median
        except Exception as error:
            print(f"{case.name}: {name} failed: {first_line(error)}", flush=True)


def compiled(case: Case, mode: str) -> Callable[..., Any]:
    """The case as torch.compile makes it at the sizes of its first call; `mode` is one of COMPILE_MODES."""
    import torch

    torch._dynamo.reset()  # noqa: SLF001
    return torch.compile(case.eager(torch), mode=COMPILE_MODES[mode], dynamic=False)
