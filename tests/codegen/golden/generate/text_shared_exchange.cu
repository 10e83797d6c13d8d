#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

// shared exchange
extern "C" __global__ void FUSER_BOUNDS shared_exchange(
    const float* t0,
    float* t1,
    index_t n) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  const index_t i = 128*bid_x + tid_x;
  float* const tile = reinterpret_cast<float*>(&shared_memory[0]);
  if (i < n) {
    tile[tid_x] = t0[i];
  }
  __syncthreads();  // tile is written by one thread and read by another
  if (i < n) {
    t1[i] = tile[127 - tid_x];
  }
}
