"""A host program with a loop and two streams, and the same program as a graph.

    python examples/06_streams_and_loops.py

Streams and events order what the device does; loops and conditions are decided by the host when the program is called. A
program in which two streams touch one memory without order is refused when it is built.
"""

from __future__ import annotations

import numpy as np

from fuser import (
    Allocate,
    Copy,
    DataType,
    Deallocate,
    ForLoop,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    LaunchKernel,
    RecordEvent,
    SetStream,
    WaitEvent,
    extent,
    scalar,
)
from fuser.errors import DefinitionRuntimeError

x_array = np.random.default_rng(0).standard_normal((48, 320)).astype(np.float32)

# --- three kernels: halfway to the mean of the row, sums of rows, largest of each column
with FusionDefinition() as smooth:
    x = smooth.define_tensor(shape=[-1, -1], contiguity=True)
    smooth.add_output(0.5 * (x + x.mean(1, keepdim=True)))

with FusionDefinition() as row_sums:
    row_sums.add_output(row_sums.define_tensor(shape=[-1, -1], contiguity=True).sum(1))

with FusionDefinition() as column_tops:
    column_tops.add_output(column_tops.define_tensor(shape=[-1, -1], contiguity=True).max(0))

compiler = KernelCompiler()
smooth_kernel, sums_kernel, tops_kernel = (compiler.compile(f, [x_array]) for f in (smooth, row_sums, column_tops))

# --- the program: `steps` is a number of each call
rows, columns = extent("x", 0), extent("x", 1)
before_the_streams = (
    Allocate("y", (rows, columns), DataType.Float),
    Allocate("next", (rows, columns), DataType.Float),
    Allocate("sums", (rows,), DataType.Float),
    Allocate("tops", (columns,), DataType.Float),
    Copy("y", "x"),
    ForLoop("step", 0, scalar("steps"), 1, (LaunchKernel(smooth_kernel, ("y", "next")), Copy("y", "next"))),
)
on_two_streams = (
    SetStream("side"),  # begins behind the loop
    LaunchKernel(tops_kernel, ("y", "tops")),
    RecordEvent("tops are there"),
    SetStream(0),
    LaunchKernel(sums_kernel, ("y", "sums")),
    WaitEvent("tops are there"),
    Deallocate("y"),
    Deallocate("next"),
)
program = HostProgram(("x", "steps"), ("sums", "tops"), before_the_streams + on_two_streams)
print(program)


def check(given: np.ndarray, steps: int, sums: object, tops: object) -> None:
    """Against NumPy."""
    y = given.astype(np.float64)
    for _ in range(steps):
        y = 0.5 * (y + y.mean(1, keepdims=True))
    assert np.allclose(np.asarray(sums), y.sum(1), atol=1e-3)
    assert np.allclose(np.asarray(tops), y.max(0), atol=1e-5)


for steps in (0, 1, 5):
    check(x_array, steps, *program.run([x_array, steps]))
print("0, 1 and 5 turns of the loop are right")

# --- what nothing orders is refused: the memory would be given back while the other stream reads it
try:
    unordered = [i for i in on_two_streams if i != WaitEvent("tops are there")]
    HostProgram(("x", "steps"), ("sums", "tops"), (*before_the_streams, *unordered))
except DefinitionRuntimeError as error:
    print("refused:", str(error).splitlines()[0])
else:
    raise AssertionError("a race was accepted")

# --- recorded once, launched as often as one likes; a graph has no streams, its edges come from the bytes
with FusionDefinition() as numbers:
    numbers.add_output(numbers.ops.uniform(0.0, 1.0, [48, 320]))
(on_device,) = numbers.execute([])  # a definition without inputs gives tensors in the memory of the device
captured = program.capture([on_device, 3])
check(on_device.numpy(), 3, *captured.replay())
check(on_device.numpy(), 4, *captured.run([on_device, 4]))
print(f"a graph of {len(captured.edges)} commands:", {name: n for name, n in captured.counters().items() if n})
