// Passes of the bundle solver over codes. Mirrors visionkl/backend/cpu/solver.py.

// A thread for each sample: the codes of a block are neighbours. Four entries are added up in float32, then
// in double precision, as on the CPU.
template <typename Code>
__device__ void sum_entries(const Code* codes, const float* tables, double* scores, long long n,
                            long long first, long long n_samples, int n_blocks, int n_codewords) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n_samples) return;
    const Code* code = codes + first + i;
    double score = scores[i];
    for (int m = 0; m + 4 <= n_blocks; m += 4) {
        const float* table = tables + (long long)m * n_codewords;
        float pair = table[code[m * n]] + table[n_codewords + code[(m + 1) * n]];
        float other = table[2 * n_codewords + code[(m + 2) * n]] + table[3 * n_codewords + code[(m + 3) * n]];
        score += pair + other;
    }
    for (int m = n_blocks / 4 * 4; m < n_blocks; ++m)
        score += tables[(long long)m * n_codewords + code[m * n]];
    scores[i] = score;
}

extern "C" __global__ void __launch_bounds__(256)
    code_scores_u8(const unsigned char* codes, const float* tables, double* scores, long long n,
                   long long first, long long n_samples, int n_blocks, int n_codewords) {
    sum_entries(codes, tables, scores, n, first, n_samples, n_blocks, n_codewords);
}

extern "C" __global__ void __launch_bounds__(256)
    code_scores_u16(const unsigned short* codes, const float* tables, double* scores, long long n,
                    long long first, long long n_samples, int n_blocks, int n_codewords) {
    sum_entries(codes, tables, scores, n, first, n_samples, n_blocks, n_codewords);
}

#define WINDOW 1024

// A block for each table and chunk of samples. It adds up shares in shared memory, for a window of codewords
// at a time, and then adds its sums to the table. The order of atomic additions is not fixed, so the last
// digits of sums may differ from run to run.
template <typename Code>
__device__ void scatter_shares(double* sums, const Code* codes, const unsigned int* samples,
                               const double* shares, double* tables, long long n, long long n_samples,
                               int first_block, int n_codewords, int n_chunks) {
    int block = first_block + blockIdx.x / n_chunks;
    long long chunk = blockIdx.x % n_chunks;
    long long begin = n_samples * chunk / n_chunks, end = n_samples * (chunk + 1) / n_chunks;
    const Code* code = codes + block * n;
    for (int window = 0; window < n_codewords; window += WINDOW) {
        int length = min(WINDOW, n_codewords - window);
        for (int k = threadIdx.x; k < length; k += blockDim.x) sums[k] = 0.0;
        __syncthreads();
        for (long long j = begin + threadIdx.x; j < end; j += blockDim.x) {
            int word = code[samples[j]] - window;
            if (word >= 0 && word < length) atomicAdd(&sums[word], shares[j]);
        }
        __syncthreads();
        double* table = tables + (long long)block * n_codewords + window;
        for (int k = threadIdx.x; k < length; k += blockDim.x)
            if (sums[k] != 0.0) atomicAdd(&table[k], sums[k]);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_u8(const unsigned char* codes, const unsigned int* samples, const double* shares, double* tables,
               long long n, long long n_samples, int first_block, int n_codewords, int n_chunks) {
    __shared__ double sums[WINDOW];
    scatter_shares(sums, codes, samples, shares, tables, n, n_samples, first_block, n_codewords, n_chunks);
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_u16(const unsigned short* codes, const unsigned int* samples, const double* shares,
                double* tables, long long n, long long n_samples, int first_block, int n_codewords,
                int n_chunks) {
    __shared__ double sums[WINDOW];
    scatter_shares(sums, codes, samples, shares, tables, n, n_samples, first_block, n_codewords, n_chunks);
}
