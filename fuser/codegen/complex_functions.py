"""Complex arithmetic and functions of generated text, as templates over the type of the parts.

Results follow the C standard's annex on complex arithmetic (branch cuts told apart by signed zeros, infinities),
which is what NumPy does, except multiplication and division: those are the plain formulas, as in NumPy.

Formulas
    sqrt         half-angle formula on |z| + |re z|, scaled away from overflow and subnormals
    log          log1p near |z| = 1, so that the real part keeps its accuracy near z = 1
    exp, sinh..  products of real functions; exponentials that overflow alone are applied in two halves
    asin, acos   W. Kahan, "Branch cuts for complex elementary functions" (1987): products of sqrt(1 - z), sqrt(1 + z)
    atanh        log1p(4x / ((1 - x)**2 + y**2)) / 4, atan2(2y, (1 - x)(1 + x) - y**2) / 2

Error bounds are relative to the magnitude of the result.
"""

from __future__ import annotations

COMPLEX_FUNCTIONS: dict[str, str] = {
    "fuser_complex": "template <class T> struct alignas(2 * sizeof(T)) fuser_complex { T re, im; };",
    "fuser_complex_cast": """
template <class T, class S> INLINE fuser_complex<T> fuser_complex_cast(fuser_complex<S> z) {
  return {(T)z.re, (T)z.im};
}
""",
    "fuser_complex_to_bool": """
template <class T> INLINE bool fuser_complex_to_bool(fuser_complex<T> z) { return z.re != 0 || z.im != 0; }
""",
    "fuser_complex_isfinite": """
template <class T> INLINE bool fuser_complex_isfinite(fuser_complex<T> z) {
  return z.re - z.re == 0 && z.im - z.im == 0;
}
""",
    "fuser_complex_isnan": """
template <class T> INLINE bool fuser_complex_isnan(fuser_complex<T> z) { return z.re != z.re || z.im != z.im; }
""",
    # Infinite: equal to itself, but not finite.
    "fuser_infinite": """
template <class T> INLINE bool fuser_infinite(T x) { return x == x && x - x != 0; }
""",
    "fuser_complex_isinf": """
template <class T> INLINE bool fuser_complex_isinf(fuser_complex<T> z) {
  return fuser_infinite(z.re) || fuser_infinite(z.im);
}
""",
    "fuser_complex_eq": """
template <class T> INLINE bool fuser_complex_eq(fuser_complex<T> a, fuser_complex<T> b) {
  return a.re == b.re && a.im == b.im;
}
""",
    "fuser_complex_neg": """
template <class T> INLINE fuser_complex<T> fuser_complex_neg(fuser_complex<T> z) { return {-z.re, -z.im}; }
""",
    "fuser_complex_add": """
template <class T> INLINE fuser_complex<T> fuser_complex_add(fuser_complex<T> a, fuser_complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
""",
    "fuser_complex_sub": """
template <class T> INLINE fuser_complex<T> fuser_complex_sub(fuser_complex<T> a, fuser_complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
""",
    "fuser_complex_mul": """
template <class T> INLINE fuser_complex<T> fuser_complex_mul(fuser_complex<T> a, fuser_complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
""",
    # R. Smith's division: scaled by the larger part of the divisor.
    "fuser_complex_div": """
template <class T> INLINE fuser_complex<T> fuser_complex_div(fuser_complex<T> a, fuser_complex<T> b) {
  if (fabs(b.re) >= fabs(b.im)) {
    if (b.re == 0 && b.im == 0) return {a.re / fabs(b.re), a.im / fabs(b.re)};
    T ratio = b.im / b.re, scale = (T)1 / (b.re + b.im * ratio);
    return {(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
  }
  T ratio = b.re / b.im, scale = (T)1 / (b.im + b.re * ratio);
  return {(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}
""",
    "fuser_complex_reciprocal": """
template <class T> INLINE fuser_complex<T> fuser_complex_reciprocal(fuser_complex<T> z) {
  if (fabs(z.im) <= fabs(z.re)) {
    T ratio = z.im / z.re, d = z.re + z.im * ratio;
    return {(T)1 / d, -ratio / d};
  }
  T ratio = z.re / z.im, d = z.re * ratio + z.im;
  return {ratio / d, (T)-1 / d};
}
""",
    "fuser_complex_abs": """
template <class T> INLINE T fuser_complex_abs(fuser_complex<T> z) { return hypot(z.re, z.im); }
""",
    "fuser_complex_sqrt": """
template <class T> INLINE fuser_complex<T> fuser_complex_sqrt(fuser_complex<T> z) {
  if (fuser_infinite(z.im)) return {fabs(z.im), z.im};
  if (z.re == 0 && z.im == 0) return {(T)0, z.im};
  if (fuser_infinite(z.re)) {
    T cross = z.im - z.im;  // 0, or nan for a nan imaginary part
    return z.re > 0 ? fuser_complex<T>{z.re, z.im == z.im ? copysign(cross, z.im) : cross}
                    : fuser_complex<T>{fabs(cross), copysign(z.re, z.im)};
  }
  // Powers of 4 move the magnitude to where |z| + |re z| neither overflows nor is rounded to a subnormal.
  T largest = fmax(fabs(z.re), fabs(z.im)), root = 1;
  const bool single = sizeof(T) == 4;
  if (largest > (single ? (T)0x1p125 : (T)0x1p1021)) {
    z = {z.re * (T)0.0625, z.im * (T)0.0625};
    root = 4;
  } else if (largest < (single ? (T)0x1p-98 : (T)0x1p-964)) {
    T up = single ? (T)0x1p60 : (T)0x1p120;
    z = {z.re * up, z.im * up};
    root = single ? (T)0x1p-30 : (T)0x1p-60;
  }
  T t = sqrt((fabs(z.re) + hypot(z.re, z.im)) * (T)0.5), u = z.im / (2 * t);
  return z.re >= 0 ? fuser_complex<T>{t * root, u * root} : fuser_complex<T>{fabs(u) * root, copysign(t * root, z.im)};
}
""",
    "fuser_complex_rsqrt": """
template <class T> INLINE fuser_complex<T> fuser_complex_rsqrt(fuser_complex<T> z) {
  return fuser_complex_div(fuser_complex<T>{1, 0}, fuser_complex_sqrt(z));
}
""",
    "fuser_complex_exp": """
template <class T> INLINE fuser_complex<T> fuser_complex_exp(fuser_complex<T> z) {
  if (z.im == 0) return {exp(z.re), z.im};
  if (fuser_infinite(z.re) && !(z.im - z.im == 0))
    return z.re < 0 ? fuser_complex<T>{0, copysign((T)0, z.im)} : fuser_complex<T>{z.re, z.im - z.im};
  T s = sin(z.im), c = cos(z.im);
  if (z.re > (sizeof(T) == 4 ? (T)88 : (T)709) && !fuser_infinite(z.re)) {
    T h = exp(z.re * (T)0.5);
    return {h * c * h, h * s * h};
  }
  T e = exp(z.re);
  return {e * c, e * s};
}
""",
    "fuser_complex_sigmoid": """
template <class T> INLINE fuser_complex<T> fuser_complex_sigmoid(fuser_complex<T> z) {
  bool left = z.re < 0;
  fuser_complex<T> e = fuser_complex_exp(left ? z : fuser_complex<T>{-z.re, -z.im});
  return fuser_complex_div(left ? e : fuser_complex<T>{1, 0}, fuser_complex<T>{1 + e.re, e.im});
}
""",
    "fuser_complex_log": """
template <class T> INLINE fuser_complex<T> fuser_complex_log(fuser_complex<T> z) {
  T x = fabs(z.re), y = fabs(z.im), angle = atan2(z.im, z.re);
  T large = fmax(x, y), small = fmin(x, y);
  const bool single = sizeof(T) == 4;
  if (large > (T)0.5 && large < (T)2 && x == x && y == y)
    return {(T)0.5 * log1p((large - 1) * (large + 1) + small * small), angle};
  if (large > (single ? (T)0x1p125 : (T)0x1p1021) && !fuser_infinite(large))
    return {log(hypot(x * (T)0.25, y * (T)0.25)) + (T)1.3862943611198906188, angle};
  if (large < (single ? (T)0x1p-98 : (T)0x1p-964) && large > 0) {
    T up = single ? (T)0x1p60 : (T)0x1p120;
    return {log(hypot(x * up, y * up)) - (single ? (T)41.588830833596718565 : (T)83.177661667193437130), angle};
  }
  return {log(hypot(x, y)), angle};
}
""",
    "fuser_complex_log2": """
template <class T> INLINE fuser_complex<T> fuser_complex_log2(fuser_complex<T> z) {
  // Divided as torch does: of zero and of infinity the result has to be equal to the last bit, or is told to be nan off.
  fuser_complex<T> r = fuser_complex_log(z);
  return {r.re / (T)0.69314718055994530942, r.im / (T)0.69314718055994530942};
}
""",
    "fuser_complex_sinh": """
template <class T> INLINE fuser_complex<T> fuser_complex_sinh(fuser_complex<T> z) {
  if (z.im == 0) return {sinh(z.re), z.im};
  bool finite_im = z.im - z.im == 0;
  if (z.re == 0) return {z.re, sin(z.im)};
  if (fuser_infinite(z.re) && !finite_im) return {z.re, z.im - z.im};
  T s = sin(z.im), c = cos(z.im), x = fabs(z.re);
  if (x > (sizeof(T) == 4 ? (T)88 : (T)709) && !fuser_infinite(x)) {
    T h = exp(x * (T)0.5), half = copysign(h * (T)0.5, z.re);
    return {half * c * h, h * (T)0.5 * s * h};
  }
  return {sinh(z.re) * c, cosh(z.re) * s};
}
""",
    "fuser_complex_cosh": """
template <class T> INLINE fuser_complex<T> fuser_complex_cosh(fuser_complex<T> z) {
  if (z.im == 0) return {cosh(z.re), z.re == z.re ? z.im * copysign((T)1, z.re) : z.im};
  bool finite_im = z.im - z.im == 0;
  if (z.re == 0) return {cos(z.im), finite_im ? z.re * sin(z.im) : z.re};
  if (fuser_infinite(z.re) && !finite_im) return {fabs(z.re), z.im - z.im};
  T s = sin(z.im), c = cos(z.im), x = fabs(z.re);
  if (x > (sizeof(T) == 4 ? (T)88 : (T)709) && !fuser_infinite(x)) {
    T h = exp(x * (T)0.5), half = copysign(h * (T)0.5, z.re);
    return {h * (T)0.5 * c * h, half * s * h};
  }
  return {cosh(z.re) * c, sinh(z.re) * s};
}
""",
    # sin(z) = -i sinh(iz), cos(z) = cosh(iz)
    "fuser_complex_sin": """
template <class T> INLINE fuser_complex<T> fuser_complex_sin(fuser_complex<T> z) {
  fuser_complex<T> r = fuser_complex_sinh(fuser_complex<T>{-z.im, z.re});
  return {r.im, -r.re};
}
""",
    "fuser_complex_cos": """
template <class T> INLINE fuser_complex<T> fuser_complex_cos(fuser_complex<T> z) {
  return fuser_complex_cosh(fuser_complex<T>{-z.im, z.re});
}
""",
    "fuser_complex_asin": """
template <class T> INLINE fuser_complex<T> fuser_complex_asin(fuser_complex<T> z) {
  if (fuser_infinite(z.re) || fuser_infinite(z.im))
    return {atan2(z.re, fabs(z.im)), copysign(fuser_infinite(z.re) ? fabs(z.re) : fabs(z.im), z.im)};
  if (z.re == 0 && z.im != z.im) return z;
  fuser_complex<T> a = fuser_complex_sqrt(fuser_complex<T>{1 - z.re, -z.im});
  fuser_complex<T> b = fuser_complex_sqrt(fuser_complex<T>{1 + z.re, z.im});
  return {atan2(z.re, a.re * b.re - a.im * b.im), asinh(a.re * b.im - a.im * b.re)};
}
""",
    "fuser_complex_acos": """
template <class T> INLINE fuser_complex<T> fuser_complex_acos(fuser_complex<T> z) {
  if (fuser_infinite(z.re) || fuser_infinite(z.im))
    return {atan2(fabs(z.im), z.re), -copysign(fuser_infinite(z.re) ? fabs(z.re) : fabs(z.im), z.im)};
  if (z.re == 0 && z.im != z.im) return {(T)1.5707963267948966192, z.im};
  fuser_complex<T> a = fuser_complex_sqrt(fuser_complex<T>{1 - z.re, -z.im});
  fuser_complex<T> b = fuser_complex_sqrt(fuser_complex<T>{1 + z.re, z.im});
  return {2 * atan2(a.re, b.re), asinh(b.re * a.im - b.im * a.re)};
}
""",
    # asinh(z) is asin with the parts swapped on both sides.
    "fuser_complex_asinh": """
template <class T> INLINE fuser_complex<T> fuser_complex_asinh(fuser_complex<T> z) {
  fuser_complex<T> r = fuser_complex_asin(fuser_complex<T>{z.im, z.re});
  return {r.im, r.re};
}
""",
    "fuser_complex_acosh": """
template <class T> INLINE fuser_complex<T> fuser_complex_acosh(fuser_complex<T> z) {
  fuser_complex<T> r = fuser_complex_acos(z);
  return {fabs(r.im), copysign(r.re, z.im)};
}
""",
    "fuser_complex_atanh": """
template <class T> INLINE fuser_complex<T> fuser_complex_atanh(fuser_complex<T> z) {
  T x = fabs(z.re), y = fabs(z.im);
  if (fuser_infinite(x) || fuser_infinite(y))
    return {copysign((T)0, z.re), y == y ? copysign((T)1.5707963267948966192, z.im) : z.im};
  if (x == 0 && y != y) return z;
  T large = fmax(x, y), re;
  if (large > (sizeof(T) == 4 ? (T)0x1p30 : (T)0x1p60)) {
    T u = x / large, v = y / large;
    return {copysign(u / (u * u + v * v) / large, z.re), copysign((T)1.5707963267948966192, z.im)};
  }
  if (x == 1 && y < (sizeof(T) == 4 ? (T)0x1p-50 : (T)0x1p-400))
    re = (T)0.5 * ((T)0.69314718055994530942 - log(y));
  else
    re = (T)0.25 * log1p(4 * x / ((1 - x) * (1 - x) + y * y));
  return {copysign(re, z.re), (T)0.5 * atan2(2 * z.im, (1 - x) * (1 + x) - y * y)};
}
""",
    # atan(z) is atanh with the parts swapped on both sides.
    "fuser_complex_atan": """
template <class T> INLINE fuser_complex<T> fuser_complex_atan(fuser_complex<T> z) {
  fuser_complex<T> r = fuser_complex_atanh(fuser_complex<T>{z.im, z.re});
  return {r.im, r.re};
}
""",
}
"""Text of every complex function and of the type itself; INLINE stands for the function qualifiers."""
