// Causal attention of a sequence's newest tokens over its KV cache, grouped queries; softmax in FP32. For decoding; its
// sums run in another order than attention_fwd's.
#pragma once

#include "ops/rope.h"
#include "tensor/arena.h"
#include "tensor/exec.h"

namespace mantissa {

// Keys and values of P positions of one layer, BF16 or F32. Keys lie in blocks of 16 positions, [KV, P/16, D, 16], so
// that 16 scores are one vector; values are [KV, P, V], V = D rounded up to 16, zero beyond D. On a GPU the same memory
// holds keys as [KV, P, D].
struct KvCache {
  Tensor keys, values;

  int64_t capacity() const { return values.dim(1); }  // P
  int64_t bytes() const { return keys.bytes() + values.bytes(); }
};

// A cache with room for `tokens` positions, rounded up to 32.
KvCache make_kv_cache(Allocator& memory, DType dtype, const HeadLayout& layout, int64_t tokens);

// Longest cache that a thread's scratch takes.
constexpr int64_t kCachedAttentionMaxTokens = int64_t{1} << 17;

// GPU: positions whose sums one block makes.
constexpr int64_t kCachedAttentionSplit = 128;
// GPU scratch for a call of `tokens` tokens that ends at position `length`. A call takes less, down to one token's, by
// running its tokens one part after another.
int64_t cached_attention_scratch_bytes(const HeadLayout& layout, int64_t length, int64_t tokens);

// Puts the keys and values of qkv[T, (N + 2 KV) D] at positions [length, length + T) of the cache, then
// out[t, N D] = softmax(scale q kᵀ) v over positions 0 to length + t. out and the cache have qkv's dtype. A token's
// result does not depend on how tokens are cut into calls. Throws Exit::kInternal when the cache is too short.
void cached_attention(Exec& exec, Tensor out, const KvCache& cache, int64_t length, ConstTensor qkv,
                      const HeadLayout& layout, float scale);

}  // namespace mantissa
