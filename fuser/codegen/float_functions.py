"""Single-precision functions of generated text that are cheaper than the compiler's and keep the op table's bounds.

A kernel that only moves memory leaves an H200 about 29 issued instructions for each 16-bit element that it reads and
writes; what is spelled here takes 12 to 18, without branches, so that the elements of a thread overlap.

Building blocks
    ex2.approx.ftz   2**x, relative error below 2**-22; results below 2**-126 become 0
    rcp.approx.ftz   1 / x within 1 ulp for 2**-126 <= |x| <= 2**126; 0 above
    rsqrt.approx.ftz 1 / sqrt(x), relative error below 2**-22 for normal x

Neither is given an argument whose result it would flush. Coefficients are minimax fits, in the weight of the function
itself, with every coefficient rounded to float before the next is fitted. fma is written out: `--fmad=false` must not
change what the bounds were shown for.
"""

from __future__ import annotations

_EXP2_AND_RECIPROCAL = {
    "fuser_exp2_approx": """
INLINE float fuser_exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
""",
    "fuser_reciprocal_approx": """
INLINE float fuser_reciprocal_approx(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
""",
    "fuser_rsqrt_approx": """
INLINE float fuser_rsqrt_approx(float x) {
  float r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
""",
    # exp(x) = p * scale. scale is 2**n with n = x * log2(e) rounded and limited to [-126, 126]: what is beyond stays in
    # p, so the product rounds once where exp(x) is subnormal, and overflows where it does. log2(e) in two parts keeps
    # the difference x * log2(e) - n exact to 2**-26.
    "fuser_exp_parts": """
INLINE float fuser_exp_parts(float x, float& scale) {
  float limited = __saturatef(fmaf(x, 0x1.77313cp-8f, 0.5f));  // x * log2(e) / 252 + 0.5; 0 for nan
  float shifted = fmaf(limited, 252.0f, 0x1.800002p+23f);     // n + 127 in the last bits
  float n = shifted - 0x1.8000fep+23f;
  scale = __int_as_float(__float_as_int(shifted) << 23);
  return fuser_exp2_approx(fmaf(x, 0x1.4ae0cp-26f, fmaf(x, 0x1.715476p+0f, -n)));
}
""",
    # As long as the compiler's own, and made of what sigmoids are made of: of exp(-|x|) and sigmoid(x) half is computed once.
    "fuser_exp": """
INLINE float fuser_exp(float x) {
  float scale, p = fuser_exp_parts(x, scale);
  return p * scale;
}
""",
}

_LOGARITHMS = {
    "fuser_log2_approx": """
INLINE float fuser_log2_approx(float x) {
  float r;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
""",
    # m + e log(2), 1 + x = 2**e (1 + m), -1/4 <= m < 1/2: log1p(m) = m - m**2 / 2 + m**3 P(m), P within 0.1 * 2**-24 of it.
    # The scale is that of 1 + x rounded toward zero. Signs are such that -0 gives -0. Where no number is the logarithm, the
    # approximate one tells: -infinity, infinity, nan.
    "fuser_log1p": """
INLINE float fuser_log1p(float x) {
  float t = __fadd_rz(x, 1.0f);
  int e = (0x3fbfffff - __float_as_int(t)) & 0xff800000;  // -e in the place of an exponent
  float s = __int_as_float(0x40800000 + e), m = __int_as_float(__float_as_int(x) + e) - fmaf(-0.25f, s, 1.0f);
  float p = fmaf(fmaf(fmaf(-0x1.718ed6p-5f, m, 0x1.acce26p-4f), m, -0x1.0d989cp-3f), m, 0x1.28841ap-3f);
  p = fmaf(fmaf(fmaf(fmaf(p, m, -0x1.54ee38p-3f), m, 0x1.996978p-3f), m, -0x1.000046p-2f), m, 0x1.5555a4p-2f);
  p = fmaf(fmaf(p, m, -0.5f), m * m, m);
  float r = fmaf((float)e, -0x1.62e43p-24f, p);
  return x > -1.0f && x < __int_as_float(0x7f800000) ? r : fuser_log2_approx(t);
}
""",
    # For 0 <= x <= 1 and nan: x - x**2 Q(x), Q within 0.2 * 2**-24 of the logarithm, relative.
    "fuser_log1p_of_fraction": """
INLINE float fuser_log1p_of_fraction(float x) {
  float p = fmaf(fmaf(fmaf(-0x1.e1da4cp-9f, x, 0x1.66525ap-6f), x, -0x1.f2fe8p-5f), x, 0x1.c38e0ap-4f);
  p = fmaf(fmaf(fmaf(fmaf(p, x, -0x1.3edae8p-3f), x, 0x1.94f9bcp-3f), x, -0x1.ff7d58p-3f), x, 0x1.55527ep-2f);
  return fmaf(fmaf(p, x, -0.5f) * x, x, x);
}
""",
}

