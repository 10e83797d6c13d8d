"""Kernel IR -> a Python function that runs a wave of blocks, statement by statement.

The text has one local variable per symbol (`s3`), per evaluated index (`i7`), per buffer (`b2`) and per set of active
lanes (`k1`). A kernel without communication between blocks is a plain function; one with atomics or waits is a generator
that yields True where its wave waits and False where another wave may run.

        for s4, k2 in w.loop(k1, 0, i3, 1, 9):
            i5, = f6(s0, s4)
            b3.store(0, n2(b3.load(0, k2, 11), b1.load(i5, k2, 12)), k2, 13)
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, assert_never

from fuser import locks
from fuser.errors import InternalError
from fuser.generated_code import code_of
from fuser.ir.integers.integers import ZERO, Cond, Int, Symbol, Truth
from fuser.ir.kernel.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
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
    GivenIndex,
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
    Post,
    RandomValue,
    Receive,
    Reduce,
    RemoteStore,
    ScalarArgument,
    ScalarParameter,
    Scan,
    Shuffle,
    SpinWait,
    Stmt,
    Store,
    Value,
    VectorMove,
    WarpBarrier,
    walk,
)
from fuser.ir.kernel.print_kernel import print_stmt
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.op_table import argument_dtypes, compute_dtype
from fuser.ir.ops.promotion import result_dtype
from fuser.simulator.conversions import cast_to, index_to, literal_array, random_of, stored_dtype
from fuser.simulator.errors import Kind, SimulatorError
from fuser.simulator.indices import vectorized
from fuser.simulator.posts import post, receive
from fuser.simulator.program import OTHER_SITES, Definition, Program, Site

# Programs kept per process, by identity of the kernel.
_KEPT_PROGRAMS = 128

_programs: OrderedDict[int, Program] = OrderedDict()
_lock = locks.lock()


def compile_kernel(kernel: Kernel) -> Program:
    """The program of a kernel, made on first use.

    InternalError for IR that cannot run (a collective, an unknown name); SimulatorError for a store of the wrong dtype.
    """
    with _lock:
        found = _programs.get(id(kernel))
        if found is not None:
            _programs.move_to_end(id(kernel))
            return found
    program = _Compiler(kernel).compile()
    with _lock:
        # The program holds the kernel, so its id cannot be taken by another one while the entry lives.
        _programs[id(kernel)] = program
        while len(_programs) > _KEPT_PROGRAMS:
            _programs.popitem(last=False)
    return program


class _Scope:
    """Expressions known under a variable in this scope and those inside it."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.known: dict[tuple[Int | Cond, tuple[str, ...]], str] = {}
        self.symbols: dict[Symbol, str] = {}
        self.buffers: set[Buffer] = set()

    def find(self, key: tuple[Int | Cond, tuple[str, ...]]) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            if key in scope.known:
                return scope.known[key]
            scope = scope.outer
        return None

    def name(self, symbol: Symbol) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            if symbol in scope.symbols:
                return scope.symbols[symbol]
            scope = scope.outer
        return None

    def has(self, buffer: Buffer) -> bool:
        return buffer in self.buffers or (self.outer is not None and self.outer.has(buffer))


