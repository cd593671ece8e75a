#include "ops/cpu/attention.h"

#include "base/parallel.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

template <class E>
inline float dot(const E* a, const E* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += to_float(a[i]) * to_float(b[i]);
  return sum;
}

}  // namespace

template <class E>
void attention_fwd(Exec& exec, const AttentionJob<E>& job) {
  const int64_t dim = job.layout.head_dim, heads = job.layout.heads, kv_heads = job.layout.kv_heads;
  const int64_t cols = job.layout.qkv_cols(), group = heads / kv_heads;
  parallel_for(job.segment_count * heads, 1, [&](int64_t first, int64_t last) {
    auto* row = reinterpret_cast<float*>(exec.thread_scratch(thread_id()));
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t h = unit % heads, begin = job.segments[unit / heads], end = job.segments[unit / heads + 1];
      for (int64_t i = begin; i < end; ++i) {
        const E* q = job.qkv + i * cols + h * dim;
        const E* k = job.qkv + (heads + h / group) * dim;
        const E* v = k + kv_heads * dim;
        float max = -__builtin_inff(), sum = 0;
        for (int64_t d = 0; d < dim; ++d) row[d] = 0;
        for (int64_t j = begin; j <= i; ++j) {
          const float s = job.scale * dot(q, k + j * cols, dim);
          const float grown = s > max ? s : max, alpha = __builtin_expf(max - grown), p = __builtin_expf(s - grown);
          max = grown;
          sum = sum * alpha + p;
          for (int64_t d = 0; d < dim; ++d) row[d] = row[d] * alpha + p * to_float(v[j * cols + d]);
        }
        for (int64_t d = 0; d < dim; ++d) job.out[(i * heads + h) * dim + d] = from_float<E>(row[d] / sum);
        job.lse[h * job.tokens + i] = max + __builtin_logf(sum);
      }
    }
  });
}

template <class E>
void attention_bwd(Exec& exec, const AttentionJob<E>& job) {
  const int64_t dim = job.layout.head_dim, heads = job.layout.heads, kv_heads = job.layout.kv_heads;
  const int64_t cols = job.layout.qkv_cols(), group = heads / kv_heads;
  parallel_for(job.segment_count * kv_heads, 1, [&](int64_t first, int64_t last) {
    auto* dk = reinterpret_cast<float*>(exec.thread_scratch(thread_id()));
    float *dv = dk + dim, *dq = dv + dim;
    for (int64_t unit = first; unit < last; ++unit) {
      const int64_t c = unit % kv_heads, begin = job.segments[unit / kv_heads], end = job.segments[unit / kv_heads + 1];
      const int64_t k0 = (heads + c) * dim, v0 = k0 + kv_heads * dim;
      const auto probability = [&](int64_t h, int64_t i, int64_t j) {
        const float s = job.scale * dot(job.qkv + i * cols + h * dim, job.qkv + j * cols + k0, dim);
        return __builtin_expf(s - job.lse[h * job.tokens + i]);
      };
      const auto score_gradient = [&](int64_t h, int64_t i, int64_t j, float p) {
        const E* dout = job.dout + (i * heads + h) * dim;
        return p * job.scale *
               (dot(dout, job.qkv + j * cols + v0, dim) - dot(dout, job.out + (i * heads + h) * dim, dim));
      };
      for (int64_t j = begin; j < end; ++j) {
        for (int64_t d = 0; d < 2 * dim; ++d) dk[d] = 0;
        for (int64_t h = c * group; h < (c + 1) * group; ++h)
          for (int64_t i = j; i < end; ++i) {
            const float p = probability(h, i, j), ds = score_gradient(h, i, j, p);
            for (int64_t d = 0; d < dim; ++d) {
              dk[d] += ds * to_float(job.qkv[i * cols + h * dim + d]);
              dv[d] += p * to_float(job.dout[(i * heads + h) * dim + d]);
            }
          }
        for (int64_t d = 0; d < dim; ++d) {
          job.dqkv[j * cols + k0 + d] = from_float<E>(dk[d]);
          job.dqkv[j * cols + v0 + d] = from_float<E>(dv[d]);
        }
      }
      for (int64_t h = c * group; h < (c + 1) * group; ++h)
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t d = 0; d < dim; ++d) dq[d] = 0;
          for (int64_t j = begin; j <= i; ++j) {
            const float p = probability(h, i, j), ds = score_gradient(h, i, j, p);
            for (int64_t d = 0; d < dim; ++d) dq[d] += ds * to_float(job.qkv[j * cols + k0 + d]);
          }
          for (int64_t d = 0; d < dim; ++d) job.dqkv[i * cols + h * dim + d] = from_float<E>(dq[d]);
        }
    }
  });
}

template void attention_fwd(Exec&, const AttentionJob<bf16>&);
template void attention_fwd(Exec&, const AttentionJob<float>&);
template void attention_bwd(Exec&, const AttentionJob<bf16>&);
template void attention_bwd(Exec&, const AttentionJob<float>&);

}  // namespace mantissa::MANTISSA_ISA_NS
