#include "app/flags.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"

namespace mantissa {
namespace {

TEST(Flags, OverridesAreToldByTheirDot) {
  std::vector<std::string> args = {"a.yaml",      "--precision.recipe=mxfp8", "--restart", "--batch.tokens", "4096",
                                   "--device=cpu"};
  EXPECT_EQ(take_overrides(args), (std::vector<std::string>{"precision.recipe=mxfp8", "batch.tokens=4096"}));
  EXPECT_EQ(args, (std::vector<std::string>{"a.yaml", "--restart", "--device=cpu"}));
  args = {"--out=dir.with.dots/a"};
  EXPECT_TRUE(take_overrides(args).empty());
  EXPECT_EQ(args.size(), 1u);
  args = {"--batch.tokens"};
  EXPECT_THROW(take_overrides(args), Error);
}

struct Sizes {
  int64_t count_of = 3;
  bool on = false;
  std::string kind = "a";
};

TEST(Flags, FieldsBecomeFlags) {
  const auto parse = [](const std::vector<std::string>& args, Sizes& sizes) {
    CommandLine command("", "verb");
    command.fields([&](config::Fields& f) {
      f.integer("count_of", sizes.count_of, "how many", {.min = 1, .max = 9});
      f.boolean("on", sizes.on, "whether");
      f.choice("kind", sizes.kind, {"a", "b"}, "which");
    });
    return command.parse(args);
  };
  Sizes sizes;
  EXPECT_TRUE(parse({"--count-of=5", "--on", "--kind", "b"}, sizes));
  EXPECT_EQ(sizes.count_of, 5);
  EXPECT_TRUE(sizes.on);
  EXPECT_EQ(sizes.kind, "b");
  EXPECT_TRUE(parse({"--count_of", "7", "--on=false"}, sizes));
  EXPECT_EQ(sizes.count_of, 7);
  EXPECT_FALSE(sizes.on);
  for (const char* bad : {"--count_of=10", "--count_of=x", "--kind=c", "--kin=a", "stray", "--on=maybe"})
    EXPECT_THROW(parse({bad}, sizes), Error) << bad;
}

// The version stands in CMakeLists.txt and in the code.
TEST(Version, IsTheProjects) {
  const std::string cmake = read_text(std::string(MANTISSA_SOURCE_DIR) + "/CMakeLists.txt");
  EXPECT_NE(cmake.find("project(mantissa VERSION " + std::string(kVersion) + " "), std::string::npos);
}

}  // namespace
}  // namespace mantissa
