// Parameters: one table per architecture drives allocation, initialisation, gradients, optimizer, Hugging Face names,
// decay mask and counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/adamw.h"
#include "tensor/arena.h"
#include "tensor/exec.h"
#include "tensor/state.h"

namespace mantissa {

// A Hugging Face tensor that holds rows [row, row + rows) of a parameter (Q, K and V of one fused projection).
struct HfPart {
  std::string name;
  int64_t row = 0, rows = 0;
  bool transposed = false;  // stored [in, out] (GPT-2's Conv1D)
};

enum class Init : uint8_t { kNormal, kOnes, kZeros };

struct ParamSpec {
  std::string name;  // "layers.3.attention.qkv.weight"
  Shape shape;       // matrices [out, in], vectors [n]
  std::vector<HfPart> hf;
  Init init = Init::kNormal;
  double init_std = 0.02;

  // Weight decay takes matrices and embeddings, not norms and biases.
  bool decays() const { return shape.rank() >= 2; }
};

// Where the parameters live and in which dtype updates happen (docs/training.md).
enum class WeightMode : uint8_t {
  kF32,        // compute and update in FP32: recipe fp32
  kF32Master,  // FP32 master, BF16 compute copy
  kBF16,       // BF16, update rounded to nearest
  kBF16SR,     // BF16, update rounded stochastically
};

struct ParamStoreOptions {
  WeightMode weights = WeightMode::kF32Master;
  DType grads = DType::kF32;
  DType state = DType::kF32;  // moments: kF32, kBF16, or kU8 with scales (docs/training.md)
  bool training = true;       // false: weights alone
  Device* device = nullptr;   // where the arena's memory is; null: the host
  bool gpu = false;           // laid out as for a GPU, also while there is none; always with a device
};

// Consecutive parameters whose gradients become complete together: "embedding", "positions", "layers.3", "final_norm",
// "head".
struct ParamGroup {
  std::string name;
  int first = 0, count = 0;
};

class ParamStore {
 public:
  // Rows of the vocabulary's matrices are a multiple of this in a GPU's memory.
  static constexpr int64_t kVocabularyMultiple = 128;

  ParamStore(std::vector<ParamSpec> specs, const ParamStoreOptions& options);

  // Each purpose is one range, parameters in their order: weights, masters, gradients, moments (m, v, then their
  // scales).
  void allocate(Arena& arena);
  // New weights from Philox(seed, parameter): normal(0, init_std), ones or zeros.
  void initialize(uint64_t seed);

  int size() const { return static_cast<int>(specs_.size()); }
  int find(const std::string& name) const;          // throws if absent
  int find_or_none(const std::string& name) const;  // -1 if absent
  const ParamSpec& spec(int id) const { return specs_[static_cast<size_t>(id)]; }
  const ParamStoreOptions& options() const { return options_; }
  int64_t count() const;  // parameters, tied ones once

  DType compute_dtype() const { return options_.weights == WeightMode::kF32 ? DType::kF32 : DType::kBF16; }
  bool has_master() const { return options_.weights == WeightMode::kF32Master; }

  // What compute reads.
  Tensor weight(int id) const { return weight_[static_cast<size_t>(id)]; }
  // What the optimizer updates: the FP32 master where there is one, else the weight itself.
  Tensor updated(int id) const { return has_master() ? master_[static_cast<size_t>(id)] : weight(id); }
  Tensor grad(int id) const { return grad_[static_cast<size_t>(id)]; }
  Tensor m(int id) const { return m_[static_cast<size_t>(id)]; }
  Tensor v(int id) const { return v_[static_cast<size_t>(id)]; }
  // All trained parameters as the optimizer takes them.
  std::vector<AdamwParam> optimized() const;

  // Weights, masters and moments: "masters/layers.3.mlp.up.weight". Gradients do not outlive a step.
  void visit_state(const StateVisitor& f) const;

  // All parameters, in order.
  std::vector<ParamGroup> groups() const;
  // The gradients of a group as one range [n], with what the arena's alignment leaves between them, which is zero.
  Tensor grad_bucket(const ParamGroup& group) const;

  // Rows of a matrix in memory, weight and gradient with them: those of the embedding and the head on a GPU are filled
  // up to a multiple of kVocabularyMultiple; the rows behind are zero.
  int64_t padded_rows(int id) const;
  Tensor padded_weight(int id) const { return padded(weight(id), id); }
  Tensor padded_grad(int id) const { return padded(grad(id), id); }

  // Sets a parameter from FP32 values in its own layout (master and compute copy).
  void set(int id, const float* values);
  // FP32 values of a parameter (the master where there is one) or of its gradient.
  std::vector<float> values(int id) const;
  std::vector<float> grad_values(int id) const;
  // Elements [begin, begin + n) of updated(id), in its dtype, to host memory.
  void read_updated(int id, int64_t begin, int64_t n, std::byte* to) const;

  // A step begins: vectors' gradients are zeroed; matrices' are overwritten by their first wgrad.
  void begin_step();
  // beta of the next product into a matrix' gradient: 0 the first time in a step, then 1.
  float take_beta(int id);
  // The first micro-batch's products were enqueued without take_beta() (a captured graph).
  void mark_written();
  void zero_grad(int id);

 private:
  Tensor padded(Tensor t, int id) const;

  std::vector<ParamSpec> specs_;
  ParamStoreOptions options_;
  std::vector<Tensor> weight_, master_, grad_, m_, v_, m_scale_, v_scale_;
  std::vector<char> written_;
};

}  // namespace mantissa
