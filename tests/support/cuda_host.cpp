// The threads of a block as fibers that run until they wait for others. Blocks run one after the
// other.

#include "cuda_host.h"

#include <csetjmp>
#include <ucontext.h>

host_index threadIdx, blockIdx, blockDim, gridDim;

namespace host {

enum { MOST = 1024, STACK = 1 << 16 };

struct Fiber {
    jmp_buf state;
    ucontext_t begin;
    host_index index;
    bool is_begun, is_done;
};
struct Barrier { unsigned arrived, generation; };

static Fiber fibers[MOST];
static Barrier of_block, of_warp[MOST / 32];
static unsigned given[MOST];
static char* stacks;
static char* dynamic;
static jmp_buf scheduler;
static unsigned current, total;
static bool has_moved;
static void (*entry)(void**);
static void** arguments;

static void give_way() {
    Fiber& mine = fibers[current];
    if (!_setjmp(mine.state)) _longjmp(scheduler, 1);
}

static void wait(Barrier& barrier, unsigned count) {
    const unsigned generation = barrier.generation;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        barrier.generation++;
        has_moved = true;
        return;
    }
    while (barrier.generation == generation) give_way();
}

static void fiber() {
    entry(arguments);
    fibers[current].is_done = has_moved = true;
    _longjmp(scheduler, 1);
}

static void go_on(unsigned number) {
    Fiber& one = fibers[number];
    current = number;
    threadIdx = one.index;
    if (_setjmp(scheduler)) return;
    if (one.is_begun) _longjmp(one.state, 1);
    one.is_begun = true;
    setcontext(&one.begin);
}

// Runs a block; returns false where threads wait for others that never come.
static bool run_block() {
    of_block = Barrier();
    for (unsigned i = 0; i < total; i++) {
        Fiber& one = fibers[i];
        getcontext(&one.begin);
        one.begin.uc_stack.ss_sp = stacks + (size_t)i * STACK;
        one.begin.uc_stack.ss_size = STACK;
        one.begin.uc_link = nullptr;
        makecontext(&one.begin, fiber, 0);
        one.index = {i % blockDim.x, i / blockDim.x};
        one.is_begun = one.is_done = false;
        of_warp[i / 32] = Barrier();
    }
    for (unsigned left = total; left;) {
        has_moved = false;
        left = 0;
        for (unsigned i = 0; i < total; i++) {
            if (fibers[i].is_done) continue;
            go_on(i);
            left += !fibers[i].is_done;
        }
        if (left && !has_moved) return false;
    }
    return true;
}

}  // namespace host

void __syncthreads() { host::wait(host::of_block, host::total); }
void __syncwarp() { host::wait(host::of_warp[host::current / 32], 32); }
unsigned __shfl_sync(unsigned, unsigned value, int lane) {
    const unsigned warp = host::current / 32;
    host::given[host::current] = value;
    __syncwarp();
    const unsigned found = host::given[warp * 32 + (unsigned)lane % 32];
    __syncwarp();
    return found;
}

char* gf_dynamic() { return host::dynamic; }

extern "C" int gf_launch(
    void (*entry)(void**), unsigned grid, unsigned pieces, unsigned x, unsigned y, unsigned shared,
    void** arguments
) {
    if (!host::stacks) host::stacks = (char*)malloc((size_t)host::MOST * host::STACK);
    if (x * y > host::MOST || (x * y) % 32) return 2;
    host::dynamic = (char*)aligned_alloc(64, (shared + 127) / 64 * 64);
    memset(host::dynamic, 0xA5, shared);
    memset(host::dynamic + shared, 0x5A, 64);
    host::entry = entry;
    host::arguments = arguments;
    host::total = x * y;
    blockDim = {x, y};
    gridDim = {grid, pieces};
    int result = 0;
    // The last first: nobody may rely on their order.
    for (unsigned block = grid * pieces; block-- > 0 && !result;) {
        blockIdx = {block % grid, block / grid};
        if (!host::run_block()) result = 1;
    }
    for (unsigned i = 0; i < 64; i++)
        if (host::dynamic[shared + i] != 0x5A) result = 3;
    free(host::dynamic);
    return result;
}

// 16-bit floats.
static inline unsigned host_bits(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}
unsigned short gf_half_bits(float x) {
    const unsigned bits = host_bits(x), sign = bits >> 16 & 0x8000u;
    if (x != x) return (unsigned short)(sign | 0x7e00u | (bits >> 13 & 0x1ffu));
    const double magnitude = std::fabs((double)x);
    if (magnitude >= 65520.0) return (unsigned short)(sign | 0x7c00u);
    int exponent = magnitude == 0 ? -14 : std::ilogb(magnitude);
    if (exponent < -14) exponent = -14;
    // In units of the last place, to nearest, halves to even.
    const unsigned units = (unsigned)std::nearbyint(std::ldexp(magnitude, 10 - exponent));
    return (unsigned short)(sign | (((unsigned)(exponent + 14) << 10) + units));
}
float gf_half_value(unsigned short bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    float x = exponent == 31 ? (fraction ? NAN : INFINITY)
        : exponent ? std::ldexp((float)(fraction | 0x400), exponent - 25)
                   : std::ldexp((float)fraction, -24);
    return bits & 0x8000 ? -x : x;
}

// By M. Giles' approximation, made exact by Newton's method.
double erfinv(double x) {
    if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(INFINITY, x) : NAN;
    if (x == 0) return x;
    const double w = -std::log((1 - x) * (1 + x));
    double y = x * (w < 5 ? 1.50140941 + 0.246640727 * (w - 2.5) : 2.83297682 + 1.00167406 * (std::sqrt(w) - 3));
    for (int i = 0; i < 60; i++) {
        const long double tail = 1 - std::fabs((long double)x), away = std::fabs((long double)y);
        const long double error = tail - std::erfc(away);
        const long double slope = 1.1283791670955125738962L * std::exp(-away * away);
        const long double step = error / slope;
        y = std::copysign((double)(away - step), x);
        if (std::fabs(step) < 1e-17L * away) break;
    }
    return y;
}
float erfinvf(float x) { return (float)erfinv((double)x); }

#include "cuda_tensor_cores.h"
