#include "model/step_floor.h"

#include <algorithm>
#include <cmath>

#include "model/arch/arch.h"
#include "model/flops.h"

namespace mantissa {
namespace {

struct GemmRate {
  double n, k, tflops;
};
// One H200, cuBLASLt 13.1, random data, 16,384 tokens. Where only the sum over a layer was measured (K 768, 1536, the
// attention projections of K 4096), the rate that gives it.
constexpr GemmRate kGemmRates[] = {
    {4096, 2048, 743}, {2048, 2048, 726},  {12288, 2048, 779}, {2048, 6144, 655},   {151936, 2048, 679},
    {6144, 4096, 762}, {4096, 4096, 762},  {28672, 4096, 688}, {4096, 14336, 661},  {2048, 1536, 655},
    {1536, 1536, 655}, {17920, 1536, 655}, {1536, 8960, 655},  {151936, 1536, 679}, {128256, 4096, 679},
    {2304, 768, 607},  {768, 768, 607},    {3072, 768, 607},   {768, 3072, 607},    {50304, 768, 724},
};

struct AttentionRate {
  double length, forward, backward;
};
// cuDNN 9.19 on the same device; ascending lengths.
constexpr AttentionRate kHeads128[] = {
    {512, 312, 159}, {1024, 375, 231}, {1344, 443, 333}, {4096, 570, 453}, {8192, 635, 464}};
constexpr AttentionRate kHeads64[] = {{1024, 287, 166}, {2048, 375, 301}};

// Between two rows linear in log(length), beyond the ends the last row.
template <size_t n>
double interpolate(const AttentionRate (&rows)[n], double length, double AttentionRate::*rate) {
  if (length <= rows[0].length) return rows[0].*rate;
  for (size_t i = 1; i < n; ++i)
    if (length <= rows[i].length) {
      const double at = std::log(length / rows[i - 1].length) / std::log(rows[i].length / rows[i - 1].length);
      return rows[i - 1].*rate + at * (rows[i].*rate - rows[i - 1].*rate);
    }
  return rows[n - 1].*rate;
}

double attention_rate(double length, int64_t head_dim, double AttentionRate::*rate) {
  return head_dim <= 96 ? interpolate(kHeads64, length, rate) : interpolate(kHeads128, length, rate);
}

constexpr double kBf16 = 2;              // bytes
constexpr double kBackward = 2.5;        // attention's backward FLOPs over its forward's
constexpr int64_t kPaddedColumns = 128;  // the head's columns are a multiple

}  // namespace

double Yardstick::gemm_tflops(int64_t n, int64_t k) const {
  if (flat_tflops > 0) return flat_tflops;
  const auto distance = [n, k](const GemmRate& row) {
    return std::abs(std::log(static_cast<double>(n) / row.n)) + std::abs(std::log(static_cast<double>(k) / row.k));
  };
  const GemmRate* best = kGemmRates;
  for (const GemmRate& row : kGemmRates)
    if (distance(row) < distance(*best)) best = &row;
  return best->tflops * scale;
}

double Yardstick::attention_forward_tflops(double length, int64_t head_dim) const {
  return flat_tflops > 0 ? flat_tflops : scale * attention_rate(length, head_dim, &AttentionRate::forward);
}

double Yardstick::attention_backward_tflops(double length, int64_t head_dim) const {
  return flat_tflops > 0 ? flat_tflops : scale * attention_rate(length, head_dim, &AttentionRate::backward);
}

double update_bytes(int64_t parameters, const ParamStoreOptions& store) {
  const bool full = store.weights == WeightMode::kF32 || store.weights == WeightMode::kF32Master;
  const auto of = [parameters](DType dtype) { return static_cast<double>(bytes_of(dtype, parameters)); };
  const double weight = of(full ? DType::kF32 : DType::kBF16);
  const double copy = store.weights == WeightMode::kF32Master ? of(DType::kBF16) : 0;
  return 2 * weight + copy + 2 * of(store.grads) + 4 * of(store.state);
}

StepFloor step_floor(const StepWork& work, const Yardstick& y) {
  const ModelConfig& m = work.model;
  const ArchTraits& traits = find_arch(m.arch).traits;
  const HeadLayout heads = m.heads();
  const int64_t h = m.hidden_size, f = m.intermediate_size, qkv = heads.qkv_cols(), q = heads.heads * heads.head_dim;
  const bool swiglu = traits.mlp == MlpKind::kSwiglu;
  const auto layers = static_cast<double>(m.num_hidden_layers);
  const auto product = [&y](int64_t n, int64_t k) {  // fprop, dgrad, wgrad
    return 3 * 2 * static_cast<double>(n) * static_cast<double>(k) / (y.gemm_tflops(n, k) * 1e6);
  };
  const int64_t columns = ceil_div(m.vocab_size, kPaddedColumns) * kPaddedColumns;

  StepFloor floor;
  floor.gemm_us = layers * (product(qkv, h) + product(h, q) + product(swiglu ? 2 * f : f, h) + product(h, f));
  floor.logits_us = product(columns, h);
  const double forward = 2 * work.segment_length * static_cast<double>(q);  // causal, of a layer
  floor.attention_us =
      layers * (forward / (y.attention_forward_tflops(work.segment_length, heads.head_dim) * 1e6) +
                kBackward * forward / (y.attention_backward_tflops(work.segment_length, heads.head_dim) * 1e6));

  const auto H = static_cast<double>(h), F = static_cast<double>(f), QKV = static_cast<double>(qkv);
  const auto QK = static_cast<double>((heads.heads + heads.kv_heads) * heads.head_dim);
  // Elements of a layer: two norms with the residual forward (x, r, h, y) and backward (dy, x, dresidual, dx).
  double elements = 8 * H + 8 * H;
  if (traits.qk_norm)
    elements += 2 * QKV + 3 * QK;
  else if (traits.rope)
    elements += 2 * QK + 2 * QK;
  elements += swiglu ? 3 * F + 5 * F : 2 * F + 3 * F;
  if (traits.qkv_bias || traits.linear_bias) elements += QKV;
  if (traits.linear_bias) elements += H + F + H;
  // Embedding (2 and 3), the last sum (3), the final norm (2 and 3), the logits in place.
  const double ends = 13 * H + 2 * static_cast<double>(columns);
  floor.optimizer_bytes =
      update_bytes(count_parameters(m), work.store) / static_cast<double>(std::max<int64_t>(1, work.tokens_per_step));
  floor.rest_bytes = kBf16 * (layers * elements + ends) + floor.optimizer_bytes;
  floor.rest_us = floor.rest_bytes / y.bytes_per_s * 1e6;
  return floor;
}

}  // namespace mantissa
