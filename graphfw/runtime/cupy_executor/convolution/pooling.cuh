#ifndef GF_POOLING_KERNELS
#define GF_POOLING_KERNELS
// What windows see, reduced, and put back: a thread for each element of the result. There are
// always three spatial dims; those that are missing have one element.

// Goes to position n of [images, planes, *places].
struct gf_plane {
    gf_index image, plane, at[3];
    GF gf_plane(gf_index n, const gf_places<3>& places, const gf_dims<3>& dims,
                const gf_division& by, gf_index planes) {
        const gf_index over = places.split(dims, n, at);
        image = by(over);
        plane = over - image * planes;
    }
};

// What reductions do with the elements that a window sees, in order.
template <class R, class Op> struct gf_window_join {
    typedef R Result;
    R found;
    GF gf_window_join() : found(Op::first()) {}
    GF void take(R value, gf_index) { found = Op::join(found, value); }
};
// The number of the largest: the first of those that tie, but of NaNs the last. What lies outside
// is the least there is.
template <class R> struct gf_window_number {
    typedef gf_i64 Result;
    gf_i64 found;
    R largest;
    GF gf_window_number() : found(0), largest(gf_limits<R>::least()) {}
    GF void take(R value, gf_index number) {
        if (value > largest || value != value) {
            found = number;
            largest = value;
        }
    }
};

#define GF_POOLING                                                                                 \
    const gf_dims<3> dims = gf_some<3>(GF_DIM(0), GF_DIM(1), GF_DIM(2));                           \
    const gf_places<3> places(dims);                                                               \
    const gf_division by_planes((gf_index)planes);                                                 \
    const gf_index count = (gf_index)(images * planes) * dims.places();                            \
    for (gf_index n = gf_single::first(); n < count; n += gf_single::step())

template <class T, class R, class Join, class Y>
GF void gf_window_reduce(
    const T* x, Y* y, gf_i64 images, gf_i64 planes, gf_i64 begin, gf_i64 image_gap,
    gf_i64 plane_gap, GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), int*, char*
) {
    GF_POOLING {
        const gf_plane own(n, places, dims, by_planes, (gf_index)planes);
        const T* const from = x + ((gf_index)begin + own.image * (gf_index)image_gap
                                   + own.plane * (gf_index)plane_gap);
        Join join;
        gf_index number = 0;
        for (gf_index i = 0; i < dims.at[0].taps; i++) {
            const gf_index a = own.at[0] * dims.at[0].stride + i * dims.at[0].dilation
                - dims.at[0].before;
            for (gf_index j = 0; j < dims.at[1].taps; j++) {
                const gf_index b = own.at[1] * dims.at[1].stride + j * dims.at[1].dilation
                    - dims.at[1].before;
                const bool inside = (gf_count)a < (gf_count)dims.at[0].size
                    && (gf_count)b < (gf_count)dims.at[1].size;
                const T* const row = from + (a * dims.at[0].gap + b * dims.at[1].gap);
                gf_index c = own.at[2] * dims.at[2].stride - dims.at[2].before;
                for (gf_index k = 0; k < dims.at[2].taps; k++, number++) {
                    if (inside && (gf_count)c < (gf_count)dims.at[2].size)
                        join.take(gf_memory<T>::template load<R>(row[c * dims.at[2].gap]), number);
                    c += dims.at[2].dilation;
                }
            }
        }
        y[n] = gf_memory<Y>::made(join.found);
    }
}

// The element of a number in each place; 0 where that is outside.
template <class T, class I>
GF void gf_window_take(
    const T* x, const I* numbers, T* y, gf_i64 images, gf_i64 planes, gf_i64 begin,
    gf_i64 image_gap, gf_i64 plane_gap, GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), int*,
    char*
) {
    const gf_i64 taps = taps0 * taps1 * taps2;
    GF_POOLING {
        const gf_plane own(n, places, dims, by_planes, (gf_index)planes);
        const gf_i64 given = (gf_i64)numbers[n];
        bool inside = (gf_u64)given < (gf_u64)taps;
        gf_index number = inside ? (gf_index)given : 0;
        gf_index offset = (gf_index)begin + own.image * (gf_index)image_gap
            + own.plane * (gf_index)plane_gap;
#pragma unroll
        for (int d = 2; d >= 0; d--) {
            const gf_dim dim = dims.at[d];
            const gf_index place = own.at[d] * dim.stride - dim.before
                + number % dim.taps * dim.dilation;
            number /= dim.taps;
            inside = inside && (gf_count)place < (gf_count)dim.size;
            offset += place * dim.gap;
        }
        T zero = {};
        y[n] = inside ? x[offset] : zero;
    }
}

// The places whose windows see an element, along a dim: from the one that sees it as its first on.
// What steps back from place to place keeps the number of the window's element: 0 and more.
struct gf_seers {
    gf_index place, distance;  // distance: of the element from where the window begins
    GF gf_seers(const gf_dim& dim, const gf_division& by_stride, gf_index i) {
        const gf_index from = i + dim.before;
        place = from >= 0 ? by_stride(from) : -1;
        distance = from - place * dim.stride;
        if (place >= dim.places) {
            distance += (place - dim.places + 1) * dim.stride;
            place = dim.places - 1;
        }
    }
    GF bool on(const gf_dim& dim) const {
        return place >= 0 && distance <= (dim.taps - 1) * dim.dilation;
    }
    GF void back(const gf_dim& dim) {
        place--;
        distance += dim.stride;
    }
};

