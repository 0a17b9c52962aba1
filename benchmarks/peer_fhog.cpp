// The HOG pyramid of dlib, as a shared library for the benchmark's worker.
//
// The levels are those of visionkl's pyramid: `interval` levels an octave, each of the first octave resampled from the
// picture and halved until it is too small; cells of `cell_size` pixels, and of half that on the first octave too.
// dlib does all the work: resize_image (bilinear) and extract_fhog_features (31 channels).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include <dlib/array2d.h>
#include <dlib/image_transforms.h>
#include <dlib/matrix.h>
#include <dlib/pixel.h>

namespace {

using Picture = dlib::array2d<dlib::rgb_pixel>;
using Level = dlib::array2d<dlib::matrix<float, 31, 1>>;  // cells of 31 channels: faster than dlib's planes, and laid out as ours

// All levels that descend from one resampling of the picture: this size, its half, its quarter...
void one_chain(const Picture& picture, int interval, int cell_size, int n_levels, int chain, std::vector<Level>& levels)
{
    const double scale = std::pow(2.0, -chain / static_cast<double>(interval));
    Picture resampled(std::lround(picture.nr() * scale), std::lround(picture.nc() * scale));
    if (chain == 0)
        dlib::assign_image(resampled, picture);
    else
        dlib::resize_image(picture, resampled);
    dlib::extract_fhog_features(resampled, levels[chain], cell_size / 2);
    for (int level = chain; level < n_levels; level += interval) {
        if (level > chain) {
            Picture half(std::lround(resampled.nr() * 0.5), std::lround(resampled.nc() * 0.5));
            dlib::resize_image(resampled, half);
            resampled.swap(half);
        }
        dlib::extract_fhog_features(resampled, levels[level + interval], cell_size);
    }
}

}  // namespace

// Given by peers.py, because dlib's headers do not say it.
extern "C" const char* dlib_version() { return DLIB_VERSION; }

// Fills `cells` (31 channels each) with the number of cells of all levels; returns the seconds taken.
extern "C" double fhog_pyramid(const unsigned char* rgb, int rows, int cols, int interval, int cell_size, int n_threads,
                               long* cells, int* n_levels)
{
    Picture picture(rows, cols);
    for (int r = 0; r < rows; ++r)
        for (int c = 0; c < cols; ++c) {
            const unsigned char* pixel = rgb + 3 * (static_cast<long>(r) * cols + c);
            picture[r][c] = dlib::rgb_pixel(pixel[0], pixel[1], pixel[2]);
        }
    const double octaves = std::log2(std::min(rows, cols) / (5.0 * cell_size));
    const int n_coarse = 1 + static_cast<int>(std::floor(octaves * interval));

    const auto start = std::chrono::steady_clock::now();
    std::vector<Level> levels(interval + n_coarse);
    std::atomic<int> next(0);
    const auto work = [&] {
        for (int chain = next++; chain < std::min(interval, n_coarse); chain = next++)
            one_chain(picture, interval, cell_size, n_coarse, chain, levels);
    };
    std::vector<std::thread> others;
    for (int i = 1; i < n_threads; ++i)
        others.emplace_back(work);
    work();
    for (auto& other : others)
        other.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

    *cells = 0;
    for (const auto& level : levels)
        *cells += level.size();
    *n_levels = static_cast<int>(levels.size());
    return seconds;
}
