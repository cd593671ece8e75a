// A model ready to step: parameters, decoder, memory and scratch, with gradient accumulation and the AdamW update.
#pragma once

#include <string>
#include <vector>

#include "data/batch.h"
#include "model/decoder.h"
#include "model/hf_checkpoint.h"

namespace mantissa {

struct EngineOptions {
  int64_t tokens = 0;           // of a micro-batch
  int64_t sequence_length = 0;  // longest position + 1
  Recompute recompute = Recompute::kNone;
  std::string grads = "auto";  // auto | fp32 | bf16: auto = fp32 with FP32 weights, else bf16
  std::string state = "auto";  // auto | fp32 | bf16, likewise
  bool training = true;
};

// One micro-batch, already on the device.
struct MicroBatch {
  ConstTensor ids, labels, positions;  // [T] i32
  ConstTensor segments;                // [S+1] i32
};

// The tensors of a batch, which must outlive them.
MicroBatch view(const Batch& batch);

struct AdamwSettings {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double grad_clip = 1.0;  // 0: off
};

struct UpdateResult {
  double grad_norm = 0;      // before clipping
  double unmoved_share = 0;  // BF16 weights: share of elements whose update rounded away
};

class Engine {
 public:
  Engine(const ModelConfig& model, const PrecisionConfig& precision, const EngineOptions& options);

  // What building would take; needs no memory.
  MemoryLedger plan() const;
  // Allocates everything. Nothing is allocated after.
  void build();
  const MemoryLedger& ledger() const { return arena_.ledger(); }

  void initialize(uint64_t seed) { params_.initialize(seed); }
  void load(const std::string& folder) { load_hf_weights(folder, decoder_.model(), params_); }

  // A step: begin, micro-steps, update. valid = tokens with a label in the whole step.
  void begin_step(uint32_t step);
  // Forward and backward of one micro-batch; adds to sums(). `errors`: collect quantization errors.
  void micro_step(const MicroBatch& batch, int64_t valid, double z_weight, std::vector<TensorError>* errors = nullptr);
  const LossSums& sums() const { return sums_; }
  // "" or what amax of this step was not finite.
  const std::string& amax_trouble() const { return amax_trouble_; }
  // Throws Exit::kNonFinite, naming the first bad gradient, before anything is updated.
  UpdateResult update(const AdamwSettings& settings);
  // Gradient norm alone.
  double grad_norm();

  // Loss over a batch; weights are requantized when they changed.
  void evaluate(const MicroBatch& batch, LossSums& sums);
  void logits(const MicroBatch& batch, Tensor out);
  // Runs the forward again with every tensor checked; throws Exit::kNonFinite naming the first one, or returns.
  void find_nonfinite(const MicroBatch& batch);

  ParamStore& params() { return params_; }
  Decoder& decoder() { return decoder_; }
  Exec& exec() { return exec_; }

 private:
  StepContext context(const MicroBatch& batch);
  void refresh(StepContext& context);

  Exec exec_;
  ParamStore params_;
  Decoder decoder_;
  EngineOptions options_;
  Arena arena_;
  LossSums sums_;
  std::string amax_trouble_;
  int64_t updates_ = 0;         // t of AdamW
  bool weights_fresh_ = false;  // quantized weights match the parameters, amax recorded
};

}  // namespace mantissa
