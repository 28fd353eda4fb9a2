// What CuPy's own kernels need besides, where the host's compiler compiles them.

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <math.h>
#include <type_traits>
#include <cuda_runtime_api.h>
#include "cuda_host.h"

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }

template <class T> static inline T max(T a, T b) { return a < b ? b : a; }

template <class To, class From> static inline To gf_same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "of one size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return gf_same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return gf_same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return gf_same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return gf_same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return gf_same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return gf_same_bits<double>(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }

#define GF_ATOMIC(name, what) \
    template <class T, class U> static inline \
        typename std::enable_if<std::is_same<T, unsigned long long>::value || sizeof(T) == 4, T>::type \
        name(T* place, U given) { const T old = *place, value = (T)given; *place = what; return old; }
GF_ATOMIC(atomicExch, value)
GF_ATOMIC(atomicMin, old < value ? old : value)
GF_ATOMIC(atomicMax, old > value ? old : value)
GF_ATOMIC(atomicAnd, old & value)
GF_ATOMIC(atomicOr, old | value)
#define GF_ADD(T) static inline T atomicAdd(T* place, T value) { const T old = *place; *place += value; return old; }
GF_ADD(int) GF_ADD(unsigned) GF_ADD(unsigned long long) GF_ADD(float) GF_ADD(double)
template <class T> static inline T atomicCAS(T* place, T expected, T value) {
    const T old = *place;
    if (old == expected) *place = value;
    return old;
}

// Runs a kernel whose threads do not wait for one another.
extern "C" int gf_in_a_row(
    void (*entry)(void**), unsigned grid, unsigned pieces, unsigned x, unsigned y, unsigned, void** given
) {
    gridDim = {grid, pieces};
    blockDim = {x, y};
    for (unsigned block = 0; block < grid * pieces; block++)
        for (unsigned thread = 0; thread < x * y; thread++) {
            blockIdx = {block % grid, block / grid};
            threadIdx = {thread % x, thread / x};
            entry(given);
        }
    return 0;
}
