"""How many machine instructions an op or an expr is, for estimates of the length of a kernel.

Counted in machine code of NVRTC 12.9 for sm_90a: what one op more adds to a kernel that applies it to an element, all its
branches included. A row that is not here is an instruction or two. Other versions and architectures differ by little, as the
mathematics is the same; nothing that has to be right rests on it.
"""

from __future__ import annotations

from fuser.ir.fusion.fusion import ExpSum, Pointwise, Random, Reduction, Tensor, TensorExpr, Welford
from fuser.ir.ops.dtypes import DataType, compute_dtype

_INSTRUCTIONS: dict[str, tuple[int, int]] = {
    "acos": (24, 129),
    "acosh": (79, 245),
    "asin": (22, 61),
    "asinh": (78, 263),
    "atan": (18, 51),
    "atan2": (63, 127),
    "atanh": (39, 164),
    "coarse_log1p": (7, 7),
    "cos": (24, 51),
    "cosh": (21, 59),
    "div": (6, 23),
    "erf": (17, 77),
    "erfc": (45, 166),
    "erfcinv": (39, 439),
    "erfinv": (43, 279),
    "exp": (8, 34),
    "exp2": (4, 37),
    "exp_of_negative": (8, 25),
    "expm1": (18, 71),
    "fmod": (71, 251),
    "lgamma": (215, 170),
    "log": (25, 81),
    "log10": (26, 84),
    "log1p": (23, 137),
    "log1p_of_fraction": (10, 137),
    "log2": (27, 84),
    "maximum": (1, 8),
    "minimum": (1, 8),
    "mod": (77, 261),
    "near_div": (3, 3),
    "near_reciprocal": (7, 7),
    "near_sqrt": (4, 4),
    "near_truediv": (3, 3),
    "nextafter": (28, 32),
    "pow": (86, 64),
    "pow_of_positive": (39, 64),
    "reciprocal": (13, 17),
    "remainder": (77, 261),
    "rsqrt": (4, 18),
    "sigmoid": (12, 87),
    "silu": (13, 96),
    "sin": (24, 51),
    "sinh": (35, 120),
    "sqrt": (12, 31),
    "tan": (87, 91),
    "tanh": (14, 98),
    "truediv": (6, 23),
}
"""Op: instructions for (Float, Double)."""

RANDOM_INSTRUCTIONS = 100
"""Of a random number: ten rounds of two wide products, two additions and two exclusive ors, and what is made of their bits."""


def op_instructions(op: str, compute: DataType) -> int:
    """Of one op in a compute dtype; of complex numbers those of their parts, which take about four of each."""
    floats, doubles = _INSTRUCTIONS.get(op, (1, 1))
    count = doubles if compute in (DataType.Double, DataType.ComplexDouble) else floats
    return 4 * count if compute.is_complex else count


_SUM, _STATISTIC, _EXP_SUM = 6, 16, 10
"""Of an element that is added to a sum with what rounding loses, to a mean and a sum of squares, or to a sum of exponentials
beside the exponential itself: the longest of the ways that lowering knows."""


def expr_instructions(expr: TensorExpr) -> int:
    """Of one element of an expr."""
    match expr:
        case Pointwise():
            operand = next((v for v in expr.inputs if isinstance(v, Tensor)), expr.output)
            return op_instructions(expr.op, compute_dtype(operand.dtype))
        case Random():
            return RANDOM_INSTRUCTIONS
        case Reduction():
            return _SUM
        case Welford():
            return _STATISTIC
        case ExpSum():
            return _EXP_SUM + op_instructions("exp", compute_dtype(expr.input.dtype))
        case _:
            return 1
