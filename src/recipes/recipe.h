// A precision recipe: how one linear layer quantizes its operands, runs its three products and moves its scaling state.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "ops/delayed_scaling.h"
#include "tensor/arena.h"
#include "tensor/exec.h"
#include "tensor/quant.h"

namespace mantissa {

// Who writes the tensor that a recipe quantizes (docs/numerics.md, "Producers").
enum class Producer : uint8_t {
  kPlain,  // a BF16 tensor in memory: attention output, residual gradient, logits gradient, a norm outside scope +norm
  kFusedNorm,   // a norm that writes the quantized form itself (scope linear+logits+norm)
  kActivation,  // SwiGLU or GELU, forward or backward
};

// One linear layer y[M,N] = x[M,K] · w[N,K]ᵀ.
struct LinearSite {
  std::string name;        // "layers.3.mlp.down_proj"
  int64_t n = 0, k = 0;    // out_features, in_features
  uint32_t tensor_id = 0;  // base id: +0 input, +1 weight, +2 output gradient
};

// What a recipe says of itself in tables and run.json.
struct RecipeInfo {
  std::string name;                 // "fp8-delayed"
  std::string input, weight, grad;  // e.g. "E4M3 1x32 E8M0"
};

// Quantization error of one tensor at one step.
struct TensorError {
  std::string layer, tensor;  // "layers.3.mlp.down_proj", "input" | "weight" | "grad"
  double amax = 0, scale = 0, snr_db = 0, saturated_share = 0, flushed_share = 0;
};

class LinearRecipe {
 public:
  virtual ~LinearRecipe() = default;

  // The forms that producers of the input and of the output gradient must fill.
  virtual OperandSpec input_spec(Producer producer) const = 0;
  virtual OperandSpec grad_spec(Producer producer) const = 0;

  // Quantized weight and scaling state. `bind_*`, called after allocate() in the same pass of the arena, points an
  // operand of this layer at the state its cast reads and at its random stream.
  virtual void allocate(Arena& arena) = 0;
  virtual void bind_input(Operand& x) const = 0;
  virtual void bind_grad(Operand& dy) const = 0;

  // Makes the forms of w[N,K] (BF16; F32 in recipe fp32) that fprop and dgrad read. Called in the first micro-batch of
  // a step (Pass::kForward) and before an evaluation (Pass::kEvaluate, moves no state); `w` must stay valid until the
  // next call; it is only read.
  virtual void refresh_weight(Exec& exec, Tensor w) = 0;

  virtual void fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) = 0;  // y = x wᵀ + bias
  virtual void dgrad(Exec& exec, Tensor dx, const Operand& dy) = 0;                  // dx = dy w
  virtual void wgrad(Exec& exec, Tensor dw, const Operand& dy, const Operand& x,
                     float beta) = 0;  // dw = dyᵀ x + beta dw

  // The slots of its scaling state, the weight's and the input's ("input") before the gradient's (`backward`): a
  // ScalingState moves those of all layers. Addresses are there after allocate().
  using SlotVisitor = std::function<void(const char* tensor, bool backward, const DelayedSlot& slot)>;
  virtual void visit_slots(const SlotVisitor&) const {}

  // The weight's copy, for statistics against w; the input's and the gradient's are measured by the caller. Null if
  // none.
  virtual const Quantized* weight_form() const { return nullptr; }
  virtual RecipeInfo info() const = 0;

  // Scaling state: what a later micro-batch reads of an earlier one, in the arena's memory, complete between two steps.
  // A name is the layer's own ("scale_fwd"). Nothing where a recipe keeps nothing.
  using StateVisitor = std::function<void(const char* name, Tensor tensor)>;
  virtual void visit_state(const StateVisitor&) const {}
};

// Options of all recipes; each recipe reads its own. Names and defaults are TransformerEngine's.
struct RecipeOptions {
  std::string format = "auto";            // FP8 recipes: "hybrid" (E4M3, gradients E5M2) | "e4m3"; auto = its default
  int64_t margin = 0;                     // fp8-delayed
  int64_t amax_history_len = 1024;        // fp8-delayed
  std::string amax_compute_algo = "max";  // fp8-delayed: "max" | "most_recent"
  std::string scales = "auto";            // fp8-tensorwise, fp8-blockwise: "pow2" | "fp32"; auto = its default
  bool disable_rht = false;               // nvfp4
  bool disable_stochastic_rounding = false;  // nvfp4
  bool disable_2d_quantization = false;      // nvfp4
  bool enable_2d_quantization = false;       // mxfp8: 32x32 weight tiles

