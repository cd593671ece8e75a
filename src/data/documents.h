// Documents as a reader leaves them: their bytes end to end, in the order of the file, and where each ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/data_config.h"
#include "data/record.h"

namespace mantissa {

struct Documents {
  std::string text;                   // all documents end to end
  std::vector<uint64_t> ends;         // offset behind each document
  int64_t empty = 0, short_ones = 0;  // left out: without a byte, below min_document_bytes
  std::string format;                 // text, jsonl, dictd
  std::vector<SourceFile> files;
  std::string name, version;  // of the package or set, from SOURCE.json beside the file; "" without one

  size_t size() const { return ends.size(); }
  std::string_view operator[](size_t i) const {
    const uint64_t begin = i == 0 ? 0 : ends[i - 1];
    return std::string_view(text).substr(begin, ends[i] - begin);
  }

  // max_documents is reached.
  bool full(const DataConfig& config) const {
    return config.max_documents > 0 && size() >= static_cast<size_t>(config.max_documents);
  }
};

// Reads all documents of `path`. Errors are Exit::kInput and name file, line or entry.
Documents read_documents(const std::string& path, const DataConfig& config);

}  // namespace mantissa
