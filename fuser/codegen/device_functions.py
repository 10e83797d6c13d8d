"""Device functions of generated text: pure arithmetic and conversions, emitted only where a kernel uses them.

Grammar
    DEVICE_FUNCTIONS := name -> C text        every name starts with `fuser_`
    closure(names)   := the texts that `names` need, each once, what it needs before it

The text needs no header: math functions are those the compiler knows, 16-bit types are storage structs of our own,
their conversions inline PTX. It compiles for every architecture from sm_75 on; `__CUDA_ARCH__` selects where an
instruction is newer. Signed arithmetic goes through unsigned types so that it wraps. The semantics are those of
`ir/ops/numpy_functions.py`, value for value.
"""

from __future__ import annotations

from collections.abc import Iterable

from fuser.codegen.acquire_functions import ACQUIRE_FUNCTIONS
from fuser.codegen.complex_functions import COMPLEX_FUNCTIONS
from fuser.codegen.copy_functions import COPY_FUNCTIONS
from fuser.codegen.division_functions import DIVISION_FUNCTIONS
from fuser.codegen.exponentials import EXPONENTIALS
from fuser.codegen.float_functions import FLOAT_FUNCTIONS
from fuser.codegen.post_functions import POST_FUNCTIONS
from fuser.codegen.random_functions import RANDOM_FUNCTIONS
from fuser.codegen.trigonometric_functions import TRIGONOMETRIC_FUNCTIONS
from fuser.codegen.unaligned_functions import UNALIGNED_FUNCTIONS
from fuser.ir.ops.cuda_spelling import device_names

_INLINE = "__device__ __forceinline__"


def _clean(text: str) -> str:
    return text.strip("\n").replace("INLINE", _INLINE)


def _for_integers(text: str) -> str:
    """`text` for int and long long: `$T` is the type, `$U` its unsigned counterpart, `$BITS` its width, `$R` the constraint
    letter of its registers."""

    def instance(signed: str, unsigned: str, bits: int) -> str:
        return (
            _clean(text)
            .replace("$T", signed)
            .replace("$U", unsigned)
            .replace("$BITS", f"{bits}u")
            .replace("$R", "r" if bits == 32 else "l")
        )

    return instance("int", "unsigned", 32) + "\n" + instance("long long", "unsigned long long", 64)


_TYPES = {
    "fuser_half": "struct fuser_half { unsigned short bits; };",
    "fuser_bfloat16": "struct fuser_bfloat16 { unsigned short bits; };",
}


def _to_half(name: str, c_type: str, ptx: str, constraint: str) -> str:
    return _clean(f"""
INLINE fuser_half fuser_{name}_to_half({c_type} x) {{
  fuser_half r;
  asm("cvt.rn.f16.{ptx} %0, %1;" : "=h"(r.bits) : "{constraint}"(x));
  return r;
}}
""")


def _to_bfloat16_by_odd(name: str, c_type: str, truncation: str, differs: str) -> str:
    # Truncating to float and setting the last bit if anything was lost keeps the second rounding right.
    return _clean(f"""
INLINE fuser_bfloat16 fuser_{name}_to_bfloat16({c_type} x) {{
  float t = {truncation}(x);
  if ({differs}) t = __uint_as_float(__float_as_uint(t) | 1u);
  return fuser_float_to_bfloat16(t);
}}
""")


