"""Random numbers as device functions: Philox4x32-10 and what is made of its words, as `fuser/ir/fusion/random_numbers.py` says.

Uniform numbers are rounded at every step (no contraction), so that they are those of the simulator bit by bit. A call of
`fuser_philox` that several elements of a thread share is pure and stands in the text once for each: the compiler computes it
once, and so what two normal numbers of Float share. Two of Double, whose logarithm has branches, share the call alone.
"""

from __future__ import annotations

from fuser.ir.fusion.random_numbers import KEY_STEPS, MULTIPLIERS, ROUNDS

_PHILOX = f"""
INLINE fuser_words fuser_philox(long long seed, long long offset, long long position) {{
  unsigned key_x = (unsigned)seed, key_y = (unsigned)((unsigned long long)seed >> 32);
  fuser_words c = {{(unsigned)offset, (unsigned)((unsigned long long)offset >> 32), (unsigned)position,
                   (unsigned)((unsigned long long)position >> 32)}};
#pragma unroll
  for (int round = 0; round < {ROUNDS}; ++round) {{
    c = {{__umulhi({MULTIPLIERS[1]:#x}u, c.z) ^ c.y ^ key_x, {MULTIPLIERS[1]:#x}u * c.z,
         __umulhi({MULTIPLIERS[0]:#x}u, c.x) ^ c.w ^ key_y, {MULTIPLIERS[0]:#x}u * c.x}};
    key_x += {KEY_STEPS[0]:#x}u;
    key_y += {KEY_STEPS[1]:#x}u;
  }}
  return c;
}}
"""

_UNIT_FLOAT = """
INLINE float fuser_unit_float(fuser_words w, int lane) {
  unsigned word = lane == 0 ? w.x : lane == 1 ? w.y : lane == 2 ? w.z : w.w;
  return __fmaf_rn((float)word, 0x1p-32f, 0x1p-33f);
}
"""
_UNIT_DOUBLE = """
INLINE double fuser_unit_double(fuser_words w, int lane) {
  unsigned long long high = lane == 0 ? w.x : w.z, low = lane == 0 ? w.y : w.w;
  return __fma_rn((double)((high << 32 | low) >> 11), 0x1p-53, 0x1p-54);
}
"""


# Without branches: the compiler finds what two numbers share only in straight code, which the library's logf is not.
# For 2**-33 <= u <= 1: u = 2**n * (1 + f) with 2/3 <= 1 + f < 4/3, log(1 + f) = f + f**2 (-1/2 + f P(f)); below 1 ulp.
# 2 u2 = k / 2 + t, exactly, with |t| <= 1/4; sin(pi t) and cos(pi t) - 1 are polynomials in t**2; below 2 ulp.
_LOG_UNIT = """
INLINE float fuser_log_unit(float u) {
  int n = (__float_as_int(u) - 0x3f2aaaab) & 0xff800000;
  float f = __int_as_float(__float_as_int(u) - n) - 1.0f;
  float p = fmaf(fmaf(fmaf(-0x1.fd2098p-4f, f, 0x1.131faap-3f), f, -0x1.f74904p-4f), f, 0x1.211dap-3f);
  p = fmaf(fmaf(fmaf(fmaf(p, f, -0x1.5578ap-3f), f, 0x1.99adb6p-3f), f, -0x1.ffffb4p-3f), f, 0x1.55554cp-2f);
  return fmaf((float)n, 0x1.62e43p-24f, fmaf(fmaf(p, f, -0.5f), f * f, f));
}
"""
_STANDARD_NORMAL_FLOAT = """
INLINE float fuser_standard_normal_float(fuser_words w, int lane) {
  int first = lane & ~1;
  float square = -2.0f * fuser_log_unit(fuser_unit_float(w, first)), u2 = fuser_unit_float(w, first + 1);
  float radius = square * rsqrtf(fmaxf(square, 1e-30f));
  // k stands in the last bits of a sum that has no room for fractions.
  float shifted = fmaf(u2, 4.0f, 0x1.8p+23f);
  float t = fmaf(shifted - 0x1.8p+23f, -0.5f, 2.0f * u2), z = t * t;
  float s = fmaf(fmaf(fmaf(-0x1.2d9b7cp-1f, z, 0x1.465ec4p+1f), z, -0x1.4abbbap+2f), z, 0x1.921fb6p+1f) * t;
  float c = fmaf(fmaf(fmaf(0x1.db64dp-3f, z, -0x1.55cb98p+0f), z, 0x1.03c1eap+2f), z, -0x1.3bd3ccp+2f);
  c = fmaf(c, z, 1.0f);
  // The cosine is the sine a quarter further on; half a turn changes the sign.
  int quarter = __float_as_int(shifted) + (lane & 1 ? 0 : 1);
  return radius * __int_as_float(__float_as_int(quarter & 1 ? c : s) ^ (int)((unsigned)(quarter & 2) << 30));
}
"""
_STANDARD_NORMAL_DOUBLE = """
INLINE double fuser_standard_normal_double(fuser_words w, int lane) {
  double radius = sqrt(-2.0 * log(fuser_unit_double(w, 0))), s, c;
  sincospi(2.0 * fuser_unit_double(w, 1), &s, &c);
  return radius * (lane ? s : c);
}
"""


