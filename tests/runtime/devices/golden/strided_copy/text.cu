extern "C" __global__ void __launch_bounds__(256)
copy_strided_4_2(unsigned int* dst, const unsigned int* src, long long total, long long n0, long long a0, long long b0, long long n1, long long a1, long long b1) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < total; i += gridDim.x * 256LL) {
        long long rest = i, dst_offset = 0, src_offset = 0;
        dst_offset += rest % n1 * a1; src_offset += rest % n1 * b1; rest /= n1;
        dst_offset += rest % n0 * a0; src_offset += rest % n0 * b0; rest /= n0;
        dst[dst_offset] = src[src_offset];
    }
}
