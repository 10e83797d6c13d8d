#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

// vector copy
extern "C" __global__ void FUSER_BOUNDS vector_copy(
    const float* t0,
    float* t1,
    index_t n) {
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  const index_t i = 128*bid_x + tid_x;
  if (4*i < n) {
    alignas(16) float t2[4];
    *reinterpret_cast<uint4*>(&t2[0]) = __ldcs(reinterpret_cast<const uint4*>(&t0[4*i]));
    __stcs(reinterpret_cast<uint4*>(&t1[4*i]), *reinterpret_cast<const uint4*>(&t2[0]));
  }
}