_CONVERSIONS = {
    "fuser_half_to_float": _clean("""
INLINE float fuser_half_to_float(fuser_half x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
  return r;
}
"""),
    # Not a shift: of two values in one register, this form takes one instruction for either.
    "fuser_bfloat16_to_float": _clean("""
INLINE float fuser_bfloat16_to_float(fuser_bfloat16 x) {
  float r;
  asm("mov.b32 %0, {%1, %2};" : "=f"(r) : "h"((unsigned short)0), "h"(x.bits));
  return r;
}
"""),
    "fuser_float_to_half": _to_half("float", "float", "f32", "f"),
    "fuser_double_to_half": _to_half("double", "double", "f64", "d"),
    "fuser_int32_to_half": _to_half("int32", "int", "s32", "r"),
    "fuser_int64_to_half": _to_half("int64", "long long", "s64", "l"),
    "fuser_uint64_to_half": _to_half("uint64", "unsigned long long", "u64", "l"),
    "fuser_bool_to_half": _clean("""
INLINE fuser_half fuser_bool_to_half(bool x) { return fuser_half{(unsigned short)(x ? 0x3c00 : 0)}; }
"""),
    "fuser_float_to_bfloat16": _clean("""
INLINE fuser_bfloat16 fuser_float_to_bfloat16(float x) {
  fuser_bfloat16 r;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x));
#else
  unsigned b = __float_as_uint(x);
  // Round to nearest even by adding just under half a unit, one more if the kept part is odd; nan stays nan.
  r.bits = (b & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (unsigned short)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
#endif
  return r;
}
"""),
    # One instruction for the pair of it and a zero, whose bits are those of the Float.
    "fuser_round_to_bfloat16": _clean("""
INLINE float fuser_round_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(0.0f));
  return __uint_as_float(r);
#else
  return fuser_bfloat16_to_float(fuser_float_to_bfloat16(x));
#endif
}
"""),
    "fuser_double_to_bfloat16": _to_bfloat16_by_odd("double", "double", "__double2float_rz", "(double)t != x"),
    "fuser_int64_to_bfloat16": _to_bfloat16_by_odd("int64", "long long", "__ll2float_rz", "(long long)t != x"),
    "fuser_int32_to_bfloat16": _to_bfloat16_by_odd("int32", "int", "__int2float_rz", "(int)t != x"),
    "fuser_uint64_to_bfloat16": _to_bfloat16_by_odd(
        "uint64", "unsigned long long", "__ull2float_rz", "(unsigned long long)t != x"
    ),
    "fuser_bool_to_bfloat16": _clean("""
INLINE fuser_bfloat16 fuser_bool_to_bfloat16(bool x) { return fuser_bfloat16{(unsigned short)(x ? 0x3f80 : 0)}; }
"""),
}

