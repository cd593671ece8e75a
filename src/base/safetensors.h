// Safetensors files: u64 N (little-endian), N bytes of JSON {"name": {"dtype","shape","data_offsets":[begin,end]},
// ...}, then the data. Format: https://github.com/huggingface/safetensors. Little-endian hosts only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/output_file.h"

namespace mantissa::safetensors {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr size_t kMaxRank = 8;

// Bits of one element of a dtype by its name in the file ("F32", "BF16", "F8_E4M3", "F4", ...); 0 for an unknown name.
int dtype_bits(std::string_view dtype);

struct View {
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // may be unaligned: copy out, do not cast

  int64_t elements() const;
};

using Metadata = std::map<std::string, std::string>;

// Checks a whole image of a file: header within bounds, one JSON object, no key twice, known dtypes, rank <= kMaxRank,
// sizes that match shape x dtype, offsets from 0 without hole, overlap or rest. Errors (Exit::kInput) name file and
// tensor. Pickle, GGUF, LFS pointers, HTML and other known files are refused with a way out.
class Reader {
 public:
  static Reader open(const std::string& path, Links links = Links::kFollow);
  // Views point into `image`, which must outlive the reader.
  static Reader parse(std::span<const std::byte> image, const std::string& name);

  const std::map<std::string, View>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  std::span<const std::byte> header() const { return header_; }  // as it stands in the file, with its length before it
  const std::string& name() const { return name_; }
  // For whoever has copied bytes of views: the file has not become shorter since it was opened (Exit::kInput).
  void check_whole() const;

  const View* find(const std::string& tensor) const;  // nullptr when absent
  const View& at(const std::string& tensor) const;    // absent: Exit::kInput with the nearest name

 private:
  MappedFile file_;
  std::string name_;
  std::map<std::string, View> tensors_;
  Metadata metadata_;
  std::span<const std::byte> header_;
};

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Writes an OutputFile, durably, piece by piece: nothing of the data is kept in memory. Order of the data: larger
// elements first, then by name, as Hugging Face's writer; the header is padded with spaces so that data starts at a
// multiple of 8. Two tensors of one name, an unknown dtype and data of another size than announced are Exit::kInternal.
class Writer {
 public:
  Writer(const std::string& path, std::vector<TensorInfo> tensors, const Metadata& metadata = {{"format", "pt"}});

  // In the order in which their data is due.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // The header as it stands in the file, with its length before it.
  const std::string& header() const { return header_; }
  // The next bytes of the data: tensor after tensor, in pieces of any size.
  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  OutputFile file_;
  std::string path_, header_;
  std::vector<TensorInfo> tensors_;
  uint64_t due_ = 0;  // bytes of data to come
};

struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// A file of tensors that lie in memory, through Writer. Entries whose bytes do not match shape x dtype are
// Exit::kInternal.
void write(const std::string& path, std::vector<Entry> entries, const Metadata& metadata = {{"format", "pt"}});

}  // namespace mantissa::safetensors
