// The instructions of graphfw/runtime/cupy_executor/tensor_cores.cuh on a CPU: each thread of a warp
// leaves what it has where the others see it, and takes its part of the result from there, as the PTX
// ISA says which thread has what. Copies are made as late as their waits allow, so that a wait that is
// missing shows.

namespace host {

struct Given { unsigned words[6]; const char* row; };

static Given of_lane[MOST];

static const Given& lane_of(unsigned lane) { return of_lane[current / 32 * 32 + lane]; }

// One element of a product: `depth` products of A's row and B's column, by what reads them.
template <class Read>
static void mma(
    float* c, const unsigned* a, const unsigned* b, int depth, const void* site, Read read
) {
    Given& mine = of_lane[current];
    for (int i = 0; i < 4; i++) mine.words[i] = a[i];
    for (int i = 0; i < 2; i++) mine.words[4 + i] = b[i];
    wait_for_warp(site);
    const unsigned g = current % 32 / 4, t = current % 4;
    for (unsigned i = 0; i < 4; i++) {
        float sum = c[i];
        for (unsigned k = 0; k < (unsigned)depth; k++)
            sum += read(g + i / 2 * 8, k, true) * read(2 * t + i % 2, k, false);
        c[i] = sum;
    }
    wait_for_warp(site);
}

// Element k of a row of A, or of a column of B, of 16-bit floats.
template <float value(unsigned short)> static float of_pairs(unsigned row, unsigned k, bool is_a) {
    const unsigned lane = row % 8 * 4 + k % 8 / 2, half = k / 8;
    const unsigned number = is_a ? half * 2 + row / 8 : 4 + half;
    return value((unsigned short)(lane_of(lane).words[number] >> k % 2 * 16));
}

static float of_tf32(unsigned row, unsigned k, bool is_a) {
    const unsigned lane = row % 8 * 4 + k % 4, half = k / 4;
    const unsigned bits = lane_of(lane).words[is_a ? half * 2 + row / 8 : 4 + half] & ~0x1fffu;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static float half_value(unsigned short bits);
static float bf16_value(unsigned short bits) {
    const unsigned wide = (unsigned)bits << 16;
    float x;
    memcpy(&x, &wide, 4);
    return x;
}

static unsigned element(unsigned row, unsigned column, const void* site) {
    static const unsigned short nan = 0xffff;  // where a row is not aligned as it must be
    const char* const begin = lane_of(row).row;
    const void* const place = (size_t)begin % 16 ? (const char*)&nan : begin + column * 2;
    if (place != &nan) read_element(place, site);
    unsigned short bits;
    memcpy(&bits, place, 2);
    return bits;
}

static void give_row(const void* row, const void* site) {
    read_row(row, site);
    of_lane[current].row = (const char*)row;
    wait_for_warp(site);
}

}  // namespace host

static float host::half_value(unsigned short bits) { return gf_half_value(bits); }

void gf_mma_f16(float* c, const unsigned* a, const unsigned* b) {
    host::mma(c, a, b, 16, GF_SITE, host::of_pairs<host::half_value>);
}
void gf_mma_bf16(float* c, const unsigned* a, const unsigned* b) {
    host::mma(c, a, b, 16, GF_SITE, host::of_pairs<host::bf16_value>);
}
void gf_mma_tf32(float* c, const unsigned* a, const unsigned* b) {
    host::mma(c, a, b, 8, GF_SITE, host::of_tf32);
}
unsigned gf_tf32(float x) { return x != x ? 0x7fffffffu : (host_bits(x) + 0x1000u) & ~0x1fffu; }

void gf_ldmatrix(unsigned* to, const void* row) {
    host::give_row(row, GF_SITE);
    const unsigned g = host::current % 32 / 4, t = host::current % 4;
    for (unsigned i = 0; i < 4; i++)
        to[i] = host::element(8 * i + g, 2 * t, GF_SITE)
            | host::element(8 * i + g, 2 * t + 1, GF_SITE) << 16;
    host::wait_for_warp(GF_SITE);
}
void gf_ldmatrix_across(unsigned* to, const void* row) {
    host::give_row(row, GF_SITE);
    const unsigned g = host::current % 32 / 4, t = host::current % 4;
    for (unsigned i = 0; i < 4; i++)
        to[i] = host::element(8 * i + 2 * t, g, GF_SITE)
            | host::element(8 * i + 2 * t + 1, g, GF_SITE) << 16;
    host::wait_for_warp(GF_SITE);
}

void gf_copy_async(void* to, const void* from, bool is_there) {
    const host::Copy made = {to, from, is_there, host::groups[host::current], GF_SITE};
    host::begin_copy(made);
    host::copies[host::current].push_back(made);
}
void gf_copies_done() { host::groups[host::current]++; }
void gf_wait_copies(unsigned left_groups) {
    const unsigned ended = host::groups[host::current];
    auto& waiting = host::copies[host::current];
    size_t left = 0;
    for (const host::Copy& one : waiting) {
        if (one.group + left_groups >= ended) {
            waiting[left++] = one;
            continue;
        }
        host::end_copy(one);
        if (((size_t)one.to | (one.is_there ? (size_t)one.from : 0)) % 16)
            memset(one.to, 0xff, 16);  // not aligned as they must be
        else if (one.is_there)
            memcpy(one.to, one.from, 16);
        else
            memset(one.to, 0, 16);
    }
    waiting.resize(left);
}
