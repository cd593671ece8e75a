// attention.h on the GPU: cuDNN or the project's own kernels. BF16 takes cuDNN where it is there and has the shape, but
// neither in deterministic mode nor, on Hopper, for documents of different lengths (own_takes_lists in own.h);
// everything else takes the own kernels. The choice depends on the device, the environment and sizes, so a backward
// pass takes its forward's. MANTISSA_ATTENTION=cudnn or own forces one; Exit::kUnavailable where it cannot be had.
#include "ops/attention.h"

#include <cstdlib>
#include <limits>
#include <string_view>

#include "ops/cuda/attention/cudnn.h"
#include "ops/cuda/attention/own.h"
#include "ops/cuda/attention/packed.h"
#include "ops/cuda/attention/scratch.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/libraries.h"

namespace mantissa::cuda {
namespace {

// The tokens that every document has, as far as the host knows; 0: they differ.
int64_t length_of(const Segments& segments, int64_t tokens) {
  return segments.uniform ? segments.uniform : equal_length(tokens, segments.longest, segments.offsets.dim(0) - 1);
}

// The tokens that a document has at most.
int64_t longest_of(const Segments& segments, int64_t tokens) {
  if (segments.uniform) return segments.uniform;
  return segments.longest > 0 && segments.longest < tokens ? segments.longest : tokens;
}

// Why cuDNN does not run this; null where it does.
const char* refusal(const CudaDevice& device, const ConstTensor& qkv, const Segments& segments,
                    const HeadLayout& layout) {
  // The widest rows that cuDNN indexes are the gradients of k and v before heads are added up.
  const int64_t elements = qkv.count() * (layout.heads / layout.kv_heads);
  if (!cudnn_of(device)) return device.info().cudnn_absence.c_str();
  if (device.deterministic()) return "its backward pass is not deterministic";
  if (qkv.dtype != DType::kBF16) return "it takes bf16";
  if (layout.head_dim % 16 != 0) return "it takes a head_dim that is a multiple of 16";
  if (device.info().sm >= 100 && layout.head_dim > 128) return "it takes a head_dim up to 128 on this device";
  if (longest_of(segments, qkv.rows()) < 2) return "it takes documents of at least two tokens";
  if (elements > std::numeric_limits<int32_t>::max()) return "its 32-bit offsets do not reach all elements";
  return nullptr;
}

bool takes_cudnn(const CudaDevice& device, const ConstTensor& qkv, const Segments& segments, const HeadLayout& layout) {
  const char* const forced = std::getenv("MANTISSA_ATTENTION");
  const std::string_view wanted = forced ? forced : "";
  if (wanted == "own") return false;
  if (!wanted.empty() && wanted != "cudnn")
    fail(Exit::kUsage, "MANTISSA_ATTENTION is {}, expected cudnn or own", wanted);
  const char* const why = refusal(device, qkv, segments, layout);
  if (why && !wanted.empty())
    fail(Exit::kUnavailable, "MANTISSA_ATTENTION=cudnn: {} (qkv is {}, head_dim {})", why, qkv, layout.head_dim);
  if (why || !wanted.empty()) return !why;
  // Documents of different lengths are faster on the own kernels that take the longest ones' tiles first.
  return length_of(segments, qkv.rows()) > 0 || !own_takes_lists(device, qkv, segments, layout);
}

void run_cudnn(const char* op, Exec& exec, CudnnTensors tensors, bool backward, const ConstTensor& qkv,
               const Segments& segments, const HeadLayout& layout, float scale) {
  const OpScope scope(exec, op);
  CudaDevice& device = device_of(exec);
  Cudnn& cudnn = *cudnn_of(device);
  const int64_t tokens = qkv.rows(), slots = segments.offsets.dim(0) - 1;
  const int64_t length = length_of(segments, tokens);
  const CudnnShape shape{.backward = backward,
                         .packed = length == 0,
                         .tokens = tokens,
                         .batch = length ? tokens / length : slots,
                         .longest = longest_of(segments, tokens),
                         .heads = layout.heads,
                         .kv_heads = layout.kv_heads,
                         .head_dim = layout.head_dim,
                         .scale = scale};
  std::byte* workspace = exec.shared_scratch();
  int64_t needed = cudnn.workspace_bytes(shape);
  if (shape.packed) {
    const int64_t bytes = packed_bytes(slots);
    needed += bytes, workspace += bytes;
  }
  check(needed <= exec.shared_scratch_bytes(), "{}: cuDNN takes {} bytes of scratch for {}, {} are there", op, needed,
        qkv, exec.shared_scratch_bytes());
  if (shape.packed) {
    const PackedDocuments documents =
        write_packed(device, reinterpret_cast<int32_t*>(exec.shared_scratch()), segments.offsets.as<int32_t>(), slots,
                     layout.qkv_cols(), layout.heads * layout.head_dim, layout.heads);
    tensors.lengths = documents.lengths, tensors.first_qkv = documents.first_qkv;
    tensors.first_out = documents.first_out, tensors.first_statistic = documents.first_statistic;
  }
  cudnn.attention(shape, tensors, workspace);
}

}  // namespace

void attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                   const HeadLayout& layout, float scale) {
  if (!takes_cudnn(device_of(exec), qkv, segments, layout))
    return own_attention_fwd(exec, out, lse, qkv, segments, layout, scale);
  const CudnnTensors tensors{.qkv = qkv.data, .out = out.data, .statistics = lse.data};
  run_cudnn("attention_fwd", exec, tensors, false, qkv, segments, layout, scale);
}

void attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                   const Segments& segments, const HeadLayout& layout, float scale) {
  if (!takes_cudnn(device_of(exec), qkv, segments, layout))
    return own_attention_bwd(exec, dqkv, dout, qkv, out, lse, segments, layout, scale);
  const CudnnTensors tensors{.qkv = qkv.data,
                             .out = const_cast<void*>(out.data),
                             .statistics = const_cast<void*>(lse.data),
                             .dout = dout.data,
                             .dqkv = dqkv.data};
  run_cudnn("attention_bwd", exec, tensors, true, qkv, segments, layout, scale);
}

}  // namespace mantissa::cuda
