"""Frontend: what a fusion is written with. Everything that users touch while they define, schedule and run one.

From the top down; a file imports only what stands further down (a contract in pyproject.toml says so, file by file):

    definition.py     `FusionDefinition`: the open definition, and the calls that run it (`execute`, `explain`,
                      `program`, `manual_execute`); lru_cache.py shares what was compiled between definitions
    around a fusion   schedule.py is `fd.sched`; validate.py compares results with the reference evaluator (reference.py) by
                      the tolerances of ir/fusion/tolerances.py; translate.py and repro_script.py write programs that
                      define a fusion again
    fusion_handle.py  `Fusion`, by which handles come into being, and `FusionGuard`
    complete_handles.py   puts on the classes of handles what is made of ops and schedules, from the tables of operators.py,
                      subscripts.py, methods.py, verbs.py (where handles meet `ScheduleBuilder`) and unknown_attributes.py
    ops.py            the ops by name, from modules by kind; pointwise ops and reductions come from the rows of
                      ir/ops/op_table.py: elementwise.py, reductions.py; scans.py, shape_ops.py, reshape_ops.py, resize_ops.py,
                      indexing_ops.py, random_ops.py, factories.py, triangles.py, library_calls.py. Beside them define.py:
                      inputs and constants
    operation.py      `@operation` and the checks of arguments, for every op; active_fusion.py: the fusion of what has no
                      operands
    handles.py        what users hold: interned handles of values, axes and exprs, and `Owner`, a fusion as they know it
    texts and tables  advice.py, signatures.py, argument_types.py, heuristic_params.py

A definition builds `ir.Fusion` through `FusionBuilder`. Promotion is explicit in it: ops insert casts. Every op goes
through `@operation` (operation.py), which words a call that does not fit and adds the user's file and line.

The text of an op's overloads is written once: errors show it, `inspect.signature` and `help` read it (signatures.py),
and the stubs by which type checkers and editors know ops, tensors and the package are generated from it
(`tools/generate_stubs.py`, `make stubs`), as is docs/ops.md.

A name that does not exist, imported or asked for, and a call of what is no function are answered with what to write
instead (advice.py, unknown_attributes.py, package_advice.py; missing_names.py, unbound_calls.py and ir/ops/named_enums.py
below).
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
