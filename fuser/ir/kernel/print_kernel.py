"""Kernel IR as indented text: for dumps, `explain` and error messages. Deterministic; one statement per line.

Grammar
    kernel := header line, parameters, launch, body
    line   := indent text                                      two spaces per nesting level
    value  := 1.5:Float | t0[i] | t0[i].streaming | add:Float(a, b) | lt:Float->Bool(a, b) | cast:Half(a)
            | index:Int(i + 1) | scalar s0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, assert_never

from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    Call,
    Cast,
    ClusterArrive,
    ClusterWait,
    Comment,
    DivisorParameter,
    ExchangeInit,
    ExchangeWait,
    ExtentParameter,
    Fence,
    For,
    GridBarrier,
    If,
    IndexValue,
    Kernel,
    LaunchWait,
    Let,
    LetPhase,
    Literal,
    Load,
    LoadIndex,
    Parameter,
    Post,
    RandomValue,
    Receive,
    Reduce,
    RemoteStore,
    Role,
    ScalarArgument,
    ScalarParameter,
    Scan,
    SemaphoreParameter,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    TensorParameter,
    Value,
    VectorMove,
    WarpBarrier,
    WorkspaceParameter,
)
from fuser.ir.ops.enums import CacheOp


class PrintedLine(NamedTuple):
    """One line of a printed body; `stmt` is None for a line that only closes or continues one (`else`)."""

    depth: int
    text: str
    stmt: Stmt | None


def print_kernel(kernel: Kernel) -> str:
    """The whole kernel: parameters, launch plan and body."""
    lines = [*_header(kernel), ""]
    lines.extend(f"{'  ' * line.depth}{line.text}" for line in body_lines(kernel.body, 1))
    return "\n".join(lines) + "\n"


def print_body(body: tuple[Stmt, ...]) -> str:
    """A list of statements, nested ones indented."""
    return "\n".join(f"{'  ' * line.depth}{line.text}" for line in body_lines(body))


def print_around(body: tuple[Stmt, ...], marks: Mapping[int, str], context: int = 5) -> str:
    """The body near some statements: `marks` maps `id(stmt)` to what to say under its line.

    Marked lines start with `>`; runs of lines further than `context` lines from a mark become `...`.
    """
    lines = list(body_lines(body))
    centres = [n for n, line in enumerate(lines) if line.stmt is not None and id(line.stmt) in marks]
    shown = {n for c in centres for n in range(c - context, c + context + 1) if 0 <= n < len(lines)}
    result: list[str] = []
    previous = -1
    for n in sorted(shown):
        if n != previous + 1:
            result.append("  ...")
        line = lines[n]
        marked = line.stmt is not None and id(line.stmt) in marks
        result.append(f"{'>' if marked else ' '} {'  ' * line.depth}{line.text}")
        if marked:
            result.append(f"  {'  ' * line.depth}^ {marks[id(line.stmt)]}")
        previous = n
    if shown and previous != len(lines) - 1:
        result.append("  ...")
    return "\n".join(result)


def body_lines(body: tuple[Stmt, ...], depth: int = 0) -> Iterator[PrintedLine]:
    """The lines of a list of statements, each with its nesting depth."""
    for stmt in body:
        yield PrintedLine(depth, print_stmt(stmt), stmt)
        if isinstance(stmt, For):
            yield from body_lines(stmt.body, depth + 1)
        elif isinstance(stmt, If):
            yield from body_lines(stmt.then, depth + 1)
            if stmt.orelse:
                yield PrintedLine(depth, "else", None)
                yield from body_lines(stmt.orelse, depth + 1)


def print_stmt(stmt: Stmt) -> str:
    """The statement's own line, without what is nested in it."""
    match stmt:
        case Comment(text):
            return "# " + " ".join(text.split())
        case Allocate(buffer):
            return f"allocate {_declaration(buffer)}"
        case Let(symbol, value):
            return f"let {symbol} = {value}"
        case Store(buffer, index, value, role):
            return f"{buffer.name}[{index}] = {print_value(value)}{_role(role)}"
        case AsyncCopy(dst, dst_index, src, src_index, width, cache, cut):
            words = f"{width} elements{', cut' if cut else ''}"
            return f"start {dst.name}[{dst_index}] = {src.name}[{src_index}]{_cache(cache)}  # {words}"
        case AsyncCommit():
            return "commit copies"
        case AsyncWait(pending, reason):
            return f"wait until {pending} groups of copies are left" + _note(reason)
        case VectorMove(dst, dst_index, src, src_index, width, cache, aligned, cut):
            words = f"{width} elements, {'one access' if aligned else 'any address'}{', cut' if cut else ''}"
            return f"{dst.name}[{dst_index}] = {src.name}[{src_index}]{_cache(cache)}  # {words}"
        case For(symbol, start, stop, step, _, unroll):
            return f"for {symbol} in {start} .. {stop} step {step}{' unroll' if unroll else ''}"
        case If(condition, _, _, role):
            return f"if {condition}{_role(role)}"
        case Shuffle(dst, dst_index, src, kind, lane, width):
            return f"{dst.name}[{dst_index}] = shuffle.{kind.value}({print_value(src)}, {lane}, width {width})"
        case LoadIndex(symbol, buffer, index):
            return f"let {symbol} = load {buffer.name}[{index}]"
        case LetPhase(symbol, buffer, width):
            return f"let {symbol} = address of {buffer.name} % {width} elements"
        case AtomicAdd(symbol, buffer, index, amount, acquire, wrap, release):
            result = "" if symbol is None else f"let {symbol} = "
            again = "" if wrap is None else f", 0 at {wrap}"
            how = " release" if release else _acquire(acquire)
            return f"{result}atomic_add{how} {buffer.name}[{index}], {amount}{again}"
        case Fence():
            return "fence"
        case LaunchWait():
            return "wait for the launches before"
        case BlockBarrier(reason):
            return "block barrier" + _note(reason)
        case WarpBarrier(reason):
            return "warp barrier" + _note(reason)
        case RemoteStore(buffer, index, value, rank, signal):
            counted = "" if signal is None else f", signals {signal.name}"
            return f"{buffer.name}[{index}] of block {rank} = {print_value(value)}{counted}"
        case ExchangeInit(signal, nbytes):
            return f"{signal.name} waits for {nbytes} bytes"
        case ExchangeWait(signal, reason):
            return f"wait for {signal.name}" + _note(reason)
        case ClusterArrive(reason, relaxed):
            return ("cluster arrive relaxed" if relaxed else "cluster arrive") + _note(reason)
        case ClusterWait(reason):
            return "cluster wait" + _note(reason)
        case SpinWait(buffer, index, target, acquire):
            return f"wait{_acquire(acquire)} until {buffer.name}[{index}] >= {target}"
        case Post(words, index, values):
            return f"post {', '.join(map(print_value, values))} at {words.name}[{index}]"
        case Receive(dsts, words, index, step, stop):
            names = ", ".join(d.name for d in dsts)
            return f"receive {names} from {words.name}[{index}], every {step} below {stop}"
        case Reduce():
            return _reduce(stmt)
        case GridBarrier(slot, slots, reason):
            return f"grid barrier {slot} of {slots}" + _note(reason)
        case Scan():
            return _scan(stmt)
        case _:
            assert_never(stmt)


