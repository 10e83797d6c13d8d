"""A schedule written by hand: the same algorithm as one serial thread, and spread over blocks and threads.

    python examples/03_hand_written_schedule.py

`execute` schedules by itself; `manual_execute` compiles the fusion exactly as its schedule says. Scheduling changes how a
kernel computes, never what it computes.
"""

from __future__ import annotations

import numpy as np

from fuser import FusionDefinition, ParallelType

x_array = np.random.default_rng(0).standard_normal((5, 1000)).astype(np.float32)
expected = np.exp(x_array.astype(np.float64)).sum(axis=1)

# --- one thread, serial loops: exp is computed where the sum needs it
# Verbs are called on tensors and axes, inside the definition, after its last op.
with FusionDefinition() as serial:
    x = serial.define_tensor(shape=[-1, -1], contiguity=True)
    total = serial.ops.sum(serial.ops.exp(x), dim=1)
    serial.add_output(total)
    serial.sched.inline_most()

(result,) = serial.manual_execute([x_array])
assert np.allclose(result, expected)

# --- a block per row, 128 threads each
with FusionDefinition() as parallel:
    x = parallel.define_tensor(shape=[-1, -1], contiguity=True)
    total = parallel.ops.sum(parallel.ops.exp(x), dim=1)
    parallel.add_output(total)

    loaded = x.cache_after()  # a copy in registers, with loops of its own
    total.split(1, 128)  # [rows, columns/128, 128]
    parallel.sched.transform_like(total)  # the same splits on every other tensor
    partial = total.rfactor([1])  # each of 128 threads adds up its own part; `total` joins the 128
    for tensor in (total, partial):
        tensor.axis(0).parallelize(ParallelType.grid_x)
    partial.axis(2).parallelize(ParallelType.block_x)
    total.axis(1).parallelize(ParallelType.block_x)
    parallel.sched.parallelize_like(partial)
    parallel.sched.inline_most()

(result,) = parallel.manual_execute([x_array])
assert np.allclose(result, expected)
print("loops of the partial sums:", partial.get_loop_domain())
print("loops of the loaded copy: ", loaded.get_loop_domain())

# The schedule is data apart from the fusion: a list of records, in order.
print(parallel.fusion.schedule)

# Where threads meet to join their sums, shuffles and barriers were put in.
print(parallel.ke.kernel.source)

# --- an access of four elements at once: what it needs is checked before anything runs
with FusionDefinition() as wide:
    x = wide.define_tensor(shape=[-1, -1], contiguity=True)
    doubled = x * 2.0
    wide.add_output(doubled)

    loaded = x.cache_after()
    doubled.split(1, 4)
    doubled.split(1, 128)  # [rows, columns/512, 128, 4]
    wide.sched.transform_like(doubled)
    for position, kind in enumerate((ParallelType.grid_y, ParallelType.grid_x, ParallelType.block_x)):
        doubled.axis(position).parallelize(kind)
    wide.sched.parallelize_like(doubled)
    loaded.axis(3).parallelize(ParallelType.vectorize)
    wide.sched.inline_most()

(result,) = wide.manual_execute([x_array])
assert np.array_equal(result, x_array * 2)
try:
    wide.manual_execute([x_array[:, :-1].copy()])
except RuntimeError as error:
    print("refused for 999 columns:", error)
else:
    raise AssertionError("rows of 999 floats do not begin at multiples of 16 bytes")
