// The gradients, as algorithm 2 of the same paper computes them, weights again from the scores,
// lse and rest. There all blocks add to d_q; here blocks of queries compute it, going through the keys,
// and blocks of keys d_k and d_v, going through the queries (OF_KEYS). So nobody waits for others,
// and every sum has one order; the weights are computed twice.
//
// To both this is the same: rows of two matrices stay in the block's memory, those of two others pass
// through it, COLUMNS at a time, the next ones on their way meanwhile. Scores are own passingᵀ, the
// weights' gradients own_other passing_otherᵀ:
//
//                own   own_other   passing   passing_other
//   of queries   q     d_out       k         v               d_q += dS k
//   of keys      k     v           q         d_out           d_k += dSᵀ q, d_v += Pᵀ d_out
template <class P, bool OF_KEYS> GF void gf_attention_grad_of(
    const typename P::Mask* mask, const typename P::T* own, const typename P::T* own_other,
    const typename P::T* passing, const typename P::T* passing_other, const typename P::F* lse,
    const typename P::F* rest, const typename P::F* delta, typename P::T* gradient,
    typename P::T* value_gradient, const gf_i64* words, int count
) {
    typedef typename P::T T;
    typedef typename P::F F;
    typedef typename P::Engine Engine;
    enum { STAGE = P::COLUMNS * (P::STRIDE + P::VALUE_STRIDE), OUTPUTS = OF_KEYS ? 2 : 1 };
    const gf_attention_sizes<P> sizes(words, count, OF_KEYS);
    const gf_place of_own = sizes.place(0), of_own_other = sizes.place(1);
    const gf_place of_passing = sizes.place(2), of_passing_other = sizes.place(3);
    const gf_place of_lse = sizes.place(4), of_rest = sizes.place(5), of_delta = sizes.place(6);
    const gf_place of_mask = P::HAS_MASK ? sizes.place(7 + OUTPUTS) : gf_place();
    own += of_own.begin;
    own_other += of_own_other.begin;
    passing += of_passing.begin;
    passing_other += of_passing_other.begin;
    lse += of_lse.begin;
    rest += of_rest.begin;
    delta += of_delta.begin;
    const bool in_16 = gf_in_16_bytes<T, P::WIDTH>(passing, of_passing.row);
    const bool other_in_16 = gf_in_16_bytes<T, P::VALUE_WIDTH>(passing_other, of_passing_other.row);
    T* held = (T*)gf_dynamic();
    T* held_other = held + P::ROWS * P::STRIDE;
    T* stages = held_other + P::ROWS * P::VALUE_STRIDE;
    F* numbers = (F*)(stages + 2 * STAGE);  // lse, rest, delta of queries that pass, twice

    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int group = warp / P::SPLIT, slice = warp % P::SPLIT;
    const gf_i64 first = (gf_i64)sizes.tile * P::ROWS, row = first + 16 * P::M * group;
    const gf_i64 rows = OF_KEYS ? sizes.keys : sizes.queries;
    gf_i64 begin = 0, end = OF_KEYS ? sizes.queries : sizes.keys;
    if (P::CAUSAL && OF_KEYS) begin = first / P::COLUMNS * P::COLUMNS;
    if (P::CAUSAL && !OF_KEYS && end > first + P::ROWS) end = first + P::ROWS;

    const auto fetch = [&](gf_i64 column, int stage) {
        T* to = stages + stage * STAGE;
        gf_fetch<T, P::COLUMNS, P::WIDTH, P::PADDED, P::STRIDE, P::THREADS>(
            to, passing, of_passing.row, column, end, in_16);
        gf_fetch<T, P::COLUMNS, P::VALUE_WIDTH, P::VALUE_PADDED, P::VALUE_STRIDE, P::THREADS>(
            to + P::COLUMNS * P::STRIDE, passing_other, of_passing_other.row, column, end,
            other_in_16);
        gf_copies_done();
        if (OF_KEYS)
            for (int i = (int)threadIdx.x; i < P::COLUMNS; i += P::THREADS) {
                const bool is_there = column + i < end;
                const F one = is_there ? rest[(column + i) * of_rest.row] : (F)0;
                F* number = numbers + stage * 3 * P::COLUMNS + i;
                number[0] = is_there ? P::of_lse(lse[(column + i) * of_lse.row], one) : (F)0;
                number[P::COLUMNS] = P::of_rest(one);
                number[2 * P::COLUMNS] = is_there ? delta[(column + i) * of_delta.row] : (F)0;
            }
    };

    F sums[P::M][P::TILES][4] = {};
    F value_sums[P::M][OF_KEYS ? P::VALUE_TILES : 1][4] = {};
    F lses[P::M][2] = {}, rests[P::M][2] = {}, deltas[P::M][2] = {};
    F factors[P::M][2], ones[P::M][2];
#pragma unroll
    for (int i = 0; i < 2 * P::M; i++) {
        const gf_i64 at = row + 16 * (i / 2) + lane / 4 + i % 2 * 8;
        factors[i / 2][i % 2] = P::scale();
        ones[i / 2][i % 2] = (F)1;
        if (!OF_KEYS && at < rows) {
            const F one = rest[at * of_rest.row];
            lses[i / 2][i % 2] = P::of_lse(lse[at * of_lse.row], one);
            rests[i / 2][i % 2] = P::of_rest(one);
            deltas[i / 2][i % 2] = delta[at * of_delta.row];
        }
    }
    if (begin < end) {
        gf_fetch<T, P::ROWS, P::WIDTH, P::PADDED, P::STRIDE, P::THREADS>(
            held, own, of_own.row, first, rows, gf_in_16_bytes<T, P::WIDTH>(own, of_own.row));
        gf_fetch<T, P::ROWS, P::VALUE_WIDTH, P::VALUE_PADDED, P::VALUE_STRIDE, P::THREADS>(
            held_other, own_other, of_own_other.row, first, rows,
            gf_in_16_bytes<T, P::VALUE_WIDTH>(own_other, of_own_other.row));
        fetch(begin, 0);
    }
    int stage = 0;
    for (gf_i64 column = begin; column < end; column += P::COLUMNS, stage ^= 1) {
        gf_wait_copies<0>();
        __syncthreads();  // all that passes is there, and nobody reads what passed before any more
        if (column + P::COLUMNS < end) fetch(column + P::COLUMNS, stage ^ 1);
        if (row >= rows) continue;
        if (P::CAUSAL && (OF_KEYS ? row >= column + P::COLUMNS : column >= row + 16 * P::M)) continue;
        const T* now = stages + stage * STAGE;
        const T* now_other = now + P::COLUMNS * P::STRIDE;
        const F* number = numbers + stage * 3 * P::COLUMNS + lane % 4 * 2;
        F p[P::M][P::N][4] = {}, d_s[P::M][P::N][4] = {};
        Engine::template scores<P::M, P::N, P::PADDED, P::STRIDE>(
            p, held + 16 * P::M * group * P::STRIDE, now);
        gf_masked<P, OF_KEYS>(p, sizes, row, column, mask, of_mask);
        Engine::template scores<P::M, P::N, P::VALUE_PADDED, P::VALUE_STRIDE>(
            d_s, held_other + 16 * P::M * group * P::VALUE_STRIDE, now_other);
#pragma unroll
        for (int n = 0; n < P::N; n++) {
#pragma unroll
            for (int i = 0; i < 4 * P::M; i++) {
                const int m = i / 4, c = i % 4;
                const F* own = number + 8 * n + c % 2;
                const F base = OF_KEYS ? own[0] : lses[m][c / 2];
                const F more = OF_KEYS ? own[P::COLUMNS] : rests[m][c / 2];
                const F less = OF_KEYS ? own[2 * P::COLUMNS] : deltas[m][c / 2];
                p[m][n][c] = P::weight_by_lse(p[m][n][c], base, more);
                d_s[m][n][c] = p[m][n][c] * (d_s[m][n][c] - less);
            }
        }
        if constexpr (OF_KEYS)
            Engine::template weighted<P::M, P::N, P::VALUE_TILES, P::VALUE_STRIDE>(
                value_sums, p, now_other + 8 * P::VALUE_TILES * slice);
        Engine::template weighted<P::M, P::N, P::TILES, P::STRIDE>(
            sums, d_s, now + 8 * P::TILES * slice);
    }
    gf_write<P, P::TILES, P::WIDTH>(
        sums, gradient, sizes.place(7), row, rows, 8 * P::TILES * slice, factors);
    if constexpr (OF_KEYS)
        gf_write<P, P::VALUE_TILES, P::VALUE_WIDTH>(
            value_sums, value_gradient, sizes.place(8), row, rows, 8 * P::VALUE_TILES * slice, ones);
}

template <class P, class... Others> GF void gf_attention_grad_of_queries(
    const typename P::T* q, const typename P::T* d_out, const typename P::T* k,
    const typename P::T* v, const typename P::F* lse, const typename P::F* rest,
    const typename P::F* delta, typename P::T* d_q, Others... others
) {
    const gf_i64 words[] = {gf_number(others)...};
    gf_attention_grad_of<P, false>(
        gf_mask_of<P>(others...), q, d_out, k, v, lse, rest, delta, d_q, nullptr,
        words + P::HAS_MASK, gf_count_of<P>(others...));
}
template <class P, class... Others> GF void gf_attention_grad_of_keys(
    const typename P::T* k, const typename P::T* v, const typename P::T* q,
    const typename P::T* d_out, const typename P::F* lse, const typename P::F* rest,
    const typename P::F* delta, typename P::T* d_k, typename P::T* d_v, Others... others
) {
    const gf_i64 words[] = {gf_number(others)...};
    gf_attention_grad_of<P, true>(
        gf_mask_of<P>(others...), k, v, q, d_out, lse, rest, delta, d_k, d_v,
        words + P::HAS_MASK, gf_count_of<P>(others...));
}
