// Greedy non-maximum suppression. Mirrors visionkl/backend/cpu/suppress.py: boxes come best first.
//
// All pairs are compared at once, which gives a line of bits for each box: whom it would suppress. Then a
// single block goes through the boxes in order, 64 at a time, and takes off what those that stay suppress.

#define WORD 64

// Block (tile of boxes, word of bits): does box `first + row` suppress the 64 boxes of the word?
extern "C" __global__ void __launch_bounds__(64)
    compare_boxes(const double* boxes, unsigned long long* masks, double overlap, int of_union, int n,
                  int first, int n_rows, int n_words) {
    __shared__ double others[WORD][4];
    int word = blockIdx.x % n_words, row = blockIdx.x / n_words * WORD + threadIdx.x;
    int other = word * WORD + threadIdx.x;
    for (int side = 0; side < 4; ++side)
        others[threadIdx.x][side] = other < n ? boxes[4LL * other + side] : 0.0;
    __syncthreads();
    if (row >= n_rows) return;
    int i = first + row;
    const double* box = boxes + 4LL * i;
    double x1 = box[0], y1 = box[1], x2 = box[2], y2 = box[3];
    double area = (x2 - x1) * (y2 - y1);
    unsigned long long bits = 0;
    for (int k = 0; k < WORD; ++k) {
        int j = word * WORD + k;
        if (j <= i || j >= n) continue;
        double width = fmin(x2, others[k][2]) - fmax(x1, others[k][0]);
        double height = fmin(y2, others[k][3]) - fmax(y1, others[k][1]);
        if (width > 0.0 && height > 0.0) {
            double shared = width * height;
            double own = (others[k][2] - others[k][0]) * (others[k][3] - others[k][1]);
            double whole = of_union ? area + own - shared : own;
            // Ties stay, whatever the rounding.
            if (shared > overlap * whole * (1 + 1e-5)) bits |= 1ULL << k;
        }
    }
    masks[(long long)row * n_words + word] = bits;
}

// One block: decide on the boxes `first .. first + n_rows - 1`; `gone` has a bit for every box.
extern "C" __global__ void __launch_bounds__(256)
    take_off(const unsigned long long* masks, unsigned long long* gone, bool* keep, int n, int first,
             int n_rows, int n_words) {
    __shared__ unsigned long long among[WORD];
    __shared__ unsigned long long kept;
    int t = threadIdx.x;
    for (int tile = 0; tile < n_rows; tile += WORD) {
        int n_tile = min(WORD, n_rows - tile), word = (first + tile) / WORD;
        if (t < n_tile) among[t] = masks[(long long)(tile + t) * n_words + word];
        __syncthreads();
        if (t == 0) {
            unsigned long long off = gone[word], stay = 0;
            for (int k = 0; k < n_tile; ++k) {
                if (off >> k & 1) continue;
                stay |= 1ULL << k;
                off |= among[k];
            }
            kept = stay;
        }
        __syncthreads();
        if (t < n_tile) keep[first + tile + t] = kept >> t & 1;
        for (int w = word + 1 + t; w < n_words; w += blockDim.x) {
            unsigned long long off = gone[w];
            for (int k = 0; k < n_tile; ++k)
                if (kept >> k & 1) off |= masks[(long long)(tile + k) * n_words + w];
            gone[w] = off;
        }
        __syncthreads();
    }
}