def print_value(value: Value) -> str:
    """A value as nested calls."""
    match value:
        case Literal(number, dtype):
            return f"{number!r}:{dtype.name}"
        case Load(buffer, index, cache):
            return f"{buffer.name}[{index}]{_cache(cache)}"
        case IndexValue(expression, dtype):
            return f"index:{dtype.name}({expression})"
        case ScalarArgument(name, _):
            return f"scalar {name}"
        case Call(op, args, compute, dtype):
            types = compute.name if dtype is compute else f"{compute.name}->{dtype.name}"
            return f"{op}:{types}({', '.join(print_value(a) for a in args)})"
        case RandomValue(distribution, index, seed, offset, parameters, dtype):
            state, operands = (", ".join(map(print_value, values)) for values in ((seed, offset), parameters))
            return f"{distribution.value}:{dtype.name}({operands}; element {index} of ({state}))"
        case Cast(inner, dtype):
            return f"cast:{dtype.name}({print_value(inner)})"
        case _:
            assert_never(value)


def _header(kernel: Kernel) -> Iterator[str]:
    plan = kernel.plan
    yield f"kernel {kernel.name}: int{kernel.index_bits} indices"
    for line in kernel.title.splitlines():
        yield f"  # {line}"
    for parameter in kernel.parameters:
        yield f"  parameter {_parameter(parameter)}"
    grid, block = (", ".join(str(n) for n in sizes) for sizes in (plan.grid, plan.block))
    yield f"  launch grid ({grid}), block ({block}), shared {plan.shared_bytes} bytes" + (
        (", cooperative" if plan.cooperative else "")
        + (", starts the next kernel" if plan.starts_next else "")
        + (", beside the kernel before" if plan.co_resident else "")
        + (", may start early" if plan.waits_first else "")
        + (f", cluster ({', '.join(map(str, plan.cluster))})" if plan.cluster else "")
    )
    for workspace in plan.workspaces:
        yield f"  workspace {workspace.name}: {workspace.dtype.name}[{workspace.count}]"
    if plan.semaphores is not None:
        yield f"  semaphores {plan.semaphores}"
    for name, offset in kernel.shared_offsets.items():
        yield f"  shared {name} at byte {offset}"
    if kernel.max_registers != 255 or kernel.min_blocks:
        yield f"  limits: {kernel.max_registers} registers, at least {kernel.min_blocks} blocks"


