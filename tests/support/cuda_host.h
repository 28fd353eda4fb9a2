// CUDA's language on a CPU, for kernels that are compiled by a host's C++ compiler. What all of them
// share is compiled once: cuda_host.cpp.

#include <cmath>
#include <cstdlib>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }

struct host_index { unsigned x, y; };
extern host_index gf_indices[4];
#define threadIdx gf_indices[0]
#define blockIdx gf_indices[1]
#define blockDim gf_indices[2]
#define gridDim gf_indices[3]

void __syncthreads();
void __syncwarp();
unsigned __shfl_sync(unsigned, unsigned value, int lane);
void __threadfence();
unsigned atomicInc(unsigned* place, unsigned most);

char* gf_dynamic();
unsigned short gf_half_bits(float x);
float gf_half_value(unsigned short bits);

double erfinv(double x);
float erfinvf(float x);
double normcdf(double x);
float normcdff(float x);

void gf_mma_f16(float* c, const unsigned* a, const unsigned* b);
void gf_mma_bf16(float* c, const unsigned* a, const unsigned* b);
void gf_mma_tf32(float* c, const unsigned* a, const unsigned* b);
unsigned gf_tf32(float x);
void gf_ldmatrix(unsigned* to, const void* row);
void gf_ldmatrix_across(unsigned* to, const void* row);
void gf_copy_async(void* to, const void* from, bool is_there);
void gf_copies_done();
void gf_wait_copies(unsigned left);
template <int LEFT> static inline void gf_wait_copies() { gf_wait_copies(LEFT); }
