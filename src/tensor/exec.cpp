#include "tensor/exec.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/parallel.h"

namespace mantissa {
namespace {

Isa machine_isa() {
#if defined(MANTISSA_X86)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  if (avx512 && avx2) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kBase;
}

}  // namespace

Isa detect_isa() {
  const Isa machine = machine_isa();
  const char* wanted = std::getenv("MANTISSA_ISA");
  if (!wanted) return machine;
  for (Isa isa : {Isa::kBase, Isa::kAvx2, Isa::kAvx512})
    if (std::string_view(wanted) == name_of(isa)) {
      if (isa > machine) fail(Exit::kUnavailable, "MANTISSA_ISA={}: this machine has {}", wanted, name_of(machine));
      return isa;
    }
  fail(Exit::kUsage, "MANTISSA_ISA={}: expected base, avx2 or avx512", wanted);
}

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kBase:
      return "base";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

void Exec::Free::operator()(std::byte* p) const { device ? device->release(p) : std::free(p); }

Exec::Exec(Isa isa, int64_t shared_scratch_bytes)
    : isa_(isa), threads_(max_threads()), shared_bytes_((shared_scratch_bytes + 4095) / 4096 * 4096) {
  auto* block = static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(scratch_bytes())));
  if (!block) fail(Exit::kMemory, "memory: {} bytes of scratch could not be allocated", scratch_bytes());
  scratch_.reset(block);
}

Exec::Exec(Device& device) : device_(&device), scratch_(nullptr, Free{&device}) {}

void Exec::reserve_scratch(int64_t bytes) {
  check(device_ != nullptr, "reserve_scratch: a CPU's scratch is fixed when its Exec is made");
  scratch_.reset();
  scratch_.reset(static_cast<std::byte*>(device_->allocate(bytes)));
  shared_bytes_ = bytes;
}

}  // namespace mantissa
