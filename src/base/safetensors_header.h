// The JSON header of a safetensors file, read event by event: what does not belong there is refused where it begins, so
// memory stays in proportion to the tensors that the header names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/safetensors.h"

namespace mantissa::safetensors {

// Where the data of a tensor lies, relative to the start of the data.
struct Placed {
  const std::string* name;
  uint64_t begin, end;
};

struct Header {
  std::map<std::string, View> tensors;  // bytes still empty
  std::vector<Placed> placed;           // in the order of the header
  Metadata metadata;
};

// `file` begins each message. Checks everything but the places against each other and the file.
Header parse_header(std::string_view json, const std::string& file);

// shape x dtype in bytes; Exit::kInput on overflow and on a part of a byte.
uint64_t data_bytes(const std::vector<int64_t>& shape, int bits, const std::string& file, const std::string& tensor);

// Exit::kInput: `file: tensor "name": message`.
[[noreturn]] void refuse_tensor(const std::string& file, const std::string& tensor, const std::string& message);

}  // namespace mantissa::safetensors
