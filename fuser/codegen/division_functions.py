"""Device functions for division by what only a launch knows: a product and a shift, for about 20 instructions of a division.

Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994. With s = ceil(log2(d)), the
multiplier m = ceil(2**(31 + s) / d) fits 32 bits, and x*m / 2**(31 + s) is at least x / d, and more by less than 1 / d for an
x below 2**31: rounded down, the quotient is the same. The host finds m and s (`runtime/kernels/pack.py`). x is doubled, so that
the upper half of the 64-bit product is shifted by s alone, 0 included.
"""

from __future__ import annotations

DIVISION_FUNCTIONS: dict[str, str] = {
    "fuser_divisor": "struct fuser_divisor { int value; unsigned multiplier; int shift; };",
    "fuser_div": """
INLINE int fuser_div(int x, fuser_divisor d) {
  return (int)(__umulhi((unsigned)x << 1, d.multiplier) >> d.shift);
}
""",
    "fuser_mod": """
INLINE int fuser_mod(int x, fuser_divisor d) {
  return x - fuser_div(x, d) * d.value;
}
""",
}
