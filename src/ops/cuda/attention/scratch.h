// Upper bounds of the scratch that attention takes on a GPU, from sizes alone: they enter the memory plan.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/rope.h"

namespace mantissa::cuda {

// The length of all `slots` documents, where documents of at most `longest` tokens (0: not known) fill `tokens` only if
// they are equal; else 0.
constexpr int64_t equal_length(int64_t tokens, int64_t longest, int64_t slots) {
  const int64_t most = longest > 0 && longest < tokens ? longest : tokens;
  return slots * most == tokens ? most : 0;
}

// Lengths and first elements of packed documents (packed.h), and the gap to the next 256 bytes.
constexpr int64_t packed_bytes(int64_t slots) { return (4 * (4 * slots + 3) + 255) / 256 * 256; }

// The sums of dout ∘ out of each row and head, FP32.
constexpr int64_t own_scratch_bytes(int64_t tokens, const HeadLayout& layout) { return tokens * layout.heads * 4; }

// The list of documents' tiles of 128 tokens that the own kernels for Hopper walk over (hopper_tiles.cuh).
constexpr int64_t list_bytes(int64_t tokens, int64_t slots) { return (tokens / 128 + slots + 1) * 16; }

// Documents that a list of tiles is made of, at most.
constexpr int64_t kListedSlots = 1024;

// The own fused backward pass: steps of 64 queries that begin with documents, at most; its FP32 sums of dq, as wide as
// 128 columns, two floats a row and head, the list. 0 bytes: it does not take these sizes.
constexpr int64_t fused_steps(int64_t tokens, int64_t slots) { return tokens / 64 + slots; }
constexpr int64_t fused_scratch_bytes(int64_t tokens, int64_t slots, const HeadLayout& layout) {
  if (layout.head_dim <= 64 || layout.head_dim > 128 || layout.head_dim % 8 != 0 || slots > kListedSlots) return 0;
  return fused_steps(tokens, slots) * layout.heads * 64 * (128 + 2) * 4 + list_bytes(tokens, slots);
}

inline int64_t cudnn_scratch_bytes(int64_t tokens, int64_t longest, int64_t slots, const HeadLayout& layout) {
  const int64_t groups = layout.heads / layout.kv_heads;
  const int64_t sums = tokens * layout.heads * 4;                   // dout ∘ out of each row and head, FP32
  const int64_t queries = tokens * layout.heads * layout.head_dim;  // elements of q
  const int64_t margin = (int64_t{16} << 20) + slots * 1024;        // cuDNN 9.19 takes 256 bytes, packed 256 a slot
  if (equal_length(tokens, longest, slots))
    return sums + queries * 4 + (groups > 1 ? queries * 2 * 2 : 0) + margin;  // dq in FP32, dk and dv of each head
  const int64_t rows = tokens * layout.qkv_cols();  // dq, dk and dv of each head lie in rows as wide as qkv's
  return packed_bytes(slots) + sums + rows * 4 + (groups > 1 ? rows * groups * 4 * 2 : 0) + margin;
}

}  // namespace mantissa::cuda
