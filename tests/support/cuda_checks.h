// What is checked while threads run on a CPU. The compiler has each access of a kernel call the
// functions that ThreadSanitizer has, and each operation that is not defined those of
// UndefinedBehaviorSanitizer; here are both sets.
//
// Of each element of memory it is kept who wrote it last and who has read it since, and when, by
// what orders threads: how many barriers of its block, and of its warp, a thread has passed, and how
// many fences. Shuffles and products of a warp order nothing, as CUDA has it. Blocks of a launch all
// run at once: one is before another only by a fence, a counter that both add to, and a fence.
//
// Threads take turns in an order that a seed says, and now and then before an access.

#include <algorithm>
#include <map>

namespace host {

enum How { READS, WRITES, ADDS };
enum Several { ONE, LANES, WARPS };

// When something was done, and by whom: by one thread, or by several of its warp or block.
struct Stamp {
    const void* site;
    unsigned block, barriers, syncs, fences;
    unsigned short thread;
    unsigned char several, is_atomic;
};

struct Cell {
    Stamp write;
    std::vector<Stamp> reads;  // since then, by block
    unsigned run;              // in which block's run, where this is the block's own memory
    bool is_written, is_copied;  // is_copied: it is being written by a copy that goes on by itself
};

// Memory that a kernel may access, in elements of `grain` bytes.
enum Kind { GIVEN, FRESH, ONLY_READ, OWN };
struct Region {
    char* begin;
    size_t size;
    unsigned grain, kind;
};
struct Memory : Region {
    std::vector<Cell> cells;
};

struct Party { const void* site; unsigned block, thread; };
struct Fault {
    const char* what;
    const void* address;
    size_t size;
    Party now, before;
    const void* callers[4];
};

// What a block has left at a counter: all that was done before so many of its barriers, and by one
// thread before so many fences. And what came so to a block: to one thread after a fence, to the
// others after a barrier.
struct Release { unsigned block, barriers, thread, fences; };
struct Acquired { Release from; unsigned barriers, thread; };

static std::vector<Memory> memories;
static std::vector<Fault> faults;
static std::map<const void*, std::vector<Release> > counters;
static std::vector<Release> seen[MOST];  // at a counter, with no fence behind it yet
static std::vector<Acquired> acquired;
static const void* calls[MOST][64];
static unsigned depth[MOST], syncs[MOST / 32], fences[MOST], barriers_at_fence[MOST];
static const void* waits_at[MOST];
static std::vector<unsigned> order_of_blocks, order_of_threads;
static unsigned run, block_number;
static const char* flag;  // to which all that write write the same
static unsigned random_state;

static unsigned draw(unsigned count) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state % count;
}

static void found(
    const char* what, const void* site, const void* address = nullptr, size_t size = 0,
    const Stamp* before = nullptr
) {
    const void* other = before ? before->site : nullptr;
    for (const Fault& one : faults)
        if (one.what == what && one.now.site == site && one.before.site == other) return;
    if (faults.size() == 16) return;
    Fault fault = {what, address, size, {site, block_number, current}, {}, {}};
    if (before) fault.before = {other, before->block, before->thread};
    // The kernel itself was called by no code of its own.
    for (unsigned i = 0, n = std::min(depth[current], 64u); i < 4 && i + 1 < n; i++)
        fault.callers[i] = calls[current][n - 1 - i];
    faults.push_back(fault);
}

static void add_memory(const Region& region) {
    memories.push_back(Memory());
    static_cast<Region&>(memories.back()) = region;
    if (region.kind != ONLY_READ)
        memories.back().cells.resize((region.size + region.grain - 1) / region.grain);
}
static void shuffle(std::vector<unsigned>& numbers, unsigned count) {
    numbers.clear();
    for (unsigned i = 0; i < count; i++) {
        numbers.push_back(i);
        std::swap(numbers[i], numbers[draw(i + 1)]);
    }
}
static void begin_launch(unsigned blocks, unsigned shared) {
    shuffle(order_of_blocks, blocks);
    add_memory({dynamic, shared, 1, OWN});
}
static unsigned which_block(unsigned number) { return order_of_blocks[number]; }
static void begin_block() {
    run++;
    block_number = blockIdx.x + blockIdx.y * gridDim.x;
    shuffle(order_of_threads, total);
    acquired.clear();
    std::fill(syncs, syncs + MOST / 32, 0);
    for (unsigned i = 0; i < total; i++) {
        depth[i] = fences[i] = barriers_at_fence[i] = 0;
        seen[i].clear();
    }
}
static unsigned which_thread(unsigned number) { return order_of_threads[number]; }

