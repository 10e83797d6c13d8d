"""What the parameters of a raw kernel are: read by the compiler itself, from the declaration it sees.

A short piece of CUDA is put behind the user's text and asks, through the name of a template instance, for the type of
every parameter of `decltype(entry)`. So typedefs, `using`, macros, conditional text, included headers, namespaces,
template arguments and traits all mean what they mean to NVRTC, and nothing is guessed. The PTX of the same compilation
gives the size of each parameter and the launch bounds; the two must agree.

    word of a parameter  code:8 | pointer:1 | const:1 | class:1 | 0 | alignment:12 | size:40   (of the pointee, if a pointer)

Only parameter names come from the text, by a small tokenizer: they serve messages, never checks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

from fuser.errors import CompilationError
from fuser.records import record

POINTER_BYTES = 8


class RawKind(Enum):
    pointer = "pointer"
    scalar = "scalar"
    struct = "struct"  # by value: bytes of the exact size


@record
class RawParameter:
    """A parameter of a raw kernel.

    name        as declared, "" where the text does not tell
    type_name   for messages: `const float*`, `int`, `struct of 16 bytes`
    dtype       NumPy name of the scalar, or of what a pointer points to; "" for void, structs and pointers to pointers
    nbytes      of the parameter itself
    alignment   of the parameter itself
    pointee     bytes of what a pointer points to; 0 for void and incomplete types
    pointee_alignment   that its address must be a multiple of; 1 for void and incomplete types
    lanes       elements of `dtype` in what a pointer points to: 4 for float4*, else 1
    is_const    a pointer to const: the kernel does not write through it
    """

    name: str
    type_name: str
    kind: RawKind
    dtype: str
    nbytes: int
    alignment: int
    pointee: int = 0
    lanes: int = 1
    is_const: bool = False
    pointee_alignment: int = 1


@record
class RawSignature:
    """`max_threads` is what the launch bounds in the text allow when FUSER_MAX_THREADS is `PROBE_THREADS`, None without
    bounds; `has_register_bound` tells of `__maxnreg__`."""

    parameters: tuple[RawParameter, ...]
    max_threads: int | None
    has_register_bound: bool

    @property
    def is_bounded(self) -> bool:
        """Whether the bounds follow FUSER_MAX_THREADS."""
        return self.max_threads == PROBE_THREADS


# Below every rung and like no bound that a text would fix; a multiple of a warp.
PROBE_THREADS = 224

# --- the probe --------------------------------------------------------------------------------------------------------

# C++ spelling, NumPy name, lanes. The position + 1 is the code in a word; 0 means none of these.
_SCALARS: tuple[tuple[str, str, int], ...] = (
    ("bool", "bool", 1),
    ("char", "int8", 1),
    ("signed char", "int8", 1),
    ("unsigned char", "uint8", 1),
    ("short", "int16", 1),
    ("unsigned short", "uint16", 1),
    ("int", "int32", 1),
    ("unsigned int", "uint32", 1),
    ("long", "int64", 1),
    ("unsigned long", "uint64", 1),
    ("long long", "int64", 1),
    ("unsigned long long", "uint64", 1),
    ("float", "float32", 1),
    ("double", "float64", 1),
)
_VECTORS: tuple[tuple[str, str, int], ...] = tuple(
    (f"{name}{lanes}", dtype, lanes)
    for name, dtype in (
        ("char", "int8"),
        ("uchar", "uint8"),
        ("short", "int16"),
        ("ushort", "uint16"),
        ("int", "int32"),
        ("uint", "uint32"),
        ("longlong", "int64"),
        ("ulonglong", "uint64"),
        ("float", "float32"),
        ("double", "float64"),
    )
    for lanes in (2, 3, 4)
)
# Types of NVIDIA's headers, which NVRTC does not know by itself: name, NumPy name, lanes, macro of the header.
_HEADER_TYPES: tuple[tuple[str, str, int, str], ...] = (
    ("__half", "float16", 1, "__CUDA_FP16_TYPES_EXIST__"),
    ("__half2", "float16", 2, "__CUDA_FP16_TYPES_EXIST__"),
    ("__nv_bfloat16", "bfloat16", 1, "__CUDA_BF16_TYPES_EXIST__"),
    ("__nv_bfloat162", "bfloat16", 2, "__CUDA_BF16_TYPES_EXIST__"),
)
_KNOWN: tuple[tuple[str, str, int], ...] = (*_SCALARS, *_VECTORS, *(h[:3] for h in _HEADER_TYPES))
_SCALAR_CODES = frozenset(i + 1 for i, (_, _, lanes) in enumerate(_KNOWN) if lanes == 1)
_CODE_POINTER, _CODE_VOID, _CODE_FUNCTION = 250, 251, 252


# Written with short names for the reader; every one of them gets a prefix, for the user's macros may have the same.
_PROBE = """
using word_t = unsigned long long;
template <class T> struct bare { using type = T; };
template <class T> struct bare<const T> { using type = T; };
template <class T> struct bare<volatile T> { using type = T; };
template <class T> struct bare<const volatile T> { using type = T; };
template <class T> struct constant { static constexpr word_t value = 0; };
template <class T> struct constant<const T> { static constexpr word_t value = 1; };
template <class T, bool is_enum> struct plain { using type = T; };
template <class T> struct plain<T, true> { using type = __underlying_type(T); };
template <class T> struct code { static constexpr word_t value = 0; };
template <class T> struct code<T*> { static constexpr word_t value = CODE_POINTER; };
template <> struct code<void> { static constexpr word_t value = CODE_VOID; };
template <class R, class... A> struct code<R(A...)> { static constexpr word_t value = CODE_FUNCTION; };
KNOWN_TYPES
template <class T, word_t size = sizeof(T), word_t alignment = alignof(T)>
constexpr word_t layout(T*) { return alignment << 12 | size << 24; }
constexpr word_t layout(...) { return 0; }
template <class T> constexpr word_t describe() {
  using U = typename plain<typename bare<T>::type, __is_enum(typename bare<T>::type)>::type;
  return code<U>::value | word_t(__is_class(U) || __is_union(U)) << 10 | layout(static_cast<U*>(nullptr));
}
template <> constexpr word_t describe<void>() { return code<void>::value; }
template <> constexpr word_t describe<const void>() { return code<void>::value; }
template <class T> struct word { static constexpr word_t value = describe<T>(); };
template <class T> struct word<T*> {
  static constexpr word_t value = describe<T>() | word_t(1) << 8 | constant<T>::value << 9;
};
template <word_t... words> struct list;
template <class F> struct of;
template <class... A> struct of<void(A...)> { using type = list<word<A>::value...>; };
template <class... A> struct of<void(A...) noexcept> { using type = list<word<A>::value...>; };
template <class L> __global__ void probe() {}
"""
_PROBE_NAMES = (
    "word_t|bare|type|constant|value|plain|is_enum|code|layout|size|alignment|describe|word|words|list|of|probe"
    "|T|U|R|A|F|L"
)


def _probe_text() -> str:
    text = re.sub(rf"\b({_PROBE_NAMES})\b", r"fuser_\1", _PROBE)
    rows: list[str] = []
    for number, (spelling, _, _) in enumerate(_KNOWN, start=1):
        row = f"template <> struct fuser_code<{spelling}> {{ static constexpr fuser_word_t fuser_value = {number}; }};"
        macro = next((h[3] for h in _HEADER_TYPES if h[0] == spelling), None)
        rows.append(row if macro is None else f"#ifdef {macro}\n{row}\n#endif")
    for name, code in (("POINTER", _CODE_POINTER), ("VOID", _CODE_VOID), ("FUNCTION", _CODE_FUNCTION)):
        text = text.replace(f"CODE_{name}", str(code))
    text = text.replace("KNOWN_TYPES", "\n".join(rows))
    return f'\n#line 1 "signature"\nnamespace fuser_signature {{{text}}}\n'


def probe_source(source: str) -> str:
    """The user's text with the questions behind it."""
    return source + _probe_text()


