// One process at a time in a folder, on one host and across hosts.
#include "base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

std::string lock_of(const TempFolder& folder) { return folder / FolderLock::kName; }

// As a process on another host leaves it, renewed `seconds` ago.
void write_other_host(const TempFolder& folder, int64_t seconds) {
  const nlohmann::json json = {{"format", "mantissa run lock"}, {"host", "elsewhere"}, {"pid", 77}, {"boot", "another"},
                               {"id", "0123456789abcdef"},      {"time", ""}};
  write_atomic(lock_of(folder), json.dump());
  timeval now{};
  ::gettimeofday(&now, nullptr);
  now.tv_sec -= seconds;
  const timeval times[2] = {now, now};
  ASSERT_EQ(::utimes(lock_of(folder).c_str(), times), 0);
}

TEST(FolderLock, TheSecondIsRefusedByName) {
  const TempFolder folder;
  {
    const FolderLock first(folder.path());
    EXPECT_EQ(first.note(), "");
    first.expect_held();
    const std::string message = error_of(Exit::kUsage, [&] { FolderLock second(folder.path()); });
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    EXPECT_EQ(message,
              fmt::format("{}: process {} on {} works in this folder; wait for its end, or give another run.dir",
                          folder.path(), ::getpid(), host));
    EXPECT_TRUE(exists(lock_of(folder)));
  }
  EXPECT_FALSE(exists(lock_of(folder))) << "it is gone with its holder";
  const FolderLock again(folder.path());
}

// A process that was killed holds nothing.
TEST(FolderLock, AKilledProcessOfThisHost) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    ::_exit(0);  // as a kill: no destructor
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(exists(lock_of(folder)));
  const FolderLock mine(folder.path());
  EXPECT_EQ(mine.note(), "");
}

TEST(FolderLock, AnotherHostThatRenewsIt) {
  const TempFolder folder;
  write_other_host(folder, 60);
  const std::string before = read_text(lock_of(folder));
  const std::string message = error_of(Exit::kUsage, [&] { FolderLock lock(folder.path()); });
  EXPECT_NE(message.find("process 77 on elsewhere works in this folder"), std::string::npos) << message;
  EXPECT_EQ(read_text(lock_of(folder)), before);
}

TEST(FolderLock, WhatIsNoLockStays) {
  const TempFolder folder;
  write_atomic(lock_of(folder), "{\"format\": 3, \"mine\": true}");
  EXPECT_NE(error_of(Exit::kUsage, [&] { FolderLock lock(folder.path()); }).find("is not the lock of a run"),
            std::string::npos);
  EXPECT_EQ(read_text(lock_of(folder)), "{\"format\": 3, \"mine\": true}");
  std::filesystem::rename(lock_of(folder), folder / "other");
  std::filesystem::create_symlink("other", lock_of(folder));
  error_of(Exit::kStorage, [&] { FolderLock lock(folder.path()); });
  std::filesystem::remove(lock_of(folder));
  ASSERT_EQ(::mkfifo(lock_of(folder).c_str(), 0600), 0);
  error_of(Exit::kStorage, [&] { FolderLock lock(folder.path()); });
}

TEST(SlowFolderLock, AnotherHostThatIsSilent) {
  const TempFolder folder;
  write_other_host(folder, 200);
  const FolderLock lock(folder.path());
  EXPECT_NE(lock.note().find("process 77 on elsewhere has not renewed it for 20"), std::string::npos) << lock.note();
}

TEST(SlowFolderLock, ALostLockIsSeen) {
  const TempFolder folder;
  const FolderLock lock(folder.path());
  write_other_host(folder, 0);
  ::sleep(11);  // one renewal
  const std::string message = error_of(Exit::kStorage, [&] { lock.expect_held(); });
  EXPECT_NE(message.find("another process took it over"), std::string::npos) << message;
}

}  // namespace
}  // namespace mantissa
