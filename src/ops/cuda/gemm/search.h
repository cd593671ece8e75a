// Times algorithms of one product under the load of training: the card lowers its clocks within a second of work, so
// that cold times mislead.
#pragma once

#include <span>

#include "ops/cuda/gemm/product.h"
#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

class GemmSearch {
 public:
  explicit GemmSearch(CudaDevice& device) : device_(device) {}

  // The index of the fastest algorithm; -1 where none runs. Synchronizes. Overwrites c many times: a product that
  // accumulates is given a copy of its c.
  int fastest(Product& product, const GemmAddresses& at, std::span<const cublasLtMatmulAlgo_t> algorithms);

 private:
  // Loads the card; returns the microseconds of one product.
  double warm_up(Product& product, const GemmAddresses& at, const cublasLtMatmulAlgo_t& algorithm);

  CudaDevice& device_;
  bool loaded_ = false;
};

}  // namespace mantissa::cuda
