#include "base/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;
using Kind = FolderEntry::Kind;

TEST(Folder, ListsByNameWhatLinksLeadTo) {
  const TempFolder folder;
  write_atomic(folder / "b", "x");
  make_dirs(folder / "a");
  std::filesystem::create_symlink("b", folder / "link");
  std::filesystem::create_symlink("none", folder / "loose");
  std::filesystem::create_symlink("loop", folder / "loop");
  std::vector<std::pair<std::string, Kind>> found;
  for (const FolderEntry& entry : list_folder(folder.path())) found.emplace_back(entry.name, entry.kind);
  const std::vector<std::pair<std::string, Kind>> expected = {
      {"a", Kind::kFolder}, {"b", Kind::kFile}, {"link", Kind::kFile}, {"loop", Kind::kOther}, {"loose", Kind::kOther}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(error_of(Exit::kInput, [&] { list_folder(folder / "b"); }),
            (folder / "b") + ": cannot list the folder: Not a directory");
}

TEST(Folder, ANewOneTakesItsNameWhenComplete) {
  const TempFolder folder;
  const std::string place = folder / "deep/new";
  {
    NewFolder left(place + "/");
    write_atomic(left.path() + "/half", "x");
  }
  EXPECT_TRUE(list_folder(folder / "deep").empty());
  NewFolder made(place);
  write_atomic(made.path() + "/whole", "x");
  EXPECT_FALSE(exists(place));
  made.commit();
  EXPECT_EQ(read_text(place + "/whole"), "x");
  EXPECT_EQ(list_folder(folder / "deep").size(), 1u);
}

TEST(Folder, NeverOverAnother) {
  const TempFolder folder;
  const std::string place = folder / "there", stale = place + ".tmp-" + std::to_string(::getpid());
  make_dirs(stale);
  write_atomic(stale + "/old", "of another process");
  EXPECT_NE(error_of(Exit::kStorage, [&] { NewFolder made(place); }).find("File exists"), std::string::npos);
  EXPECT_EQ(read_text(stale + "/old"), "of another process");
  std::filesystem::remove_all(stale);
  make_dirs(place);
  write_atomic(place + "/mine", "x");
  {
    NewFolder made(place);
    error_of(Exit::kStorage, [&] { made.commit(); });
  }
  EXPECT_EQ(read_text(place + "/mine"), "x");
  EXPECT_EQ(list_folder(folder.path()).size(), 1u);
}

}  // namespace
}  // namespace mantissa
