// Sums over codes for many tables side by side. Mirrors visionkl/backend/cpu/codes.py.

// A thread for each sample and lane: the lanes of a sample read a line of a table.
template <typename Code>
__device__ void sum_lines(const Code* codes, const float* tables, double* scores, long long n,
                          long long first, long long n_samples, int first_block, int n_tables,
                          int n_codewords, int lanes) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n_samples * lanes) return;
    int lane = (int)(i % lanes);
    const Code* code = codes + first_block * n + first + i / lanes;
    float total = 0.0f;
    for (int m = 0; m < n_tables; ++m)
        total += tables[((long long)m * n_codewords + code[m * n]) * lanes + lane];
    scores[i] += total;
}

extern "C" __global__ void __launch_bounds__(256)
    line_scores_u8(const unsigned char* codes, const float* tables, double* scores, long long n,
                   long long first, long long n_samples, int first_block, int n_tables, int n_codewords,
                   int lanes) {
    sum_lines(codes, tables, scores, n, first, n_samples, first_block, n_tables, n_codewords, lanes);
}

extern "C" __global__ void __launch_bounds__(256)
    line_scores_u16(const unsigned short* codes, const float* tables, double* scores, long long n,
                    long long first, long long n_samples, int first_block, int n_tables, int n_codewords,
                    int lanes) {
    sum_lines(codes, tables, scores, n, first, n_samples, first_block, n_tables, n_codewords, lanes);
}

#define GROUP 16
#define WINDOW 256

// A block for each table, group of 16 lanes and chunk of samples: it adds up in shared memory, for a window
// of codewords at a time, and then adds its sums to the table, in an order that is not fixed.
template <typename Code>
__device__ void scatter_groups(float* sums, const Code* codes, const float* shares, float* tables,
                               long long n, long long first, long long n_samples, int first_block,
                               int n_codewords, int lanes, int n_chunks) {
    int n_groups = lanes / GROUP;
    long long chunk = blockIdx.x % n_chunks;
    int group = blockIdx.x / n_chunks % n_groups, m = blockIdx.x / n_chunks / n_groups;
    long long begin = n_samples * chunk / n_chunks, end = n_samples * (chunk + 1) / n_chunks;
    const Code* code = codes + (first_block + m) * n + first;
    int lane = threadIdx.x % GROUP, step = blockDim.x / GROUP;
    for (int window = 0; window < n_codewords; window += WINDOW) {
        int length = min(WINDOW, n_codewords - window);
        for (int k = threadIdx.x; k < length * GROUP; k += blockDim.x) sums[k] = 0.0f;
        __syncthreads();
        for (long long i = begin + threadIdx.x / GROUP; i < end; i += step) {
            int word = code[i] - window;
            if (word >= 0 && word < length)
                atomicAdd(&sums[word * GROUP + lane], shares[i * lanes + group * GROUP + lane]);
        }
        __syncthreads();
        float* table = tables + ((long long)m * n_codewords + window) * lanes + group * GROUP;
        for (int k = threadIdx.x; k < length * GROUP; k += blockDim.x)
            if (sums[k] != 0.0f) atomicAdd(&table[(long long)(k / GROUP) * lanes + k % GROUP], sums[k]);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_lines_u8(const unsigned char* codes, const float* shares, float* tables, long long n,
                     long long first, long long n_samples, int first_block, int n_codewords, int lanes,
                     int n_chunks) {
    __shared__ float sums[WINDOW * GROUP];
    scatter_groups(sums, codes, shares, tables, n, first, n_samples, first_block, n_codewords, lanes,
                   n_chunks);
}

extern "C" __global__ void __launch_bounds__(256)
    scatter_lines_u16(const unsigned short* codes, const float* shares, float* tables, long long n,
                      long long first, long long n_samples, int first_block, int n_codewords, int lanes,
                      int n_chunks) {
    __shared__ float sums[WINDOW * GROUP];
    scatter_groups(sums, codes, shares, tables, n, first, n_samples, first_block, n_codewords, lanes,
                   n_chunks);
}

// A thread for each sample decodes block by block.
template <typename Code>
__device__ void multiply_words(const Code* codes, const float* words, const float* weights, double* scores,
                               long long n, long long first, long long n_samples, int n_blocks,
                               int n_codewords, int size) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n_samples) return;
    double score = scores[i];
    for (int m = 0; m < n_blocks; ++m) {
        const float* word = words + ((long long)m * n_codewords + codes[m * n + first + i]) * size;
        const float* own = weights + (long long)m * size;
        float total = 0.0f;
        for (int j = 0; j < size; ++j) total = fmaf(word[j], own[j], total);
        score += total;
    }
    scores[i] = score;
}

extern "C" __global__ void __launch_bounds__(256)
    multiply_decoded_u8(const unsigned char* codes, const float* words, const float* weights, double* scores,
                        long long n, long long first, long long n_samples, int n_blocks, int n_codewords,
                        int size) {
    multiply_words(codes, words, weights, scores, n, first, n_samples, n_blocks, n_codewords, size);
}

extern "C" __global__ void __launch_bounds__(256)
    multiply_decoded_u16(const unsigned short* codes, const float* words, const float* weights,
                         double* scores, long long n, long long first, long long n_samples, int n_blocks,
                         int n_codewords, int size) {
    multiply_words(codes, words, weights, scores, n, first, n_samples, n_blocks, n_codewords, size);
}
