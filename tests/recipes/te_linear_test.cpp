// Four training steps of one linear layer against TransformerEngine 2.20.2's te.Linear (256 -> 128) on an H200:
// scales and histories in every bit, y, dx and dw up to the rounding of their BF16.
#include <gtest/gtest.h>

#include <cmath>

#include "base/safetensors.h"
#include "tests/recipes/linear_run.h"

namespace mantissa::test {
namespace {

constexpr int64_t kTokens = 128, kIn = 256, kOut = 128;
constexpr double kRelative = 2e-3;

class TeLinear : public testing::Test {
 protected:
  safetensors::Reader golden =
      safetensors::Reader::open(std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/te/linear.safetensors");

  void read(Tensor to, const std::string& name) const {
    const safetensors::View& view = golden.at(name);
    ASSERT_EQ(static_cast<int64_t>(view.bytes.size()), to.bytes()) << name;
    std::memcpy(to.data, view.bytes.data(), view.bytes.size());
  }
  std::vector<float> floats(const std::string& name) const {
    const safetensors::View& view = golden.at(name);
    std::vector<float> values(view.bytes.size() / 4);
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    return values;
  }

  void expect_near(const std::string& name, ConstTensor found) const {
    const safetensors::View& view = golden.at(name);
    std::vector<bf16> expected(view.bytes.size() / 2);
    std::memcpy(expected.data(), view.bytes.data(), view.bytes.size());
    const std::vector<double> values = load(found);
    ASSERT_EQ(values.size(), expected.size()) << name;
    double noise = 0, signal = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double e = to_float(expected[i]);
      noise += (values[i] - e) * (values[i] - e), signal += e * e;
    }
    EXPECT_LT(std::sqrt(noise / signal), kRelative) << name;
  }

  // Column `slot` of golden [rows, golden_slots] and of found [rows, slots] in every bit.
  void expect_column(const std::string& name, Tensor found, size_t golden_slots) const {
    const std::vector<float> expected = floats(name);
    const size_t slots = static_cast<size_t>(found.cols()), rows = static_cast<size_t>(found.count()) / slots;
    ASSERT_EQ(expected.size(), rows * golden_slots) << name;
    for (size_t row = 0; row < rows; ++row)
      for (size_t slot = 0; slot < slots; ++slot)
        EXPECT_EQ(std::bit_cast<uint32_t>(found.as<float>()[row * slots + slot]),
                  std::bit_cast<uint32_t>(expected[row * golden_slots + slot]))
            << name << "[" << row << "," << slot << "]";
  }

  void run_steps(const char* recipe, const std::string& prefix, const RecipeOptions& options) {
    LinearRun run(find_recipe(recipe), options, {kTokens, kOut, kIn}, DType::kBF16);
    read(run.w, "w");
    for (int step = 0; step < 4; ++step) {
      const std::string t = std::to_string(step), at = prefix + "." + t + ".";
      read(run.x.high, "x" + t);
      read(run.dy.high, "g" + t);
      run.recipe->refresh_weight(run.exec, run.w);
      run.forward();
      run.end_forward();
      run.backward();
      run.end_backward();
      expect_near(at + "y", run.y);
      expect_near(at + "dx", run.dx);
      expect_near(at + "dw", run.dw);
      const auto state = run.state();
      if (state.empty()) continue;
      // TransformerEngine's unused slots, output and grad_input, come last.
      expect_column(at + "fwd_scale", state[0].second, 3);
      expect_column(at + "fwd_hist", state[1].second, 3);
      expect_column(at + "bwd_scale", state[2].second, 2);
      expect_column(at + "bwd_hist", state[3].second, 2);
    }
  }
};

TEST_F(TeLinear, Delayed) { run_steps("fp8-delayed", "delayed", {.amax_history_len = 4}); }
TEST_F(TeLinear, Current) { run_steps("fp8-tensorwise", "current", {}); }

}  // namespace
}  // namespace mantissa::test