def _real(real: str, add: str, mul: str) -> dict[str, str]:
    """Functions for float or double."""
    return {
        f"fuser_standard_uniform_{real}": f"""
INLINE {real} fuser_standard_uniform_{real}(fuser_words w, int lane) {{
  {real} u = fuser_unit_{real}(w, lane);
  return u >= 1 ? 0 : u;
}}
""",
        f"fuser_uniform_{real}": f"""
INLINE {real} fuser_uniform_{real}(fuser_words w, int lane, {real} low, {real} high) {{
  {real} r = {add}(low, {mul}(fuser_standard_uniform_{real}(w, lane), high - low));
  return r >= high ? low : r;
}}
""",
        f"fuser_normal_{real}": f"""
INLINE {real} fuser_normal_{real}(fuser_words w, int lane, {real} mean, {real} deviation) {{
  return mean + deviation * fuser_standard_normal_{real}(w, lane);
}}
""",
    }


def _narrow(name: str) -> dict[str, str]:
    """Functions for a 16-bit type: those of float, rounded. Rounding may reach the upper end again, rounded as it is too."""
    return {
        f"fuser_standard_uniform_{name}": f"""
INLINE fuser_{name} fuser_standard_uniform_{name}(fuser_words w, int lane) {{
  fuser_{name} r = fuser_float_to_{name}(fuser_unit_float(w, lane));
  return fuser_{name}_to_float(r) >= 1 ? fuser_{name}{{0}} : r;
}}
""",
        f"fuser_uniform_{name}": f"""
INLINE fuser_{name} fuser_uniform_{name}(fuser_words w, int lane, float low, float high) {{
  fuser_{name} r = fuser_float_to_{name}(fuser_uniform_float(w, lane, low, high));
  float end = fuser_{name}_to_float(fuser_float_to_{name}(high));
  return fuser_{name}_to_float(r) >= end ? fuser_float_to_{name}(low) : r;
}}
""",
        f"fuser_standard_normal_{name}": f"""
INLINE fuser_{name} fuser_standard_normal_{name}(fuser_words w, int lane) {{
  return fuser_float_to_{name}(fuser_standard_normal_float(w, lane));
}}
""",
        f"fuser_normal_{name}": f"""
INLINE fuser_{name} fuser_normal_{name}(fuser_words w, int lane, float mean, float deviation) {{
  return fuser_float_to_{name}(fuser_normal_float(w, lane, mean, deviation));
}}
""",
    }


RANDOM_FUNCTIONS: dict[str, str] = {
    "fuser_words": "struct fuser_words { unsigned x, y, z, w; };",
    "fuser_philox": _PHILOX,
    "fuser_unit_float": _UNIT_FLOAT,
    "fuser_unit_double": _UNIT_DOUBLE,
    "fuser_log_unit": _LOG_UNIT,
    "fuser_standard_normal_float": _STANDARD_NORMAL_FLOAT,
    "fuser_standard_normal_double": _STANDARD_NORMAL_DOUBLE,
    **_real("float", "__fadd_rn", "__fmul_rn"),
    **_real("double", "__dadd_rn", "__dmul_rn"),
    **_narrow("half"),
    **_narrow("bfloat16"),
}
"""Texts by name, before `INLINE` is filled in."""