_POWERS = {
    # x**y for x >= 0 and |y| <= 3: 2**(y log2(x)), log2(x) = e + l with 1 + f = x 2**-e in [2/3, 4/3) and l within 2**-26 of
    # it, relative. y e comes in two parts, so that the exponent is off by what l is, times y: 2.1 units of the result at
    # most. The scale is limited as that of fuser_exp_parts. Zero, infinity and nan are as the approximate logarithm has them.
    "fuser_pow_of_positive": """
INLINE float fuser_pow_of_positive(float x, float y) {
  bool is_small = x < 0x1p-126f;
  float z = is_small ? x * 0x1p23f : x;
  int e = (__float_as_int(z) - 0x3f2aaaab) & 0xff800000;
  float f = __int_as_float(__float_as_int(z) - e) - 1.0f, whole = (float)e + (is_small ? -0x1.7p+27f : 0.0f);
  float p = fmaf(fmaf(fmaf(-0x1.6ab60ep-3f, f, 0x1.822e36p-3f), f, -0x1.6c39a2p-3f), f, 0x1.a40372p-3f);
  p = fmaf(fmaf(fmaf(p, f, -0x1.ec8998p-3f), f, 0x1.2764aep-2f), f, -0x1.7154a4p-2f);
  p = fmaf(fmaf(p, f, 0x1.ec7188p-2f), f, -0x1.715476p-1f);
  float l = fmaf(f, 0x1.715476p+0f, f * f * p), w = y * 0x1p-23f, t = whole * w, rest = fmaf(whole, w, -t);
  float n = fmaf(y, l, t);
  n = n < -126.0f ? -126.0f : n > 126.0f ? 126.0f : n;
  float shifted = n + 0x1.8000fep+23f;
  n = shifted - 0x1.8000fep+23f;
  float r = fuser_exp2_approx(fmaf(y, l, (t - n) + rest)) * __int_as_float(__float_as_int(shifted) << 23);
  return x > 0.0f && x < __int_as_float(0x7f800000) ? r : fuser_exp2_approx(y * fuser_log2_approx(x));
}
""",
}

