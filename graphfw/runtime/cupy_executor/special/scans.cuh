// cumulative_sum, cumulative_prod and recurrence: see special/scans.py.

// How an array [before, size, after] lies.
struct gf_scanned { gf_index offset, before, middle, last; };

enum { GF_SUM, GF_PROD, GF_RECURRENCE };

// What comes before the first element: -0 is what changes no sum, and is 0 of integers.
template <int KIND, class A> GF A gf_scan_start() { return KIND == GF_PROD ? (A)1 : (A)0; }
template <> GF float gf_scan_start<GF_SUM, float>() { return -0.0f; }
template <> GF double gf_scan_start<GF_SUM, double>() { return -0.0; }

// A thread for each line, from one element to the next. x is a factor for recurrences, z the term.
template <int KIND, bool REVERSE, bool EXCLUSIVE, class A, class T>
GF void gf_scan_lines(
    T* y, const T* x, const T* z, gf_index before, gf_index size, gf_index after, gf_scanned of_x,
    gf_scanned of_z
) {
    for (gf_index n = gf_single::first(); n < before * after; n += gf_single::step()) {
        const gf_index batch = n / after, column = n % after;
        const gf_index from = of_x.offset + batch * of_x.before + column * of_x.last;
        const gf_index other = of_z.offset + batch * of_z.before + column * of_z.last;
        const gf_index to = batch * size * after + column;
        A state = gf_scan_start<KIND, A>();
        for (gf_index i = 0; i < size; i++) {
            const gf_index at = REVERSE ? size - 1 - i : i;
            const A value = gf_memory<T>::template load<A>(x[from + at * of_x.middle]);
            A result = state;
            if (KIND == GF_RECURRENCE) {
                const A term = gf_memory<T>::template load<A>(z[other + at * of_z.middle]);
                state = gf_add(gf_mul(value, state), term);
            } else {
                state = KIND == GF_SUM ? gf_add(state, value) : gf_mul(state, value);
                if (!EXCLUSIVE) result = state;
                else if (i == 0) result = (A)(KIND == GF_PROD);
            }
            y[to + at * after] = gf_memory<T>::made(result);
        }
    }
}

// A block for each line of sums, whose elements are beside each other: its threads take one element
// each, and add up what those before them have, twice as many at a time.
template <bool REVERSE, bool EXCLUSIVE, class A, class T>
GF void gf_scan_rows(
    T* y, const T* x, gf_index before, gf_index size, gf_scanned of_x
) {
    __shared__ A sums[32];
    const int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
    for (gf_index batch = gf_block::first(); batch < before; batch += gf_block::step()) {
        const gf_index from = of_x.offset + batch * of_x.before, to = batch * size;
        A state = gf_scan_start<GF_SUM, A>();
        for (gf_index first = 0; first < size; first += (gf_index)blockDim.x) {
            const gf_index i = first + (gf_index)threadIdx.x;
            const gf_index at = REVERSE ? size - 1 - i : i;
            const A start = gf_scan_start<GF_SUM, A>();
            const bool is_there = i < size;
            A own = is_there ? gf_memory<T>::template load<A>(x[from + at * of_x.middle]) : start;
#pragma unroll
            for (int far = 1; far < 32; far *= 2) {
                const A other = gf_from_lane(own, (lane - far) & 31);
                if (lane >= far) own = gf_add(other, own);
            }
            A left = gf_from_lane(own, (lane - 1) & 31);
            if (lane == 0) left = start;
            __syncthreads();  // until all have read what was found before
            if (lane == 31) sums[warp] = own;
            __syncthreads();
            A base = state;
            for (int other = 0; other < warp; other++) base = gf_add(base, sums[other]);
            for (unsigned other = 0; other < blockDim.x / 32; other++)
                state = gf_add(state, sums[other]);
            const A result = EXCLUSIVE ? (i == 0 ? (A)0 : gf_add(base, left)) : gf_add(base, own);
            if (is_there) y[to + at] = gf_memory<T>::made(result);
        }
    }
}

#define GF_GIVEN                                                                                   \
    (gf_index)w0, (gf_index)w1, (gf_index)w2, { (gf_index)w3, (gf_index)w4, (gf_index)w5,          \
        (gf_index)w6 }

template <int KIND, bool REVERSE, bool EXCLUSIVE, class A, class T>
GF void gf_cumulative_lines(
    T* y, const T* x, gf_i64 w0, gf_i64 w1, gf_i64 w2, gf_i64 w3, gf_i64 w4, gf_i64 w5, gf_i64 w6,
    int*, char*
) {
    gf_scan_lines<KIND, REVERSE, EXCLUSIVE, A, T>(y, x, x, GF_GIVEN, gf_scanned());
}

template <bool REVERSE, bool EXCLUSIVE, class A, class T>
GF void gf_cumulative_rows(
    T* y, const T* x, gf_i64 w0, gf_i64 w1, gf_i64, gf_i64 w3, gf_i64 w4, gf_i64 w5, gf_i64 w6,
    int*, char*
) {
    const gf_scanned of_x = {(gf_index)w3, (gf_index)w4, (gf_index)w5, (gf_index)w6};
    gf_scan_rows<REVERSE, EXCLUSIVE, A, T>(y, x, (gf_index)w0, (gf_index)w1, of_x);
}

template <bool REVERSE, class A, class T>
GF void gf_recurrence_lines(
    T* y, const T* x, const T* z, gf_i64 w0, gf_i64 w1, gf_i64 w2, gf_i64 w3, gf_i64 w4, gf_i64 w5,
    gf_i64 w6, gf_i64 w7, gf_i64 w8, gf_i64 w9, gf_i64 w10, int*, char*
) {
    const gf_scanned of_z = {(gf_index)w7, (gf_index)w8, (gf_index)w9, (gf_index)w10};
    gf_scan_lines<GF_RECURRENCE, REVERSE, true, A, T>(y, x, z, GF_GIVEN, of_z);
}
