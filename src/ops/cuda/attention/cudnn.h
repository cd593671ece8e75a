// cuDNN as one device uses it: fused causal attention, one execution plan for each shape and direction. The library is
// loaded at run time, so that the module loads where it is absent.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensor/cuda/cuda_device.h"

namespace mantissa::cuda {

// What a plan is made for. q, k and v are parts of rows of (N + 2 KV) D elements.
struct CudnnShape {
  bool backward = false;
  bool packed = false;  // documents of any length, told by `lengths` and the first elements; else `batch` equal ones
  int64_t tokens = 0;   // T
  int64_t batch = 0;    // documents; packed: slots for documents, empty ones included
  int64_t longest = 0;  // tokens of a document, at most where packed
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;

  auto operator<=>(const CudnnShape&) const = default;
};

// BF16 but for the statistics; addresses of the device.
struct CudnnTensors {
  const void* qkv = nullptr;
  void* out = nullptr;         // written forward, read backward
  void* statistics = nullptr;  // N T floats, as `out`: [B,N,S], packed: [T,N]
  const void* dout = nullptr;  // backward
  void* dqkv = nullptr;        // backward
  // Packed: tokens of each document [batch], and its first element [batch + 1] in qkv, out and statistics.
  const int32_t *lengths = nullptr, *first_qkv = nullptr, *first_out = nullptr, *first_statistic = nullptr;
};

class Cudnn {
 public:
  // Null where the library is absent or too old, or this build has no cudnn-frontend: `absence` says which.
  static std::unique_ptr<Cudnn> open(CudaDevice& device, std::string& absence);
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

  const std::string& version() const;  // "9.19.0"
  // Bytes of workspace. The first call for a shape makes its plan, outside of a capture: the one fixed by set_plans(),
  // else cuDNN's first; Exit::kUnavailable when cuDNN has none.
  int64_t workspace_bytes(const CudnnShape& shape);
  // Enqueued on the device's stream. The sums of dq have no fixed order.
  void attention(const CudnnShape& shape, const CudnnTensors& tensors, void* workspace);

  // Lines "SHAPE -> PLAN", the plan by cuDNN's own name; Exit::kInput where one is not. What cuDNN does not offer any
  // more is said on stderr and chosen anew.
  void set_plans(const std::vector<std::string>& lines);
  // Of the shapes computed so far, in the order of their words.
  std::vector<std::string> plans() const;

 private:
  struct Impl;
  explicit Cudnn(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mantissa::cuda
