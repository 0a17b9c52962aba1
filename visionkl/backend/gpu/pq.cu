// Nearest codewords. Mirrors visionkl/backend/cpu/pq.py: the answer is that of a search in double precision,
// and of equally near codewords the first.

#define ABREAST 8

__device__ double exact_distance(const float* points, const float* columns, long long n, long long i,
                                 int n_padded, int size, int word) {
    double total = 0.0;
    for (int j = 0; j < size; ++j) {
        double difference = (double)points[j * n + i] - (double)columns[(long long)j * n_padded + word];
        total += difference * difference;
    }
    return total;
}

// A thread for each point. Points and codewords have a line for each coordinate, so that neighbouring threads
// read neighbouring numbers, and all read the same codewords. Where the runner-up in float32 is so near that
// rounding may decide, those that are near enough are compared in double precision.
extern "C" __global__ void __launch_bounds__(128)
    nearest_words(const float* points, const float* columns, int* nearest, long long n, int size, int n_words,
                  int n_padded) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float infinity = __int_as_float(0x7f800000);
    float best = infinity, second = infinity;
    int chosen = 0;
    for (int first = 0; first < n_padded; first += ABREAST) {
        float distances[ABREAST];
#pragma unroll
        for (int k = 0; k < ABREAST; ++k) distances[k] = 0.0f;
        for (int j = 0; j < size; ++j) {
            float x = points[j * n + i];
            const float* column = columns + (long long)j * n_padded + first;
#pragma unroll
            for (int k = 0; k < ABREAST; ++k) {
                float difference = x - column[k];
                distances[k] = fmaf(difference, difference, distances[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < ABREAST; ++k) {
            if (first + k < n_words) {
                second = fminf(second, fmaxf(best, distances[k]));
                if (distances[k] < best) {
                    best = distances[k];
                    chosen = first + k;
                }
            }
        }
    }
    float limit = best * (1.0f + 1e-6f * (size + 4)) + 1e-37f;
    if (second <= limit) {
        double shortest = (double)infinity;
        for (int word = 0; word < n_words; ++word) {
            float distance = 0.0f;
            for (int j = 0; j < size; ++j) {
                float difference = points[j * n + i] - columns[(long long)j * n_padded + word];
                distance = fmaf(difference, difference, distance);
            }
            if (distance > limit) continue;
            double exact = exact_distance(points, columns, n, i, n_padded, size, word);
            if (exact < shortest) {
                shortest = exact;
                chosen = word;
            }
        }
    }
    nearest[i] = chosen;
}
