"""Put the kernel together: parameters, launch plan, shared memory.

After: a `Kernel` whose plan computes grid, block, shared memory and workspaces from the extents of the arguments. The
parameters are the tensors used, workspaces, semaphores, the extents and strides that the body mentions, divisors made of them,
and the scalars it reads.

Stands last: only now is it known what the body mentions.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

from fuser.errors import SchedulingError
from fuser.ir.facts import LoopBound
from fuser.ir.fusion.fusion import GENERATOR_STATE, ExtentOp, Scalar, ScalarOp, Tensor
from fuser.ir.integers.integers import ONE, ZERO, Cond, FloorDiv, Int, Mod, Symbol, parts_of, select
from fuser.ir.integers.proofs import Claim, ProofLog
from fuser.ir.kernel.extent_steps import extent_steps
from fuser.ir.kernel.kernel import (
    THREAD_SYMBOLS,
    AtomicAdd,
    ClusterArrive,
    DivisorParameter,
    ExtentParameter,
    If,
    Kernel,
    Parameter,
    Receive,
    RemoteStore,
    ScalarParameter,
    SemaphoreParameter,
    SpinWait,
    Stmt,
    TensorParameter,
    WorkspaceParameter,
    walk,
)
from fuser.ir.kernel.kernel_accesses import buffers_read, buffers_written, stmt_integers
from fuser.ir.kernel.launch_plan import (
    LIMIT_REMEDIES,
    Binding,
    BlockExchange,
    ExtentOf,
    LaunchPlan,
    ScalarOf,
    ScalarStep,
    StrideOf,
    Workspace,
)
from fuser.ir.kernel.statement_scopes import defined_symbol
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import BLOCK_TYPES, GRID_TYPES, ParallelType
from fuser.lowering.collectives.expand_collectives import Expanded
from fuser.lowering.context import LoweringContext
from fuser.lowering.kernel_rewrites import substitute_symbols
from fuser.lowering.loop_nests.build_loop_nests import LoweredBody
from fuser.lowering.memory.allocate_shared import SharedLayout
from fuser.runtime.kernels.variants import rung_of

_GRID_LIMITS = {ParallelType.grid_x: 2**31 - 1, ParallelType.grid_y: 65535, ParallelType.grid_z: 65535}


def finish_kernel(
    name: str,
    body: tuple[Stmt, ...],
    context: LoweringContext,
    lowered: LoweredBody,
    expanded: Expanded,
    layout: SharedLayout,
) -> Kernel:
    """The kernel of a lowered body."""
    # Inside lowering a parallel index knows the extent of its axis; in the kernel it is the hardware's.
    known = body
    body = substitute_symbols(body, {s: THREAD_SYMBOLS[p] for p, s in context.threads.items()})
    if context.proofs is not None:
        _log_renaming(known, body, context.proofs)
    fusion = context.fusion
    inputs = [t.name for t in fusion.input_tensors if not t.is_cpu]
    outputs = [t for t in fusion.output_tensors if t.name not in context.builder.input_names]
    arguments = (*inputs, *(t.name for t in outputs))
    workspaces = [*lowered.workspaces, *expanded.workspaces]
    used = buffers_read(body) | buffers_written(body)
    parameters: list[Parameter] = [
        TensorParameter(buffer, tensor, arguments.index(tensor), tensor not in inputs)
        for tensor, buffer in sorted(lowered.arguments.items(), key=lambda item: arguments.index(item[0]))
        if buffer in used
    ]
    parameters += [WorkspaceParameter(b) for b in workspaces]
    if expanded.semaphores is not None:
        parameters.append(SemaphoreParameter(expanded.semaphores))
    sources = _symbol_sources(context, arguments)
    mentioned = _free_symbols(body).union(*(offset.symbols for offset in layout.offsets.values()))
    parameters += [ExtentParameter(s) for s in sorted(mentioned, key=lambda s: s.name) if s.name in sources]
    if context.index_bits == 32:
        parameters += [DivisorParameter(d) for d in divisors_of(body, sources)]
    parameters += [ScalarParameter(n, d) for n, d in lowered.scalars.items()]
    grid = tuple(context.sizes.get(p, ONE) for p in GRID_TYPES)
    block = tuple(context.sizes.get(p, ONE) for p in (ParallelType.block_x, ParallelType.block_y, ParallelType.block_z))
    _check_limits(context, grid, block)
    shapes = tuple(tuple(_extent(context, t, d) for d in range(t.ndim)) for t in outputs)
    strides = tuple(tuple(context.strides(t)[d] for d in range(t.ndim)) for t in outputs)
    plan_expressions: list[Int] = [
        *grid,
        *block,
        layout.size,
        *(b.size for b in workspaces),
        *(e for s in shapes for e in s),
        *(e for s in strides for e in s),
    ]
    if expanded.semaphores is not None:
        plan_expressions.append(expanded.semaphores.size)
    for fact in context.facts:
        if isinstance(fact, LoopBound):
            plan_expressions += fact.products
    needed = {s for e in plan_expressions for s in e.symbols} | mentioned
    bindings = tuple(
        Binding(s, sources[s.name])
        for s in sorted(needed, key=lambda s: (s.name, str(s.multiple)))
        if s.name in sources
    )
    scalar_names = [*lowered.scalars, *(b.source.name for b in bindings if isinstance(b.source, ScalarOf))]
    plan = LaunchPlan(
        tensor_arguments=arguments,
        scalar_arguments=(
            *(s.name for s in fusion.input_scalars),
            *(t.name for t in fusion.input_tensors if t.is_cpu),
            *(name for name in GENERATOR_STATE if name in lowered.scalars),
        ),
        bindings=bindings,
        scalars=scalar_steps(context, scalar_names, arguments, sources),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
        shared_bytes=layout.size,
        workspaces=tuple(Workspace(b.name, b.dtype, b.size) for b in workspaces),
        semaphores=expanded.semaphores.size if expanded.semaphores is not None else None,
        cooperative=lowered.cooperative,
        output_shapes=shapes,
        output_strides=strides,
        ranks=(*(t.ndim for t in fusion.input_tensors if not t.is_cpu), *(t.ndim for t in outputs)),
        dtypes=(*(t.dtype for t in fusion.input_tensors if not t.is_cpu), *(t.dtype for t in outputs)),
        in_place=lowered.in_place,
        cluster=_cluster(context),
        exchanges=block_exchanges_of(body),
    )
    min_blocks = _min_blocks(context.builder.blocks_per_sm, block)
    return Kernel(name, tuple(parameters), body, plan, context.index_bits, layout.offsets, min_blocks=min_blocks)


def block_exchanges_of(body: tuple[Stmt, ...]) -> tuple[BlockExchange, ...]:
    """How blocks exchange results in a body whose collectives are expanded."""
    found: set[BlockExchange] = set()
    for stmt in walk(body):
        match stmt:
            case ClusterArrive() | RemoteStore():
                found.add(BlockExchange.cluster)
            case Receive():
                found.add(BlockExchange.flagged_stores)
            case SpinWait():
                found.add(BlockExchange.all_blocks)
            case AtomicAdd(acquire=True):
                # A block that reads the previous count continues as the last one; other counters are for spin waits.
                found.add(BlockExchange.last_block)
            case _:
                pass
    return tuple(m for m in BlockExchange if m in found)


def _min_blocks(per_sm: int, block: tuple[Int, ...]) -> int:
    """Second argument of the launch bounds, in blocks of the rung: room for `per_sm` blocks of the kernel; 0 for none."""
    if per_sm == 0:
        return 0
    threads = 1
    for extent in block:
        if not extent.is_const:
            raise SchedulingError(f"{per_sm} blocks per SM are requested, and a block has {extent} threads")
        threads *= extent.value
    top, _ = rung_of(threads)
    return -(-per_sm * threads // top)


def _cluster(context: LoweringContext) -> tuple[int, int, int] | None:
    """Blocks of a cluster along x, y, z. Raises SchedulingError where the grid is not known to be whole clusters."""
    if not context.builder.cluster:
        return None
    for p, n in context.builder.cluster.items():
        size = context.sizes.get(p, ONE)
        if size.multiple % n != 0:
            raise SchedulingError(f"{p.name} has {size} blocks, which are not known to be whole clusters of {n}")
    x, y, z = (context.builder.cluster.get(p, 1) for p in GRID_TYPES)
    return x, y, z


def _check_limits(context: LoweringContext, grid: Iterable[Int], block: Iterable[Int]) -> None:
    sizes = {p: e.value for p, e in zip(BLOCK_TYPES, block, strict=True) if e.is_const}
    threads = math.prod(sizes.values())
    if threads > 1024:
        most = max(sizes, key=lambda p: sizes[p])
        raise SchedulingError(
            f"the schedule needs {threads} threads per block, a block holds at most 1024: {LIMIT_REMEDIES['block']}",
            location=context.builder.place_of(most),
        )
    for p, extent in zip(GRID_TYPES, grid, strict=True):
        if extent.is_const and extent.value > _GRID_LIMITS[p]:
            raise SchedulingError(
                f"{p.name} needs {extent.value} blocks, the device takes at most {_GRID_LIMITS[p]}: {LIMIT_REMEDIES['grid']}",
                location=context.builder.place_of(p),
            )


def _extent(context: LoweringContext, t: Tensor, dim: int) -> Int:
    d = t.visible[dim]
    return ONE if d.is_broadcast else context.rewrite(d.extent)


def _symbol_sources(context: LoweringContext, arguments: tuple[str, ...]) -> dict[str, ExtentOf | StrideOf | ScalarOf]:
    sources: dict[str, ExtentOf | StrideOf | ScalarOf] = {}
    for t in context.fusion.input_tensors:
        if t.is_cpu:
            continue
        at = arguments.index(t.name)
        for d, dim in enumerate(t.visible):
            if isinstance(dim.extent, Symbol):
                sources[dim.extent.name] = ExtentOf(at, d)
            sources[f"{t.name}_stride{d}"] = StrideOf(at, d)
    for symbol_name, scalar in context.fusion.extent_scalars.items():
        sources[symbol_name] = ScalarOf(scalar)
    return sources


def _log_renaming(known: tuple[Stmt, ...], body: tuple[Stmt, ...], proofs: ProofLog) -> None:
    """Indices and tests mean the same under the hardware's names."""
    for before, after in zip(walk(known), walk(body), strict=True):
        for a, b in zip(stmt_integers(before), stmt_integers(after), strict=True):
            if a is not b:
                proofs.add(Claim("finish_kernel", "renamed index", b, "==", a))
        if isinstance(before, If) and isinstance(after, If) and before.condition is not after.condition:
            a, b = (select(s.condition, ONE, ZERO) for s in (before, after))
            proofs.add(Claim("finish_kernel", "renamed test", b, "==", a))


