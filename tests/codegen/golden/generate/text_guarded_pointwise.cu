#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

struct fuser_bfloat16 { unsigned short bits; };

__device__ __forceinline__ float fuser_bfloat16_to_float(fuser_bfloat16 x) {
  float r;
  asm("mov.b32 %0, {%1, %2};" : "=f"(r) : "h"((unsigned short)0), "h"(x.bits));
  return r;
}

__device__ __forceinline__ fuser_bfloat16 fuser_float_to_bfloat16(float x) {
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

// guarded pointwise
extern "C" __global__ void FUSER_BOUNDS guarded_pointwise(
    const fuser_bfloat16* t0,
    fuser_bfloat16* t2,
    index_t n,
    float s0) {
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  const index_t i = 512*bid_x + tid_x;
  fuser_bfloat16 t1[4];
  #pragma unroll
  for (index_t j = 0; j < 4; ++j) {
    if (i + 128*j < n) {
      t1[j] = t0[i + 128*j];
      t2[i + 128*j] = fuser_float_to_bfloat16((fuser_bfloat16_to_float(fuser_float_to_bfloat16((fuser_bfloat16_to_float(t1[j]) * 0.100097656f))) + s0));
    }
  }
}
