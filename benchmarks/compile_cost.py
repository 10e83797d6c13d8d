"""What it costs to get from Python to a kernel: imports, the first definition of a process, the simulator. Needs no GPU.

    make bench-compile

Every number is printed with its limit; the exit code is 1 if one is over. Times are wall clock, medians over fresh
processes, each bound to one core, with no cache of ours; modules have their bytecode, as after any first run.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.case import Case
    from fuser.frontend.definition import FusionDefinition
    from fuser.ir.facts import TensorDescriptor

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = 15


@dataclass(frozen=True, slots=True)
class Line:
    """One measured number. `limit` is None where it only informs."""

    what: str
    value: float
    unit: str
    limit: float | None = None

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.value > self.limit

    def __str__(self) -> str:
        limit = "" if self.limit is None else f"limit {self.limit:g}"
        return f"{self.value:9.2f} {self.unit:3} {limit:10}{'  OVER' if self.is_over else ''}  {self.what}".rstrip()


# --- the two fusions --------------------------------------------------------------------------------------------------


def bias_gelu(fd: FusionDefinition) -> None:
    """gelu(x + bias), BFloat16."""
    from fuser import DataType

    x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    bias = fd.define_tensor(shape=[-1], contiguity=True, dtype=DataType.BFloat16)
    y = x + fd.ops.broadcast(bias, [True, False])
    fd.add_output(fd.ops.cast(y * 0.5 * (1.0 + fd.ops.erf(y * 0.5**0.5)), DataType.BFloat16))


def softmax(fd: FusionDefinition) -> None:
    """softmax of rows, Float."""
    from fuser import DataType

    x = fd.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
    e = fd.ops.exp(x - fd.ops.max(x, 1, keepdim=True))
    fd.add_output(e / fd.ops.sum(e, 1, keepdim=True))


DEFINITIONS: dict[str, Callable[[FusionDefinition], None]] = {"bias_gelu": bias_gelu, "softmax": softmax}


def descriptors(name: str) -> list[TensorDescriptor]:
    """4096 x 4096, aligned."""
    from fuser import DataType
    from fuser.ir.facts import TensorDescriptor

    if name == "softmax":
        return [TensorDescriptor(DataType.Float, (4096, 4096), (4096, 1), 256)]
    rows = TensorDescriptor(DataType.BFloat16, (4096, 4096), (4096, 1), 256)
    return [rows, TensorDescriptor(DataType.BFloat16, (4096,), (1,), 256)]


# --- what a fresh process does ----------------------------------------------------------------------------------------


def first_definition(name: str) -> dict[str, float]:
    """Milliseconds of the import, of definition to the CUDA text of the last segment, and of each stage on the way."""
    # Nothing of the project may be imported here before the clock starts, but for the two imports named.
    import fuser

    begin = time.perf_counter()
    import fuser.compiler

    imported = time.perf_counter()
    with fuser.FusionDefinition() as fd:
        DEFINITIONS[name](fd)
    times: dict[str, float] = {"definition": time.perf_counter()}
    _compile_to_text(fd, descriptors(name), times)
    result = {"import fuser.compiler": (imported - begin) * 1e3}
    last = imported
    for stage, moment in times.items():
        result[stage] = (moment - last) * 1e3
        last = moment
        if stage.endswith("kernel.cu"):
            result["total"] = (moment - imported) * 1e3
    return result


def _compile_to_text(fd: FusionDefinition, inputs: list[TensorDescriptor], times: dict[str, float]) -> None:
    from fuser.compiler.bind_inputs import bind_inputs
    from fuser.compiler.compile_fusion import compile_fusion
    from fuser.compiler.recorder import Recorder
    from fuser.ir.device_info import H200, DeviceInfo

    class Clock(Recorder):
        """Notes when a stage is done; its text is not made."""

        def stage(self, name: str, text: Callable[[], str]) -> None:
            times[name] = time.perf_counter()

    class TextOnly:
        """A device that no cubin is made for; only its limits are asked."""

        kind, index = "simulator", 0
        info: DeviceInfo = H200

    fusion = fd.fusion.ir_fusion  # type: ignore[union-attr]
    compile_fusion(fusion, bind_inputs(fusion, inputs), TextOnly(), recorder=Clock())  # type: ignore[arg-type]


def simulate(name: str) -> dict[str, float]:
    """Seconds of the first `execute` on the simulator, compilation included."""
    import ml_dtypes
    import numpy as np

    import fuser

    generator = np.random.default_rng(0)
    with fuser.FusionDefinition() as fd:
        DEFINITIONS[name](fd)
    if name == "softmax":
        inputs = [generator.standard_normal((1024, 1024)).astype(np.float32)]
    else:
        inputs = [generator.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((1000, 1000), (1000,))]
    begin = time.perf_counter()
    fd.execute(inputs, device="simulator")
    return {"total": time.perf_counter() - begin}


def divide_pair() -> dict[str, float]:
    """Microseconds to cancel (128*i + j)//128*128 + (128*i + j)%128 to 128*i + j."""
    from benchmarks.bench_integers import cancel_pair, measure, tile

    return {"total": measure(tile, cancel_pair)}


def public_cases() -> dict[str, float]:
    """Milliseconds of the public cases in a warm process, best of three each; median and most over the cases.

    text      from definition to CUDA text
    propose   all proposals of parameters
    """
    from benchmarks.cases import public_cases as cases
    from benchmarks.compile_case import compile_case

    compile_case(next(iter(cases())), with_cubin=False)
    texts: list[float] = []
    proposals: list[float] = []
    for case in cases():
        texts.append(_best(lambda case=case: compile_case(case, with_cubin=False)))
        proposals.append(_proposals(case))
    return {
        "text, median": statistics.median(texts),
        "text, most": max(texts),
        "propose, median": statistics.median(proposals),
        "propose, most": max(proposals),
    }


