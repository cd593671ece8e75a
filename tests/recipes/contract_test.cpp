// What every recipe keeps, whatever its format: products of its operands' dequantized copies, replays bitwise equal,
// evaluations that leave no trace.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/recipes/linear_run.h"

namespace mantissa::test {
namespace {

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;
  double at(int64_t i, int64_t j) const { return values[static_cast<size_t>(i * cols + j)]; }
};

// The values that both copies of source[M,K] stand for, made in full as the recipe states them; the source itself
// without quantization. `along_k` [M,K], `along_m` [K,M].
struct Copies {
  Matrix along_k, along_m;

  Copies(Exec& exec, const RecipeEntry& entry, const RecipeOptions& options, Role role, const Operand& like) {
    const OperandSpec spec = entry.spec(options, role);
    const int64_t m = like.high.rows(), k = like.high.cols();
    const float one = 1;
    along_k = {.rows = m, .cols = k, .values = load(like.high)};
    along_m = {.rows = k, .cols = m, .values = std::vector<double>(along_k.values.size())};
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < k; ++j) along_m.values[static_cast<size_t>(j * m + i)] = along_k.at(i, j);
    if (!spec.rowwise) return;
    Arena arena;
    Operand full;
    Tensor rows, columns;
    arena.build([&](Arena& a) {
      full = a.operand("full", spec, m, k);
      rows = a.tensor("rows", DType::kF32, {m, k});
      columns = a.tensor("columns", DType::kF32, {k, m});
    });
    full.high = like.high;
    full.tensor_id = like.tensor_id;
    full.rowwise.scale = full.columnwise.scale = &one;
    quantize(exec, full);
    dequantize(exec, rows, full.rowwise);
    dequantize(exec, columns, full.columnwise);
    along_k.values = load(rows);
    along_m.values = load(columns);
  }
};

// c = a · bᵀ + before, held to the rounding of its dtype and of FP32 accumulation. `rounds_first`: the product is
// rounded to c's dtype before the sum is.
void expect_product(const std::string& what, ConstTensor c, const Matrix& a, const Matrix& b,
                    const std::vector<double>& before = {}, bool rounds_first = false) {
  ASSERT_EQ(a.cols, b.cols);
  const std::vector<double> found = load(c);
  const double output = c.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-23,
               accumulation = static_cast<double>(a.cols + 8) * 0x1p-24;
  int64_t bad = 0;
  double signal = 0;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j) {
      double sum = 0, absolute = 0;
      for (int64_t k = 0; k < a.cols; ++k) {
        sum += a.at(i, k) * b.at(j, k);
        absolute += std::fabs(a.at(i, k) * b.at(j, k));
      }
      const size_t at = static_cast<size_t>(i * b.rows + j);
      const double first = rounds_first ? output * std::fabs(sum) : 0;
      if (!before.empty()) sum += before[at], absolute += std::fabs(before[at]);
      signal += sum * sum;
      const double bound = output * std::fabs(sum) + accumulation * absolute + first;
      if (!(std::fabs(found[at] - sum) <= bound) && bad++ == 0)
        ADD_FAILURE() << what << "[" << i << "," << j << "] is " << found[at] << ", expected " << sum << " +- "
                      << bound;
    }
  EXPECT_EQ(bad, 0) << what;
  EXPECT_GT(signal, 0) << what;
}

struct Case {
  std::string recipe, variant;
  RecipeOptions options;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const RecipeEntry& entry : recipe_table()) all.push_back({entry.name, "default", {}});
  for (const char* name : {"fp8-delayed", "fp8-tensorwise", "fp8-blockwise", "mxfp8"}) {
    all.push_back({name, "hybrid", {.format = "hybrid"}});
    all.push_back({name, "e4m3", {.format = "e4m3"}});
  }
  for (const char* scales : {"fp32", "pow2"})
    for (const char* name : {"fp8-tensorwise", "fp8-blockwise"}) all.push_back({name, scales, {.scales = scales}});
  all.push_back({"mxfp8", "2d", {.enable_2d_quantization = true}});
  all.push_back({"nvfp4", "no_rht", {.disable_rht = true}});
  all.push_back({"nvfp4", "nearest", {.disable_stochastic_rounding = true}});
  all.push_back({"nvfp4", "1d", {.disable_2d_quantization = true}});
  return all;
}

class Contract : public testing::TestWithParam<Case> {
 protected:
  const RecipeEntry& entry = find_recipe(GetParam().recipe);
  const RecipeOptions options = GetParam().options;

  void fill(LinearRun& run, uint64_t seed, float size = 1) {
    store(run.x.high, random_values(run.x.high.count(), seed, size));
    store(run.dy.high, random_values(run.dy.high.count(), seed + 1, size / 64));
    store(run.w, random_values(run.w.count(), seed + 2, size / 16));
  }
};

