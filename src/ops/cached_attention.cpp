#include "ops/cached_attention.h"

#include "base/parallel.h"
#include "ops/cpu/cached_attention.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"

namespace mantissa {
namespace {

constexpr const char* kOp = "cached_attention";
static_assert(kCachedRows * kCachedAttentionMaxTokens * int64_t{sizeof(float)} <= Exec::kThreadScratch);

int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

template <class E>
void run(Exec& exec, const Tensor& out, const KvCache& cache, int64_t length, const ConstTensor& qkv,
         const HeadLayout& layout, float scale) {
  const CachedAttentionJob<E> job{.qkv = qkv.as<E>(),
                                  .out = out.as<E>(),
                                  .keys = cache.keys.as<E>(),
                                  .values = cache.values.as<E>(),
                                  .capacity = cache.capacity(),
                                  .length = length,
                                  .tokens = qkv.dim(0),
                                  .layout = layout,
                                  .scale = scale};
  parallel_for(layout.kv_heads * job.tokens, 16,
               [&](int64_t begin, int64_t end) { MANTISSA_CPU_CALL(exec, cache_keys_values, job, begin, end); });
  parallel_for(layout.kv_heads * job.row_blocks(), 1, [&](int64_t begin, int64_t end) {
    MANTISSA_CPU_CALL(exec, attend_cached, job, begin, end, reinterpret_cast<float*>(exec.thread_scratch(thread_id())));
  });
}

}  // namespace

KvCache make_kv_cache(Allocator& memory, DType dtype, const HeadLayout& layout, int64_t tokens) {
  const int64_t capacity = round_up(tokens, kCachedKeyStep);
  return {.keys = memory.tensor("kv cache", dtype, {layout.kv_heads, capacity / 16, layout.head_dim, 16}),
          .values = memory.tensor("kv cache", dtype, {layout.kv_heads, capacity, round_up(layout.head_dim, 16)})};
}

int64_t cached_attention_scratch_bytes(const HeadLayout& layout, int64_t length, int64_t tokens) {
  const int64_t splits = ceil_div(length, kCachedAttentionSplit);
  return tokens * layout.heads * splits * (layout.head_dim + 2) * int64_t{sizeof(float)};
}

void cached_attention(Exec& exec, Tensor out, const KvCache& cache, int64_t length, ConstTensor qkv,
                      const HeadLayout& layout, float scale) {
  check(layout.kv_heads > 0 && layout.heads > 0 && layout.heads % layout.kv_heads == 0,
        "{}: {} heads, expected a multiple of {} kv heads", kOp, layout.heads, layout.kv_heads);
  check(layout.head_dim > 0 && layout.head_dim <= kCachedMaxHeadDim, "{}: head_dim is {}, expected 1 to {}", kOp,
        layout.head_dim, kCachedMaxHeadDim);
  check(scale > 0, "{}: scale is {}, expected a positive number", kOp, scale);
  check(qkv.shape.rank() == 2, "{}: qkv is {}, expected [T, (N + 2 KV) D]", kOp, qkv);
  const int64_t tokens = qkv.dim(0), width = round_up(layout.head_dim, 16);
  expect_float(kOp, "qkv", qkv, {tokens, layout.qkv_cols()}, "T, (N + 2 KV) D");
  expect(kOp, "out", out, qkv.dtype, {tokens, layout.heads * layout.head_dim}, "T, N D, dtype of qkv");
  check(cache.values.shape.rank() == 3, "{}: values is {}, expected [KV, P, V]", kOp, cache.values);
  const int64_t capacity = cache.capacity();
  check(capacity % kCachedKeyStep == 0 && capacity <= kCachedAttentionMaxTokens,
        "{}: the cache has {} positions, expected a multiple of {} up to {}", kOp, capacity, kCachedKeyStep,
        kCachedAttentionMaxTokens);
  expect(kOp, "values", cache.values, qkv.dtype, {layout.kv_heads, capacity, width}, "KV, P, V");
  expect(kOp, "keys", cache.keys, qkv.dtype, {layout.kv_heads, capacity / 16, layout.head_dim, 16}, "KV, P/16, D, 16");
  check(length >= 0 && length + tokens <= capacity, "{}: {} tokens behind {} in a cache of {}", kOp, tokens, length,
        capacity);
  if (exec.device()) return exec.gpu().cached_attention(exec, out, cache, length, qkv, layout, scale);
  qkv.dtype == DType::kBF16 ? run<bf16>(exec, out, cache, length, qkv, layout, scale)
                            : run<float>(exec, out, cache, length, qkv, layout, scale);
}

}  // namespace mantissa