_INTEGERS = {
    "fuser_wrap_add": "INLINE $T fuser_wrap_add($T a, $T b) { return ($T)(($U)a + ($U)b); }",
    "fuser_wrap_sub": "INLINE $T fuser_wrap_sub($T a, $T b) { return ($T)(($U)a - ($U)b); }",
    "fuser_wrap_mul": "INLINE $T fuser_wrap_mul($T a, $T b) { return ($T)(($U)a * ($U)b); }",
    # Not `0 - a`: ptxas 13.0 folds a negation into integer min and max and gets some of them wrong on sm_90 at -O1 and above
    # (docs/notes-toolchain.md). The empty asm keeps the complement and the addition apart.
    "fuser_wrap_neg": """
INLINE $T fuser_wrap_neg($T a) {
  $U t = ~($U)a;
#ifdef __CUDA_ARCH__
  asm("" : "+$R"(t));
#endif
  return ($T)(t + 1);
}
""",
    "fuser_integer_abs": "INLINE $T fuser_integer_abs($T a) { return a < 0 ? fuser_wrap_neg(a) : a; }",
    # Division by zero and the smallest integer over -1 are undefined in C. The first gives what the machine's division does.
    "fuser_over_zero": """
INLINE $T fuser_over_zero($T a) { return a == ($T)(unsigned)a ? ($T)0xffffffffu : -1; }
""",
    "fuser_integer_div": """
INLINE $T fuser_integer_div($T a, $T b) { return b == 0 ? fuser_over_zero(a) : b == -1 ? fuser_wrap_neg(a) : a / b; }
""",
    "fuser_integer_mod": """
INLINE $T fuser_integer_mod($T a, $T b) { return b == 0 ? fuser_over_zero(a) : b == -1 ? 0 : a % b; }
""",
    "fuser_integer_remainder": """
INLINE $T fuser_integer_remainder($T a, $T b) {
  $T r = fuser_integer_mod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "fuser_integer_pow": """
INLINE $T fuser_integer_pow($T a, $T b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0;
  $U base = ($U)a, r = 1;
  for (; b; b >>= 1, base *= base)
    if (b & 1) r *= base;
  return ($T)r;
}
""",
    "fuser_integer_lerp": """
INLINE $T fuser_integer_lerp($T start, $T end, $T weight) {
  $T d = fuser_wrap_sub(end, start);
  return weight <= 0 ? fuser_wrap_add(start, fuser_wrap_mul(weight, d))
                     : fuser_wrap_sub(end, fuser_wrap_mul(d, fuser_wrap_sub(($T)1, weight)));
}
""",
    "fuser_shift_left": """
INLINE $T fuser_shift_left($T a, $T n) { return ($U)n < $BITS ? ($T)(($U)a << n) : 0; }
""",
    "fuser_shift_right": """
INLINE $T fuser_shift_right($T a, $T n) { return ($U)n < $BITS ? a >> n : a < 0 ? -1 : 0; }
""",
    "fuser_gcd": """
INLINE $T fuser_gcd($T a, $T b) {
  $U x = a < 0 ? 0 - ($U)a : ($U)a, y = b < 0 ? 0 - ($U)b : ($U)b;
  while (y) {
    $U r = x % y;
    x = y;
    y = r;
  }
  return ($T)x;
}
""",
}

_FLOATS = {
    "fuser_isnan": "template <class T> INLINE bool fuser_isnan(T x) { return x != x; }",
    "fuser_frac": "template <class T> INLINE T fuser_frac(T x) { return x - trunc(x); }",
    "fuser_remainder": """
template <class T> INLINE T fuser_remainder(T a, T b) {
  T r = fmod(a, b);
  if (r == 0) return copysign(r, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
""",
    # For exponents that are constants: one of the tests stays. Roots of -0 and -infinity are those of pow, not of sqrt.
    "fuser_pow": """
template <class T> INLINE T fuser_pow(T x, T y) {
  if (y == (T)1.0) return x;
  if (y == (T)2.0) return x * x;
  if (y == (T)3.0) return x * x * x;
  if (y == (T)4.0) return (x * x) * (x * x);
  if (y == (T)-1.0) return (T)1.0 / x;
  const T infinity = __int_as_float(0x7f800000);
  if (y == (T)0.5) return x == -infinity ? infinity : fuser_sqrt(x + (T)0.0);
  if (y == (T)-0.5) return x == -infinity ? (T)0.0 : rsqrt(x + (T)0.0);
  return pow(x, y);
}
""",
    "fuser_lerp": """
template <class T> INLINE T fuser_lerp(T start, T end, T weight) {
  T d = end - start;
  return weight < (T)0.5 ? start + weight * d : end - d * ((T)1.0 - weight);
}
""",
}


def _ordered(name: str, symbol: str, opposite: str) -> str:
    """The comparison `symbol`, False if either is nan. `opposite` is PTX's name of its negation, which is true of nan.

    ptxas knows bounds of some values, such as 0 of an absolute value, and takes an ordered comparison with a constant
    beyond them for true, of nan too: |nan| > -1 (docs/notes-toolchain.md). The negated unordered comparison gives the
    same machine code otherwise. It is inline PTX because the C++ compiler turns it into the ordered one again.
    """

    def instance(c_type: str, ptx: str, constraint: str) -> str:
        operands = f'"=r"(r) : "{constraint}"(a), "{constraint}"(b)'
        return f"""
INLINE bool fuser_{name}({c_type} a, {c_type} b) {{
  int r;
  asm("{{ .reg .pred p; setp.{opposite}.{ptx} p, %1, %2; selp.s32 %0, 0, 1, p; }}" : {operands});
  return r;
}}"""

    generic = f"template <class T> INLINE bool fuser_{name}(T a, T b) {{ return a {symbol} b; }}"
    return _clean(generic + instance("float", "f32", "f") + instance("double", "f64", "d"))


_SIGNBIT = """
INLINE bool fuser_signbit(float x) { return __float_as_int(x) < 0; }
INLINE bool fuser_signbit(double x) { return __double_as_longlong(x) < 0; }
"""


def _extreme(name: str, comparison: str, is_first: str, of_equals: str) -> str:
    """Maximum or minimum: nan from either side, +0 above -0. `is_first` says of floats that a is the result or nan;
    `of_equals` joins the bits of equal values: of two zeros `&` is -0 only if both are, `|` if either is."""

    def by_comparison(kind: str, to_bits: str, from_bits: str) -> str:
        # No branch: several go on side by side.
        return f"""{kind} r = {is_first} && b == b ? a : b;
  return a == b ? {from_bits}({to_bits}(a) {of_equals} {to_bits}(b)) : r;"""

    return _clean(f"""
INLINE int fuser_{name}(int a, int b) {{ return a {comparison} b ? a : b; }}
INLINE long long fuser_{name}(long long a, long long b) {{ return a {comparison} b ? a : b; }}
INLINE double fuser_{name}(double a, double b) {{
  {by_comparison("double", "__double_as_longlong", "__longlong_as_double")}
}}
INLINE float fuser_{name}(float a, float b) {{
#if __CUDA_ARCH__ >= 800
  float r;
  asm("{name}.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  {by_comparison("float", "__float_as_int", "__int_as_float")}
#endif
}}
""")


_TEMPLATES = {
    "fuser_relu": """
template <class T> INLINE T fuser_relu(T x) { return fuser_less_equal(x, (T)0) ? (T)0 : x; }
INLINE float fuser_relu(float x) { return fuser_max(x, 0.0f); }
""",
    "fuser_clamp": """
template <class T> INLINE T fuser_clamp(T x, T low, T high) {
  T r = fuser_less(x, low) ? low : x;
  return fuser_less(high, r) ? high : r;
}
""",
    "fuser_threshold": """
template <class T> INLINE T fuser_threshold(T x, T limit, T value) { return fuser_less_equal(x, limit) ? value : x; }
""",
}

DEVICE_FUNCTIONS: dict[str, str] = {
    **_TYPES,
    **_CONVERSIONS,
    **{name: _for_integers(text) for name, text in _INTEGERS.items()},
    **{name: _clean(text) for name, text in _FLOATS.items()},
    **{name: _clean(text) for name, text in FLOAT_FUNCTIONS.items()},
    **{name: _clean(text) for name, text in TRIGONOMETRIC_FUNCTIONS.items()},
    **{name: _clean(text) for name, text in EXPONENTIALS.items()},
    **{name: _clean(text) for name, text in _TEMPLATES.items()},
    **{name: _clean(text) for name, text in UNALIGNED_FUNCTIONS.items()},
    "fuser_less": _ordered("less", "<", "geu"),
    "fuser_less_equal": _ordered("less_equal", "<=", "gtu"),
    "fuser_signbit": _clean(_SIGNBIT),
    "fuser_max": _extreme("max", ">", "!fuser_less_equal(a, b)", "&"),
    "fuser_min": _extreme("min", "<", "!fuser_less_equal(b, a)", "|"),
    **{name: _clean(text) for name, text in COMPLEX_FUNCTIONS.items()},
    **ACQUIRE_FUNCTIONS,
    **POST_FUNCTIONS,
    **COPY_FUNCTIONS,
    **{name: _clean(text) for name, text in RANDOM_FUNCTIONS.items()},
    **{name: _clean(text) for name, text in DIVISION_FUNCTIONS.items()},
}
"""Every device function and type by name: its text, overloads together."""


def function_closure(names: Iterable[str]) -> list[str]:
    """The texts of `names` and of all they need, in an order in which each is declared before its use.

    The order depends only on the set of names. Raises KeyError for a name that is no device function.
    """
    return list(_closure(names).values())


def needs_function(names: Iterable[str], name: str) -> bool:
    """Whether one of `names` is the function `name`, or needs it."""
    return name in _closure(names)


def _closure(names: Iterable[str]) -> dict[str, str]:
    emitted: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in emitted:
            return
        text = DEVICE_FUNCTIONS[name]
        for needed in device_names(text):
            if needed != name:
                visit(needed)
        emitted[name] = text

    for name in sorted(set(names)):
        visit(name)
    return emitted
