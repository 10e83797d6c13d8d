#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

// warp reduce
extern "C" __global__ void FUSER_BOUNDS warp_reduce(
    const float* t0,
    float* t1,
    index_t n) {
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  const index_t i = 128*bid_x + tid_x;
  float t2;
  float t2_other;
  t2 = 0.0f;  // initialise
  if (i < n) {
    t2 = t0[i];
  }
  t2_other = __shfl_xor_sync(0xffffffffu, t2, 16, 32);
  t2 = t2 + t2_other;
  t2_other = __shfl_xor_sync(0xffffffffu, t2, 8, 32);
  t2 = t2 + t2_other;
  t2_other = __shfl_xor_sync(0xffffffffu, t2, 4, 32);
  t2 = t2 + t2_other;
  t2_other = __shfl_xor_sync(0xffffffffu, t2, 2, 32);
  t2 = t2 + t2_other;
  t2_other = __shfl_xor_sync(0xffffffffu, t2, 1, 32);
  t2 = t2 + t2_other;
  if (tid_x % 32 == 0) {  // owner
    if (i < n) {
      t1[i / 32] = t2;
    }
  }
}
