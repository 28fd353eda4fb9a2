// Copying boxes: see special/moves.py.

// Element n of a box with R dims, or V elements in a row of its last one.
template <int R, int V, class T>
GF void gf_move(
    const T* x, T* y, gf_index n, const gf_index* dims, const gf_index* from, const gf_index* to
) {
    gf_index source = 0, target = 0;
#pragma unroll
    for (int r = R - 1; r >= 0; r--) {
        const gf_index places = r == R - 1 ? dims[r] / V : dims[r];
        const gf_index left = r == 0 ? 0 : (gf_index)((gf_count)n / (gf_count)places);
        const gf_index at = (n - left * places) * (r == R - 1 ? V : 1);
        source += at * from[r];
        target += at * to[r];
        n = left;
    }
    typedef gf_pack<T, V> pack;
    // An output that is written over its source has some elements already.
    if (x + source != y + target) *(pack*)(y + target) = *(const pack*)(x + source);
}