def _proposals(case: Case) -> float:
    from benchmarks.compile_case import TextOnly, ir_fusion
    from fuser.compiler.bind_inputs import bind_inputs
    from fuser.compiler.compile_fusion import concrete_fusion, inputs_of_segments, plan_fusion
    from fuser.compiler.kernel_compiler import KernelCompiler
    from fuser.compiler.recorder import Recorder
    from fuser.ir.ops.enums import SchedulerType

    fusion = ir_fusion(case)
    bound = bind_inputs(fusion, [i.descriptor() for i in case.inputs])
    segmented = plan_fusion(concrete_fusion(fusion, bound), Recorder())
    compiler = KernelCompiler(TextOnly())  # type: ignore[arg-type]
    pairs = zip(segmented.segments, inputs_of_segments(segmented, bound), strict=True)
    with_kernel = [(s, inputs) for s, inputs in pairs if s.scheduler.type is not SchedulerType.no_op]
    return sum(_best(lambda s=s, inputs=inputs: compiler.propose(s, inputs)) for s, inputs in with_kernel)


def _best(call: Callable[[], object], times: int = 3) -> float:
    """Milliseconds of the fastest of some calls."""
    found: list[float] = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        found.append((time.perf_counter() - begin) * 1e3)
    return min(found)


# --- measuring --------------------------------------------------------------------------------------------------------


def environment(folder: str) -> dict[str, str]:
    """That of the fresh processes: no cache and no other option of ours, bytecode in `folder`, one thread for libraries."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FUSER_") and k != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    return {**kept, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": folder, "OMP_NUM_THREADS": "1", "FUSER_CACHE": "off"}


def whole_process(statement: str, environ: Mapping[str, str]) -> float:
    """Milliseconds of an interpreter that runs one statement, from start to end."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], env=dict(environ), check=True)
    return (time.perf_counter() - begin) * 1e3


def in_fresh_process(part: str, environ: Mapping[str, str]) -> dict[str, float]:
    """What `part` returns in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--part", part]
    done = subprocess.run(command, env=dict(environ), check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """The median of every number, in the order of the first run."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def measure_all(processes: int) -> list[Line]:
    """Print every number as it is known."""
    lines: list[Line] = []

    def report(line: Line) -> None:
        lines.append(line)
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        environ = environment(folder)
        for statement in ("import numpy", "import fuser", "import fuser.compiler"):
            whole_process(statement, environ)  # writes the bytecode
        print(f"imports, whole processes, median of {processes}")
        pairs = [[whole_process(f"import {name}", environ) for name in ("numpy", "fuser")] for _ in range(processes)]
        numpy, fuser = (statistics.median(column) for column in zip(*pairs, strict=True))
        report(Line("import numpy", numpy, "ms"))
        report(Line("import fuser", fuser, "ms", 2 * numpy))
        for name, limit in (("bias_gelu", 30.0), ("softmax", 80.0)):
            in_fresh_process(f"first:{name}", environ)
            found = medians([in_fresh_process(f"first:{name}", environ) for _ in range(processes)])
            print(f"\n{name}, first definition of a process, median of {processes}")
            report(Line("import fuser.compiler, after import fuser", found.pop("import fuser.compiler"), "ms", 250.0))
            total = found.pop("total")
            for stage, value in found.items():
                if not stage.endswith("host.py"):
                    report(Line(f"  {stage}", value, "ms"))
            report(Line("definition to CUDA text", total, "ms", limit))
        print("\nthe public cases, warm process, best of three each")
        found = in_fresh_process("public", environ)
        report(Line("definition to CUDA text, median", found["text, median"], "ms", 40.0))
        report(Line("definition to CUDA text, slowest case", found["text, most"], "ms", 150.0))
        report(Line("proposals of parameters, median", found["propose, median"], "ms", 1.0))
        report(Line("proposals of parameters, slowest case", found["propose, most"], "ms"))
        print("\nthe simulator, first execution, compilation included")
        for name, what, limit in (
            ("bias_gelu", "bias + GELU, a million elements", 2.0),
            ("softmax", "softmax, 1024 x 1024", 5.0),
        ):
            in_fresh_process(f"simulate:{name}", environ)
            report(Line(what, in_fresh_process(f"simulate:{name}", environ)["total"], "s", limit))
        print("\ninteger expressions")
        pair = in_fresh_process("integers", environ)["total"]
        report(Line("(128*i + j)//128*128 + (128*i + j)%128 cancelled", pair, "us", 100.0))
    return lines


def run_part(part: str) -> dict[str, float]:
    """The work of a fresh process, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    kind, _, name = part.partition(":")
    match kind:
        case "first":
            return first_definition(name)
        case "simulate":
            return simulate(name)
        case "public":
            return public_cases()
        case "integers":
            return divide_pair()
        case _:
            raise ValueError(f"no part is called {part!r}")


def main(arguments: list[str]) -> int:
    """Measure and print. Returns 1 if a number is over its limit."""
    parser = argparse.ArgumentParser(prog="compile_cost.py", description="Costs of compiling, against their limits.")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="fresh processes per median")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.part is not None:
        print(json.dumps(run_part(asked.part)))
        return 0
    over = [line for line in measure_all(max(1, asked.processes)) if line.is_over]
    print(f"\n{len(over)} over the limit" + "".join(f"\n{line}" for line in over))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