TEST_P(Contract, ProductsOfDequantizedCopies) {
  const QuantFormat format = entry.spec(options, Role::kGrad).rowwise.value_or(QuantFormat{});
  // FP32 block scales: the product is rounded to the gradient's dtype before it is added.
  const bool rounds_first = entry.bits == 8 && format.block == 128 && format.rule == ScaleRule::kCurrent;
  // The second size leaves ragged 128-blocks.
  for (const bool ragged : {false, true}) {
    const LinearSizes sizes = ragged ? LinearSizes{96, 160, 224} : LinearSizes{128, 64, 256};
    LinearRun run(entry, options, sizes, ragged ? DType::kBF16 : DType::kF32);
    fill(run, 1);
    store(run.dw, random_values(run.dw.count(), 9, 0.5f));
    const std::vector<double> before = load(run.dw);
    run.recipe->refresh_weight(run.exec, run.w);
    run.forward();
    run.backward(/*beta=*/1);
    Operand weight;
    weight.high = run.w;
    weight.tensor_id = 13;
    const Copies x(run.exec, entry, options, Role::kInput, run.x), w(run.exec, entry, options, Role::kWeight, weight),
        dy(run.exec, entry, options, Role::kGrad, run.dy);
    expect_product("y", run.y, x.along_k, w.along_k);
    expect_product("dx", run.dx, dy.along_k, w.along_m);
    expect_product("dw", run.dw, dy.along_m, x.along_m, before, rounds_first);
    run.backward(/*beta=*/0);
    expect_product("dw, beta 0", run.dw, dy.along_m, x.along_m);
  }
}

TEST_P(Contract, Bias) {
  const LinearSizes sizes{32, 64, 96};
  LinearRun run(entry, options, sizes, DType::kF32);
  fill(run, 1);
  run.recipe->refresh_weight(run.exec, run.w);
  run.forward();
  const std::vector<double> without = load(run.y);
  std::vector<float> bias(64, 1024.0f);
  bias[3] = -1024;
  run.recipe->fprop(run.exec, run.y, run.x, {bias.data(), DType::kF32, {64}});
  const std::vector<double> with = load(run.y);
  for (size_t i = 0; i < with.size(); ++i) EXPECT_NEAR(with[i], without[i] + bias[i % 64], 8) << i;
}

TEST_P(Contract, ReplayIsBitwiseEqual) {
  LinearRun run(entry, options, {64, 96, 128}, DType::kF32);
  for (uint32_t step = 0; step < 4; ++step) {
    fill(run, 10 * step, 1.0f + 50.0f * static_cast<float>(step));
    run.exec.state.step = step;
    run.recipe->refresh_weight(run.exec, run.w);
    run.forward();
    const auto y = raw(run.y);
    const auto codes = run.x.rowwise ? raw(run.x.rowwise.data) : y;
    EXPECT_EQ(run.end_forward(), "");
    const auto state = run.state_bytes();
    if (run.x.rowwise) std::memset(run.x.rowwise.data.data, 0, static_cast<size_t>(run.x.rowwise.data.bytes()));
    run.exec.pass = Pass::kReplay;
    run.forward();
    EXPECT_TRUE(y == raw(run.y)) << "step " << step;
    EXPECT_TRUE(codes == (run.x.rowwise ? raw(run.x.rowwise.data) : y)) << "step " << step;
    EXPECT_TRUE(state == run.state_bytes()) << "step " << step;
    run.exec.pass = Pass::kForward;
    run.backward();
    EXPECT_EQ(run.end_backward(), "");
  }
}

// A run with evaluations between its steps gives the bits of one without.
TEST_P(Contract, EvaluationLeavesNoTrace) {
  std::vector<std::byte> results[2];
  for (const bool evaluates : {false, true}) {
    LinearRun run(entry, options, {64, 96, 128}, DType::kF32);
    for (uint32_t step = 0; step < 3; ++step) {
      run.exec.state.step = step;
      if (evaluates) {
        run.exec.pass = Pass::kEvaluate;
        fill(run, 100 + step, 1000);
        const auto state = run.state_bytes();
        run.recipe->refresh_weight(run.exec, run.w);
        run.forward();
        EXPECT_TRUE(state == run.state_bytes());
        run.exec.pass = Pass::kForward;
      }
      fill(run, step);
      run.recipe->refresh_weight(run.exec, run.w);
      run.forward();
      run.end_forward();
      run.backward();
      run.end_backward();
    }
    for (const auto& bytes : {raw(run.y), raw(run.dx), raw(run.dw)})
      results[evaluates].insert(results[evaluates].end(), bytes.begin(), bytes.end());
  }
  EXPECT_TRUE(results[0] == results[1]);
}

TEST_P(Contract, SaysWhatItIs) {
  const RecipeInfo info = entry.make(options, {.name = "l", .n = 32, .k = 32, .tensor_id = 0})->info();
  EXPECT_EQ(info.name, entry.name);
  EXPECT_EQ(entry.quantizes(), entry.bits < 16);
  EXPECT_EQ(entry.full_precision(), entry.bits == 32);
  EXPECT_STREQ(name_of(entry.path({}).path), entry.quantizes() ? "emulated" : "native");
  // Every path has a word, every refusal a reason.
  for (const RecipeTarget& target : {RecipeTarget{}, RecipeTarget{.gpu = true, .sm = 80}, RecipeTarget{.gpu = true},
                                     RecipeTarget{.gpu = true, .sm = 100}}) {
    const RecipePath path = entry.path(target);
    EXPECT_EQ(path.path == Path::kRefused, std::string(path.refusal) != "");
  }
  EXPECT_STREQ(plain_recipe(true).name, "fp32");
  EXPECT_STREQ(plain_recipe(false).name, "bf16");
  EXPECT_FALSE(info.input.empty());
  EXPECT_FALSE(info.weight.empty());
  EXPECT_FALSE(info.grad.empty());
}

INSTANTIATE_TEST_SUITE_P(All, Contract, testing::ValuesIn(cases()), [](const testing::TestParamInfo<Case>& test) {
  std::string name = test.param.recipe + "_" + test.param.variant;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

}  // namespace
}  // namespace mantissa::test
