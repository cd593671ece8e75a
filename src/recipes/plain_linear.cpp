#include "recipes/plain_linear.h"

#include "ops/gemm.h"

namespace mantissa {
namespace {

class PlainLinear final : public LinearRecipe {
 public:
  PlainLinear(const char* recipe, DType compute, const LinearSite& site)
      : recipe_(recipe), compute_(compute), site_(site) {}

  OperandSpec input_spec(Producer) const override { return {}; }
  OperandSpec grad_spec(Producer) const override { return {}; }
  void allocate(Arena&) override {}
  void bind_input(Operand& x) const override { x.tensor_id = site_.tensor_id; }
  void bind_grad(Operand& dy) const override { dy.tensor_id = site_.tensor_id + 2; }

  void refresh_weight(Exec&, Tensor w) override {
    check(w.dtype == compute_ && w.rows() == site_.n && w.cols() == site_.k,
          "{}: weight of {} is {}, expected {}[{},{}]", recipe_, site_.name, w, name_of(compute_), site_.n, site_.k);
    weight_ = w;
  }

  void fprop(Exec& exec, Tensor y, const Operand& x, ConstTensor bias) override {
    gemm(exec, {.a = GemmSide::plain(x.high), .b = GemmSide::plain(weight_), .c = y, .bias = bias});
  }
  void dgrad(Exec& exec, Tensor dx, const Operand& dy) override {
    gemm(exec, {.a = GemmSide::plain(dy.high), .b = GemmSide::plain(weight_, true), .c = dx, .bias = {}});
  }
  void wgrad(Exec& exec, Tensor dw, const Operand& dy, const Operand& x, float beta) override {
    gemm(exec,
         {.a = GemmSide::plain(dy.high, true), .b = GemmSide::plain(x.high, true), .c = dw, .bias = {}, .beta = beta});
  }

  RecipeInfo info() const override {
    const char* element = compute_ == DType::kF32 ? "FP32" : "BF16";
    return {.name = recipe_, .input = element, .weight = element, .grad = element};
  }

 private:
  const char* recipe_;
  DType compute_;
  LinearSite site_;
  ConstTensor weight_;  // [N,K]
};

}  // namespace

std::unique_ptr<LinearRecipe> make_plain_linear(const RecipeEntry& entry, const RecipeOptions&, const LinearSite& site,
                                                const RecipeTarget&) {
  return std::make_unique<PlainLinear>(entry.name, entry.compute, site);
}

}  // namespace mantissa
