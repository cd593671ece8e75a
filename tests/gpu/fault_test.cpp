// What fails on the device keeps its kind, and slower ways are said once.
#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "tests/base/support.h"
#include "tests/gpu/on_device.h"

namespace mantissa {
namespace {

using testing::error_of;

class GpuFault : public GpuTest {};

TEST_F(GpuFault, MemoryThatIsNotThereIsSaidAsSuch) {
  const std::string message = error_of(Exit::kMemory, [&] { device().allocate(int64_t{1} << 50); });
  EXPECT_NE(message.find("could not be allocated"), std::string::npos) << message;
  OnDevice x(device(), DType::kF32, {8});  // and nothing is left of it
  EXPECT_NO_THROW(device().zero(x.tensor().data, x.tensor().bytes()));
  EXPECT_NO_THROW(device().synchronize());
}

// A kernel that reads where nothing is ends its process's context: in a process of its own, which ends with the error's
// exit code and message.
[[noreturn]] void read_a_bad_address() {
  std::string absence;
  Device* const device = shared_device(false, absence);
  if (!device) std::_Exit(100);
  Exec exec(*device);
  const OnDevice y(*device, DType::kBF16, {8});  // never destroyed: it would look at its guards
  try {
    cast(exec, y, {reinterpret_cast<const void*>(uintptr_t{1} << 60), DType::kF32, {8}});
    device->synchronize();
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    std::_Exit(static_cast<int>(error.code()));
  }
  std::_Exit(101);
}

TEST_F(GpuFault, AKernelsOwnErrorIsNoFaultOfTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(read_a_bad_address(), ::testing::ExitedWithCode(static_cast<int>(Exit::kInternal)),
              "the last op enqueued is cast");
}

TEST_F(GpuFault, ASlowPathIsSaidOnce) {
  const OnDevice x(device(), DType::kF32, {3, 100}), w(device(), DType::kF32, {100}), rstd(device(), DType::kF32, {3}),
      y(device(), DType::kF32, {3, 100});
  Operand out{.high = y};
  const auto said = [&] {
    const std::vector<std::string> paths = device().slow_paths();
    return std::count_if(paths.begin(), paths.end(), [](const std::string& path) {
      return path.starts_with("rms_norm_fwd: rows are not whole aligned groups");
    });
  };
  for (int call = 0; call < 2; ++call) {
    rms_norm_fwd(exec(), out, rstd, x, w, 1e-6f);
    EXPECT_EQ(said(), 1);
  }
  ::testing::internal::CaptureStderr();
  rms_norm_fwd(exec(), out, rstd, x, w, 1e-6f);
  device().synchronize();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace mantissa
