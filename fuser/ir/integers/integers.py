"""Interned integer expressions with value ranges: extents, indices, predicates, launch sizes.

    i = symbol("i", below=N)               an index in [0, N)
    (128*i + j) // 128                     normal form at construction: `i`, where 0 <= j < 128
    prove_less(i * M + m, N * M)           a sound proof from ranges and symbolic bounds

This module is the name under which the project uses them. The parts, each importing only those before it:

    integer_ranges       arithmetic of ranges
    integer_refusals     what sizes cannot be asked, and what is said then
    interning            tables of values that are one object while anyone has them
    integer_nodes        grammar, semantics, interning
    integer_attributes   what is derived from a node: sort key, divisor, weight, rank, symbols
    integer_sums         polynomial arithmetic without rules
    integer_proofs       proofs from ranges and symbolic bounds
    integer_rules        normal form: sums, division, recombination
    integer_choices      normal form: minimum, maximum, selection, differing bits
    integer_conditions   comparisons and their combinations; `RULES`
    integer_rebuild      substitution, parts to write and read
    integer_text         infix text
    integer_code         C text, compiled functions, SymPy
"""

from fuser.ir.integers.integer_attributes import DERIVED
from fuser.ir.integers.integer_choices import exclusive_or, maximum, minimum, select
from fuser.ir.integers.integer_code import (
    compile_function,
    compile_vectorized,
    to_c,
    to_sympy,
)
from fuser.ir.integers.integer_conditions import (
    RULES,
    all_of,
    any_of,
    conjuncts,
    equal,
    less,
    less_equal,
    negate,
    not_equal,
)
from fuser.ir.integers.integer_nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    AllOf,
    AnyOf,
    Compare,
    Cond,
    Const,
    FloorDiv,
    Int,
    Max,
    Min,
    Mod,
    Operations,
    Select,
    Sum,
    Symbol,
    SymbolQuotient,
    Truth,
    Xor,
    as_int,
    clear_memo,
    connect,
    const,
    symbol,
)
from fuser.ir.integers.integer_rebuild import (
    Substitution,
    from_parts,
    parts_of,
    pickle_node,
    replaced,
    substitute,
    substitute_condition,
)
from fuser.ir.integers.integer_rules import (
    Rule,
    add,
    ceil_div,
    divide,
    multiply,
    prove_divisible,
    prove_less,
    prove_less_equal,
    split_multiples,
)
from fuser.ir.integers.integer_text import text_of

__all__ = [
    "FALSE",
    "ONE",
    "RULES",
    "TRUE",
    "ZERO",
    "AllOf",
    "AnyOf",
    "Compare",
    "Cond",
    "Const",
    "FloorDiv",
    "Int",
    "Max",
    "Min",
    "Mod",
    "Rule",
    "Select",
    "Substitution",
    "Sum",
    "Symbol",
    "SymbolQuotient",
    "Truth",
    "Xor",
    "all_of",
    "any_of",
    "as_int",
    "ceil_div",
    "clear_memo",
    "compile_function",
    "compile_vectorized",
    "conjuncts",
    "const",
    "equal",
    "exclusive_or",
    "from_parts",
    "less",
    "less_equal",
    "maximum",
    "minimum",
    "negate",
    "not_equal",
    "parts_of",
    "prove_divisible",
    "prove_less",
    "prove_less_equal",
    "replaced",
    "select",
    "split_multiples",
    "symbol",
    "to_c",
    "to_sympy",
]

connect(
    Operations(
        add=add,
        multiply=multiply,
        divide=divide,
        substitute=substitute,
        substitute_condition=substitute_condition,
        pickle=pickle_node,
        text=text_of,
        derived={**DERIVED, "text": text_of},
    )
)
