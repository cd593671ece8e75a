// Pages of mapped files that go away under their reader: a file that shrinks, or a disk that cannot be read, raises
// SIGBUS in whoever touches such a page. Inside a guarded range, as every MappedFile's is, the rest of the range
// becomes zeros and the range is marked, in whichever thread it happens; everywhere else the signal does what it did
// before. So whoever reads a mapped file goes through read_mapped(), or asks is_whole() once it has read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/file.h"

namespace mantissa {

// Guards `size` mapped bytes of a file from `data` on until release_range(). The first call installs the handler.
void guard_range(const void* data, size_t size, uint64_t device, uint64_t inode);
// To be called before the range is unmapped.
void release_range(const void* data);
// Of a guarded range, until it is released: whether a byte of it could not be read. For a range without a file's name.
const std::atomic<bool>& lost_flag(const void* data);

// The file has lost nothing since it was opened: every byte read so far was its own. One stat(), Exit::kInput where
// that fails but for a name that is gone.
bool is_whole(const MappedFile& file);
// Exit::kInput: "FILE: PLACE: ..." with the bytes that it has and had.
[[noreturn]] void refuse_shrunk(const MappedFile& file, const std::string& place);

// Gives body(), which reads bytes of `file`. A file that is not whole behind it is refused, with place() in the
// message, whatever body() gave or threw.
template <class Body, class Place>
auto read_mapped(const MappedFile& file, Body&& body, Place&& place) {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      if (is_whole(file)) return;
    } else {
      auto result = body();
      if (is_whole(file)) return result;
    }
  } catch (...) {
    if (is_whole(file)) throw;
  }
  refuse_shrunk(file, place());
}

}  // namespace mantissa
