// Shrinking pictures by averaging areas. Mirrors visionkl/backend/cpu/resample.py to the last bit: the taps
// of a column are added up first, then those of the row, without fused operations.

// A thread for each number of the result. Taps without weight may lie outside and are not read.
extern "C" __global__ void __launch_bounds__(256)
    shrink(const double* planes, const long long* first_row, const double* row_weights,
           const long long* first_col, const double* col_weights, double* shrunk, int channels, int old_rows,
           int old_cols, int rows, int cols, int row_taps, int col_taps) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)channels * rows * cols) return;
    int x = (int)(i % cols), y = (int)(i / cols % rows), c = (int)(i / cols / rows);
    const double* corner = planes + ((long long)c * old_rows + first_row[y]) * old_cols + first_col[x];
    double total = 0.0;
    for (int across = 0; across < col_taps; ++across) {
        double weight = col_weights[(long long)x * col_taps + across];
        if (weight == 0.0) continue;
        double column = 0.0;
        for (int down = 0; down < row_taps; ++down) {
            double share = row_weights[(long long)y * row_taps + down];
            if (share != 0.0) column += corner[(long long)down * old_cols + across] * share;
        }
        total += column * weight;
    }
    shrunk[i] = total;
}
