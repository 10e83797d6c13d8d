"""CUDA text of a kernel: what the kernel IR says, statement by statement, and nothing else.

Nothing is optimised here; the compiler behind the text does that. The text has no header and only the device functions
that it uses. Equal kernels give equal text.
"""

from __future__ import annotations

from fuser.codegen.exponentials import BY_POWERS, fills_of_table, is_worth_a_table
from fuser.codegen.names import BUILTINS, Names
from fuser.codegen.preamble import preamble, signature
from fuser.codegen.statements import StatementWriter
from fuser.codegen.values import ValueWriter
from fuser.ir.kernel.kernel import (
    Buffer,
    DivisorParameter,
    ExtentParameter,
    Kernel,
    ScalarParameter,
    TensorParameter,
    VectorMove,
    walk,
)
from fuser.ir.kernel.kernel_accesses import stmt_writes
from fuser.ir.ops.dtypes import DataType
from fuser.records import record


@record
class CudaSource:
    """CUDA text with one `extern "C"` kernel, `entry`."""

    text: str
    entry: str


def generate_cuda(kernel: Kernel) -> CudaSource:
    """The text of an expanded kernel.

    Launch bounds come from `-D` options at compile time: FUSER_MAX_THREADS, and at most one of FUSER_MIN_BLOCKS and
    FUSER_MAX_REGISTERS. Raises InternalError for a collective that was not expanded, and for symbols and buffers that are never
    defined; rules beyond that are `verify_kernel`'s.
    """
    names = Names()
    for parameter in kernel.parameters:
        match parameter:
            case ExtentParameter(symbol):
                names.symbols.declare(symbol)
            case DivisorParameter(divisor):
                names.divisors[divisor] = names.fresh(f"divisor{len(names.divisors)}")
            case ScalarParameter(name, _):
                names.scalars[name] = names.fresh(name)
            case _:
                names.buffers.declare(parameter.buffer)
    written, alignments = _accesses(kernel)
    has_doubles = any(isinstance(p, TensorParameter) and p.buffer.dtype is DataType.Double for p in kernel.parameters)
    instead = BY_POWERS if has_doubles and is_worth_a_table(kernel.body) else {}
    values = ValueWriter(names, kernel.index_bits, instead)
    fills = fills_of_table(kernel.body) if instead else ()
    statements = StatementWriter(kernel, names, values, alignments, fills)
    statements.body(kernel.body, "  ")
    head = signature(kernel, names, written, values.functions)

    lines: list[str] = [head]
    if statements.uses_shared:
        lines.append("  extern __shared__ __align__(16) unsigned char shared_memory[];")
    used = names.symbols.builtins
    lines.extend(f"  const index_t {name} = {symbol.name};" for symbol, name in BUILTINS.items() if symbol in used)
    if kernel.plan.starts_next:
        lines.append('  asm volatile("griddepcontrol.launch_dependents;");  // the next kernel may start')
    lines.extend(statements.lines)
    lines.append("}\n")
    return CudaSource(preamble(kernel, values.functions) + "\n".join(lines), kernel.name)


def _accesses(kernel: Kernel) -> tuple[set[Buffer], dict[Buffer, int]]:
    """The buffers that are written, and the bytes of the widest vector move of each register array."""
    written: set[Buffer] = set()
    alignments: dict[Buffer, int] = {}
    for stmt in walk(kernel.body):
        written.update(buffer for buffer, _ in stmt_writes(stmt))
        if isinstance(stmt, VectorMove):
            nbytes = stmt.width * stmt.dst.dtype.itemsize
            for buffer in (stmt.dst, stmt.src):
                if buffer.is_register:
                    alignments[buffer] = max(nbytes, alignments.get(buffer, 0))
    return written, alignments
