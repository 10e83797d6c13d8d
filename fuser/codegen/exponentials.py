"""Exponentials of Doubles, by a table of powers of two that a block keeps in shared memory.

exp(x) = 2**(k / 64) exp(r) with k = x 64 / log(2) rounded and |r| <= log(2) / 128: a polynomial of degree five is within 2**-57
of it, where one for |r| <= log(2) / 2 takes degree eleven. An H200 does half as many operations of Double as of Float, and a
sum of exponentials has one for each element that is read: of 17 operations an element 11 are left. A power is two words, the
upper and the lower one of a Double, each out of a row of 64 in as many banks twice: a warp's lanes wait for two others at most.

The table is filled where all threads of a block come, before what needs it, and while reads of device memory are on their way:
in the first iteration of a loop over them. By itself that takes as long as a dozen exponentials of a thread (H200:
softmax of a row of 1024 5.1 us, 5.3 with a table, cross_entropy 214x257 6.85 and 7.1, softmax 17022x257, nine elements
a thread, 24.5 and 25.6, 23x128256, sixteen, 31.5 and 32.4; 1240x7168, 32, 57.1 and 55.6, 38x50257, 72, 22.2 and 20.8),
so kernels whose threads compute few do without. Texts here are device functions as in `device_functions.py`.
"""

from __future__ import annotations

from fuser.ir.integers.integers import TRUE, Cond, equal, less_equal, prove_less
from fuser.ir.kernel.kernel import THREAD_SYMBOLS, Call, For, If, Stmt, Store, Value, value_operands, walk
from fuser.ir.kernel.kernel_accesses import stmt_reads
from fuser.ir.ops.dtypes import DataType
from fuser.records import record

EXP_TABLE, FILL_EXP_TABLE = "fuser_exp_table", "fuser_fill_exp_table"

BY_POWERS = {name: f"{name}_by_powers" for name in ("fuser_exp_summand", "fuser_add_exp", "fuser_exp_of_negative")}
"""Device functions of `float_functions.py`, and those that do the same by the table."""

_OPS = frozenset(("exp_summand", "add_exp_summand", "exp_of_negative"))
LEAST = 24
"""Exponentials of a thread that are worth a table."""
_ITERATIONS = 4
"""Iterations of a loop that nothing is known of."""


def is_worth_a_table(body: tuple[Stmt, ...]) -> bool:
    """Whether a thread computes so many exponentials of Doubles."""
    return _exponentials(body) >= LEAST


@record(eq=False)
class Fill:
    """The table is filled behind `body[at - 1]`, if `condition` holds."""

    body: tuple[Stmt, ...]
    at: int
    condition: Cond


def fills_of_table(body: tuple[Stmt, ...]) -> tuple[Fill, ...]:
    """Where a kernel that needs the table fills it: once, by all threads."""
    first = next(i for i, s in enumerate(body) if _exponentials((s,)))
    loop = body[first]
    if isinstance(loop, For) and not loop.unroll and _is_uniform(loop):
        inner = next(i for i, s in enumerate(loop.body) if _exponentials((s,)))
        behind = _behind_reads(loop.body[:inner])
        if behind:
            fill = Fill(loop.body, behind, equal(loop.symbol, loop.start))
            if prove_less(loop.start, loop.stop):
                return (fill,)
            return fill, Fill(body, first + 1, less_equal(loop.stop, loop.start))
    return (Fill(body, _behind_reads(body[:first]) or first, TRUE),)


def _is_uniform(loop: For) -> bool:
    """Whether all threads of a block make the same iterations."""
    threads = {s for p, s in THREAD_SYMBOLS.items() if p.is_block}
    return threads.isdisjoint(loop.start.symbols | loop.stop.symbols | loop.step.symbols)


def _behind_reads(stmts: tuple[Stmt, ...]) -> int:
    """How many of them there are up to the last one that reads device memory."""
    reads = (i for i, s in enumerate(stmts) if any(b.is_global for inner in walk((s,)) for b, _ in stmt_reads(inner)))
    return max((i + 1 for i in reads), default=0)


def _exponentials(body: tuple[Stmt, ...]) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case For():
                iterations = (stmt.stop - stmt.start).value if (stmt.stop - stmt.start).is_const else _ITERATIONS
                total += iterations * _exponentials(stmt.body)
            case If():
                total += max(_exponentials(stmt.then), _exponentials(stmt.orelse))
            case Store(value=value):
                total += _calls(value)
            case _:
                pass
    return total


def _calls(value: Value) -> int:
    is_one = isinstance(value, Call) and value.op in _OPS and value.compute is DataType.Double
    return is_one + sum(map(_calls, value_operands(value)))


