"""Host time of a call: how long Python is busy before the GPU is, on every way to run a fusion and beside other systems.

    make bench-host                             on a GPU: fuser, torch eager, torch.compile, Triton, CuPy, the bare driver
    make bench-host ARGS="--profile execute"    where the time of one of them goes
    python3 -m benchmarks.host_time             without a GPU: fuser alone, on a driver that does nothing

The fusion is relu(a + b) of small Floats: one kernel, two inputs, one output. `ten kernels` is a program of ten launches,
`graph` is the replay of a captured program,
`shapes` goes round sixteen shapes that were seen before, `new shape` is the first call of a shape whose kernel is there.
Times are microseconds, the best of several rounds of many calls: what other processes take is left out.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import json
import math
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from html import escape
from pathlib import Path
from typing import Any

from fuser import DataType, FusionDefinition

Call = Callable[[], object]
ROWS, COLUMNS = 32, 1024
SHAPES = 16
KERNELS = 10


def measure(call: Call, *, seconds: float = 0.4, settle: Call | None = None) -> float:
    """Microseconds of one call: the best mean of rounds of a few milliseconds."""
    for _ in range(20):
        call()
    begin = time.perf_counter()
    for _ in range(20):
        call()
    count = max(10, round(0.004 / max((time.perf_counter() - begin) / 20, 1e-7)))
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        if settle is not None:
            settle()
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, (time.perf_counter() - begin) / count)
    return best * 1e6


def relu_of_sum() -> FusionDefinition:
    """The fusion of every row."""
    with FusionDefinition() as fd:
        a, b = (fd.define_tensor([-1, -1], True, DataType.Float) for _ in range(2))
        fd.add_output(fd.ops.relu(fd.ops.add(a, b)))
    return fd


def chain_of_kernels(program: Any, count: int) -> Any:
    """A host program that launches the kernel of another one `count` times, each on what the one before has made."""
    from fuser.host_ir.instructions.expressions import extent
    from fuser.host_ir.instructions.instructions import Allocate, LaunchKernel
    from fuser.host_ir.program import HostProgram

    (launch,) = program.launches()
    shape = (extent("a", 0), extent("a", 1))
    instructions: list[Any] = []
    last = "a"
    for k in range(count):
        instructions += [Allocate(f"t{k}", shape, DataType.Float), LaunchKernel(launch.kernel, (last, "b", f"t{k}"))]
        last = f"t{k}"
    return HostProgram(("a", "b"), (last,), instructions)


class Doors:
    """Calls of fuser by name. `make(rows, columns)` is a tensor on the device."""

    def __init__(self, make: Callable[[int, int], Any]) -> None:
        self._make = make
        self.fd = relu_of_sum()
        self.a, self.b = make(ROWS, COLUMNS), make(ROWS, COLUMNS)
        self.fd.execute([self.a, self.b])
        self.program = self.fd.program([self.a, self.b])
        self.ten = chain_of_kernels(self.program, KERNELS)
        self.captured = self.program.capture([self.a, self.b])
        self.captured_ten = self.ten.capture([self.a, self.b])

    def calls(self) -> dict[str, Call]:
        """Every warm way in."""
        import numpy as np

        fd, program, ten, inputs = self.fd, self.program, self.ten, [self.a, self.b]
        a, b = inputs
        pairs = [[self._make(ROWS + k, COLUMNS), self._make(ROWS + k, COLUMNS)] for k in range(SHAPES)]
        rounds: Iterator[list[Any]] = itertools.cycle(pairs)
        host = [np.ones((ROWS, COLUMNS), np.float32) for _ in range(2)]
        return {
            "execute": lambda: fd.execute(inputs),
            "call": lambda: fd(a, b),
            "program.run": lambda: program.run(inputs),
            "shapes": lambda: fd.execute(next(rounds)),
            "ten kernels": lambda: ten.run(inputs),
            "graph": self.captured.replay,
            "graph of ten kernels": self.captured_ten.replay,
            "NumPy": lambda: fd.execute(host),
        }

    def new_shape(self, count: int = 100) -> tuple[float, float]:
        """(median, 95th percentile) of the first call of a shape whose kernel is there."""
        fd = self.fd
        times: list[float] = []
        for k in range(count):
            inputs = [self._make(8 * ROWS + k, COLUMNS) for _ in range(2)]
            known = fd.fec.counters()["kernels_compiled"]
            begin = time.perf_counter()
            fd.execute(inputs)
            took = (time.perf_counter() - begin) * 1e6
            if fd.fec.counters()["kernels_compiled"] == known:
                times.append(took)
        if len(times) < count // 2:
            raise SystemExit(f"{count - len(times)} of {count} new shapes have compiled a kernel")
        return statistics.median(times), sorted(times)[round(0.95 * (len(times) - 1))]


def fuser_times(make: Callable[[int, int], Any], settle: Call | None = None, seconds: float = 0.4) -> dict[str, float]:
    """Of fuser's own doors."""
    doors = Doors(make)
    found = {f"fuser {name}": measure(call, seconds=seconds, settle=settle) for name, call in doors.calls().items()}
    found["fuser ten kernels, each"] = found["fuser ten kernels"] / KERNELS
    found["fuser new shape, median"], found["fuser new shape, p95"] = doors.new_shape()
    return found


