// Checks a folder of MDS shards to the last byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::mds {

struct VerifyReport {
  int64_t shards = 0, samples = 0;
  uint64_t bytes = 0;                 // of the shards, unpacked
  int64_t hashes = 0;                 // that were computed and agree
  std::vector<std::string> problems;  // empty: all is well; at most 20, one a shard
  std::vector<std::string> notes;     // what could not be checked, and what was found
};

// Index, sizes, hashes, headers, every sample of every column (arrays, UTF-8, JSON), and where mantissa.json is there:
// row lengths, ids, document lengths, labels, its counts and statistics. Throws nothing for what a file holds.
VerifyReport verify(const std::string& folder);

}  // namespace mantissa::mds
