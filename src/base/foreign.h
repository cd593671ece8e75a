// Files that are something else than their place says: recognised by their first bytes, so that the refusal names a way
// out.
#pragma once

#include <string>
#include <string_view>

namespace mantissa {

enum class Foreign {
  kNone,
  kZip,     // a PyTorch .bin or .pt file, .npz
  kPickle,  // can run code when loaded
  kGguf,
  kLfsPointer,  // stands for a file that Git LFS did not fetch
  kWebPage,
  kHdf5,
  kNumpy,
  kArrow,  // Arrow IPC file
  kGzip,
  kZstd,
};

// What a file that begins with `head` (64 bytes are enough) is, as far as it is one of the above.
Foreign recognise_foreign(std::string_view head);
// "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`": the kind, and the way out that does not
// depend on what was expected.
std::string_view foreign_name(Foreign kind);

}  // namespace mantissa
