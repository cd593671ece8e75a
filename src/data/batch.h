// What a micro-batch feeds the model.
#pragma once

#include <cstdint>
#include <vector>

namespace mantissa {

inline constexpr int32_t kIgnoredLabel = -100;

// R rows of S tokens; T = R * S.
struct Batch {
  int64_t rows = 0, sequence_length = 0;
  std::vector<int32_t> ids;        // [T]
  std::vector<int32_t> labels;     // [T] next token of the segment; -100 at a segment's last position and where masked
  std::vector<int32_t> positions;  // [T] from 0 in each segment
  std::vector<int32_t> segments;   // [segments + 1] token offsets, first 0, last T; a row begins a segment
  int64_t valid_tokens = 0;        // labels that are not -100

  void clear();
  // Room for `rows_wanted` rows, so that filling it allocates nothing.
  void reserve(int64_t rows_wanted, int64_t tokens_a_row);
};

}  // namespace mantissa
