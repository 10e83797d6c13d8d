"""Statements as CUDA text: one line each, nested ones indented by two spaces."""

from __future__ import annotations

from typing import assert_never

from fuser.codegen.exponentials import FILL_EXP_TABLE, Fill
from fuser.codegen.names import Names
from fuser.codegen.preamble import comment_lines
from fuser.codegen.tested_reads import (
    ACCESS_TYPES,
    TestedReads,
    is_read_by_element,
    only_read_into,
    reads_or_zeros,
    tested_reads,
    tested_tree,
)
from fuser.codegen.untested_values import untested_values
from fuser.codegen.values import LOAD_FUNCTIONS, ValueWriter, is_scalar
from fuser.errors import InternalError
from fuser.ir.integers.integers import TRUE, ZERO, Cond, Int, const, less, split_multiples
from fuser.ir.kernel.kernel import (
    Allocate,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicAdd,
    BlockBarrier,
    Buffer,
    ClusterArrive,
    ClusterWait,
    Comment,
    ExchangeInit,
    ExchangeWait,
    Fence,
    For,
    GridBarrier,
    If,
    Kernel,
    LaunchWait,
    Let,
    LetPhase,
    Load,
    LoadIndex,
    Post,
    Receive,
    Reduce,
    RemoteStore,
    Role,
    Scan,
    Shuffle,
    ShuffleKind,
    SpinWait,
    Stmt,
    Store,
    VectorMove,
    WarpBarrier,
    post_words,
)
from fuser.ir.ops.dtypes import DataType
from fuser.ir.ops.enums import CacheOp

_STORE_FUNCTIONS = {CacheOp.all_levels: "__stwb", CacheOp.streaming: "__stcs", CacheOp["global"]: "__stcg"}
_SHUFFLES = {
    ShuffleKind.xor: "__shfl_xor_sync",
    ShuffleKind.down: "__shfl_down_sync",
    ShuffleKind.up: "__shfl_up_sync",
    ShuffleKind.index: "__shfl_sync",
}
_ALL_LANES = "0xffffffffu"
LEAST_UNROLLED = 8
"""Iterations of an unrolled loop beyond which tests in it compare the counter alone with what is left: else the compiler keeps
a sum in a register for each iteration, from one such loop to the next (add_norm f32 3x4000000, 15 iterations, spilled)."""
# Roles that are worth a word in the text: the others follow from the code.
_SHOWN_ROLES = (Role.owner, Role.unswitch, Role.initialise, Role.last_block, Role.semaphore_reset)


# Bytes of a store into another block -> asm constraint and type of its bits; bytes travel in a 32-bit register.
_REMOTE_BITS = {1: ("r", "unsigned"), 2: ("h", "unsigned short"), 4: ("r", "unsigned"), 8: ("l", "unsigned long long")}