// Where a thread is, with all that has called it.
static size_t place_of(const void* site) {
    waits_at[current] = site;
    size_t hash = (size_t)site;
    for (unsigned i = 0; i < std::min(depth[current], 64u); i++)
        hash = (hash ^ (size_t)calls[current][i]) * 0x9E3779B97F4A7C15ull;
    return hash;
}
static void meets(size_t first, size_t place) {
    if (first != place)
        found("it waits at another place than the threads that it waits for", waits_at[current]);
}
static void syncs_warp() { syncs[current / 32]++; }
static void hangs() {
    for (unsigned i = 0; i < total; i++)
        if (!fibers[i].is_done) {
            current = i;
            found("it waits for others that never come", waits_at[i]);
        }
}

static bool is_before(const Stamp& one) {
    if (one.block == block_number) {
        if (one.several == ONE && one.thread == current) return true;
        if (one.barriers < of_block.generation) return true;
        return one.several != WARPS && one.thread / 32u == current / 32
            && one.syncs < syncs[current / 32];
    }
    for (const Acquired& path : acquired) {
        if (path.from.block != one.block) continue;
        const bool is_left = one.barriers < path.from.barriers
            || (one.several == ONE && one.thread == path.from.thread
                && one.fences < path.from.fences);
        const bool is_here = path.barriers < of_block.generation || path.thread == current;
        if (is_left && is_here) return true;
    }
    return false;
}

static Stamp stamp(const void* site, bool is_atomic) {
    const Stamp made = {
        site, block_number, of_block.generation, syncs[current / 32], fences[current],
        (unsigned short)current, ONE, is_atomic
    };
    return made;
}

// The reads of a block as one: the last, and those that nothing orders beside it.
static void add_read(std::vector<Stamp>& reads, const Stamp& mine) {
    if (reads.empty() || reads.back().block != mine.block) return reads.push_back(mine);
    Stamp& old = reads.back();
    if (old.barriers < mine.barriers) {
        old = mine;
    } else if (old.several == WARPS || old.thread / 32 != mine.thread / 32) {
        old.several = WARPS;
    } else if (old.syncs < mine.syncs) {
        old = mine;
    } else if (old.thread != mine.thread) {
        old.several = LANES;
    } else {
        old.fences = mine.fences;
    }
}

static Memory* memory_at(const char* address, size_t size) {
    static size_t last;
    for (size_t i = 0; i < memories.size(); i++) {
        Memory& one = memories[(last + i) % memories.size()];
        const size_t offset = (size_t)(address - one.begin);
        if (offset < one.size && size <= one.size - offset) {
            last = (last + i) % memories.size();
            return &one;
        }
    }
    return nullptr;
}

static void touch(
    Cell& cell, const Memory& memory, const char* address, size_t size, How how, const Stamp& mine
) {
    if (memory.kind == OWN && cell.run != run) {
        cell = Cell();
        cell.run = run;
    }
    if (cell.is_copied) found("it does not wait for a copy", mine.site, address, size, &cell.write);
    const bool may_meet = address == flag || (mine.is_atomic && cell.write.is_atomic);
    if (cell.is_written && !(may_meet && how != READS) && !is_before(cell.write))
        found(
            how == READS ? "it reads what another thread writes"
                         : "it writes what another thread writes",
            mine.site, address, size, &cell.write);
    if (how == READS) {
        if (!cell.is_written && (memory.kind == FRESH || memory.kind == OWN))
            found("it reads what nobody has written", mine.site, address, size);
        return add_read(cell.reads, mine);
    }
    for (const Stamp& read : cell.reads)
        if (!is_before(read))
            found("it writes what another thread reads", mine.site, address, size, &read);
    cell.reads.clear();
    cell.write = mine;
    cell.is_written = true;
}

// Visits the elements of an access, if it is where it may be.
template <class F>
static void visit(const void* place, size_t size, How how, const void* site, F f) {
    const char* const address = (const char*)place;
    if ((size_t)(address - (stacks + (size_t)current * STACK)) < STACK) return;
    if ((size_t)(address - (const char*)gf_indices) < sizeof gf_indices) return;
    Memory* const memory = memory_at(address, size);
    if (!memory)
        return found("it is outside of all memory that it may access", site, address, size);
    if (memory->kind == ONLY_READ) {
        if (how != READS) found("it writes what is only to be read", site, address, size);
        return;
    }
    const size_t begin = (size_t)(address - memory->begin);
    for (size_t i = begin / memory->grain; i <= (begin + size - 1) / memory->grain; i++)
        f(memory->cells[i], *memory);
}

static void access(const void* address, size_t size, How how, const void* site) {
    const Stamp mine = stamp(site, how == ADDS);
    visit(address, size, how, site, [&](Cell& cell, const Memory& memory) {
        touch(cell, memory, (const char*)address, size, how, mine);
    });
}

