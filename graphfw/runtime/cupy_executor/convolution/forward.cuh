#ifndef GF_FORWARD
#define GF_FORWARD
// Convolutions as matrix products, [outputs of a group, depth] x [depth, places of all images]. The
// depth is all that a window sees: for each of its taps all channels. What places see is gathered
// from the image, tile by tile; weights are laid out as a matrix before.
//
// Where x's elements are spread, places fall into classes: those of a class see the same taps, as
// an ordinary convolution does whose places lie apart. Nothing is multiplied by the zeros between.

// How a spatial dim falls into classes: along it there are `classes` of places, and each class sees
// at most every `every`-th tap.
struct gf_spread { gf_index spread, classes, every; };

#define GF_SPREAD_PARAMS(d) gf_i64 spread##d, gf_i64 classes##d, gf_i64 every##d
#define GF_SPREAD_ARGUMENTS(d) spread##d, classes##d, every##d
#define GF_SPREAD(d) {(gf_index)spread##d, (gf_index)classes##d, (gf_index)every##d}

// One class: an ordinary convolution, and where its places and taps are among all.
template <int RANK> struct gf_class {
    gf_dims<RANK> dims;
    gf_index place[RANK], places_apart[RANK], tap[RANK], taps_apart[RANK], all_places[RANK];

    GF gf_class(const gf_dims<RANK>& all, gf_spread a, gf_spread b, gf_spread c, gf_index number) {
        const gf_spread spreads[3] = {a, b, c};
#pragma unroll
        for (int d = RANK - 1; d >= 0; d--) {
            const gf_spread s = spreads[d];
            const gf_dim one = all.at[d];
            const gf_index p = number % s.classes;
            number /= s.classes;
            gf_index k = 0, from = p * one.stride - one.before;
            for (; k < s.every && from % s.spread != 0; k++) from += one.dilation;
            const bool sees = from % s.spread == 0;
            place[d] = p;
            places_apart[d] = s.classes;
            tap[d] = k;
            taps_apart[d] = s.every;
            all_places[d] = one.places;
            gf_dim& to = dims.at[d];
            to.size = one.size;
            to.gap = one.gap;
            to.places = one.places > p ? (one.places - p + s.classes - 1) / s.classes : 0;
            to.taps = sees && one.taps > k ? (one.taps - k + s.every - 1) / s.every : 0;
            to.stride = one.stride * s.classes / s.spread;
            to.dilation = one.dilation * s.every / s.spread;
            to.before = sees ? -(from / s.spread) : 0;
        }
    }
    // Returns which of all places is meant.
    GF gf_index place_of(const gf_index* at) const {
        gf_index found = 0;
#pragma unroll
        for (int d = 0; d < RANK; d++)
            found = found * all_places[d] + place[d] + at[d] * places_apart[d];
        return found;
    }
};

// Lays weights out for each class and group: [depth][lead], or, BY_DEPTH, [outputs][lead], with
// zeros up to `lead` and, where a class sees fewer taps than others, behind the last.
template <class T, int RANK, bool BY_DEPTH>
GF void gf_conv_pack(
    const T* weight, T* packed, gf_i64 groups, gf_i64 outputs, gf_i64 channels, gf_i64 begin,
    gf_i64 output_gap, gf_i64 channel_gap, gf_i64 lines, gf_i64 lead, GF_DIM_PARAMS(0),
    GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), GF_SPREAD_PARAMS(0), GF_SPREAD_PARAMS(1),
    GF_SPREAD_PARAMS(2), int*, char*
) {
    // Here sizes and gaps are those of the weights.
    const gf_dims<RANK> all = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    const gf_spread spreads[3] = {GF_SPREAD(0), GF_SPREAD(1), GF_SPREAD(2)};
    gf_index count = (gf_index)(groups * lines * lead);
    for (int d = 0; d < RANK; d++) count *= spreads[d].classes;
    for (gf_index n = gf_single::first(); n < count; n += gf_single::step()) {
        const gf_index along = n % (gf_index)lead, line = n / (gf_index)lead % (gf_index)lines;
        const gf_index rest = n / (gf_index)lead / (gf_index)lines;
        const gf_index group = rest % (gf_index)groups, number = rest / (gf_index)groups;
        const gf_class<RANK> one(all, spreads[0], spreads[1], spreads[2], number);
        const gf_index m = BY_DEPTH ? line : along, k = BY_DEPTH ? along : line;
        T value = gf_memory<T>::made(0.0f);
        if (m < (gf_index)outputs && k < one.dims.taps() * (gf_index)channels) {
            gf_index tap = k / (gf_index)channels, at = k % (gf_index)channels;
            at = (gf_index)begin + (group * (gf_index)outputs + m) * (gf_index)output_gap
                + at * (gf_index)channel_gap;
            for (int d = RANK - 1; d >= 0; d--) {
                const gf_index i = tap % one.dims.at[d].taps;
                tap /= one.dims.at[d].taps;
                at += (one.tap[d] + i * one.taps_apart[d]) * all.at[d].gap;
            }
            value = weight[at];
        }
        packed[n] = value;
    }
}

