"""Integer expressions: extents, indices, predicates and launch sizes.

They are interned, have value ranges, and are in normal form when they are made: `(128*i + j) // 128` is `i` at once. They prove
predicates away, and are launch-plan arithmetic, compiled to Python code on first use. SymPy only prints and proves again.

    integers.py              what other folders import: expressions, conditions, and what is asked of them
    proofs.py                FUSER_VERIFY=proofs: claims that lowering rests on, and SymPy's opinion of them
    number_trace.py          a calculation with numbers, recorded as one function: what binds new sizes
    integer_code.py          C text, Python and NumPy functions of an expression
    integer_conditions.py    comparisons, conjunctions, disjunctions, and the table of all rules
    integer_rules.py         arithmetic in normal form, and the rule tables that make it
    integer_choices.py       minimum, maximum, selection, exclusive or
    integer_proofs.py        proofs that an expression is nonnegative
    integer_rebuild.py       substitution, and nodes made again from files
    integer_attributes.py    sort key, known divisor, rank and symbols of a node, found once
    integer_sums.py          polynomial arithmetic without rules
    integer_text.py          infix text
    integer_nodes.py         grammar, ranges, interning (interning.py)
    integer_ranges.py        arithmetic of ranges
    integer_refusals.py      what cannot be asked of sizes while a program is written
    extent_bounds.py         what bounds of an extent say of the symbol in it
    axis_range.py            the words for an axis that a tensor does not have
    hashing.py               SHA-256 without OpenSSL
"""