// Whether what a window has is for its element of a number: without numbers it is for each.
struct gf_all_of_window {};
template <class I> GF bool gf_is_put(const I* numbers, gf_index at, gf_index number) {
    return (gf_i64)numbers[at] == (gf_i64)number;
}
GF bool gf_is_put(const gf_all_of_window*, gf_index, gf_index) { return true; }

// Adds up where an element lies what all windows that see it have for it, in the order of their
// elements. x: [images, planes, *window, *places] by its distances; those of the window are 0 where
// each has one value. Here the sizes of dims are the result's.
template <class T, class R, class I>
GF void gf_window_add(
    const T* x, const I* numbers, T* y, gf_i64 images, gf_i64 planes, gf_i64 begin,
    gf_i64 image_gap, gf_i64 plane_gap, GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2),
    gf_i64 tap_gap0, gf_i64 tap_gap1, gf_i64 tap_gap2
) {
    const gf_dims<3> dims = gf_some<3>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    gf_dims<3> sizes = dims;
#pragma unroll
    for (int d = 0; d < 3; d++) sizes.at[d].places = dims.at[d].size;
    const gf_places<3> elements(sizes);
    const gf_division by_planes((gf_index)planes);
    const gf_division strides[3] = {gf_division(dims.at[0].stride), gf_division(dims.at[1].stride),
                                    gf_division(dims.at[2].stride)};
    const gf_division dilations[3] = {gf_division(dims.at[0].dilation),
                                      gf_division(dims.at[1].dilation),
                                      gf_division(dims.at[2].dilation)};
    const gf_index count = (gf_index)(images * planes) * sizes.places();
    for (gf_index n = gf_single::first(); n < count; n += gf_single::step()) {
        const gf_plane own(n, elements, sizes, by_planes, (gf_index)planes);
        const gf_index plane = own.image * (gf_index)planes + own.plane;
        const T* const from = x + ((gf_index)begin + own.image * (gf_index)image_gap
                                   + own.plane * (gf_index)plane_gap);
        R sum = 0;
        gf_seers a(dims.at[0], strides[0], own.at[0]);
        for (; a.on(dims.at[0]); a.back(dims.at[0])) {
            const gf_index i = dilations[0](a.distance);
            if (i * dims.at[0].dilation != a.distance) continue;
            gf_seers b(dims.at[1], strides[1], own.at[1]);
            for (; b.on(dims.at[1]); b.back(dims.at[1])) {
                const gf_index j = dilations[1](b.distance);
                if (j * dims.at[1].dilation != b.distance) continue;
                const gf_index row = (plane * dims.at[0].places + a.place) * dims.at[1].places
                    + b.place;
                const gf_index taps = (i * dims.at[1].taps + j) * dims.at[2].taps;
                const T* const line = from + (a.place * dims.at[0].gap + b.place * dims.at[1].gap
                                              + i * (gf_index)tap_gap0 + j * (gf_index)tap_gap1);
                gf_seers c(dims.at[2], strides[2], own.at[2]);
                for (; c.on(dims.at[2]); c.back(dims.at[2])) {
                    const gf_index k = dilations[2](c.distance);
                    if (k * dims.at[2].dilation != c.distance) continue;
                    if (!gf_is_put(numbers, row * dims.at[2].places + c.place, taps + k)) continue;
                    const T value = line[c.place * dims.at[2].gap + k * (gf_index)tap_gap2];
                    sum = gf_add(sum, gf_memory<T>::template load<R>(value));
                }
            }
        }
        y[n] = gf_memory<T>::made(sum);
    }
}
template <class T, class R, class I>
GF void gf_window_put(
    const T* x, const I* numbers, T* y, gf_i64 images, gf_i64 planes, gf_i64 begin,
    gf_i64 image_gap, gf_i64 plane_gap, GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), int*,
    char*
) {
    gf_window_add<T, R, I>(
        x, numbers, y, images, planes, begin, image_gap, plane_gap, GF_DIM_ARGUMENTS(0),
        GF_DIM_ARGUMENTS(1), GF_DIM_ARGUMENTS(2), 0, 0, 0);
}
template <class T, class R>
GF void gf_fold(
    const T* x, T* y, gf_i64 images, gf_i64 planes, gf_i64 begin, gf_i64 image_gap,
    gf_i64 plane_gap, GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), gf_i64 tap_gap0,
    gf_i64 tap_gap1, gf_i64 tap_gap2, int*, char*
) {
    gf_window_add<T, R, gf_all_of_window>(
        x, nullptr, y, images, planes, begin, image_gap, plane_gap, GF_DIM_ARGUMENTS(0),
        GF_DIM_ARGUMENTS(1), GF_DIM_ARGUMENTS(2), tap_gap0, tap_gap1, tap_gap2);
}
#endif
