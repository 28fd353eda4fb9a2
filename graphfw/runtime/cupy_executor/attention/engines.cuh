// The two products of which attention consists, by a warp: how 16-bit floats go through tensor
// cores, float32 as TF32 too, and float32 and float64 as they are.
//
// All have their results laid out as tensor cores do: with g = lane / 4 and t = lane % 4 a thread
// has of a tile of 16 rows and 8 columns, in this order, [g][2t], [g][2t + 1], [g + 8][2t] and
// [g + 8][2t + 1]. Matrices in the block's memory have rows of STRIDE elements: PAD elements more
// than there are columns, so that the 8 rows that are read at once lie in different banks.
//
// scores: s += a bᵀ; a: [16 M, K], b: [8 N, K].      weighted: s += p b; p: [16 M, 8 N], b: [8 N, 8 E].

template <class T> struct gf_by_tensor_cores {
    typedef T Memory;
    typedef float Value;
    enum { PAD = 8 };

    template <int M, int N, int K, int STRIDE>
    GF static void scores(float (&s)[M][N][4], const T* a, const T* b) {
        const int lane = (int)threadIdx.x % 32;
        a += lane % 16 * STRIDE + lane / 16 * 8;
        b += (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
        for (int k = 0; k < K; k += 16) {
            unsigned rows[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) gf_ldmatrix(rows[m], a + 16 * m * STRIDE + k);
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                unsigned columns[4];
                gf_ldmatrix(columns, b + 8 * n * STRIDE + k);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    gf_mma(T(), s[m][n], rows[m], columns);
                    gf_mma(T(), s[m][n + 1], rows[m], columns + 2);
                }
            }
        }
    }

    template <int M, int N, int E, int STRIDE>
    GF static void weighted(float (&s)[M][E][4], const float (&p)[M][N][4], const T* b) {
        const int lane = (int)threadIdx.x % 32;
        b += lane % 16 * STRIDE + lane / 16 * 8;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned rows[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    rows[m][i] = gf_pair(T(), p[m][n + i / 2] + i % 2 * 2);
            }
#pragma unroll
            for (int e = 0; e < E; e += 2) {
                unsigned columns[4];
                gf_ldmatrix_across(columns, b + 8 * n * STRIDE + 8 * e);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    gf_mma(T(), s[m][e], rows[m], columns);
                    gf_mma(T(), s[m][e + 1], rows[m], columns + 2);
                }
            }
        }
    }
};

struct gf_by_tf32 {
    typedef float Memory;
    typedef float Value;
    enum { PAD = 4 };

    template <int M, int N, int K, int STRIDE>
    GF static void scores(float (&s)[M][N][4], const float* a, const float* b) {
        const int lane = (int)threadIdx.x % 32;
        a += lane % 16 * STRIDE + lane / 16 * 4;
        b += (lane / 16 * 8 + lane % 8) * STRIDE + lane / 8 % 2 * 4;
#pragma unroll 2
        for (int k = 0; k < K; k += 8) {
            unsigned rows[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
                gf_ldmatrix(rows[m], a + 16 * m * STRIDE + k);
                rounded(rows[m]);
            }
#pragma unroll
            for (int n = 0; n < N; n += 2) {
                unsigned columns[4];
                gf_ldmatrix(columns, b + 8 * n * STRIDE + k);
                rounded(columns);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    gf_mma_tf32(s[m][n], rows[m], columns);
                    gf_mma_tf32(s[m][n + 1], rows[m], columns + 2);
                }
            }
        }
    }

    // A thread has columns 2t and 2t + 1 of p, and the instruction wants t and t + 4: the rows of b
    // are taken in another order instead.
    template <int M, int N, int E, int STRIDE>
    GF static void weighted(float (&s)[M][E][4], const float (&p)[M][N][4], const float* b) {
        const int lane = (int)threadIdx.x % 32;
        b += lane % 4 * 2 * STRIDE + lane / 4;
#pragma unroll
        for (int n = 0; n < N; n++) {
            unsigned rows[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int i = 0; i < 4; i++) rows[m][i] = gf_tf32(p[m][n][i % 2 * 2 + i / 2]);
            }
#pragma unroll
            for (int e = 0; e < E; e++) {
                const float* at = b + 8 * n * STRIDE + 8 * e;
                const unsigned columns[2] = {gf_tf32(at[0]), gf_tf32(at[STRIDE])};
#pragma unroll
                for (int m = 0; m < M; m++) gf_mma_tf32(s[m][e], rows[m], columns);
            }
        }
    }

    GF static void rounded(unsigned (&x)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = gf_tf32(gf_bits<float>(x[i]));
    }
};

GF float gf_fused(float a, float b, float c) { return fmaf(a, b, c); }
GF double gf_fused(double a, double b, double c) { return fma(a, b, c); }

template <class F> struct gf_by_cores {
    typedef F Memory;
    typedef F Value;
    enum { PAD = 16 / sizeof(F) };

    template <int M, int N, int K, int STRIDE>
    GF static void scores(F (&s)[M][N][4], const F* a, const F* b) {
        typedef gf_pack<F, PAD> Pack;
        const int lane = (int)threadIdx.x % 32;
        a += lane / 4 * STRIDE;
        b += lane % 4 * 2 * STRIDE;
#pragma unroll 1
        for (int k = 0; k < K; k += PAD) {
            Pack rows[M][2];
#pragma unroll
            for (int i = 0; i < 2 * M; i++) rows[i / 2][i % 2] = *(const Pack*)(a + 8 * i * STRIDE + k);
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                const Pack column = *(const Pack*)(b + (i / 2 * 8 + i % 2) * STRIDE + k);
#pragma unroll
                for (int j = 0; j < 2 * M; j++) {
                    F& one = s[j / 2][i / 2][j % 2 * 2 + i % 2];
#pragma unroll
                    for (int e = 0; e < PAD; e++)
                        one = gf_fused(rows[j / 2][j % 2].at[e], column.at[e], one);
                }
            }
        }
    }

    template <int M, int N, int E, int STRIDE>
    GF static void weighted(F (&s)[M][E][4], const F (&p)[M][N][4], const F* b) {
        typedef gf_pack<F, 2> Pair;
        const int lane = (int)threadIdx.x % 32;
        b += lane % 4 * 2;
#pragma unroll 1
        for (int t = 0; t < 4; t++) {  // whose columns of p
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                F rows[M][2];
#pragma unroll
                for (int j = 0; j < 2 * M; j++)
                    rows[j / 2][j % 2] =
                        gf_from_lane(p[j / 2][i / 2][j % 2 * 2 + i % 2], lane / 4 * 4 + t);
                const F* row = b + (i / 2 * 8 + 2 * t + i % 2) * STRIDE;
#pragma unroll
                for (int e = 0; e < E; e++) {
                    const Pair columns = *(const Pair*)(row + 8 * e);
#pragma unroll
                    for (int j = 0; j < 4 * M; j++) {
                        F& one = s[j / 4][e][j % 4];
                        one = gf_fused(rows[j / 4][j % 4 / 2], columns.at[j % 2], one);
                    }
                }
            }
        }
    }
};
