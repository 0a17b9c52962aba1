// The element-wise halves of explicit kernel maps. Mirrors visionkl/backend/cpu/maps.py, with CUDA's own
// cosines and logarithms: phases are in turns, so that taking whole turns off is exact here, too.

__device__ float cosine(float turns) {
    return cospif(2.0f * turns);
}
__device__ double cosine(double turns) {
    return cospi(2.0 * turns);
}
__device__ float sine(float turns) {
    return sinpif(2.0f * turns);
}
__device__ double sine(double turns) {
    return sinpi(2.0 * turns);
}
__device__ float root(float x) {
    return sqrtf(x);
}
__device__ double root(double x) {
    return sqrt(x);
}
__device__ float logarithm(float x) {
    return log2f(x);
}
__device__ double logarithm(double x) {
    return log2(x);
}

// A thread for each number of `width` columns from `first` on, of d. `slopes` may be null.
template <typename Number>
__device__ void wave(Number* phases, const Number* offsets, Number scale, Number* slopes, long long n_numbers,
                     int d, int first, int width) {
    long long number = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (number >= n_numbers) return;
    int column = first + (int)(number % width);
    long long i = number / width * d + column;
    Number turns = phases[i] + offsets[column];
    turns -= floor(turns);  // doubling must not lose digits of a large phase
    if (slopes != nullptr) slopes[i] = -scale * sine(turns);
    phases[i] = scale * cosine(turns);
}

extern "C" __global__ void __launch_bounds__(256)
    waves_f32(float* phases, const float* offsets, float scale, long long n_numbers, int d, int first,
              int width) {
    wave<float>(phases, offsets, scale, nullptr, n_numbers, d, first, width);
}

extern "C" __global__ void __launch_bounds__(256)
    waves_f64(double* phases, const double* offsets, double scale, long long n_numbers, int d, int first,
              int width) {
    wave<double>(phases, offsets, scale, nullptr, n_numbers, d, first, width);
}

extern "C" __global__ void __launch_bounds__(256)
    waves_and_slopes_f32(float* phases, const float* offsets, float scale, float* slopes, long long n_numbers,
                         int d) {
    wave<float>(phases, offsets, scale, slopes, n_numbers, d, 0, d);
}

extern "C" __global__ void __launch_bounds__(256)
    waves_and_slopes_f64(double* phases, const double* offsets, double scale, double* slopes,
                         long long n_numbers, int d) {
    wave<double>(phases, offsets, scale, slopes, n_numbers, d, 0, d);
}

// A thread for each number of X writes all that is made of it.
template <typename Number>
__device__ void spectrum(const Number* X, const Number* amplitudes, Number* out, Number frequency,
                         Number tiny, long long n_numbers, int d, int order) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n_numbers) return;
    Number x = X[i], size = root(x), turns = frequency * logarithm(x > tiny ? x : tiny);
    Number* own = out + i / d * (2 * order + 1) * d + i % d;
    own[0] = amplitudes[0] * size;
    for (int k = 1; k <= order; ++k) {
        Number amplitude = amplitudes[k] * size, phase = (Number)k * turns;
        own[(long long)(2 * k - 1) * d] = amplitude * cosine(phase);
        own[(long long)(2 * k) * d] = amplitude * sine(phase);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    spectrum_f32(const float* X, const float* amplitudes, float* out, float frequency, float tiny,
                 long long n_numbers, int d, int order) {
    spectrum(X, amplitudes, out, frequency, tiny, n_numbers, d, order);
}

extern "C" __global__ void __launch_bounds__(256)
    spectrum_f64(const double* X, const double* amplitudes, double* out, double frequency, double tiny,
                 long long n_numbers, int d, int order) {
    spectrum(X, amplitudes, out, frequency, tiny, n_numbers, d, order);
}
