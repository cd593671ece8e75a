// Every recipe's layer on the GPU beside the CPU's: codes, scales and scaling state in the same bits, products within
// their rounding.
#include <cmath>
#include <ostream>

#include "recipes/scaling_state.h"
#include "tests/gpu/on_device.h"
#include "tests/recipes/linear_run.h"

namespace mantissa {
namespace {

struct Case {
  const char* recipe;
  RecipeOptions options;
  const char* variant = "";
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.recipe << ' ' << c.variant; }

// A layer in the device's memory, with the tensors of a LinearRun.
class DeviceRun {
 public:
  DeviceRun(const RecipeEntry& entry, const RecipeOptions& options, const test::LinearSizes& s, DType dw_dtype,
            Device& device, Exec& on)
      : exec(on),
        recipe(entry.make(options, {.name = "layer", .n = s.n, .k = s.k, .tensor_id = 12},
                          {.gpu = true, .sm = device.info().sm})) {
    scaling.add("layer", *recipe);
    const auto operand = [&](Arena& arena, const OperandSpec& spec, int64_t rows, int64_t cols) {
      Operand made = arena.operand("operand", spec, rows, cols);
      made.high = arena.tensor("operand", DType::kBF16, {rows, cols});
      return made;
    };
    arena_.build(
        [&](Arena& arena) {
          recipe->allocate(arena);
          scaling.allocate(arena);
          w = arena.tensor("w", DType::kBF16, {s.n, s.k});
          x = operand(arena, recipe->input_spec(Producer::kPlain), s.m, s.k);
          dy = operand(arena, recipe->grad_spec(Producer::kPlain), s.m, s.n);
          recipe->bind_input(x);
          recipe->bind_grad(dy);
          y = arena.tensor("y", DType::kBF16, {s.m, s.n});
          dx = arena.tensor("dx", DType::kBF16, {s.m, s.k});
          dw = arena.tensor("dw", dw_dtype, {s.n, s.k});
          bias = arena.tensor("bias", DType::kBF16, {s.n});
        },
        &device);
    scaling.fill_table(&device);
    scaling.start();
    exec.state.seed = 7;
  }

  std::vector<float> floats(const Tensor& t) const {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
    exec.device()->copy_out(bytes.data(), t.data, t.bytes());
    std::vector<float> out;
    for (int64_t i = 0; i < t.count(); ++i)
      out.push_back(t.dtype == DType::kF32 ? reinterpret_cast<const float*>(bytes.data())[i]
                                           : to_float(reinterpret_cast<const bf16*>(bytes.data())[i]));
    return out;
  }
  void copy(const Tensor& to, ConstTensor from) const { exec.device()->copy_in(to.data, from.data, from.bytes()); }

  Exec& exec;
  std::unique_ptr<LinearRecipe> recipe;
  ScalingState scaling;
  Tensor w, y, dx, dw, bias;
  Operand x, dy;

 private:
  Arena arena_;
};

std::vector<float> floats_of(const Tensor& t) {
  const std::vector<double> values = test::load(t);
  return {values.begin(), values.end()};
}

// The values that a copy stands for, with its tensor's scale, and what the scales say.
std::vector<float> dequantized(Exec& exec, const Quantized& q) {
  std::vector<float> values(static_cast<size_t>(q.data.count()));
  dequantize(exec, {values.data(), DType::kF32, q.data.shape}, q);
  return values;
}

class GpuRecipe : public GpuTest, public testing::WithParamInterface<Case> {
 protected:
  // The copy of the GPU holds the CPU's codes: compared as codes, or as the values that they stand for.
  void expect_copy(const char* what, const Quantized& there, const Quantized& here) {
    SCOPED_TRACE(what);
    ASSERT_EQ(there.data.shape, here.data.shape);
    std::vector<std::byte> found(static_cast<size_t>(there.data.bytes()));
    device().copy_out(found.data(), there.data.data, there.data.bytes());
    if (!there.format.values) {
      EXPECT_EQ(found, test::raw(here.data));
      return;
    }
    const std::vector<float> expected = dequantized(cpu, here);
    const bool nvfp4 = there.format.rule == ScaleRule::kNvfp4;
    float amax = 1;
    if (nvfp4) {
      device().copy_out(&amax, there.amax, sizeof amax);
      EXPECT_EQ(amax, *here.amax);
    }
    const auto* values = reinterpret_cast<const bf16*>(found.data());
    size_t wrong = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double value = to_float(values[i]) * (nvfp4 ? double{amax} / 2688 : 1.0);
      wrong += std::abs(value - expected[i]) > 1e-6 * std::abs(expected[i]);  // the tensor's scale is rounded there
    }
    EXPECT_EQ(wrong, 0u) << "of " << expected.size();
  }
  void expect_copies(const char* what, const Operand& there, const Operand& here) {
    expect_copy(what, there.rowwise, here.rowwise);
    if (!there.columnwise) return;
    if (here.columnwise) return expect_copy(what, there.columnwise, here.columnwise);
    // One copy there, two here: the same codes turned.
    std::vector<std::byte> turned(static_cast<size_t>(there.columnwise.data.bytes()));
    device().copy_out(turned.data(), there.columnwise.data.data, there.columnwise.data.bytes());
    const auto* codes = static_cast<const std::byte*>(here.rowwise.data.data);
    const int64_t m = here.rowwise.data.dim(0), k = here.rowwise.data.dim(1);
    size_t wrong = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < k; ++j) wrong += codes[i * k + j] != turned[static_cast<size_t>(j * m + i)];
    EXPECT_EQ(wrong, 0u) << what << " turned";
  }

  Exec cpu;
};

