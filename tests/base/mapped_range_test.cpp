#include "base/mapped_range.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <thread>

#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

constexpr size_t kPage = 4096;

size_t sum_of(const MappedFile& file) { return std::accumulate(file.text().begin(), file.text().end(), size_t{0}); }

TEST(MappedRange, ShrunkenFilesAreRefusedWithTheirPlace) {
  TempFolder folder;
  const auto place = [] { return std::string("row 12"); };
  for (const size_t left : {size_t{0}, kPage - 100, kPage, 3 * kPage, 3 * kPage + 50}) {
    const std::string path = folder / "a.bin";
    write_atomic(path, std::string(3 * kPage + 100, 'a'));
    const MappedFile file = MappedFile::open(path);
    EXPECT_EQ(read_mapped(
                  file, [&] { return sum_of(file); }, place),
              (3 * kPage + 100) * 'a');
    std::filesystem::resize_file(path, left);
    EXPECT_EQ(error_of(Exit::kInput,
                       [&] {
                         read_mapped(
                             file, [&] { return sum_of(file); }, place);
                       }),
              fmt::format("{}: row 12: the file has shrunk to {} bytes, expected the {} that it had when it was opened",
                          path, left, 3 * kPage + 100));
    // What reading zeros threw is not what happened.
    EXPECT_NE(error_of(Exit::kInput,
                       [&] {
                         read_mapped(
                             file, [&] { check(sum_of(file) == 1, "zeros"); }, place);
                       })
                  .find("row 12"),
              std::string::npos);
    // Once bytes were lost, a file that grows again does not bring them back.
    std::filesystem::resize_file(path, 4 * kPage);
    EXPECT_FALSE(is_whole(file));
  }
}

TEST(MappedRange, AnotherFileInItsPlaceSaysNothing) {
  TempFolder folder;
  const std::string path = folder / "a.bin";
  write_atomic(path, std::string(2 * kPage, 'a'));
  const MappedFile file = MappedFile::open(path);
  write_atomic(path, "b");
  EXPECT_EQ(read_mapped(
                file, [&] { return sum_of(file); }, [] { return std::string(); }),
            2 * kPage * 'a');
  std::filesystem::remove(path);
  EXPECT_TRUE(is_whole(file));
}

TEST(MappedRange, AnyThreadMayTouchIt) {
  TempFolder folder;
  const std::string path = folder / "a.bin";
  write_atomic(path, std::string(64 * kPage, 'a'));
  const MappedFile file = MappedFile::open(path);
  std::filesystem::resize_file(path, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_EQ(sum_of(file), 0u); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(is_whole(file));
}

TEST(MappedRange, RangesAreUsedAgain) {
  TempFolder folder;
  write_atomic(folder / "a.bin", std::string(kPage, 'a'));
  write_atomic(folder / "b.bin", std::string(kPage, 'b'));
  {
    const MappedFile a = MappedFile::open(folder / "a.bin");
    std::filesystem::resize_file(folder / "a.bin", 0);
    EXPECT_EQ(sum_of(a), 0u);
  }
  MappedFile b = MappedFile::open(folder / "b.bin");
  EXPECT_TRUE(is_whole(b));
  const MappedFile moved = std::move(b);
  EXPECT_EQ(sum_of(moved), kPage * 'b');
  EXPECT_TRUE(is_whole(moved));
}

// As without the ranges: by the signal, or by AddressSanitizer's own handler, which reports it.
#if defined(__SANITIZE_ADDRESS__)
#define EXPECT_BUS(statement) EXPECT_DEATH(statement, "AddressSanitizer: BUS")
#else
#define EXPECT_BUS(statement) EXPECT_EXIT(statement, ::testing::KilledBySignal(SIGBUS), "")
#endif

TEST(MappedRangeDeathTest, OtherRangesEndTheProcess) {
  TempFolder folder;
  const auto touch = [&] {
    write_atomic(folder / "a.bin", std::string(kPage, 'a'));
    const MappedFile guarded = MappedFile::open(folder / "a.bin");
    const int other = ::memfd_create("other", 0);
    if (::ftruncate(other, kPage) != 0) ::_exit(1);
    const auto* bytes = static_cast<const volatile char*>(::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, other, 0));
    if (::ftruncate(other, 0) != 0) ::_exit(1);
    ::_exit(bytes[0]);
  };
  EXPECT_BUS(touch());
  const auto sent = [&] {
    const MappedFile guarded = MappedFile::open(folder / "a.bin");
    ::raise(SIGBUS);
    ::_exit(0);
  };
  write_atomic(folder / "a.bin", "a");
  EXPECT_BUS(sent());
}

}  // namespace
}  // namespace mantissa
