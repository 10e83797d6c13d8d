"""Codegen: kernel IR becomes CUDA text; equal kernels give equal text. Nothing is optimised here but how ptxas takes tests.

`generate_cuda` (generate.py) puts the text together: what stands around the body (preamble.py), statements
(statements.py; reads under tests: tested_reads.py, tests that are left out: untested_values.py), values (values.py; the
spelling of ops is ir/ops/cuda_spelling.py), names (names.py).

The text includes nothing. 16-bit types, complex numbers and ops of several steps are device functions of this project,
and only those that are used are written (device_functions.py, float_functions.py, complex_functions.py,
random_functions.py, division_functions.py, copy_functions.py, post_functions.py, acquire_functions.py, unaligned_functions.py).
float_functions.py spells the float functions that would otherwise keep a 16-bit kernel from the speed of memory:
`python -m benchmarks.instruction_count` shows the margin, and `tests/gpu` holds them to their bounds over all floats.
Exponentials of Doubles come from a table in shared memory where a thread computes many (exponentials.py).

Indices are 32-bit where the facts bound them, else 64-bit (`Kernel.index_bits`). Launch bounds are macros,
FUSER_MAX_THREADS and FUSER_MIN_BLOCKS, so that one text serves every block size: see runtime/kernels/variants.py.
"""
