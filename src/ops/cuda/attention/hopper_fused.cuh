// What the passes of the own fused backward share: the sums of dq and what it is told of each row, in the order of its
// steps of 64 queries.
#pragma once

#include "ops/cuda/attention/hopper_tiles.cuh"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

constexpr int kFusedStep = 64, kFusedWidth = 128;
constexpr int kFusedSize = kFusedStep * kFusedWidth;  // sums of a step's dq

struct FusedScratch {
  float* dq;    // [N, steps, 2, 64, 64]: halves of the columns, each in the order that the products' results lie in
  float* rows;  // [N, steps, 2, 64]: log2(e) lse, and delta = Σ dout ∘ out; 0 beyond the document
  TileList list;
  int steps;
};

// Steps begin with documents. Document d, at `begin`, has the steps from here on; all are below fused_steps
// (scratch.h).
__device__ __forceinline__ int first_step(int document, int begin) { return begin / kFusedStep + document; }

// dq to 0, the rows, and the list of tiles.
void prepare_fused(CudaDevice& device, const FusedScratch& s, const Bf16* dout, const Bf16* out, const float* lse,
                   const AttentionView& a);
// dq, scaled, to its rows of dqkv.
void finish_fused(CudaDevice& device, Bf16* dqkv, const FusedScratch& s, const AttentionView& a);

}  // namespace mantissa::cuda