def probe_expression(entry: str, signature: str | None) -> str:
    """Name expression of the instance whose name tells the parameters of `entry`, or of `signature` if one is given."""
    function = f"decltype({entry})" if signature is None else f"void({signature})"
    return f"fuser_signature::fuser_probe<fuser_signature::fuser_of<{function}>::fuser_type>"


# --- reading the answer -----------------------------------------------------------------------------------------------

_WORD = re.compile(r"Ly(\d+)E")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.([a-z]\d+)\s+(?:\.ptr(?:\s*\.[a-z]+)?(?:\s*\d+)?\s+)?[\w$]+(?:\[(\d+)\])?"
)


def read_signature(
    source: str, entry: str, lowered_probe: str, lowered_entry: str, ptx: str, *, given: str | None
) -> RawSignature:
    """The signature from the two names and the PTX of one compilation.

    Raises CompilationError, asking for `signature=`, for a parameter of a type that no Python value can stand for, and
    where a `signature` given disagrees with the sizes in the binary.
    """
    words = [int(n) for n in _WORD.findall(lowered_probe)]
    declared = given if given is not None else _declaration(source, entry)
    names = parameter_names(declared) if declared is not None else ()
    if len(names) != len(words):
        names = ("",) * len(words)
    parameters = tuple(
        _parameter(word, name, i, entry) for i, (word, name) in enumerate(zip(words, names, strict=True))
    )
    sizes, max_threads, has_register_bound = _read_ptx(ptx, lowered_entry)
    if sizes != [p.nbytes for p in parameters]:
        found = ", ".join(f"{p.type_name} ({p.nbytes} bytes)" for p in parameters) or "no parameters"
        raise CompilationError(
            f"the signature of {entry} says {found}; the compiled kernel has parameters of "
            f"{', '.join(map(str, sizes)) or 'no'} bytes"
        )
    return RawSignature(parameters, max_threads, has_register_bound)


