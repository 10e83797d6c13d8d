"""Fusion IR: the algorithm in SSA form, without a schedule.

Extents are integer expressions over symbols of the inputs' sizes. Extents that an op needs equal, and that are not equal by
structure, are constraints, checked when inputs are bound. What follows from the structure alone is found once, however many
shapes ask for it (memoized.py). A maximum and the sum of the exponentials below it are one reduction with two results
(`ExpSum`); optimize/fuse_exp_sums.py finds it, and a scheduler that holds the row on chip may take it apart again
(ir/schedule/two_pass.py).

The IR
    fusion.py                grammar and semantics; values in tensors.py, exprs in fusion_exprs.py
    fusion_builder.py        makes a fusion expr by expr: values in fusion_values.py, what moves elements in fusion_views.py
    verify_fusion.py         its rules, with verify_fusion_exprs.py and verify_fusion_dims.py
    print_fusion.py          its text; user_names.py has the names of the user's program
    fusion_equality.py       structural equality
    sub_fusion.py            some exprs as a fusion of their own; live_order.py is the canonical order of exprs
Dims
    dim_pairs.py             the only definition of which dim of an operand is which dim of a result
    iteration_graph.py       which iteration domains are the same. Loop sharing (ir/schedule/inlining.py), indices
                             (lowering/loop_nests/indexing.py) and predicates are walks over this graph
    reshape_dims.py          which dims of a reshape follow from which
    views.py                 exprs whose result is its operand's memory seen with other sizes and strides
    output_layout.py         memory order of outputs, a function of the definition alone
Sizes
    concretize.py            what sizes decide of a fusion: dims of one element, few elements, resolved reshapes
    reduced_again.py         what a tensor that a reduction needs is: for few elements, here and in optimize/
    extent_binding.py        values of extent symbols and scalars, from the inputs
    scalar_evaluation.py     host arithmetic on scalars
Exprs that a library computes
    library_ops.py           one row for each: operands, the rule for its results, why no kernel has it. The rule shapes results
                             in a definition, is what the verifier asks for, and checks the slots of a `CallLibrary`. No dim of
                             a result is one of an operand: a library's loops are its own
    library_calls.py, attention_rules.py   what rows are written in; the rules of attention
    library_regions.py       the exprs between calls
What is known of exprs
    op_instructions.py       machine instructions of an expr, for estimates
    tolerances.py            how far results may be off
    random_numbers.py        Philox: a number is a function of seed, offset and the logical index of its element. So no
                             schedule, stride or cut changes a number, and computing one again gives it again. A random
                             expr without a state of its own takes the generator's (`GENERATOR_STATE`): two scalars
                             that the execution draws and puts behind the inputs, no part of any key, to which it adds
                             its ordinal
"""