_SIGMOIDS = {
    # The exponential is of -|x|, so that 1 + exp lies in [1, 2] and the result never exceeds 1. That of a double is of -x while
    # that is finite, as in torch: no rounding more.
    "fuser_sigmoid": """
template <class T> INLINE T fuser_sigmoid(T x) {
  bool is_small = x < (T)-700.0;
  T e = exp(is_small ? x : -x);
  return is_small ? e : (T)1.0 / ((T)1.0 + e);
}
INLINE float fuser_sigmoid(float x) {
  float scale, p = fuser_exp_parts(-fabsf(x), scale);
  float r = fuser_reciprocal_approx(fmaf(p, scale, 1.0f));
  return x < 0 ? (p * r) * scale : r;
}
""",
    # x meets the exponential before anything is rounded to a subnormal.
    "fuser_silu": """
template <class T> INLINE T fuser_silu(T x) {
  bool is_small = x < (T)-700.0;
  T e = exp(is_small ? (T)0.5 * x : -x);
  return is_small ? (x * e) * e : x / ((T)1.0 + e);
}
INLINE float fuser_silu(float x) {
  float scale, p = fuser_exp_parts(-fabsf(x), scale);
  float r = fuser_reciprocal_approx(fmaf(p, scale, 1.0f));
  return (x < 0 ? (x * p) * scale : x) * r;
}
""",
    # 2**n (1 + e) - 1 with e = expm1(x - n log(2)) = r + r**2 P(r), P within 0.01 * 2**-24 of it, relative. 2**(n - 1) is a
    # float up to the largest x whose result is one. Beyond the limits of x the result is -1 and infinity.
    "fuser_expm1": """
INLINE float fuser_expm1(float x) {
  float y = fuser_max(fuser_min(x, 89.0f), -27.0f);
  float shifted = fmaf(y, 0x1.715476p+0f, 0x1.8000fcp+23f);  // n + 126 in the last bits
  float n = shifted - 0x1.8000fcp+23f, half = __int_as_float(__float_as_int(shifted) << 23);
  float r = fmaf(n, -0x1.7f7d1cp-20f, fmaf(n, -0x1.62e4p-1f, y));
  float p = fmaf(fmaf(fmaf(0x1.9e7d3ep-13f, r, 0x1.6d3a9ep-10f), r, 0x1.1112d4p-7f), r, 0x1.5554f8p-5f);
  p = fmaf(fmaf(p, r, 0x1.555554p-3f), r, 0.5f);
  return copysignf(2.0f * fmaf(fmaf(r * r, p, r), half, half - 0.5f), x);
}
""",
    # Above 0.57: 1 - 2 / (1 + exp(2 |x|)), which cancels no more than one bit. Below: x + x**3 P(x**2), P within
    # 0.9 * 2**-24 of tanh, relative.
    "fuser_tanh": """
INLINE float fuser_tanh(float x) {
  float a = fabsf(x), s = x * x;
  float large = fmaf(-2.0f, fuser_reciprocal_approx(fuser_exp2_approx(a * 0x1.715476p+1f) + 1.0f), 1.0f);
  float p = fmaf(fmaf(fmaf(0x1.07f61ep-6f, s, -0x1.ae134ap-5f), s, 0x1.10c0dcp-3f), s, -0x1.555404p-2f) * s;
  return copysignf(a < 0.57f ? fmaf(p, a, a) : large, x);
}
""",
    # Above 0.94: 1 - 2**Q(|x|), Q being log2(erfc) within 0.4 * 2**-24 of erf; Q falls without end, so no limit is
    # needed. Below: x + x P(x**2) within 0.4 * 2**-24, relative.
    "fuser_erf": """
INLINE float fuser_erf(float x) {
  float a = fabsf(x), s = x * x;
  float q = fmaf(fmaf(fmaf(-0x1.cd0a68p-10f, a, 0x1.6a38f4p-6f), a, -0x1.0ae528p-3f), a, -0x1.e18b18p-1f);
  float large = 1.0f - fuser_exp2_approx(fmaf(fmaf(q, a, -0x1.9d689ap+0f), a, -0x1.905d74p-9f));
  float p = fmaf(fmaf(fmaf(-0x1.361cc4p-11f, s, 0x1.464804p-8f), s, -0x1.b663c6p-6f), s, 0x1.ce17f4p-4f);
  p = fmaf(fmaf(p, s, -0x1.8126dap-2f), s, 0x1.06eba6p-3f);
  return copysignf(a < 0.94f ? fmaf(p, a, a) : large, x);
}
""",
}