def _parameter(word: int, name: str, position: int, entry: str) -> RawParameter:
    code, is_pointer, is_const = word & 0xFF, bool(word >> 8 & 1), bool(word >> 9 & 1)
    is_class, alignment, size = bool(word >> 10 & 1), word >> 12 & 0xFFF, word >> 24
    spelling, dtype, lanes = _KNOWN[code - 1] if 1 <= code <= len(_KNOWN) else ("", "", 1)
    where = f"parameter {position}" + (f" ({name})" if name else "") + f" of {entry}"
    if is_pointer:
        if code == _CODE_FUNCTION:
            raise CompilationError(f"{where} is a pointer to a function, which has no value outside the device")
        if code == _CODE_VOID:
            target = "void"
        elif code == _CODE_POINTER:
            target, size, alignment = "T*", POINTER_BYTES, POINTER_BYTES
        elif dtype:
            target = spelling
        elif is_class:
            target = f"struct of {size} bytes" if size else "incomplete struct"
        else:
            raise CompilationError(
                f"{where} points to a type that is not known here; pass signature=, as in {SIGNATURE_EXAMPLE}"
            )
        text = f"{'const ' if is_const else ''}{target}*"
        return RawParameter(
            name, text, RawKind.pointer, dtype, POINTER_BYTES, POINTER_BYTES, size, lanes, is_const, alignment or 1
        )
    if code in _SCALAR_CODES:
        return RawParameter(name, spelling, RawKind.scalar, dtype, size, alignment)
    if is_class and size:
        text = spelling or "struct"
        return RawParameter(name, f"{text} of {size} bytes", RawKind.struct, "", size, alignment)
    raise CompilationError(f"{where} has a type that is not known here; pass signature=, as in {SIGNATURE_EXAMPLE}")


