// CPU kernels of quantize.h. A matrix is cast in panels of 128 x 128: every block size divides a panel, both copies are
// made while it is in cache, and ragged edges are padded with zeros inside it.
#pragma once

#include "base/philox.h"
#include "numerics/block_scale.h"
#include "numerics/error_metrics.h"
#include "ops/cpu/dispatch.h"
#include "ops/quantized_value.h"

namespace mantissa {

inline constexpr int64_t kPanel = 128;

// One copy to write; see Quantized for the layouts.
struct QuantizeForm {
  QuantFormat format;
  bool columnwise;
  uint8_t* data;
  void* scale_inv;         // block scales; a per-tensor scale_inv is written by the caller
  float tensor_scale;      // Blocking::kTensor: multiplies before the cast
  Nvfp4TensorScale nvfp4;  // ScaleRule::kNvfp4
  RandomKey key;           // stochastic rounding
};

struct QuantizeJob {
  const void* x;  // [M,K]
  bool is_bf16;   // else F32
  int64_t m, k;
  int64_t token_offset;  // element (m,k) draws number (token_offset + m) * K + k
  QuantizeForm forms[2];
  int form_count;

  int64_t panels() const { return ceil_div(m, kPanel) * ceil_div(k, kPanel); }
};

// Working memory of one thread.
struct alignas(64) QuantizePanel {
  float tile[kPanel * kPanel];  // a padded or rotated copy of the source, in the source's type
  uint8_t codes[kPanel * kPanel];
  uint8_t turned[kPanel * kPanel];
  uint8_t random[kPanel * kPanel];
  float multiplier[kPanel * kPanel];  // a row of 128 per block row
  float amax[kPanel * kPanel / 16], block_multiplier[kPanel * kPanel / 16], scale_inv[kPanel * kPanel / 16];
  uint8_t scale_byte[kPanel * kPanel / 16];
};

inline constexpr int64_t kErrorRows = 32;  // outer rows whose error is summed together

// quantize_panels casts panels [begin, end). The amax kernels return FP32 bits, NaN dropped: of elements [begin, end),
// and of the rotated source over panels [begin, end). quantization_error sums rows [begin, end) of q against its source
// x.
MANTISSA_CPU_KERNEL(void quantize_panels(const QuantizeJob& job, int64_t begin, int64_t end, QuantizePanel& panel);
                    uint32_t amax_of(const void* x, bool is_bf16, int64_t begin, int64_t end);
                    uint32_t amax_of_rotated(const QuantizeJob& job, int64_t begin, int64_t end, QuantizePanel& panel);
                    void dequantize_rows(const QuantizedView& q, float* y, int64_t begin, int64_t end);
                    QuantError error_of_rows(const QuantizedView& q, bool columnwise, const void* x, bool is_bf16,
                                             int64_t begin, int64_t end, QuantizePanel& panel))

}  // namespace mantissa