  void describe(config::Fields& fields);
};

enum class Role : uint8_t { kInput, kWeight, kGrad };
const char* name_of(Role role);  // "input" | "weight" | "grad"

// What a recipe is to run on.
struct RecipeTarget {
  bool gpu = false;
  int sm = 90;  // of a GPU: compute capability * 10
};

// How it runs there.
enum class Path : uint8_t {
  kNative,    // the products multiply the format itself
  kEmulated,  // codes and scales are the format's to the bit, the products run in BF16
  kRefused,   // not at all
};
const char* name_of(Path path);  // "native" | "emulated" | "refused"
struct RecipePath {
  Path path = Path::kNative;
  const char* refusal = "";  // kRefused: why, behind "recipe NAME "
};

// What a fused producer hands to the cast (docs/numerics.md, "Producers").
enum class ProducerRule : uint8_t {
  kRounded,         // the BF16 value, always
  kActivationAmax,  // the BF16 value; activations take the amax before rounding
  kUnrounded,       // norms in scope +norm and activations hand over the FP32 value
};

// What the dimensions of a layer must be multiples of.
struct DimensionRule {
  int64_t tokens = 1, out_features = 1, in_features = 1;
};

// One row per recipe.
struct RecipeEntry {
  const char* name;
  // Both copies of a tensor in full, as the recipe defines them (`quantize` writes these); empty forms for bf16 and
  // fp32. A layer may store less: see LinearRecipe::input_spec().
  OperandSpec (*spec)(const RecipeOptions& options, Role role);
  std::unique_ptr<LinearRecipe> (*layer)(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                                         const RecipeTarget& target);
  ProducerRule (*producers)(const RecipeOptions& options);  // null: kRounded
  RecipePath (*path)(const RecipeTarget& target);
  DimensionRule dimensions;  // docs/recipes.md, "Dimensions"
  // Bits of the GEMM format: 32, 16, 8, 4, for floors and tables alone: what a recipe can do, path(), quantizes() and
  // full_precision() say.
  int bits;
  // Dtype of compute weights, activations and activation gradients.
  DType compute;
  // Names of the RecipeOptions that the recipe reads.
  std::vector<const char*> options;
  // Both dimensions of a tensor are multiples of this, or it cannot be quantized at all; 1 = any shape.
  int64_t multiple;
  const char* summary;

  std::unique_ptr<LinearRecipe> make(const RecipeOptions& with, const LinearSite& site,
                                     const RecipeTarget& target = {}) const {
    return layer(*this, with, site, target);
  }
  // Throws Exit::kUsage naming the layer, what was found and expected, and the way out, where its dimensions cannot be
  // taken; m = tokens of a micro-batch. A GPU's native products take multiples of 16 alone.
  void check(const LinearSite& site, int64_t m, const RecipeTarget& target) const;
  // Whether its products take codes, so that operands have forms and quantization errors.
  bool quantizes() const { return spec({}, Role::kInput).rowwise.has_value(); }
  // Whether weights, activations and products are FP32, which nothing can be mixed with.
  bool full_precision() const { return compute == DType::kF32; }
};

const std::vector<RecipeEntry>& recipe_table();
// The recipes that a comparison sets against BF16 unless told otherwise.
std::vector<std::string> compared_by_default();
// The recipe that quantizes nothing, in FP32 or in BF16: the reference, the baseline.
const RecipeEntry& plain_recipe(bool full_precision);
// Throws Exit::kUsage with the nearest name.
const RecipeEntry& find_recipe(const std::string& name);

// Throws Exit::kUsage for an option that differs from its default and that none of the recipes `in_use` reads.
void refuse_unread_options(RecipeOptions options, const std::vector<const RecipeEntry*>& in_use);

// "E4M3 1x32 E8M0", "E2M1 1x16 E4M3, RHT, SR": element, block, scale, and what is done before and in the cast.
std::string str(const QuantFormat& format);

}  // namespace mantissa
