"""IR: the data types that stages hand to one another, and the walks over them that more than one stage needs.

Nothing here imports another folder of the project, nor the options, and no two files import each other; no heuristics
live here. Each module that defines an IR opens with its grammar. Nodes are frozen records (`fuser.records`). They
compare by structure, and integer expressions are interned; values, iteration domains and exprs of a fusion compare by
identity, and values have stable names. Fusions, schedules and host programs print as Python that rebuilds them.

From the top down; a room imports rooms below it only (pyproject.toml):

    kernel/              kernel IR, the launch plan, and what follows from statements: accesses, scopes, uniformity
    schedule/            schedules as records of verbs, and the state of a fusion that they are applied to
    fusion/              the algorithm in SSA form, without a schedule; which dims of it are the same
    ops/                 the op table: one row for each pointwise op, reduction and scan; element types
    integers/            interned integer expressions: extents, indices, predicates, launch sizes

    device_info.py       the machine model: capacities, rates and latencies of a device as plain data
    facts.py, fact_collection.py   what a kernel may assume about its arguments; which facts a schedule asks for
    record_files.py      records as bytes and back: what is kept on disk, pickled and saved
"""

from typing import TYPE_CHECKING

from fuser.missing_names import refers_to_package

if not TYPE_CHECKING:
    __getattr__ = refers_to_package(__name__)
