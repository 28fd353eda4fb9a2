// What all generated kernels share: types, primitive functions, random bits, and how the threads of
// a group join what they have found. No header is included, so that NVRTC needs none.
//
// What a primitive function means is said by graphfw.runtime.kernels.scalars.PRIMITIVES. Compile
// with -fmad=false: a product and a sum are rounded one by one, as NumPy does.

#define GF __device__ __forceinline__

typedef long long gf_i64;
typedef unsigned long long gf_u64;
struct gf_u128 { gf_u64 first, second; };

// What indices are computed in. The wide one is compiled when sizes first need it.
#ifdef GF_WIDE
typedef gf_i64 gf_index;
typedef gf_u64 gf_count;
#else
typedef int gf_index;
typedef unsigned gf_count;
#endif

// 16-bit floats in memory; in registers they are floats that have been rounded.
struct gf_half { unsigned short bits; };
struct gf_bf16 { unsigned short bits; };

template <class To, class From> GF To gf_bits(From x) {
    union { From from; To to; } both;
    both.from = x;
    return both.to;
}

GF float gf_inff() { return gf_bits<float>(0x7f800000u); }
GF double gf_inf() { return gf_bits<double>(0x7ff0000000000000ull); }
GF float gf_nanf() { return gf_bits<float>(0x7fc00000u); }
GF double gf_nan() { return gf_bits<double>(0x7ff8000000000000ull); }

