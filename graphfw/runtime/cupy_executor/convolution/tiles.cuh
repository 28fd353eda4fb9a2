#ifndef GF_TILES
#define GF_TILES
// Tiles of sums of products, C[BM][BN] += A[BM][BK] B[BK][BN], by the threads of a block: operands
// lie in the block's memory, sums in registers. Each kind of tile says
//
//   T, S, BM, BN, BK, THREADS   elements in memory, what is added up, sizes
//   BY_DEPTH                    whether an operand lies [side][BK], else [BK][side]
//   PITCH(side)                 how far its lines are apart: threads then meet in few banks
//   multiply(a, b), each(f)     adds products; calls f(row, column, sum) for the thread's own sums

// Rows and columns of floats or doubles, element by element.
template <class Type, int M, int N, int K, int TM, int TN> struct gf_fma_tile {
    typedef Type T;
    typedef Type S;
    enum { BM = M, BN = N, BK = K, THREADS = (M / TM) * (N / TN), V = 16 / sizeof(Type) };
    static constexpr bool BY_DEPTH = false;
    GF static constexpr int pitch(int side) { return side + 8; }

    S sums[TM][TN];
    GF gf_fma_tile() {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) sums[i][j] = 0;
    }
    // A thread's rows are V neighbours here and there, so that reads of V at once spread out.
    GF static int row(int i) {
        return i / V * (V * M / TM) + (int)threadIdx.x / (N / TN) * V + i % V;
    }
    GF static int column(int j) {
        return j / V * (V * N / TN) + (int)threadIdx.x % (N / TN) * V + j % V;
    }
    GF void multiply(const T* a, const T* b) {
        typedef gf_pack<T, V> P;
#pragma unroll
        for (int k = 0; k < K; k++) {
            P x[TM / V], y[TN / V];
#pragma unroll
            for (int i = 0; i < TM; i += V) x[i / V] = *(const P*)(a + k * pitch(M) + row(i));
#pragma unroll
            for (int j = 0; j < TN; j += V) y[j / V] = *(const P*)(b + k * pitch(N) + column(j));
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++)
                    sums[i][j] = gf_multiply_add(
                        x[i / V].at[i % V], y[j / V].at[j % V], sums[i][j]);
        }
    }
    template <class F> GF void each(const F& f) const {
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < TN; j++) f(row(i), column(j), sums[i][j]);
    }
};

// What tiles of tensor cores share: a warp has WM x WN sums, in pieces of 16 x 8.
template <int M, int N, int WM, int WN> struct gf_warp_tile {
    enum { THREADS = (M / WM) * (N / WN) * 32 };
    float sums[WM / 16][WN / 8][4];
    GF gf_warp_tile() {
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int n = 0; n < 4; n++) sums[i][j][n] = 0;
    }
    GF static int lane() { return (int)threadIdx.x % 32; }
    GF static int row() { return (int)threadIdx.x / 32 % (M / WM) * WM; }
    GF static int column() { return (int)threadIdx.x / 32 / (M / WM) * WN; }
    template <class F> GF void each(const F& f) const {
#pragma unroll
        for (int i = 0; i < WM / 16; i++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int j = 0; j < WN / 8; j++)
                    f(row() + i * 16 + lane() / 4 + n / 2 * 8,
                      column() + j * 8 + lane() % 4 * 2 + n % 2, sums[i][j][n]);
    }
};

// 16-bit floats, added up in float32.
template <class Type, int M, int N, int K, int WM, int WN>
struct gf_mma_tile : gf_warp_tile<M, N, WM, WN> {
    typedef Type T;
    typedef float S;
    typedef gf_warp_tile<M, N, WM, WN> Base;
    enum { BM = M, BN = N, BK = K };
    static constexpr bool BY_DEPTH = true;
    GF static constexpr int pitch(int) { return K + 8; }