# --- other systems ----------------------------------------------------------------------------------------------------


def peer_times(settle: Call) -> dict[str, float | str]:
    """Of other systems on the same tensors; a sentence where one cannot be had."""
    import torch

    a, b, y = (torch.randn(ROWS, COLUMNS, device="cuda") for _ in range(3))

    def plain(x: Any, y: Any) -> Any:
        return torch.relu(x + y)

    found: dict[str, float | str] = {"torch eager": measure(lambda: plain(a, b), settle=settle)}
    makers: dict[str, Callable[[], Call]] = {
        "torch.compile": lambda: _compiled(plain, None, a, b),
        "torch.compile, CUDA graphs": lambda: _compiled(plain, "reduce-overhead", a, b),
        "Triton": lambda: _triton(a, b),
        "CuPy RawKernel": lambda: _cupy(),
        "cuLaunchKernel": lambda: bare_launch([t.data_ptr() for t in (a, b, y)], a.numel()),
    }
    for name, maker in makers.items():
        try:
            found[name] = measure(maker(), settle=settle)
        except Exception as error:
            found[name] = f"not measured: {type(error).__name__}: {error}".splitlines()[0][:100]
    return found


def _compiled(plain: Any, mode: str | None, a: Any, b: Any) -> Call:
    import torch

    compiled = torch.compile(plain, mode=mode)

    def call() -> object:
        if mode is not None:
            torch.compiler.cudagraph_mark_step_begin()
        return compiled(a, b)

    return call


