// Places that a user names for output, and files that grow line by line.
#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/line_file.h"
#include "tests/base/child_cost.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::Cost;
using testing::cost_of;
using testing::error_of;
using testing::TempFolder;

mode_t kind_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & S_IFMT : 0;
}

TEST(OutputFile, NewAndReplaced) {
  const TempFolder folder;
  write_output(folder / "a", "one");
  EXPECT_EQ(read_text(folder / "a"), "one");
  write_output(folder / "a", "two");
  EXPECT_EQ(read_text(folder / "a"), "two");
  {
    OutputFile left(folder / "a");
    left.write("three");
  }
  EXPECT_EQ(read_text(folder / "a"), "two") << "without commit() nothing is replaced";
}

TEST(OutputFile, ALinkStaysAndItsTargetIsReplaced) {
  const TempFolder folder;
  write_atomic(folder / "target", "old");
  std::filesystem::create_symlink("target", folder / "link");
  write_output(folder / "link", "new");
  EXPECT_EQ(kind_of(folder / "link"), mode_t{S_IFLNK});
  EXPECT_EQ(read_text(folder / "target"), "new");
  std::filesystem::create_symlink("nothing", folder / "dangling");
  const std::string message = error_of(Exit::kStorage, [&] { write_output(folder / "dangling", "x"); });
  EXPECT_NE(message.find("dangling: is a link that leads to no file"), std::string::npos) << message;
  EXPECT_FALSE(exists(folder / "nothing"));
}

TEST(OutputFile, AFifoIsWrittenToAndStays) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::string read;
  std::thread reader([&] {
    std::ifstream in(folder / "pipe");
    std::getline(in, read, '\0');
  });
  const std::string text(100'000, 'x');  // more than a pipe holds
  write_output(folder / "pipe", text);
  reader.join();
  EXPECT_EQ(read, text);
  EXPECT_EQ(kind_of(folder / "pipe"), mode_t{S_IFIFO});
}

TEST(OutputFile, AReaderThatLeavesIsAnError) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::thread reader([&] { std::ifstream in(folder / "pipe"); });
  const std::string message =
      error_of(Exit::kStorage, [&] { write_output(folder / "pipe", std::string(1'000'000, 'x')); });
  reader.join();
  EXPECT_NE(message.find("pipe: cannot write"), std::string::npos) << message;
}

TEST(OutputFile, Devices) {
  write_output("/dev/null", "x");
  EXPECT_EQ(kind_of("/dev/null"), mode_t{S_IFCHR});
  const std::string message = error_of(Exit::kStorage, [] { write_output("/dev/full", "seven b"); });
  EXPECT_NE(message.find("/dev/full: cannot write 7 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
}

TEST(OutputFile, SocketsAndFoldersAreRefused) {
  const TempFolder folder;
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  for (const std::string& path : {folder / "socket", folder.path()}) {
    const std::string message = error_of(Exit::kStorage, [&] { write_output(path, "x"); });
    EXPECT_NE(message.find("expected a file, a device or a pipe"), std::string::npos) << message;
  }
  EXPECT_EQ(kind_of(folder / "socket"), mode_t{S_IFSOCK});
}

TEST(LineFile, NothingThatStandsThereIsOpened) {
  const TempFolder folder;
  write_atomic(folder / "other", "mine");
  std::filesystem::create_symlink(folder / "other", folder / "link");
  std::filesystem::create_symlink(folder / "none", folder / "dangling");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"other", "link", "dangling", "pipe"})
    EXPECT_NE(error_of(Exit::kStorage, [&] { LineFile(folder / name); }).find(name), std::string::npos);
  EXPECT_EQ(read_text(folder / "other"), "mine");
  EXPECT_FALSE(exists(folder / "none"));
}

// A limit on the file's size stands for a full disk.
TEST(LineFile, WhatCannotBeWrittenLeavesWholeLines) {
  const TempFolder folder;
  const std::string path = folder / "lines";
  const Cost cost = cost_of([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 25, .rlim_max = 25};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    LineFile file(path);
    for (int i = 0; i < 3; ++i) file.append("nine byte");
  });
  EXPECT_EQ(cost.code, static_cast<int>(Exit::kStorage));
  EXPECT_NE(cost.message.find("lines: cannot write 5 bytes"), std::string::npos) << cost.message;
  EXPECT_NE(cost.message.find("File too large"), std::string::npos) << cost.message;
  EXPECT_EQ(read_text(path), "nine byte\nnine byte\n");
}

}  // namespace
}  // namespace mantissa