EXPONENTIALS = {
    # 2**(k / 64) without its k / 64 in the exponent, so that the upper word of 2**(n / 64) is that for n mod 64 plus n << 14.
    EXP_TABLE: "__shared__ unsigned fuser_exp_table[128];",
    # exp(j log(2) / 64) for -31 <= j <= 32 by a polynomial for |r| <= log(2) / 2, whose last bit is wrong for three of them
    # (tests/codegen/test_exponentials.py). No table in memory: it would be read once, and waited for.
    FILL_EXP_TABLE: """
INLINE void fuser_fill_exp_table() {
  int threads = blockDim.x * blockDim.y * blockDim.z;
  #pragma unroll 1
  for (int k = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); k < 64; k += threads) {
    double r = (double)(k <= 32 ? k : k - 64) * 0x1p-6 * 0x1.62e42fefa39efp-1;
    double p = fma(fma(0x1.af236aac51d05p-26, r, 0x1.2880411bad1aap-22), r, 0x1.71de17e40edfep-19);
    p = fma(fma(fma(p, r, 0x1.a019c9a5652d3p-16), r, 0x1.a01a01a4b322fp-13), r, 0x1.6c16c1738ff55p-10);
    p = fma(fma(fma(p, r, 0x1.1111111110e6ap-7), r, 0x1.5555555554cb7p-5), r, 0x1.5555555555555p-3);
    p = fma(fma(fma(p, r, 0.5), r, 1.0), r, 1.0);
    fuser_exp_table[k] = __double2hiint(p) + (k <= 32 ? 0 : 1 << 20) - (k << 14);
    fuser_exp_table[64 + k] = __double2loint(p) + (k == 32 || k == 39) - (k == 61);
  }
  __syncthreads();
}
""",
    # 2**(n / 64) 2**shift, a normal number.
    "fuser_exp_power": """
INLINE double fuser_exp_power(int n, int shift) {
  return __hiloint2double(fuser_exp_table[n & 63] + (n << 14) + (shift << 20), fuser_exp_table[64 + (n & 63)]);
}
""",
    # (exp(r) - 1) / r for |r| <= log(2) / 128.
    "fuser_exp_quotient": """
INLINE double fuser_exp_quotient(double r) {
  double q = fma(fma(0x1.111125069f45cp-7, r, 0x1.555568e766af7p-5), r, 0x1.55555555546ffp-3);
  return fma(fma(q, r, 0.5), r, 1.0);
}
""",
    # y - n log(2) / 64 in two steps, of which the first is exact, as |n| < 2**17.
    "fuser_exp_reduced": """
INLINE double fuser_exp_reduced(double y, int& n) {
  double shifted = fma(y, 0x1.71547652b82fep+6, 0x1.8p+52), whole = shifted - 0x1.8p+52;
  n = __double2loint(shifted);
  return fma(whole, -0x1.cf79abc9e3b3ap-46, fma(whole, -0x1.62e42fefap-7, y));
}
""",
    # x with another upper word where that is `least` or belongs to less than that, -infinity too; nan stays.
    "fuser_exp_bounded": """
INLINE double fuser_exp_bounded(double x, unsigned least, unsigned instead) {
  unsigned high = __double2hiint(x);
  return __hiloint2double(high - least <= 0xfff00000u - least ? instead : high, __double2loint(x));
}
""",
    # exp(x) for x <= 0 and nan, within 1.1 units, of what is added to 1 or more; 0 below 2**-1022. What is less than -708.4 is
    # taken for -709.09: n is -1023 * 64 then, whatever the lower word, and the power 0.
    "fuser_exp_summand_by_powers": """
INLINE double fuser_exp_summand_by_powers(double x) {
  int n;
  double r = fuser_exp_reduced(fuser_exp_bounded(x, 0xc086232cu, 0xc08628b7u), n), power = fuser_exp_power(n, 0);
  return fma(power, fuser_exp_quotient(r) * r, power);
}
""",
    # One operation less than the sum of both.
    "fuser_add_exp_by_powers": """
INLINE double fuser_add_exp_by_powers(double total, double x) {
  int n;
  double r = fuser_exp_reduced(fuser_exp_bounded(x, 0xc086232cu, 0xc08628b7u), n);
  return fma(fma(fuser_exp_quotient(r), r, 1.0), fuser_exp_power(n, 0), total);
}
""",
    # exp(x) for x <= 0 and nan, within 1.1 units. 2**100 keeps the power a normal number for results below 2**-1022, which are
    # rounded once. exp(-746) rounds to 0.
    "fuser_exp_of_negative_by_powers": """
INLINE double fuser_exp_of_negative_by_powers(double x) {
  int n;
  double r = fuser_exp_reduced(fuser_exp_bounded(x, 0xc0875000u, 0xc0875000u), n), power = fuser_exp_power(n, 100);
  return fma(power, fuser_exp_quotient(r) * r, power) * 0x1p-100;
}
""",
}
