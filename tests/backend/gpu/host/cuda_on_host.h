// CUDA C for g++: enough of the language to compile the kernels of visionkl/backend/gpu for the CPU.
//
// A thread of a block is a fibre (host.cpp), and runs until it meets a barrier or a shuffle, so that any
// order of threads can be tried. Shared memory is one section of the program, which is poisoned before every
// block.

#pragma once

#include <math.h>
#include <string.h>

#include <type_traits>

#define __global__
#define __device__ static
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("shared_memory")))

struct dim3 {
    unsigned int x, y, z;
};

namespace host {

dim3 thread_index();
dim3 block_index();
dim3 block_size();
dim3 grid_size();
void block_barrier();
void warp_barrier();
// Give a value of some bytes to the other lanes of the warp, and take that of one of them.
void exchange(const void* given, void* taken, int size, int source_lane, unsigned int mask);
int lane();

struct Registration {
    const char* name;
    void (*call)(void** arguments);
    Registration* next;
    Registration(const char* name, void (*call)(void**));
};

}  // namespace host

#define threadIdx (host::thread_index())
#define blockIdx (host::block_index())
#define blockDim (host::block_size())
#define gridDim (host::grid_size())
#define warpSize 32
#define __syncthreads() host::block_barrier()

inline void __syncwarp(unsigned int = 0xffffffffu) {
    host::warp_barrier();
}

// Fibres of different blocks take turns on the same stacks, which is no race: functions that hand out
// addresses of their own variables are not instrumented.
#define ONLY_OWN_VARIABLES __attribute__((no_sanitize("thread"), noinline))

template <typename T>
ONLY_OWN_VARIABLES T __shfl_xor_sync(unsigned int mask, T value, int lane_mask) {
    T taken;
    host::exchange(&value, &taken, sizeof(T), host::lane() ^ lane_mask, mask);
    return taken;
}

namespace host {

// Put a number in the place of another, if that is still there; returns what was there. Relaxed, as on the
// GPU: it orders nothing else. ThreadSanitizer's own functions take no address of a variable.
#ifdef __SANITIZE_THREAD__
extern "C" unsigned int __tsan_atomic32_compare_exchange_val(volatile void*, unsigned int, unsigned int, int,
                                                             int);
extern "C" unsigned long __tsan_atomic64_compare_exchange_val(volatile void*, unsigned long, unsigned long,
                                                              int, int);
inline unsigned int swap(unsigned int* place, unsigned int before, unsigned int after) {
    return __tsan_atomic32_compare_exchange_val(place, before, after, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
inline unsigned long swap(unsigned long* place, unsigned long before, unsigned long after) {
    return __tsan_atomic64_compare_exchange_val(place, before, after, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
#else
template <typename T>
T swap(T* place, T before, T after) {
    return __sync_val_compare_and_swap(place, before, after);
}
#endif

}  // namespace host

template <typename T>
T atomicAdd(T* address, T value) {
    if constexpr (std::is_integral_v<T>) {
        return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    } else {
        using Bits = std::conditional_t<sizeof(T) == 4, unsigned int, unsigned long>;
        Bits* place = (Bits*)address;
        Bits before = __atomic_load_n(place, __ATOMIC_RELAXED);
        for (;;) {
            Bits after = __builtin_bit_cast(Bits, __builtin_bit_cast(T, before) + value);
            Bits found = host::swap(place, before, after);
            if (found == before) return __builtin_bit_cast(T, before);
            before = found;
        }
    }
}

// CUDA's min and max take two numbers of one type.
template <typename T>
T min(T a, T b) {
    return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
    return a < b ? b : a;
}

inline int __popcll(unsigned long long bits) {
    return __builtin_popcountll(bits);
}

inline float __int_as_float(int bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// cos and sin of pi times a number, after taking off whole turns, which is exact.
inline double cospi(double x) {
    return cos(M_PI * (x - 2.0 * floor(0.5 * x + 0.5)));
}
inline double sinpi(double x) {
    return sin(M_PI * (x - 2.0 * floor(0.5 * x + 0.5)));
}
inline float cospif(float x) {
    return (float)cospi((double)x);
}
inline float sinpif(float x) {
    return (float)sinpi((double)x);
}
