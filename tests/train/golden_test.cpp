// Against Hugging Face in FP32: logits, loss, every gradient, a packed row, five AdamW steps (tests/golden/<model>).
#include <gtest/gtest.h>

#include <cmath>

#include "model/arch/arch.h"
#include "tests/ops/finite_difference.h"
#include "tests/train/golden_file.h"
#include "train/engine.h"

namespace mantissa {
namespace {

struct Rows {
  std::vector<int32_t> ids, labels, positions, segments{0};

  MicroBatch view() const {
    const auto n = static_cast<int64_t>(ids.size());
    return {{ids.data(), DType::kI32, {n}},
            {labels.data(), DType::kI32, {n}},
            {positions.data(), DType::kI32, {n}},
            {segments.data(), DType::kI32, {static_cast<int64_t>(segments.size())}}};
  }
  void add_segment(int64_t n) {
    for (int32_t i = 0; i < n; ++i) positions.push_back(i);
    segments.push_back(segments.back() + static_cast<int32_t>(n));
  }
};

class Golden : public testing::TestWithParam<std::string> {
 protected:
  Golden() : folder_(kGolden + GetParam()), file_(safetensors::Reader::open(folder_ + "/golden.safetensors")) {
    rows_ = static_cast<int>(file_.at("input_ids").shape[0]),
    length_ = static_cast<int>(file_.at("input_ids").shape[1]);
    batch_.ids = integers(file_, "input_ids");
    batch_.labels = integers(file_, "labels");
    for (int r = 0; r < rows_; ++r) batch_.add_segment(length_);
    for (int32_t y : batch_.labels) valid_ += y != -100;
  }

  std::unique_ptr<Engine> make(int64_t tokens, const char* recompute = "none") const {
    PrecisionConfig precision;
    precision.recipe = "fp32";
    auto engine = std::make_unique<Engine>(
        read_hf_config(folder_), precision,
        EngineOptions{.tokens = tokens, .sequence_length = length_, .recompute = parse_recompute(recompute)});
    engine->build();
    engine->load(folder_);
    return engine;
  }

  std::string folder_;
  safetensors::Reader file_;
  int rows_ = 0, length_ = 0;
  int64_t valid_ = 0;
  Rows batch_;
};

TEST_P(Golden, LogitsLossAndGradients) {
  auto engine = make(rows_ * length_);
  std::vector<float> logits(file_.at("logits").elements());
  engine->logits(batch_.view(), Tensor(logits.data(), DType::kF32,
                                       {rows_ * length_, static_cast<int64_t>(logits.size()) / (rows_ * length_)}));
  EXPECT_LT(test::relative_error(logits, floats(file_, "logits")), 2e-4);

  engine->begin_step(1);
  engine->micro_step(batch_.view(), valid_, 0);
  EXPECT_EQ(engine->sums().valid, valid_);
  EXPECT_NEAR(engine->sums().loss / static_cast<double>(valid_), floats(file_, "loss")[0], 1e-4);
  EXPECT_NEAR(engine->grad_norm() / floats(file_, "grad_norm")[0], 1, 2e-4);
  int compared = 0;
  for (int id = 0; id < engine->params().size(); ++id)
    for_each_hf_part(engine->params().spec(id), engine->params().grad_values(id),
                     [&](const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& grad) {
                       EXPECT_EQ(shape, file_.at("grad." + name).shape) << name;
                       EXPECT_LT(test::relative_error(grad, floats(file_, "grad." + name)), 2e-4) << name;
                       ++compared;
                     });
  int expected = 0;
  for (const auto& [name, view] : file_.tensors()) expected += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(compared, expected);
}

TEST_P(Golden, PackedRow) {
  auto engine = make(length_);
  Rows row;
  row.ids.assign(batch_.ids.begin(), batch_.ids.begin() + length_);
  row.labels.assign(static_cast<size_t>(length_), -100);
  for (int32_t n : integers(file_, "packed.document_lengths")) row.add_segment(n);
  std::vector<float> logits(file_.at("packed.logits").elements());
  engine->logits(row.view(),
                 Tensor(logits.data(), DType::kF32, {length_, static_cast<int64_t>(logits.size()) / length_}));
  EXPECT_LT(test::relative_error(logits, floats(file_, "packed.logits")), 2e-4);
}

TEST_P(Golden, FiveAdamwSteps) {
  auto engine = make(rows_ * length_);
  const std::vector<float> losses = floats(file_, "adamw.losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    engine->begin_step(static_cast<uint32_t>(step));
    engine->micro_step(batch_.view(), valid_, 0);
    EXPECT_NEAR(engine->sums().loss / static_cast<double>(valid_), losses[step], 1e-4) << "step " << step;
    engine->update({.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip = 1.0});
  }
  for (int id = 0; id < engine->params().size(); ++id)
    for_each_hf_part(engine->params().spec(id), engine->params().values(id),
                     [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>& values) {
                       EXPECT_LT(test::relative_error(values, floats(file_, "adamw." + name)), 2e-3) << name;
                     });
}

// Two micro-batches of one row give the gradients of one micro-batch of two rows, up to rounding.
TEST_P(Golden, AccumulationEqualsOneBatch) {
  auto whole = make(rows_ * length_), halves = make(length_);
  whole->begin_step(1);
  whole->micro_step(batch_.view(), valid_, 1e-3);
  halves->begin_step(1);
  for (int r = 0; r < rows_; ++r) {
    Rows row;
    row.ids.assign(batch_.ids.begin() + r * length_, batch_.ids.begin() + (r + 1) * length_);
    row.labels.assign(batch_.labels.begin() + r * length_, batch_.labels.begin() + (r + 1) * length_);
    row.add_segment(length_);
    halves->micro_step(row.view(), valid_, 1e-3);
  }
  EXPECT_NEAR(halves->sums().loss, whole->sums().loss, 1e-4 * whole->sums().loss);
  for (int id = 0; id < whole->params().size(); ++id)
    EXPECT_LT(test::relative_error(halves->params().grad_values(id), whole->params().grad_values(id)), 1e-5)
        << whole->params().spec(id).name;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(arch_names()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace mantissa
