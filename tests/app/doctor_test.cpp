#include <gtest/gtest.h>

#include "app/verbs.h"
#include "base/version.h"
#include "recipes/recipe.h"

namespace mantissa {
namespace {

TEST(Doctor, NamesMachineGemmsAndEveryRecipe) {
  testing::internal::CaptureStdout();
  const int code = run_command_line({"doctor"});
  const std::string out = testing::internal::GetCapturedStdout();
  ASSERT_EQ(code, 0) << out;
  EXPECT_NE(out.find(kVersion), std::string::npos) << out;
  EXPECT_NE(out.find("GFLOP/s at 1024 x 1024 x 1024"), std::string::npos) << out;
  EXPECT_NE(out.find(name_of(detect_isa())), std::string::npos) << out;
  EXPECT_NE(out.find("\ngpu "), std::string::npos) << out;
  EXPECT_NE(out.find("on a GPU of compute capability 9.0: fp32, bf16, fp8-delayed, fp8-tensorwise, fp8-blockwise "
                     "native; mxfp8, nvfp4 emulated"),
            std::string::npos)
      << out;
  for (const RecipeEntry& entry : recipe_table()) {
    const size_t at = out.find(std::string("           ") + entry.name + " ");
    ASSERT_NE(at, std::string::npos) << entry.name << "\n" << out;
    const std::string row = out.substr(at, out.find('\n', at) - at);
    EXPECT_NE(row.find(entry.bits < 16 ? "emulated" : "native"), std::string::npos) << row;
  }
}

TEST(Doctor, RefusesUnknownFlag) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_command_line({"doctor", "--fast"}), 2);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("--fast"), std::string::npos);
}

}  // namespace
}  // namespace mantissa
