// Numerics functions are inlined into every backend and instruction set; none is emitted out of line, so code compiled
// for a newer instruction set can never be the copy that an older machine runs.
#pragma once

#if defined(__CUDACC__)
#define MANTISSA_HD __host__ __device__ __forceinline__
#else
#define MANTISSA_HD inline __attribute__((always_inline))
#endif
