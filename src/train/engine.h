// A model ready to step: parameters, decoder, memory and scratch, with gradient accumulation and the AdamW update.
#pragma once

#include <string>
#include <vector>

#include "data/batch.h"
#include "model/decoder.h"
#include "model/hf/checkpoint.h"
#include "train/micro_batch.h"
#include "train/step_graphs.h"

namespace mantissa {

struct EngineOptions {
  int64_t tokens = 0;           // of a micro-batch
  int64_t sequence_length = 0;  // longest position + 1
  Recompute recompute = Recompute::kNone;
  std::string grads = "auto";  // auto | fp32 | bf16: auto = fp32 with FP32 weights, else bf16
  std::string state = "auto";  // auto | fp32 | bf16, likewise; 8bit
  bool training = true;
  Device* device = nullptr;  // the GPU, which must outlive the engine; null: the CPU
  bool gpu = false;          // plan() as for a GPU that is not there, of any recipe; always with a device
  bool graphs = true;        // GPU: a micro-step is captured once and launched as one graph; else op by op
  int64_t max_segments = 0;  // GPU: documents of a micro-batch at most; 0: tokens
};

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

  // What building would take; needs no memory. On a GPU without its context and the libraries' own memory.
  MemoryLedger plan() const;
  // Allocates everything. Nothing is allocated after.
  void build();
  const MemoryLedger& ledger() const { return arena_.ledger(); }

  void initialize(uint64_t seed) { params_.initialize(seed); }
  // A Hugging Face folder; returns the bytes of its tensors.
  int64_t load(const std::string& folder) { return load_hf_weights(folder, decoder_.model(), params_); }

  // GPU: kernels are loaded, the libraries' plans made and GEMM algorithms searched by two micro-steps that leave no
  // trace. Between build() and a begin_step(); a CPU needs none.
  void warm_up(const MicroBatch& batch);

  // A step: begin, micro-steps, update. valid = tokens with a label in the whole step.
  void begin_step(uint32_t step);
  // Forward and backward of one micro-batch; adds to sums(). `errors`: collect quantization errors. Enqueued on a GPU.
  void micro_step(const MicroBatch& batch, int64_t valid, double z_weight, std::vector<TensorError>* errors = nullptr);
  // Of the step so far; a GPU is waited for.
  const LossSums& sums() const;
  // "" or what amax of this step was not finite. A GPU is waited for.
  std::string amax_trouble() { return decoder_.scaling().trouble(); }
  // Throws Exit::kNonFinite, naming the first bad gradient, where the norm is not finite; then nothing was updated.
  UpdateResult update(const AdamwSettings& settings);
  // Gradient norm alone.
  double grad_norm();

  // Loss over a batch; weights are requantized when they changed.
  void evaluate(const MicroBatch& batch, LossSums& sums);
  // out [T,V] f32 in host memory; labels may be absent.
  void logits(const MicroBatch& batch, Tensor out);
  // Throws Exit::kNonFinite naming the first parameter that is not finite, or returns.
  void expect_finite_parameters();
  // Runs the forward again with every tensor checked; throws Exit::kNonFinite naming the first one, or returns.
  void find_nonfinite(const MicroBatch& batch);

  // Everything that the bits of the steps to come follow from, beside the config and their batches, each under a name
  // of its own. Between two steps; what is visited may be written (docs/training.md, "State").
  void visit_state(const StateVisitor& f);
  // The memory that build() took, in the device's memory where there is one.
  std::span<std::byte> memory() const { return arena_.memory(); }

  ParamStore& params() { return params_; }
  Decoder& decoder() { return decoder_; }
  Exec& exec() { return exec_; }

 private:
  // Results that a GPU writes for the host to read.
  struct Outputs {
    LossSums step, evaluation;
    AdamwOutcome update;
  };

  void allocate(Arena& arena);
  int64_t gpu_scratch_bytes() const;
  StepContext context(const MicroBatch& batch);
  void refresh(StepContext& context);
  void visit_scaling(const StateVisitor& f);
  AdamwOutcome run_adamw(const AdamwSettings& settings);
  [[noreturn]] void fail_nonfinite(double norm);

  EngineOptions options_;
  Exec exec_;
  ParamStore params_;
  Decoder decoder_;
  Arena arena_;
  std::vector<AdamwParam> optimized_;
  DeviceBatch device_batch_;    // GPU
  Outputs* outputs_ = nullptr;  // GPU, in its memory
  mutable LossSums sums_;       // on a GPU as last read
  mutable bool sums_read_ = true;
  int64_t micro_steps_ = 0;     // of this step
  int64_t updates_ = 0;         // t of AdamW
  bool weights_fresh_ = false;  // quantized weights match the parameters, amax recorded
  StepGraphs graphs_;
};

}  // namespace mantissa
