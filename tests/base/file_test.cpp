#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/sha256.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

TEST(File, WritesReadsAndMaps) {
  const TempFolder folder;
  const std::string path = folder / "a.txt";
  write_atomic(path, "one\ntwo\n");
  EXPECT_EQ(read_text(path), "one\ntwo\n");
  EXPECT_EQ(MappedFile::open(path).text(), "one\ntwo\n");
  EXPECT_EQ(file_size(path), 8u);
  write_atomic(path, "");
  EXPECT_EQ(MappedFile::open(path).bytes().size(), 0u);
  EXPECT_EQ(read_text(path), "");
}

TEST(File, NamesWhatItCannotRead) {
  const TempFolder folder;
  EXPECT_EQ(error_of(Exit::kInput, [&] { read_text(folder / "none"); }),
            (folder / "none") + ": cannot open: No such file or directory");
  EXPECT_EQ(error_of(Exit::kInput, [&] { MappedFile::open(folder.path()); }),
            folder.path() + ": is a folder, expected a plain file");
  write_atomic(folder / "big", std::string(100, 'x'));
  EXPECT_EQ(error_of(Exit::kInput, [&] { read_text(folder / "big", 99); }),
            (folder / "big") + ": has 100 bytes, expected at most 99");
  std::filesystem::create_symlink(folder / "big", folder / "link");
  EXPECT_EQ(MappedFile::open(folder / "link").bytes().size(), 100u);
  EXPECT_EQ(
      error_of(Exit::kInput, [&] { MappedFile::open(folder / "link", Links::kRefuse); }),
      (folder / "link") + ": is a symbolic link, expected a plain file; a copy made with cp -rL holds plain files");
  EXPECT_EQ(error_of(Exit::kInput, [] { MappedFile::open("/dev/zero"); }),
            "/dev/zero: is not a file, expected a plain file");
}

TEST(File, AnUncommittedFileLeavesNothing) {
  const TempFolder folder;
  write_atomic(folder / "kept", "old");
  {
    AtomicFile file(folder / "kept");
    file.write(std::string_view("half of the new"));
  }
  EXPECT_EQ(read_text(folder / "kept"), "old");
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 1u);
}

// The name that a file is written under may be taken: by what a killed process of this number left, or by another's.
TEST(File, OnlyALeftoverOfItsOwnIsReplaced) {
  const TempFolder folder;
  const std::string path = folder / "kept", temporary = path + ".tmp-" + std::to_string(::getpid());
  std::ofstream(temporary) << "left";
  write_atomic(path, "new");
  EXPECT_EQ(read_text(path), "new");
  EXPECT_FALSE(exists(temporary));
  const auto refused = [&] {
    EXPECT_EQ(
        error_of(Exit::kStorage, [&] { write_atomic(path, "newer"); }),
        temporary + ": stands where " + path + " is written first, and is no file that this program left; remove it");
    EXPECT_EQ(read_text(path), "new");
  };
  std::ofstream(folder / "mine") << "mine";
  std::filesystem::create_symlink("mine", temporary);
  refused();
  EXPECT_TRUE(std::filesystem::is_symlink(temporary));
  std::filesystem::remove(temporary);
  std::filesystem::create_directory(temporary);
  refused();
  EXPECT_TRUE(is_directory(temporary));
}

TEST(File, StorageErrorsAreStorage) {
  const TempFolder folder;
  error_of(Exit::kStorage, [&] { write_atomic(folder / "no/such/folder/x", "a"); });
  write_atomic(folder / "plain", "a");
  error_of(Exit::kStorage, [&] { make_dirs(folder / "plain/below"); });
  error_of(Exit::kStorage, [&] { make_dirs(folder / "plain"); });
  make_dirs(folder / "a/b/c");
  make_dirs(folder / "a/b/c");
  EXPECT_TRUE(is_directory(folder / "a/b/c"));
  EXPECT_GT(free_bytes(folder.path()), 0u);
}

TEST(File, AFileThatIsCutWhileItIsReadIsRefused) {
  const TempFolder folder;
  const std::string path = folder / "a";
  write_atomic(path, std::string(100, 'x'));
  FileStream file(path);
  std::string room(60, '\0');
  EXPECT_EQ(file.read(room), 60u);
  std::filesystem::resize_file(path, 80);
  EXPECT_EQ(error_of(Exit::kInput, [&] { file.read(room); }),
            path + ": ended after 80 of 100 bytes; it was cut while it was read");
  FileStream shorter(path);
  EXPECT_EQ(shorter.read(room) + shorter.read(room) + shorter.read(room), 80u);
}

TEST(File, WhatCannotBeToldIsNotAbsent) {
  const TempFolder folder;
  std::filesystem::create_symlink("loop", folder / "loop");
  error_of(Exit::kInput, [&] { exists(folder / "loop"); });
  error_of(Exit::kInput, [&] { is_directory(folder / std::string(300, 'n')); });
  EXPECT_FALSE(exists(folder / "none"));
  write_atomic(folder / "plain", "a");
  EXPECT_FALSE(exists(folder / "plain/below"));
}

TEST(File, FoldersOfAnyDepthAndSpelling) {
  const TempFolder folder;
  for (const char* path : {"a/b/c", "d/e/", "f//g/./h", "i/../j"}) {
    make_dirs(folder / path);
    EXPECT_TRUE(is_directory(folder / path)) << path;
  }
}

TEST(Sha256, KnownAnswers) {  // FIPS 180-4 examples
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::string_view(text).substr(0, cut));
    hash.update(std::string_view(text).substr(cut));
    ASSERT_EQ(hash.hex(), sha256(text)) << "cut at " << cut;
  }
}

}  // namespace
}  // namespace mantissa
