#include "base/machine.h"

#include <gtest/gtest.h>
#include <omp.h>

namespace mantissa {
namespace {

TEST(Machine, AgreesWithTheThreadRuntime) {
  const Machine m = machine();
  EXPECT_EQ(m.cores, omp_get_num_procs());
  EXPECT_GT(m.memory_bytes, int64_t{64} << 20);
  EXPECT_NE(m.system.find("Linux"), std::string::npos) << m.system;
}

TEST(Machine, FeaturesAgreeWithTheCompilersProbe) {
#if defined(MANTISSA_X86)
  const std::string features = machine().features;
  EXPECT_EQ(features.find("avx2") != std::string::npos, __builtin_cpu_supports("avx2") != 0) << features;
  EXPECT_EQ(features.find("avx512f") != std::string::npos, __builtin_cpu_supports("avx512f") != 0) << features;
#else
  GTEST_SKIP() << "x86 features only";
#endif
}

}  // namespace
}  // namespace mantissa
