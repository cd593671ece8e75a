// A linear layer: a weight, perhaps a bias, and the recipe that runs its products.
#pragma once

#include <memory>
#include <string>

#include "model/context.h"
#include "recipes/recipe.h"

namespace mantissa {

class Linear {
 public:
  // bias -1: none. The weight is taken with its padding (ParamStore::padded_rows).
  Linear(LinearSite site, std::unique_ptr<LinearRecipe> recipe, int weight, int bias);

  const std::string& name() const { return site_.name; }
  int64_t out_features() const { return site_.n; }
  int64_t in_features() const { return site_.k; }
  LinearRecipe& recipe() const { return *recipe_; }

  // Memory of the recipe: quantized weight, scaling state.
  void allocate(Arena& arena) { recipe_->allocate(arena); }

  // The input x[M,in] that a producer fills: the form that wgrad reads lives in `kept`, the others in `shared`. `high`
  // is the tensor that the producer writes anyway, if there is one.
  Operand make_input(Producer producer, int64_t m, DType dtype, Allocator& kept, Allocator& shared,
                     Tensor high = {}) const;
  // The output gradient dy[M,out]; all of it in `shared`.
  Operand make_grad(Producer producer, int64_t m, DType dtype, Allocator& shared, Tensor high = {}) const;

  void refresh_weight(StepContext& context);
  // y[M,out] = x wᵀ + bias
  void forward(StepContext& context, Tensor y, const Operand& x) const;
  // dx[M,in] = dy w (if dx is given); dw += dyᵀ x; dbias += column sums of dy.high
  void backward(StepContext& context, Tensor dx, const Operand& dy, const Operand& x) const;

 private:
  void measure(StepContext& context, const Operand& x, const char* tensor) const;

  LinearSite site_;
  std::unique_ptr<LinearRecipe> recipe_;
  int weight_, bias_;
};

}  // namespace mantissa