class _Compiler:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.depth = 1
        self.constants: dict[str, Any] = {}
        self.names: dict[object, str] = {}
        self.sites: dict[int, Site] = {}
        self.accesses = 0
        self.buffers: list[Buffer] = []
        self.buffer_names: dict[Buffer, str] = {}
        self.symbols: list[Symbol] = []
        self.definitions: list[Definition] = []
        self.evaluations: list[tuple[Int | Cond, ...]] = []
        self.written: set[Buffer] = set()
        self.access_bytes: dict[Buffer, int] = {}
        self.widest_access = 0
        self.scope = _Scope(None)
        self.counter = 0
        self.yields = any(isinstance(s, (AtomicAdd, SpinWait, Post, Receive)) for s in walk(kernel.body))
        self.stmt: Stmt = Comment("")
        self.path = ""

    def compile(self) -> Program:
        kernel = self.kernel
        for parameter in kernel.parameters:
            if isinstance(parameter, ExtentParameter):
                self._input(parameter.symbol)
            elif not isinstance(parameter, (DivisorParameter, ScalarParameter)):
                self._buffer(parameter.buffer)
                self.scope.buffers.add(parameter.buffer)
        for symbol in (*SIZE_SYMBOLS.values(), *THREAD_SYMBOLS.values()):
            self._input(symbol)
        # The header is put before the body when all buffers are known.
        self._body(kernel.body, "k0", "body")
        if any(isinstance(s, AsyncCopy) for s in walk(kernel.body)):
            self._emit("w.copies.finish()")
        if any(isinstance(s, ExchangeInit) for s in walk(kernel.body)):
            self._emit("w.exchanges.finish()")
        header = ["def run(w):", "    k0 = K = w.lanes", "    G = w.guards", "    D = w.symbol_guards"]
        header.extend(f"    s{n} = w.symbols[{n}]" for n in range(len(self.symbols)))
        header.extend(f"    {name} = w.buffers[{n}]" for n, name in enumerate(self.buffer_names.values()))
        if self.yields:
            header.append("    if False: yield False")
        source = "\n".join((*header, *self.lines, "    return None", ""))
        scope: dict[str, Any] = {**self.constants, "post": post, "receive": receive}
        exec(code_of(source, f"<simulated {kernel.name}>"), scope)
        return Program(
            kernel,
            source,
            scope["run"],
            self.sites,
            tuple(self.buffers),
            tuple(self.symbols),
            tuple(self.definitions),
            tuple(self.evaluations),
            frozenset(self.written),
            self.access_bytes,
            self.widest_access,
            any(isinstance(s, SpinWait) for s in walk(kernel.body)),
            any(isinstance(s, Receive) for s in walk(kernel.body)),
            self.yields,
            any(isinstance(s, WarpBarrier) for s in walk(kernel.body)),
        )

    # --- names --------------------------------------------------------------------------------------------------------

    def _input(self, symbol: Symbol) -> None:
        self.scope.symbols[symbol] = f"s{len(self.symbols)}"
        self.symbols.append(symbol)

    def _fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{1000 + self.counter}"

    def _constant(self, prefix: str, key: object, value: Any) -> str:
        name = self.names.get(key)
        if name is None:
            name = self.names[key] = self._fresh(prefix)
            self.constants[name] = value
        return name

    def _buffer(self, buffer: Buffer) -> str:
        name = self.buffer_names.get(buffer)
        if name is None:
            name = self.buffer_names[buffer] = f"b{len(self.buffers)}"
            self.buffers.append(buffer)
        return name

    def _visible(self, buffer: Buffer) -> str:
        if not self.scope.has(buffer):
            raise self._broken(f"buffer {buffer.name} is neither a parameter nor allocated here")
        return self._buffer(buffer)

    def _define(self, symbol: Symbol, sources: tuple[Int, ...], given: GivenIndex | None = None) -> str:
        is_bounded = symbol.below is not None and all(self.scope.name(s) for s in symbol.below.symbols)
        name = self._fresh("s")
        self.scope.symbols[symbol] = name
        self.definitions.append(Definition(symbol, sources, is_bounded, given))
        return name

    def _guard_symbol(self, symbol: Symbol, lanes: str) -> None:
        """A check of the value that `symbol` has just been given; the launch decides whether it is needed."""
        is_bounded = symbol.below is not None and self.definitions[-1].is_bounded
        bounds = vectorized((symbol.below,))[1] if is_bounded and symbol.below is not None else ()
        arguments = ", ".join(self.scope.name(s) or "" for s in (symbol, *bounds))
        number = len(self.definitions) - 1
        self._emit(f"if {number} in D: w.check_symbol({number}, {lanes}, {self._site('definition')}, {arguments})")

    def _site(self, action: str, buffer: Buffer | None = None) -> int:
        if buffer is None:
            number = OTHER_SITES + len(self.sites)
        else:
            number = self.accesses = self.accesses + 1
        self.sites[number] = Site(action, self.stmt, self.path, buffer)
        return number

    def _broken(self, message: str) -> InternalError:
        return InternalError(f"{message}, in {self.path}: {print_stmt(self.stmt)}", pass_name="simulator")

    def _emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # --- indices ------------------------------------------------------------------------------------------------------

    def _evaluate(self, lanes: str, *wanted: Int | Cond) -> list[str]:
        """Python text of expressions, computed by lines before where they are not known yet."""
        missing: list[Int | Cond] = []
        keys: list[tuple[Int | Cond, tuple[str, ...]]] = []
        for node in wanted:
            key = (node, self._symbol_names(node))
            keys.append(key)
            if self._simple(node) is None and node not in missing and self.scope.find(key) is None:
                missing.append(node)
        if missing:
            outputs = tuple(missing)
            function, symbols = vectorized(outputs)
            names = [self.scope.name(symbol) or "" for symbol in symbols]
            variables = [self._fresh("i") for _ in outputs]
            call = f"{self._constant('f', outputs, function)}({', '.join(names)})"
            number = len(self.evaluations)
            self.evaluations.append(outputs)
            site = self._site("index")
            self._emit(f"if {number} in G: w.check_indices({', '.join((str(number), lanes, str(site), *names))})")
            self._emit(f"{', '.join(variables)}, = {call}")
            for node, variable in zip(outputs, variables, strict=True):
                self.scope.known[node, self._symbol_names(node)] = variable
        return [self._simple(node) or self.scope.find(key) or "" for node, key in zip(wanted, keys, strict=True)]

    def _simple(self, node: Int | Cond) -> str | None:
        if isinstance(node, Int):
            if node.is_const:
                return f"({node.value})"
            return self.scope.name(node) if isinstance(node, Symbol) else None
        return str(node.value) if isinstance(node, Truth) else None

    def _symbol_names(self, node: Int | Cond) -> tuple[str, ...]:
        names: list[str] = []
        for symbol in sorted(node.symbols, key=lambda s: s.order):
            name = self.scope.name(symbol)
            if name is None:
                raise self._broken(f"the symbol {symbol.name} has no value")
            names.append(name)
        return tuple(names)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _body(self, body: tuple[Stmt, ...], lanes: str, path: str) -> None:
        for number, stmt in enumerate(body):
            self.stmt, self.path = stmt, f"{path}[{number}]"
            self._statement(stmt, lanes, self.path)

    def _nested(self, body: tuple[Stmt, ...], lanes: str, path: str) -> None:
        self.depth += 1
        self.scope = _Scope(self.scope)
        self._body(body, lanes, path)
        self._emit("pass")
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        self.depth -= 1

    def _statement(self, stmt: Stmt, k: str, path: str) -> None:
        match stmt:
            case Comment():
                pass
            case Allocate(buffer):
                if not (buffer.is_register or buffer.is_shared):
                    raise self._broken("device memory is allocated by the launch")
                self.scope.buffers.add(buffer)
                self._emit(f"{self._buffer(buffer)}.reset({k})")
            case Let(symbol, value):
                text = self._evaluate(k, value)[0]
                self._emit(f"{self._define(symbol, (value,))} = {text}")
                self._guard_symbol(symbol, k)
            case Store(buffer, index, value):
                self._same_dtype(value.dtype, buffer)
                view = self._visible(buffer)
                place = self._evaluate(k, index)[0]
                text = self._value(value, k)
                self._note(buffer, 1, writes=True)
                self._emit(f"{view}.store({place}, {text}, {k}, {self._site('write', buffer)})")
            case VectorMove():
                self._move(stmt, k)
            case AsyncCopy():
                self._async_copy(stmt, k)
            case AsyncCommit():
                self._emit(f"w.copies.commit({k})")
            case AsyncWait(pending):
                self._emit(f"w.copies.wait({pending}, {k})")
            case For():
                self._for(stmt, k, path)
            case If():
                self._if(stmt, k, path)
            case Shuffle():
                self._same_dtype(stmt.src.dtype, stmt.dst)
                view = self._visible(stmt.dst)
                place, lane = self._evaluate(k, stmt.dst_index, stmt.lane)
                text = self._value(stmt.src, k)
                node = self._constant("h", stmt, stmt)
                site = self._site("shuffle")
                self._note(stmt.dst, 1, writes=True)
                text = f"w.shuffle({text}, {node}, {lane}, {k}, {site})"
                self._emit(f"{view}.store({place}, {text}, {k}, {self._site('write', stmt.dst)})")
            case LoadIndex(symbol, buffer, index, given):
                text = self._value(Load(buffer, index), k)
                self._emit(f"{self._define(symbol, (), given)} = w.to_index({text})")
                self._guard_symbol(symbol, k)
            case LetPhase(symbol, buffer, width):
                view = self._visible(buffer)
                self._emit(f"{self._define(symbol, ())} = {view}.base % {width}")
                self._guard_symbol(symbol, k)
            case AtomicAdd(symbol, buffer, index, amount, acquire, wrap, release):
                view = self._visible(buffer)
                place, added, bound = self._evaluate(k, index, amount, ZERO if wrap is None else wrap)
                self._note(buffer, 1, writes=True)
                how = f"acquire={acquire}, release={release}" if wrap is None else f"wrap={bound}"
                text = f"{view}.atomic_add({place}, {added}, {k}, {self._site('atomic add', buffer)}, {how})"
                if symbol is None:
                    self._emit(text)
                else:
                    self._emit(f"{self._define(symbol, ())} = {text}")
                    self._guard_symbol(symbol, k)
                self._emit("yield False")
            case LaunchWait():
                pass  # launches run one after the other
            case Fence():
                self._emit(f"w.fence({k})")
            case BlockBarrier():
                self._emit(f"w.block_barrier({k}, {self._site('barrier')})")
            case WarpBarrier():
                self._emit(f"w.warp_barrier({k}, {self._site('barrier')})")
            case RemoteStore(buffer, index, value, rank, signal):
                self._same_dtype(value.dtype, buffer)
                view = self._visible(buffer)
                place, block = self._evaluate(k, index, rank)
                text = self._value(value, k)
                self._note(buffer, 1, writes=True)
                rest = f"{place}, {block}, {text}, {k}, {self._site('write', buffer)}"
                if signal is None:
                    self._emit(f"{view}.store_remote({rest})")
                else:
                    self._emit(f"w.exchanges.tell({self._visible(signal)}, {view}, {rest})")
            case ExchangeInit(signal, nbytes):
                self._note(signal, 1, writes=True)
                self._emit(
                    f"w.exchanges.expect({self._visible(signal)}, {nbytes}, {k}, {self._site('set up', signal)})"
                )
            case ExchangeWait(signal):
                self._emit(f"w.exchanges.wait({self._visible(signal)}, {k}, {self._site('wait', signal)})")
            case ClusterArrive(_, relaxed):
                self._emit(f"w.cluster_arrive({k}, {self._site('barrier')}, relaxed={relaxed})")
            case ClusterWait():
                self._emit(f"w.cluster_wait({k}, {self._site('barrier')})")
            case SpinWait(buffer, index, target, acquire):
                view = self._visible(buffer)
                place, least = self._evaluate(k, index, target)
                self._note(buffer, 1, writes=False)
                where = f"{place}, {least}, {k}, {self._site('wait', buffer)}"
                self._emit(f"while not {view}.reached({where}, acquire={acquire}): yield True")
                # What comes next may be long after what this block has waited for.
                self._emit("yield False")
            case Post(words, index, values):
                view = self._visible(words)
                place = self._evaluate(k, index)[0]
                texts = "".join(f"{self._value(value, k)}, " for value in values)
                self._note(words, 1, writes=True)
                self._emit(f"post({view}, {place}, ({texts}), {k}, {self._site('post', words)})")
                self._emit("yield False")
            case Receive(dsts, words, index, step, stop):
                view = self._visible(words)
                arrays = "".join(f"{self._visible(dst)}, " for dst in dsts)
                places = ", ".join(self._evaluate(k, index, step, stop))
                self._note(words, 1, writes=True)
                for dst in dsts:
                    self._note(dst, 1, writes=True)
                self._emit(
                    f"while not receive(({arrays}), {view}, {places}, {k}, {self._site('receive', words)}): yield True"
                )
                self._emit("yield False")
            case Reduce() | Scan() | GridBarrier():
                raise self._broken("a collective reached the simulator; expand_collectives must run first")
            case _:
                assert_never(stmt)

    def _note(self, buffer: Buffer, width: int, *, writes: bool) -> None:
        if writes:
            self.written.add(buffer)
        nbytes = width * buffer.dtype.itemsize
        self.access_bytes[buffer] = min(nbytes, self.access_bytes.get(buffer, nbytes))
        if not buffer.is_register:
            self.widest_access = max(nbytes, self.widest_access)

    def _same_dtype(self, dtype: DataType, buffer: Buffer) -> None:
        if stored_dtype(dtype) is not stored_dtype(buffer.dtype):
            message = f"{self.path} stores {dtype.name} in {buffer.name}, which is {buffer.dtype.name}"
            raise SimulatorError(Kind.wrong_dtype, f"{message}: {print_stmt(self.stmt)}", buffer=buffer.name)

    def _move(self, stmt: VectorMove, k: str) -> None:
        dst, src = self._visible(stmt.dst), self._visible(stmt.src)
        self._same_dtype(stmt.src.dtype, stmt.dst)
        if stmt.width * stmt.src.dtype.itemsize not in (1, 2, 4, 8, 16, 32):
            raise self._broken("no vector access has this width")
        to, origin = self._evaluate(k, stmt.dst_index, stmt.src_index)
        # An access at any address counts as one of each element: what it takes of their neighbours is dropped.
        self._note(stmt.src, stmt.width if stmt.aligned else 1, writes=False)
        self._note(stmt.dst, stmt.width, writes=True)
        load = "load_cut" if stmt.cut else "load_row" if stmt.aligned else "load_elements"
        rows = f"{src}.{load}({origin}, {stmt.width}, {k}, {self._site('read', stmt.src)})"
        self._emit(f"{dst}.store_row({to}, {rows}, {k}, {self._site('write', stmt.dst)})")

    def _async_copy(self, stmt: AsyncCopy, k: str) -> None:
        dst, src = self._visible(stmt.dst), self._visible(stmt.src)
        self._same_dtype(stmt.src.dtype, stmt.dst)
        if stmt.width * stmt.src.dtype.itemsize not in (4, 8, 16):
            raise self._broken("no asynchronous copy has this width")
        to, origin = self._evaluate(k, stmt.dst_index, stmt.src_index)
        self._note(stmt.src, stmt.width, writes=False)
        self._note(stmt.dst, stmt.width, writes=True)
        ends = f"{dst}, {to}, {src}, {origin}, {stmt.width}, {stmt.cut}"
        sites = f"{self._site('read', stmt.src)}, {self._site('write', stmt.dst)}"
        self._emit(f"w.copies.start({ends}, {k}, {sites})")

    def _for(self, stmt: For, k: str, path: str) -> None:
        start, stop, step = self._evaluate(k, stmt.start, stmt.stop, stmt.step)
        inner = self._fresh("k")
        site = self._site("loop")
        outer = self.scope
        self.scope = _Scope(outer)
        variable = self._define(stmt.symbol, (stmt.start, stmt.stop, stmt.step))
        self._emit(f"for {variable}, {inner} in w.loop({k}, {start}, {stop}, {step}, {site}):")
        self.depth += 1
        self._guard_symbol(stmt.symbol, inner)
        self.depth -= 1
        self._nested(stmt.body, inner, f"{path}.body")
        self.scope = outer

    def _if(self, stmt: If, k: str, path: str) -> None:
        condition = self._evaluate(k, stmt.condition)[0]
        for method, body, name in (("where", stmt.then, "then"), ("unless", stmt.orelse, "orelse")):
            if body:
                inner = self._fresh("k")
                self._emit(f"{inner} = {k}.{method}({condition}, K)")
                self._emit(f"if {inner} is not None:")
                self._nested(body, inner, f"{path}.{name}")

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, value: Value, k: str) -> str:
        match value:
            case Literal(number, dtype):
                return self._constant("l", (repr(number), dtype), literal_array(number, dtype))
            case Load(buffer, index):
                view = self._visible(buffer)
                place = self._evaluate(k, index)[0]
                self._note(buffer, 1, writes=False)
                return f"{view}.load({place}, {k}, {self._site('read', buffer)})"
            case IndexValue(expression, dtype):
                text = self._evaluate(k, expression)[0]
                return f"{self._constant('v', ('index', dtype), index_to(dtype))}({text})"
            case ScalarArgument(name, dtype):
                return self._cast_text(f"w.scalars[{name!r}]", None, dtype)
            case Cast(inner, dtype):
                return self._cast_text(self._value(inner, k), inner.dtype, dtype)
            case RandomValue(distribution, index, seed, offset, parameters, dtype):
                draw = self._constant("r", ("random", distribution, dtype), random_of(distribution, dtype))
                place = self._evaluate(k, index)[0]
                texts = [self._cast_text(self._value(v, k), v.dtype, DataType.Int) for v in (seed, offset)]
                texts += [self._cast_text(self._value(v, k), v.dtype, compute_dtype(dtype)) for v in parameters]
                return f"{draw}({place}, {', '.join(texts)})"
            case Call(op, args, compute, dtype):
                row = ROWS.get(op)
                if row is None:
                    raise self._broken(f"the op table has no row {op!r}")
                if op == "cast":
                    return self._cast_text(self._value(args[0], k), args[0].dtype, dtype)
                texts = [
                    self._cast_text(self._value(arg, k), arg.dtype, target)
                    for arg, target in zip(args, argument_dtypes(row, compute), strict=True)
                ]
                text = f"{self._constant('n', ('op', op), row.numpy)}({', '.join(texts)})"
                return self._cast_text(text, result_dtype(row, compute), dtype)
            case _:
                assert_never(value)

    def _cast_text(self, text: str, source: DataType | None, target: DataType) -> str:
        if source is not None and source.numpy == target.numpy:
            return text
        return f"{self._constant('c', ('cast', target), cast_to(target))}({text})"
