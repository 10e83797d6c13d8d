#if defined(FUSER_MAX_REGISTERS)
#define FUSER_BOUNDS __maxnreg__(FUSER_MAX_REGISTERS)
#elif defined(FUSER_MIN_BLOCKS)
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS, FUSER_MIN_BLOCKS)
#else
#define FUSER_BOUNDS __launch_bounds__(FUSER_MAX_THREADS)
#endif

typedef int index_t;

// last block reduce
extern "C" __global__ void FUSER_BOUNDS last_block_reduce(
    const float* t0,
    float* t1,
    float* partials,
    int* arrived,
    index_t n) {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  const index_t bid_x = blockIdx.x;
  const index_t tid_x = threadIdx.x;
  const index_t grid_dim_x = gridDim.x;
  const index_t i = 128*bid_x + tid_x;
  int* const is_last = reinterpret_cast<int*>(&shared_memory[0]);
  if (tid_x == 0) {  // owner
    partials[bid_x] = t0[i];
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    const index_t ticket = atomicAdd(&arrived[0], 1);
    is_last[0] = (grid_dim_x == ticket + 1 ? 1 : 0);
  }
  __syncthreads();  // is_last is written by one thread and read by all
  const index_t last = static_cast<const volatile int*>(is_last)[0];
  if (last == 1) {  // last block
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    float t2;
    t2 = 0.0f;  // initialise
    for (index_t j = 0; j < grid_dim_x; ++j) {
      t2 = t2 + __ldcg(&partials[j]);
    }
    if (tid_x == 0) {  // owner
      t1[0] = t2;
      arrived[0] = 0;  // semaphore reset
    }
  }
}
