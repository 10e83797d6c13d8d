#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

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
      t1[i + 128*j] = expf((- __ldcs(&t0[i + 128*j])));
    }
  } else {
    #pragma unroll
    for (index_t j = 0; j < 4; ++j) {
      if (i + 128*j < n) {
        t1[i + 128*j] = expf((- __ldcs(&t0[i + 128*j])));
      }
    }
  }
}
