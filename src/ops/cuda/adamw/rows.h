// What the kernels of AdamW read: the rows of a launch, and their scratch.
#pragma once

#include <cstdint>

namespace mantissa::cuda {

// A row's share of the chunks of work that are numbered through all rows of a launch.
struct AdamwChunks {
  int32_t begin, end;
};

// One parameter as the kernels see it.
struct AdamwRow {
  void *param, *copy;
  const void* grad;
  void *m, *v;
  float *m_scale, *v_scale;
  int64_t n;
  AdamwChunks norm;
  AdamwChunks whole, rest;  // of the update: aligned and full ones, and what remains behind them
  uint32_t id;
  bool decays, grad_is_bf16;
  bool aligned;  // every address, to 16 bytes
};

constexpr int kNormBlocks = 528;  // whatever the device is: the sums' order depends on it
constexpr int64_t kAdamwPartialBytes = kNormBlocks * int64_t{sizeof(double)};

}  // namespace mantissa::cuda