_DIVISIONS = {
    # Both operands times a power of two that brings a divisor below 1 to [1/2, 1), and one above 2**126 below it: then
    # the reciprocal is normal, the dividend keeps its bits, and nothing overflows that the quotient does not. From there
    # the steps are those of the compiler's own division: a reciprocal refined once, a quotient, and the quotient corrected
    # by its exact remainder (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor",
    # 1990), which rounds correctly. Below 2**-100 the remainder may be rounded: 1.5 units of the quotient's last place.
    # Infinite quotients and those by zero or infinity have no remainder: nan tells them. The divisor is made positive and
    # the remainder subtracted, so that a zero keeps its sign.
    # The compiler's division goes through a function of 40 instructions for a zero dividend, as after relu or a masked
    # exp, and shares nothing between the elements that have one divisor.
    "fuser_divide": """
INLINE float fuser_divide(float a, float b) {
  int exponent = __float_as_int(b) & 0x7f800000, sign = __float_as_int(b) & 0x80000000;
  int shift = exponent < 253 << 23 ? (253 << 23) - min(exponent, 126 << 23) : 125 << 23;
  float scale = __int_as_float(shift | sign), d = b * scale, n = a * scale;
  float first = fuser_reciprocal_approx(d), r = fmaf(-fmaf(d, first, -1.0f), first, first);
  float q = n * r, corrected = fmaf(-fmaf(q, d, -n), r, q);
  return corrected == corrected ? corrected : n * first;
}
""",
    # The same for a divisor from 1 to 2**31, the scale of which is 1.
    "fuser_divide_by_count": """
INLINE float fuser_divide_by_count(float a, float b) {
  float first = fuser_reciprocal_approx(b), r = fmaf(-fmaf(b, first, -1.0f), first, first);
  float q = a * r, corrected = fmaf(-fmaf(q, b, -a), r, q);
  return corrected == corrected ? corrected : a * first;
}
""",
    # b > 0, and r is 1 / b rounded.
    "fuser_divide_by": """
INLINE float fuser_divide_by(float a, float b, float r) {
  float q = a * r, corrected = fmaf(-fmaf(q, b, -a), r, q);
  return corrected == corrected ? corrected : q;
}
""",
    # The steps of the compiler's own root, which rounds correctly, on a number that it would not leave to its function of
    # 20 instructions: that one takes zeros, infinity and what is below 2**-101.
    "fuser_sqrt": """
INLINE double fuser_sqrt(double x) { return sqrt(x); }
INLINE float fuser_sqrt(float x) {
  bool small = x < 0x1p-100f;
  float y = x * (small ? 0x1p64f : 1.0f), r = fuser_rsqrt_approx(y), g = y * r;
  float root = fmaf(fmaf(-g, g, y), 0.5f * r, g) * (small ? 0x1p-32f : 1.0f);
  return x == 0.0f || x == __int_as_float(0x7f800000) ? x : root;
}
""",
}

# Off by at most twice what is off by half a unit: where no comparison and no integer may tell (`ir/ops/approximate_ops.py`).
_NEAR = {
    # A power of two by which a divisor has a reciprocal that is a normal number, and by which a quotient loses nothing.
    "fuser_normal_scale": """
INLINE float fuser_normal_scale(float b) {
  return fabsf(b) > 0x1p126f ? 0.25f : fabsf(b) < 0x1p-126f ? 0x1p24f : 1.0f;
}
""",
    # A product with the rounded reciprocal: two products where many elements have a divisor in common. The reciprocals of zero
    # and infinity cannot be refined.
    "fuser_near_divide": """
INLINE float fuser_near_divide(float a, float b) {
  float scale = fuser_normal_scale(b), d = b * scale, first = fuser_reciprocal_approx(d);
  float r = fmaf(-fmaf(d, first, -1.0f), first, first);
  return a * scale * (r == r ? r : first);
}
""",
    "fuser_near_reciprocal": """
INLINE float fuser_near_reciprocal(float x) {
  float scale = fuser_normal_scale(x);
  return fuser_reciprocal_approx(x * scale) * scale;
}
""",
    # Relative error below 2**-23, subnormal numbers included.
    "fuser_near_sqrt": """
INLINE float fuser_near_sqrt(float x) {
  float r;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
""",
}

