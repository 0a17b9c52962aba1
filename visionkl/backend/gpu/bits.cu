// Bits of stumps, of thresholds, and their agreements. Mirrors visionkl/backend/cpu/bits.py: bit k of a sample
// lies in word k / 64 at the place k % 64, and what is missing in the last word is 0.

// A thread for each word of a sample's bits; features[k] is the feature that stump k asks for.
template <typename Number>
__device__ void write_stumps(const Number* X, const unsigned int* features, const Number* thresholds,
                             unsigned long long* out, long long first, long long n_words_in_all, int n_words,
                             int n_stumps, int d) {
    long long number = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (number >= n_words_in_all) return;
    const Number* row = X + (first + number / n_words) * d;
    int start = 64 * (int)(number % n_words);
    int stop = start + 64 < n_stumps ? start + 64 : n_stumps;
    unsigned long long word = 0;
    for (int k = start; k < stop; ++k) {
        word |= (unsigned long long)(row[features[k]] > thresholds[k]) << (k - start);
    }
    out[number] = word;
}

extern "C" __global__ void __launch_bounds__(256)
    stumps_f32(const float* X, const unsigned int* features, const float* thresholds,
               unsigned long long* out, long long first, long long n_words_in_all, int n_words, int n_stumps,
               int d) {
    write_stumps(X, features, thresholds, out, first, n_words_in_all, n_words, n_stumps, d);
}

extern "C" __global__ void __launch_bounds__(256)
    stumps_f64(const double* X, const unsigned int* features, const double* thresholds,
               unsigned long long* out, long long first, long long n_words_in_all, int n_words, int n_stumps,
               int d) {
    write_stumps(X, features, thresholds, out, first, n_words_in_all, n_words, n_stumps, d);
}

// A thread for each word of a sample's bits: which of m numbers are above their thresholds.
template <typename Number>
__device__ void write_above(const Number* values, const Number* thresholds, unsigned long long* out,
                            long long n_words_in_all, int n_words, int m) {
    long long number = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (number >= n_words_in_all) return;
    const Number* row = values + number / n_words * m;
    int start = 64 * (int)(number % n_words);
    int stop = start + 64 < m ? start + 64 : m;
    unsigned long long word = 0;
    for (int k = start; k < stop; ++k) {
        word |= (unsigned long long)(row[k] > thresholds[k]) << (k - start);
    }
    out[number] = word;
}

extern "C" __global__ void __launch_bounds__(256)
    above_f32(const float* values, const float* thresholds, unsigned long long* out, long long n_words_in_all,
              int n_words, int m) {
    write_above(values, thresholds, out, n_words_in_all, n_words, m);
}

extern "C" __global__ void __launch_bounds__(256)
    above_f64(const double* values, const double* thresholds, unsigned long long* out,
              long long n_words_in_all, int n_words, int m) {
    write_above(values, thresholds, out, n_words_in_all, n_words, m);
}

// A thread for each pair of samples: the bits that agree, times a scale.
template <typename Number>
__device__ void agree(const unsigned long long* left, const unsigned long long* right, Number* out,
                      long long n_pairs, long long n_right, int n_words, long long n_bits, Number scale) {
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (pair >= n_pairs) return;
    const unsigned long long* a = left + pair / n_right * n_words;
    const unsigned long long* b = right + pair % n_right * n_words;
    long long differing = 0;
    for (int word = 0; word < n_words; ++word) differing += __popcll(a[word] ^ b[word]);
    out[pair] = scale * (Number)(n_bits - differing);
}

extern "C" __global__ void __launch_bounds__(256)
    agreements_f32(const unsigned long long* left, const unsigned long long* right, float* out,
                   long long n_pairs, long long n_right, int n_words, long long n_bits, float scale) {
    agree(left, right, out, n_pairs, n_right, n_words, n_bits, scale);
}

extern "C" __global__ void __launch_bounds__(256)
    agreements_f64(const unsigned long long* left, const unsigned long long* right, double* out,
                   long long n_pairs, long long n_right, int n_words, long long n_bits, double scale) {
    agree(left, right, out, n_pairs, n_right, n_words, n_bits, scale);
}

// A thread for each pair of samples: the weight of the bits that agree, byte by byte from tables.
template <typename Number>
__device__ void weigh(const unsigned char* left, const unsigned char* right, const double* tables, Number* out,
                      long long n_pairs, long long n_right, int n_bytes) {
    long long pair = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (pair >= n_pairs) return;
    const unsigned char* a = left + pair / n_right * n_bytes;
    const unsigned char* b = right + pair % n_right * n_bytes;
    double total = 0;
    for (int byte = 0; byte < n_bytes; ++byte) total += tables[256 * byte + (a[byte] ^ b[byte])];
    out[pair] = (Number)total;
}

extern "C" __global__ void __launch_bounds__(256)
    weigh_f32(const unsigned char* left, const unsigned char* right, const double* tables, float* out,
              long long n_pairs, long long n_right, int n_bytes) {
    weigh(left, right, tables, out, n_pairs, n_right, n_bytes);
}

extern "C" __global__ void __launch_bounds__(256)
    weigh_f64(const unsigned char* left, const unsigned char* right, const double* tables, double* out,
              long long n_pairs, long long n_right, int n_bytes) {
    weigh(left, right, tables, out, n_pairs, n_right, n_bytes);
}
