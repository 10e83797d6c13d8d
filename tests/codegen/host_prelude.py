"""What generated device code needs to compile as C++ for the host."""

from __future__ import annotations

HOST_PRELUDE = r"""
#include <cmath>
#include <cstring>
using std::fabs; using std::sin; using std::cos; using std::exp; using std::log; using std::sqrt; using std::sinh;
using std::cosh; using std::log1p; using std::asinh; using std::trunc; using std::hypot; using std::atan2;
using std::copysign; using std::fmod; using std::pow; using std::fmax; using std::fmin;
#define __device__
#define __shared__ static
#define __forceinline__ static inline
#define __noinline__ static
static struct { unsigned x, y, z; } threadIdx = {0, 0, 0}, blockDim = {1, 1, 1};
static void __syncthreads() {}
#define __CUDA_ARCH__ 750
#define KERNEL
#define LOOP for (long long i = 0; i < n; ++i)
template <class D, class S> static D bits(S s) { D d; static_assert(sizeof d == sizeof s); memcpy(&d, &s, sizeof d); return d; }
static float __int_as_float(int x) { return bits<float>(x); }
static int __float_as_int(float x) { return bits<int>(x); }
static float __uint_as_float(unsigned x) { return bits<float>(x); }
static unsigned __float_as_uint(float x) { return bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return bits<double>(x); }
static long long __double_as_longlong(double x) { return bits<long long>(x); }
static int __double2hiint(double x) { return (int)(bits<long long>(x) >> 32); }
static int __double2loint(double x) { return (int)bits<long long>(x); }
static double __hiloint2double(int high, int low) { return bits<double>((long long)high << 32 | (unsigned)low); }
template <class T> static float toward_zero(T x) {
  float r = (float)x;
  return fabsl((long double)r) > fabsl((long double)x) ? nextafterf(r, 0.0f) : r;
}
static float __double2float_rz(double x) { return toward_zero(x); }
static float __ll2float_rz(long long x) { return toward_zero(x); }
static float __ull2float_rz(unsigned long long x) { return toward_zero(x); }
static float __int2float_rz(int x) { return toward_zero(x); }
static float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
static float __fmul_rn(float a, float b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static float __fadd_rz(float a, float b) { return toward_zero((double)a + b); }  // which matters from 2**-30 to 2**30 only
static double __dadd_rn(double a, double b) { return a + b; }
static double __dmul_rn(double a, double b) { return a * b; }
static int direction = 0;  // of the rounding of approximate instructions, which are off by less than an ulp
extern "C" void set_direction(int given) { direction = given; }
static float approximate(double x) {
  float r = (float)x;
  if (direction > 0 && r < x) r = nextafterf(r, INFINITY);
  if (direction < 0 && r > x) r = nextafterf(r, -INFINITY);
  return fabsf(r) < 0x1p-126f ? copysignf(0, r) : r;
}
static int min(int a, int b) { return a < b ? a : b; }
static float rsqrtf(float x) {  // off by up to two ulps
  float r = (float)(1 / sqrt((double)x)), to = direction > 0 ? INFINITY : -INFINITY;
  return direction == 0 || r == 0 || !(fabsf(r) < INFINITY) ? r : nextafterf(nextafterf(r, to), to);
}
static float rsqrt(float x) { return rsqrtf(x); }
static double rsqrt(double x) { return (double)(1 / sqrtl((long double)x)); }
"""
