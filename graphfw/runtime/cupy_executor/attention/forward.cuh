// T. Dao, "FlashAttention-2: Faster attention with better parallelism and work partitioning", 2023,
// algorithm 1: a block has ROWS queries and goes through the keys, COLUMNS of them at a time. Each
// row keeps the largest score so far, the sum of the weights relative to it, and the sum of the
// values so weighted; what it has is scaled anew where a larger score comes. Values are copied while
// scores are computed, the next keys while values are added up.
//
// Where there are few blocks several of them (gridDim.y) share rows, with some of the keys each.
// They leave what they have in scratch memory, where the last one joins it, in order.
template <class P> GF bool gf_joined(
    typename P::F (&sums)[P::M][P::VALUE_TILES][4], typename P::F (&total)[P::M][2],
    typename P::F (&top)[P::M][2], int* failed, typename P::F* scratch
) {
    typedef typename P::F F;
    enum { SUMS = 2 * P::VALUE_TILES, EACH = 2 * P::M * (2 + SUMS) };  // numbers of a thread
    scratch += (gf_i64)blockIdx.x * gridDim.y * EACH * P::THREADS + threadIdx.x;
    F* own = scratch + (gf_i64)blockIdx.y * EACH * P::THREADS;
#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) {
        F* at = own + i * (2 + SUMS) * P::THREADS;
        at[0] = top[i / 2][i % 2];
        at[P::THREADS] = total[i / 2][i % 2];
#pragma unroll
        for (int j = 0; j < SUMS; j++)
            at[(2 + j) * P::THREADS] = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
    }
    if (!gf_is_last(failed + 1 + blockIdx.x)) return false;
#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) {
        F& largest = top[i / 2][i % 2];
        F& all = total[i / 2][i % 2];
        largest = -(F)gf_inf();
        all = 0;
#pragma unroll
        for (int j = 0; j < SUMS; j++) sums[i / 2][j / 2][i % 2 * 2 + j % 2] = 0;
#pragma unroll 1
        for (unsigned piece = 0; piece < gridDim.y; piece++) {
            const F* at = scratch + ((gf_i64)piece * EACH + i * (2 + SUMS)) * P::THREADS;
            const F next = gf_larger(largest, at[0]);
            const F base = next == -(F)gf_inf() ? (F)0 : next;
            const F factor = P::weight(largest, base), other = P::weight(at[0], base);
            largest = next;
            all = all * factor + at[P::THREADS] * other;
#pragma unroll
            for (int j = 0; j < SUMS; j++) {
                F& one = sums[i / 2][j / 2][i % 2 * 2 + j % 2];
                one = one * factor + at[(2 + j) * P::THREADS] * other;
            }
        }
    }
    return true;
}

