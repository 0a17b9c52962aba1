// HOG cells: strongest gradient of every pixel, histograms of cells, their normalisation.
// Mirrors visionkl/backend/cpu/hog.py; the numbers, and the care where gradients tie, are explained there.

#define UNSIGNED 9
#define SIGNED 18
#define CHANNELS 32

__constant__ const float COSINES[UNSIGNED] = {1.0f,     0.9397f, 0.7660f,  0.5f,    0.1736f,
                                              -0.1736f, -0.5f,   -0.7660f, -0.9397f};
__constant__ const float SINES[UNSIGNED] = {0.0f,    0.3420f, 0.6428f, 0.8660f, 0.9848f,
                                            0.9848f, 0.8660f, 0.6428f, 0.3420f};

// A thread for each pixel that has four neighbours.
extern "C" __global__ void __launch_bounds__(256)
    hog_gradients(const double* planes, float* magnitude, int* orientation, int channels, int rows,
                  int cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    int width = cols - 2;
    if (i >= (long long)(rows - 2) * width) return;
    long long at = (i / width + 1) * cols + i % width + 1;
    double dx = 0.0, dy = 0.0, squared = -1.0;
    for (int c = 0; c < channels; ++c) {
        const double* here = planes + (long long)c * rows * cols + at;
        double gx = here[1] - here[-1];
        double gy = here[cols] - here[-cols];
        double strength = gx * gx + gy * gy;
        if (strength > squared) {  // of equally steep channels the first
            dx = gx;
            dy = gy;
            squared = strength;
        }
    }
    float u = (float)dx, v = (float)dy, best = 0.0f;
    int chosen = 0;
    for (int o = 0; o < UNSIGNED; ++o) {
        float dot = COSINES[o] * u + SINES[o] * v;
        if (fabsf(dot) > best) {
            best = fabsf(dot);
            chosen = dot > 0.0f ? o : o + UNSIGNED;
        }
    }
    // Orientations 4 and 5 lie symmetrically about the vertical: only double precision tells them apart.
    double lean = 0.1736 * dx, rise = 0.9848 * dy;
    bool vertical = chosen == 4 || chosen == 4 + UNSIGNED;
    if (vertical && fabs(rise - lean) > fabs(rise + lean)) ++chosen;
    magnitude[at] = sqrtf((float)squared);
    orientation[at] = chosen;
}

// A thread for each bin of each cell collects the pixels that vote for it, so that nothing is added twice at
// a time and the order of the sum is always the same.
extern "C" __global__ void __launch_bounds__(256)
    hog_histograms(const float* magnitude, const int* orientation, float* histogram, int rows, int cols,
                   int n_rows, int n_cols, int cell_size) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_rows * n_cols * SIGNED) return;
    int o = (int)(i % SIGNED), cell = (int)(i / SIGNED);
    int r = cell / n_cols, c = cell % n_cols;
    int up = cell_size - cell_size / 2;
    int top = max(r * cell_size - up, 1), bottom = min((r + 2) * cell_size - up, n_rows * cell_size - 1);
    int left = max(c * cell_size - up, 1), right = min((c + 2) * cell_size - up, n_cols * cell_size - 1);
    float total = 0.0f;
    for (int y = top; y < bottom; ++y) {
        // Cells may reach past the picture by half a cell; the last gradients are repeated there.
        long long line = (long long)min(y, rows - 2) * cols;
        float below = ((y + up) % cell_size + 0.5f) / cell_size;
        float along_y = (y + up) / cell_size == r ? below : 1.0f - below;
        for (int x = left; x < right; ++x) {
            long long at = line + min(x, cols - 2);
            if (orientation[at] == o) {
                float strength = magnitude[at];
                float beyond = ((x + up) % cell_size + 0.5f) / cell_size * strength;
                total += along_y * ((x + up) / cell_size == c ? beyond : strength - beyond);
            }
        }
    }
    histogram[i] = total;
}

// A thread for each cell: the energy of its unsigned histogram.
extern "C" __global__ void __launch_bounds__(256)
    hog_energies(const float* histogram, float* energy, int n_cells) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= n_cells) return;
    const float* own = histogram + (long long)cell * SIGNED;
    float total = 0.0f;
    for (int o = 0; o < UNSIGNED; ++o) {
        float both = own[o] + own[o + UNSIGNED];
        total += both * both;
    }
    energy[cell] = total;
}

// One over the norm of the 2 x 2 cells whose first is at r, c.
__device__ float block_scale(const float* energy, int n_cols, int r, int c) {
    const float* first = energy + (long long)r * n_cols + c;
    float block = first[0] + first[1] + first[n_cols] + first[n_cols + 1];
    return (float)(1.0 / sqrt(block + 1e-4));
}

// A thread for each channel of each inner cell.
extern "C" __global__ void __launch_bounds__(256)
    hog_normalise(const float* histogram, const float* energy, float* level, int n_rows, int n_cols,
                  int level_cols, int row_offset, int col_offset) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)(n_rows - 2) * (n_cols - 2) * CHANNELS) return;
    int channel = (int)(i % CHANNELS), cell = (int)(i / CHANNELS);
    int y = cell / (n_cols - 2), x = cell % (n_cols - 2);
    const float* own = histogram + ((long long)(y + 1) * n_cols + x + 1) * SIGNED;
    float value = 0.0f;
    if (channel < SIGNED + UNSIGNED) {
        int o = channel < SIGNED ? channel : channel - SIGNED;
        float votes = channel < SIGNED ? own[o] : own[o] + own[o + UNSIGNED];
        float h1 = fminf(votes * block_scale(energy, n_cols, y + 1, x + 1), 0.2f);
        float h2 = fminf(votes * block_scale(energy, n_cols, y, x + 1), 0.2f);
        float h3 = fminf(votes * block_scale(energy, n_cols, y + 1, x), 0.2f);
        float h4 = fminf(votes * block_scale(energy, n_cols, y, x), 0.2f);
        value = 0.5f * (h1 + h2 + h3 + h4);
    } else if (channel < CHANNELS - 1) {
        int block = channel - SIGNED - UNSIGNED;  // below right, above right, below left, above left
        float scale = block_scale(energy, n_cols, y + (block + 1) % 2, x + (block < 2));
        for (int o = 0; o < SIGNED; ++o) value += fminf(own[o] * scale, 0.2f);
        value *= 0.2357f;
    }
    level[((long long)(y + row_offset) * level_cols + x + col_offset) * CHANNELS + channel] = value;
}
