// What attention and its gradient share: where operands lie, how tiles of them come to the block's
// memory, and the scores.

#ifdef __CUDACC__
GF unsigned gf_pair(gf_half, const float* x) {
    unsigned both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x[1]), "f"(x[0]));
    return both;
}
GF unsigned gf_pair(gf_bf16, const float* x) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x[1]), "f"(x[0]));
    return both;
}
// With an error of 2 units of the last place.
GF float gf_power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#else
GF unsigned gf_pair(gf_half, const float* x) {
    return gf_half_bits(x[0]) | (unsigned)gf_half_bits(x[1]) << 16;
}
GF unsigned gf_pair(gf_bf16, const float* x) {
    return gf_bf16_bits(x[0]) | (unsigned)gf_bf16_bits(x[1]) << 16;
}
GF float gf_power_of_2(float x) { return exp2f(x); }
#endif
GF double gf_power_of_2(double x) { return exp2(x); }
GF float gf_log(float x) { return logf(x); }
GF double gf_log(double x) { return log(x); }
GF float gf_larger(float a, float b) { return fmaxf(a, b); }
GF double gf_larger(double a, double b) { return fmax(a, b); }
GF float gf_lowest(float) { return gf_bits<float>(0xff7fffffu); }
GF double gf_lowest(double) { return gf_bits<double>(0xffefffffffffffffull); }

// What is left of a kernel's arguments: the mask, if there is one, numbers, `failed` and `scratch`.
GF gf_i64 gf_number(gf_i64 x) { return x; }
GF gf_i64 gf_number(const void* x) { return (gf_i64)x; }
template <class P, class First, class... Others>
GF const typename P::Mask* gf_mask_of(First first, Others...) {
    if constexpr (P::HAS_MASK) return first;
    return nullptr;
}
template <class P, class... Others> GF int gf_count_of(Others... others) {
    return (int)sizeof...(others) - 2 - P::HAS_MASK;
}

// In the place of a mask's element where there is none.
struct gf_no_mask {};

template <class X, class Y> struct gf_same { enum { value = false }; };
template <class X> struct gf_same<X, X> { enum { value = true }; };

// The kind of an attention; see `config.py`, whose fields these are.
template <
    class ENGINE, int WIDTH_, int VALUE_WIDTH_, int LEAD_, bool CAUSAL_, class MASK_,
    bool MASK_HAS_ROWS_, bool MASK_IN_ROWS_, gf_u64 SCALE, int WARPS, int SPLIT_, int M_,
    int N_>
struct gf_attention_kind {
    typedef ENGINE Engine;
    typedef typename ENGINE::Memory T;
    typedef typename ENGINE::Value F;
    typedef MASK_ Mask;
    enum {
        WIDTH = WIDTH_,
        VALUE_WIDTH = VALUE_WIDTH_,
        LEAD = LEAD_,
        CAUSAL = CAUSAL_,
        MASK_HAS_ROWS = MASK_HAS_ROWS_,
        MASK_IN_ROWS = MASK_IN_ROWS_,
        SPLIT = SPLIT_,
        M = M_,
        N = N_,
        THREADS = 32 * WARPS,
        // Widths in the block's memory; a warp has one of SPLIT slices of the results' columns.
        UNIT = 16 * SPLIT,
        PADDED = (WIDTH + UNIT - 1) / UNIT * UNIT,
        VALUE_PADDED = (VALUE_WIDTH + UNIT - 1) / UNIT * UNIT,
        STRIDE = PADDED + ENGINE::PAD,
        VALUE_STRIDE = VALUE_PADDED + ENGINE::PAD,
        TILES = PADDED / 8 / SPLIT,
        VALUE_TILES = VALUE_PADDED / 8 / SPLIT,
        // Rows that a block has, and columns of scores that it computes at a time.
        ROWS = 16 * M * (WARPS / SPLIT),
        COLUMNS = 8 * N,
        // Whether blocks may share rows: see `forward.cuh`.
        CAN_SHARE = M == 1,
    };

    // What of the scores is computed before their maximum is known: unscaled ones will do unless
    // something is added to them, or the scale turns them round.
    enum { HAS_MASK = !gf_same<MASK_, gf_no_mask>::value };
    enum { IS_ADDED = HAS_MASK && !gf_same<MASK_, unsigned char>::value };
    GF static F scale() { return (F)gf_bits<double>(SCALE); }
    GF static bool is_early() { return IS_ADDED || !(gf_bits<double>(SCALE) > 0); }
    GF static F unit() { return (F)1.4426950408889634074 * (is_early() ? (F)1 : scale()); }

