#ifndef GF_DEPTHWISE
#define GF_DEPTHWISE
// Convolutions whose outputs see one channel each: few products for what is read, so nothing is
// laid out. A warp has places in a row, and its threads read the same weight at once.

#define GF_DEPTHWISE_PARAMS                                                                        \
    gf_i64 images, gf_i64 outputs, gf_i64 multiple, gf_i64 begin, gf_i64 image_gap,                \
        gf_i64 channel_gap, gf_i64 weight_begin, gf_i64 output_gap, GF_DIM_PARAMS(0),              \
        GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), gf_i64 tap_gap0, gf_i64 tap_gap1, gf_i64 tap_gap2,     \
        gf_i64 spread0, gf_i64 spread1, gf_i64 spread2
#define GF_DEPTHWISE_ARGUMENTS                                                                     \
    images, outputs, multiple, begin, image_gap, channel_gap, weight_begin, output_gap,            \
        GF_DIM_ARGUMENTS(0), GF_DIM_ARGUMENTS(1), GF_DIM_ARGUMENTS(2), tap_gap0, tap_gap1,         \
        tap_gap2, spread0, spread1, spread2

// x's elements are `spread` apart, if IS_SPREAD; each output has weights, each channel `multiple`
// outputs. A thread has EACH places, 32 apart; finish(image, output, place, sum) is called for all.
template <class T, class S, int RANK, bool IS_SPREAD, int EACH, class F>
GF void gf_depthwise_with(const T* x, const T* weight, GF_DEPTHWISE_PARAMS, const F& finish) {
    const gf_dims<RANK> dims = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    const gf_index tap_gaps[3] = {(gf_index)tap_gap0, (gf_index)tap_gap1, (gf_index)tap_gap2};
    const gf_index spreads[3] = {(gf_index)spread0, (gf_index)spread1, (gf_index)spread2};
    const gf_places<RANK> places(dims);
    const gf_index size = dims.places(), taps = dims.taps();
    const gf_index runs = (size + 32 * EACH - 1) / (32 * EACH);
    const gf_index count = (gf_index)(images * outputs) * runs;
    for (gf_index n = gf_warp::first(); n < count; n += gf_warp::step()) {
        const gf_index plane = n / runs;
        const gf_index first = n % runs * (32 * EACH) + (gf_index)(threadIdx.x % 32);
        const gf_index output = plane % (gf_index)outputs, image = plane / (gf_index)outputs;
        const T* const from = x + ((gf_index)begin + image * (gf_index)image_gap
                                   + output / (gf_index)multiple * (gf_index)channel_gap);
        gf_index start[EACH][RANK];
        S sums[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            gf_index at[RANK];
            places.split(dims, min(first + 32 * i, size - 1), at);
#pragma unroll
            for (int d = 0; d < RANK; d++)
                start[i][d] = at[d] * dims.at[d].stride - dims.at[d].before;
            sums[i] = 0;
        }
        gf_walk<RANK> walk(dims, 1, 0);  // for its taps
#pragma unroll
        for (int d = 0; d < RANK; d++) walk.tap[d] = 0;
        for (gf_index tap = 0; tap < taps; tap++, walk.next_tap()) {
            gf_index of_weight = (gf_index)weight_begin + output * (gf_index)output_gap;
#pragma unroll
            for (int d = 0; d < RANK; d++) of_weight += walk.tap[d] * tap_gaps[d];
            const S factor = gf_memory<T>::template load<S>(weight[of_weight]);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                bool inside = true;
                gf_index offset = 0;
#pragma unroll
                for (int d = 0; d < RANK; d++) {
                    gf_index at = start[i][d] + walk.tap[d] * dims.at[d].dilation;
                    if (IS_SPREAD) {
                        inside = inside && at >= 0 && at % spreads[d] == 0;
                        at /= spreads[d];
                    }
                    inside = inside && (gf_count)at < (gf_count)dims.at[d].size;
                    offset += at * dims.at[d].gap;
                }
                const S value = inside ? gf_memory<T>::template load<S>(from[offset]) : (S)0;
                sums[i] = gf_multiply_add(factor, value, sums[i]);
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (first + 32 * i < size)
                finish(image, output, first + 32 * i, sums[i]);
    }
}

// The gradient of such weights. A block adds up, over a piece of all places, what TAPS taps of one
// output see: [pieces, outputs, taps].
template <class T, class S, int RANK, int TAPS>
GF void gf_depthwise_weight(
    const T* x, const T* y, S* found, gf_i64 images, gf_i64 outputs, gf_i64 multiple,
    gf_i64 x_begin, gf_i64 x_image, gf_i64 x_channel, gf_i64 y_begin, gf_i64 y_image,
    gf_i64 y_output, gf_i64 pieces,
    GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), int*, char*
) {
    const gf_dims<RANK> dims = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    const gf_places<RANK> places(dims);
    const gf_index size = dims.places(), taps = dims.taps(), depth = (gf_index)images * size;
    const gf_index chunks = (taps + TAPS - 1) / TAPS;
    gf_index block = (gf_index)blockIdx.x;
    const gf_index first = block % chunks * TAPS;
    block /= chunks;
    const gf_index output = block % (gf_index)outputs, piece = block / (gf_index)outputs;
    const T* const of_x = x + ((gf_index)x_begin
                               + output / (gf_index)multiple * (gf_index)x_channel);
    const T* const of_y = y + ((gf_index)y_begin + output * (gf_index)y_output);
    gf_walk<RANK> walk(dims, 1, 0);
    walk.go(first, gf_division(1));
    gf_index taps_at[TAPS][RANK];
    S sums[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; i++, walk.next_tap()) {
        sums[i] = 0;
#pragma unroll
        for (int d = 0; d < RANK; d++) taps_at[i][d] = walk.tap[d] * dims.at[d].dilation;
    }
    const gf_index each = (depth + (gf_index)pieces - 1) / (gf_index)pieces;
    const gf_index end = min((piece + 1) * each, depth);
    for (gf_index k = piece * each + (gf_index)threadIdx.x; k < end; k += (gf_index)blockDim.x) {
        gf_index at[RANK];
        const gf_index image = places.split(dims, k, at), in_image = k - image * size;
        const gf_index from = image * (gf_index)y_image + in_image;
        const S factor = gf_memory<T>::template load<S>(of_y[from]);
#pragma unroll
        for (int d = 0; d < RANK; d++) at[d] = at[d] * dims.at[d].stride - dims.at[d].before;
#pragma unroll
        for (int i = 0; i < TAPS; i++) {
            bool inside = first + i < taps;
            gf_index offset = image * (gf_index)x_image;
#pragma unroll
            for (int d = 0; d < RANK; d++) {
                const gf_index place = at[d] + taps_at[i][d];
                inside = inside && (gf_count)place < (gf_count)dims.at[d].size;
                offset += place * dims.at[d].gap;
            }
            if (!inside) continue;
            const S value = gf_memory<T>::template load<S>(of_x[offset]);
            sums[i] = gf_multiply_add(factor, value, sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        const S sum = gf_block::join<gf_sum<S> >(sums[i]);
        if (threadIdx.x == 0 && first + i < taps)
            found[(piece * (gf_index)outputs + output) * taps + first + i] = sum;
    }
}
#endif