// The matrix of weights, 16 bytes at a time.
template <class Tile> struct gf_weights {
    typedef typename Tile::T T;
    enum {
        V = 16 / sizeof(T),
        WIDTH = (Tile::BY_DEPTH ? Tile::BK : Tile::BM) / V,  // of a line, in vectors
        EACH = Tile::BM * Tile::BK / V / Tile::THREADS
    };
    typedef gf_pack<T, V> P;
    P found[EACH];
    const T* from;
    gf_index lines, lead;  // of the matrix

    GF void read(gf_index row, gf_index k) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int n = (int)threadIdx.x + i * Tile::THREADS;
            const gf_index line = (Tile::BY_DEPTH ? row : k) + n / WIDTH;
            const gf_index along = (Tile::BY_DEPTH ? k : row) + n % WIDTH * V;
            if (line < lines && along < lead)
                found[i] = *(const P*)(from + line * lead + along);
            else
#pragma unroll
                for (int j = 0; j < V; j++) found[i].at[j] = gf_memory<T>::made(0.0f);
        }
    }
    GF void put(T* to) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const int n = (int)threadIdx.x + i * Tile::THREADS;
            *(P*)(to + n / WIDTH * Tile::pitch(Tile::BM) + n % WIDTH * V) = found[i];
        }
    }
};

// What positions see: each thread has a column, and a slice of the depth.
template <class Tile, int RANK> struct gf_seen {
    typedef typename Tile::T T;
    enum { EACH = Tile::BK * Tile::BN / Tile::THREADS };
    T found[EACH];
    const T* x;
    gf_walk<RANK> walk;
    const gf_division by_channels;
    const gf_index depth;
    const bool is_place;

    GF gf_seen(const T* x, const gf_walk<RANK>& walk, gf_index depth, bool is_place)
        : x(x), walk(walk), by_channels(walk.channels), depth(depth), is_place(is_place) {}
    GF static int column() { return (int)threadIdx.x % Tile::BN; }
    GF static int first() { return (int)threadIdx.x / Tile::BN * EACH; }
    GF void read(gf_index k) {
        k += first();
        walk.go(k, by_channels);
        walk.find();
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const bool is_there = is_place && walk.inside && k + i < depth;
            found[i] = is_there ? x[walk.offset] : gf_memory<T>::made(0.0f);
            walk.next();
        }
    }
    GF void put(T* to) const { gf_put_depth<Tile, EACH>(to, Tile::BN, column(), first(), found); }
};

// Of how many pieces the depth is cut into, which chunks belong to one: those from x up to y.
struct gf_range { gf_index begin, end; };
GF gf_range gf_piece(gf_index chunks, gf_index pieces, gf_index number) {
    const gf_index each = (chunks + pieces - 1) / pieces;
    const gf_range found = {min(number * each, chunks), min((number + 1) * each, chunks)};
    return found;
}

#define GF_CONV_PARAMS                                                                             \
    gf_i64 images, gf_i64 groups, gf_i64 outputs, gf_i64 channels, gf_i64 begin, gf_i64 image_gap, \
        gf_i64 channel_gap, gf_i64 weights_begin, gf_i64 lead, gf_i64 slot, gf_i64 pieces,         \
        GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), GF_SPREAD_PARAMS(0),                 \
        GF_SPREAD_PARAMS(1), GF_SPREAD_PARAMS(2)

#define GF_CONV_ARGUMENTS                                                                          \
    images, groups, outputs, channels, begin, image_gap, channel_gap, weights_begin, lead, slot,   \
        pieces, GF_DIM_ARGUMENTS(0), GF_DIM_ARGUMENTS(1), GF_DIM_ARGUMENTS(2),                     \
        GF_SPREAD_ARGUMENTS(0), GF_SPREAD_ARGUMENTS(1), GF_SPREAD_ARGUMENTS(2)

