extern "C" __device__ void cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);
extern "C" __global__ void __launch_bounds__(1)
choose_case_int32(const int* selector, unsigned long long cases, const unsigned int* bodies, unsigned int otherwise, volatile unsigned long long* flag, volatile unsigned long long* report, unsigned long long handle) {
    const unsigned long long number = (unsigned long long)(long long)*selector;
    unsigned int body = otherwise;
    if (number < cases) {
        body = bodies == 0 ? (unsigned int)number : bodies[number];
    } else {
        report[1] = number;
        report[0] = 1;
        __threadfence_system();
        flag[0] = 1;
    }
    cudaGraphSetConditional(handle, body);
}
