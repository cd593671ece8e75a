// Upper bounds of the scratch of embedding_bwd: tokens sorted by id, in tiles, and the sums of runs of one id that
// cross chunks.
#pragma once

#include <cstdint>

namespace mantissa::cuda {

constexpr int kSortTile = 1024;      // tokens a block
constexpr int kMostDigits = 512;     // values of a digit
constexpr int kEmbeddingChunk = 32;  // sorted tokens that are summed together
constexpr int64_t round_up_256(int64_t bytes) { return (bytes + 255) / 256 * 256; }
constexpr int64_t embedding_sort_bytes(int64_t tokens) {
  return round_up_256(4 * tokens * int64_t{sizeof(int32_t)}) +
         round_up_256((tokens + kSortTile - 1) / kSortTile * kMostDigits * int64_t{sizeof(int32_t)});
}
constexpr int64_t embedding_partial_bytes(int64_t tokens, int64_t cols) {
  return (tokens + kEmbeddingChunk - 1) / kEmbeddingChunk * 2 * cols * int64_t{sizeof(float)};
}

}  // namespace mantissa::cuda
