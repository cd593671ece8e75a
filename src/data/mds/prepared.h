// mantissa.json, which lies beside the shards that `prepare` writes: what the rows are and what came into them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/record.h"
#include "data/rows.h"

namespace mantissa::mds {

struct Prepared {
  int64_t sequence_length = 0, vocab_size = 0, rows = 0;
  std::string tokenizer, tokenizer_sha256;  // as Tokenizer::name() and sha256()
  int32_t eos = -1;                         // -1: none was appended
  std::string eos_origin, packing;
  bool labels = false;         // the shards have a column `labels`
  int64_t documents = 0;       // that lie in the rows, whole or in part
  int64_t tokens = 0;          // of documents: rows * sequence_length - statistics.padding
  double unigram_entropy = 0;  // nats a token; 0: not measured
  RowStatistics statistics;
  std::map<std::string, int64_t> counts;  // what else was counted: "empty", "dropped_tokens", ...
  std::vector<SourceFile> sources;
};

inline constexpr const char* kPreparedName = "mantissa.json";

std::string to_json(const Prepared& prepared);
// Exit::kInput for what is missing, of another type, negative or contradictory.
Prepared parse_prepared(std::string_view json, const std::string& name);
// False when the folder has none.
bool read_prepared(const std::string& folder, Prepared& prepared);

}  // namespace mantissa::mds
