"""What a choice of the device costs at each launch, beside the other ways to do what a number on the device says.

    python3 -m benchmarks.switch_time           needs a GPU

A padded batch has `ROWS` rows, and how many of them are in use is a number on the device, which a kernel of the program itself
makes before each launch. Behind it rows are scaled, by one of these:

    all rows       one kernel over all rows, whatever is in use: no choice
    padded grid    one kernel over all rows, whose blocks leave at once if their row is not in use
    switch of n    n kernels of n sizes of grid; a Switch on the device chooses the smallest that is enough
    work, ...      the same behind another kernel over all rows: what is chosen waits for that, the look at the number does not
    host branch    the program with eight cases, not as a graph: the host reads the number at each run

Then the same with what the compiler makes: rows are normalised by the program for all rows, and by programs for 2, 4 and 8
lengths, of which a Switch chooses the smallest that is enough.

`launch` is the time of a graph launch (of a run for the host branch) on the GPU, from events around many in a row, `host` the
time that the host is busy with one, both in microseconds. Every output is compared with what NumPy gives, in each way and for
each number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fuser import (
    Alias,
    Allocate,
    DataType,
    Fill,
    FusionDefinition,
    HostProgram,
    LaunchKernel,
    LaunchParams,
    RtcKernel,
    Switch,
    extent,
)
from fuser.host_ir.instructions.instructions import Instruction
from fuser.runtime.arrays.device_tensor import DeviceTensor
from fuser.runtime.devices.device import get_device

ROWS = 4096
BLOCK = 256
REPLAYS = 400

SOURCE = """
extern "C" __global__ void choose(long long* number, const long long* used, long long part) {
  *number = (*used - 1) / part;
}
extern "C" __global__ void scale_rows(float* y, const float* x, const long long* used, int columns) {
  const long long row = blockIdx.x;
  if (row >= *used) return;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) y[row * columns + c] = 2.0f * x[row * columns + c];
}
extern "C" __global__ void scale_all(float* y, const float* x, int columns) {
  const long long row = blockIdx.x;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) y[row * columns + c] = 2.0f * x[row * columns + c];
}
"""


@cache
def kernel(name: str) -> Any:
    return RtcKernel(SOURCE, name).compile().kernel


def scaled(rows: int, *, asks: bool = True) -> LaunchKernel:
    """Rows of x, times 2, into y."""
    launch = LaunchParams(rows, 1, 1, BLOCK, 1, 1)
    columns = extent("x", 1)
    if not asks:
        return LaunchKernel(kernel("scale_all"), ("y", "x", columns), launch)
    return LaunchKernel(kernel("scale_rows"), ("y", "x", "used", columns), launch)


def program(body: tuple[Instruction, ...], cases: int = 1) -> HostProgram:
    """The case by a kernel, then what is measured. `y` is the caller's, and so are the rows that nobody writes."""
    number = LaunchKernel(kernel("choose"), ("number", "used", ROWS // cases), LaunchParams(1, 1, 1, 1, 1, 1))
    return HostProgram(("x", "y", "used"), ("y",), (Allocate("number", (1,), DataType.Int), number, *body))


def ways() -> dict[str, HostProgram]:
    found = {
        "all rows": program((scaled(ROWS, asks=False),)),
        "padded grid": program((scaled(ROWS),)),
    }
    for cases in (2, 4, 8):
        bodies = tuple((scaled(ROWS * (c + 1) // cases),) for c in range(cases))
        choice = Switch("number", bodies, (Fill("y", 0.0),))
        found[f"switch of {cases}"] = program((choice,), cases)
        if cases == 8:
            found["work, all rows"] = program((scaled(ROWS, asks=False), scaled(ROWS, asks=False)))
            found["work, switch"] = program((scaled(ROWS, asks=False), choice), cases)
    return found


def compiled_ways(x: DeviceTensor) -> dict[str, HostProgram]:
    """Rows of x with their mean and variance taken out, by the compiler's programs for some lengths."""
    with FusionDefinition() as normalise:
        t = normalise.define_tensor(shape=[-1, -1], contiguity=True)
        normalise.add_output((t - t.mean(1, keepdim=True)) / (t.var(1, correction=0, keepdim=True) + 1e-5).sqrt())
    columns = x.shape[1]

    def of(rows: int) -> tuple[Instruction, ...]:
        made = normalise.program([x.view((rows, columns), (columns, 1))])
        views = (Alias(f"{name}{rows}", name, (rows, columns)) for name in ("x", "y"))
        return (*views, *made.inlined((f"x{rows}",), (f"y{rows}",), f"{rows}."))

    found = {"all rows": program(of(ROWS))}
    for cases in (2, 4, 8):
        bodies = [of(ROWS * (c + 1) // cases) for c in range(cases)]
        found[f"switch of {cases}"] = program((Switch("number", bodies, (Fill("y", 0.0),)),), cases)
    return found


def per_call(device: Any, stream: int, call: Callable[[], object]) -> tuple[float, float]:
    """(microseconds on the GPU, microseconds of the host), the best of five rounds."""
    on_gpu = on_host = float("inf")
    for _ in range(20):
        call()
    for _ in range(5):
        device.synchronize(stream)
        first, last = device.create_event(), device.create_event()
        device.record_event(first, stream)
        begin = time.perf_counter()
        for _ in range(REPLAYS):
            call()
        on_host = min(on_host, (time.perf_counter() - begin) / REPLAYS * 1e6)
        device.record_event(last, stream)
        on_gpu = min(on_gpu, device.elapsed_ms(first, last) / REPLAYS * 1e3)
        device.destroy_event(first)
        device.destroy_event(last)
    return on_gpu, on_host


def measure(device: Any, columns: int, used_rows: int) -> list[tuple[str, float, float]]:
    given = np.random.default_rng(0).standard_normal((ROWS, columns)).astype(np.float32)
    # All on one stream: what orders others costs the host more than a launch.
    stream = device.create_stream()
    x = DeviceTensor.from_numpy(given, device, stream)
    used = DeviceTensor.from_numpy(np.array([used_rows], np.int64), device, stream)
    rows: list[tuple[str, float, float]] = []

    def check(name: str, y: DeviceTensor, *, writes_all: bool) -> None:
        got = y.numpy()
        wanted = 2 * given[: ROWS if writes_all else used_rows]
        assert np.array_equal(got[: len(wanted)], wanted), name
        assert not got[len(wanted) :].any(), name

    found = ways()
    for name, made in found.items():
        y = DeviceTensor.from_numpy(np.zeros_like(given), device, stream)
        captured = made.capture([x, y, used], stream)
        rows.append((name, *per_call(device, stream, lambda c=captured: c.replay(stream))))
        check(name, y, writes_all=name == "all rows" or name.startswith("work"))
        captured.synchronize()
    y = DeviceTensor.from_numpy(np.zeros_like(given), device, stream)
    branch = found["switch of 8"]
    rows.append(("host branch", *per_call(device, stream, lambda: branch.run([x, y, used], stream))))
    check("host branch", y, writes_all=False)
    return rows


def measure_compiled(device: Any, columns: int, used_rows: int) -> list[tuple[str, float, float]]:
    given = np.random.default_rng(0).standard_normal((ROWS, columns)).astype(np.float32)
    part = given[:used_rows].astype(np.float64)
    wanted = (part - part.mean(1, keepdims=True)) / np.sqrt(part.var(1, keepdims=True) + 1e-5)
    # All on one stream: what orders others costs the host more than a launch.
    stream = device.create_stream()
    x = DeviceTensor.from_numpy(given, device, stream)
    used = DeviceTensor.from_numpy(np.array([used_rows], np.int64), device, stream)
    rows: list[tuple[str, float, float]] = []
    for name, made in compiled_ways(x).items():
        y = DeviceTensor.from_numpy(np.zeros_like(given), device, stream)
        captured = made.capture([x, y, used], stream)
        rows.append((name, *per_call(device, stream, lambda c=captured: c.replay(stream))))
        assert np.allclose(y.numpy()[:used_rows], wanted, atol=1e-4), name
        captured.synchronize()
    return rows


def main() -> None:
    device: Any = get_device("cuda", 0)
    print(device)
    for columns in (1024, 16384):
        for used_rows in (1, ROWS // 8, ROWS // 2, ROWS):
            print(f"\n{ROWS} rows of {columns} Floats, {used_rows} in use, normalised       launch us   host us")
            for name, on_gpu, on_host in measure_compiled(device, columns, used_rows):
                print(f"    {name:<16} {on_gpu:>46.2f} {on_host:>9.2f}")
    for columns in (16, 4096):
        for used_rows in (1, ROWS // 8, ROWS // 2, ROWS):
            print(f"\n{ROWS} rows of {columns} Floats, {used_rows} in use       launch us   host us")
            for name, on_gpu, on_host in measure(device, columns, used_rows):
                print(f"    {name:<16} {on_gpu:>34.2f} {on_host:>9.2f}")


if __name__ == "__main__":
    main()