class StatementWriter:
    """Writes the statements of one kernel into `lines`.

    fills   where the table of powers is filled that exponentials of Doubles read
    """

    def __init__(
        self,
        kernel: Kernel,
        names: Names,
        values: ValueWriter,
        alignments: dict[Buffer, int],
        fills: tuple[Fill, ...] = (),
    ) -> None:
        self.lines: list[str] = []
        self.uses_shared = False
        self._kernel = kernel
        self._names = names
        self._values = values
        # Bytes of the widest access to each register array that vector moves touch.
        self._alignments = alignments
        self._only_read_into = only_read_into(kernel.body)
        self._tested_reads = TestedReads(names, values)
        self._in_tree = False
        self._untested = untested_values(kernel.body)
        self._fills = fills
        # Tests around the statement at hand, and whether there are asynchronous copies under any (not asked yet: None).

    def body(self, body: tuple[Stmt, ...], indent: str) -> None:
        """A list of statements."""
        fills = {f.at: f.condition for f in self._fills if f.body is body}
        if 0 in fills:
            self._fill(fills[0], indent)
        for k, stmt in enumerate(body):
            read: tuple[Buffer, ...] = ()
            if isinstance(stmt, (For, If)) and not self._in_tree:
                read = tested_tree(stmt, self._only_read_into)
            self._in_tree |= bool(read)
            self._stmt(stmt, indent)
            self._in_tree &= not read
            if k + 1 in fills:
                # Reads are named behind that: else a branch would wait for all of them in every iteration.
                self._fill(fills[k + 1], indent)
            self.lines += [indent + text for buffer in read for text in self._tested_reads.held(buffer)]

    def _fill(self, condition: Cond, indent: str) -> None:
        self._values.functions[FILL_EXP_TABLE] = None
        test = "" if condition is TRUE else f"if ({self._values.integer(condition)}) "
        self.lines.append(f"{indent}{test}{FILL_EXP_TABLE}();")

    def _stmt(self, stmt: Stmt, indent: str) -> None:
        values = self._values
        line = self.lines.append
        match stmt:
            case Store(buffer, index, value, role):
                line(f"{indent}{values.element(buffer, index)} = {unparenthesized(values.value(value))};{_role(role)}")
            case Let(symbol, value):
                text = values.integer(value)
                line(f"{indent}const index_t {self._names.symbols.declare(symbol)} = {text};")
            case If():
                self._if(stmt, indent)
            case For():
                self._for(stmt, indent)
            case VectorMove(aligned=False):
                self._unaligned(stmt, indent)
            case VectorMove():
                line(f"{indent}{self._move(stmt)}")
            case AsyncCopy():
                line(f"{indent}{self._async_copy(stmt)}")
            case AsyncCommit():
                values.functions["fuser_commit_copies"] = None
                line(f"{indent}fuser_commit_copies();")
            case AsyncWait(pending, reason):
                values.functions["fuser_wait_copies"] = None
                line(f"{indent}fuser_wait_copies<{pending}>();{_note(reason)}")
            case Allocate(buffer):
                line(f"{indent}{self._allocate(buffer)}")
            case Shuffle():
                self._shuffle(stmt, indent)
            case BlockBarrier(reason):
                line(f"{indent}__syncthreads();{_note(reason)}")
            case WarpBarrier(reason):
                line(f"{indent}__syncwarp();{_note(reason)}")
            case Fence():
                # Enough for a value that is published and acquired; __threadfence() orders more, and takes longer.
                line(f'{indent}asm volatile("fence.acq_rel.gpu;" ::: "memory");')
            case LaunchWait():
                line(f'{indent}asm volatile("griddepcontrol.wait;" ::: "memory");  // the launches before end first')
            case LoadIndex(symbol, buffer, index):
                text = values.element(buffer, index) if buffer.is_register else self._volatile(buffer, index)
                line(f"{indent}const index_t {self._names.symbols.declare(symbol)} = {text};")
            case LetPhase(symbol, buffer, width):
                place = f"(unsigned long long)&{values.element(buffer, ZERO)}"
                name = self._names.symbols.declare(symbol)
                line(f"{indent}const index_t {name} = (index_t)({place} / {buffer.dtype.itemsize} % {width});")
            case AtomicAdd(_, buffer, index, _, _, Int() as wrap):
                # Nobody reads the old value: the thread goes on at once.
                counter = f"reinterpret_cast<unsigned int*>(&{values.element(buffer, index)})"
                line(f"{indent}atomicInc({counter}, (unsigned int)({values.integer(wrap - 1)}));")
            case AtomicAdd(symbol, buffer, index, amount, acquire, _, release):
                number = values.integer(amount)
                narrow = number if self._kernel.index_bits == 32 or amount.is_const else f"(int)({number})"
                function = "fuser_add_acquire" if acquire else "fuser_add_release" if release else "atomicAdd"
                if acquire or release:
                    values.functions[function] = None
                call = f"{function}(&{values.element(buffer, index)}, {narrow});"
                result = "" if symbol is None else f"const index_t {self._names.symbols.declare(symbol)} = "
                line(f"{indent}{result}{call}")
            case RemoteStore():
                self._remote_store(stmt, indent)
            case ExchangeInit(signal, nbytes):
                values.functions["fuser_expect_bytes"] = None
                line(f"{indent}fuser_expect_bytes(&{self._names.buffers[signal]}[0], {nbytes});")
            case ExchangeWait(signal, reason):
                values.functions["fuser_wait_bytes"] = None
                line(f"{indent}fuser_wait_bytes(&{self._names.buffers[signal]}[0]);{_note(reason)}")
            case ClusterArrive(reason, relaxed):
                order = "relaxed" if relaxed else "release"
                line(f'{indent}asm volatile("barrier.cluster.arrive.{order}.aligned;" ::: "memory");{_note(reason)}')
            case ClusterWait(reason):
                line(f'{indent}asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");{_note(reason)}')
            case SpinWait(buffer, index, target, acquire):
                # Without a pause: a block asks for one word at a time, and goes on as soon as it may.
                seen = self._volatile(buffer, index)
                if acquire:
                    values.functions["fuser_load_acquire"] = None
                    seen = f"fuser_load_acquire(&{values.element(buffer, index)})"
                line(f"{indent}while ({seen} < {self._operand(target)}) {{")
                line(f"{indent}}}")
            case Post(words, index, posted):
                values.functions["fuser_post"] = None
                place = values.integer(index)
                for n, value in enumerate(posted):
                    offset = post_words(v.dtype for v in posted[:n])
                    at = f"&{self._names.buffers[words]}[{place}" + (f" + {offset}]" if offset else "]")
                    line(f"{indent}fuser_post({at}, {unparenthesized(values.value(value))});")
            case Receive():
                self._receive(stmt, indent)
            case Comment(text):
                self.lines.extend(comment_lines(text, indent))
            case Reduce() | Scan():
                raise InternalError(
                    f"the collective {stmt.name} reached code generation; expand_collectives must have run",
                    pass_name="generate_cuda",
                )
            case GridBarrier():
                raise InternalError(
                    "a grid barrier reached code generation; expand_collectives must have run",
                    pass_name="generate_cuda",
                )
            case _:
                assert_never(stmt)

    def _allocate(self, buffer: Buffer) -> str:
        name, type_name = self._names.buffers.declare(buffer), self._values.type_name(buffer.dtype)
        if buffer.is_shared:
            offset = self._kernel.shared_offsets.get(buffer.name)
            if offset is None:
                raise InternalError(f"shared buffer {buffer.name} has no place", pass_name="generate_cuda")
            self.uses_shared = True
            place = f"&shared_memory[{self._values.integer(offset)}]"
            return f"{type_name}* const {name} = reinterpret_cast<{type_name}*>({place});"
        if is_scalar(buffer):
            return f"{type_name} {name};"
        alignment = self._alignments.get(buffer, 0)
        aligned = f"alignas({alignment}) " if alignment > buffer.dtype.itemsize else ""
        return f"{aligned}{type_name} {name}[{buffer.size.value}];"

    def _for(self, stmt: For, indent: str) -> None:
        values = self._values
        start, stop = values.integer(stmt.start), self._operand(stmt.stop)
        step = values.integer(stmt.step)
        name = self._names.symbols.declare(stmt.symbol)
        if stmt.unroll:
            self.lines.append(f"{indent}#pragma unroll")
            if stmt.stop.is_const and stmt.stop.value > LEAST_UNROLLED:
                self._values.unrolled.add(stmt.symbol)
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        self.lines.append(f"{indent}for (index_t {name} = {start}; {name} < {stop}; {advance}) {{")
        self.body(stmt.body, indent + "  ")
        self._values.unrolled.discard(stmt.symbol)
        self.lines.append(indent + "}")

    def _if(self, stmt: If, indent: str) -> None:
        if stmt in self._untested:
            self.body(stmt.then, indent)
            return
        if reads_or_zeros(stmt):
            self._read_or_zeros(stmt, indent)
            return
        reads = () if self._in_tree else tested_reads(stmt, self._only_read_into)
        if reads:
            condition = self._values.integer(stmt.condition)
            self.lines += [indent + text for text in self._tested_reads.lines(condition, reads)]
            return
        condition = self._values.integer(stmt.condition)
        self.lines.append(f"{indent}if ({condition}) {{{_role(stmt.role)}")
        self.body(stmt.then, indent + "  ")
        if stmt.orelse:
            self.lines.append(indent + "} else {")
            self.body(stmt.orelse, indent + "  ")
        self.lines.append(indent + "}")

    def _read_or_zeros(self, stmt: If, indent: str) -> None:
        """A vector of registers from memory or of zeros, joined as whole registers.

        As elements, which is how they are used, the compiler would join them where the branches meet: that takes an instruction
        an element on either side, and waits for the memory in the branch.
        """
        move = stmt.then[0]
        assert isinstance(move, VectorMove)
        words = move.width * move.dst.dtype.itemsize // 4
        name = self._names.fresh("read")
        parts = [name] if words == 1 else [f"{name}.{part}" for part in "xyzw"[:words]]
        held = ", ".join(f'"+r"({part})' for part in parts)
        target, source = self._ends(move)
        self.lines += [
            f"{indent}{ACCESS_TYPES[4 * words]} {name};",
            f"{indent}{' = '.join(parts)} = 0;",
            f"{indent}if ({self._values.integer(stmt.condition)}) {name} = {source};",
            f'{indent}asm("" : {held});',
            f"{indent}*{target} = {name};",
        ]

    def _move(self, stmt: VectorMove) -> str:
        values = self._values
        to_device = stmt.dst.is_global and not stmt.src.is_global
        if stmt.width == 1 and not (to_device and stmt.cache in _STORE_FUNCTIONS):
            source = values.value(
                Load(stmt.src, stmt.src_index, stmt.cache if stmt.src.is_global else CacheOp.unspecified)
            )
            return f"{values.element(stmt.dst, stmt.dst_index)} = {source};"
        target, read = self._ends(stmt)
        store = _STORE_FUNCTIONS.get(stmt.cache) if to_device else None
        return f"*{target} = {read};" if store is None else f"{store}({target}, {read});"

    def _ends(self, move: VectorMove) -> tuple[str, str]:
        """(pointer to where a single access goes, what it reads)."""
        nbytes = move.width * move.dst.dtype.itemsize
        access = ACCESS_TYPES.get(nbytes)
        if access is None:
            raise InternalError(f"a move of {nbytes} bytes is no single access", pass_name="generate_cuda")
        target = f"reinterpret_cast<{access}*>(&{self._values.element(move.dst, move.dst_index)})"
        source = f"reinterpret_cast<const {access}*>(&{self._values.element(move.src, move.src_index)})"
        load = LOAD_FUNCTIONS.get(move.cache) if move.src.is_global else None
        if move.src.is_global and move.cache is CacheOp.evict_last and nbytes >= 4:
            load = "fuser_load_last"
            self._values.functions[load] = None
        return target, f"*{source}" if load is None else f"{load}({source})"

    def _async_copy(self, stmt: AsyncCopy) -> str:
        values = self._values
        # No policy for the second-level cache: ptxas 12.9 and 13.0 take an uninitialised register for it in the first of some
        # copies (`LDGSTS [R+UR0], desc[UR1]`), and the kernel dies of an illegal instruction.
        function = f"fuser_copy_async_{stmt.width * stmt.dst.dtype.itemsize}"
        values.functions[function] = None
        target, source = values.element(stmt.dst, stmt.dst_index), values.element(stmt.src, stmt.src_index)
        note = _note("asynchronous copies have no evict_last") if stmt.cache is CacheOp.evict_last else ""
        return f"{function}(&{target}, &{source});{note}"

    def _unaligned(self, stmt: VectorMove, indent: str) -> None:
        """Three loads of half the bytes from the aligned address before, or one for each element where that is no more.

        What of the index are whole halves is added behind the aligned address: it and the shift are often the same for all
        threads of a block and all of their accesses.
        """
        values, line = self._values, self.lines.append
        nbytes, itemsize = stmt.width * stmt.dst.dtype.itemsize, stmt.dst.dtype.itemsize
        if is_read_by_element(stmt.width, itemsize):
            for k in range(stmt.width):
                source = values.value(Load(stmt.src, stmt.src_index + k, stmt.cache))
                line(f"{indent}{values.element(stmt.dst, stmt.dst_index + k)} = {source};")
            return
        half, access = ACCESS_TYPES[nbytes // 2], ACCESS_TYPES[nbytes]
        values.functions.update(dict.fromkeys(("fuser_floor", "fuser_offset_in", "fuser_realign")))
        start, offset = self._names.fresh("start"), self._names.fresh("offset")
        load = LOAD_FUNCTIONS.get(stmt.cache, "*")
        parts = [f"{load}({start} + {k})" for k in range(3)]
        halves, rest = split_multiples(stmt.src_index, stmt.width // 2)
        place = f"&{values.element(stmt.src, rest)}"
        target = f"*reinterpret_cast<{access}*>(&{values.element(stmt.dst, stmt.dst_index)})"
        moved = "" if halves is ZERO else f" + ({values.integer(halves)})"
        line(f"{indent}const {half}* const {start} = fuser_floor<{half}>({place}){moved};")
        line(f"{indent}const unsigned {offset} = fuser_offset_in<{half}>({place});")
        # The third unit holds nothing that is asked for if the address is aligned after all.
        last = f"{offset} ? {parts[2]} : {'0u' if nbytes == 8 else 'uint2()'}"
        line(f"{indent}{target} = fuser_realign({parts[0]}, {parts[1]}, {last}, {offset});")

    def _shuffle(self, stmt: Shuffle, indent: str) -> None:
        values = self._values
        target = values.element(stmt.dst, stmt.dst_index)
        source = values.value(stmt.src)
        function, rest = _SHUFFLES[stmt.kind], f"{values.integer(stmt.lane)}, {stmt.width}"

        def moved(text: str) -> str:
            return f"{function}({_ALL_LANES}, {text}, {rest})"

        dtype = stmt.dst.dtype
        if dtype.is_complex:
            # The parts travel apart; a value that is more than an element is computed once.
            if not isinstance(stmt.src, Load):
                own = self._names.fresh("own")
                self.lines.append(f"{indent}const {values.type_name(dtype)} {own} = {source};")
                source = own
            text = f"{values.type_name(dtype)}{{{moved(source + '.re')}, {moved(source + '.im')}}}"
        elif dtype is DataType.Bool:
            text = f"{moved(f'(int){source}')} != 0"
        elif dtype.is_reduced_float:
            bits = moved(f"(unsigned int)__builtin_bit_cast(unsigned short, {source})")
            text = f"__builtin_bit_cast({values.type_name(dtype)}, (unsigned short){bits})"
        else:
            text = moved(source)
        self.lines.append(f"{indent}{target} = {text};")

    def _remote_store(self, stmt: RemoteStore, indent: str) -> None:
        """mapa gives the address that the element has in another block of the cluster; stores take bits of a size."""
        values, line = self._values, self.lines.append
        dtype = stmt.buffer.dtype
        remote, value = self._names.fresh("remote"), self._names.fresh("value")
        address = f"(unsigned)__cvta_generic_to_shared(&{values.element(stmt.buffer, stmt.index)})"
        line(f"{indent}unsigned {remote};")
        line(
            f'{indent}asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"({remote}) : "r"({address}), '
            f'"r"((unsigned)({values.integer(stmt.rank)})));'
        )
        line(f"{indent}const {values.type_name(dtype)} {value} = {unparenthesized(values.value(stmt.value))};")
        parts = [(value, 0, dtype.itemsize)]
        if dtype.is_complex:
            half = dtype.itemsize // 2
            parts = [(f"{value}.re", 0, half), (f"{value}.im", half, half)]
        if stmt.signal is not None:
            counter = self._names.fresh("counter")
            line(f"{indent}unsigned {counter};")
            place = f"(unsigned)__cvta_generic_to_shared(&{self._names.buffers[stmt.signal]}[0])"
            line(
                f'{indent}asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"({counter}) : "r"({place}), '
                f'"r"((unsigned)({values.integer(stmt.rank)})));'
            )
            constraint, bits = _REMOTE_BITS[dtype.itemsize]
            line(
                f'{indent}asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b{8 * dtype.itemsize} '
                f'[%0], %1, [%2];" :: "r"({remote}), "{constraint}"(__builtin_bit_cast({bits}, {value})), '
                f'"r"({counter}) : "memory");'
            )
            return
        for text, offset, nbytes in parts:
            constraint, bits = _REMOTE_BITS[nbytes]
            source = f"(unsigned){text}" if nbytes == 1 else f"__builtin_bit_cast({bits}, {text})"
            line(
                f'{indent}asm volatile("st.shared::cluster.b{8 * nbytes} [%0+{offset}], %1;" :: "r"({remote}), '
                f'"{constraint}"({source}) : "memory");'
            )

    def _receive(self, stmt: Receive, indent: str) -> None:
        """All words are asked for before the first is looked at; lanes of a warp go on together."""
        values = self._values
        values.functions["fuser_receive"] = values.functions["fuser_unpack"] = None
        pairs, posts = post_words(d.dtype for d in stmt.dsts) // 2, stmt.dsts[0].size.value
        name = self._names.fresh("received")
        first, step, stop = (values.integer(x) for x in (stmt.index, stmt.step, stmt.stop))
        words = self._names.buffers[stmt.words]
        self.lines += [
            f"{indent}unsigned long long {name}[{posts}][{pairs}];",
            f"{indent}fuser_receive({name}, {words}, (index_t)({first}), (index_t)({step}), (index_t)({stop}));",
        ]
        for k in range(posts):
            index = stmt.index + stmt.step * k
            self.lines.append(f"{indent}if ({values.integer(less(index, stmt.stop))}) {{")
            pair = 0
            for dst in stmt.dsts:
                self.lines.append(f"{indent}  fuser_unpack(&{name}[{k}][{pair}], {values.element(dst, const(k))});")
                pair += post_words((dst.dtype,)) // 2
            self.lines.append(f"{indent}}}")

    def _volatile(self, buffer: Buffer, index: Int) -> str:
        """A read that the compiler neither drops, repeats nor moves across another one, and no first-level cache serves."""
        name = self._names.buffers[buffer]
        return f"static_cast<const volatile int*>({name})[{self._values.integer(index)}]"

    def _operand(self, expression: Int) -> str:
        """An index expression that may stand beside a comparison."""
        text = self._values.integer(expression)
        return text if expression.is_const or text.isidentifier() else f"({text})"


def unparenthesized(text: str) -> str:
    """Without the one pair of parentheses that encloses the whole text."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    inner, depth = text[1:-1], 0
    for part in inner.split(")")[:-1]:
        depth += part.count("(") - 1
        if depth < 0:
            return text
    return inner


def _role(role: Role) -> str:
    return f"  // {role.value}" if role in _SHOWN_ROLES else ""


def _note(reason: str) -> str:
    return f"  {' '.join(comment_lines(reason))}" if reason else ""
