// Decoding over a KV cache on the GPU. It sees the cache's bytes in its own layout: keys [KV, P, D], a position's row
// after another's, in the memory of [KV, P/16, D, 16]; values [KV, P, V] as on a CPU. A cache that a CPU filled is not
// readable here, nor the other way round.
#pragma once

#include "ops/cached_attention.h"

namespace mantissa::cuda {

// Positions are cut into splits of 128, by their number in the sequence alone; a block computes one split of its rows,
// a second kernel joins a token's splits in order. Scratch: cached_attention_scratch_bytes(), of one token at least.
void cached_attention(Exec& exec, Tensor out, const KvCache& cache, int64_t length, ConstTensor qkv,
                      const HeadLayout& layout, float scale);

}  // namespace mantissa::cuda
