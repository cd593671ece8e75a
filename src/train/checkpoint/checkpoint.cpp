#include "train/checkpoint/checkpoint.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/safetensors.h"

namespace mantissa {
namespace {

constexpr std::string_view kStatePrefix = "state-";

const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kE4M3:
      return "F8_E4M3";
    case DType::kE5M2:
      return "F8_E5M2";
    case DType::kE2M1:
      return "F4";
    case DType::kE8M0:
      return "F8_E8M0";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
  }
  return "?";
}

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

// Tensors in their order, cut where a file has enough.
std::vector<std::vector<const SavedTensor*>> split(std::span<const SavedTensor> tensors, int64_t file_bytes) {
  std::vector<std::vector<const SavedTensor*>> files;
  int64_t bytes = 0;
  for (const SavedTensor& tensor : tensors) {
    if (files.empty() || bytes >= file_bytes) files.emplace_back(), bytes = 0;
    files.back().push_back(&tensor);
    bytes += static_cast<int64_t>(tensor.size());
  }
  return files;
}

// Those of a device go through `read`.
std::span<const std::byte> bytes_in_memory(const SavedTensor& tensor, std::vector<std::byte>& read) {
  if (!tensor.state) return tensor.bytes;
  if (tensor.state->device == nullptr) return {static_cast<const std::byte*>(tensor.state->tensor.data), tensor.size()};
  read.resize(tensor.size());
  read_state(*tensor.state, read.data());
  return read;
}

// Writes one file and enters it and its pieces into the manifest.
void write_file(const std::string& folder, const std::string& name, const std::vector<const SavedTensor*>& tensors,
                Manifest& manifest) {
  std::map<std::string, const SavedTensor*> by_name;
  std::vector<safetensors::TensorInfo> infos;
  for (const SavedTensor* tensor : tensors) {
    by_name[tensor->name] = tensor;
    infos.push_back({tensor->name, safetensors_name(tensor->dtype), dims_of(tensor->shape)});
  }
  const std::string path = join_path(folder, name);
  safetensors::Writer writer(path, std::move(infos), {{"format", "mantissa-state"}});
  constexpr size_t kPieceBytes = size_t{16} << 20;  // checksum and write see the same bytes in the cache
  for (const safetensors::TensorInfo& info : writer.tensors()) {
    const SavedTensor& tensor = *by_name.at(info.name);
    std::vector<std::byte> read;
    const std::span<const std::byte> bytes = bytes_in_memory(tensor, read);
    Checksum sum;
    for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      const auto part = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
      sum.update(part);
      writer.write(part);
    }
    manifest.pieces.push_back({.tensor = info.name,
                               .dtype = info.dtype,
                               .shape = info.shape,
                               .first = 0,
                               .count = tensor.shape.count(),
                               .file = manifest.files.size(),
                               .checksum = sum.hex()});
  }
  writer.commit();
  manifest.files.push_back({name, file_size(path), checksum_of(writer.header())});
}

std::string text_of(const CheckpointPiece& piece) {
  return fmt::format("{} [{}]", piece.dtype, fmt::join(piece.shape, ","));
}

}  // namespace

void write_checkpoint(const std::string& place, int64_t step, const Json& run, std::span<const SavedTensor> tensors,
                      int64_t file_bytes) {
  NewFolder folder(place);
  Manifest manifest{.step = step, .files = {}, .pieces = {}, .run = run};
  const auto files = split(tensors, file_bytes);
  for (size_t i = 0; i < files.size(); ++i)
    write_file(folder.path(), fmt::format("{}{:05}.safetensors", kStatePrefix, i + 1), files[i], manifest);
  write_atomic(join_path(folder.path(), Manifest::kName), manifest.text());
  if (!exists(place)) return folder.commit();
  folder.exchange();
  remove_checkpoint_files(folder.path());
}

void remove_checkpoint(const std::string& place) {
  const std::string aside = fmt::format("{}.tmp-{}-old", place, ::getpid());
  if (::rename(place.c_str(), aside.c_str()) != 0)
    fail(Exit::kStorage, "{}: cannot be removed: {}", place, std::strerror(errno));
  remove_checkpoint_files(aside);
}

void remove_checkpoint_files(const std::string& folder) {
  for (const FolderEntry& entry : list_folder(folder)) {
    const std::string path = join_path(folder, entry.name);
    if (!entry.name.starts_with(kStatePrefix) && !entry.name.starts_with(Manifest::kName))
      fail(Exit::kStorage, "{}: is no file of a checkpoint; it stays", path);
    if (::unlink(path.c_str()) != 0) fail(Exit::kStorage, "{}: cannot be removed: {}", path, std::strerror(errno));
  }
  if (::rmdir(folder.c_str()) != 0) fail(Exit::kStorage, "{}: cannot be removed: {}", folder, std::strerror(errno));
}

