"""IR: the data types that stages hand to one another, and the walks over them that more than one stage needs.

Nothing here imports another folder of the project, nor the options, and no two files import each other; no heuristics
live here. Each module that defines an IR opens with its grammar. Nodes are frozen records (`fuser.records`). They
compare by structure, and integer expressions are interned; values, iteration domains and exprs of a fusion compare by
identity, and values have stable names. Fusions, schedules and host programs print as Python that rebuilds them.

Fusion: the algorithm in SSA form, without a schedule
    fusion.py            grammar and semantics; values in tensors.py, exprs in fusion_exprs.py. fusion_builder.py makes
                         one, verify_fusion.py checks it, print_fusion.py prints it
    op_table.py          one row for each pointwise op (pointwise_op.py), reduction and scan. To add an op, add a row: its
                         method, dtype rule, simulator, CUDA text, tests and docs follow. approximate_ops.py and exact_ops.py
                         have rows that only the optimizer uses
    dim_pairs.py         the only definition of which dim of an operand is which dim of a result
    library_ops.py       one row for each op that a library computes: operands, the rule for its results, why no kernel
                         has it. The rule shapes results in a definition, is what the verifier asks for, and checks the
                         slots of a `CallLibrary`. No dim of a result is one of an operand: a library's loops are its
                         own. library_regions.py has the parts between calls
    random_numbers.py    Philox: a number is a function of seed, offset and the logical index of its element. So no
                         schedule, stride or cut changes a number, and computing one again gives it again. A random expr
                         without a state of its own takes the generator's (`GENERATOR_STATE`): two scalars that the
                         execution draws and puts behind the inputs, no part of any key, to which it adds its ordinal
    output_layout.py     memory order of outputs, a function of the definition alone
    concretize.py        what sizes decide of a fusion: dims of one element, resolved reshapes
    Extents are integer expressions over symbols of the inputs' sizes. Extents that an op needs equal, and that are not
    equal by structure, are constraints, checked when inputs are bound. What follows from the structure alone is found
    once, however many shapes ask for it (memoized.py). A maximum and the sum of the exponentials below it are one reduction
    with two results (`ExpSum`); optimize/fuse_exp_sums.py finds it, and a scheduler that holds the row on chip may take
    it apart again (two_pass.py).

Integers
    integers.py          interned expressions with value ranges, in normal form when they are made: `(128*i + j) // 128`
                         is `i` at once. They prove predicates away, and are launch-plan arithmetic, compiled to Python
                         code on first use. SymPy only prints and proves again (proofs.py)
    number_trace.py      a calculation with numbers, kept as one function: what binds new sizes (host_ir/families.py)

Schedule
    schedule.py          the verbs, as records that name tensors and positions, so that a schedule replays on any copy
                         of its fusion. Handles of the frontend and schedulers use the same `ScheduleBuilder`: state and
                         queries in scheduled_fusion.py, verbs in schedule_transforms.py, schedule_memory.py,
                         schedule_tensors.py, schedule_propagation.py. verify_schedule.py has the rules
    iteration_graph.py   which iteration domains are the same. Loop sharing (inlining.py), indices
                         (lowering/loop_nests/indexing.py) and predicates are walks over this graph
    device_info.py       the machine model: capacities, rates and latencies of a device as plain data
    fact_collection.py   which facts a schedule asks for, and which hold; facts.py defines them

Kernel: loops, registers and shared arrays, loads and stores, barriers
    kernel.py            grammar and semantics; nodes in kernel_statements.py and kernel_values.py. verify_kernel.py
                         checks it, print_kernel.py prints it
    kernel_accesses.py   what a statement reads and writes, for all passes; statement_scopes.py with which threads it
                         communicates; uniformity.py what differs between threads
    launch_plan.py       how a launch is computed from its arguments; extent_steps.py what the host computes for it
    record_files.py      records as bytes and back: what is kept on disk, pickled and saved
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
