#include "ops/cpu/cached_attention.h"

#include "ops/cpu/attention_softmax.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

constexpr int64_t kLanes = 16;

int64_t padded(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// scores[r, key] = q[r] · key for keys [0, keys), `keys` a multiple of kCachedKeyStep. Each is summed along D in order.
template <int rows, class E>
void score_rows(float* scores, int64_t stride, const float* q, const E* block, int64_t keys, int64_t dim) {
  for (int64_t key = 0; key < keys; key += kCachedKeyStep, block += kCachedKeyStep * dim) {
    Vec low[rows] = {}, high[rows] = {};
    for (int64_t d = 0; d < dim; ++d) {
      Vec a, b;
      load_lanes(a, block + d * kLanes);
      load_lanes(b, block + (dim + d) * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) {
        const Vec x = Vec{} + q[r * dim + d];
        multiply_add(low[r], a, x);
        multiply_add(high[r], b, x);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      lanes_at(scores + r * stride + key) = low[r];
      lanes_at(scores + r * stride + key + kLanes) = high[r];
    }
  }
}

// scores -> e^(scale (score - max)) over the first `keys`, zero from there to `end`; returns their sum.
float exponentials(float* scores, int64_t keys, int64_t end, float scale) {
  for (int64_t key = keys; key < end; ++key) scores[key] = -__builtin_inff();
  Vec top = lanes_at(scores);
  for (int64_t key = kLanes; key < end; key += kLanes) {
    const Vec s = lanes_at(scores + key);
    top = s > top ? s : top;
  }
  float max = top[0];
  for (int i = 1; i < kLanes; ++i) max = top[i] > max ? top[i] : max;
  Vec sum = {};
  for (int64_t key = 0; key < end; key += kLanes) {
    Vec x = (lanes_at(scores + key) - max) * scale;
    exp_in_place(x);
    sum += x;
    lanes_at(scores + key) = x;
  }
  return sum_lanes(sum);
}

// out[r, d0 .. d0 + 32) = Σ weights[r, key] values[key], over the keys in order.
template <int rows, class E>
void weigh_rows(float* out, int64_t width, const float* weights, int64_t stride, const E* values, int64_t keys,
                int64_t columns) {
  Vec low[rows] = {}, high[rows] = {};
  for (int64_t key = 0; key < keys; ++key, values += width) {
    Vec a, b = {};
    load_lanes(a, values);
    if (columns > kLanes) load_lanes(b, values + kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      const Vec x = Vec{} + weights[r * stride + key];
      multiply_add(low[r], a, x);
      multiply_add(high[r], b, x);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < rows; ++r) {
    lanes_at(out + r * width) = low[r];
    if (columns > kLanes) lanes_at(out + r * width + kLanes) = high[r];
  }
}

// Queries [first, first + rows) of kv head `kv`.
template <int rows, class E>
void attend_rows(const CachedAttentionJob<E>& job, int64_t kv, int64_t first, float* scores) {
  const HeadLayout& layout = job.layout;
  const int64_t dim = layout.head_dim, width = padded(dim, kLanes), group = layout.heads / layout.kv_heads;
  alignas(64) float q[rows * kCachedMaxHeadDim];
  alignas(64) float out[rows * kCachedMaxHeadDim];
  float sums[rows];
  const int64_t keys = job.length + (first + rows - 1) / group + 1;  // of the last query
  const int64_t end = padded(keys, kCachedKeyStep);
  for (int r = 0; r < rows; ++r) {
    const int64_t token = (first + r) / group, head = kv * group + (first + r) % group;
    const E* in = job.qkv + token * layout.qkv_cols() + head * dim;
    for (int64_t d = 0; d < dim; ++d) q[r * dim + d] = to_float(in[d]);
  }
  score_rows<rows>(scores, job.capacity, q, job.keys + kv * job.capacity * dim, end, dim);
  for (int r = 0; r < rows; ++r)
    sums[r] = exponentials(scores + r * job.capacity, job.length + (first + r) / group + 1, end, job.scale);
  for (int64_t d = 0; d < width; d += 2 * kLanes)
    weigh_rows<rows>(out + d, width, scores, job.capacity, job.values + kv * job.capacity * width + d, keys, width - d);
  for (int r = 0; r < rows; ++r) {
    const int64_t token = (first + r) / group, head = kv * group + (first + r) % group;
    E* to = job.out + (token * layout.heads + head) * dim;
    for (int64_t d = 0; d < dim; ++d) to[d] = from_float<E>(out[r * width + d] / sums[r]);
  }
}

}  // namespace

template <class E>
void cache_keys_values(const CachedAttentionJob<E>& job, int64_t begin, int64_t end) {
  const HeadLayout& layout = job.layout;
  const int64_t dim = layout.head_dim, width = padded(dim, kLanes);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t token = i / layout.kv_heads, kv = i % layout.kv_heads, position = job.length + token;
    const E* k = job.qkv + token * layout.qkv_cols() + (layout.heads + kv) * dim;
    const E* v = k + layout.kv_heads * dim;
    E* keys = job.keys + (kv * job.capacity + position / kLanes * kLanes) * dim + position % kLanes;
    E* values = job.values + (kv * job.capacity + position) * width;
    for (int64_t d = 0; d < dim; ++d) keys[d * kLanes] = k[d], values[d] = v[d];
  }
}

template <class E>
void attend_cached(const CachedAttentionJob<E>& job, int64_t begin, int64_t end, float* scratch) {
  const int64_t blocks = job.row_blocks(), rows = job.rows();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t kv = i / blocks, first = i % blocks * kCachedRows;
    switch (rows - first) {
      case 1:
        attend_rows<1>(job, kv, first, scratch);
        break;
      case 2:
        attend_rows<2>(job, kv, first, scratch);
        break;
      case 3:
        attend_rows<3>(job, kv, first, scratch);
        break;
      default:
        attend_rows<kCachedRows>(job, kv, first, scratch);
    }
  }
}

template void cache_keys_values(const CachedAttentionJob<bf16>&, int64_t, int64_t);
template void cache_keys_values(const CachedAttentionJob<float>&, int64_t, int64_t);
template void attend_cached(const CachedAttentionJob<bf16>&, int64_t, int64_t, float*);
template void attend_cached(const CachedAttentionJob<float>&, int64_t, int64_t, float*);

}  // namespace mantissa::MANTISSA_ISA_NS
