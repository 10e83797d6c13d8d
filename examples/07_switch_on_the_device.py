"""A captured graph with a choice that the device makes: among kernels, by a number that only device code knows.

    python examples/07_switch_on_the_device.py

A padded batch has room for many rows, and how many are in use lives on the device. Few rows want other kernels than many. So
the compiler makes a program for each of some lengths, a kernel reads the number and says which one is enough, and a `Switch` on
what it wrote runs that program. The graph is recorded once: no copy to the host, no second capture, whatever the number is.
Where there is no graph, the host reads the number and branches.
"""

from __future__ import annotations

import numpy as np

from fuser import (
    Alias,
    Allocate,
    Copy,
    DataType,
    Fill,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    LaunchError,
    LaunchKernel,
    Switch,
    extent,
)

ROWS, COLUMNS, CASES = 64, 256, 4
PART = ROWS // CASES
x_array = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)

# --- which quarter the last row in use lies in, and a normalisation of rows
with FusionDefinition() as which_case:
    used = which_case.define_tensor(shape=[1], contiguity=True, dtype=DataType.Int)
    which_case.add_output((used - 1) // PART)

with FusionDefinition() as normalise:
    x = normalise.define_tensor(shape=[-1, -1], contiguity=True)
    normalise.add_output((x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt())

compiler = KernelCompiler()
case_kernel = compiler.compile(which_case, [np.ones(1, np.int64)])


# --- the program: case c normalises the first c + 1 quarters, by what the compiler makes for so many rows; the others stay 0
cases = []
for c in range(CASES):
    rows = PART * (c + 1)
    for_these_rows = normalise.program([x_array[:rows]])
    some_x, some_y = (Alias(f"{name}{c}", name, (rows, extent("x", 1))) for name in ("x", "y"))
    cases.append((some_x, some_y, *for_these_rows.inlined((f"x{c}",), (f"y{c}",), f"case{c}.")))

program = HostProgram(
    ("x", "used"),
    ("y",),
    (
        Allocate("case", (1,), DataType.Int),
        LaunchKernel(case_kernel, ("used", "case")),
        Allocate("y", (extent("x", 0), extent("x", 1)), DataType.Float),
        Fill("y", 0.0),
        Switch("case", cases),
    ),
)
print(program)


def check(rows: int, y: object) -> None:
    """Against NumPy."""
    given = x_array.astype(np.float64)
    wanted = (given - given.mean(1, keepdims=True)) / np.sqrt(given.var(1, keepdims=True) + 1e-5)
    reached = -(-rows // PART) * PART
    wanted[reached:] = 0
    assert np.allclose(np.asarray(y), wanted, atol=1e-4), rows


# --- one by one: the host waits for the selector and reads it
for rows in (1, 16, 17, 64):
    check(rows, program.run([x_array, np.array([rows])])[0])
print("read by the host:", program.counters()["host_reads"], "times")

# --- as a graph: recorded once, and chosen by the device at each launch. Before each launch a kernel adds 7 to the rows in use
with FusionDefinition() as made:  # a definition without inputs gives tensors in the memory of the device
    made.add_output(made.ops.uniform(-1.0, 1.0, [ROWS, COLUMNS]))
    made.add_output(made.ops.full([1], 3, DataType.Int))
x_tensor, used_rows = made.execute([])
x_array = x_tensor.numpy()

with FusionDefinition() as more:
    more.add_output(more.define_tensor(shape=[1], contiguity=True, dtype=DataType.Int) + 7)
more_kernel = compiler.compile(more, [np.ones(1, np.int64)])
growing = HostProgram(
    ("x", "used"),
    ("y", "used"),
    (
        Allocate("grown", (1,), DataType.Int),
        LaunchKernel(more_kernel, ("used", "grown")),
        Copy("used", "grown"),
        *program.instructions,
    ),
)
captured = growing.capture([x_tensor, used_rows])  # a run: 10 rows
for rows in range(17, ROWS, 7):
    check(rows, captured.replay()[0])
print("one graph for all of them:", {name: n for name, n in captured.counters().items() if n})

# --- a selector out of range runs the default, which is nothing here, and is never silent: 66 rows would be case 4
captured.replay()
try:
    captured.synchronize()
except LaunchError as error:
    print("told:", str(error).splitlines()[0])
else:
    raise AssertionError("a stale output in silence")
