"""What stands above and around a kernel's body: bounds, types, device functions, the entry's parameter list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from fuser.codegen.device_functions import function_closure
from fuser.codegen.names import Names
from fuser.ir.kernel.kernel import (
    Buffer,
    DivisorParameter,
    ExtentParameter,
    Kernel,
    Parameter,
    ScalarParameter,
    SemaphoreParameter,
    TensorParameter,
    WorkspaceParameter,
)
from fuser.ir.ops.op_table import cuda_type

# Variants of one text differ in these definitions alone (register cap, minimum of resident blocks, largest block).
BOUNDS = """\
#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif
"""


def preamble(kernel: Kernel, functions: Iterable[str]) -> str:
    """Everything above the entry: launch bounds, the index type, and the device functions named (with what they need)."""
    index_type = "int" if kernel.index_bits == 32 else "long long"
    texts = "".join(f"{text}\n\n" for text in function_closure(functions))
    return f"{BOUNDS}\ntypedef {index_type} index_t;\n\n{texts}"


def signature(kernel: Kernel, names: Names, written: set[Buffer], functions: dict[str, None]) -> str:
    """The comment and first lines of the entry, up to its opening brace.

    `written` are the buffers the body stores to: pointers to others are const. Types used are added to `functions`.
    """
    lines = comment_lines(kernel.title)
    parameters = [_parameter(p, names, written, functions) for p in kernel.parameters]
    lines.append(f'extern "C" __global__ void FUSER_BOUNDS {kernel.name}(')
    lines.append(",\n".join(f"    {p}" for p in parameters) + ") {" if parameters else "    ) {")
    return "\n".join(lines)


def comment_lines(text: str, indent: str = "") -> list[str]:
    """The text as `//` lines. A closing backslash would join the next line to the comment, so it gets a full stop."""
    lines = [line.strip() for line in text.splitlines()]
    return [f"{indent}// {line}{'.' if line.endswith(chr(92)) else ''}".rstrip() for line in lines]


def _parameter(parameter: Parameter, names: Names, written: set[Buffer], functions: dict[str, None]) -> str:
    match parameter:
        case TensorParameter(buffer) | WorkspaceParameter(buffer) | SemaphoreParameter(buffer):
            spelling = cuda_type(buffer.dtype)
            functions.update(dict.fromkeys(spelling.functions))
            constant = "" if buffer in written else "const "
            return f"{constant}{spelling.template}* {names.buffers[buffer]}"
        case ExtentParameter(symbol):
            return f"index_t {names.symbols[symbol]}"
        case DivisorParameter(divisor):
            functions["fuser_divisor"] = None
            return f"fuser_divisor {names.divisors[divisor]}"
        case ScalarParameter(name, dtype):
            spelling = cuda_type(dtype)
            functions.update(dict.fromkeys(spelling.functions))
            return f"{spelling.template} {names.scalars[name]}"
        case _:
            assert_never(parameter)