// BF16 results: a rounding on either side, 1.7e-3 of the norm each, and the sums of FP8 products in 14 bits (at most
// 1e-3). FP32 ones: the sums alone, split.
constexpr double kBF16Bound = 4e-3, kF32Bound = 4e-4;

TEST_P(GpuRecipe, LayersAsOnTheCpu) {
  const RecipeEntry& entry = find_recipe(GetParam().recipe);
  if (entry.path({.gpu = true, .sm = device().info().sm}).path == Path::kRefused) GTEST_SKIP() << "not on this GPU";
  for (const DType dw_dtype : {DType::kF32, DType::kBF16})
    for (const test::LinearSizes sizes : {test::LinearSizes{256, 384, 768}, {160, 272, 400}, {512, 256, 2304}}) {
      if (sizes.n % entry.dimensions.out_features || sizes.k % entry.dimensions.in_features) continue;
      SCOPED_TRACE(fmt::format("{}x{}x{} dw {}", sizes.m, sizes.n, sizes.k, name_of(dw_dtype)));
      test::LinearRun host(entry, GetParam().options, sizes, dw_dtype);
      DeviceRun gpu(entry, GetParam().options, sizes, dw_dtype, device(), exec());
      const double dw_bound = dw_dtype == DType::kF32 ? kF32Bound : kBF16Bound;
      for (uint32_t step = 0; step < 3; ++step) {
        const float size = 1.0f + 20.0f * static_cast<float>(step);
        test::store(host.x.high, test::random_values(host.x.high.count(), 3 * step + 1, size));
        test::store(host.dy.high, test::random_values(host.dy.high.count(), 3 * step + 2, 0.01f * size));
        test::store(host.w, test::random_values(host.w.count(), 3 * step + 3, 0.05f));
        gpu.copy(gpu.x.high, host.x.high), gpu.copy(gpu.dy.high, host.dy.high), gpu.copy(gpu.w, host.w);
        std::vector<float> shift = test::random_values(sizes.n, 40 + step, size);
        std::vector<bf16> rounded;
        for (float& v : shift) rounded.push_back(to_bf16(v)), v = to_float(rounded.back());
        const ConstTensor bias(shift.data(), DType::kF32, {sizes.n});
        gpu.copy(gpu.bias, {rounded.data(), DType::kBF16, {sizes.n}});
        host.exec.state.step = exec().state.step = step;
        const OnDevice state(device(), ConstTensor(&exec().state, DType::kU8, {int64_t{sizeof(StepState)}}));
        exec().set_device_state(state.as<StepState>());

        host.recipe->refresh_weight(host.exec, host.w);
        gpu.recipe->refresh_weight(exec(), gpu.w);
        quantize(host.exec, host.x);
        quantize(exec(), gpu.x);
        host.recipe->fprop(host.exec, host.y, host.x, bias);
        gpu.recipe->fprop(exec(), gpu.y, gpu.x, gpu.bias);
        EXPECT_EQ(host.end_forward(), "");
        gpu.scaling.end_forward(exec());
        quantize(host.exec, host.dy);
        quantize(exec(), gpu.dy);
        for (const float beta : {0.0f, 1.0f}) {
          host.recipe->dgrad(host.exec, host.dx, host.dy);
          gpu.recipe->dgrad(exec(), gpu.dx, gpu.dy);
          host.recipe->wgrad(host.exec, host.dw, host.dy, host.x, beta);
          gpu.recipe->wgrad(exec(), gpu.dw, gpu.dy, gpu.x, beta);
          EXPECT_LT(relative_error(gpu.floats(gpu.dw), floats_of(host.dw)), dw_bound) << "dw, beta " << beta;
        }
        EXPECT_EQ(host.end_backward(), "");
        gpu.scaling.end_backward(exec());
        EXPECT_EQ(gpu.scaling.trouble(), "");

        expect_copies("input", gpu.x, host.x);
        expect_copies("grad", gpu.dy, host.dy);
        expect_copy("weight", *gpu.recipe->weight_form(), *host.recipe->weight_form());
        EXPECT_LT(relative_error(gpu.floats(gpu.y), floats_of(host.y)), kBF16Bound) << "y, step " << step;
        EXPECT_LT(relative_error(gpu.floats(gpu.dx), floats_of(host.dx)), kBF16Bound) << "dx, step " << step;
        std::vector<std::vector<std::byte>> scaling;
        gpu.recipe->visit_state([&](const char*, Tensor t) {
          scaling.emplace_back(static_cast<size_t>(t.bytes()));
          device().copy_out(scaling.back().data(), t.data, t.bytes());
        });
        EXPECT_EQ(scaling, host.state_bytes()) << "scaling state, step " << step;
        exec().set_device_state(nullptr);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, GpuRecipe,
    testing::Values(Case{"fp8-delayed", {.amax_history_len = 4}}, Case{"fp8-delayed", {.format = "e4m3"}, "e4m3"},
                    Case{"fp8-tensorwise", {}},
                    Case{"fp8-tensorwise", {.format = "e4m3", .scales = "pow2"}, "e4m3_pow2"},
                    Case{"fp8-blockwise", {}},
                    Case{"fp8-blockwise", {.format = "hybrid", .scales = "fp32"}, "hybrid_fp32"}, Case{"mxfp8", {}},
                    Case{"mxfp8", {.format = "hybrid", .enable_2d_quantization = true}, "hybrid_2d"}, Case{"nvfp4", {}},
                    Case{"nvfp4",
                         {.disable_rht = true, .disable_stochastic_rounding = true, .disable_2d_quantization = true},
                         "plain"}),
    [](const auto& test) {
      std::string name = std::string(test.param.recipe) + "_" + test.param.variant;
      for (char& c : name)
        if (c == '-') c = '_';
      return name;
    });

}  // namespace
}  // namespace mantissa
