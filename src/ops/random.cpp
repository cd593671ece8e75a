#include "ops/random.h"

#include "base/error.h"
#include "ops/cpu/random.h"

namespace mantissa {
namespace {

struct Chosen {
  Isa set;
  Isa isa() const { return set; }
};

}  // namespace

void normal_values(Isa isa, const RandomKey& key, int64_t first, int64_t n, float std, float* out) {
  check(first >= 0 && first % 4 == 0, "normal_values: first is {}, expected a multiple of 4", first);
  MANTISSA_CPU_CALL(Chosen{isa}, normal_values, key, first, n, std, out);
}

}  // namespace mantissa
