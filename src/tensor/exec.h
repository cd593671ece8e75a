// Where and how an op runs: backend, instruction set, scratch memory, random stream, pass. First argument of every op.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/philox.h"
#include "tensor/device.h"
#include "tensor/step_state.h"
#include "tensor/tensor.h"

namespace mantissa {

// Instruction sets that CPU kernels are compiled for, ascending.
enum class Isa : uint8_t { kBase, kAvx2, kAvx512 };
// The best instruction set that this machine runs and this build holds; MANTISSA_ISA=base|avx2|avx512 lowers it.
Isa detect_isa();
const char* name_of(Isa isa);

enum class Pass : uint8_t {
  kForward,   // training: scaling state may move
  kReplay,    // recompute in backward: same scales and random bits as its forward, no state moves
  kEvaluate,  // no state moves, nothing is saved
};

class Exec {
 public:
  explicit Exec(Isa isa = detect_isa(), int64_t shared_scratch_bytes = kSharedScratch);
  // Ops run on the device, which must outlive this; there is no scratch before reserve_scratch().
  explicit Exec(Device& device);

  // The GPU, or null on a CPU. Every address that an op takes is in its memory.
  Device* device() const { return device_; }
  const CudaOps& gpu() const { return device_->ops(); }
  // GPU: replaces the scratch that ops share. The largest of the ops' bounds, known from the plan.
  void reserve_scratch(int64_t bytes);

  Isa isa() const { return isa_; }
  int threads() const { return threads_; }

  // Scratch of one thread, kThreadScratch bytes, 64-byte aligned. Contents do not survive the op.
  static constexpr int64_t kThreadScratch = int64_t{4} << 20;
  std::byte* thread_scratch(int thread) const { return scratch_.get() + shared_bytes_ + thread * kThreadScratch; }
  // Scratch shared by the threads of one op; on a GPU in its memory.
  static constexpr int64_t kSharedScratch = int64_t{32} << 20;
  std::byte* shared_scratch() const { return scratch_.get(); }
  int64_t shared_scratch_bytes() const { return shared_bytes_; }
  // Bytes this Exec holds; part of the memory plan.
  int64_t scratch_bytes() const { return shared_bytes_ + threads_ * kThreadScratch; }

  // Key of the random stream of `tensor` in the current step.
  RandomKey random_key(uint32_t tensor, DrawForm form) const { return {state.seed, state.step, tensor, form}; }
  // Where ops read the state of the step; on a GPU in its memory, where whoever changes `state` copies it.
  const StepState* state_address() const { return device_ ? device_state_ : &state; }
  void set_device_state(const StepState* address) { device_state_ = address; }

  StepState state;         // as the host knows it
  int64_t row_offset = 0;  // rows of the micro-batch before the tensor at hand, where it is made in chunks
  Pass pass = Pass::kForward;
  bool keeps_high = false;  // producers write Operand::high even where nothing behind them reads it

 private:
  struct Free {
    Device* device;  // null: the host's
    void operator()(std::byte* p) const;
  };
  Device* device_ = nullptr;
  const StepState* device_state_ = nullptr;
  Isa isa_ = Isa::kBase;
  int threads_ = 0;
  int64_t shared_bytes_ = 0;
  std::unique_ptr<std::byte, Free> scratch_;
};

}  // namespace mantissa
