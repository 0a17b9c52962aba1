// Generalised distance transforms. Mirrors visionkl/backend/cpu/distance.py.

// Best of all vertical displacements from every `step`-th line on, for chosen parts: one thread for each.
// Neighbouring threads have neighbouring parts, and read neighbouring scores; the result has columns last, as
// the horizontal pass reads them.
extern "C" __global__ void __launch_bounds__(256)
    best_down(const float* scores, const float* costs, const long long* chosen, float* lines, int rows,
              int cols, int n, int n_chosen, int radius, int first, int step, int n_lines) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_lines * cols * n_chosen) return;
    int k = (int)(i % n_chosen), x = (int)(i / n_chosen % cols), line = (int)(i / n_chosen / cols);
    int part = (int)chosen[k], y = first + step * line;
    float ay = costs[4 * part + 2], by = costs[4 * part + 3];
    float best = -__int_as_float(0x7f800000);
    for (int row = max(y - radius, 0); row <= min(y + radius, rows - 1); ++row) {
        float dy = (float)(row - y);
        best = fmaxf(best, scores[((long long)row * cols + x) * n + part] - (ay * (dy * dy) + by * dy));
    }
    lines[((long long)line * n_chosen + k) * cols + x] = best;
}

// Best of all horizontal displacements from column x, in a line of a part.
__device__ float best_across(const float* line, float ax, float bx, int cols, int radius, int x) {
    float best = -__int_as_float(0x7f800000);
    for (int col = max(x - radius, 0); col <= min(x + radius, cols - 1); ++col) {
        float dx = (float)(col - x);
        best = fmaxf(best, line[col] - (ax * (dx * dx) + bx * dx));
    }
    return best;
}

// The transform at all anchors: a thread for each, parts last.
extern "C" __global__ void __launch_bounds__(256)
    transform_across(const float* lines, const float* costs, float* best, int score_cols, int n, int radius,
                     int rows, int cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)rows * cols * n) return;
    int part = (int)(i % n), x = (int)(i / n % cols), y = (int)(i / n / cols);
    const float* line = lines + ((long long)y * n + part) * score_cols;
    best[i] = best_across(line, costs[4 * part], costs[4 * part + 1], score_cols, radius, x);
}

// Add to each place of a root what its parts reach from their anchors: a thread for each place. Parts are
// added one after the other, so that the sum is always the same.
extern "C" __global__ void __launch_bounds__(256)
    add_across(const float* lines, const float* costs, const long long* chosen, const long long* wiring,
               const long long* limits, float* totals, int score_cols, int n_chosen, int radius,
               int first_line, int first_col, int n_totals, int root_rows, int root_cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_totals * root_rows * root_cols) return;
    int x = (int)(i % root_cols), y = (int)(i / root_cols % root_rows),
        root = (int)(i / root_cols / root_rows);
    const long long* limit = limits + 4 * root;
    if (y < limit[0] || y >= limit[1] || x < limit[2] || x >= limit[3]) return;
    float total = totals[i];
    for (int k = 0; k < n_chosen; ++k) {
        if (wiring[3 * k] != root) continue;
        int part = (int)chosen[k];
        int line = y + (int)wiring[3 * k + 1] - first_line,
            col = first_col + 2 * (x + (int)wiring[3 * k + 2]);
        const float* own = lines + ((long long)line * n_chosen + k) * score_cols;
        total += best_across(own, costs[4 * part], costs[4 * part + 1], score_cols, radius, col);
    }
    totals[i] = total;
}

// The same from scores that were transformed at all anchors (matching.add_sampled).
extern "C" __global__ void __launch_bounds__(256)
    add_from_all(const float* transformed, const long long* parts, const long long* wiring,
                 const long long* limits, float* totals, int cols, int n, int n_chosen, int first_row,
                 int first_col, int n_totals, int root_rows, int root_cols) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)n_totals * root_rows * root_cols) return;
    int x = (int)(i % root_cols), y = (int)(i / root_cols % root_rows),
        root = (int)(i / root_cols / root_rows);
    const long long* limit = limits + 4 * root;
    if (y < limit[0] || y >= limit[1] || x < limit[2] || x >= limit[3]) return;
    float total = totals[i];
    for (int k = 0; k < n_chosen; ++k) {
        if (wiring[3 * k] != root) continue;
        long long row = first_row + 2 * (y + wiring[3 * k + 1]),
                  col = first_col + 2 * (x + wiring[3 * k + 2]);
        total += transformed[(row * cols + col) * n + parts[k]];
    }
    totals[i] = total;
}

// Where a part goes from an anchor: a thread for each.
extern "C" __global__ void __launch_bounds__(128)
    place_parts(const float* scores, const float* costs, const long long* anchors, const long long* parts,
                long long* placed, int rows, int cols, int n, int radius, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    int part = (int)parts[i];
    float ax = costs[4 * part], bx = costs[4 * part + 1], ay = costs[4 * part + 2], by = costs[4 * part + 3];
    int row = (int)anchors[2 * i], col = (int)anchors[2 * i + 1];
    float best = -__int_as_float(0x7f800000);
    for (int x = max(col - radius, 0); x < min(col + radius + 1, cols); ++x) {
        float dx = (float)(x - col);
        for (int y = max(row - radius, 0); y < min(row + radius + 1, rows); ++y) {
            float dy = (float)(y - row);
            float score = scores[((long long)y * cols + x) * n + part];
            float value = score - (ax * dx + bx) * dx - (ay * dy + by) * dy;
            if (value > best) {
                best = value;
                placed[2 * i] = y;
                placed[2 * i + 1] = x;
            }
        }
    }
}

// The upper envelope of parabolas along the first axis: a thread for each line and part, which keeps its
// stack of parabolas in memory, beside those of its neighbours.
extern "C" __global__ void __launch_bounds__(128)
    envelope_down(const float* scores, const float* costs, int* tops, double* starts, float* best,
                  int n_scores, int n_lines, int n, int n_anchors, int axis) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int pitch = n_lines * n;
    if (i >= pitch) return;
    const double infinity = (double)__int_as_float(0x7f800000);
    double a = costs[4 * (i % n) + axis], b = costs[4 * (i % n) + axis + 1];
    int count = 0;
    for (int p = 0; p < n_scores; ++p) {
        double height = scores[(long long)p * pitch + i];
        if (height == -infinity) continue;
        double start = -infinity;
        while (count > 0) {
            int q = tops[(long long)(count - 1) * pitch + i];
            double below = scores[(long long)q * pitch + i];
            start = 0.5 * (p + q + b / a) - (height - below) / (2.0 * a * (p - q));
            if (start > starts[(long long)(count - 1) * pitch + i]) break;
            --count;
            start = -infinity;
        }
        tops[(long long)count * pitch + i] = p;
        starts[(long long)count * pitch + i] = start;
        ++count;
    }
    int current = 0;
    for (int q = 0; q < n_anchors; ++q) {
        float value = -__int_as_float(0x7f800000);
        if (count > 0) {
            while (current + 1 < count && starts[(long long)(current + 1) * pitch + i] < q) ++current;
            int top = tops[(long long)current * pitch + i];
            double shift = top - q;
            value = (float)(scores[(long long)top * pitch + i] - (a * shift + b) * shift);
        }
        best[(long long)q * pitch + i] = value;
    }
}
