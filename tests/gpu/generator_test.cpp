// Decoding on a GPU against the decoder on the CPU, prompt and single tokens, after a reset and in pieces.
#include "generation/generator.h"

#include "tests/gpu/models.h"

namespace mantissa {
namespace {

class GpuGenerator : public GpuTest, public testing::WithParamInterface<std::tuple<const char*, const char*>> {};

TEST_P(GpuGenerator, LogitsAreTheCpuDecodersAtEveryPrefix) {
  const auto [arch, recipe] = GetParam();
  const EngineCase c{.arch = arch, .recipe = recipe, .weights = std::string(recipe) == "fp32" ? "fp32" : "bf16"};
  const auto cpu = make_engine(c, nullptr), gpu = make_engine(c, &device());
  const Rows rows = uniform_rows(4);
  std::vector<float> all(static_cast<size_t>(kTokens * 1000));
  cpu->logits(rows.view(), {all.data(), DType::kF32, {kTokens, 1000}});
  const double bound = std::string(recipe) == "fp32" ? 1e-4 : 2e-2;
  Generator generator(gpu->exec(), small_model(arch), gpu->params(), kLength);
  const std::span<const int32_t> ids(rows.ids);
  for (const size_t prompt : {size_t{1}, size_t{50}, size_t{127}}) {
    generator.reset();
    std::span<const float> logits = generator.append(ids.first(prompt));
    for (size_t t = prompt;; ++t) {
      const auto begin = all.begin() + static_cast<int64_t>((t - 1) * 1000);
      EXPECT_LT(relative_error({logits.begin(), logits.end()}, {begin, begin + 1000}), bound) << "behind token " << t;
      if (t == static_cast<size_t>(kLength)) break;
      logits = generator.append(ids.subspan(t, 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuGenerator,
                         testing::Combine(testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                                          testing::Values("fp32", "bf16")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                         });

}  // namespace
}  // namespace mantissa