def _parameter(parameter: Parameter) -> str:
    match parameter:
        case TensorParameter(buffer, tensor, argument, is_output):
            return f"{_declaration(buffer)}, {'output' if is_output else 'input'} {tensor}, argument {argument}"
        case WorkspaceParameter(buffer):
            return f"{_declaration(buffer)}, workspace"
        case SemaphoreParameter(buffer):
            return f"{_declaration(buffer)}, semaphores"
        case ExtentParameter(symbol):
            return f"{symbol}, extent"
        case DivisorParameter(divisor):
            return f"{divisor}, divisor"
        case ScalarParameter(name, dtype):
            return f"{name}: {dtype.name}, scalar"
        case _:
            assert_never(parameter)


def _declaration(buffer: Buffer) -> str:
    held = f" of {buffer.tensor}" if buffer.tensor is not None and buffer.tensor != buffer.name else ""
    return f"{buffer.name}: {buffer.dtype.name}[{buffer.size}] {buffer.memory.name}{held}"


def _reduce(stmt: Reduce) -> str:
    partials = ", ".join(b.name for b in stmt.partials)
    identity = ", ".join(print_value(v) for v in stmt.identity)
    axes = ", ".join(axis.name for axis in (*stmt.block_axes, *stmt.grid_axes))
    after = " to all blocks" if stmt.grid_broadcast else ""
    copies = f", copies along ({', '.join(p.name for p in stmt.copy_axes)})" if stmt.copy_axes else ""
    flag = "" if stmt.last_block is None else f", last block in {stmt.last_block}"
    slot = "" if stmt.slots.is_const and stmt.slots.value == 1 else f", slot {stmt.slot} of {stmt.slots}"
    return f"{stmt.name}: reduce {stmt.combine} ({partials}) over ({axes}){after}, identity ({identity}){copies}{slot}{flag}"


def _scan(stmt: Scan) -> str:
    axes = ", ".join(axis.name for axis in (*stmt.cluster_axes, *stmt.block_axes))
    parts = (("kept", stmt.kept), ("tiles", stmt.tiles), ("run", stmt.run))
    layout = "".join(f", {what} {' '.join(f'{n}:{stride}' for n, stride in part)}" for what, part in parts if part)
    values = f"({stmt.values.name}, carry {stmt.carry.name})"
    return f"{stmt.name}: scan {stmt.combine} {values} over ({axes}), identity {print_value(stmt.identity)}{layout}"


def _cache(cache: CacheOp) -> str:
    return "" if cache is CacheOp.unspecified else f".{cache.name}"


def _role(role: Role) -> str:
    return "" if role is Role.plain else f"  # {role.value}"


def _acquire(acquire: bool) -> str:
    return " acquire" if acquire else ""


def _note(reason: str) -> str:
    return f"  # {reason}" if reason else ""
