// Filter responses on codes: sums of rows of tables. Mirrors visionkl/backend/cpu/tables.py, whose layout of
// tables it shares: 16-bit scores are summed as integers within a group of positions, exactly, and groups in
// float32.

template <typename Code, typename Entry, typename Sum>
__device__ void sum_rows(const Code* codes, const Entry* table, const int* ends, const float* steps,
                         const float* offset, float* responses, int rows, int cols, int n_blocks, int h,
                         int w, int stride, int position_stride, int positions_a_row, int width, int n_groups,
                         int out_rows, int out_cols, int n_filters, int first, int n) {
    // A thread for each filter of each place: the filters of a place read neighbouring scores.
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= (long long)out_rows * out_cols * n) return;
    int f = (int)(i % n);
    long long place = i / n;
    int x = (int)(place % out_cols), y = (int)(place / out_cols);
    float response = offset[f];
    Sum total = 0;
    int group = 0;
    for (int down = 0; down < h; ++down) {
        int position = down * positions_a_row;
        for (int q = 0; q < w * n_blocks; ++q, ++position) {
            while (position >= ends[group]) {
                response = fmaf((float)total, steps[group * width + f], response);
                total = 0;
                ++group;
            }
            int row = y + down, col = x + q / n_blocks;
            // Where a larger filter reaches outside, code 0 stands for the cells.
            bool inside = row < rows && col < cols;
            int code = inside ? codes[((long long)row * cols + col) * n_blocks + q % n_blocks] : 0;
            total += table[(long long)position * position_stride + code * stride + f];
        }
    }
    response = fmaf((float)total, steps[group * width + f], response);
    responses[place * n_filters + first + f] = response;
}

extern "C" __global__ void __launch_bounds__(256)
    look_up_u8_i16(const unsigned char* codes, const short* table, const int* ends, const float* steps,
                   const float* offset, float* responses, int rows, int cols, int n_blocks, int h, int w,
                   int stride, int position_stride, int positions_a_row, int width, int n_groups,
                   int out_rows, int out_cols, int n_filters, int first, int n) {
    sum_rows<unsigned char, short, int>(codes, table, ends, steps, offset, responses, rows, cols, n_blocks, h,
                                        w, stride, position_stride, positions_a_row, width, n_groups,
                                        out_rows, out_cols, n_filters, first, n);
}

extern "C" __global__ void __launch_bounds__(256)
    look_up_u16_i16(const unsigned short* codes, const short* table, const int* ends, const float* steps,
                    const float* offset, float* responses, int rows, int cols, int n_blocks, int h, int w,
                    int stride, int position_stride, int positions_a_row, int width, int n_groups,
                    int out_rows, int out_cols, int n_filters, int first, int n) {
    sum_rows<unsigned short, short, int>(codes, table, ends, steps, offset, responses, rows, cols, n_blocks,
                                         h, w, stride, position_stride, positions_a_row, width, n_groups,
                                         out_rows, out_cols, n_filters, first, n);
}

extern "C" __global__ void __launch_bounds__(256)
    look_up_u8_f32(const unsigned char* codes, const float* table, const int* ends, const float* steps,
                   const float* offset, float* responses, int rows, int cols, int n_blocks, int h, int w,
                   int stride, int position_stride, int positions_a_row, int width, int n_groups,
                   int out_rows, int out_cols, int n_filters, int first, int n) {
    sum_rows<unsigned char, float, float>(codes, table, ends, steps, offset, responses, rows, cols, n_blocks,
                                          h, w, stride, position_stride, positions_a_row, width, n_groups,
                                          out_rows, out_cols, n_filters, first, n);
}

extern "C" __global__ void __launch_bounds__(256)
    look_up_u16_f32(const unsigned short* codes, const float* table, const int* ends, const float* steps,
                    const float* offset, float* responses, int rows, int cols, int n_blocks, int h, int w,
                    int stride, int position_stride, int positions_a_row, int width, int n_groups,
                    int out_rows, int out_cols, int n_filters, int first, int n) {
    sum_rows<unsigned short, float, float>(codes, table, ends, steps, offset, responses, rows, cols, n_blocks,
                                           h, w, stride, position_stride, positions_a_row, width, n_groups,
                                           out_rows, out_cols, n_filters, first, n);
}
