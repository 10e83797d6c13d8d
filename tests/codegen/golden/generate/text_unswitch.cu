#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

__device__ __forceinline__ float fuser_exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ __forceinline__ float fuser_exp_parts(float x, float& scale) {
  float limited = __saturatef(fmaf(x, 0x1.77313cp-8f, 0.5f));  // x * log2(e) / 252 + 0.5; 0 for nan
  float shifted = fmaf(limited, 252.0f, 0x1.800002p+23f);     // n + 127 in the last bits
  float n = shifted - 0x1.8000fep+23f;
  scale = __int_as_float(__float_as_int(shifted) << 23);
  return fuser_exp2_approx(fmaf(x, 0x1.4ae0cp-26f, fmaf(x, 0x1.715476p+0f, -n)));
}

__device__ __forceinline__ float fuser_exp(float x) {
  float scale, p = fuser_exp_parts(x, scale);
  return p * scale;
}

// unswitch
extern "C" __global__ void FUSER_BOUNDS unswitch(
    const float* t0,
    float* t1,
    index_t n) {
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  // four elements a thread
  const index_t i = 512*bid_x + tid_x;
  if (i + 384 < n) {  // unswitch
    #pragma unroll
    for (index_t j = 0; j < 4; ++j) {
      t1[i + 128*j] = fuser_exp((- __ldcs(&t0[i + 128*j])));
    }
  } else {
    #pragma unroll
    for (index_t j = 0; j < 4; ++j) {
      if (i + 128*j < n) {
        t1[i + 128*j] = fuser_exp((- __ldcs(&t0[i + 128*j])));
      }
    }
  }
}
