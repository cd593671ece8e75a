// Input files as text: mapped as they are, or unpacked from gzip and zstd within bounds.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "data/documents.h"

namespace mantissa {

inline constexpr uint64_t kMaxUnpackedBytes = uint64_t{16} << 30;
inline constexpr uint64_t kMaxUnpackRatio =
    1000;  // of unpacked to packed bytes, past the first 64 MiB; text stays below 100
inline constexpr uint64_t kFreeUnpackedBytes = uint64_t{64} << 20;

class InputText {
 public:
  // Recognises gzip (all members, so dictzip too) and zstd (all frames) by their first bytes. Errors: Exit::kInput.
  static InputText open(const std::string& path);

  std::string_view text() const { return packed_ ? std::string_view(unpacked_) : file_.text(); }
  // Size and SHA-256 of the file as it lies on the disk.
  SourceFile source() const;

 private:
  MappedFile file_;
  std::string unpacked_;
  bool packed_ = false;
};

}  // namespace mantissa
