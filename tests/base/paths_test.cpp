// Paths that cannot be looked at are refused with their reason.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/config.h"
#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

TEST(Paths, ALoopOfLinksIsNotAnAbsence) {
  const TempFolder folder;
  EXPECT_FALSE(exists(folder / "absent"));
  std::filesystem::create_symlink("absent", folder / "dangling");
  EXPECT_FALSE(exists(folder / "dangling"));
  std::filesystem::create_symlink("loop", folder / "loop");
  for (const std::string& path : {folder / "loop", folder / "loop/run.json", folder / std::string(300, 'x')}) {
    const std::string error = error_of(Exit::kInput, [&] { exists(path); });
    EXPECT_NE(error.find(path + ": cannot be looked at: "), std::string::npos) << error;
  }
}

TEST(Paths, AConfigThatCannotBeOpenedSaysWhy) {
  const TempFolder folder;
  std::filesystem::create_symlink("loop.yaml", folder / "loop.yaml");
  const std::string loop = error_of(Exit::kUsage, [&] { config::Source::from_file(folder / "loop.yaml", {}); });
  EXPECT_NE(loop.find("symbolic links"), std::string::npos) << loop;
  const std::string absent = error_of(Exit::kUsage, [&] { config::Source::from_file(folder / "none.yaml", {}); });
  EXPECT_NE(absent.find("no such config file"), std::string::npos) << absent;
}

}  // namespace
}  // namespace mantissa
