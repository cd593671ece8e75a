// The tensors of a model folder by name, from one file or from shards; mapped, nothing is copied.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/safetensors.h"

namespace mantissa::hf {

class Tensors {
 public:
  // FOLDER/model.safetensors, else the shards that model.safetensors.index.json names, each opened without following
  // links and holding exactly what the index says. Exit::kInput names file and rule; a folder with other weights is
  // refused with a way out.
  static Tensors open(const std::string& folder);

  const std::map<std::string, const safetensors::View*>& all() const { return views_; }
  const safetensors::View* find(const std::string& name) const;  // nullptr when absent

  const std::string& folder() const { return folder_; }
  // The file that error messages name: model.safetensors or the index.
  const std::string& name() const { return name_; }
  const std::vector<safetensors::Reader>& files() const { return files_; }
  bool sharded() const { return sharded_; }
  // For whoever has copied values: no file has become shorter since it was opened (Exit::kInput).
  void check_whole() const {
    for (const safetensors::Reader& file : files_) file.check_whole();
  }
  // metadata.total_size of the index, which nothing depends on.
  std::optional<uint64_t> declared_bytes() const { return declared_; }

 private:
  std::string folder_, name_;
  bool sharded_ = false;
  std::optional<uint64_t> declared_;
  std::vector<safetensors::Reader> files_;
  std::map<std::string, const safetensors::View*> views_;
};

}  // namespace mantissa::hf
