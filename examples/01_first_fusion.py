"""A first fusion: define it, run it, look at what was made of it.

    python examples/01_first_fusion.py

NumPy arrays run on the GPU if there is one, else on the simulator, which executes the same kernel in NumPy.
"""

from __future__ import annotations

import numpy as np

from fuser import FusionDefinition

# What is computed. -1 is an extent that is known when the fusion runs; ops build expressions, nothing is computed yet.
with FusionDefinition() as fd:
    x = fd.define_tensor(shape=[-1, -1], contiguity=True)
    bias = fd.define_tensor(shape=[-1], contiguity=True)
    y = x + fd.ops.broadcast(bias, [True, False])
    fd.add_output(fd.ops.relu(y) * 2.0)

# Running it: one array per input, in order; one array per output.
generator = np.random.default_rng(0)
x_array = generator.standard_normal((3, 1000)).astype(np.float32)
bias_array = generator.standard_normal(1000).astype(np.float32)
(result,) = fd.execute([x_array, bias_array])
assert np.array_equal(result, np.maximum(x_array + bias_array, 0) * 2)
print("result:", result.shape, result.dtype)

# The same definition serves any sizes; the kernel is taken from the cache where it fits.
for rows, columns in ((5, 1000), (7, 64), (7, 65), (1, 1), (0, 8)):
    (result,) = fd.execute([np.ones((rows, columns), np.float32), np.ones(columns, np.float32)])
    assert result.shape == (rows, columns)
    assert (result == 4).all()
print("kernels:", fd.fec.counters())

# The definition prints as Python that rebuilds it.
print(fd)

# Every stage of the compilation, by name; `print(explanation)` shows all of them.
explanation = fd.explain([x_array, bias_array], file=False)
print("stages:", ", ".join(explanation.stages))
print(explanation.stages["kernel.cu"])
