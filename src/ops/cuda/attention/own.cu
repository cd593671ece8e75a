#include "ops/cuda/attention/own.h"

#include "ops/cuda/attention/passes.h"
#include "ops/cuda/attention/scratch.h"
#include "ops/cuda/launch.cuh"

namespace mantissa::cuda {
namespace {

bool aligned16(std::initializer_list<const void*> addresses) {
  for (const void* p : addresses)
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  return true;
}

void need_scratch(const char* op, const Exec& exec, int64_t bytes) {
  check(exec.shared_scratch_bytes() >= bytes, "{}: {} bytes of scratch, expected {}", op, exec.shared_scratch_bytes(),
        bytes);
}

// Why the rows go through the plain kernels, which multiply without tensor cores; null where they need not.
const char* why_plain(const HeadLayout& layout, DType dtype, std::initializer_list<const void*> addresses) {
  if (dtype == DType::kF32) return "f32 is multiplied in FP32, without tensor cores";
  if (layout.head_dim % 8 != 0) return "a head_dim that is no multiple of 8 is multiplied without tensor cores";
  if (!aligned16(addresses)) return "an address that is no multiple of 16 bytes: multiplied without tensor cores";
  return nullptr;
}

// Whether the sizes would go over the lists of tiles if there were fewer documents.
bool misses_lists(const CudaDevice& device, const ConstTensor& qkv, const Segments& segments,
                  const HeadLayout& layout) {
  return device.info().sm == 90 && qkv.dtype == DType::kBF16 && segments.offsets.dim(0) - 1 > kListedSlots &&
         fused_scratch_bytes(qkv.rows(), kListedSlots, layout) > 0;
}
constexpr const char* kManySlots = "more than 1024 document slots: tiles are taken in the documents' order";

bool takes_warpgroups(const CudaDevice& device, const HeadLayout& layout) {
  return device.info().sm == 90 && layout.head_dim <= 128;
}

}  // namespace

bool own_takes_lists(const CudaDevice& device, const ConstTensor& qkv, const Segments& segments,
                     const HeadLayout& layout) {
  return device.info().sm == 90 && qkv.dtype == DType::kBF16 &&
         fused_scratch_bytes(qkv.rows(), segments.offsets.dim(0) - 1, layout) > 0;
}

void own_attention_fwd(Exec& exec, Tensor out, Tensor lse, ConstTensor qkv, const Segments& segments,
                       const HeadLayout& layout, float scale) {
  const OpScope scope(exec, "attention_fwd");
  if (qkv.rows() == 0) return;
  CudaDevice& device = device_of(exec);
  const AttentionView a = view_of(segments, layout, qkv.rows(), scale);
  float* const sums = lse.as<float>();
  const char* const plain = why_plain(layout, qkv.dtype, {out.data, qkv.data});
  if (plain) device.say_slow("attention_fwd", plain);
  if (qkv.dtype == DType::kF32) return forward_plain(device, out.as<float>(), sums, qkv.as<float>(), a);
  Bf16* const o = static_cast<Bf16*>(out.data);
  const Bf16* const x = static_cast<const Bf16*>(qkv.data);
  if (plain) return forward_plain(device, o, sums, x, a);
  if (own_takes_lists(device, qkv, segments, layout)) {
    need_scratch("attention_fwd", exec, list_bytes(qkv.rows(), segments.offsets.dim(0) - 1));
    return forward_listed(device, o, sums, x, exec.shared_scratch(), a);
  }
  if (misses_lists(device, qkv, segments, layout)) device.say_slow("attention_fwd", kManySlots);
  (takes_warpgroups(device, layout) ? forward_hopper : forward_mma)(device, o, sums, x, a);
}

void own_attention_bwd(Exec& exec, Tensor dqkv, ConstTensor dout, ConstTensor qkv, ConstTensor out, ConstTensor lse,
                       const Segments& segments, const HeadLayout& layout, float scale) {
  const OpScope scope(exec, "attention_bwd");
  if (qkv.rows() == 0) return;
  CudaDevice& device = device_of(exec);
  const AttentionView a = view_of(segments, layout, qkv.rows(), scale);
  need_scratch("attention_bwd", exec, own_scratch_bytes(qkv.rows(), layout));
  float* const delta = reinterpret_cast<float*>(exec.shared_scratch());
  const float* const sums = lse.as<float>();
  const char* const plain = why_plain(layout, qkv.dtype, {dqkv.data, dout.data, qkv.data});
  if (plain) device.say_slow("attention_bwd", plain);
  if (qkv.dtype == DType::kF32) {
    row_products(device, delta, dout.as<float>(), out.as<float>(), a);
    return backward_plain(device, dqkv.as<float>(), dout.as<float>(), qkv.as<float>(), sums, delta, a);
  }
  Bf16* const dx = static_cast<Bf16*>(dqkv.data);
  const Bf16 *const dy = static_cast<const Bf16*>(dout.data), *const x = static_cast<const Bf16*>(qkv.data);
  const Bf16* const o = static_cast<const Bf16*>(out.data);
  if (own_takes_lists(device, qkv, segments, layout) && !device.deterministic() && aligned16({dx, dy, x, o})) {
    need_scratch("attention_bwd", exec, fused_scratch_bytes(qkv.rows(), segments.offsets.dim(0) - 1, layout));
    return backward_fused(device, dx, dy, x, o, sums, exec.shared_scratch(), a);
  }
  row_products(device, delta, dy, o, a);
  if (plain) return backward_plain(device, dx, dy, x, sums, delta, a);
  if (!device.deterministic() && misses_lists(device, qkv, segments, layout))
    device.say_slow("attention_bwd", kManySlots);
  (takes_warpgroups(device, layout) ? backward_hopper : backward_mma)(device, dx, dy, x, sums, delta, a);
}

}  // namespace mantissa::cuda
