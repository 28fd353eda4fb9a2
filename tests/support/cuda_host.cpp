// The threads of a block as fibers that run until they wait for others. Blocks run one after the
// other. With GF_CHECKED it is checked what they do: cuda_checks.h.

#include "cuda_host.h"

#include <csetjmp>
#include <ucontext.h>
#include <vector>

#define GF_SITE __builtin_return_address(0)

host_index gf_indices[4];

namespace host {

enum { MOST = 1024, STACK = 1 << 18 };

struct Fiber {
    jmp_buf state;
    ucontext_t begin;
    host_index index;
    bool is_begun, is_done;
};
struct Barrier {
    unsigned arrived, generation;
    size_t place;  // where those are that have arrived
};
struct Copy {
    void* to;
    const void* from;
    bool is_there;
    unsigned group;
    const void* site;
};

static Fiber fibers[MOST];
static Barrier of_block, of_warp[MOST / 32];
static unsigned given[MOST];
static std::vector<Copy> copies[MOST];
static unsigned groups[MOST];
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

}  // namespace host

#ifdef GF_CHECKED
#include "cuda_checks.h"
#else
namespace host {
// Where nothing is checked.
static void begin_launch(unsigned, unsigned) {}
static void begin_block() {}
static void end_thread() {}
static unsigned which_block(unsigned number) { return number; }
static unsigned which_thread(unsigned number) { return number; }
static size_t place_of(const void*) { return 0; }
static void meets(size_t, size_t) {}
static void syncs_warp() {}
static void hangs() {}
static void fence() {}
static void add(void*, const void*) {}
static void begin_copy(const Copy&) {}
static void end_copy(const Copy&) {}
static void read_row(const void*, const void*) {}
static void read_element(const void*, const void*) {}
}  // namespace host
#endif

namespace host {

// Returns whether it was the last that the others had waited for.
static bool wait(Barrier& barrier, unsigned count, const void* site) {
    const unsigned generation = barrier.generation;
    const size_t place = place_of(site);
    if (barrier.arrived) meets(barrier.place, place);
    barrier.place = place;
    if (++barrier.arrived == count) {
        barrier.arrived = 0;
        barrier.generation++;
        has_moved = true;
        return true;
    }
    while (barrier.generation == generation) give_way();
    return false;
}
static bool wait_for_warp(const void* site) { return wait(of_warp[current / 32], 32, site); }

static void fiber() {
    entry(arguments);
    end_thread();
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
    begin_block();
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
        copies[i].clear();
    }
    for (unsigned left = total; left;) {
        has_moved = false;
        left = 0;
        for (unsigned i = 0; i < total; i++) {
            const unsigned number = which_thread(i);
            if (fibers[number].is_done) continue;
            go_on(number);
            left += !fibers[number].is_done;
        }
        if (left && !has_moved) {
            hangs();
            return false;
        }
    }
    return true;
}

}  // namespace host

void __syncthreads() { host::wait(host::of_block, host::total, GF_SITE); }
void __syncwarp() {
    if (host::wait_for_warp(GF_SITE)) host::syncs_warp();
}
unsigned __shfl_sync(unsigned, unsigned value, int lane) {
    const unsigned warp = host::current / 32;
    host::given[host::current] = value;
    host::wait_for_warp(GF_SITE);
    const unsigned found = host::given[warp * 32 + (unsigned)lane % 32];
    host::wait_for_warp(GF_SITE);
    return found;
}
void __threadfence() { host::fence(); }
unsigned atomicInc(unsigned* place, unsigned most) {
    host::add(place, GF_SITE);
    const unsigned old = *place;
    *place = old >= most ? 0 : old + 1;
    return old;
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
    host::begin_launch(grid * pieces, shared);
    int result = 0;
    // The last first: nobody may rely on their order.
    for (unsigned number = grid * pieces; number-- > 0 && !result;) {
        const unsigned block = host::which_block(number);
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
double normcdf(double x) { return (double)(0.5L * std::erfc(-x * 0.70710678118654752440L)); }
float normcdff(float x) { return (float)normcdf((double)x); }

#include "cuda_tensor_cores.h"