# For results that are rounded to 16 bits in the end (`ir/ops/approximate_ops.py`). x * log2(e) is rounded once and its
# constant is off by 2**-26, relative: where it is at most 2**k, the power of two is off by log(2) (2**(k-25) +
# 2**(k-26)), relative.
_DOUBLES = {
    # a / b for a b that many elements have in common, of which d = b s, r = 1 / d rounded: corrected by the exact remainder.
    # s is a power of two that keeps r finite. Infinite quotients and those by zero or infinity have no remainder.
    "fuser_divisor_scale": """
INLINE double fuser_divisor_scale(double b) { return fabs(b) < 0x1p-500 ? 0x1p500 : 1.0; }
""",
    "fuser_scaled_divisor": """
INLINE double fuser_scaled_divisor(double b) { return b * fuser_divisor_scale(b); }
""",
    "fuser_divide_by_common": """
INLINE double fuser_divide_by_common(double a, double s, double d, double r) {
  double n = a * s, q = n * r, c = fma(-fma(q, d, -n), r, q);
  return c == c ? c : q;
}
""",
    # The same for 0 <= a <= 1 <= b: nothing overflows, and a remainder is there unless b is nan, as the quotient is then.
    "fuser_divide_by_sum": """
INLINE double fuser_divide_by_sum(double a, double b, double r) {
  double q = a * r;
  return fma(-fma(q, b, -a), r, q);
}
""",
    # exp(x) for x <= 0 and nan, within 1.1 units, without a branch: exponentials of several elements go on side by side, where
    # the compiler's own function has a branch each for what is below -708. r = x - n log(2) in two steps, of which the first
    # is exact, as |n| < 2**11. (exp(r) - 1 - r - r**2 / 2) / r**3 at the nodes of Chebyshev: 2**-55 of exp(r) in all. The power
    # comes in two factors: so results below 2**-1022 are rounded once, and a nan stays one. exp(-746) rounds to 0.
    "fuser_exp_of_negative": """
INLINE double fuser_exp_of_negative(double x) {
  double y = x < -746.0 ? -746.0 : x, shifted = fma(y, 0x1.71547652b82fep+0, 0x1.8p+52), n = shifted - 0x1.8p+52;
  double r = fma(n, -0x1.ef35793c7673p-45, fma(n, -0x1.62e42fefa38p-1, y));
  double p = fma(fma(0x1.af236aac51d05p-26, r, 0x1.2880411bad1aap-22), r, 0x1.71de17e40edfep-19);
  p = fma(fma(fma(p, r, 0x1.a019c9a5652d3p-16), r, 0x1.a01a01a4b322fp-13), r, 0x1.6c16c1738ff55p-10);
  p = fma(fma(fma(p, r, 0x1.1111111110e6ap-7), r, 0x1.5555555554cb7p-5), r, 0x1.5555555555555p-3);
  p = fma(fma(fma(p, r, 0.5), r, 1.0), r, 1.0);
  int k = (int)__double_as_longlong(shifted), half = k >> 1;
  p *= __longlong_as_double((long long)(half + 1023) << 52);
  return p * __longlong_as_double((long long)(k - half + 1023) << 52);
}
""",
    # Twenty bits of it.
    "fuser_double_reciprocal_approx": """
INLINE double fuser_double_reciprocal_approx(double x) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  return r;
}
""",
    # 2 / (1 + exp(-2 x)), within 2.5 units; below 0 both are multiplied by exp(2 x), so that no exponential is large. The
    # quotient, of a divisor between 1 and 2, has no cases: nothing overflows, and elements side by side go on together.
    "fuser_one_plus_tanh": """
INLINE double fuser_one_plus_tanh(double x) {
  double e = fuser_exp_of_negative(-2.0 * fabs(x)), d = 1.0 + e, n = __double2hiint(x) < 0 ? e + e : 2.0;
  double r = fuser_double_reciprocal_approx(d);
  r = fma(r, fma(-d, r, 1.0), r);
  r = fma(r, fma(-d, r, 1.0), r);
  double q = n * r;
  return fma(fma(-d, q, n), r, q);
}
""",
    # exp(x) = p * scale for x <= 0 and nan, of what is added to 1 or more: the same polynomial, but 0 below 2**-1022. What is
    # not above -709, -infinity too but no nan, gets the upper half of -709: n is -1023 then, whatever the lower half, and the
    # scale 0.
    "fuser_exp_summand": """
INLINE double fuser_exp_summand(double x, double& scale) {
  unsigned high = __double2hiint(x);
  high = high - 0xc0862800u <= 0xfff00000u - 0xc0862800u ? 0xc0862800u : high;
  double y = __hiloint2double(high, __double2loint(x));
  double shifted = fma(y, 0x1.71547652b82fep+0, 0x1.8p+52), n = shifted - 0x1.8p+52;
  double r = fma(n, -0x1.ef35793c7673p-45, fma(n, -0x1.62e42fefa38p-1, y));
  double p = fma(fma(0x1.af236aac51d05p-26, r, 0x1.2880411bad1aap-22), r, 0x1.71de17e40edfep-19);
  p = fma(fma(fma(p, r, 0x1.a019c9a5652d3p-16), r, 0x1.a01a01a4b322fp-13), r, 0x1.6c16c1738ff55p-10);
  p = fma(fma(fma(p, r, 0x1.1111111110e6ap-7), r, 0x1.5555555554cb7p-5), r, 0x1.5555555555555p-3);
  scale = __hiloint2double((__double2loint(shifted) + 1023) << 20, 0);
  return fma(fma(fma(p, r, 0.5), r, 1.0), r, 1.0);
}
INLINE double fuser_exp_summand(double x) {
  double scale, p = fuser_exp_summand(x, scale);
  return p * scale;
}
""",
    # One rounding and one operation less than the sum of both.
    "fuser_add_exp": """
INLINE double fuser_add_exp(double total, double x) {
  double scale, p = fuser_exp_summand(x, scale);
  return fma(p, scale, total);
}
""",
    # The larger one, nan from either side; zeros are equal.
    "fuser_largest": """
INLINE double fuser_largest(double a, double b) { return a > b || a != a ? a : b; }
""",
}

