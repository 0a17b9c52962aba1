// Sums over all features for all pairs of rows. Mirrors visionkl/backend/cpu/kernels.py.
//
// A block makes a tile of 64 x 64 sums; each of its 256 threads makes 4 x 4 of them, in registers. Features
// pass through shared memory, 16 at a time.

#define TILE 64
#define DEPTH 16
#define PITCH 65
#define SIDE 4

__device__ float logarithm(float x) {
    return log2f(x);
}
__device__ double logarithm(double x) {
    return log2(x);
}

// Take one more feature into a sum; the numbers of kinds are the lengths of the CPU's tuples.
template <int KIND, typename Number>
__device__ Number add_term(Number total, Number x, Number y, Number tiny) {
    Number sum = x + y;
    Number above = sum > tiny ? sum : tiny;
    if (KIND == 1) return total + (Number)2 * (x / above) * y;
    if (KIND == 2) return total + (x - y) / above * (x - y);
    if (KIND == 3) return total + (x < y ? x : y);
    if (KIND == 4) return total + (x < y ? y - x : x - y);
    if (KIND == 5) return total + sum * logarithm(above);
    return total * ((Number)2 * x * y / (x * x + y * y));
}

template <int KIND, typename Number>
__device__ void fill_tile(Number* left, Number* right, const Number* X, const Number* Y, Number* out,
                          long long first, long long last, long long n_columns, long long pitch, int d,
                          Number tiny) {
    long long n_across = (n_columns + TILE - 1) / TILE;
    long long top = first + blockIdx.x / n_across * TILE, side = blockIdx.x % n_across * TILE;
    int row = threadIdx.x / 16, col = threadIdx.x % 16;
    Number sums[SIDE][SIDE];
#pragma unroll
    for (int a = 0; a < SIDE; ++a)
#pragma unroll
        for (int b = 0; b < SIDE; ++b) sums[a][b] = (Number)(KIND == 6 ? 1 : 0);
    for (int begin = 0; begin < d; begin += DEPTH) {
        int depth = min(DEPTH, d - begin);
        for (int k = threadIdx.x; k < TILE * DEPTH; k += blockDim.x) {
            int j = k % DEPTH, r = k / DEPTH;
            // Rows past the last are taken for the last; their sums are not written.
            long long i = top + r < last ? top + r : last - 1;
            long long m = side + r < n_columns ? side + r : n_columns - 1;
            if (j < depth) {
                left[j * PITCH + r] = X[i * d + begin + j];
                right[j * PITCH + r] = Y[m * d + begin + j];
            }
        }
        __syncthreads();
        for (int j = 0; j < depth; ++j) {
            Number x[SIDE], y[SIDE];
#pragma unroll
            for (int a = 0; a < SIDE; ++a) {
                x[a] = left[j * PITCH + row + 16 * a];
                y[a] = right[j * PITCH + col + 16 * a];
            }
#pragma unroll
            for (int a = 0; a < SIDE; ++a)
#pragma unroll
                for (int b = 0; b < SIDE; ++b) sums[a][b] = add_term<KIND>(sums[a][b], x[a], y[b], tiny);
        }
        __syncthreads();
    }
#pragma unroll
    for (int a = 0; a < SIDE; ++a)
#pragma unroll
        for (int b = 0; b < SIDE; ++b) {
            long long i = top + row + 16 * a, m = side + col + 16 * b;
            if (i < last && m < n_columns) out[i * pitch + m] = sums[a][b];
        }
}

template <typename Number>
__device__ void fill_pairs(Number* left, Number* right, const Number* X, const Number* Y, Number* out,
                           long long first, long long last, long long n_columns, long long pitch, int d,
                           int kind, Number tiny) {
    switch (kind) {
        case 1: fill_tile<1>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny); break;
        case 2: fill_tile<2>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny); break;
        case 3: fill_tile<3>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny); break;
        case 4: fill_tile<4>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny); break;
        case 5: fill_tile<5>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny); break;
        default: fill_tile<6>(left, right, X, Y, out, first, last, n_columns, pitch, d, tiny);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    add_pairs_f32(const float* X, const float* Y, float* out, long long first, long long last,
                  long long n_columns, long long pitch, int d, int kind, float tiny) {
    __shared__ float left[DEPTH * PITCH];
    __shared__ float right[DEPTH * PITCH];
    fill_pairs(left, right, X, Y, out, first, last, n_columns, pitch, d, kind, tiny);
}

extern "C" __global__ void __launch_bounds__(256)
    add_pairs_f64(const double* X, const double* Y, double* out, long long first, long long last,
                  long long n_columns, long long pitch, int d, int kind, double tiny) {
    __shared__ double left[DEPTH * PITCH];
    __shared__ double right[DEPTH * PITCH];
    fill_pairs(left, right, X, Y, out, first, last, n_columns, pitch, d, kind, tiny);
}

// A thread for each number left of the diagonal, and for some others, which do nothing.
template <typename Number>
__device__ void mirror_number(Number* matrix, long long n, long long first, long long last) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    long long row = first + i / last, col = i % last;
    if (row < last && col < row) matrix[col * n + row] = matrix[row * n + col];
}

extern "C" __global__ void __launch_bounds__(256)
    mirror_f32(float* matrix, long long n, long long first, long long last) {
    mirror_number(matrix, n, first, last);
}

extern "C" __global__ void __launch_bounds__(256)
    mirror_f64(double* matrix, long long n, long long first, long long last) {
    mirror_number(matrix, n, first, last);
}
