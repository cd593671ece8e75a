#include "ops/elementwise.h"

#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using GpuElementwise = GpuTest;

TEST_F(GpuElementwise, AddsAndCastsAsTheCpu) {
  Exec cpu;
  for (const int64_t n : {1, 7, 8, 1000, 70001})
    for (const DType out : {DType::kBF16, DType::kF32}) {
      const std::vector<float> x = random_values(n, 1), r = random_values(n, 2);
      const std::vector<std::byte> a = packed(x, DType::kBF16), b = packed(r, DType::kF32);
      std::vector<std::byte> expected(static_cast<size_t>(bytes_of(out, n)));
      const ConstTensor ta(a.data(), DType::kBF16, {n}), tb(b.data(), DType::kF32, {n});
      add(cpu, {expected.data(), out, {n}}, ta, tb);
      const OnDevice da(device(), ta), db(device(), tb), y(device(), out, {n});
      add(exec(), y, da, db);
      EXPECT_EQ(y.bytes(), expected) << n;
      cast(cpu, {expected.data(), out, {n}}, tb);
      cast(exec(), y, db);
      EXPECT_EQ(y.bytes(), expected) << n;
    }
}

}  // namespace
}  // namespace mantissa
