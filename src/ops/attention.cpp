#include "ops/attention.h"

#include <algorithm>

#include "ops/cpu/attention.h"
#include "ops/cuda/attention/scratch.h"
#include "ops/cuda/table.h"
#include "ops/expect.h"

namespace mantissa {
namespace {

void check_args(const char* op, const Exec& exec, const ConstTensor& qkv, const ConstTensor& out,
                const ConstTensor& lse, const Segments& documents, const HeadLayout& layout, float scale) {
  const ConstTensor& segments = documents.offsets;
  check(layout.kv_heads > 0 && layout.heads > 0 && layout.heads % layout.kv_heads == 0,
        "{}: {} heads, expected a multiple of {} kv heads", op, layout.heads, layout.kv_heads);
  check(layout.head_dim > 0 && layout.head_dim <= kAttentionMaxHeadDim, "{}: head_dim is {}, expected 1 to {}", op,
        layout.head_dim, kAttentionMaxHeadDim);
  check(scale > 0, "{}: scale is {}, expected a positive number", op, scale);
  if (qkv.dtype != DType::kBF16 && qkv.dtype != DType::kF32)
    fail(Exit::kInternal, "{}: qkv is {}, expected bf16 or f32", op, qkv);
  const int64_t tokens = qkv.rows();
  expect(op, "qkv", qkv, qkv.dtype, {tokens, layout.qkv_cols()}, "[T, (N + 2 KV) D]");
  expect(op, "out", out, qkv.dtype, {tokens, layout.heads * layout.head_dim}, "[T, N D], dtype of qkv");
  expect(op, "lse", lse, DType::kF32, {layout.heads, tokens}, "[N, T]");
  if (!segments.data || segments.dtype != DType::kI32 || segments.shape.rank() != 1 || segments.dim(0) < 1)
    fail(Exit::kInternal, "{}: segments is {}, expected i32[S+1]", op, segments);
  const int64_t count = segments.dim(0) - 1, longest = documents.longest, uniform = documents.uniform;
  check(longest >= 0, "{}: the longest segment has {} tokens", op, longest);
  check(uniform == 0 || (uniform > 0 && uniform * count == tokens && (longest == 0 || longest >= uniform)),
        "{}: {} segments of {} tokens each, the longest of {}: expected {} tokens", op, count, uniform, longest,
        tokens);
  if (exec.device()) return;
  const auto* s = static_cast<const int32_t*>(segments.data);
  check(s[0] == 0 && s[count] == tokens, "{}: segments go from {} to {}, expected 0 to {} (T of qkv)", op, s[0],
        s[count], tokens);
  for (int64_t i = 0; i < count; ++i)
    check(s[i] <= s[i + 1], "{}: segments[{}] is {}, after {}: expected ascending offsets", op, i + 1, s[i + 1], s[i]);
}

template <class E>
AttentionJob<E> job_of(const Exec& exec, const ConstTensor& qkv, const ConstTensor& segments, const HeadLayout& layout,
                       float scale) {
  return {.qkv = qkv.as<E>(),
          .segments = segments.as<int32_t>(),
          .segment_count = segments.dim(0) - 1,
          .tokens = qkv.rows(),
          .layout = layout,
          .scale = scale,
          .kernel = &tile_kernel(exec, qkv.dtype == DType::kBF16 ? GemmMath::kBF16 : GemmMath::kF32)};
}

void check_units(const char* op, const Exec& exec, bool listed) {
  check(listed, "{}: {} bytes of shared scratch do not hold the list of documents x heads", op,
        exec.shared_scratch_bytes());
}

}  // namespace

void attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                   const HeadLayout& layout, float scale) {
  const char* op = "attention_fwd";
  check_args(op, exec, qkv, out, lse, segments, layout, scale);
  if (exec.device()) return exec.gpu().attention_fwd(exec, out, lse, qkv, segments, layout, scale);
  const auto run = [&]<class E>(E) {
    AttentionJob<E> job = job_of<E>(exec, qkv, segments.offsets, layout, scale);
    job.out = out.as<E>(), job.lse = lse.as<float>();
    check_units(op, exec, MANTISSA_CPU_CALL(exec, attention_fwd, exec, job));
  };
  qkv.dtype == DType::kBF16 ? run(bf16{}) : run(float{});
}

void attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                   const Segments& segments, const HeadLayout& layout, float scale) {
  const char* op = "attention_bwd";
  check_args(op, exec, qkv, out, lse, segments, layout, scale);
  expect(op, "dqkv", dqkv, qkv.dtype, qkv.shape, "as qkv");
  expect(op, "dout", dout, qkv.dtype, out.shape, "as out");
  if (exec.device()) return exec.gpu().attention_bwd(exec, dqkv, dout, qkv, out, lse, segments, layout, scale);
  const auto run = [&]<class E>(E) {
    AttentionJob<E> job = job_of<E>(exec, qkv, segments.offsets, layout, scale);
    // Backward reads both.
    job.out = const_cast<E*>(out.as<E>()), job.lse = const_cast<float*>(lse.as<float>());
    job.dout = dout.as<E>(), job.dqkv = dqkv.as<E>();
    check_units(op, exec, MANTISSA_CPU_CALL(exec, attention_bwd, exec, job));
  };
  qkv.dtype == DType::kBF16 ? run(bf16{}) : run(float{});
}

int64_t attention_scratch_bytes(DType dtype, int64_t tokens, int64_t longest, int64_t segments,
                                const HeadLayout& layout) {
  const int64_t own = cuda::own_scratch_bytes(tokens, layout);
  if (dtype != DType::kBF16) return own;
  return std::max({own, cuda::fused_scratch_bytes(tokens, segments, layout),
                   cuda::cudnn_scratch_bytes(tokens, longest, segments, layout)});
}

}  // namespace mantissa
