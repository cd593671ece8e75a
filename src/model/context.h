// What one micro-batch brings to the layers.
#pragma once

#include <string_view>
#include <vector>

#include "model/param.h"
#include "ops/attention.h"
#include "recipes/recipe.h"
#include "tensor/exec.h"

namespace mantissa {

struct StepContext {
  Exec& exec;
  ParamStore& params;
  ConstTensor ids, labels, positions;          // [T] i32
  Segments segments;                           // of the packed documents
  ConstTensor cos_sin;                         // [P,D] f32
  std::vector<TensorError>* errors = nullptr;  // set: measure the quantization error of every operand
  bool check_finite = false;                   // set: throw Exit::kNonFinite at the first tensor with NaN or Inf
};

// Sets a pass for a scope and restores the one before.
class PassScope {
 public:
  PassScope(Exec& exec, Pass pass) : exec_(exec), before_(exec.pass) { exec.pass = pass; }
  ~PassScope() { exec_.pass = before_; }
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  Exec& exec_;
  Pass before_;
};

// Throws Exit::kNonFinite naming `owner``tensor` ("layers.3" " input") where context.check_finite is set and x holds
// NaN or Inf.
void check_finite(const StepContext& context, ConstTensor x, std::string_view owner, std::string_view tensor);

}  // namespace mantissa
