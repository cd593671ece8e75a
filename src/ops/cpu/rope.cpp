#include "ops/cpu/rope.h"

#include "ops/cpu/vec16.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

// y = x rotated by the angles of cos_sin, backwards for sign = -1. One head; y may be x.
template <class E>
inline void rotate(E* y, const E* x, const float* cos_sin, int64_t dim, float sign) {
  const int64_t half = dim / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float c = cos_sin[i], s = sign * cos_sin[half + i];
    const float a = to_float(x[i]), b = to_float(x[i + half]);
    y[i] = from_float<E>(a * c - b * s);
    y[i + half] = from_float<E>(b * c + a * s);
  }
}

template <class E>
inline void copy(E* y, const E* x, int64_t n) {
  if (y == x) return;
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

// One head: y = rotated(x rstd weight), returns rstd.
template <class E>
inline float norm_rotate(E* y, const E* x, const E* weight, const float* cos_sin, int64_t dim, float eps) {
  const float rstd = 1.0f / __builtin_sqrtf(dot_of(x, x, dim) / static_cast<float>(dim) + eps);
  const int64_t half = dim / 2;
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i];
    const float a = to_float(x[i]) * rstd * to_float(weight[i]);
    const float b = to_float(x[i + half]) * rstd * to_float(weight[i + half]);
    y[i] = from_float<E>(a * c - b * s);
    y[i + half] = from_float<E>(b * c + a * s);
  }
  return rstd;
}

// One head: with n = dy rotated back and h = x rstd, dweight += n h and dx = rstd (g - h mean(g h)), g = n weight.
template <class E>
inline void norm_rotate_bwd(E* dx, float* dweight, const E* dy, const E* x, const E* weight, const float* cos_sin,
                            int64_t dim, float rstd) {
  const int64_t half = dim / 2;
  Vec lanes = {};
  int64_t first = 0;
  for (; first + 16 <= half; first += 16) {
    Vec c, s, da, db, ha, hb, wa, wb, ga, gb;
    load_lanes(c, cos_sin + first), load_lanes(s, cos_sin + half + first);
    load_lanes(da, dy + first), load_lanes(db, dy + half + first);
    load_lanes(ha, x + first), load_lanes(hb, x + half + first);
    load_lanes(wa, weight + first), load_lanes(wb, weight + half + first);
    load_lanes(ga, dweight + first), load_lanes(gb, dweight + half + first);
    const Vec na = (da * c + db * s) * (ha * rstd), nb = (db * c - da * s) * (hb * rstd);
    ga += na, gb += nb;
    std::memcpy(dweight + first, &ga, sizeof(ga));
    std::memcpy(dweight + half + first, &gb, sizeof(gb));
    lanes += na * wa + nb * wb;
  }
  float dot = sum_lanes(lanes);
  for (int64_t i = first; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i];
    const float da = to_float(dy[i]), db = to_float(dy[i + half]);
    const float ha = to_float(x[i]) * rstd, hb = to_float(x[i + half]) * rstd;
    const float na = da * c + db * s, nb = db * c - da * s;
    dweight[i] += na * ha;
    dweight[i + half] += nb * hb;
    dot += na * ha * to_float(weight[i]) + nb * hb * to_float(weight[i + half]);
  }
  const float mean = dot / static_cast<float>(dim);
#pragma omp simd
  for (int64_t i = 0; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i];
    const float da = to_float(dy[i]), db = to_float(dy[i + half]);
    const float ha = to_float(x[i]) * rstd, hb = to_float(x[i + half]) * rstd;
    const float na = da * c + db * s, nb = db * c - da * s;
    dx[i] = from_float<E>(rstd * (na * to_float(weight[i]) - ha * mean));
    dx[i + half] = from_float<E>(rstd * (nb * to_float(weight[i + half]) - hb * mean));
  }
}

}  // namespace

template <class E>
void rope(const RopeJob<E>& job, bool inverse, int64_t begin, int64_t end) {
  const int64_t dim = job.layout.head_dim, rotated = job.layout.heads + job.layout.kv_heads;
  const int64_t cols = job.layout.qkv_cols();
  const E* source = inverse ? job.dy : job.x;
  for (int64_t t = begin; t < end; ++t) {
    const float* cos_sin = job.cos_sin + job.positions[t] * dim;
    const E* x = source + t * cols;
    E* y = job.y + t * cols;
    for (int64_t h = 0; h < rotated; ++h) rotate(y + h * dim, x + h * dim, cos_sin, dim, inverse ? -1.0f : 1.0f);
    copy(y + rotated * dim, x + rotated * dim, job.layout.kv_heads * dim);
  }
}

template <class E>
void qk_norm_rope_fwd(const RopeJob<E>& job, int64_t begin, int64_t end) {
  const int64_t dim = job.layout.head_dim, heads = job.layout.heads, rotated = heads + job.layout.kv_heads;
  const int64_t cols = job.layout.qkv_cols();
  for (int64_t t = begin; t < end; ++t) {
    const float* cos_sin = job.cos_sin + job.positions[t] * dim;
    const E* x = job.x + t * cols;
    E* y = job.y + t * cols;
    for (int64_t h = 0; h < rotated; ++h)
      job.rstd[t * rotated + h] =
          norm_rotate(y + h * dim, x + h * dim, h < heads ? job.q_weight : job.k_weight, cos_sin, dim, job.eps);
    copy(y + rotated * dim, x + rotated * dim, job.layout.kv_heads * dim);
  }
}

template <class E>
void qk_norm_rope_bwd(const RopeJob<E>& job, float* dweight, int64_t begin, int64_t end) {
  const int64_t dim = job.layout.head_dim, heads = job.layout.heads, rotated = heads + job.layout.kv_heads;
  const int64_t cols = job.layout.qkv_cols();
  for (int64_t i = 0; i < 2 * dim; ++i) dweight[i] = 0;
  for (int64_t t = begin; t < end; ++t) {
    const float* cos_sin = job.cos_sin + job.positions[t] * dim;
    const E* x = job.x + t * cols;
    const E* dy = job.dy + t * cols;
    E* dx = job.y + t * cols;
    for (int64_t h = 0; h < rotated; ++h) {
      const bool query = h < heads;
      norm_rotate_bwd(dx + h * dim, query ? dweight : dweight + dim, dy + h * dim, x + h * dim,
                      query ? job.q_weight : job.k_weight, cos_sin, dim, job.rstd[t * rotated + h]);
    }
    copy(dx + rotated * dim, dy + rotated * dim, job.layout.kv_heads * dim);
  }
}

template void rope(const RopeJob<bf16>&, bool, int64_t, int64_t);
template void rope(const RopeJob<float>&, bool, int64_t, int64_t);
template void qk_norm_rope_fwd(const RopeJob<bf16>&, int64_t, int64_t);
template void qk_norm_rope_fwd(const RopeJob<float>&, int64_t, int64_t);
template void qk_norm_rope_bwd(const RopeJob<bf16>&, float*, int64_t, int64_t);
template void qk_norm_rope_bwd(const RopeJob<float>&, float*, int64_t, int64_t);

}  // namespace mantissa::MANTISSA_ISA_NS
