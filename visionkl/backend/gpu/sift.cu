// Dense SIFT. Mirrors visionkl/backend/cpu/sift.py; votes are laid out in the picture's order.

#define ORIENTATIONS 8
#define BINS 4
#define LENGTH 128

// Smooth along one axis, with border pixels repeated: a thread for each pixel.
extern "C" __global__ void __launch_bounds__(256)
    sift_smooth(const float* source, const float* taps, float* target, int rows, int cols, int n_taps,
                int down) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)rows * cols) return;
    int x = (int)(i % cols), y = (int)(i / cols);
    float total = 0.0f;
    for (int t = 0; t < n_taps; ++t) {
        int shift = t - n_taps / 2;
        int row = down ? min(max(y + shift, 0), rows - 1) : y;
        int col = down ? x : min(max(x + shift, 0), cols - 1);
        total = fmaf(taps[t], source[(long long)row * cols + col], total);
    }
    target[i] = total;
}

// Share each gradient between two orientations: a thread for each pixel of the region that bins need, of
// which those outside the picture do not vote.
extern "C" __global__ void __launch_bounds__(256)
    sift_vote(const float* smoothed, float* votes, int rows, int cols, int top, int left, int height,
              int width) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)height * width) return;
    float* own = votes + i * ORIENTATIONS;
    for (int o = 0; o < ORIENTATIONS; ++o) own[o] = 0.0f;
    int x = left + (int)(i % width), y = top + (int)(i / width);
    if (x < 0 || x >= cols || y < 0 || y >= rows) return;
    // Half the difference of the neighbours; on the border the difference to the one neighbour.
    int above = max(y - 1, 0), below = min(y + 1, rows - 1), before = max(x - 1, 0),
        after = min(x + 1, cols - 1);
    float dy = smoothed[(long long)below * cols + x] - smoothed[(long long)above * cols + x];
    float dx = smoothed[(long long)y * cols + after] - smoothed[(long long)y * cols + before];
    if (below - above == 2) dy *= 0.5f;
    if (after - before == 2) dx *= 0.5f;
    float across = fabsf(dx), down = fabsf(dy);
    bool steep = down > across;
    float larger = steep ? down : across, smaller = steep ? across : down;
    float length = sqrtf(across * across + down * down);
    // 4 / pi times the arc tangent, off by 2e-6 at most.
    float q = smaller / fmaxf(larger, 1e-30f), z = q * q;
    float angle = 0.06703263f + z * -0.014921243f;
    angle = 0.24642324f + z * (-0.14823875f + z * angle);
    angle = q * (1.2732105f + z * (-0.42350854f + z * angle));
    float part = length * fminf(angle, 1.0f);
    bool leftwards = dx < 0.0f, upwards = dy < 0.0f;
    int axis = steep ? (upwards ? 6 : 2) : (leftwards ? 4 : 0);
    int diagonal = upwards ? (leftwards ? 5 : 7) : (leftwards ? 3 : 1);
    own[diagonal] = part;
    own[axis] = length - part;
}

// Sums of votes down the columns, for some lines: line l begins at row starts[l] and has the taps of
// kernels[l].
extern "C" __global__ void __launch_bounds__(256)
    sift_pool_down(const float* votes, const float* taps, const int* starts, const int* kernels, float* sums,
                   int n_lines, int row_length, int n_taps) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_lines * row_length) return;
    int line = (int)(i / row_length);
    const float* weights = taps + kernels[line] * n_taps;
    const float* source = votes + (long long)starts[line] * row_length + i % row_length;
    float total = 0.0f;
    for (int t = 0; t < n_taps; ++t) total = fmaf(weights[t], source[(long long)t * row_length], total);
    sums[i] = total;
}

// The same across, for some columns of every line.
extern "C" __global__ void __launch_bounds__(256)
    sift_pool_across(const float* lines, const float* taps, const int* starts, const int* kernels,
                     float* sums, int n_lines, int n_columns, int row_length, int n_taps) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_lines * n_columns * ORIENTATIONS) return;
    int o = (int)(i % ORIENTATIONS), column = (int)(i / ORIENTATIONS % n_columns);
    long long line = i / ORIENTATIONS / n_columns;
    const float* weights = taps + kernels[column] * n_taps;
    const float* source = lines + line * row_length + (long long)starts[column] * ORIENTATIONS + o;
    float total = 0.0f;
    for (int t = 0; t < n_taps; ++t) total = fmaf(weights[t], source[t * ORIENTATIONS], total);
    sums[i] = total;
}

__device__ float sum_of_warp(float value) {
    for (int other = 16; other; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}

// A warp for each descriptor, four numbers a lane.
template <typename Value>
__device__ void finish(const float* sums, const int* lines, const int* columns, const float* bin_weights,
                       Value* values, int n_rows, int n_cols, int n_columns, float threshold, int root,
                       float gain, float shift, float limit, long long first, int width) {
    long long n = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 32;
    if (n >= (long long)n_rows * n_cols) return;  // the whole warp
    int lane = threadIdx.x % 32, row = (int)(n / n_cols), col = (int)(n % n_cols);
    float own[LENGTH / 32], total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < LENGTH / 32; ++k) {
        int bin = (lane + 32 * k) / ORIENTATIONS, o = lane % ORIENTATIONS;
        int down = bin / BINS, across = bin % BINS;
        long long place = (long long)lines[row * BINS + down] * n_columns + columns[col * BINS + across];
        own[k] = bin_weights[down] * bin_weights[across] * sums[place * ORIENTATIONS + o];
        total += own[k];
        squares = fmaf(own[k], own[k], squares);
    }
    total = sum_of_warp(total);
    squares = sum_of_warp(squares);
    Value* descriptor = values + first + n * width;
    bool is_flat = total < threshold;
    float scale = is_flat ? 0.0f : 1.0f / sqrtf(squares);
    total = squares = 0.0f;
#pragma unroll
    for (int k = 0; k < LENGTH / 32; ++k) {
        own[k] = fminf(own[k] * scale, 0.2f);
        total += own[k];
        squares = fmaf(own[k], own[k], squares);
    }
    total = sum_of_warp(total);
    squares = sum_of_warp(squares);
    scale = is_flat ? 0.0f : 1.0f / (root ? total : sqrtf(squares));
#pragma unroll
    for (int k = 0; k < LENGTH / 32; ++k) {
        float value = root ? sqrtf(own[k] * scale) : own[k] * scale;
        descriptor[lane + 32 * k] = is_flat ? (Value)0 : (Value)fminf(gain * value + shift, limit);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    sift_finish_f32(const float* sums, const int* lines, const int* columns, const float* bin_weights,
                    float* values, int n_rows, int n_cols, int n_columns, float threshold, int root,
                    float gain, float shift, float limit, long long first, int width) {
    finish(sums, lines, columns, bin_weights, values, n_rows, n_cols, n_columns, threshold, root, gain, shift,
           limit, first, width);
}

extern "C" __global__ void __launch_bounds__(256)
    sift_finish_u8(const float* sums, const int* lines, const int* columns, const float* bin_weights,
                   unsigned char* values, int n_rows, int n_cols, int n_columns, float threshold, int root,
                   float gain, float shift, float limit, long long first, int width) {
    finish(sums, lines, columns, bin_weights, values, n_rows, n_cols, n_columns, threshold, root, gain, shift,
           limit, first, width);
}
