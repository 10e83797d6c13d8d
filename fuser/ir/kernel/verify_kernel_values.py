"""The rules of kernel IR for values, accesses and names: the layer below the rules of statements (`verify_kernel`)."""

from __future__ import annotations

from collections.abc import Collection

from fuser.errors import DefinitionRuntimeError
from fuser.ir.integers.integers import Int, Symbol
from fuser.ir.kernel.kernel import (
    SIZE_SYMBOLS,
    THREAD_SYMBOLS,
    AsyncCopy,
    Buffer,
    Call,
    Cast,
    IndexValue,
    Kernel,
    Literal,
    Load,
    RandomValue,
    ScalarArgument,
    Stmt,
    Value,
)
from fuser.ir.kernel.uniformity import Uniformity
from fuser.ir.ops.approximate_ops import ROWS
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp
from fuser.ir.ops.op_table import cast_spelling, check_cast, compute_dtype, result_dtype

_BUILTIN = frozenset((*THREAD_SYMBOLS.values(), *SIZE_SYMBOLS.values()))
INDEX_DTYPES = (DataType.Int, DataType.Int32, DataType.Index)


class ValueRules:
    """State of one walk over a kernel; `findings` are about the kernel, `marks` about statements (by id)."""

    def __init__(self, kernel: Kernel, is_final: bool) -> None:
        self.kernel = kernel
        self.is_final = is_final
        self.findings: list[str] = []
        self.marks: dict[int, str] = {}
        self.symbols: set[Symbol] = set(_BUILTIN)
        self.symbol_names: dict[str, Symbol] = {s.name: s for s in _BUILTIN}
        self.buffers: set[Buffer] = set()
        self.buffer_names: dict[str, Buffer] = {}
        self.scalars: dict[str, DataType] = {}
        self.uniformity = Uniformity(kernel.plan.block)
        # Symbols that are constants once the marked loops are unrolled.
        self.unrolled: set[Symbol] = set()
        self.written: set[Buffer] = set()
        self.register_reads: dict[Buffer, Stmt] = {}
        # Asynchronous copies, and whether there is a commit and a wait.
        self.copies: list[AsyncCopy] = []
        self.commits = self.waits = False
        # What vectors take more of than is asked for.
        self.read_whole: dict[Buffer, Stmt] = {}

    def _value(self, stmt: Stmt, value: Value) -> None:
        match value:
            case Literal(number, dtype):
                if isinstance(number, complex) and not dtype.is_complex:
                    self._mark(stmt, f"the complex literal {number} is {dtype.name}")
            case Load(buffer, index, cache):
                self._access(stmt, buffer, index, write=False)
                self._hint(stmt, cache, buffer.is_global)
            case IndexValue(expression, dtype):
                self._integer(stmt, expression)
                if dtype not in INDEX_DTYPES:
                    self._mark(stmt, f"an index becomes a value of Int, Int32 or Index, not {dtype.name}")
            case ScalarArgument(name, dtype):
                if self.scalars.get(name) is not dtype:
                    self._mark(stmt, f"there is no scalar parameter {name} of {dtype.name}")
            case Call():
                self._call(stmt, value)
            case Cast(inner, dtype):
                self._value(stmt, inner)
                self._castable(stmt, inner.dtype, dtype)
            case RandomValue():
                self._random(stmt, value)

    def _random(self, stmt: Stmt, value: RandomValue) -> None:
        self._integer(stmt, value.index)
        if not value.dtype.is_floating:
            self._mark(stmt, f"random numbers of {value.dtype.name}, expected a floating dtype")
            return
        for operand, target in (
            *((v, DataType.Int) for v in (value.seed, value.offset)),
            *((v, compute_dtype(value.dtype)) for v in value.parameters),
        ):
            self._value(stmt, operand)
            self._castable(stmt, operand.dtype, target)

    def _call(self, stmt: Stmt, call: Call) -> None:
        for arg in call.args:
            self._value(stmt, arg)
        row = ROWS.get(call.op)
        if row is None or not row.primitive:
            self._mark(stmt, f"the op table has no row {call.op!r} that kernels can run")
            return
        if len(call.args) != row.arity:
            self._mark(stmt, f"{call.op} takes {row.arity} arguments, has {len(call.args)}")
            return
        if (call.compute.is_reduced_float and not row.in_own_type) or call.compute is DataType.Index:
            self._mark(stmt, f"{call.op} cannot compute in {call.compute.name}")
            return
        for position, arg in enumerate(call.args):
            is_condition = call.op == "where" and position == 0
            if is_condition and arg.dtype is not DataType.Bool:
                self._mark(stmt, f"the condition of where is {arg.dtype.name}, expected Bool")
            if not is_condition:
                self._castable(stmt, arg.dtype, call.compute)
        if call.op == "cast":
            return
        try:
            row.cuda(call.compute)
        except (TypeError, KeyError):
            self._mark(stmt, f"{call.op} is not defined for {call.compute.name}")
            return
        self._castable(stmt, result_dtype(row, call.compute), call.dtype)

    def _castable(self, stmt: Stmt, source: DataType, target: DataType) -> None:
        try:
            check_cast(source, target)
            cast_spelling(source, target)
        except (DefinitionRuntimeError, KeyError):
            self._mark(stmt, f"{source.name} cannot be cast to {target.name}")

    def _access(self, stmt: Stmt, buffer: Buffer, index: Int, *, write: bool, width: int = 1) -> None:
        if buffer not in self.buffers:
            known = self.buffer_names.get(buffer.name)
            how = "is not visible here" if known is buffer else "is neither a parameter nor allocated before"
            self._mark(stmt, f"buffer {buffer.name} {how}")
        self._integer(stmt, index)
        if write:
            self.written.add(buffer)
        elif buffer.is_register:
            self.register_reads.setdefault(buffer, stmt)
        # Code that touches a tensor of no elements never runs: the grid, or a loop around it, is empty.
        runs = all(s.hi is None or s.hi >= 0 for s in index.symbols)
        if runs and index.hi is not None and index.hi < 0:
            self._mark(stmt, f"{buffer.name}[{index}] is below the buffer")
        size = buffer.size.value if buffer.size.is_const else 0
        if size and index.lo is not None and index.lo + width > size:
            self._mark(stmt, f"{buffer.name}[{index}] is past its end, it has {buffer.size} elements")
        if not buffer.is_register:
            return
        dynamic = index.symbols - self.unrolled
        if dynamic:
            self._mark(
                stmt,
                f"register array {buffer.name} is indexed by {', '.join(sorted(s.name for s in dynamic))}, "
                "which no unrolled loop turns into constants",
            )
        elif buffer.size.is_const and index.is_const and not 0 <= index.value <= buffer.size.value - width:
            self._mark(stmt, f"{buffer.name}[{index}] is outside its {buffer.size} elements")

    def _hint(self, stmt: Stmt, cache: CacheOp, in_device_memory: bool) -> None:
        if cache is not CacheOp.unspecified and not in_device_memory:
            self._mark(stmt, f"the cache hint {cache.name} is for device memory only")

    def _integer(self, stmt: Stmt, expression: Int) -> None:
        self._visible(stmt, expression.symbols)

    def _visible(self, stmt: Stmt, symbols: Collection[Symbol]) -> None:
        if not self.symbols.issuperset(symbols):
            missing = sorted(s.name for s in symbols if s not in self.symbols)
            named = [f"{n} (another symbol of that name is)" if n in self.symbol_names else n for n in missing]
            self._mark(stmt, f"not defined here: {', '.join(named)}")

    def _new_symbol(self, symbol: Symbol) -> bool:
        if symbol in self.symbols:
            return False
        self.symbol_names[symbol.name] = symbol
        return True

    def _define(self, stmt: Stmt, symbol: Symbol, *sources: Int, value: Int | None = None) -> None:
        """`symbol` comes into scope, computed from `sources`."""
        if symbol in self.symbols:
            self._mark(stmt, f"{symbol.name} is already defined here")
        self._new_symbol(symbol)
        self.symbols.add(symbol)
        # A sibling scope may have defined the symbol before, as something else.
        self.unrolled.discard(symbol)
        self.uniformity.define(symbol, sources, value)

    def _uniform(self, stmt: Stmt, what: str, *, whole_block: bool) -> None:
        around = self.uniformity.divergence(in_block=whole_block)
        if around is not None:
            who = "threads of a block" if whole_block else "lanes of a warp"
            self._mark(stmt, f"{what} under {around}, which differs between {who}")

    def _mark(self, stmt: Stmt, message: str) -> None:
        known = self.marks.get(id(stmt))
        if known is None:
            self.marks[id(stmt)] = message
        elif message not in known:
            self.marks[id(stmt)] = f"{known}; {message}"


def stored(dtype: DataType) -> DataType:
    """Index is Int in memory."""
    return DataType.Int if dtype is DataType.Index else dtype