_COARSE = {
    # 2**(x / log(2)) = h * h: no h is flushed whose square is a float, and the product rounds once to a subnormal or infinity.
    # With k = 8 that is 2**-17, and twice the error of ex2: below 2**-16.8.
    "fuser_coarse_exp": """
INLINE float fuser_coarse_exp(float x) {
  float h = fuser_exp2_approx(x * 0x1.715476p-1f);
  return h * h;
}
""",
    # For x <= 0 and nan. 2**e (1 + r) with e near x * log2(e) and r what it misses; log(2) as a float is off by 2**-28.4,
    # relative, so r is off by 2**-22 at most, from x = -88 on. Below, ex2 flushes to 0, and infinity is kept out of r.
    "fuser_coarse_exp_of_negative": """
INLINE float fuser_coarse_exp_of_negative(float x) {
  float y = fuser_max(x, -128.0f), e = y * 0x1.715476p+0f, p = fuser_exp2_approx(e);
  return fmaf(p, fmaf(e, -0x1.62e43p-1f, y), p);
}
""",
    # For x >= 0 and nan. Below 2**-7 it is x - x**2 / 2 within 2**-15.5, above the logarithm of the rounded sum, which is off
    # by 2**-22 beside 2**-7.
    "fuser_coarse_log1p": """
INLINE float fuser_coarse_log1p(float x) {
  float large = fuser_log2_approx(x + 1.0f) * 0x1.62e43p-1f;
  return x < 0x1p-7f ? fmaf(x * -0.5f, x, x) : large;
}
""",
    # 2**-64 / (2**-64 + 2**-64 exp(-x)): the sum stays below 2**126, where its reciprocal would be flushed, until the result is
    # 2**-190. k = 7 for results above 2**-64, 8 below.
    "fuser_coarse_sigmoid": """
INLINE float fuser_coarse_sigmoid(float x) {
  return 0x1p-64f * fuser_reciprocal_approx(fuser_exp2_approx(fmaf(x, -0x1.715476p+0f, -64.0f)) + 0x1p-64f);
}
""",
    "fuser_coarse_silu": "INLINE float fuser_coarse_silu(float x) { return x * fuser_coarse_sigmoid(x); }",
    # 1 + tanh(x) = 1 / (1/2 + exp(-2 x) / 2). The reciprocal is flushed where the result is below 2**-126.
    "fuser_coarse_one_plus_tanh": """
INLINE float fuser_coarse_one_plus_tanh(float x) {
  return fuser_reciprocal_approx(fmaf(fuser_exp2_approx(x * -0x1.715476p+1f), 0.5f, 0.5f));
}
""",
    # fuser_near_divide without a refined reciprocal.
    "fuser_coarse_divide": """
INLINE float fuser_coarse_divide(float a, float b) {
  float scale = fuser_normal_scale(b);
  return a * scale * fuser_reciprocal_approx(b * scale);
}
""",
}

FLOAT_FUNCTIONS: dict[str, str] = {
    **_EXP2_AND_RECIPROCAL,
    **_LOGARITHMS,
    **_POWERS,
    **_SIGMOIDS,
    **_DIVISIONS,
    **_NEAR,
    **_DOUBLES,
    **_COARSE,
}
