// One file of token ids, mapped and checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/token_files/elements.h"
#include "data/token_files/token_source.h"

namespace mantissa {

struct TokenFile {
  std::string name;  // the .bin, for messages
  Elements tokens;
  std::vector<std::string> paths;  // of all files that belong to it
  // megatron: documents; token offset where document d begins, document_begin(documents) is the end.
  int64_t documents = 0;
  int64_t document_begin(int64_t document) const;

  MappedFile data, index;
  int64_t sequences = 0;
  const std::byte* pointers = nullptr;          // int64[sequences], byte offsets in the .bin
  const std::byte* document_indices = nullptr;  // int64[documents + 1], in sequences
};

// Exit::kInput for a file that is malformed or of another format; Exit::kUsage when options.token_dtype contradicts it.
TokenFile open_token_file(const std::string& path, const std::string& format, const TokenOptions& options);

// data.token_dtype as an element type, `automatic` for "auto". Exit::kUsage for a name that no key takes.
Element token_element(const std::string& token_dtype, Element automatic);

}  // namespace mantissa