def _free_symbols(body: tuple[Stmt, ...]) -> set[Symbol]:
    """Symbols that statements use and none defines."""
    used: set[Symbol] = set()
    defined: set[Symbol] = set()
    for stmt in walk(body):
        for expression in stmt_integers(stmt):
            used |= expression.symbols
        if isinstance(stmt, If):
            used |= stmt.condition.symbols
        if (made := defined_symbol(stmt)) is not None:
            defined.add(made)
    return used - defined


def divisors_of(body: tuple[Stmt, ...], known: Container[str]) -> list[Int]:
    """Divisors over the symbols named in `known` of which a launch divides by each more than once: what threads divide."""
    expressions: list[Int | Cond] = []
    for stmt in walk(body):
        expressions += stmt_integers(stmt)
        if isinstance(stmt, If):
            expressions.append(stmt.condition)

    def is_known(e: Int) -> bool:
        return all(s.name in known for s in e.symbols)

    found: set[Int] = set()
    seen: set[Int | Cond] = set()
    while expressions:
        e = expressions.pop()
        if e in seen:
            continue
        seen.add(e)
        if isinstance(e, (FloorDiv, Mod)) and not e.divisor.is_const and is_known(e.divisor) and not is_known(e):
            found.add(e.divisor)
        if not isinstance(e, Symbol):
            # A symbol names what it is below, which nothing computes.
            expressions += (p for p in parts_of(e)[1] if isinstance(p, (Int, Cond)))
    return sorted(found, key=lambda d: d.order)


