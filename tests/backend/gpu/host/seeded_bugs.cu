// Kernels with a bug each, which the harness must catch, and the same without it, which it must let pass.

#ifdef HAS_BUG
#define IF_RIGHT(...)
#define IF_WRONG(...) __VA_ARGS__
#else
#define IF_RIGHT(...) __VA_ARGS__
#define IF_WRONG(...)
#endif

// One element past the end.
extern "C" __global__ void off_by_one(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i IF_RIGHT(>=) IF_WRONG(>) n) return;
    out[i] = 2 * in[i];
}

// Threads read what others have not written yet.
extern "C" __global__ void missing_barrier(const int* in, int* out, int n) {
    __shared__ int tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : 0;
    IF_RIGHT(__syncthreads();)
    if (i < n) out[i] = 2 * tile[threadIdx.x ^ 1];
}

// Tiles are overwritten while others still read them; only one order of threads out of many shows it.
extern "C" __global__ void missing_second_barrier(const int* in, int* out, int n) {
    __shared__ int tile[64];
    int total = 0;
    for (int first = 0; first < n; first += 64) {
        tile[threadIdx.x] = in[first + threadIdx.x];
        __syncthreads();
        total += tile[threadIdx.x ^ 1];
        IF_RIGHT(__syncthreads();)
    }
    out[threadIdx.x] = total;
}

// Two threads add to one number at a time.
extern "C" __global__ void plain_scatter(const int* in, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    IF_RIGHT(atomicAdd(&out[in[i]], 1);)
    IF_WRONG(out[in[i]] += 1;)
}

// Shared memory is taken to be zero.
extern "C" __global__ void not_cleared(const int* in, int* out, int n) {
    __shared__ int total;
    IF_RIGHT(if (threadIdx.x == 0) total = 0; __syncthreads();)
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&total, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// Not all threads come to the barrier.
extern "C" __global__ void half_a_barrier(const int* in, int* out, int n) {
    IF_RIGHT(__syncthreads();)
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    IF_WRONG(if (i % 2) __syncthreads();)
    if (i < n) out[i] = 2 * in[i];
}

// Past the end of shared memory.
extern "C" __global__ void beyond_shared(const int* in, int* out, int n) {
    __shared__ int tile[64];
    int i = threadIdx.x;
    tile[i IF_WRONG(+1)] = in[i];
    __syncthreads();
    if (i < n) out[i] = 2 * tile[i];
}

// Numbers of rows times numbers of columns leave 32 bits.
extern "C" __global__ void index_overflow(const int* in, int* out, int n) {
    int i = threadIdx.x;
    IF_RIGHT(long long) IF_WRONG(int) far = IF_RIGHT((long long))(n * 1000) * (1000 * n);
    if (i < n) out[i] = 2 * in[i] + (far < 0);
}
