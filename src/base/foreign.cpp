#include "base/foreign.h"

#include "base/text.h"

namespace mantissa {

Foreign recognise_foreign(std::string_view head) {
  const std::string low = lower(head.substr(0, 64));
  const std::string_view start = trim(low);
  if (head.starts_with("PK\x03\x04")) return Foreign::kZip;
  // Protocol 2 and later; its second byte is the version, and the file goes on with an opcode.
  if (head.size() >= 2 && head[0] == '\x80' && head[1] >= 1 && head[1] <= 5) return Foreign::kPickle;
  if (head.starts_with("GGUF")) return Foreign::kGguf;
  if (start.starts_with("version https://git-lfs")) return Foreign::kLfsPointer;
  if (start.starts_with("<!doctype") || start.starts_with("<html") || start.starts_with("<?xml"))
    return Foreign::kWebPage;
  if (head.starts_with("\x89HDF")) return Foreign::kHdf5;
  if (head.starts_with("\x93NUMPY")) return Foreign::kNumpy;
  if (head.starts_with("ARROW1")) return Foreign::kArrow;
  if (head.starts_with("\x1f\x8b")) return Foreign::kGzip;
  if (head.starts_with("\x28\xb5\x2f\xfd")) return Foreign::kZstd;
  return Foreign::kNone;
}

std::string_view foreign_name(Foreign kind) {
  switch (kind) {
    case Foreign::kNone:
      return "";
    case Foreign::kZip:
      return "a zip archive (a PyTorch .bin/.pt file?), which can run code when loaded";
    case Foreign::kPickle:
      return "a Python pickle, which can run code when loaded";
    case Foreign::kGguf:
      return "a GGUF file";
    case Foreign::kLfsPointer:
      return "a Git LFS pointer, not the file itself; fetch it with `git lfs pull`";
    case Foreign::kWebPage:
      return "a web page, not the file itself; the download failed or needs a login";
    case Foreign::kHdf5:
      return "an HDF5 file";
    case Foreign::kNumpy:
      return "a NumPy file";
    case Foreign::kArrow:
      return "an Arrow IPC file";
    case Foreign::kGzip:
      return "a gzip file";
    case Foreign::kZstd:
      return "a zstd file";
  }
  return "";
}

}  // namespace mantissa
