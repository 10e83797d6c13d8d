"""A host program built by hand over compiled kernels, and a kernel in raw CUDA C++.

    python examples/04_host_program_with_raw_kernel.py

`execute` builds such programs by itself. By hand, kernels of this compiler and kernels of your own run side by side, with
the memory between them under your control. Raw CUDA needs a GPU: the simulator runs kernel IR, and raw source has none.
"""

from __future__ import annotations

import numpy as np

from fuser import (
    Allocate,
    DataType,
    Deallocate,
    FusionDefinition,
    HostProgram,
    KernelCompiler,
    LaunchKernel,
    LaunchParams,
    NoDeviceError,
    RtcKernel,
    extent,
)

generator = np.random.default_rng(0)
x_array = generator.standard_normal((64, 500)).astype(np.float32)

# --- two kernels, each from a fusion of its own, compiled for the device at hand
with FusionDefinition() as squares:
    x = squares.define_tensor(shape=[-1, -1], contiguity=True)
    squares.add_output(x * x)

with FusionDefinition() as row_sums:
    x = row_sums.define_tensor(shape=[-1, -1], contiguity=True)
    row_sums.add_output(row_sums.ops.sum(x, dim=1))

compiler = KernelCompiler()
square_kernel = compiler.compile(squares, [x_array])
sum_kernel = compiler.compile(row_sums, [x_array])
assert square_kernel.launch_plan is not None
print("grid of the first kernel:", ", ".join(map(str, square_kernel.launch_plan.grid)))

# --- the program: sizes are expressions of the inputs' extents, so it serves any shape its kernels do
rows, columns = extent("x", 0), extent("x", 1)
program = HostProgram(
    inputs=("x",),
    outputs=("sums",),
    instructions=(
        Allocate("squared", (rows, columns), DataType.Float),
        LaunchKernel(square_kernel, ("x", "squared")),
        Allocate("sums", (rows,), DataType.Float),
        LaunchKernel(sum_kernel, ("squared", "sums")),
        Deallocate("squared"),
    ),
)
print(program)
(sums,) = program.run([x_array])
assert np.allclose(sums, (x_array.astype(np.float64) ** 2).sum(axis=1))
program.run([x_array[:10]])
print("counters:", {name: n for name, n in program.counters().items() if n})

# --- raw CUDA C++: compiled here, with its parameters read from the source
SOURCE = """
extern "C" __global__ void __launch_bounds__(FUSER_MAX_THREADS)
add_scaled(float* y, const float* x, float scale, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += scale * x[i];
}
"""
raw = RtcKernel(SOURCE, "add_scaled").compile()
print("raw kernel:", ", ".join(str(p.name) for p in raw.parameters), "in", raw.kernel.resources)

mixed = HostProgram(
    inputs=("x", "y"),
    outputs=("squared",),
    instructions=(
        Allocate("squared", (rows, columns), DataType.Float),
        LaunchKernel(square_kernel, ("x", "squared")),
        LaunchKernel(raw.kernel, ("y", "squared", 0.5, rows * columns), LaunchParams(8, 1, 1, 256, 1, 1)),
    ),
)
y_array = np.ones_like(x_array)
try:
    mixed.run([x_array, y_array])
except NoDeviceError as error:
    print(f"not run, a raw kernel needs a GPU: {error}")
else:
    assert np.allclose(y_array, 1 + 0.5 * x_array**2)
    print("ran the raw kernel on the GPU: y is", y_array[0, :3])
    # Alone, without a program; the result is the time in milliseconds between events around the launch.
    flat_x, flat_y = x_array.ravel(), y_array.ravel()
    elapsed = raw.run([flat_y, flat_x, 1.0, flat_x.size], LaunchParams(8, 1, 1, 256, 1, 1))
    print(f"alone: {elapsed * 1e3:.1f} us")
