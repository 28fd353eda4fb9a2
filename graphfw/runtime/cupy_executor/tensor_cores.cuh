#ifndef GF_TENSOR_CORES
#define GF_TENSOR_CORES
// Products of small matrices by the 32 threads of a warp: C += A B, each thread with a few elements
// of all three. With g = lane / 4 and t = lane % 4 a thread has, of A [16, K], B [K, 8], C [16, 8]:
//
//   16-bit floats, K = 16, two neighbours along K in a register, the first in the lower half:
//     a[0]: A[g][2t..]  a[1]: A[g+8][2t..]  a[2]: A[g][2t+8..]  a[3]: A[g+8][2t+8..]
//     b[0]: B[2t..][g]  b[1]: B[2t+8..][g]
//   float32 of which 10 bits of the fraction count (TF32), K = 8:
//     a[0]: A[g][t]     a[1]: A[g+8][t]     a[2]: A[g][t+4]     a[3]: A[g+8][t+4]
//     b[0]: B[t][g]     b[1]: B[t+4][g]
//   C, float32:
//     c[0], c[1]: C[g][2t], C[g][2t+1]      c[2], c[3]: C[g+8][2t], C[g+8][2t+1]
//
// (PTX ISA, "Matrix Fragments for mma.m16n8k16" and "... mma.m16n8k8".)

#ifdef __CUDACC__
GF void gf_mma_f16(float* c, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GF void gf_mma_bf16(float* c, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
GF void gf_mma_tf32(float* c, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// To the nearest TF32, halves away from 0.
GF unsigned gf_tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}
// Four matrices of 8 rows of 16 bytes from the block's memory: thread i says where row i % 8 of
// matrix i / 8 is, and gets, of each, the 4 bytes at 4t of row g.
GF void gf_ldmatrix(unsigned* to, const void* row) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
}
// The same with each matrix transposed: of 16-bit elements [2t][g] and [2t+1][g].
GF void gf_ldmatrix_across(unsigned* to, const void* row) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(place) : "memory");
}
// Copies 16 bytes to the block's memory while the thread goes on; zeros where there are none.
GF void gf_copy_async(void* to, const void* from, bool is_there) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
        : : "r"(place), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}
// Ends a group of such copies.
GF void gf_copies_done() { asm volatile("cp.async.commit_group;" : : : "memory"); }
// Waits until at most so many groups are under way; what a thread has copied is there for it then.
template <int LEFT> GF void gf_wait_copies() {
    asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}
#endif

GF void gf_mma(gf_half, float* c, const unsigned* a, const unsigned* b) { gf_mma_f16(c, a, b); }
GF void gf_mma(gf_bf16, float* c, const unsigned* a, const unsigned* b) { gf_mma_bf16(c, a, b); }
#endif