    GF void multiply(const T* a, const T* b) {
        const int lane = Base::lane();
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            unsigned x[WM / 16][4], y[WN / 8][2];
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
                gf_ldmatrix(x[i], a + (Base::row() + i * 16 + lane % 16) * pitch(0) + k
                                      + lane / 16 * 8);
#pragma unroll
            for (int j = 0; j < WN / 8; j += 2)
                gf_ldmatrix(y[j], b + (Base::column() + j * 8 + lane / 16 * 8 + lane % 8) * pitch(0)
                                      + k + lane / 8 % 2 * 8);
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
#pragma unroll
                for (int j = 0; j < WN / 8; j++) gf_mma(Type(), this->sums[i][j], x[i], y[j]);
        }
    }
};

// float32 rounded to TF32.
template <int M, int N, int K, int WM, int WN> struct gf_tf32_tile : gf_warp_tile<M, N, WM, WN> {
    typedef float T;
    typedef float S;
    typedef gf_warp_tile<M, N, WM, WN> Base;
    enum { BM = M, BN = N, BK = K };
    static constexpr bool BY_DEPTH = false;
    GF static constexpr int pitch(int side) { return side + 8; }

    GF void multiply(const T* a, const T* b) {
        const int g = Base::lane() / 4, t = Base::lane() % 4;
#pragma unroll
        for (int k = 0; k < K; k += 8) {
            unsigned x[WM / 16][4], y[WN / 8][2];
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
#pragma unroll
                for (int n = 0; n < 4; n++)
                    x[i][n] = gf_tf32(a[(k + t + n / 2 * 4) * pitch(M) + Base::row() + i * 16 + g
                                        + n % 2 * 8]);
#pragma unroll
            for (int j = 0; j < WN / 8; j++)
#pragma unroll
                for (int n = 0; n < 2; n++)
                    y[j][n] = gf_tf32(b[(k + t + n * 4) * pitch(N) + Base::column() + j * 8 + g]);
#pragma unroll
            for (int i = 0; i < WM / 16; i++)
#pragma unroll
                for (int j = 0; j < WN / 8; j++) gf_mma_tf32(this->sums[i][j], x[i], y[j]);
        }
    }
};

// The two operands in the block's memory, twice: one pair is read while the next is written.
template <class Tile> struct gf_operands {
    typedef typename Tile::T T;
    enum {
        LINES_A = Tile::BY_DEPTH ? Tile::BM : Tile::BK,
        LINES_B = Tile::BY_DEPTH ? Tile::BN : Tile::BK,
        SIZE_A = LINES_A * Tile::pitch(Tile::BM),
        SIZE_B = LINES_B * Tile::pitch(Tile::BN),
        BYTES = 2 * (SIZE_A + SIZE_B) * sizeof(T)
    };
    GF static T* a(int which) { return (T*)gf_dynamic() + which * (SIZE_A + SIZE_B); }
    GF static T* b(int which) { return a(which) + SIZE_A; }
};

// Writes neighbours along the depth, from k on, of a row or column.
template <class Tile, int COUNT>
GF void gf_put_depth(
    typename Tile::T* to, int side, int at, int k, const typename Tile::T* values
) {
    typedef typename Tile::T T;
    if constexpr (Tile::BY_DEPTH) {
        typedef gf_pack<T, 8> P;
#pragma unroll
        for (int i = 0; i < COUNT; i += 8) {
            P some;
#pragma unroll
            for (int j = 0; j < 8; j++) some.at[j] = values[i + j];
            *(P*)(to + at * Tile::pitch(side) + k + i) = some;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[(k + i) * Tile::pitch(side) + at] = values[i];
}

// Writes neighbouring rows or columns, from `at` on, at one place of the depth.
template <class Tile, int COUNT>
GF void gf_put_side(typename Tile::T* to, int side, int at, int k, const typename Tile::T* values) {
    typedef typename Tile::T T;
    if constexpr (!Tile::BY_DEPTH) {
        enum { V = 16 / sizeof(T) };
        typedef gf_pack<T, V> P;
#pragma unroll
        for (int i = 0; i < COUNT; i += V) {
            P some;
#pragma unroll
            for (int j = 0; j < V; j++) some.at[j] = values[i + j];
            *(P*)(to + k * Tile::pitch(side) + at + i) = some;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) to[(at + i) * Tile::pitch(side) + k] = values[i];
}
#endif
