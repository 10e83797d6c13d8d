"""Bodies of kernels with statements, symbols or buffers replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from fuser.ir.integers.integers import Int, Substitution, Symbol
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
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GridBarrier,
    If,
    IndexValue,
    LaunchWait,
    Let,
    LetPhase,
    Literal,
    Load,
    LoadIndex,
    Post,
    RandomValue,
    Receive,
    Reduce,
    RemoteStore,
    ScalarArgument,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    Value,
    VectorMove,
    WarpBarrier,
)


def map_body(body: tuple[Stmt, ...], rewrite: Callable[[Stmt], tuple[Stmt, ...] | None]) -> tuple[Stmt, ...]:
    """Rewrite statements bottom-up: `rewrite` gives the replacement, or None to keep the statement.

    Sharing is kept: an unchanged list is returned as the same object.
    """
    result: list[Stmt] = []
    changed = False
    for stmt in body:
        current: Stmt = stmt
        if isinstance(stmt, For):
            inner = map_body(stmt.body, rewrite)
            if inner is not stmt.body:
                current = replace(stmt, body=inner)
        elif isinstance(stmt, If):
            then, orelse = map_body(stmt.then, rewrite), map_body(stmt.orelse, rewrite)
            if then is not stmt.then or orelse is not stmt.orelse:
                current = If(stmt.condition, then, orelse, stmt.role)
        replacement = rewrite(current)
        if replacement is None:
            result.append(current)
            changed = changed or current is not stmt
        else:
            result.extend(replacement)
            changed = True
    return tuple(result) if changed else body


def substitute_symbols(body: tuple[Stmt, ...], values: dict[Symbol, Int]) -> tuple[Stmt, ...]:
    """A body with symbols replaced in every index, bound and condition."""
    substitution = Substitution(values)
    index, condition = substitution.integer, substitution.condition

    def value(v: Value) -> Value:
        match v:
            case Load():
                return Load(v.buffer, index(v.index), v.cache)
            case IndexValue():
                return IndexValue(index(v.expression), v.dtype)
            case Call():
                return Call(v.op, tuple(value(a) for a in v.args), v.compute, v.dtype)
            case Cast():
                return Cast(value(v.value), v.dtype)
            case RandomValue():
                first, second = v.parameters
                return RandomValue(
                    v.distribution,
                    index(v.index),
                    value(v.seed),
                    value(v.offset),
                    (value(first), value(second)),
                    v.dtype,
                )
            case Literal() | ScalarArgument():
                return v

    def stmt(s: Stmt) -> Stmt:
        match s:
            case Store():
                return Store(s.buffer, index(s.index), value(s.value), s.role)
            case VectorMove():
                at, place = index(s.dst_index), index(s.src_index)
                return VectorMove(s.dst, at, s.src, place, s.width, s.cache, s.aligned, s.cut)
            case AsyncCopy():
                return AsyncCopy(s.dst, index(s.dst_index), s.src, index(s.src_index), s.width, s.cache, s.cut)
            case For():
                inner = tuple(stmt(x) for x in s.body)
                return For(s.symbol, index(s.start), index(s.stop), index(s.step), inner, s.unroll, s.unswitch)
            case If():
                return If(condition(s.condition), tuple(map(stmt, s.then)), tuple(map(stmt, s.orelse)), s.role)
            case Let():
                return Let(s.symbol, index(s.value))
            case Shuffle():
                return Shuffle(s.dst, index(s.dst_index), value(s.src), s.kind, index(s.lane), s.width)
            case LoadIndex():
                return LoadIndex(s.symbol, s.buffer, index(s.index), s.given)
            case AtomicAdd():
                wrap = None if s.wrap is None else index(s.wrap)
                return AtomicAdd(s.symbol, s.buffer, index(s.index), index(s.amount), s.acquire, wrap, s.release)
            case RemoteStore():
                return RemoteStore(s.buffer, index(s.index), value(s.value), index(s.rank), s.signal)
            case (
                ClusterArrive()
                | ClusterWait()
                | ExchangeInit()
                | ExchangeWait()
                | AsyncCommit()
                | AsyncWait()
                | LetPhase()
            ):
                return s
            case SpinWait():
                return SpinWait(s.buffer, index(s.index), index(s.target), s.acquire)
            case Post():
                return Post(s.words, index(s.index), tuple(map(value, s.values)))
            case Receive():
                return Receive(s.dsts, s.words, index(s.index), index(s.step), index(s.stop))
            case GridBarrier():
                return GridBarrier(index(s.slot), index(s.slots), s.reason)
            case Reduce() | Scan() | Comment() | Allocate() | Fence() | LaunchWait() | BlockBarrier() | WarpBarrier():
                return s

    return tuple(stmt(s) for s in body)


def substitute_buffers(body: tuple[Stmt, ...], buffers: Mapping[Buffer, Buffer]) -> tuple[Stmt, ...]:
    """A body that reads and writes other buffers in the places of some. Their declarations stay: whoever joins two arrays says
    where the one is declared."""

    def buffer(b: Buffer) -> Buffer:
        return buffers.get(b, b)

    def value(v: Value) -> Value:
        match v:
            case Load():
                return replace(v, buffer=buffer(v.buffer))
            case Call():
                return replace(v, args=tuple(map(value, v.args)))
            case Cast():
                return replace(v, value=value(v.value))
            case RandomValue():
                first, second = v.parameters
                return replace(v, seed=value(v.seed), offset=value(v.offset), parameters=(value(first), value(second)))
            case Literal() | ScalarArgument() | IndexValue():
                return v

    def stmt(s: Stmt) -> Stmt:
        match s:
            case Store():
                return replace(s, buffer=buffer(s.buffer), value=value(s.value))
            case VectorMove() | AsyncCopy():
                return replace(s, dst=buffer(s.dst), src=buffer(s.src))
            case For():
                return replace(s, body=tuple(map(stmt, s.body)))
            case If():
                return replace(s, then=tuple(map(stmt, s.then)), orelse=tuple(map(stmt, s.orelse)))
            case Shuffle():
                return replace(s, dst=buffer(s.dst), src=value(s.src))
            case LoadIndex() | LetPhase() | AtomicAdd() | SpinWait():
                return replace(s, buffer=buffer(s.buffer))
            case RemoteStore():
                signal = None if s.signal is None else buffer(s.signal)
                return replace(s, buffer=buffer(s.buffer), value=value(s.value), signal=signal)
            case ExchangeInit() | ExchangeWait():
                return replace(s, signal=buffer(s.signal))
            case Post():
                return replace(s, words=buffer(s.words), values=tuple(map(value, s.values)))
            case Receive():
                return replace(s, dsts=tuple(map(buffer, s.dsts)), words=buffer(s.words))
            case Reduce():
                return replace(s, partials=tuple(map(buffer, s.partials)))
            case Scan():
                return replace(s, values=buffer(s.values), carry=buffer(s.carry))
            case (
                Allocate()
                | Let()
                | Comment()
                | Fence()
                | LaunchWait()
                | BlockBarrier()
                | WarpBarrier()
                | GridBarrier()
                | ClusterArrive()
                | ClusterWait()
                | AsyncCommit()
                | AsyncWait()
            ):
                return s

    return tuple(map(stmt, body))
