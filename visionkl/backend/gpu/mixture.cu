// Posteriors of a mixture. Mirrors visionkl/backend/cpu/mixture.py.

__device__ float exponential(float x) {
    return expf(x);
}
__device__ double exponential(double x) {
    return exp(x);
}
__device__ float logarithm(float x) {
    return logf(x);
}
__device__ double logarithm(double x) {
    return log(x);
}

// A warp for each row; its lanes share the components, and their maxima and sums.
template <typename Number>
__device__ void posteriors_of_row(Number* logarithms, Number* log_likelihoods, unsigned long long* n_relevant,
                                  long long n, int n_components) {
    long long row = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= n) return;  // the whole warp
    Number* own = logarithms + row * n_components;
    Number largest = -(Number)__int_as_float(0x7f800000);
    for (int k = lane; k < n_components; k += 32) largest = own[k] > largest ? own[k] : largest;
    for (int other = 16; other; other /= 2) {
        Number candidate = __shfl_xor_sync(0xffffffffu, largest, other);
        largest = candidate > largest ? candidate : largest;
    }
    Number total = 0;
    for (int k = lane; k < n_components; k += 32) {
        Number share = exponential(own[k] - largest);
        own[k] = share;
        total += share;
    }
    for (int other = 16; other; other /= 2) total += __shfl_xor_sync(0xffffffffu, total, other);
    int relevant = 0;
    for (int k = lane; k < n_components; k += 32) {
        own[k] *= (Number)1 / total;
        relevant += own[k] > (Number)1e-7;
    }
    for (int other = 16; other; other /= 2) relevant += __shfl_xor_sync(0xffffffffu, relevant, other);
    if (lane == 0) {
        log_likelihoods[row] = largest + logarithm(total);
        atomicAdd(n_relevant, (unsigned long long)relevant);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    posteriors_f32(float* logarithms, float* log_likelihoods, unsigned long long* n_relevant, long long n,
                   int n_components) {
    posteriors_of_row(logarithms, log_likelihoods, n_relevant, n, n_components);
}

extern "C" __global__ void __launch_bounds__(256)
    posteriors_f64(double* logarithms, double* log_likelihoods, unsigned long long* n_relevant, long long n,
                   int n_components) {
    posteriors_of_row(logarithms, log_likelihoods, n_relevant, n, n_components);
}
