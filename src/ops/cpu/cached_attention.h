// CPU kernels of ops/cached_attention.h; arguments are checked by the caller.
#pragma once

#include "numerics/bf16.h"
#include "ops/cpu/dispatch.h"
#include "ops/rope.h"

namespace mantissa {

constexpr int kCachedRows = 4;          // queries that share a pass over keys and values
constexpr int64_t kCachedKeyStep = 32;  // positions whose scores are computed at once
constexpr int64_t kCachedMaxHeadDim = 256;

template <class E>
struct CachedAttentionJob {
  const E* qkv = nullptr;  // [T, (N + 2 KV) D]
  E* out = nullptr;        // [T, N D]
  E* keys = nullptr;       // [KV, P/16, D, 16]
  E* values = nullptr;     // [KV, P, V]
  int64_t capacity = 0;    // P
  int64_t length = 0;      // positions before the first token
  int64_t tokens = 0;      // T
  HeadLayout layout;
  float scale = 1;

  // Queries of one kv head, token by token, in blocks.
  int64_t rows() const { return tokens * (layout.heads / layout.kv_heads); }
  int64_t row_blocks() const { return (rows() + kCachedRows - 1) / kCachedRows; }
};

// cache_keys_values: pairs [begin, end) of tokens x kv heads. attend_cached: units [begin, end) of kv heads x row
// blocks; scratch holds kCachedRows x P floats.
MANTISSA_CPU_KERNEL(template <class E>
                    void cache_keys_values(const CachedAttentionJob<E>& job, int64_t begin, int64_t end);
                    template <class E>
                    void attend_cached(const CachedAttentionJob<E>& job, int64_t begin, int64_t end, float* scratch);)

}  // namespace mantissa
