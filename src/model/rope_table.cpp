#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "model/decoder.h"

namespace mantissa {
namespace {

// Hugging Face computes inverse frequencies in FP32; the table follows.
float inverse_frequency(const ModelConfig& m, int64_t i) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(m.head_dim);
  const float f = 1.0f / std::pow(static_cast<float>(m.rope_theta), exponent);
  if (m.rope_scaling.type != "llama3") return f;
  const RopeScaling& s = m.rope_scaling;
  const double wavelength = 2 * 3.14159265358979323846 / static_cast<double>(f);
  const double original = static_cast<double>(s.original_max_position_embeddings);
  const double longest = original / s.low_freq_factor, shortest = original / s.high_freq_factor;
  if (wavelength > longest) return static_cast<float>(static_cast<double>(f) / s.factor);
  if (wavelength < shortest) return f;
  const double smooth = (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>((1 - smooth) * static_cast<double>(f) / s.factor + smooth * static_cast<double>(f));
}

}  // namespace

void fill_rope_table(const ModelConfig& model, Tensor cos_sin, Device* device) {
  if (device) {
    std::vector<float> host(static_cast<size_t>(cos_sin.count()));
    fill_rope_table(model, {host.data(), DType::kF32, cos_sin.shape});
    device->copy_in(cos_sin.data, host.data(), cos_sin.bytes());
    return;
  }
  const int64_t positions = cos_sin.dim(0), half = model.head_dim / 2;
  float* table = cos_sin.as<float>();
  parallel_for(positions, 16, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < half; ++i) {
        const float angle = static_cast<float>(p) * inverse_frequency(model, i);
        table[p * 2 * half + i] = std::cos(angle);
        table[p * 2 * half + half + i] = std::sin(angle);
      }
  });
}

}  // namespace mantissa
