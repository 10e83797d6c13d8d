"""Which outputs may be written straight into the storage of the input they alias.

An output written into an input's storage must not overtake a read: the thread that writes an element must be the only one that
reads it, and its reads must come first. That is so if for every expr that reads the input
    * input and output have the same dims, so that an element has one index in both, and no slice, pad or gather reads it;
    * every parallel axis of the launch runs over the same group in the reading and in the writing loop nest, so that an element
      belongs to one thread, the same in both;
    * inside the loops that both share, the read stands before the write.
No other argument may overlap that input: the facts say so, and a launch checks them. Other outputs go to a temporary that is
copied afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

from fuser.ir.dim_pairs import displaced_dims
from fuser.ir.enums import ParallelType
from fuser.ir.facts import Disjoint
from fuser.ir.fusion import Tensor, TensorExpr, tensor_inputs, tensor_outputs
from fuser.ir.iteration_graph import Group
from fuser.ir.kernel import Buffer, Stmt, child_bodies
from fuser.ir.kernel_accesses import stmt_reads, stmt_writes
from fuser.lowering.context import LoweringContext

Path = tuple[int, ...]


def in_place_outputs(context: LoweringContext, body: tuple[Stmt, ...], arguments: dict[str, Buffer]) -> tuple[str, ...]:
    """Names of the outputs, of a body as build_loop_nests makes it, that need no temporary. `arguments`: buffers by tensor."""
    found: list[str] = []
    for name, source in sorted(context.alias_of.items()):
        output = context.state(name).tensor
        if name in context.builder.input_names:
            continue
        if not _stands_apart(context, source) or not _same_elements(context, source, output):
            continue
        if _reads_first(body, arguments.get(source.name), arguments.get(name)):
            found.append(name)
    return tuple(found)


def _stands_apart(context: LoweringContext, source: Tensor) -> bool:
    """Whether no other argument's bytes overlap the storage that would be written: a fact, which the launch checks."""
    others = [t for t in context.fusion.input_tensors if t is not source and not t.is_cpu]
    return all(Disjoint(source.name, t.name) in context.facts for t in others)


def _same_elements(context: LoweringContext, source: Tensor, output: Tensor) -> bool:
    group = context.graph.group
    if source.ndim != output.ndim:
        return False
    if any(group(a) is not group(b) for a, b in zip(source.visible, output.visible, strict=True)):
        return False
    writer = _workers(context, output.name, writes=True)
    if writer is None:
        return False
    if any(_is_displaced(e, source) for e in context.builder.exprs):
        return False
    readers = {tensor_outputs(e)[0].name for e in context.builder.exprs if source in tensor_inputs(e)}
    return all(_workers(context, reader) == writer for reader in readers)


def _is_displaced(expr: TensorExpr, source: Tensor) -> bool:
    """Whether an expr reads `source` at other indices than its own."""
    if source not in tensor_inputs(expr):
        return False
    return any(True for target in tensor_outputs(expr) for _ in displaced_dims(expr, source, target))


def _workers(context: LoweringContext, name: str, *, writes: bool = False) -> dict[ParallelType, Group] | None:
    """What each parallel axis of the launch runs over in a tensor's loop nest; None if several threads do the same work.

    `writes`: where the result is written, after a reduction.
    """
    state = context.state(name)
    if context.sharing.promotions.get(context.sharing.leader[name]):
        return None
    found: dict[ParallelType, Group] = {}
    for axis, group in zip(state.loop, context.loops(name), strict=True):
        p = state.parallel_type(axis)
        if p.is_thread and not group.is_broadcast and not (writes and axis.is_reduction):
            found[p] = group
    active = {p for p, size in context.sizes.items() if not (size.is_const and size.value == 1)}
    return found if active <= found.keys() else None


def _reads_first(body: tuple[Stmt, ...], source: Buffer | None, output: Buffer | None) -> bool:
    """Whether every read of `source` stands before every write of `output` inside the loops that they share."""
    reads: list[Path] = []
    writes: list[Path] = []

    def visit(stmts: Sequence[Stmt], path: Path) -> None:
        for i, stmt in enumerate(stmts):
            here = (*path, i)
            if any(b is source for b, _ in stmt_reads(stmt)):
                reads.append(here)
            if any(b is output for b, _ in stmt_writes(stmt)):
                writes.append(here)
            for inner in child_bodies(stmt):
                visit(inner, here)

    visit(body, ())
    return all(read <= write for read in reads for write in writes)
