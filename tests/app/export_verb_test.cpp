// mantissa export: what it writes reads back, and what differs is named.
#include "app/export_check.h"
#include "base/safetensors.h"
#include "model/hf/checkpoint.h"
#include "tests/app/verb_run.h"
#include "tests/model/model_folder.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::golden;
using testing::run_verb;
using testing::VerbResult;

class ExportVerb : public testing::VerbTest {};

TEST_F(ExportVerb, WritesReadsAndCompares) {
  for (const std::string model : {"gpt2", "llama", "qwen2", "qwen3"})
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(model + " " + dtype);
      const std::string out = folder / model + "-" + dtype;
      const VerbResult r =
          run_verb({"export", golden(model), out, std::string("--dtype=") + dtype, "--shard-gb=0.0002"});
      ASSERT_EQ(r.code, 0) << r.err;
      EXPECT_NE(r.out.find("bit for bit"), std::string::npos) << r.out;
      EXPECT_NE(r.out.find("done      " + out), std::string::npos) << r.out;
      EXPECT_TRUE(exists(out + "/model.safetensors.index.json") || std::string_view(dtype) == "bf16");
      const testing::Loaded again(out),
          source(golden(model), WeightMode::kF32, std::string_view(dtype) == "bf16" ? DType::kBF16 : DType::kF32);
      EXPECT_TRUE(again.values() == source.values());
      EXPECT_EQ(run_verb({"verify", out}).code, 0);
    }
}

TEST_F(ExportVerb, DtypeOfTheSourceByDefault) {
  ASSERT_EQ(run_verb({"export", golden("qwen3"), folder / "bf16", "--dtype=bf16"}).code, 0);
  ASSERT_EQ(run_verb({"export", folder / "bf16", folder / "again"}).code, 0);
  EXPECT_EQ(read_text(folder / "again/model.safetensors"), read_text(folder / "bf16/model.safetensors"));
  EXPECT_EQ(read_text(folder / "again/config.json"), read_text(folder / "bf16/config.json"));
  ASSERT_EQ(run_verb({"export", golden("qwen3"), folder / "fp32"}).code, 0);
  EXPECT_EQ(testing::read_tensors(folder / "fp32/model.safetensors").at("model.norm.weight").dtype, "F32");
}

TEST_F(ExportVerb, OfARun) {
  for (const std::string weights : {"fp32", "bf16"}) {
    SCOPED_TRACE(weights);
    ASSERT_EQ(run("train", {"--precision.weights=" + weights, "--run.dir=" + (folder / weights)}).code, 0);
    const std::string dtype = weights == "fp32" ? "F32" : "BF16";
    EXPECT_EQ(testing::read_tensors(folder / weights + "/model/model.safetensors").at("model.norm.weight").dtype,
              dtype);
    EXPECT_EQ(read_json(folder / weights + "/model/config.json")["eos_token_id"], 0) << "byte 0 separates documents";
    EXPECT_TRUE(exists(folder / weights + "/model/tokenizer.json"));
    EXPECT_EQ(run_verb({"verify", folder / weights}).code, 0);
    const VerbResult r = run_verb({"export", folder / weights, folder / weights + "-out"});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(exists(folder / weights + "-out/tokenizer.json"));
    EXPECT_EQ(read_text(folder / weights + "-out/model.safetensors"),
              read_text(folder / weights + "/model/model.safetensors"));
  }
}

