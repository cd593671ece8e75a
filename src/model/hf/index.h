// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa::hf {

struct Index {
  std::map<std::string, std::string> weight_map;  // tensor -> plain file name
  std::optional<uint64_t> total_size;             // metadata.total_size
};

// Exit::kInput, with `name` in front: no JSON, no weight_map, a tensor twice, a value that is no plain name of a
// .safetensors file in the folder. Other keys may hold anything.
Index parse_index(std::string_view json, const std::string& name);

}  // namespace mantissa::hf
