// index_add and index_set: see special/scatter.py.

#define GF_CHUNK 1024

// Sort the keys of one chunk, each by a thread of a block: equal ones stay in order.
GF void gf_sort_chunk(gf_i64 key, gf_index first, gf_index count, gf_i64* sorted, gf_i64* order) {
    __shared__ gf_i64 keys[GF_CHUNK];
    const gf_index own = (gf_index)threadIdx.x, length = min(count - first, (gf_index)GF_CHUNK);
    __syncthreads();
    keys[own] = key;
    __syncthreads();
    if (own >= length) return;
    gf_index rank = 0;
    for (gf_index i = 0; i < length; i++) rank += keys[i] < key || (keys[i] == key && i < own);
    sorted[first + rank] = key;
    order[first + rank] = first + own;
}

// How many of the sorted keys are below one, or with OR_EQUAL not above it.
template <bool OR_EQUAL> GF gf_index gf_below(const gf_i64* keys, gf_index count, gf_i64 key) {
    gf_index low = 0;
    while (count > 0) {
        const gf_index half = count / 2;
        const gf_i64 middle = keys[low + half];
        const bool is_below = OR_EQUAL ? middle <= key : middle < key;
        low = is_below ? low + half + 1 : low;
        count = is_below ? count - half - 1 : half;
    }
    return low;
}

// Join sorted chunks: a key goes behind all that are below it, and behind its equals of chunks
// before.
GF void gf_join_chunks(
    const gf_i64* keys, const gf_i64* order, gf_i64* all_keys, gf_i64* all_order, gf_i64 w0, int*,
    char*
) {
    const gf_index count = (gf_index)w0;
    for (gf_index n = gf_single::first(); n < count; n += gf_single::step()) {
        const gf_i64 key = keys[n];
        const gf_index own = n / GF_CHUNK;
        gf_index place = n % GF_CHUNK;
        for (gf_index chunk = 0, first = 0; first < count; chunk++, first += GF_CHUNK) {
            const gf_index length = min(count - first, (gf_index)GF_CHUNK);
            if (chunk < own) place += gf_below<true>(keys + first, length, key);
            if (chunk > own) place += gf_below<false>(keys + first, length, key);
        }
        all_keys[place] = key;
        all_order[place] = order[n];
    }
}

// How an array [before, middle, last] lies.
struct gf_thirds { gf_index offset, before, middle, last; };

// V elements of a line, those from `column` on; `is_row`: they lie in a row.
template <int V, class T>
GF gf_pack<T, V> gf_line(const T* x, gf_index line, gf_index column, gf_index last, bool is_row) {
    if (is_row) return *(const gf_pack<T, V>*)(x + line + column);
    gf_pack<T, V> found;
#pragma unroll
    for (int k = 0; k < V; k++) found.at[k] = x[line + (column + k) * last];
    return found;
}

// Lines of y: of x, with the values that keys name them for, in order. A group G computes V elements
// by each of its threads, of one line.
template <class G, int V, bool ADDS, class A, class T>
GF void gf_put_lines(
    T* y, const T* x, const T* values, const gf_i64* keys, const gf_i64* order, gf_i64 w0,
    gf_i64 w1, gf_i64 w2, gf_i64 w3, gf_i64 w4, gf_i64 w5, gf_i64 w6, gf_i64 w7, gf_i64 w8,
    gf_i64 w9, gf_i64 w10, gf_i64 w11, int*, char*
) {
    const gf_index before = (gf_index)w0, size = (gf_index)w1, after = (gf_index)w2;
    const gf_index count = (gf_index)w3;
    const gf_thirds of_x = {(gf_index)w4, (gf_index)w5, (gf_index)w6, (gf_index)w7};
    const gf_thirds given = {(gf_index)w8, (gf_index)w9, (gf_index)w10, (gf_index)w11};
    const bool x_is_row = V > 1 && of_x.last == 1, given_is_row = V > 1 && given.last == 1;
    const gf_index pieces = (after - 1) / (G::lanes() * V) + 1;
    for (gf_index n = G::first(); n < before * size * pieces; n += G::step()) {
        const gf_index line = n / pieces, batch = line / size, place = line % size;
        const gf_index column = (n % pieces * G::lanes() + G::lane()) * V;
        const gf_index first = gf_below<false>(keys, count, place);
        gf_index end = first;
        if (first < count && keys[first] == place)
            end = first + gf_below<true>(keys + first, count - first, place);
        if (column >= after) continue;
        const gf_index source = of_x.offset + batch * of_x.before + place * of_x.middle;
        const gf_index rows = given.offset + batch * given.before;
        gf_pack<T, V> found = gf_line<V>(x, source, column, of_x.last, x_is_row);
        if (ADDS && end > first) {
            A sums[V];
#pragma unroll
            for (int k = 0; k < V; k++) sums[k] = gf_memory<T>::template load<A>(found.at[k]);
#pragma unroll 8
            for (gf_index i = first; i < end; i++) {
                const gf_index row = rows + (gf_index)order[i] * given.middle;
                const gf_pack<T, V> more =
                    gf_line<V>(values, row, column, given.last, given_is_row);
#pragma unroll
                for (int k = 0; k < V; k++)
                    sums[k] = gf_add(sums[k], gf_memory<T>::template load<A>(more.at[k]));
            }
#pragma unroll
            for (int k = 0; k < V; k++) found.at[k] = gf_memory<T>::made(sums[k]);
        }
        if (!ADDS && end > first) {
            const gf_index row = rows + (gf_index)order[end - 1] * given.middle;
            found = gf_line<V>(values, row, column, given.last, given_is_row);
        }
        *(gf_pack<T, V>*)(y + line * after + column) = found;
    }
}
