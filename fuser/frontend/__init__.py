"""Frontend: what a fusion is written with. Everything that users touch while they define, schedule and run one.

    definition.py     `FusionDefinition`: the open definition, and the calls that run it (`execute`, `explain`,
                      `program`, `manual_execute`)
    define.py         inputs and constants
    ops.py            the ops by name; pointwise ops and reductions come from the rows of ir/op_table.py
                      (elementwise.py, reductions.py), the others from modules by kind: scans.py, shape_ops.py,
                      reshape_ops.py, resize_ops.py, indexing_ops.py, random_ops.py, factories.py, library_calls.py
    handles.py        what users hold: interned handles of values, axes and exprs; methods.py and operators.py put ops
                      on tensors
    schedule.py       `fd.sched`; schedule_access.py is the one place where handles meet `ScheduleBuilder`
    validate.py       results against the reference evaluator (reference.py) with the tolerances of ir/tolerances.py
    repro_script.py   programs that define a fusion again

A definition builds `ir.Fusion` through `FusionBuilder`. Promotion is explicit in it: ops insert casts. Every op goes
through `@operation` (operation.py), which words a call that does not fit and adds the user's file and line.

The text of an op's overloads is written once: errors show it, `inspect.signature` and `help` read it (signatures.py),
and the stubs by which type checkers and editors know ops, tensors and the package are generated from it
(`tools/generate_stubs.py`, `make stubs`), as is docs/ops.md.

A name that does not exist, imported or asked for, and a call of what is no function are answered with what to write
instead (advice.py; missing_names.py, unbound_calls.py and ir/named_enums.py below).
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
