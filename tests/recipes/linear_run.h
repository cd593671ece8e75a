// A linear layer under a recipe with its operands and results, for tests: y = x wᵀ, dx = dy w, dw = dyᵀ x.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "numerics/bf16.h"
#include "ops/quantize.h"
#include "recipes/recipe.h"
#include "recipes/scaling_state.h"

namespace mantissa::test {

struct LinearSizes {
  int64_t m, n, k;
};

// `count` values, most of them around `size`, one in 97 ten times as large; the same for the same seed.
inline std::vector<float> random_values(int64_t count, uint64_t seed, float size) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const Random4 r = draw({.seed = seed, .step = 0, .tensor = 0, .form = DrawForm::kInit}, static_cast<uint64_t>(i));
    float sum = -2;
    for (const uint32_t x : r.x) sum += static_cast<float>(x >> 8) * 0x1p-24f;
    values[static_cast<size_t>(i)] = sum * size * (i % 97 == 0 ? 10.0f : 1.0f);
  }
  return values;
}

inline void store(Tensor to, const std::vector<float>& values) {
  check(to.count() == static_cast<int64_t>(values.size()), "store: {} values into {}", values.size(), to.str());
  for (size_t i = 0; i < values.size(); ++i) {
    if (to.dtype == DType::kF32) to.as<float>()[i] = values[i];
    if (to.dtype == DType::kBF16) to.as<bf16>()[i] = to_bf16(values[i]);
  }
}

inline std::vector<double> load(ConstTensor from) {
  std::vector<double> values(static_cast<size_t>(from.count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = from.dtype == DType::kF32 ? from.as<float>()[i] : to_float(from.as<bf16>()[i]);
  return values;
}

inline std::vector<std::byte> raw(ConstTensor t) {
  std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
  std::memcpy(bytes.data(), t.data, bytes.size());
  return bytes;
}

class LinearRun {
 public:
  LinearRun(const RecipeEntry& entry, const RecipeOptions& options, const LinearSizes& sizes, DType dw_dtype)
      : recipe(entry.make(options, {.name = "layers.0.mlp.down_proj", .n = sizes.n, .k = sizes.k, .tensor_id = 12})) {
    scaling_.add("layers.0.mlp.down_proj", *recipe);
    arena_.build([&](Arena& arena) {
      recipe->allocate(arena);
      scaling_.allocate(arena);
      w = arena.tensor("w", entry.compute, {sizes.n, sizes.k});
      x = arena.operand("x", recipe->input_spec(Producer::kPlain), sizes.m, sizes.k);
      x.high = arena.tensor("x", entry.compute, {sizes.m, sizes.k});
      recipe->bind_input(x);
      dy = arena.operand("dy", recipe->grad_spec(Producer::kPlain), sizes.m, sizes.n);
      dy.high = arena.tensor("dy", entry.compute, {sizes.m, sizes.n});
      recipe->bind_grad(dy);
      y = arena.tensor("y", entry.compute, {sizes.m, sizes.n});
      dx = arena.tensor("dx", entry.compute, {sizes.m, sizes.k});
      dw = arena.tensor("dw", dw_dtype, {sizes.n, sizes.k});
    });
    scaling_.fill_table(nullptr);
    scaling_.start();
    exec.state.seed = 7;
  }

  void forward() {
    if (x.rowwise) quantize(exec, x);
    recipe->fprop(exec, y, x, {});
  }
  void backward(float beta = 0) {
    if (dy.rowwise) quantize(exec, dy);
    recipe->dgrad(exec, dx, dy);
    recipe->wgrad(exec, dw, dy, x, beta);
  }
  // The state moves; what amax was not finite.
  std::string end_forward() {
    scaling_.forget_trouble();
    scaling_.end_forward(exec);
    return scaling_.trouble();
  }
  std::string end_backward() {
    scaling_.forget_trouble();
    scaling_.end_backward(exec);
    return scaling_.trouble();
  }
  std::vector<std::pair<std::string, Tensor>> state() const {
    std::vector<std::pair<std::string, Tensor>> all;
    recipe->visit_state([&](const char* name, Tensor tensor) { all.emplace_back(name, tensor); });
    return all;
  }
  std::vector<std::vector<std::byte>> state_bytes() const {
    std::vector<std::vector<std::byte>> bytes;
    for (const auto& [name, tensor] : state()) bytes.push_back(raw(tensor));
    return bytes;
  }

  Exec exec;
  std::unique_ptr<LinearRecipe> recipe;
  Tensor w, y, dx, dw;
  Operand x, dy;

 private:
  Arena arena_;
  ScalingState scaling_;
};

}  // namespace mantissa::test