def _triton(a: Any, b: Any) -> Call:
    import importlib.util
    import tempfile

    import torch

    # Triton reads the text of a kernel from the file that defines it.
    folder = Path(tempfile.mkdtemp())
    (folder / "triton_kernel.py").write_text(
        "import triton\n"
        "import triton.language as tl\n\n\n"
        "@triton.jit\n"
        "def kernel(a, b, y, n, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    x = tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n)\n"
        "    tl.store(y + i, tl.where(x > 0, x, 0.0), mask=i < n)\n"
    )
    spec = importlib.util.spec_from_file_location("triton_kernel", folder / "triton_kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    n = a.numel()

    def call() -> object:
        y = torch.empty_like(a)
        module.kernel[(n // 1024,)](a, b, y, n, BLOCK=1024)
        return y

    return call


_TEXT = """extern "C" __global__ void relu_of_sum(const float *a, const float *b, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(a[i] + b[i], 0.0f);
}"""


def _cupy() -> Call:
    import cupy

    kernel = cupy.RawKernel(_TEXT, "relu_of_sum")
    a, b = (cupy.ones((ROWS, COLUMNS), cupy.float32) for _ in range(2))
    n = cupy.int32(ROWS * COLUMNS)

    def call() -> object:
        y = cupy.empty((ROWS, COLUMNS), cupy.float32)
        kernel((ROWS,), (COLUMNS,), (a, b, y, n))
        return y

    return call


def bare_launch(pointers: Sequence[int], count: int) -> Callable[..., object]:
    """The driver's launch alone, on addresses of two inputs and an output: everything prepared, nothing allocated."""
    from fuser.runtime.devices.device import get_device
    from fuser.runtime.driver import bindings
    from fuser.runtime.kernels.pack import ArgumentLayout
    from fuser.runtime.launch import Launch
    from fuser.runtime.rtc_kernel import RtcKernel

    kernel = RtcKernel(_TEXT, "relu_of_sum").compile().kernel
    device: Any = get_device("cuda", 0)
    loaded = device.prepare(kernel, Launch((ROWS, 1, 1), (COLUMNS, 1, 1)))
    cells = ArgumentLayout.of(kernel).make_cells()
    cells.write([*pointers, count])
    launch, function, address = bindings().cuLaunchKernel, loaded.function, cells.address
    return lambda stream=0: (launch(function, ROWS, 1, 1, COLUMNS, 1, 1, 0, stream, address, 0), cells)[0]


# --- the report -------------------------------------------------------------------------------------------------------


def on_gpu(with_peers: bool) -> dict[str, float | str]:
    """On the device that is here."""
    import torch

    found: dict[str, float | str] = {
        **fuser_times(lambda n, m: torch.randn(n, m, device="cuda"), torch.cuda.synchronize)
    }
    return {**found, **peer_times(torch.cuda.synchronize)} if with_peers else found


def stand_in_maker(idle: Any) -> Callable[[int, int], Any]:
    """Tensors of the stand-in for torch."""
    torch = idle.torch
    return lambda n, m: torch.empty_strided((n, m), (m, 1), torch.float32)


def report(found: dict[str, float | str]) -> str:
    """One line for each."""
    width = max(map(len, found))
    return "\n".join(
        f"{name:<{width}}  {value:8.2f} us" if isinstance(value, float) else f"{name:<{width}}  {value}"
        for name, value in found.items()
    )


def drawing(found: dict[str, float | str]) -> str:
    """The times as an SVG, a bar for each on a logarithmic scale from 1 us to 1 ms."""
    rows = [(name, value) for name, value in found.items() if isinstance(value, float)]
    line, left, scale = 18, 220, 160
    height = line * len(rows) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + 3 * scale + 80}" height="{height}" font-size="11">'
    ]
    parts += ['<g font-family="sans-serif">', '<text x="10" y="16">Host time of a call, microseconds</text>']
    for k, (name, value) in enumerate(rows):
        y = 28 + k * line
        length = round(scale * min(max(math.log10(value), 0.0), 3.0), 1)
        colour = "#4878a8" if name.startswith("fuser") else "#999"
        parts.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 2}" width="{length}" height="{line - 5}" fill="{colour}"/>')
        parts.append(f'<text x="{left + length + 6}" y="{y + 11}">{value:.1f}</text>')
    return "\n".join([*parts, "</g></svg>", ""])


def profile(call: Call, count: int = 2000) -> None:
    """Print where the time of a call goes."""
    for _ in range(20):
        call()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(count):
        call()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m benchmarks.host_time", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", choices=("none", "all"), default="all", help="whether to measure other systems")
    parser.add_argument("--profile", metavar="DOOR", help="print the profile of one way in instead")
    parser.add_argument("--out", type=Path, help="folder for host_time.json and host_time.svg")
    asked = parser.parse_args(arguments)
    from fuser.runtime.driver import device_count

    has_gpu = device_count() > 0
    if not has_gpu:
        from benchmarks.stand_ins import idle_cuda
    with nullcontext() if has_gpu else idle_cuda() as idle:
        if asked.profile is not None:
            import torch

            make = (lambda n, m: torch.randn(n, m, device="cuda")) if has_gpu else stand_in_maker(idle)
            doors = Doors(make)
            if asked.profile == "new shape":
                doors.new_shape(5)
                sizes = itertools.count(1000)
                calls = {"new shape": lambda: doors.fd.execute([make(n := next(sizes), COLUMNS), make(n, COLUMNS)])}
                profile(calls[asked.profile], 200)
            else:
                profile(doors.calls()[asked.profile])
            return 0
        if has_gpu:
            found = on_gpu(asked.peers == "all")
        else:
            print("no GPU here: this project's own Python, on a driver that does nothing", file=sys.stderr)
            found = {**fuser_times(stand_in_maker(idle))}
    print(report(found))
    if asked.out is not None:
        asked.out.mkdir(parents=True, exist_ok=True)
        (asked.out / "host_time.json").write_text(json.dumps(found, indent=1) + "\n")
        (asked.out / "host_time.svg").write_text(drawing(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
