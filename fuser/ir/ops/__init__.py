"""Ops as rows of a table, and element types.

To add an op, add a row to op_table.py: its method, dtype rule, simulator, CUDA text, tests and docs follow.

    op_table.py            all pointwise ops; rows of reductions and scans are in reductions.py and scans.py
    approximate_ops.py, exact_ops.py   pointwise ops that only the optimizer uses
    pointwise_op.py        what a row says of a pointwise op
    promotion.py           dtype rules
    cuda_spelling.py       CUDA text of ops, types, literals and casts
    numpy_functions.py     NumPy semantics, the reference; references.py has special functions that NumPy lacks
    dtypes.py, enums.py    element types and other enumerations of the public surface (named_enums.py: wrong names)
"""