    // exp(score - top), where both are as `gf_masked` leaves them.
    GF static F weight(F score, F top) {
        return gf_power_of_2(
            is_early() ? (score - top) * unit() : gf_fused(score, unit(), -(top * unit())));
    }
    // exp((score - lse) - rest), from what `of_lse` and `of_rest` make of the two.
    GF static F weight_by_lse(F score, F from_lse, F from_rest) {
        return gf_power_of_2(
            is_early() ? gf_fused(score - from_lse, unit(), -from_rest)
                       : gf_fused(score, unit(), -from_lse));
    }
    // Of a query that sees no key both are the lowest number; its scores, all -inf, must find
    // nothing infinite here.
    GF static F of_lse(F lse, F rest) {
        if (is_early()) return lse;
        return rest == gf_lowest((F)0) ? (F)0 : (lse + rest) * (F)1.4426950408889634074;
    }
    GF static F of_rest(F rest) {
        return rest == gf_lowest((F)0) ? (F)0 : rest * (F)1.4426950408889634074;
    }
};

// Where the matrix of a head begins, and how far its rows are from one another, in elements.
struct gf_place { gf_i64 begin, row; };

// The run-time integers: queries, keys, the leading dims, then for each operand where it begins, the
// distance of its rows, and those along the leading dims; last that of the mask's columns.
template <class P> struct gf_attention_sizes {
    gf_i64 queries, keys, column;
    unsigned head;
    int tile, tiles;
    const gf_i64* words;

    // The block's tile of the rows of its head; the last first: of causal ones these take longest.
    GF gf_attention_sizes(const gf_i64* all, int count, bool of_keys) : words(all) {
        queries = all[0];
        keys = all[1];
        column = all[count - 1];
        tiles = (int)(((of_keys ? keys : queries) + P::ROWS - 1) / P::ROWS);
        head = blockIdx.x / (unsigned)tiles;
        tile = (int)(blockIdx.x % (unsigned)tiles);
        if (!of_keys) tile = tiles - 1 - tile;
    }
    GF gf_place place(int operand) const {
        const gf_i64* own = words + 2 + P::LEAD + operand * (2 + P::LEAD);
        gf_place found = {own[0], own[1]};
        unsigned left = head;
#pragma unroll
        for (int axis = P::LEAD - 1; axis >= 0; axis--) {
            const unsigned dim = (unsigned)words[2 + axis];
            found.begin += (gf_i64)(left % dim) * own[2 + axis];
            left /= dim;
        }
        return found;
    }
};

// Whether rows can be copied 16 bytes at a time.
template <class T, int WIDTH> GF bool gf_in_16_bytes(const T* first, gf_i64 row) {
    return ((gf_u64)first | (gf_u64)row * sizeof(T) | WIDTH * sizeof(T)) % 16 == 0;
}

GF int gf_at_most(gf_i64 x, int most) { return x < most ? x > -most ? (int)x : -most : most; }

// Has rows [begin, begin + ROWS) of a matrix of `rows` rows copied to the block's memory; zeros
// behind its rows and columns.
template <class T, int ROWS, int WIDTH, int PADDED, int STRIDE, int THREADS>
GF void gf_fetch(T* to, const T* from, gf_i64 row, gf_i64 begin, gf_i64 rows, bool in_16_bytes) {
    enum { PACK = 16 / sizeof(T), PACKS = PADDED / PACK, AT_ONCE = THREADS / PACKS };
    static_assert(AT_ONCE > 0, "a row is copied at once");
    const int first = (int)threadIdx.x / PACKS, j = (int)threadIdx.x % PACKS * PACK;
    if (THREADS % PACKS != 0 && first >= AT_ONCE) return;
    const int there = gf_at_most(rows - begin, ROWS);
    const T* found = from + (begin + first) * row + j;
    to += first * STRIDE + j;
#pragma unroll
    for (int i = 0; i < ROWS; i += AT_ONCE) {
        if (ROWS % AT_ONCE != 0 && first + i >= ROWS) break;
        const bool is_there = first + i < there;
        if (in_16_bytes) {
            const bool is_inside = is_there && j < WIDTH;
            gf_copy_async(to + i * STRIDE, is_inside ? found : from, is_inside);
        } else {
#pragma unroll
            for (int e = 0; e < PACK; e++)
                to[i * STRIDE + e] = is_there && j + e < WIDTH ? found[e] : T();
        }
        found += AT_ONCE * row;
    }
}

// What a mask's element makes of a score.
template <class F> GF F gf_with_mask(F score, gf_no_mask) { return score; }
template <class F> GF F gf_with_mask(F score, unsigned char is_seen) {
    return is_seen ? score : -(F)gf_inf();
}
template <class F, class T> GF F gf_with_mask(F score, T added) {
    return score + gf_memory<T>::template load<F>(added);
}

