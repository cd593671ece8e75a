// Random values of new weights.
#pragma once

#include "base/philox.h"
#include "tensor/exec.h"

namespace mantissa {

// out[i] = std * element (first + i) of the stream `key` of standard normals, by Box and Muller 1958 from 64 random
// bits a pair, computed in double; first is a multiple of 4. The bits depend on key and element alone, not on the
// instruction set. Runs in the calling thread, in host memory.
void normal_values(Isa isa, const RandomKey& key, int64_t first, int64_t n, float std, float* out);

}  // namespace mantissa
