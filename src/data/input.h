// Input files piece by piece: as they are, or unpacked from gzip or zstd within bounds; hashed on the way.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/sha256.h"
#include "data/record.h"

namespace mantissa {

inline constexpr uint64_t kMaxUnpackRatio =
    1000;  // of unpacked to packed bytes, past the first 64 MiB; text stays below 100
inline constexpr uint64_t kFreeUnpackedBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxMemoryText = uint64_t{256} << 20;  // of a file that is read as a whole

class InputStream {
 public:
  // Recognises gzip (all members, so dictzip too) and zstd (all frames) by their first bytes; what is known to be no
  // data (LFS pointer, web page, pickle, ...) is refused with a way out. Errors: Exit::kInput.
  explicit InputStream(const std::string& path);
  ~InputStream();

  // The next bytes of the text, at most 1 MiB, valid until the next call; none at the end. Exit::kInterrupted when a
  // stop signal was caught.
  std::string_view next();
  uint64_t taken() const { return taken_; }  // bytes of the file
  double share() const {
    return file_.size() == 0 ? 1 : static_cast<double>(taken_.load()) / static_cast<double>(file_.size());
  }
  const std::string& path() const { return file_.path(); }
  bool packed() const { return unpacker_ != nullptr; }
  // Size and SHA-256 of the file as it lies on the disk; hashes the rest. No next() may follow.
  SourceFile source();

 private:
  class Unpacker;
  class Gzip;
  class Zstd;

  std::string_view read();  // the next bytes of the file, hashed

  FileStream file_;
  std::string packed_, unpacked_;   // buffers
  std::string_view pending_;        // read and not yet unpacked
  std::atomic<uint64_t> taken_{0};  // share() is asked from other threads
  uint64_t given_ = 0;
  Sha256 hash_;
  std::unique_ptr<Unpacker> unpacker_;  // null: as it is
};

// The whole text of a file of at most kMaxMemoryText bytes, packed and unpacked; `source` describes it.
std::string read_input(const std::string& path, SourceFile& source);

}  // namespace mantissa
