"""Reads of device memory under a test, written so that several of them are on their way at once.

    if (i < n) { a = x[i]; }    ...    if (i < n) { s += a; }

As they stand, ptxas takes both branches for one: what uses a read then comes right behind it, and the next read waits for
that. So each is read into registers of its own, which an empty asm statement uses behind the test: it has no instruction, but
the read cannot move past it. The registers hold zeros where the test fails.

Such text makes ptxas choose fewer registers, for iterations without tests beside it, too, whose reads may then wait for one
another: schedules that count on reads being on their way ask for registers by launch bounds.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.codegen.names import Names
from fuser.codegen.values import LOAD_FUNCTIONS, ValueWriter
from fuser.ir.integers.integers import ZERO
from fuser.ir.kernel.kernel import Buffer, Cast, For, If, Literal, Load, Stmt, Store, Value, VectorMove, walk
from fuser.ir.kernel.kernel_accesses import stmt_writes
from fuser.ir.ops.enums import CacheOp
from fuser.records import record

ACCESS_TYPES = {2: "unsigned short", 4: "unsigned int", 8: "uint2", 16: "uint4"}
ACCESS_OF_SHIFTS = 4
"""Bytes of the narrowest read that is shifted."""
MOST_READS = 8
"""Of one test: more would take registers before any of them is used."""


@record
class _Read:
    """`target = source` once it is there: `pieces` are the registers, with their types and what is read into each."""

    pieces: tuple[tuple[str, str, str], ...]
    target: tuple[str, ...]


def only_read_into(body: tuple[Stmt, ...]) -> frozenset[Buffer]:
    """Register arrays that nothing but reads of device memory writes: what they held before a read does not matter."""
    found: dict[Buffer, bool] = {}
    for stmt in walk(body):
        for buffer, _ in stmt_writes(stmt):
            if buffer.is_register:
                found[buffer] = found.get(buffer, True) and as_move(stmt) is not None
    return frozenset(b for b, is_read in found.items() if is_read)


def as_move(stmt: Stmt) -> VectorMove | None:
    """A statement that does nothing but read device memory into registers."""
    match stmt:
        case VectorMove(dst, _, src, _, _, _, _) if dst.is_register and src.is_global:
            return stmt
        case Store(buffer, index, Load(src, at, cache)) if buffer.is_register and src.is_global:
            return VectorMove(buffer, index, src, at, 1, cache) if src.dtype is buffer.dtype else None
        case _:
            return None


def tested_reads(stmt: If, into: Iterable[Buffer]) -> tuple[VectorMove, ...]:
    """The reads that a test is for, if it is for nothing else but what the registers hold without them; else none."""
    if stmt.orelse or len(stmt.then) > MOST_READS:
        return ()
    moves = [as_move(s) for s in stmt.then]
    known = [m for m in moves if m is not None and m.dst in into and _has_registers(m)]
    return tuple(known) if len(known) == len(moves) else ()


def tested_tree(stmt: For | If, into: frozenset[Buffer]) -> tuple[Buffer, ...]:
    """What tests within tests read into, if they are for nothing else: vectors that the ends of a row may cut."""
    widest: dict[Buffer, int] = {}
    tests = 0
    for s in walk((stmt,)):
        move = as_move(s)
        if move is not None:
            widest[move.dst] = max(widest.get(move.dst, 0), move.width * move.dst.dtype.itemsize)
        elif isinstance(s, If):
            tests += any(isinstance(inner, If) for inner in walk((*s.then, *s.orelse)))
        elif not isinstance(s, For):
            return ()
    # Reads of a part of a register each are put together behind the last of them: each would be waited for by itself.
    known = all(
        b in into and nbytes >= 4 and b.size.is_const and b.size.value * b.dtype.itemsize % 4 == 0
        for b, nbytes in widest.items()
    )
    return tuple(widest) if tests and known else ()


class TestedReads:
    """Text of such reads."""

    def __init__(self, names: Names, values: ValueWriter) -> None:
        self._names = names
        self._values = values

    def lines(self, condition: str, moves: tuple[VectorMove, ...]) -> list[str]:
        """Without indentation."""
        out: list[str] = []
        reads = [self._unaligned(m, out) if not m.aligned and m.width > 1 else self._aligned(m) for m in moves]
        pieces = [piece for read in reads for piece in read.pieces]
        for name, kind, _ in pieces:
            begins = f"{kind}()" if kind.startswith("uint") else "0"
            out.append(f"{kind} {name} = {begins};")
        out.append(f"if ({condition}) {{")
        out += [f"  {name} = {source};" for name, _, source in pieces]
        out.append("}")
        held = [text for name, kind, _ in pieces for text in _held(name, kind)]
        out += [f'asm("" : {", ".join(held[k : k + 16])});' for k in range(0, len(held), 16)]
        return out + [text for read in reads for text in read.target]

    def held(self, buffer: Buffer) -> list[str]:
        """The same for a whole register array, behind the tests of all its reads."""
        words = buffer.size.value * buffer.dtype.itemsize // 4
        place = f"reinterpret_cast<unsigned int*>(&{self._values.element(buffer, ZERO)})"
        return [
            "#pragma unroll",
            f'for (int word = 0; word < {words}; ++word) asm("" : "+r"({place}[word]));',
        ]

    def _aligned(self, move: VectorMove) -> _Read:
        nbytes = move.width * move.dst.dtype.itemsize
        kind = ACCESS_TYPES[nbytes]
        name = self._names.fresh("read")
        place = f"reinterpret_cast<const {kind}*>(&{self._values.element(move.src, move.src_index)})"
        load = LOAD_FUNCTIONS.get(move.cache)
        if move.cache is CacheOp.evict_last and nbytes >= 4:
            load = "fuser_load_last"
            self._values.functions[load] = None
        target = f"*reinterpret_cast<{kind}*>(&{self._values.element(move.dst, move.dst_index)}) = {name};"
        return _Read(((name, kind, f"*{place}" if load is None else f"{load}({place})"),), (target,))

    def _unaligned(self, move: VectorMove, out: list[str]) -> _Read:
        """Three reads of half the bytes from the aligned address before, or one for each element where that is no more."""
        values, itemsize = self._values, move.dst.dtype.itemsize
        nbytes = move.width * itemsize
        if is_read_by_element(move.width, itemsize):
            alone = [
                self._aligned(VectorMove(move.dst, move.dst_index + k, move.src, move.src_index + k, 1, move.cache))
                for k in range(move.width)
            ]
            return _Read(tuple(p for r in alone for p in r.pieces), tuple(t for r in alone for t in r.target))
        half, access = ACCESS_TYPES[nbytes // 2], ACCESS_TYPES[nbytes]
        values.functions.update(dict.fromkeys(("fuser_floor", "fuser_offset_in", "fuser_realign")))
        start, offset = self._names.fresh("start"), self._names.fresh("offset")
        place = f"&{values.element(move.src, move.src_index)}"
        out.append(f"const {half}* const {start} = fuser_floor<{half}>({place});")
        out.append(f"const unsigned {offset} = fuser_offset_in<{half}>({place});")
        load = LOAD_FUNCTIONS.get(move.cache, "*")
        names = [self._names.fresh("read") for _ in range(3)]
        sources = [f"{load}({start} + {k})" for k in range(3)]
        # The third unit holds nothing that is asked for if the address is aligned after all.
        sources[2] = f"{offset} ? {sources[2]} : {'0u' if nbytes == 8 else 'uint2()'}"
        target = f"*reinterpret_cast<{access}*>(&{values.element(move.dst, move.dst_index)})"
        joined = f"{target} = fuser_realign({', '.join(names)}, {offset});"
        return _Read(tuple(zip(names, [half] * 3, sources, strict=True)), (joined,))


def is_read_by_element(width: int, itemsize: int) -> bool:
    """Whether a vector from any address is read element by element: reads of half its bytes would be no wider.

    Four Floats are three reads all the same. Four take fewer instructions (layer_norm with such weights 348 a row, not
    530), but a warp's reads then lie 16 bytes apart, and take as many wavefronts of the first-level cache each (H200:
    layer_norm bf16 42x250003 beside Floats 30.6 us, 27.3 so; f16 1256x50257 118.8 and 115.0).
    """
    return width * itemsize < 2 * ACCESS_OF_SHIFTS or width == 2


def _has_registers(move: VectorMove) -> bool:
    """Whether asm statements take what is read: no bytes, and no pairs that are aligned less than their registers."""
    return move.dst.dtype.itemsize in ACCESS_TYPES and not move.dst.dtype.is_complex


def _held(name: str, kind: str) -> list[str]:
    constraint = "h" if kind == "unsigned short" else "r"
    parts = [f"{name}.{p}" for p in "xyzw"[: int(kind[-1])]] if kind.startswith("uint") else [name]
    return [f'"+{constraint}"({part})' for part in parts]


def reads_or_zeros(stmt: If) -> bool:
    """Whether one branch moves a vector of 4 bytes or more into registers, and the other stores zeros there, one by one."""
    if len(stmt.then) != 1 or not stmt.orelse:
        return False
    move = stmt.then[0]
    if not isinstance(move, VectorMove) or not move.dst.is_register or len(stmt.orelse) != move.width:
        return False
    return move.width * move.dst.dtype.itemsize >= 4 and all(
        isinstance(store, Store)
        and store.buffer is move.dst
        and store.index is move.dst_index + lane
        and _is_zero(store.value)
        for lane, store in enumerate(stmt.orelse)
    )


def _is_zero(value: Value) -> bool:
    """Whether all bits of a constant are 0."""
    literal = value.value if isinstance(value, Cast) else value
    return isinstance(literal, Literal) and repr(literal.value) in ("0", "0.0", "False", "0j")