Checkpoint Checkpoint::open(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  const std::string path = join_path(folder, Manifest::kName);
  checkpoint.manifest_ = parse_manifest(read_text(path), path);
  for (const CheckpointFile& file : checkpoint.manifest_.files) {
    const std::string at = join_path(folder, file.name);
    if (!exists(at)) fail(Exit::kInput, "{}: is not there, the checkpoint's manifest names it", at);
    if (const uint64_t bytes = file_size(at); bytes != file.bytes)
      fail(Exit::kInput, "{}: {} bytes, expected {}", at, bytes, file.bytes);
  }
  return checkpoint;
}

uint64_t Checkpoint::bytes() const {
  uint64_t sum = 0;
  for (const CheckpointFile& file : manifest_.files) sum += file.bytes;
  return sum;
}

void Checkpoint::read(const std::function<bool(const std::string&)>& wanted,
                      const std::function<void(const CheckpointPiece&, std::span<const std::byte>)>& f) const {
  for (size_t i = 0; i < manifest_.files.size(); ++i) {
    const CheckpointFile& file = manifest_.files[i];
    const std::string path = join_path(folder_, file.name);
    const auto reader = safetensors::Reader::open(path, Links::kRefuse);
    if (checksum_of(reader.header()) != file.header)
      fail(Exit::kInput, "{}: its header changed since it was written", path);
    size_t pieces = 0;
    for (const CheckpointPiece& piece : manifest_.pieces) {
      if (piece.file != i) continue;
      ++pieces;
      const safetensors::View* view = reader.find(piece.tensor);
      if (view == nullptr) fail(Exit::kInput, "{}: tensor {} is not there", path, piece.tensor);
      if (view->dtype != piece.dtype || view->elements() != piece.count)
        fail(Exit::kInput, "{}: tensor {}: {} of {} elements, expected {} of {}", path, piece.tensor, view->dtype,
             view->elements(), piece.dtype, piece.count);
      if (!wanted(piece.tensor)) continue;
      const bool same = checksum_of(view->bytes) == piece.checksum;
      reader.check_whole();
      if (!same) fail(Exit::kInput, "{}: tensor {}: changed since it was written", path, piece.tensor);
      f(piece, view->bytes);
      reader.check_whole();
    }
    if (pieces != reader.tensors().size())
      fail(Exit::kInput, "{}: {} tensors, expected {}", path, reader.tensors().size(), pieces);
  }
}

void Checkpoint::verify() const {
  read([](const std::string&) { return true; }, [](const CheckpointPiece&, std::span<const std::byte>) {});
}

void Checkpoint::restore(const std::function<void(const StateVisitor&)>& visit) const { take(visit, true); }
void Checkpoint::fill(const std::function<void(const StateVisitor&)>& visit) const { take(visit, false); }

void Checkpoint::take(const std::function<void(const StateVisitor&)>& visit, bool all) const {
  std::map<std::string, StateTensor> wanted;
  visit([&](const StateTensor& state) {
    check(wanted.emplace(state.name, state).second, "state tensor {} is enumerated twice", state.name);
  });
  std::set<std::string> filled;
  const auto takes = [&](const std::string& tensor) { return all || wanted.contains(tensor); };
  read(takes, [&](const CheckpointPiece& piece, std::span<const std::byte> bytes) {
    const auto found = wanted.find(piece.tensor);
    if (found == wanted.end()) fail(Exit::kInput, "{}: tensor {}: this run has no such state", folder_, piece.tensor);
    const StateTensor& state = found->second;
    if (safetensors_name(state.tensor.dtype) != piece.dtype || dims_of(state.tensor.shape) != piece.shape)
      fail(Exit::kInput, "{}: tensor {}: {}, this run has {} {}", folder_, piece.tensor, text_of(piece),
           safetensors_name(state.tensor.dtype), state.tensor.shape.str());
    StateTensor part = state;
    part.tensor.data = static_cast<std::byte*>(state.tensor.data) + bytes_of(state.tensor.dtype, piece.first);
    part.tensor.shape = {piece.count};
    write_state(part, bytes.data());
    filled.insert(piece.tensor);
  });
  for (const auto& [name, state] : wanted)
    if (!filled.contains(name)) fail(Exit::kInput, "{}: tensor {} is not in the checkpoint", folder_, name);
}

}  // namespace mantissa
