#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/safetensors.h"
#include "base/safetensors_header.h"
#include "base/text.h"

namespace mantissa::safetensors {
namespace {

// Larger elements first, then by name.
bool comes_before(std::string_view dtype_a, const std::string& a, std::string_view dtype_b, const std::string& b) {
  const int bits_a = dtype_bits(dtype_a), bits_b = dtype_bits(dtype_b);
  return bits_a != bits_b ? bits_a > bits_b : a < b;
}

uint64_t size_of(const TensorInfo& tensor, const std::string& path) {
  const int bits = dtype_bits(tensor.dtype);
  check(bits != 0, "safetensors: tensor \"{}\" has unknown dtype \"{}\"", tensor.name, tensor.dtype);
  check(tensor.shape.size() <= kMaxRank, "safetensors: tensor \"{}\" has {} dimensions", tensor.name,
        tensor.shape.size());
  return data_bytes(tensor.shape, bits, path, tensor.name);
}

}  // namespace

Writer::Writer(const std::string& path, std::vector<TensorInfo> tensors, const Metadata& metadata)
    : file_(path), path_(path), tensors_(std::move(tensors)) {
  std::sort(tensors_.begin(), tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return comes_before(a.dtype, a.name, b.dtype, b.name); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const TensorInfo& tensor : tensors_) {
    const uint64_t size = size_of(tensor, path);
    check(!header.contains(tensor.name), "safetensors: tensor \"{}\" is given twice", tensor.name);
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {due_, due_ + size}}};
    due_ += size;
  }
  std::string json = header.dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  const uint64_t length = json.size();
  check(length <= kMaxHeaderBytes, "safetensors: {}: header of {} bytes, limit {}", path, length, kMaxHeaderBytes);
  header_.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  header_ += json;
  file_.write(header_);
}

void Writer::write(std::span<const std::byte> bytes) {
  check(bytes.size() <= due_, "safetensors: {}: {} bytes of data, {} were announced", path_, bytes.size(), due_);
  due_ -= bytes.size();
  file_.write(bytes);
}

void Writer::commit() {
  check(due_ == 0, "safetensors: {}: {} bytes of data are missing", path_, due_);
  file_.commit();
}

void write(const std::string& path, std::vector<Entry> entries, const Metadata& metadata) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return comes_before(a.dtype, a.name, b.dtype, b.name); });
  std::vector<TensorInfo> tensors;
  for (const Entry& entry : entries) {
    tensors.push_back({entry.name, entry.dtype, entry.shape});
    const uint64_t size = size_of(tensors.back(), path);
    check(size == entry.bytes.size(), "safetensors: tensor \"{}\" holds {} bytes, expected {} ({} {})", entry.name,
          entry.bytes.size(), size, entry.dtype, shape_text(entry.shape));
  }
  Writer writer(path, std::move(tensors), metadata);
  for (const Entry& entry : entries) writer.write(entry.bytes);
  writer.commit();
}

}  // namespace mantissa::safetensors
