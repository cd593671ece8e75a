// mantissa probe against Hugging Face in FP32 (tests/golden/<model>), and its answers to bad input.
#include <cmath>
#include <cstring>

#include "base/safetensors.h"
#include "tensor/device.h"
#include "tests/app/verb_run.h"
#include "tests/ops/finite_difference.h"

namespace mantissa {
namespace {

using safetensors::Reader;
using testing::run_verb;
using testing::VerbResult;

std::vector<float> floats(const Reader& file, const std::string& name) {
  const safetensors::View& view = file.at(name);
  EXPECT_EQ(view.dtype, "F32") << name;
  std::vector<float> out(static_cast<size_t>(view.elements()));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

std::vector<int64_t> integers(const Reader& file, const std::string& name) {
  const safetensors::View& view = file.at(name);
  std::vector<int64_t> out(static_cast<size_t>(view.elements()));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

struct Integers {
  std::string name;
  std::vector<int64_t> shape, values;
};

class Probe : public testing::VerbTest {
 protected:
  std::string write_input(const std::vector<Integers>& tensors, const char* dtype = "I64") const {
    std::vector<safetensors::Entry> entries;
    for (const Integers& t : tensors) entries.push_back({t.name, dtype, t.shape, std::as_bytes(std::span(t.values))});
    safetensors::write(folder / "in.safetensors", entries);
    return folder / "in.safetensors";
  }
  VerbResult probe(const std::string& model, const std::vector<Integers>& tensors,
                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> args = {"probe",    std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + model,
                                     "--input",  write_input(tensors),
                                     "--output", folder / "out.safetensors"};
    args.insert(args.end(), more.begin(), more.end());
    return run_verb(args);
  }
  Reader output() const { return Reader::open(folder / "out.safetensors"); }
};

class GoldenProbe : public Probe, public ::testing::WithParamInterface<const char*> {
 protected:
  GoldenProbe()
      : golden(Reader::open(std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/" + GetParam() + "/golden.safetensors")) {
    ids = {"input_ids", golden.at("input_ids").shape, integers(golden, "input_ids")};
    labels = {"labels", golden.at("labels").shape, integers(golden, "labels")};
  }
  Reader golden;
  Integers ids, labels;
};

TEST_P(GoldenProbe, EveryFigure) {
  const VerbResult r = probe(GetParam(), {ids, labels},
                             {"--adamw-steps", "5", "--lr", "1e-3", "--betas", "0.9,0.95", "--eps", "1e-8",
                              "--weight-decay", "0.1", "--grad-clip", "1.0"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Reader out = output();
  size_t compared = 0;
  for (const auto& [name, view] : golden.tensors()) {
    if (view.dtype != "F32" || name == "packed.logits") continue;
    ++compared;
    EXPECT_EQ(out.at(name).shape, view.shape) << name;
    const std::vector<float> found = floats(out, name), expected = floats(golden, name);
    if (name == "adamw.losses" || name == "loss") {
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4) << name << " " << i;
    } else {
      // AdamW's first steps divide by sqrt(v): where a gradient is near zero rounding decides its direction.
      EXPECT_LT(test::relative_error(found, expected), name.starts_with("adamw.") ? 2e-3 : 2e-4) << name;
    }
  }
  EXPECT_EQ(out.tensors().size(), compared);
}

TEST_P(GoldenProbe, PackedRow) {
  const int64_t length = ids.shape[1];
  const Integers row{"input_ids", {1, length}, {ids.values.begin(), ids.values.begin() + length}};
  const std::vector<int64_t> lengths = integers(golden, "packed.document_lengths");
  const VerbResult r = probe(GetParam(), {row, {"document_lengths", {static_cast<int64_t>(lengths.size())}, lengths}});
  ASSERT_EQ(r.code, 0) << r.err;
  const Reader out = output();
  EXPECT_EQ(out.tensors().size(), 1u) << "without labels only the logits are written";
  EXPECT_EQ(out.at("logits").shape, (std::vector<int64_t>{1, length, 256}));
  EXPECT_LT(test::relative_error(floats(out, "logits"), floats(golden, "packed.logits")), 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenProbe, ::testing::Values("gpt2", "llama", "qwen2", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(Probe, WithARecipeTheLossMovesALittle) {
  Integers ids{"input_ids", {1, 32}, {}}, labels{"labels", {1, 32}, {}};
  for (int64_t i = 0; i < 32; ++i) ids.values.push_back(i * 5 % 256), labels.values.push_back(i * 7 % 256);
  ASSERT_EQ(probe("qwen3", {ids, labels}).code, 0);
  const float exact = floats(output(), "loss")[0];
  for (const char* recipe : {"bf16", "mxfp8", "fp8-delayed"}) {
    ASSERT_EQ(probe("qwen3", {ids, labels}, {"--recipe", recipe}).code, 0) << recipe;
    const float loss = floats(output(), "loss")[0];
    EXPECT_NEAR(loss, exact, 0.05) << recipe;
    EXPECT_NE(loss, exact) << recipe;
  }
}

TEST_F(Probe, RefusesBadInput) {
  const Integers ids{"input_ids", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}};
  const auto refused = [&](const std::vector<Integers>& tensors, const std::vector<std::string>& parts) {
    expect_refused(probe("qwen3", tensors), Exit::kInput, parts);
    EXPECT_FALSE(exists(folder / "out.safetensors"));
  };
  refused({ids, {"labels", {2, 4}, {1, 2, 3, 256, 5, 6, 7, 8}}}, {"labels", "256", "element 3", "255"});
  refused({ids, {"labels", {2, 4}, {1, 2, 3, -1, 5, 6, 7, 8}}}, {"labels", "-1", "element 3"});
  refused({ids, {"labels", {8}, ids.values}}, {"labels", "shape"});
  refused({ids, {"labels", {2, 4}, std::vector<int64_t>(8, -100)}}, {"labels", "-100"});
  refused({{"input_ids", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 256}}}, {"input_ids", "256", "element 7"});
  refused({{"input_ids", {8}, ids.values}}, {"input_ids", "[B,T]"});
  refused({{"input_ids", {0, 4}, {}}}, {"input_ids"});
  refused({{"ids", {2, 4}, ids.values}}, {"ids"});
  refused({ids, {"document_lengths", {2}, {4, 3}}}, {"document_lengths", "7", "8"});
  refused({ids, {"document_lengths", {3}, {4, 4, 4}}}, {"document_lengths"});
  refused({ids, {"document_lengths", {2}, {5, 3}}}, {"document_lengths", "crosses"});
  refused({ids, {"document_lengths", {3}, {4, 0, 4}}}, {"document_lengths", "at least 1"});
  refused({ids, {"document_lengths", {2}, {INT64_MAX, 8}}}, {"document_lengths"});

  const std::string model = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/qwen3";
  const std::vector<double> reals(8, 1.0);
  safetensors::write(folder / "f64", {{"input_ids", "F64", {2, 4}, std::as_bytes(std::span(reals))}});
  expect_refused(run_verb({"probe", model, "--input", folder / "f64", "--output", folder / "o"}), Exit::kInput,
                 {"input_ids", "F64", "I64"});
  expect_refused(run_verb({"probe", model, "--input", folder / "none", "--output", folder / "o"}), Exit::kInput,
                 {"none"});
  expect_refused(run_verb({"probe", folder / "no-model", "--input", write_input({ids}), "--output", folder / "o"}),
                 Exit::kInput, {"no-model"});
}

TEST_F(Probe, RefusesBadFlags) {
  const Integers ids{"input_ids", {1, 4}, {1, 2, 3, 4}};
  expect_refused(probe("qwen3", {ids}, {"--adamw-steps", "2"}), Exit::kUsage, {"--adamw-steps", "labels"});
  expect_refused(probe("qwen3", {ids}, {"--device", "gpu"}), Exit::kUsage, {"--device: gpu", "cuda:N"});
  if (std::string absence; device_count(absence) == 0)
    expect_refused(probe("qwen3", {ids}, {"--device", "cuda"}), Exit::kUnavailable, {"--device: cuda: no GPU: "});
  expect_refused(probe("qwen3", {ids}, {"--recipe", "mxfp9"}), Exit::kUsage, {"mxfp9", "mxfp8"});
  expect_refused(probe("qwen3", {ids}, {"--recipe", "mxfp8"}), Exit::kUsage, {"layers.0."});
  // More positions than the model has learned.
  Integers rows{"input_ids", {1, 4096}, std::vector<int64_t>(4096, 1)};
  expect_refused(probe("gpt2", {rows}), Exit::kUsage, {"4096", "positions"});
}

}  // namespace
}  // namespace mantissa
