// Formats that options choose, dimension rules, and messages.
#include <gtest/gtest.h>

#include "recipes/recipe.h"

namespace mantissa {
namespace {

std::string message_of(const std::function<void()>& body, Exit code = Exit::kUsage) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

std::string formats(const char* recipe, const RecipeOptions& options, Role role) {
  const OperandSpec spec = find_recipe(recipe).spec(options, role);
  return spec.rowwise ? str(*spec.rowwise) + " | " + str(*spec.columnwise) : "none";
}

TEST(Formats, DefaultsAreTransformerEngines) {
  const RecipeOptions options;
  EXPECT_EQ(formats("bf16", options, Role::kInput), "none");
  EXPECT_EQ(formats("fp8-delayed", options, Role::kInput), "E4M3 tensor FP32 delayed | E4M3 tensor FP32 delayed");
  EXPECT_EQ(formats("fp8-delayed", options, Role::kGrad), "E5M2 tensor FP32 delayed | E5M2 tensor FP32 delayed");
  EXPECT_EQ(formats("fp8-tensorwise", options, Role::kWeight), "E4M3 tensor FP32 | E4M3 tensor FP32");
  EXPECT_EQ(formats("fp8-tensorwise", options, Role::kGrad), "E5M2 tensor FP32 | E5M2 tensor FP32");
  EXPECT_EQ(formats("fp8-blockwise", options, Role::kInput), "E4M3 1x128 pow2 | E4M3 1x128 pow2");
  EXPECT_EQ(formats("fp8-blockwise", options, Role::kWeight), "E4M3 128x128 pow2 | E4M3 128x128 pow2");
  EXPECT_EQ(formats("fp8-blockwise", options, Role::kGrad), "E4M3 1x128 pow2 | E4M3 1x128 pow2");
  EXPECT_EQ(formats("mxfp8", options, Role::kWeight), "E4M3 1x32 E8M0 | E4M3 1x32 E8M0");
  EXPECT_EQ(formats("nvfp4", options, Role::kInput), "E2M1 1x16 E4M3 | E2M1 1x16 E4M3, RHT");
  EXPECT_EQ(formats("nvfp4", options, Role::kWeight), "E2M1 16x16 E4M3 | E2M1 16x16 E4M3");
  EXPECT_EQ(formats("nvfp4", options, Role::kGrad), "E2M1 1x16 E4M3, SR | E2M1 1x16 E4M3, RHT, SR");
}

TEST(Formats, OptionsChangeThem) {
  EXPECT_EQ(formats("mxfp8", {.format = "hybrid"}, Role::kGrad), "E5M2 1x32 E8M0 | E5M2 1x32 E8M0");
  EXPECT_EQ(formats("fp8-delayed", {.format = "e4m3"}, Role::kGrad),
            "E4M3 tensor FP32 delayed | E4M3 tensor FP32 delayed");
  EXPECT_EQ(formats("fp8-tensorwise", {.scales = "pow2"}, Role::kInput), "E4M3 tensor pow2 | E4M3 tensor pow2");
  EXPECT_EQ(formats("fp8-blockwise", {.scales = "fp32"}, Role::kInput), "E4M3 1x128 FP32 | E4M3 1x128 FP32");
  EXPECT_EQ(formats("mxfp8", {.enable_2d_quantization = true}, Role::kWeight), "E4M3 32x32 E8M0 | E4M3 32x32 E8M0");
  EXPECT_EQ(formats("mxfp8", {.enable_2d_quantization = true}, Role::kInput), "E4M3 1x32 E8M0 | E4M3 1x32 E8M0");
  EXPECT_EQ(formats("nvfp4", {.disable_rht = true}, Role::kGrad), "E2M1 1x16 E4M3, SR | E2M1 1x16 E4M3, SR");
  EXPECT_EQ(formats("nvfp4", {.disable_stochastic_rounding = true}, Role::kGrad),
            "E2M1 1x16 E4M3 | E2M1 1x16 E4M3, RHT");
  EXPECT_EQ(formats("nvfp4", {.disable_2d_quantization = true}, Role::kWeight), "E2M1 1x16 E4M3 | E2M1 1x16 E4M3");
}

// What the producers of docs/numerics.md 7 hand over.
TEST(Producers, HandOverWhatTransformerEngineQuantizes) {
  const auto spec = [](const char* recipe, Producer producer, const RecipeOptions& options = {}) {
    return find_recipe(recipe).make(options, {.name = "l", .n = 32, .k = 32, .tensor_id = 0})->input_spec(producer);
  };
  EXPECT_FALSE(spec("fp8-delayed", Producer::kPlain).unrounded);
  EXPECT_TRUE(spec("fp8-delayed", Producer::kFusedNorm).unrounded);
  EXPECT_TRUE(spec("fp8-delayed", Producer::kActivation).unrounded);
  EXPECT_TRUE(spec("fp8-tensorwise", Producer::kActivation).amax_before_rounding);
  EXPECT_FALSE(spec("fp8-tensorwise", Producer::kFusedNorm).amax_before_rounding);
  EXPECT_FALSE(spec("nvfp4", Producer::kActivation).amax_before_rounding);
  EXPECT_TRUE(spec("nvfp4", Producer::kActivation, {.disable_rht = true}).amax_before_rounding);
  for (const char* recipe : {"fp8-blockwise", "mxfp8"}) {
    EXPECT_FALSE(spec(recipe, Producer::kActivation).unrounded) << recipe;
    EXPECT_FALSE(spec(recipe, Producer::kActivation).amax_before_rounding) << recipe;
  }
  EXPECT_TRUE(spec("bf16", Producer::kActivation).high);
}

TEST(Dimensions, AreRefusedByLayerName) {
  const auto check = [](const char* recipe, int64_t m, int64_t n, int64_t k, const RecipeTarget& on = {}) {
    return message_of(
        [&] { find_recipe(recipe).check({.name = "layers.0.mlp.down_proj", .n = n, .k = k, .tensor_id = 0}, m, on); });
  };
  EXPECT_EQ(check("nvfp4", 64, 64, 100),
            "nvfp4: layers.0.mlp.down_proj has in_features 100, expected a multiple of 16; give it recipe bf16 in "
            "precision.rules");
  EXPECT_EQ(check("mxfp8", 64, 48, 64),
            "mxfp8: layers.0.mlp.down_proj has out_features 48, expected a multiple of 32; give it recipe bf16 in "
            "precision.rules");
  EXPECT_EQ(check("nvfp4", 24, 64, 64),
            "nvfp4: layers.0.mlp.down_proj gets 24 tokens a micro-batch, expected a multiple of 16; change "
            "data.sequence_length or batch.micro_batch");
  for (const char* recipe : {"fp8-delayed", "fp8-tensorwise", "fp8-blockwise"}) {
    EXPECT_EQ(check(recipe, 8, 8, 16), "no error");
    EXPECT_NE(check(recipe, 8, 8, 24).find("in_features 24, expected a multiple of 16"), std::string::npos);
    EXPECT_NE(check(recipe, 8, 12, 16).find("out_features 12, expected a multiple of 8"), std::string::npos);
    EXPECT_NE(check(recipe, 12, 8, 16).find("gets 12 tokens"), std::string::npos);
    // A GPU contracts along each of the three.
    const RecipeTarget gpu{.gpu = true};
    EXPECT_EQ(check(recipe, 16, 16, 16, gpu), "no error");
    EXPECT_NE(check(recipe, 16, 24, 16, gpu).find("out_features 24, expected a multiple of 16"), std::string::npos);
    EXPECT_NE(check(recipe, 24, 16, 16, gpu).find("gets 24 tokens"), std::string::npos);
  }
  EXPECT_EQ(check("mxfp8", 32, 32, 32), "no error");
  EXPECT_EQ(check("nvfp4", 16, 16, 16), "no error");
  for (const char* recipe : {"bf16", "fp32"}) EXPECT_EQ(check(recipe, 7, 5, 3), "no error");
}

TEST(Table, UnknownNameGetsTheNearest) {
  const std::string message = message_of([] { find_recipe("fp8-delay"); });
  EXPECT_NE(message.find("did you mean fp8-delayed?"), std::string::npos) << message;
  EXPECT_NE(message.find("nvfp4"), std::string::npos) << message;
}

TEST(Options, ThatNobodyReadsAreRefused) {
  const RecipeEntry &delayed = find_recipe("fp8-delayed"), &nvfp4 = find_recipe("nvfp4");
  refuse_unread_options({}, {&nvfp4});
  refuse_unread_options({.margin = 2}, {&nvfp4, &delayed});
  EXPECT_EQ(message_of([&] { refuse_unread_options({.margin = 2}, {&nvfp4}); }),
            "margin: 2 is set, but nvfp4 does not read it (read by fp8-delayed)");
  const std::string scales = message_of([&] { refuse_unread_options({.scales = "fp32"}, {&nvfp4, &delayed}); });
  EXPECT_TRUE(
      scales.starts_with("scales: fp32 is set, but nvfp4, fp8-delayed does not read it (read by fp8-tensorwise, "
                         "fp8-blockwise"))
      << scales;
}

// Every option is some recipe's, and every name that a recipe gives exists.
TEST(Options, AreReadBySomeRecipe) {
  RecipeOptions options;
  const std::string text = config::dump([&](config::Fields& f) { options.describe(f); });
  for (const RecipeEntry& entry : recipe_table())
    for (const char* name : entry.options) EXPECT_NE(text.find(std::string(name) + ":"), std::string::npos) << name;
}

}  // namespace
}  // namespace mantissa
