#ifndef GF_WINDOWS
#define GF_WINDOWS
// Windows that slide over spatial dims: which element of an image which element of a window sees in
// which place. There is no padding in memory: what lies outside of the image is 0.

GF float gf_multiply_add(float x, float y, float z) { return fmaf(x, y, z); }
GF double gf_multiply_add(double x, double y, double z) { return fma(x, y, z); }

// Whole quotients by a number that is used often: a multiplication and a shift (T. Granlund and
// P. Montgomery, "Division by invariant integers using multiplication", 1994).
#ifdef GF_WIDE
struct gf_division {
    gf_count by;
    GF gf_division() {}
    GF explicit gf_division(gf_index number) : by(number > 0 ? (gf_count)number : 1) {}
    GF gf_index operator()(gf_index x) const { return (gf_index)((gf_count)x / by); }
};
#else
struct gf_division {
    unsigned factor, shift;
    GF gf_division() {}
    GF explicit gf_division(gf_index number) : shift(0) {
        const gf_u64 by = number > 0 ? (gf_u64)number : 1;
        while ((1ull << shift) < by) shift++;
        factor = (unsigned)((((1ull << shift) - by) << 32) / by + 1);
    }
    // x is not below 0.
    GF gf_index operator()(gf_index x) const {
        const unsigned high = (unsigned)(((gf_u64)(unsigned)x * factor) >> 32);
        return (gf_index)((high + (unsigned)x) >> shift);
    }
};
#endif

// A spatial dim. In place p, element k of the window sees element
// p * stride + k * dilation - before of the image; these are `gap` apart in memory.
struct gf_dim { gf_index size, gap, places, taps, stride, dilation, before; };

#define GF_DIM_PARAMS(d)                                                                           \
    gf_i64 size##d, gf_i64 gap##d, gf_i64 places##d, gf_i64 taps##d, gf_i64 stride##d,           \
        gf_i64 dilation##d, gf_i64 before##d
#define GF_DIM_ARGUMENTS(d)                                                                        \
    size##d, gap##d, places##d, taps##d, stride##d, dilation##d, before##d
#define GF_DIM(d)                                                                                  \
    {(gf_index)size##d, (gf_index)gap##d, (gf_index)places##d, (gf_index)taps##d,                \
     (gf_index)stride##d, (gf_index)dilation##d, (gf_index)before##d}

template <int RANK> struct gf_dims {
    gf_dim at[RANK];
    GF gf_index places() const {
        gf_index all = 1;
#pragma unroll
        for (int d = 0; d < RANK; d++) all *= at[d].places;
        return all;
    }
    GF gf_index taps() const {
        gf_index all = 1;
#pragma unroll
        for (int d = 0; d < RANK; d++) all *= at[d].taps;
        return all;
    }
};

template <int RANK> GF gf_dims<RANK> gf_some(gf_dim a, gf_dim b, gf_dim c) {
    const gf_dim all[3] = {a, b, c};
    gf_dims<RANK> found;
#pragma unroll
    for (int d = 0; d < RANK; d++) found.at[d] = all[d];
    return found;
}

// Numbers of places, all images' in a row, taken apart.
template <int RANK> struct gf_places {
    gf_division by[RANK];
    GF explicit gf_places(const gf_dims<RANK>& dims) {
#pragma unroll
        for (int d = 0; d < RANK; d++) by[d] = gf_division(dims.at[d].places);
    }
    // Returns the image, and in `found` the place in it.
    GF gf_index split(const gf_dims<RANK>& dims, gf_index number, gf_index* found) const {
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const gf_index rest = by[d](number);
            found[d] = number - rest * dims.at[d].places;
            number = rest;
        }
        return number;
    }
};

// What a window sees in one place, one element after the other: of each tap all channels.
template <int RANK> struct gf_walk {
    const gf_dims<RANK>& dims;
    const gf_index channels, channel_gap;
    gf_index start[RANK], base;  // what the first element of the window sees; the image's begin
    gf_index tap[RANK], channel;
    gf_index offset;             // where the element lies
    bool inside;                 // whether it does

    GF gf_walk(const gf_dims<RANK>& dims, gf_index channels, gf_index channel_gap)
        : dims(dims), channels(channels), channel_gap(channel_gap) {}
    GF void stand(gf_index begin, const gf_index* place) {
        base = begin;
#pragma unroll
        for (int d = 0; d < RANK; d++)
            start[d] = place[d] * dims.at[d].stride - dims.at[d].before;
    }
    GF void find() {
        inside = true;
        offset = base + channel * channel_gap;
#pragma unroll
        for (int d = 0; d < RANK; d++) {
            const gf_index i = start[d] + tap[d] * dims.at[d].dilation;
            inside = inside && (gf_count)i < (gf_count)dims.at[d].size;
            offset += i * dims.at[d].gap;
        }
    }
    // Goes to element number k of all that is seen, without looking.
    GF void go(gf_index k, const gf_division& by_channels) {
        gf_index number = by_channels(k);
        channel = k - number * channels;
#pragma unroll
        for (int d = RANK - 1; d > 0; d--) {
            const gf_index size = dims.at[d].taps > 0 ? dims.at[d].taps : 1;
            const gf_index rest = (gf_index)((gf_count)number / (gf_count)size);
            tap[d] = number - rest * size;
            number = rest;
        }
        tap[0] = number;
    }
    GF void next() {
        channel++;
        offset += channel_gap;
        if (channel < channels) return;
        channel = 0;
        next_tap();
        find();
    }
    GF void next_tap() {
        tap[RANK - 1]++;
#pragma unroll
        for (int d = RANK - 1; d > 0; d--) {
            if (tap[d] < dims.at[d].taps) break;
            tap[d] = 0;
            tap[d - 1]++;
        }
    }
};
#endif
