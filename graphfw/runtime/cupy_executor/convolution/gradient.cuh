#ifndef GF_GRADIENT
#define GF_GRADIENT
// The gradient of weights as matrix products, [outputs of a group, depth] x [depth, what a window
// sees], whose depth is all places of all images. It is long and results are few, so that blocks
// share it in pieces, which `gf_add_pieces` adds up.

// How the threads of a block share an operand: each has one place of the depth and several rows or
// columns that are neighbours. Threads of a warp have neighbours in memory, and meet in few banks.
template <class Tile> struct gf_shares {
    enum { ALONG = 32 / sizeof(typename Tile::T) };  // so many of them in a row
    GF static int depth() {
        return (int)threadIdx.x % ALONG + (int)threadIdx.x / 32 % (Tile::BK / ALONG) * ALONG;
    }
    GF static int number() {
        return (int)threadIdx.x % 32 / ALONG
            + (int)threadIdx.x / 32 / (Tile::BK / ALONG) * (32 / ALONG);
    }
};

// x: images. y: what their places contribute to, those of an image and an output in a row. found:
// [pieces, groups, outputs, taps, channels].
template <class Tile, int RANK>
GF void gf_conv_weight(
    const typename Tile::T* x, const typename Tile::T* y, typename Tile::S* found, gf_i64 images,
    gf_i64 groups, gf_i64 outputs, gf_i64 channels, gf_i64 x_begin, gf_i64 x_image,
    gf_i64 x_channel, gf_i64 y_begin, gf_i64 y_image, gf_i64 y_output, gf_i64 pieces,
    GF_DIM_PARAMS(0), GF_DIM_PARAMS(1), GF_DIM_PARAMS(2), int*, char*
) {
    typedef typename Tile::T T;
    typedef gf_operands<Tile> Operands;
    typedef gf_shares<Tile> Shares;
    enum {
        ROWS = Tile::BM * Tile::BK / Tile::THREADS,
        COLUMNS = Tile::BN * Tile::BK / Tile::THREADS
    };
    const gf_dims<RANK> dims = gf_some<RANK>(GF_DIM(0), GF_DIM(1), GF_DIM(2));
    const gf_index columns = dims.taps() * (gf_index)channels;
    const gf_index depth = (gf_index)images * dims.places();
    const gf_index tiles_m = ((gf_index)outputs + Tile::BM - 1) / Tile::BM;
    const gf_index tiles_n = (columns + Tile::BN - 1) / Tile::BN;
    // Neighbouring blocks read the same images.
    gf_index block = (gf_index)blockIdx.x;
    const gf_index row = block % tiles_m * Tile::BM;
    block /= tiles_m;
    const gf_index column = block % tiles_n * Tile::BN;
    block /= tiles_n;
    const gf_index group = block % (gf_index)groups, piece = block / (gf_index)groups;

    const gf_places<RANK> places(dims);
    const gf_division by_size(dims.places());
    gf_walk<RANK> walk(dims, (gf_index)channels, (gf_index)x_channel);
    const gf_index own_column = column + Shares::number() * COLUMNS;
    walk.go(own_column, gf_division((gf_index)channels));
    const gf_index first_channel = walk.channel;
    gf_index first_tap[RANK];
#pragma unroll
    for (int d = 0; d < RANK; d++) first_tap[d] = walk.tap[d];
    const gf_index own_row = row + Shares::number() * ROWS;
    const gf_index x_first = (gf_index)x_begin + group * (gf_index)channels * (gf_index)x_channel;
    const gf_index y_first = (gf_index)y_begin
        + (group * (gf_index)outputs + own_row) * (gf_index)y_output;

    T of_x[COLUMNS], of_y[ROWS];
    auto read = [&](gf_index chunk) {
        const gf_index k = chunk * Tile::BK + Shares::depth();
        const bool is_there = k < depth;
        gf_index at[RANK];
        const gf_index image = places.split(dims, is_there ? k : 0, at);
        const gf_index in_image = is_there ? k - image * dims.places() : 0;
        walk.stand(x_first + image * (gf_index)x_image, at);
        walk.channel = first_channel;
#pragma unroll
        for (int d = 0; d < RANK; d++) walk.tap[d] = first_tap[d];
        walk.find();
#pragma unroll
        for (int i = 0; i < COLUMNS; i++) {
            const bool sees = is_there && walk.inside && own_column + i < columns;
            of_x[i] = sees ? x[walk.offset] : gf_memory<T>::made(0.0f);
            walk.next();
        }
        gf_index from = y_first + image * (gf_index)y_image + in_image;
#pragma unroll
        for (int i = 0; i < ROWS; i++, from += (gf_index)y_output) {
            const bool counts = is_there && own_row + i < (gf_index)outputs;
            of_y[i] = counts ? y[from] : gf_memory<T>::made(0.0f);
        }
    };
    auto put = [&](int which) {
        const int at = Shares::number(), k = Shares::depth();
        gf_put_side<Tile, ROWS>(Operands::a(which), Tile::BM, at * ROWS, k, of_y);
        gf_put_side<Tile, COLUMNS>(Operands::b(which), Tile::BN, at * COLUMNS, k, of_x);
    };

    Tile tile;
    const gf_range range = gf_piece((depth + Tile::BK - 1) / Tile::BK, (gf_index)pieces, piece);
    if (range.begin < range.end) {
        read(range.begin);
        put(0);
    }
    __syncthreads();
    int which = 0;
    for (gf_index chunk = range.begin; chunk < range.end; chunk++, which ^= 1) {
        if (chunk + 1 < range.end) read(chunk + 1);
        tile.multiply(Operands::a(which), Operands::b(which));
        if (chunk + 1 < range.end) put(which ^ 1);
        __syncthreads();
    }
    typename Tile::S* const to = found
        + (piece * (gf_index)groups + group) * (gf_index)outputs * columns;
    tile.each([&](int i, int j, typename Tile::S sum) {
        if (row + i < (gf_index)outputs && column + j < columns)
            to[(row + i) * columns + column + j] = sum;
    });
}
#endif
