"""Sine and cosine of Floats: one reduction for both, and the case of large numbers outside of the kernel's text.

The compiler's functions have 88 instructions each, with a loop over local memory for numbers from 105615 on. Here, below 2**20,
pi / 2 in three parts leaves of x what is worth 1.9 units of a result at most (1.5 below 100000). Both polynomials are
evaluated, so that sine and cosine of one x, as in a rotary embedding, share all but their signs. Texts are device functions
as in `device_functions.py`.
"""

from __future__ import annotations

TRIGONOMETRIC_FUNCTIONS = {
    # The sine of r + q pi / 2, |r| <= pi / 4 and a little: sin(r) = r + r**3 S(r**2) within 0.07 * 2**-24, cos(r) = 1 +
    # r**2 C(r**2) within 0.01 * 2**-24. Adding 0 keeps the sign of a zero.
    "fuser_sine_of_turns": """
INLINE float fuser_sine_of_turns(float r, int q) {
  float s = r * r, sine = fmaf(fmaf(-0x1.9951fap-13f, s, 0x1.110774p-7f), s, -0x1.555546p-3f);
  float cosine = fmaf(fmaf(fmaf(0x1.99e816p-16f, s, -0x1.6c0c28p-10f), s, 0x1.55554ap-5f), s, -0.5f);
  float value = q & 1 ? fmaf(cosine, s, 1.0f) : fmaf(sine, fmaf(r, s, 0.0f), r);
  return __int_as_float(__float_as_int(value) ^ (q << 30 & 0x80000000));
}
""",
    # Sine (turn 0) or cosine (1) from 2**20 on, by the bits of 2 / pi that x reaches: x 2 / pi mod 4 to 62 bits (M. Payne and
    # R. Hanek, "Radian reduction for trigonometric functions", 1983); nan of infinity. Kernels that call it get no longer.
    "fuser_sine_of_large": """
__device__ __noinline__ float fuser_sine_of_large(float x, int turn) {
  unsigned bits = __float_as_uint(x), m = bits << 8 | 0x80000000u, e = (bits >> 23 & 255u) - 126u, i = e >> 5;
  unsigned a = i < 1 ? 0u : i < 2 ? 0x28be60dbu : i < 3 ? 0x9391054au : i < 4 ? 0x7f09d5f4u : 0x7d4d3770u;
  unsigned b = i < 1 ? 0x28be60dbu : i < 2 ? 0x9391054au : i < 3 ? 0x7f09d5f4u : i < 4 ? 0x7d4d3770u : 0x36d8a566u;
  unsigned c = i < 1 ? 0x9391054au : i < 2 ? 0x7f09d5f4u : i < 3 ? 0x7d4d3770u : i < 4 ? 0x36d8a566u : 0x4f10e410u;
  unsigned d = i < 1 ? 0x7f09d5f4u : i < 2 ? 0x7d4d3770u : i < 3 ? 0x36d8a566u : 0x4f10e410u;
  int shift = e & 31u;
  unsigned long long ab = (unsigned long long)a << 32 | b, bc = (unsigned long long)b << 32 | c;
  unsigned long long cd = (unsigned long long)c << 32 | d;
  unsigned high = ab << shift >> 32, middle = bc << shift >> 32, low = cd << shift >> 32;
  unsigned long long turns = (unsigned long long)m * middle + ((unsigned long long)m * low >> 32);
  turns += (unsigned long long)(m * high) << 32;
  int q = (int)((turns >> 61) + 1 >> 1);
  float r = (float)((double)(long long)(turns << 2) * 0x1.921fb54442d18p-64);
  if (bits >> 31) q = -q, r = -r;
  return (bits >> 23 & 255u) == 255u ? x - x : fuser_sine_of_turns(r, q + turn);
}
""",
    "fuser_sine": """
INLINE float fuser_sine(float x, int turn) {
  float shifted = fmaf(x, 0x1.45f306p-1f, 0x1.8p+23f), n = shifted - 0x1.8p+23f;
  float r = fmaf(n, -0x1.846988p-48f, fmaf(n, -0x1.4442dp-24f, fmaf(n, -0x1.921fb4p+0f, x)));
  float value = fuser_sine_of_turns(r, __float_as_int(shifted) + turn);
  if (!(fabsf(x) < 0x1p20f)) value = fuser_sine_of_large(x, turn);
  return value;
}
""",
    "fuser_sin": "INLINE float fuser_sin(float x) { return fuser_sine(x, 0); }",
    "fuser_cos": "INLINE float fuser_cos(float x) { return fuser_sine(x, 1); }",
}