TEST_F(ExportVerb, TrainingStartsFromAModelsFolder) {
  ASSERT_EQ(run("train").code, 0);
  const VerbResult r = run("train", {"--model.init=" + (folder / "run/model"), "--run.dir=" + (folder / "more"),
                                     "--log.console=true", "--optimizer.lr=0"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("weights   "), std::string::npos) << r.out;
  EXPECT_NE(r.out.find(" GB/s"), std::string::npos) << r.out;
  const auto loss = [&](const char* name) { return read_json(folder / name + "/result.json")["eval_loss"]; };
  EXPECT_EQ(loss("run"), loss("more"));
}

TEST_F(ExportVerb, Refusals) {
  write_atomic(folder / "there", "x");
  expect_refused(run_verb({"export", golden("gpt2"), folder / "there"}), Exit::kUsage, {"there", "is there already"});
  expect_refused(run_verb({"export", folder / "none", folder / "out"}), Exit::kInput, {"none", "not there"});
  expect_refused(run_verb({"export", folder.path(), folder / "out"}), Exit::kInput, {"no model.safetensors"});
  expect_refused(run_verb({"export", golden("gpt2"), folder / "out", "--dtype=fp16"}), Exit::kUsage,
                 {"--dtype", "fp16"});
  expect_refused(run_verb({"export", golden("gpt2"), folder / "there/out"}), Exit::kStorage, {"there"});
  EXPECT_FALSE(exists(folder / "out"));
}

TEST_F(ExportVerb, NamesTheFirstTensorThatDiffers) {
  const std::string source = golden("llama"), out = folder / "out";
  ASSERT_EQ(run_verb({"export", source, out, "--dtype=bf16"}).code, 0);
  ExportCheck check(read_hf_config(source));
  check.load(source, DType::kBF16);
  const std::vector<float> expected = check.logits();
  check.expect_logits(out, expected, source, DType::kBF16);
  testing::TensorMap tensors = testing::read_tensors(out + "/model.safetensors");
  // The lowest bit of one value in two tensors.
  for (const char* name : {"model.layers.1.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.weight"})
    tensors.at(name).bytes[2] ^= 1;
  testing::write_tensors(out + "/model.safetensors", tensors);
  const std::string message =
      error_of(Exit::kInternal, [&] { check.expect_logits(out, expected, source, DType::kBF16); });
  EXPECT_TRUE(message.starts_with(out + ": model.layers.1.self_attn.q_proj.weight differs from " + source)) << message;
  EXPECT_TRUE(exists(out + "/model.safetensors")) << "nothing is deleted";
}

TEST_F(ExportVerb, SavedWeightsOfRunsAndRows) {
  const std::vector<std::string> short_run = {"--train.steps=1", "--schedule.warmup_steps=0"};
  ASSERT_EQ(run("train", short_run).code, 0);
  EXPECT_TRUE(exists(folder / "run/model/model.safetensors"));
  // Trained anew without: the old weights do not stay behind.
  ASSERT_EQ(
      run("train", {"--train.steps=1", "--schedule.warmup_steps=0", "--train.save_weights=false", "--restart"}).code,
      0);
  EXPECT_FALSE(exists(folder / "run/model"));
  expect_refused(run_verb({"export", folder / "run", folder / "out"}), Exit::kInput, {"train.save_weights was false"});
  // A folder of the user's is never removed.
  make_dirs(folder / "run/model");
  write_atomic(folder / "run/model/thesis.txt", "mine");
  expect_refused(run("train", {"--train.steps=1", "--schedule.warmup_steps=0", "--restart"}), Exit::kUsage,
                 {"thesis.txt"});
  EXPECT_EQ(read_text(folder / "run/model/thesis.txt"), "mine");
  EXPECT_TRUE(exists(folder / "run/result.json")) << "what was there before stays";
  for (const bool save : {false, true}) {
    const std::string dir = folder / (save ? "kept" : "plain");
    ASSERT_EQ(run("compare",
                  {"--train.steps=1", "--schedule.warmup_steps=0", "--run.dir=" + dir, "--compare.weights=[bf16]",
                   "--precision.recipes=[mxfp8]", std::string("--compare.save_weights=") + (save ? "true" : "false")})
                  .code,
              0);
    EXPECT_EQ(exists(dir + "/rows/01-bf16-bf16/model/model.safetensors"), save);
    EXPECT_EQ(run_verb({"verify", dir}).code, 0);
  }
}

}  // namespace
}  // namespace mantissa
