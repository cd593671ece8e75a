// CPU kernel of random.h.
#pragma once

#include "base/philox.h"
#include "ops/cpu/dispatch.h"

namespace mantissa {

MANTISSA_CPU_KERNEL(void normal_values(const RandomKey& key, int64_t first, int64_t n, float std, float* out))

}  // namespace mantissa