#ifdef __CUDACC__
GF unsigned short gf_half_bits(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
GF float gf_half_value(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
#endif

GF unsigned short gf_bf16_bits(float x) {
    const unsigned bits = gf_bits<unsigned>(x), upper = bits >> 16;
    // The sum would carry a NaN over into an infinity or a zero: its upper half, made quiet.
    return (unsigned short)(x != x ? upper | 0x40u : (bits + 0x7fffu + (upper & 1u)) >> 16);
}
GF float gf_bf16_value(unsigned short bits) { return gf_bits<float>((unsigned)bits << 16); }

GF float gf_round_half(float x) { return gf_half_value(gf_half_bits(x)); }
GF float gf_round_bf16(float x) { return gf_bf16_value(gf_bf16_bits(x)); }

// An element of several that lie in a byte, by its number.
template <int BITS> GF unsigned char gf_packed(const unsigned char* bytes, gf_u64 number) {
    const gf_u64 bit = number * BITS;
    return (bytes[bit >> 3] >> (bit & 7)) & ((1 << BITS) - 1);
}

// From memory to registers and back. A bool is a byte in memory.
template <class M> struct gf_memory {
    template <class R> GF static R load(M x) { return (R)x; }
    template <class R> GF static M made(R x) { return (M)x; }
};
template <> struct gf_memory<gf_half> {
    template <class R> GF static R load(gf_half x) { return gf_half_value(x.bits); }
    template <class R> GF static gf_half made(R x) { gf_half y = {gf_half_bits(x)}; return y; }
};
template <> struct gf_memory<gf_bf16> {
    template <class R> GF static R load(gf_bf16 x) { return gf_bf16_value(x.bits); }
    template <class R> GF static gf_bf16 made(R x) { gf_bf16 y = {gf_bf16_bits(x)}; return y; }
};

// Elements in a row, read and written at once: 16 bytes, or more that lie as these do.
template <class M, int V>
struct alignas(sizeof(M) * V < 16 ? sizeof(M) * V : 16) gf_pack { M at[V]; };

// Arithmetic. Integers wrap, so they are computed without a sign.
template <class T> struct gf_unsigned { typedef unsigned type; };
template <> struct gf_unsigned<gf_i64> { typedef gf_u64 type; };
template <> struct gf_unsigned<gf_u64> { typedef gf_u64 type; };

template <class T> GF T gf_add(T a, T b) {
    typedef typename gf_unsigned<T>::type U;
    return (T)((U)a + (U)b);
}
template <class T> GF T gf_sub(T a, T b) {
    typedef typename gf_unsigned<T>::type U;
    return (T)((U)a - (U)b);
}
template <class T> GF T gf_mul(T a, T b) {
    typedef typename gf_unsigned<T>::type U;
    return (T)((U)a * (U)b);
}
GF float gf_add(float a, float b) { return a + b; }
GF float gf_sub(float a, float b) { return a - b; }
GF float gf_mul(float a, float b) { return a * b; }
GF double gf_add(double a, double b) { return a + b; }
GF double gf_sub(double a, double b) { return a - b; }
GF double gf_mul(double a, double b) { return a * b; }

template <class T> GF T gf_neg(T a) { return gf_sub((T)0, a); }
GF float gf_neg(float a) { return -a; }
GF double gf_neg(double a) { return -a; }

template <class T> GF T gf_abs(T a) { return a < (T)0 ? gf_neg(a) : a; }
GF float gf_abs(float a) { return fabsf(a); }
GF double gf_abs(double a) { return fabs(a); }

template <class T> GF T gf_max(T a, T b) { return a > b || a != a ? a : b; }
template <class T> GF T gf_min(T a, T b) { return a < b || a != a ? a : b; }

template <class T> GF T gf_shl(T a, T b) {
    typedef typename gf_unsigned<T>::type U;
    return (gf_u64)b < 8 * sizeof(T) ? (T)((U)a << (U)b) : (T)0;
}
template <class T> GF T gf_shr(T a, T b) {
    const bool within = (gf_u64)b < 8 * sizeof(T);
    return within ? (T)(a >> b) : (T)(a < (T)0 ? -1 : 0);
}

// Floats to integers: out of range becomes what x86 makes of it.
template <class F> GF int gf_to_int32(F x) {
    return x > (F)-2147483649.0 && x < (F)2147483648.0 ? (int)x : (int)0x80000000u;
}
template <class F> GF gf_i64 gf_to_int64(F x) {
    return x >= (F)-9223372036854775808.0 && x < (F)9223372036854775808.0
        ? (gf_i64)x : (gf_i64)0x8000000000000000ull;
}
template <class F> GF gf_u64 gf_to_uint64(F x) {
    const F half = (F)9223372036854775808.0;
    return x >= half ? (gf_u64)gf_to_int64(x - half) ^ 0x8000000000000000ull
                     : (gf_u64)gf_to_int64(x);
}

// float64 to float32, towards 0, the last bit set where that was not exact.
GF float gf_narrow(double x) {
    const float near = (float)x;
    unsigned bits = gf_bits<unsigned>(near);
    if (fabs((double)near) > fabs(x)) bits -= 1;
    const float low = gf_bits<float>(bits);
    return x != x || (double)low == x ? low : gf_bits<float>(bits | 1u);
}

// Whole quotients.
template <class T> GF void gf_divided(T x, T y, T& quotient, T& rest) {
    quotient = rest = 0;
    if (y == (T)0) return;
    if ((T)-1 < (T)0 && y == (T)-1) {
        quotient = gf_neg(x);
        return;
    }
    quotient = (T)(x / y);
    rest = (T)(x % y);
    if (rest != (T)0 && (rest < (T)0) != (y < (T)0)) {
        quotient = (T)(quotient - 1);
        rest = (T)(rest + y);
    }
}
template <class T> GF T gf_floor_divide(T x, T y) {
    T quotient, rest;
    gf_divided(x, y, quotient, rest);
    return quotient;
}
template <class T> GF T gf_remainder(T x, T y) {
    T quotient, rest;
    gf_divided(x, y, quotient, rest);
    return rest;
}
GF float gf_fmod(float x, float y) { return fmodf(x, y); }
GF double gf_fmod(double x, double y) { return fmod(x, y); }
GF float gf_floor(float x) { return floorf(x); }
GF double gf_floor(double x) { return floor(x); }
GF float gf_copysign(float x, float y) { return copysignf(x, y); }
GF double gf_copysign(double x, double y) { return copysign(x, y); }

template <class F> GF F gf_float_floor_divide(F x, F y) {
    const F rest = gf_fmod(x, y), fraction = x / y;
    F quotient = (x - rest) / y;
    if (rest != (F)0 && (rest < (F)0) != (y < (F)0)) quotient = quotient - (F)1;
    F down = gf_floor(quotient);
    if (quotient - down > (F)0.5) down = down + (F)1;
    const F whole = quotient == (F)0 ? gf_copysign((F)0, fraction) : down;
    return y == (F)0 || gf_abs(x) == (F)gf_inf() ? fraction : whole;
}
template <class F> GF F gf_float_remainder(F x, F y) {
    const F rest = gf_fmod(x, y);
    if (rest == (F)0 && y != (F)0) return gf_copysign((F)0, y);
    return (rest < (F)0) != (y < (F)0) ? rest + y : rest;
}
GF float gf_floor_divide(float x, float y) { return gf_float_floor_divide(x, y); }
GF double gf_floor_divide(double x, double y) { return gf_float_floor_divide(x, y); }
GF float gf_remainder(float x, float y) { return gf_float_remainder(x, y); }
GF double gf_remainder(double x, double y) { return gf_float_remainder(x, y); }

// Powers of integers wrap; negative ones are 1 / x^-y, towards 0, and 0 of 0.
template <class T> GF T gf_pow(T x, T y) {
    if (y < (T)0) {
        const T of_minus_one = (y & (T)1) != (T)0 ? (T)-1 : (T)1;
        return x == (T)1 ? (T)1 : x == (T)-1 ? of_minus_one : (T)0;
    }
    T result = 1;
    for (; y != (T)0; y = (T)(y >> 1)) {
        if ((y & (T)1) != (T)0) result = gf_mul(result, x);
        x = gf_mul(x, x);
    }
    return result;
}
GF float gf_pow(float x, float y) { return powf(x, y); }
GF double gf_pow(double x, double y) { return pow(x, y); }

// Random bits: graphfw.ops.numerics.philox.
struct gf_words { unsigned at[4]; };
GF gf_words gf_philox(gf_u64 block, gf_u64 step, gf_u64 key) {
    unsigned a = (unsigned)block, b = (unsigned)(block >> 32);
    unsigned c = (unsigned)step, d = (unsigned)(step >> 32);
    unsigned low = (unsigned)key, high = (unsigned)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const gf_u64 p = (gf_u64)0xD2511F53u * a, q = (gf_u64)0xCD9E8D57u * c;
        a = (unsigned)(q >> 32) ^ b ^ low;
        b = (unsigned)q;
        c = (unsigned)(p >> 32) ^ d ^ high;
        d = (unsigned)p;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    gf_words words = {{a, b, c, d}};
    return words;
}
GF unsigned gf_draw32(const gf_i64* drawn, gf_i64 key, gf_i64 element) {
    const gf_words w = gf_philox((gf_u64)element >> 2, (gf_u64)drawn[0], (gf_u64)drawn[key]);
    const unsigned first = element & 1 ? w.at[1] : w.at[0], last = element & 1 ? w.at[3] : w.at[2];
    return element & 2 ? last : first;
}
GF gf_u64 gf_draw64(const gf_i64* drawn, gf_i64 key, gf_i64 element) {
    const gf_words w = gf_philox((gf_u64)element >> 1, (gf_u64)drawn[0], (gf_u64)drawn[key]);
    const unsigned low = element & 1 ? w.at[2] : w.at[0], high = element & 1 ? w.at[3] : w.at[1];
    return (gf_u64)high << 32 | low;
}

// Reductions: S is what a thread has found so far, T what it is given.
template <class T> struct gf_limits;
#define GF_LIMITS(T, LEAST, MOST)                                                                  \
    template <> struct gf_limits<T> {                                                              \
        GF static T least() { return (T)(LEAST); }                                                 \
        GF static T most() { return (T)(MOST); }                                                   \
    };
GF_LIMITS(bool, false, true)
GF_LIMITS(signed char, -128, 127)
GF_LIMITS(short, -32768, 32767)
GF_LIMITS(int, 0x80000000u, 0x7fffffff)
GF_LIMITS(gf_i64, 0x8000000000000000ull, 0x7fffffffffffffffll)
GF_LIMITS(unsigned char, 0, 255)
GF_LIMITS(unsigned short, 0, 65535)
GF_LIMITS(unsigned, 0, 0xffffffffu)
GF_LIMITS(gf_u64, 0, 0xffffffffffffffffull)
GF_LIMITS(float, -gf_inff(), gf_inff())
GF_LIMITS(double, -gf_inf(), gf_inf())

template <class T> struct gf_sum {
    typedef T S;
    GF static S first() { return (T)0; }
    GF static S join(S a, S b) { return gf_add(a, b); }
};
template <class T> struct gf_prod {
    typedef T S;
    GF static S first() { return (T)1; }
    GF static S join(S a, S b) { return gf_mul(a, b); }
};
template <class T> struct gf_largest {
    typedef T S;
    GF static S first() { return gf_limits<T>::least(); }
    GF static S join(S a, S b) { return gf_max(b, a); }
};
template <class T> struct gf_smallest {
    typedef T S;
    GF static S first() { return gf_limits<T>::most(); }
    GF static S join(S a, S b) { return gf_min(b, a); }
};
template <class T> struct gf_all {
    typedef T S;
    GF static S first() { return (T)1; }
    GF static S join(S a, S b) { return (T)(a & b); }
};
template <class T> struct gf_any {
    typedef T S;
    GF static S first() { return (T)0; }
    GF static S join(S a, S b) { return (T)(a | b); }
};

// With its position: of equals the first, and the first NaN before all.
template <class T> struct gf_placed { T value; gf_i64 at; };
template <class T> GF bool gf_earlier(gf_placed<T> a, gf_placed<T> b) {
    const bool nans = a.value != a.value && b.value != b.value;
    return (a.value == b.value || nans) && b.at < a.at;
}
template <class T> struct gf_argmax {
    typedef gf_placed<T> S;
    GF static S first() {
        S none = {gf_limits<T>::least(), gf_limits<gf_i64>::most()};
        return none;
    }
    GF static S join(S a, S b) {
        const bool worse = b.value != b.value && a.value == a.value;
        return b.value > a.value || worse || gf_earlier(a, b) ? b : a;
    }
};
template <class T> struct gf_argmin {
    typedef gf_placed<T> S;
    GF static S first() {
        S none = {gf_limits<T>::most(), gf_limits<gf_i64>::most()};
        return none;
    }
    GF static S join(S a, S b) {
        const bool worse = b.value != b.value && a.value == a.value;
        return b.value < a.value || worse || gf_earlier(a, b) ? b : a;
    }
};

template <class S> GF S gf_from_lane(S s, int lane) {
    union { S s; unsigned words[(sizeof(S) + 3) / 4]; } mine, theirs;
    for (unsigned i = 0; i < (sizeof(S) + 3) / 4; i++) mine.words[i] = 0;
    mine.s = s;
    for (unsigned i = 0; i < (sizeof(S) + 3) / 4; i++)
        theirs.words[i] = __shfl_sync(0xffffffffu, mine.words[i], lane);
    return theirs.s;
}

#ifdef __CUDACC__
// Memory of a block, as much as the launch says, aligned to what is copied at once.
GF char* gf_dynamic() {
    extern __shared__ __align__(16) gf_u64 gf_dynamic_memory[];
    return (char*)gf_dynamic_memory;
}
#endif

// Groups: the threads that share a row. `first` and `step` say which rows are whose: a thread is at
// row `base + offset()`; what it finds there does not count where that is not below their number.
// Every join is made in a fixed order, and all threads of the group get the same. `kept` says where
// the value of an inner position lies that is kept by a group, of so many, for later passes.
struct gf_single {
    GF static gf_index first() { return (gf_index)(blockIdx.x * blockDim.x + threadIdx.x); }
    GF static gf_index step() { return (gf_index)(gridDim.x * blockDim.x); }
    GF static gf_index offset() { return 0; }
    GF static gf_index group() { return first(); }
    GF static gf_index groups() { return step(); }
    GF static gf_index local() { return (gf_index)threadIdx.x; }
    GF static gf_index locals() { return (gf_index)blockDim.x; }
    GF static gf_index kept(gf_index p, gf_index, gf_index own, gf_index all) {
        return p * all + own;
    }
    GF static gf_index lane() { return 0; }
    GF static gf_index lanes() { return 1; }
    GF static void sync() {}
    template <class Op> GF static typename Op::S join(typename Op::S s) { return s; }
};
struct gf_warp {
    GF static gf_index first() {
        return (gf_index)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    }
    GF static gf_index step() { return (gf_index)(gridDim.x * (blockDim.x / 32)); }
    GF static gf_index offset() { return 0; }
    GF static gf_index group() { return first(); }
    GF static gf_index groups() { return step(); }
    GF static gf_index local() { return (gf_index)(threadIdx.x / 32); }
    GF static gf_index locals() { return (gf_index)(blockDim.x / 32); }
    GF static gf_index kept(gf_index p, gf_index inner, gf_index own, gf_index) {
        return own * inner + p;
    }
    GF static gf_index lane() { return (gf_index)(threadIdx.x % 32); }
    GF static gf_index lanes() { return 32; }
    GF static void sync() { __syncwarp(); }
    template <class Op> GF static typename Op::S join(typename Op::S s) {
        const int own = (int)(threadIdx.x % 32);
#pragma unroll
        for (int far = 16; far > 0; far /= 2) s = Op::join(s, gf_from_lane(s, own ^ far));
        return gf_from_lane(s, 0);  // of two zeros each lane may have taken its own
    }
};
struct gf_block {
    GF static gf_index first() { return (gf_index)blockIdx.x; }
    GF static gf_index step() { return (gf_index)gridDim.x; }
    GF static gf_index offset() { return 0; }
    GF static gf_index group() { return first(); }
    GF static gf_index groups() { return step(); }
    GF static gf_index local() { return 0; }
    GF static gf_index locals() { return 1; }
    GF static gf_index kept(gf_index p, gf_index inner, gf_index own, gf_index) {
        return own * inner + p;
    }
    GF static gf_index lane() { return (gf_index)threadIdx.x; }
    GF static gf_index lanes() { return (gf_index)blockDim.x; }
    GF static void sync() { __syncthreads(); }
    template <class Op> GF static typename Op::S join(typename Op::S s) {
        typedef typename Op::S S;
        __shared__ S found[32];
        s = gf_warp::join<Op>(s);
        __syncthreads();  // until all have read what was found before
        if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = s;
        __syncthreads();
        S all = found[0];
        for (unsigned warp = 1; warp < blockDim.x / 32; warp++) all = Op::join(all, found[warp]);
        return all;
    }
};
// 32 rows side by side, each shared by the threads above each other.
struct gf_across {
    GF static gf_index first() { return (gf_index)(blockIdx.x * 32); }
    GF static gf_index step() { return (gf_index)(gridDim.x * 32); }
    GF static gf_index offset() { return (gf_index)threadIdx.x; }
    GF static gf_index group() { return first() + offset(); }
    GF static gf_index groups() { return step(); }
    GF static gf_index local() { return (gf_index)threadIdx.x; }
    GF static gf_index locals() { return 32; }
    GF static gf_index kept(gf_index p, gf_index, gf_index own, gf_index all) {
        return p * all + own;
    }
    GF static gf_index lane() { return (gf_index)threadIdx.y; }
    GF static gf_index lanes() { return (gf_index)blockDim.y; }
    GF static void sync() { __syncthreads(); }
    template <class Op> GF static typename Op::S join(typename Op::S s) {
        typedef typename Op::S S;
        __shared__ S found[8][32];
        __syncthreads();
        found[threadIdx.y][threadIdx.x] = s;
        __syncthreads();
        S all = found[0][threadIdx.x];
        for (unsigned y = 1; y < blockDim.y; y++) all = Op::join(all, found[y][threadIdx.x]);
        return all;
    }
};

// A run whose check has failed, and each later one of its session, is not to write variables.
extern "C" __global__ void __launch_bounds__(32) gf_settle(int* failed, int* halted) {
    if (threadIdx.x) return;
    if (*halted) *failed = 1;
    else if (*failed) *halted = 1;
}

// Whether this block is the last that has come here of those that share its rows: blocks with other
// positions of these along y. What they have written before is then there to be read. One thread
// speaks for its block: a fence orders what that thread does, and what barriers have put before it.
GF bool gf_is_last(int* counter) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        __threadfence();
        // The last one leaves a 0 for the next launch.
        is_last = atomicInc((unsigned*)counter, gridDim.y - 1) == gridDim.y - 1;
        __threadfence();
    }
    __syncthreads();
    return is_last;
}