def scalar_steps(
    context: LoweringContext,
    names: Iterable[str],
    arguments: tuple[str, ...],
    sources: Mapping[str, ExtentOf | StrideOf | ScalarOf],
) -> tuple[ScalarStep, ...]:
    """Host steps that compute the named scalars from user scalars and extents.

    User scalars are cast to their declared dtype first, because a caller's number may be of another type or precision, and the
    plan does not say which.
    """
    fusion = context.fusion
    by_name: dict[str, ScalarOp | ExtentOp] = {
        e.output.name: e for e in fusion.exprs if isinstance(e, (ScalarOp, ExtentOp))
    }
    steps: dict[str, ScalarStep] = {}

    def extent_of(name: str, expr: ExtentOp) -> None:
        if expr.tensor.name in arguments:
            steps[name] = ScalarStep(name, DataType.Int, "extent", (arguments.index(expr.tensor.name), expr.dim))
            return

        def value_of(symbol: Symbol) -> str:
            match sources.get(symbol.name):
                case ExtentOf(argument, dim):
                    steps[symbol.name] = ScalarStep(symbol.name, DataType.Int, "extent", (argument, dim))
                    return symbol.name
                case ScalarOf(scalar):
                    need(scalar)
                    return scalar
                case _:
                    raise SchedulingError(f"the extent {name} of {expr.tensor.name} is not known from the arguments")

        # An intermediate's extent is a constant, or follows from those of arguments and scalars.
        extent = expr.output.expression
        made = None if extent is None else extent_steps(name, extent, value_of)
        if made is None:
            raise SchedulingError(f"the extent {name} of {expr.tensor.name} is not known from the arguments")
        steps.update((s.name, s) for s in made)

    def operand(s: Scalar) -> str | bool | int | float | complex:
        if s.value is not None:
            return s.value
        if s.name in by_name:
            need(s.name)
            return s.name
        typed = f"{s.name}_{s.dtype.name}"
        steps[typed] = ScalarStep(typed, s.dtype, "cast", (s.name,))
        return typed

    def need(name: str) -> None:
        if name in steps:
            return
        expr = by_name.get(name)
        if isinstance(expr, ExtentOp):
            extent_of(name, expr)
        elif isinstance(expr, ScalarOp):
            steps[name] = ScalarStep(name, expr.output.dtype, expr.op, tuple(map(operand, expr.inputs)))

    for name in names:
        need(name)
    return tuple(steps.values())


__all__ = ["finish_kernel", "scalar_steps"]
