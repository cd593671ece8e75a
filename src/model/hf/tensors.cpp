#include "model/hf/tensors.h"

#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "model/hf/folder.h"
#include "model/hf/index.h"

namespace mantissa::hf {
namespace {

// Bytes of an index; a tensor takes about a hundred.
constexpr uint64_t kMaxIndexBytes = safetensors::kMaxHeaderBytes;

// The shard holds the `count` tensors that the index places in it and nothing else.
void check_shard(const safetensors::Reader& file, const std::string& shard, size_t count, const Index& index,
                 const std::string& index_path) {
  for (const auto& [name, view] : file.tensors()) {
    const auto at = index.weight_map.find(name);
    if (at == index.weight_map.end())
      fail(Exit::kInput, "{}: tensor \"{}\" is not in the index", file.name(), printable(name));
    if (at->second != shard)
      fail(Exit::kInput, "{}: tensor \"{}\" is here, the index places it in {}", file.name(), printable(name),
           at->second);
  }
  if (file.tensors().size() == count) return;
  for (const auto& [name, place] : index.weight_map)
    if (place == shard && !file.find(name))
      fail(Exit::kInput, "{}: tensor \"{}\" is in {}, says the index, but not there", index_path, printable(name),
           shard);
}

safetensors::Reader open_shard(const std::string& folder, const std::string& shard, const std::string& index_path) {
  const std::string path = join_path(folder, shard);
  if (!exists(path)) fail(Exit::kInput, "{}: shard {} is not there", index_path, shard);
  // The hub's cache holds links; following one that a stranger's folder brings could read any file.
  return safetensors::Reader::open(path, Links::kRefuse);
}

}  // namespace

Tensors Tensors::open(const std::string& folder) {
  Tensors tensors;
  tensors.folder_ = folder;
  const std::string single = join_path(folder, kWeights), index_path = join_path(folder, kIndex);
  if (exists(single)) {
    tensors.name_ = single;
    tensors.files_.push_back(safetensors::Reader::open(single));
  } else if (exists(index_path)) {
    tensors.name_ = index_path;
    tensors.sharded_ = true;
    const MappedFile file = MappedFile::open(index_path);
    if (file.bytes().size() > kMaxIndexBytes)
      fail(Exit::kInput, "{}: has {} bytes, expected at most {}", index_path, file.bytes().size(), kMaxIndexBytes);
    const Index index = parse_index(file.text(), index_path);
    tensors.declared_ = index.total_size;
    std::map<std::string, size_t> shards;
    for (const auto& [name, shard] : index.weight_map) ++shards[shard];
    for (const auto& [shard, count] : shards) {
      tensors.files_.push_back(open_shard(folder, shard, index_path));
      check_shard(tensors.files_.back(), shard, count, index, index_path);
    }
  } else {
    refuse_without_weights(folder);
  }
  for (const safetensors::Reader& file : tensors.files_)
    for (const auto& [name, view] : file.tensors()) tensors.views_.emplace(name, &view);
  return tensors;
}

const safetensors::View* Tensors::find(const std::string& name) const {
  const auto at = views_.find(name);
  return at == views_.end() ? nullptr : at->second;
}

}  // namespace mantissa::hf