SIGNATURE_EXAMPLE = "signature='float* y, const float* x, int n'"
_PTX_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def _read_ptx(ptx: str, entry: str) -> tuple[list[int], int | None, bool]:
    """(bytes of each parameter, threads of the launch bounds or None, whether registers are bounded by __maxnreg__)."""
    found = re.search(rf"\.entry\s+{re.escape(entry)}\s*(?:\(([^)]*)\))?([^{{;]*)\{{", ptx)
    if found is None:
        raise CompilationError(f"the PTX has no entry {entry}")
    sizes: list[int] = []
    for _, kind, count in _PARAM.findall(found.group(1) or ""):
        sizes.append(_PTX_BYTES[kind[1:]] * int(count or 1))
    directives = found.group(2)
    bounds = re.search(r"\.(?:maxntid|reqntid)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    threads = None
    if bounds is not None:
        threads = 1
        for extent in bounds.groups():
            threads *= int(extent or 1)
    return sizes, threads, ".maxnreg" in directives


# --- parameter names --------------------------------------------------------------------------------------------------

_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*|::|\d[\w.]*|\S")
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}", "<": ">"}, {")", "]", "}", ">"}
_NO_NAME = {"const", "volatile", "__restrict__", "__restrict", "restrict", "unsigned", "signed"} | {
    *("bool", "char", "short", "int", "long", "float", "double", "void")
}


def strip_comments(source: str) -> str:
    """The text with comments and literals replaced by blanks; line breaks stay."""
    return _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)


def kernel_names(source: str) -> tuple[str, ...]:
    """The names of the `__global__` functions that a text declares, as far as they are written out (by no macro)."""
    # Without `__launch_bounds__(256, 2)` and `__attribute__((...))`, which stand before a name.
    text = re.sub(r"__\w+__\s*\((?:[^()]|\([^()]*\))*\)", " ", strip_comments(source))
    return tuple(dict.fromkeys(re.findall(r"__global__\b[^;{}()]*?\b([A-Za-z_]\w*)\s*\(", text)))


def _declaration(source: str, entry: str) -> str | None:
    """The text between the parentheses of the declaration of `entry`, or None if it cannot be told."""
    name = re.sub(r"<.*", "", entry, flags=re.DOTALL).strip().split("::")[-1].strip()
    if not name.isidentifier():
        return None
    text = strip_comments(source)
    found: set[str] = set()
    for match in re.finditer(rf"\b{name}\s*(?:<[^;{{(]*>\s*)?\(", text):
        before = re.split(r"[;{}]", text[: match.start()])[-1]
        if "__global__" not in before:
            continue
        end = _matching(text, match.end() - 1)
        if end is not None:
            found.add(" ".join(text[match.end() : end].split()))
    return found.pop() if len(found) == 1 else None


def _matching(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        if text[position] == "(":
            depth += 1
        elif text[position] == ")":
            depth -= 1
            if depth == 0:
                return position
    return None


def parameter_names(declaration: str) -> tuple[str, ...]:
    """Names in a parameter list, "" for a parameter without one: `float* y, const int n = 3` -> ("y", "n")."""
    if declaration.strip() in ("", "void"):
        return ()
    parts: list[list[str]] = [[]]
    depth = 0
    for token in _TOKEN.findall(strip_comments(declaration)):
        if token in _OPEN:
            depth += 1
        elif token in _CLOSE:
            depth -= 1
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return tuple(_name_of(part) for part in parts)


def _name_of(tokens: Sequence[str]) -> str:
    """The declared name: the last identifier before a default value or array bounds, unless it is part of the type."""
    head = list(tokens)
    for stop in ("=", "["):
        if stop in head:
            head = head[: head.index(stop)]
    if len(head) < 2 or not head[-1].isidentifier() or head[-1] in _NO_NAME or head[-2] == "::":
        return ""
    # A lone `const T` or `struct T` has no name; what stands before a name is a type or closes one.
    if all(token in {"const", "volatile", "struct", "enum", "union", "class", "typename"} for token in head[:-1]):
        return ""
    return head[-1]