static void turns(const void* address, size_t size, How how, const void* site) {
    access(address, size, how, site);
    if (draw(64)) return;
    has_moved = true;
    give_way();
}

static void in_block(const void* place, const void* site) {
    const Memory* const memory = memory_at((const char*)place, 16);
    if (memory && memory->kind != OWN) found("it is not the block's memory", site, place, 16);
}

// Copies that go on by themselves: what they write is written from their begin up to their end.
static void begin_copy(const Copy& one) {
    in_block(one.to, one.site);
    for (const void* place : {(const void*)one.to, one.is_there ? one.from : one.to})
        if ((size_t)place % 16)
            found("it copies 16 bytes that are not aligned", one.site, place, 16);
    if (one.is_there) access(one.from, 16, READS, one.site);
    access(one.to, 16, WRITES, one.site);
    visit(one.to, 16, WRITES, one.site, [](Cell& cell, const Memory&) { cell.is_copied = true; });
}
static void end_copy(const Copy& one) {
    visit(one.to, 16, WRITES, one.site, [](Cell& cell, const Memory&) { cell.is_copied = false; });
    if (one.is_there) access(one.from, 16, READS, one.site);
    access(one.to, 16, WRITES, one.site);
}

// Each lane gives a row of 16 bytes, and reads elements of other lanes' rows.
static void read_row(const void* row, const void* site) {
    in_block(row, site);
    if ((size_t)row % 16) found("it reads a row that is not aligned", site, row, 16);
}
static void read_element(const void* place, const void* site) { access(place, 2, READS, site); }

static void fence() {
    fences[current]++;
    barriers_at_fence[current] = of_block.generation;
    for (const Release& one : seen[current])
        acquired.push_back({one, of_block.generation, current});
    seen[current].clear();
}
static void add(void* place, const void* site) {
    access(place, 4, ADDS, site);
    auto& left = counters[place];
    seen[current] = left;
    if (fences[current])
        left.push_back({block_number, barriers_at_fence[current], current, fences[current]});
}

static void end_thread() {
    if (!copies[current].empty()) found("it ends while its copies go on", copies[current][0].site);
}

}  // namespace host

extern "C" {

// Says what the next launch may access, where its flag is, and in which order threads run.
void gf_check(const host::Region* regions, size_t count, const char* flag, unsigned seed) {
    host::memories.clear();
    for (size_t i = 0; i < count; i++) host::add_memory(regions[i]);
    host::faults.clear();
    host::counters.clear();
    host::flag = flag;
    host::random_state = seed * 2654435769u | 1;
}
// Returns how many faults there were, which, and where a block's memory was.
size_t gf_faults(const host::Fault** found, const char** dynamic) {
    *found = host::faults.data();
    *dynamic = host::dynamic;
    return host::faults.size();
}

void __tsan_init() {}
void __tsan_func_entry(const void* caller) {
    unsigned& depth = host::depth[host::current];
    if (depth < 64) host::calls[host::current][depth] = caller;
    depth++;
}
void __tsan_func_exit() { host::depth[host::current]--; }

#define GF_ACCESS(size)                                                                            \
    void __tsan_read##size(const void* at) { host::turns(at, size, host::READS, GF_SITE); }        \
    void __tsan_write##size(const void* at) { host::turns(at, size, host::WRITES, GF_SITE); }
GF_ACCESS(1)
GF_ACCESS(2)
GF_ACCESS(4)
GF_ACCESS(8)
GF_ACCESS(16)
void __tsan_read_range(const void* at, size_t size) { host::turns(at, size, host::READS, GF_SITE); }
void __tsan_write_range(const void* at, size_t size) {
    host::turns(at, size, host::WRITES, GF_SITE);
}

#define GF_UNDEFINED(name, what)                                                                   \
    void __ubsan_handle_##name() { host::found(what, GF_SITE); }
GF_UNDEFINED(type_mismatch_v1, "it accesses what is not aligned")
GF_UNDEFINED(add_overflow, "a sum overflows")
GF_UNDEFINED(sub_overflow, "a difference overflows")
GF_UNDEFINED(mul_overflow, "a product overflows")
GF_UNDEFINED(negate_overflow, "a negation overflows")
GF_UNDEFINED(divrem_overflow, "a division by 0, or one that overflows")
GF_UNDEFINED(shift_out_of_bounds, "a shift by too much, or of something negative")
GF_UNDEFINED(out_of_bounds, "an index outside of an array")
GF_UNDEFINED(float_cast_overflow, "an integer has no room for a float")
GF_UNDEFINED(load_invalid_value, "a bool that is neither true nor false")

}  // extern "C"
