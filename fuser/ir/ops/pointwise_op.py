"""`PointwiseOp`, what the op table says of an op that is applied element by element."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from fuser.ir.ops.cuda_spelling import ConstantRule, CudaRule
from fuser.ir.ops.dtypes import DataType, kind_of
from fuser.ir.ops.numpy_functions import NumpyFunction
from fuser.records import record


class DtypeRule(Enum):
    """How the dtype of a result follows from the operands (the reading conventions of the DSL contract)."""

    KEEP = "the dtype of the first operand"
    PROM = "the promoted dtype; 16-bit floats become Float"
    FLT = "as PROM, then integers and Bool become Float"
    FULL = "the promoted dtype, which must be Float or Double"
    BOOL = "Bool; operands are compared in their PROM dtype"
    LOGICAL = "Bool; operands are cast to Bool first"
    MAGNITUDE = "the dtype of the operand; its real part's dtype for complex"
    REAL_PART = "the dtype of a complex operand's parts"
    COMPLEX_PAIR = "the complex type of two equal real operands"
    SELECT = "the promoted dtype of the two values, not widened"
    CAST = "the dtype asked for"

    __hash__ = object.__hash__


class Samples(NamedTuple):
    """Where generated inputs of one operand are drawn from.

    Floats come from [low, high], integers from [int_low, int_high]. `wide` widens the float range to magnitudes
    beyond those that a narrower type holds exactly, for ops whose results are whole numbers. `specials` says
    whether nan, infinities, zeros, subnormals and extremes are mixed in.
    """

    low: float = -8.0
    high: float = 8.0
    int_low: int = -100
    int_high: int = 100
    wide: bool = False
    specials: bool = True


@record
class PointwiseOp:
    """An op applied element by element.

    kinds       letters of the operand kinds it accepts (`dtypes.kind_of`): f i b c u
    refusal     message for other kinds
    numpy       arrays of the compute dtype -> array of `result_dtype(row, compute dtype)`
    cuda        compute dtype -> text
    ulp         bound on the error for (Float, Double) computation, in ulp beyond correct rounding; 0 = correctly
                rounded. Sources: the tables of maximum errors in the CUDA C++ programming guide, for formulas of several
                steps the sum of their parts. Float division rounds correctly but for results below 2**-100
    complex_ulp the same for (ComplexFloat, ComplexDouble), relative to the magnitude of the result
    exact       the result is one of a few exactly known values: references are computed in the compute dtype itself
    magnitude   for ops with cancellation, errors are measured in ulp of this function of the inputs
    samples     per operand
    constant    (compute dtype, number) -> text for an operand on the right that is this constant; None: the general text
    in_own_type 16-bit operands are not widened first: a conversion may lose what the op looks at (the sign of a nan)
    trivial     wrong results that cannot be told from right ones: pairs of a wrong result (`zeros`, `first`, `lower`)
                and the kinds of operand dtype for which that is so
    """

    name: str
    arity: int
    rule: DtypeRule
    doc: str
    numpy: NumpyFunction
    cuda: CudaRule
    kinds: str = "fib"
    refusal: str = ""
    ulp: tuple[float, float] = (0.0, 0.0)
    complex_ulp: tuple[float, float] = (0.0, 0.0)
    exact: bool = False
    magnitude: NumpyFunction | None = None
    samples: tuple[Samples, ...] = ()
    trivial: tuple[tuple[str, str], ...] = ()
    parameters: tuple[str, ...] = ()
    symbol: str = ""
    commutative: bool = False
    primitive: bool = True
    in_own_type: bool = False
    constant: ConstantRule | None = None

    @property
    def complex(self) -> bool:
        """True if complex operands are supported."""
        return "c" in self.kinds

    def ulp_bound(self, compute: DataType) -> float:
        """The bound for a compute dtype; 0 for integers and Bool."""
        match compute:
            case DataType.Float:
                return self.ulp[0]
            case DataType.Double:
                return self.ulp[1]
            case DataType.ComplexFloat:
                return self.complex_ulp[0]
            case DataType.ComplexDouble:
                return self.complex_ulp[1]
            case _:
                return 0.0

    def is_trivial(self, wrong: str, dtype: DataType) -> bool:
        """Whether `wrong` (`zeros`, `first`, `lower`) may equal the right result for operands of `dtype`."""
        return any(name == wrong and kind_of(dtype) in kinds for name, kinds in self.trivial)


def argument_dtypes(row: PointwiseOp, compute: DataType) -> tuple[DataType, ...]:
    """What the arguments of one evaluation in `compute` have as dtype: `compute`, except `where`'s Bool condition."""
    if row.rule is DtypeRule.SELECT:
        return (DataType.Bool, *(compute,) * (row.arity - 1))
    return (compute,) * row.arity
