// FP8 with one FP32 scale a tensor, from the amaxes of earlier micro-batches (TransformerEngine: DelayedScaling).
// docs/numerics.md 3. Casts raise the amaxes, ScalingState moves the slots.
#include "recipes/fp8_delayed/fp8_delayed.h"

#include <cmath>

#include "numerics/fp8.h"
#include "recipes/format.h"
#include "recipes/quantized_linear.h"

namespace mantissa::fp8_delayed_recipe {
namespace {

OperandSpec spec(const RecipeOptions& options, Role role) {
  return both_copies(
      {.element = fp8_element(options, role, "hybrid"), .rule = ScaleRule::kGiven, .blocking = Blocking::kTensor});
}

// The slots of one direction of a layer.
class Slots {
 public:
  Slots(const RecipeOptions& options, Role role, int64_t count)
      : length_(options.amax_history_len),
        count_(count),
        most_recent_(options.amax_compute_algo == "most_recent"),
        numerator_(std::ldexp(fp8_element(options, role, "hybrid") == DType::kE4M3 ? kMaxE4M3 : kMaxE5M2,
                              -static_cast<int>(options.margin))) {}

  void allocate(Arena& arena) {
    scales_ = arena.tensor("scaling state", DType::kF32, {count_});
    next_ = arena.tensor("scaling state", DType::kF32, {count_});
    history_ = arena.tensor("scaling state", DType::kF32, {length_, count_});
  }
  DelayedSlot slot(int64_t index) const {
    const auto at = [index](const Tensor& t) { return t ? t.as<float>() + index : nullptr; };
    return {.scale = at(scales_),
            .next = at(next_),
            .history = at(history_),
            .length = length_,
            .stride = count_,
            .numerator = numerator_,
            .most_recent = most_recent_};
  }
  // Casts of `q` read the slot's scale and raise its history.
  void bind(Quantized& q, int64_t index) const {
    const DelayedSlot s = slot(index);
    q.scale = s.scale, q.raised = s.history;
  }
  Tensor scales() const { return scales_; }    // [count] f32
  Tensor history() const { return history_; }  // [length, count] f32

 private:
  int64_t length_, count_;
  bool most_recent_;
  float numerator_;
  Tensor scales_, next_, history_;
};

class DelayedLinear final : public QuantizedLinear {
 public:
  DelayedLinear(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                const RecipeTarget& target)
      : QuantizedLinear(entry, options, site, target),
        forward_(options, Role::kInput, 2),
        backward_(options, Role::kGrad, 1) {}

  void allocate(Arena& arena) override {
    QuantizedLinear::allocate(arena);
    forward_.allocate(arena);
    backward_.allocate(arena);
    bind(weight(), forward_, kWeightSlot);
  }
  void bind_input(Operand& x) const override {
    QuantizedLinear::bind_input(x);
    bind(x, forward_, kInputSlot);
  }
  void bind_grad(Operand& dy) const override {
    QuantizedLinear::bind_grad(dy);
    bind(dy, backward_, 0);
  }

  void visit_slots(const SlotVisitor& f) const override {
    f("input", false, forward_.slot(kInputSlot));
    f("weight", false, forward_.slot(kWeightSlot));
    f("grad", true, backward_.slot(0));
  }
  void visit_state(const StateVisitor& f) const override {
    f("scale_fwd", forward_.scales());
    f("amax_history_fwd", forward_.history());
    f("scale_bwd", backward_.scales());
    f("amax_history_bwd", backward_.history());
  }

 private:
  static constexpr int kInputSlot = 0, kWeightSlot = 1;

  // Both copies hold the same codes: one of them raises.
  static void bind(Operand& x, const Slots& slots, int64_t index) {
    slots.bind(x.rowwise, index);
    slots.bind(x.columnwise, index);
    x.columnwise.raised = nullptr;
  }

  Slots forward_, backward_;
};

std::unique_ptr<LinearRecipe> make(const RecipeEntry& entry, const RecipeOptions& options, const LinearSite& site,
                                   const RecipeTarget& target) {
  return std::make_unique<DelayedLinear>(entry, options, site, target);
}

}  // namespace

RecipeEntry entry() {
  return quantized_entry({.name = "fp8-delayed",
                          .spec = spec,
                          .layer = make,
                          .producers = [](const RecipeOptions&) { return ProducerRule::kUnrounded; },
                          .path = path_of_fp8_tensors,
                          .dimensions = kFp8Dimensions,
                          .bits = 8,
                          .options = {"format", "margin", "amax_history_len", "amax_compute_algo"},
                          .multiple = 1,
                          .summary = "FP8, one scale a tensor from past amaxes"});
}

}  // namespace mantissa::fp8_delayed_recipe