template <class P> GF void gf_attention_of(
    const typename P::Mask* mask, const typename P::T* q, const typename P::T* k,
    const typename P::T* v, typename P::T* out, typename P::F* lse, typename P::F* rest,
    const gf_i64* words, int count
) {
    typedef typename P::T T;
    typedef typename P::F F;
    typedef typename P::Engine Engine;
    const gf_attention_sizes<P> sizes(words, count, false);
    const gf_place of_q = sizes.place(0), of_k = sizes.place(1), of_v = sizes.place(2);
    const gf_place of_out = sizes.place(3), of_lse = sizes.place(4), of_rest = sizes.place(5);
    const gf_place of_mask = P::HAS_MASK ? sizes.place(6) : gf_place();
    q += of_q.begin;
    k += of_k.begin;
    v += of_v.begin;
    const bool k_in_16 = gf_in_16_bytes<T, P::WIDTH>(k, of_k.row);
    const bool v_in_16 = gf_in_16_bytes<T, P::VALUE_WIDTH>(v, of_v.row);
    T* queries = (T*)gf_dynamic();
    T* keys = queries + P::ROWS * P::STRIDE;
    T* values = keys + P::COLUMNS * P::STRIDE;

    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = warp / P::SPLIT, slice = warp % P::SPLIT;
    const gf_i64 first = (gf_i64)sizes.tile * P::ROWS, row = first + 16 * P::M * group;
    gf_i64 begin = 0, end = sizes.keys;
    if (P::CAUSAL && end > first + P::ROWS) end = first + P::ROWS;
    const bool is_shared = P::CAN_SHARE && gridDim.y > 1;
    if (is_shared) {
        const gf_i64 tiles = (end + P::COLUMNS - 1) / P::COLUMNS;
        const gf_i64 own = (tiles + gridDim.y - 1) / gridDim.y * P::COLUMNS;
        begin = own * blockIdx.y;
        if (end > begin + own) end = begin + own;
    }

    F sums[P::M][P::VALUE_TILES][4] = {}, total[P::M][2] = {}, top[P::M][2];
#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) top[i / 2][i % 2] = -(F)gf_inf();

    if (begin < end) {
        gf_fetch<T, P::ROWS, P::WIDTH, P::PADDED, P::STRIDE, P::THREADS>(
            queries, q, of_q.row, first, sizes.queries, gf_in_16_bytes<T, P::WIDTH>(q, of_q.row));
        gf_fetch<T, P::COLUMNS, P::WIDTH, P::PADDED, P::STRIDE, P::THREADS>(
            keys, k, of_k.row, begin, sizes.keys, k_in_16);
        gf_copies_done();
    }
    for (gf_i64 column = begin; column < end; column += P::COLUMNS) {
        gf_wait_copies<0>();
        __syncthreads();  // all keys are there, and nobody reads the last values any more
        gf_fetch<T, P::COLUMNS, P::VALUE_WIDTH, P::VALUE_PADDED, P::VALUE_STRIDE, P::THREADS>(
            values, v, of_v.row, column, sizes.keys, v_in_16);
        gf_copies_done();
        F s[P::M][P::N][4] = {};
        const bool is_seen = row < sizes.queries && (!P::CAUSAL || column < row + 16 * P::M);
        if (is_seen) {
            Engine::template scores<P::M, P::N, P::PADDED, P::STRIDE>(
                s, queries + 16 * P::M * group * P::STRIDE, keys);
            gf_masked<P, false>(s, sizes, row, column, mask, of_mask);
#pragma unroll
            for (int i = 0; i < 2 * P::M; i++) {
                const int m = i / 2, half = i % 2;
                F largest = top[m][half];
#pragma unroll
                for (int j = 0; j < 2 * P::N; j++)
                    largest = gf_larger(largest, s[m][j / 2][2 * half + j % 2]);
                largest = gf_larger(largest, gf_from_lane(largest, lane ^ 1));
                largest = gf_larger(largest, gf_from_lane(largest, lane ^ 2));
                // Of a row that has seen no key yet all differences are -inf.
                const F base = largest == -(F)gf_inf() ? (F)0 : largest;
                const F factor = P::weight(top[m][half], base);
                top[m][half] = largest;
                total[m][half] *= factor;
#pragma unroll
                for (int j = 0; j < 2 * P::N; j++) {
                    F& one = s[m][j / 2][2 * half + j % 2];
                    one = P::weight(one, base);
                    total[m][half] += one;
                }
#pragma unroll
                for (int j = 0; j < 2 * P::VALUE_TILES; j++)
                    sums[m][j / 2][2 * half + j % 2] *= factor;
            }
        }
        gf_wait_copies<0>();
        __syncthreads();  // all values are there, and nobody reads the keys any more
        if (column + P::COLUMNS < end) {
            gf_fetch<T, P::COLUMNS, P::WIDTH, P::PADDED, P::STRIDE, P::THREADS>(
                keys, k, of_k.row, column + P::COLUMNS, sizes.keys, k_in_16);
            gf_copies_done();
        }
        if (is_seen)
            Engine::template weighted<P::M, P::N, P::VALUE_TILES, P::VALUE_STRIDE>(
                sums, s, values + 8 * P::VALUE_TILES * slice);
    }

    if (is_shared && !gf_joined<P>(sums, total, top, (int*)words[count], (F*)words[count + 1])) return;
    F factors[P::M][2];
#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) {
        F& all = total[i / 2][i % 2];
        all += gf_from_lane(all, lane ^ 1);
        all += gf_from_lane(all, lane ^ 2);
        factors[i / 2][i % 2] = all == (F)0 ? (F)0 : (F)1 / all;
        const gf_i64 at = row + 16 * (i / 2) + lane / 4 + i % 2 * 8;
        if (slice == 0 && lane % 4 == 0 && at < sizes.queries) {
            const F largest = top[i / 2][i % 2] * (P::is_early() ? (F)1 : P::scale());
            const F log = gf_log(all), both = largest + log;
            const bool is_empty = all == (F)0;
            lse[of_lse.begin + at * of_lse.row] = is_empty ? gf_lowest((F)0) : both;
            rest[of_rest.begin + at * of_rest.row] =
                is_empty ? gf_lowest((F)0) : (largest - both) + log;
        }
    }
    gf_write<P, P::VALUE_TILES, P::VALUE_WIDTH>(
        sums, out, of_out, row, sizes.queries, 8 * P::VALUE_TILES * slice, factors);
}

template <class P, class... Others> GF void gf_attention(
    const typename P::T* q, const typename P::T* k, const typename P::T* v, typename P::T* out,
    typename P::F* lse, typename P::F* rest, Others... others
) {
    const gf_i64 words[] = {gf_number(others)...};
    gf_attention_of<P>(
        gf_mask_of<P>(others...), q, k, v, out, lse, rest, words + P::HAS_MASK,
        gf_count_of<P>(others...));
}