// x: `gf_dim` says where its windows are. packed: the weights as `gf_conv_pack` lays them out,
// `slot` elements for each class and group. finish(piece, image, output, place, sum) is called for
// each element of the result, and each piece that the depth is cut into.
template <class Tile, int RANK, class F>
GF void gf_conv_with(
    const typename Tile::T* x, const typename Tile::T* packed, GF_CONV_PARAMS, const F& finish
) {
    typedef typename Tile::T T;
    typedef gf_operands<Tile> Operands;
    const gf_dims<RANK> all = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    const gf_spread spreads[3] = {GF_SPREAD(0), GF_SPREAD(1), GF_SPREAD(2)};
    // The most places that a class has.
    gf_index most = 1;
#pragma unroll
    for (int d = 0; d < RANK; d++)
        most *= (all.at[d].places + spreads[d].classes - 1) / spreads[d].classes;
    const gf_index tiles_m = ((gf_index)outputs + Tile::BM - 1) / Tile::BM;
    const gf_index tiles_n = ((gf_index)images * most + Tile::BN - 1) / Tile::BN;
    // Neighbouring blocks see the same places.
    gf_index block = (gf_index)blockIdx.x;
    const gf_index row = block % tiles_m * Tile::BM;
    block /= tiles_m;
    const gf_index column = block % tiles_n * Tile::BN;
    block /= tiles_n;
    const gf_index piece = block % (gf_index)pieces;
    block /= (gf_index)pieces;
    const gf_index group = block % (gf_index)groups, number = block / (gf_index)groups;

    const gf_class<RANK> one(all, spreads[0], spreads[1], spreads[2], number);
    const gf_index columns = (gf_index)images * one.dims.places();
    if (column >= columns) return;
    const gf_index depth = one.dims.taps() * (gf_index)channels;

    // Where the columns of the tile are in y: the image, and the place in it; -1: nowhere.
    __shared__ gf_index image_of[Tile::BN], place_of[Tile::BN];
    const gf_places<RANK> places(one.dims);
    gf_walk<RANK> walk(one.dims, (gf_index)channels, (gf_index)channel_gap);
    const gf_index own = column + gf_seen<Tile, RANK>::column();
    const bool is_place = own < columns;
    gf_index at[RANK];
    const gf_index image = places.split(one.dims, is_place ? own : 0, at);
    if ((int)threadIdx.x < Tile::BN) {
        image_of[threadIdx.x] = is_place ? image : -1;
        place_of[threadIdx.x] = one.place_of(at);
    }
    const gf_index first = (gf_index)begin + group * (gf_index)channels * (gf_index)channel_gap;
    walk.stand(first + image * (gf_index)image_gap, at);
    gf_seen<Tile, RANK> seen(x, walk, depth, is_place);
    gf_weights<Tile> weights;
    const gf_index matrix = number * (gf_index)groups + group;
    weights.from = packed + ((gf_index)weights_begin + matrix * (gf_index)slot);
    weights.lines = Tile::BY_DEPTH ? (gf_index)outputs : depth;
    weights.lead = (gf_index)lead;

    Tile tile;
    const gf_range range = gf_piece((depth + Tile::BK - 1) / Tile::BK, (gf_index)pieces, piece);
    if (range.begin < range.end) {
        seen.read(range.begin * Tile::BK);
        weights.read(row, range.begin * Tile::BK);
        seen.put(Operands::b(0));
        weights.put(Operands::a(0));
    }
    __syncthreads();
    int which = 0;
    for (gf_index chunk = range.begin; chunk < range.end; chunk++, which ^= 1) {
        const bool has_next = chunk + 1 < range.end;
        if (has_next) {
            seen.read((chunk + 1) * Tile::BK);
            weights.read(row, (chunk + 1) * Tile::BK);
        }
        tile.multiply(Operands::a(which), Operands::b(which));
        if (has_next) {
            seen.put(Operands::b(which ^ 1));
            weights.put(Operands::a(which ^ 1));
        }
        __syncthreads();
    }
    tile.each([&](int i, int j, typename Tile::S sum) {
        if (image_of[j] >= 0 && row + i < (gf_index)outputs)
            finish(piece, image_of[j], group * (gf_index)outputs + row + i, place_of[j], sum);
    });
}

// found: what each piece of the depth adds to the result, [pieces, images, groups * outputs,
// *places].
template <class Tile, int RANK>
GF void gf_conv_pieces(
    const typename Tile::T* x, const typename Tile::T* packed, typename Tile::S* found,
    GF_CONV_PARAMS, int*, char*
) {
    const gf_index total = (gf_index)groups * (gf_index)outputs;
    const gf_index size = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2)).places();
    gf_conv_with<Tile, RANK>(
        x, packed, GF_CONV_ARGUMENTS,
        [&](gf_index piece, gf_index n, gf_index o, gf_index p, typename Tile::S sum) {
            found[((piece * (gf_index)images + n) * total + o) * size + p] = sum;
        });
}

// Adds up what pieces have found, in order: [pieces, groups, rows, taps, channels]. Where sums go
// is said by distances.
template <class S, class Y>
GF void gf_add_pieces(
    const S* found, Y* y, gf_i64 pieces, gf_i64 groups, gf_i64 rows, gf_i64 taps, gf_i64 channels,
    gf_i64 begin, gf_i64 group_gap, gf_i64 row_gap, gf_i64 tap_gap, gf_i64 channel_gap, int*, char*
) {
    const gf_index count = (gf_index)(groups * rows * taps * channels);
    for (gf_index n = gf_single::first(); n < count; n += gf_single::step()) {
        S sum = 0;
#pragma unroll 8
        for (gf_index i = 0; i < (gf_index)pieces; i++) sum += found[i * count + n];
        const gf_index c = n % (gf_index)channels, over = n / (gf_index)channels;
        const gf_index t = over % (gf_index)taps, line = over / (gf_index)taps;
        const gf_index m = line % (gf_index)rows, g = line / (gf_index)rows;
        y[(gf_index)begin + g * (gf_index)group_gap + m * (gf_index)row_gap
          + t * (gf_index)tap_gap + c * (gf_index)channel_gap] = gf_memory<Y>::made(sum);
    }
}
#endif
