// The GPU against Hugging Face in FP32 (tests/golden/<model>): in FP32, and in BF16 within what BF16 rounds.
#include "tests/gpu/models.h"
#include "tests/train/golden_file.h"

namespace mantissa {
namespace {

class GpuGolden : public GpuTest, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
 protected:
  GpuGolden()
      : folder_(kGolden + std::get<0>(GetParam())),
        file_(safetensors::Reader::open(folder_ + "/golden.safetensors")),
        rows_(static_cast<int>(file_.at("input_ids").shape[0])),
        length_(static_cast<int>(file_.at("input_ids").shape[1])),
        batch_(std::vector<int>(static_cast<size_t>(rows_), length_), 0),
        logits_bound_(full() ? 2e-4 : 2e-2),
        grad_bound_(full() ? 2e-4 : 5e-2) {
    batch_.ids = integers(file_, "input_ids");
    batch_.labels = integers(file_, "labels");
    batch_.valid = 0;
    for (const int32_t y : batch_.labels) batch_.valid += y != -100;
  }

  bool full() const { return std::string(std::get<1>(GetParam())) == "fp32"; }
  std::unique_ptr<Engine> make(int64_t tokens) {
    PrecisionConfig precision;
    precision.recipe = std::get<1>(GetParam());
    auto engine =
        std::make_unique<Engine>(read_hf_config(folder_), precision,
                                 EngineOptions{.tokens = tokens, .sequence_length = length_, .device = &device()});
    engine->build();
    engine->load(folder_);
    return engine;
  }
  std::vector<float> logits(Engine& engine, const Rows& rows) {
    const int64_t v = engine.decoder().model().vocab_size;
    std::vector<float> out(static_cast<size_t>(rows.tokens() * v));
    engine.logits(rows.view(), {out.data(), DType::kF32, {rows.tokens(), v}});
    return out;
  }

  std::string folder_;
  safetensors::Reader file_;
  int rows_, length_;
  Rows batch_;
  double logits_bound_, grad_bound_;
};

TEST_P(GpuGolden, LogitsLossAndGradients) {
  auto engine = make(rows_ * length_);
  EXPECT_LT(relative_error(logits(*engine, batch_), floats(file_, "logits")), logits_bound_);
  engine->begin_step(1);
  engine->micro_step(batch_.view(), batch_.valid, 0);
  EXPECT_EQ(engine->sums().valid, batch_.valid);
  EXPECT_NEAR(engine->sums().loss / static_cast<double>(batch_.valid), floats(file_, "loss")[0], full() ? 1e-4 : 1e-2);
  EXPECT_NEAR(engine->grad_norm() / floats(file_, "grad_norm")[0], 1, grad_bound_);
  double worst = 0;
  int compared = 0;
  for (int id = 0; id < engine->params().size(); ++id)
    for_each_hf_part(engine->params().spec(id), engine->params().grad_values(id),
                     [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>& grad) {
                       const double error = relative_error(grad, floats(file_, "grad." + name));
                       EXPECT_LT(error, grad_bound_) << name;
                       worst = std::max(worst, error);
                       ++compared;
                     });
  EXPECT_GT(compared, 10);
  RecordProperty("worst_gradient", fmt::format("{:.2e}", worst));
}

TEST_P(GpuGolden, PackedRow) {
  const std::vector<int32_t> lengths = integers(file_, "packed.document_lengths");
  Rows row({lengths.begin(), lengths.end()}, 0);
  ASSERT_EQ(row.tokens(), length_);
  row.ids.assign(batch_.ids.begin(), batch_.ids.begin() + length_);
  std::fill(row.labels.begin(), row.labels.end(), kIgnoredLabel);
  auto engine = make(length_);
  EXPECT_LT(relative_error(logits(*engine, row), floats(file_, "packed.logits")), logits_bound_);
}

class GpuGoldenSteps : public GpuGolden {};  // in FP32, as the golden's

TEST_P(GpuGoldenSteps, FiveAdamwSteps) {
  auto engine = make(rows_ * length_);
  const std::vector<float> losses = floats(file_, "adamw.losses");
  for (size_t step = 0; step < losses.size(); ++step) {
    engine->begin_step(static_cast<uint32_t>(step));
    engine->micro_step(batch_.view(), batch_.valid, 0);
    EXPECT_NEAR(engine->sums().loss / static_cast<double>(batch_.valid), losses[step], 1e-4) << "step " << step;
    engine->update({.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip = 1.0});
  }
  for (int id = 0; id < engine->params().size(); ++id)
    for_each_hf_part(engine->params().spec(id), engine->params().values(id),
                     [&](const std::string& name, const std::vector<int64_t>&, const std::vector<float>& values) {
                       EXPECT_LT(relative_error(values, floats(file_, "adamw." + name)), 2e-3) << name;
                     });
}

const auto kName = [](const auto& test) {
  return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
};
const auto kModels = testing::Values("gpt2", "llama", "qwen2", "qwen3");
INSTANTIATE_TEST_SUITE_P(Models, GpuGolden, testing::Combine(kModels, testing::Values("fp32", "bf16")), kName);
INSTANTIATE_TEST_SUITE_P(Models, GpuGoldenSteps, testing::Combine(kModels, testing::Values("fp32")), kName);

}  // namespace
}  // namespace mantissa