// Where a warp's scores lie among all: the first query and key, how many of these there are still,
// and how many more keys than one the first query sees of them, if causal.
struct gf_corner { gf_i64 query, key; int queries, keys, ahead; };

// Makes scores of products: scaled, masked; -inf where the mask hides the key, or there is none.
template <class P, bool OF_KEYS, bool IS_WHOLE>
GF void gf_mask_tile(
    typename P::F (&s)[P::M][P::N][4], gf_corner corner, const typename P::Mask* mask, gf_i64 down,
    gf_i64 along
) {
    typedef typename P::F F;
    const int g = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < P::M; m++) {
#pragma unroll
        for (int n = 0; n < P::N; n++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int i = 16 * m + g + c / 2 * 8, j = 8 * n + t + c % 2;
                const int q = OF_KEYS ? j : i, k = OF_KEYS ? i : j;
                F& one = s[m][n][c];
                if (P::is_early()) one = one * P::scale();
                // Elements that are not there are read in the place of the last one.
                const int at = IS_WHOLE || q < corner.queries ? q : corner.queries - 1;
                const int of = IS_WHOLE || k < corner.keys ? k : corner.keys - 1;
                if constexpr (P::HAS_MASK) one = gf_with_mask(one, mask[at * down + of * along]);
                if (!IS_WHOLE && (at != q || of != k || (P::CAUSAL && k > q + corner.ahead)))
                    one = -(F)gf_inf();
            }
        }
    }
}

// The same for the tile whose first row is `row`, of the warp, and first column `column`; there are
// some of both.
template <class P, bool OF_KEYS>
GF void gf_masked(
    typename P::F (&s)[P::M][P::N][4], const gf_attention_sizes<P>& sizes, gf_i64 row, gf_i64 column,
    const typename P::Mask* mask, gf_place of_mask
) {
    enum { QUERIES = OF_KEYS ? P::COLUMNS : 16 * P::M, KEYS = OF_KEYS ? 16 * P::M : P::COLUMNS };
    gf_corner corner;
    corner.query = OF_KEYS ? column : row;
    corner.key = OF_KEYS ? row : column;
    corner.queries = gf_at_most(sizes.queries - corner.query, QUERIES);
    corner.keys = gf_at_most(sizes.keys - corner.key, KEYS);
    corner.ahead = gf_at_most(corner.query - corner.key, QUERIES + KEYS);
    const gf_i64 down = P::MASK_HAS_ROWS ? of_mask.row : 0;
    const gf_i64 along = P::MASK_IN_ROWS ? 1 : sizes.column;
    if (P::HAS_MASK) mask += of_mask.begin + corner.query * down + corner.key * along;
    const bool is_whole = corner.queries == QUERIES && corner.keys == KEYS;
    if (is_whole && (!P::CAUSAL || corner.ahead >= KEYS - 1)) {
        if (P::HAS_MASK || P::is_early())
            gf_mask_tile<P, OF_KEYS, true>(s, corner, mask, down, along);
    } else {
        gf_mask_tile<P, OF_KEYS, false>(s, corner, mask, down, along);
    }
}

// Writes the tiles of a warp's results, each times a factor: [16 M, 8 TILES], from `column` on.
template <class P, int TILES, int WIDTH>
GF void gf_write(
    const typename P::F (&s)[P::M][TILES][4], typename P::T* to, gf_place place, gf_i64 row,
    gf_i64 rows, int column, const typename P::F (&factors)[P::M][2]
) {
    typedef typename P::T T;
    const int lane = (int)threadIdx.x % 32;
    to += place.begin;
    const bool in_pairs = ((gf_u64)to | (gf_u64)place.row * sizeof(T)) % (2 * sizeof(T)) == 0;
#pragma unroll
    for (int m = 0; m < P::M; m++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const gf_i64 i = row + 16 * m + lane / 4 + 8 * half;
            if (i >= rows) continue;
            T* own = to + i * place.row;
#pragma unroll
            for (int e = 0; e < TILES; e++) {
                const int j = column + 8 * e + lane % 4 * 2;
                gf_pack<T, 2> both;
#pragma unroll
                for (int c = 0; c < 2; c++)
                    both.at[c] = gf_memory<T>::made(s[m][e][2 * half + c] * factors[m][half]);
                if (in_pairs && j + 1 < WIDTH) {
                    *(gf_pack<T, 2>*)(own + j) = both;
                } else {
                    if (j < WIDTH) own[j] = both.at[0];
                    if (j + 1 < WIDTH) own[j + 1] = both.at[1];
                }
            }
        }
    }
}
