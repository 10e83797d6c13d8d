"""Reductions, normalisations, dtypes, in-place updates and scalars.

python examples/02_reductions_and_dtypes.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from fuser import DataType, FusionDefinition

generator = np.random.default_rng(0)

# --- softmax: two reductions and what depends on them are one kernel
with FusionDefinition() as softmax:
    x = softmax.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.Float)
    e = softmax.ops.exp(x - softmax.ops.max(x, dim=1, keepdim=True))
    softmax.add_output(e / softmax.ops.sum(e, dim=1, keepdim=True))

x_array = generator.standard_normal((6, 300)).astype(np.float32)
(result,) = softmax.execute([x_array])
assert np.allclose(result.sum(axis=1), 1, atol=1e-6)
print("softmax:      ", len(softmax.program([x_array]).kernels), "kernel")

# --- 16-bit floats: operands are widened to Float, results stay Float until a cast
with FusionDefinition() as layer_norm:
    x = layer_norm.define_tensor(shape=[-1, -1], contiguity=True, dtype=DataType.BFloat16)
    variance, mean = layer_norm.ops.var_mean(x, dims=[1], correction=0, keepdim=True)
    normalized = (x - mean) * layer_norm.ops.rsqrt(variance + 1e-5)
    layer_norm.add_output(layer_norm.ops.cast(normalized, DataType.BFloat16))
    layer_norm.add_output(mean)

narrow = x_array.astype(ml_dtypes.bfloat16)
normalized_array, mean_array = layer_norm.execute([narrow])
wide = narrow.astype(np.float64)
expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
assert np.abs(normalized_array.astype(np.float64) - expected).max() < 2**-6
print("layer norm:   ", normalized_array.dtype, mean_array.dtype)

# --- integers: a sum of Int32 is Int (64 bits); reductions over any dims
with FusionDefinition() as integers:
    x = integers.define_tensor(shape=[-1, -1, -1], dtype=DataType.Int32)
    integers.add_output(integers.ops.sum(x, dims=[0, 2]))
    integers.add_output(integers.ops.max(x, dim=1))

cube = generator.integers(-(2**31), 2**31, (4, 5, 6), dtype=np.int32)
sums, largest = integers.execute([cube])
assert sums.dtype == np.int64
assert np.array_equal(sums, cube.sum(axis=(0, 2), dtype=np.int64))
assert np.array_equal(largest, cube.max(axis=1))
print("integers:     ", sums.dtype, largest.dtype, "in", len(integers.program([cube]).kernels), "kernels")

# --- a scalar input, and an output that updates an input in place: it is not returned
with FusionDefinition() as decay:
    weight = decay.define_tensor(shape=[-1], contiguity=True)
    rate = decay.define_scalar(dtype=DataType.Double)
    decay.add_output(weight * (1.0 - rate), alias_input=weight)

weights = np.ones(1000, np.float32)
assert decay.execute([weights, 0.25]) == []
assert (weights == 0.75).all()
print("in place:     ", weights[:3])

# --- any strides: a transposed view is read where it lies
(transposed,) = softmax.execute([x_array.T])
assert np.allclose(transposed.sum(axis=1), 1, atol=1e-6)
print("transposed:   ", transposed.shape, "from strides", x_array.T.strides)
