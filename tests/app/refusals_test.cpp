// Bad input of train, compare and plan: one line, the right exit code, nothing written.
#include <cstring>

#include "base/safetensors.h"
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class Refusals : public testing::VerbTest {
 protected:
  // train and compare alike, and neither leaves a result.
  void refused(const std::vector<std::string>& overrides, Exit code, const std::vector<std::string>& parts) {
    for (const char* verb : {"train", "compare"}) {
      SCOPED_TRACE(verb);
      expect_refused(run(verb, overrides), code, parts);
      EXPECT_FALSE(exists(folder / "run/result.json"));
      EXPECT_FALSE(exists(folder / "run/compare.json"));
    }
  }
};

TEST_F(Refusals, KeysAndTypes) {
  refused({"--precision.recipie=mxfp8"}, Exit::kUsage, {"precision.recipie", "did you mean precision.recipe?"});
  refused({"--train.steps=many"}, Exit::kUsage, {"train.steps", "many"});
  refused({"--train.steps=-1"}, Exit::kUsage, {"train.steps", "-1"});
  refused({"--precision.recipe=fp8"}, Exit::kUsage, {"precision.recipe", "fp8"});
  refused({"--optimizer.betas=[0.9]"}, Exit::kUsage, {"optimizer.betas"});
  refused({"--compare.weights=[fp16]"}, Exit::kUsage, {"compare.weights", "fp16"});
  refused({"--compare.weights=[fp32,fp32]"}, Exit::kUsage, {"compare.weights", "fp32", "twice"});
  refused({"--precision.recipes=[mxfp8,mxfp8]"}, Exit::kUsage, {"precision.recipes", "mxfp8", "twice"});
  refused({"--precision.recipes=[mxfp9]"}, Exit::kUsage, {"mxfp9", "mxfp8"});
  refused({"--train.steps=0", "--train.epochs=0"}, Exit::kUsage, {"nothing would be trained"});
  refused({"--batch.tokens=9223372036854775744"}, Exit::kUsage, {"batch.tokens", "9223372036854775744"});
  refused({"--train.steps=0", "--train.epochs=1e300"}, Exit::kUsage, {"train.epochs"});
  expect_refused(run("plan", {"--memory-gib=-1"}), Exit::kUsage, {"--memory-gib", "-1", "above 0"});
  refused({"--train.tokens=100"}, Exit::kUsage, {"steps or tokens"});
}

TEST_F(Refusals, LineOfTheFile) {
  const std::string path = write_config(config() + "optimiser: {lr: 1}\n");
  expect_refused(run_verb({"train", path}), Exit::kUsage, {"c.yaml:19", "optimiser", "did you mean optimizer?"});
  expect_refused(run_verb({"train", write_config("run: [1, 2\n")}), Exit::kUsage, {"c.yaml"});
}

TEST_F(Refusals, Files) {
  for (const char* verb : {"train", "compare", "plan"})
    expect_refused(run_verb({verb, folder / "none.yaml"}), Exit::kUsage, {"none.yaml"});
  refused({"--data.train=" + (folder / "none.txt")}, Exit::kInput, {"none.txt"});
  refused({"--data.train="}, Exit::kUsage, {"data.train"});
  write_atomic(folder / "empty.txt", "");
  refused({"--data.train=" + (folder / "empty.txt")}, Exit::kInput, {"empty.txt"});
  refused({"--model.init=" + (folder / "none")}, Exit::kInput, {"none"});
  write_atomic(folder / "file", "x");
  expect_refused(run("train", {"--run.dir=" + (folder / "file/run")}), Exit::kStorage, {"file"});
}

TEST_F(Refusals, WhatDoesNotDivide) {
  refused({"--schedule.warmup_steps=9"}, Exit::kUsage, {"warmup_steps", "9", "6"});
  refused({"--schedule.name=wsd", "--schedule.decay_fraction=0.9"}, Exit::kUsage, {"2 warm-up", "5 decay", "6 steps"});
  refused({"--batch.micro_batch=3"}, Exit::kUsage, {"batch.micro_batch", "3", "2"});
  refused({"--batch.micro_batch=some"}, Exit::kUsage, {"batch.micro_batch", "some"});
  refused({"--batch.tokens=100"}, Exit::kUsage, {"batch.tokens", "100", "64"});
  refused({"--model.vocab_size=128"}, Exit::kUsage, {"model.vocab_size", "128", "256"});
}

TEST_F(Refusals, DimensionsARecipeCannotTake) {
  const std::vector<std::string> narrow = {"--model.intermediate_size=100", "--precision.recipe=nvfp4",
                                           "--precision.recipes=[nvfp4]"};
  refused(narrow, Exit::kUsage, {"layers.0.mlp.up", "200"});
  // The same layer under BF16 trains.
  EXPECT_EQ(run("train", {"--model.intermediate_size=100", "--train.steps=1", "--schedule.warmup_steps=0"}).code, 0);
}

TEST_F(Refusals, WhatDoesNotFitNamesTwoWays) {
  const std::vector<std::string> huge = {"--model.hidden_size=16384", "--model.intermediate_size=65536",
                                         "--model.num_hidden_layers=512", "--model.num_attention_heads=256"};
  for (const char* verb : {"train", "compare"}) {
    SCOPED_TRACE(verb);
    const VerbResult r = run(verb, huge);
    expect_refused(r, Exit::kMemory, {"memory: needs", "TiB", ", or "});
  }
  // A plan for a stated device fails like the run there; for this machine it is an answer.
  std::vector<std::string> stated = huge;
  stated.push_back("--memory-gib=180");
  expect_refused(run("plan", stated), Exit::kMemory, {"memory: needs", "TiB", ", or "});
  const VerbResult answer = run("plan", huge);
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.out.find("does not fit this machine"), std::string::npos) << answer.out;
  // Too many rows in one piece: fewer rows or recompute.
  expect_refused(run("plan", {"--batch.tokens=65536", "--batch.micro_batch=1024", "--model.num_hidden_layers=4",
                              "--memory-gib=0.9"}),
                 Exit::kMemory, {"batch.micro_batch 1024 -> 512 fits (", "or train.recompute: block fits ("});
}

TEST_F(Refusals, KeysOfLaterVersions) {
  for (const char* key : {"log.tensorboard", "log.wandb"})
    refused({std::string("--") + key + "=1"}, Exit::kUsage, {key, "not in this version"});
}

TEST_F(Refusals, DataThatDoesNotGoTogether) {
  refused({"--data.packing=best"}, Exit::kUsage, {"data.packing", "best_fit"});
  refused({"--data.tokenizer=" + (folder / "none")}, Exit::kInput, {"none"});
  refused({"--data.split=train"}, Exit::kUsage, {"text.txt", "data.split"});
  refused({"--data.messages_key=messages", "--data.packing=none"}, Exit::kUsage,
          {"data.messages_key", "data.chat_template"});
  refused({"--data.prompt_key=q", "--data.response_key=a"}, Exit::kUsage, {"data.packing", "truncate", "best_fit"});
  refused({"--data.eos_token=x"}, Exit::kUsage, {"data.eos_token", "byte 0"});
  // Ids above the model's vocabulary, in the first and in the last but one row.
  for (const size_t at : {size_t{0}, size_t{900}}) {
    std::string ids(2000, '\1');
    for (size_t i = 1; i < ids.size(); i += 2) ids[i] = i == 2 * at + 1 ? '\2' : '\0';
    write_atomic(folder / "ids.bin", ids);
    refused({"--data.train=" + (folder / "ids.bin")}, Exit::kInput,
            {"ids.bin", fmt::format("token {} is 513", at), "vocabulary of 256"});
  }
}

TEST_F(Refusals, RulesThatMatchNoLayer) {
  const auto rule = [&](const std::string& match) {
    return run_verb(
        {"train", write_config(config() + "precision: {rules: [{match: '" + match + "', recipe: mxfp8}]}\n")});
  };
  expect_refused(rule("layer.{0,-1}.*"), Exit::kUsage,
                 {"precision.rules: layer.{0,-1}.*", "layers.0 to layers.0 (or layers.-1 to layers.-1)",
                  "attention.qkv", "mlp.down", "head"});
  expect_refused(rule("layers.9.*"), Exit::kUsage, {"precision.rules: layers.9.*: matches no layer"});
  expect_refused(rule("layers.{0,9}.*"), Exit::kUsage, {"layers.{0,9}.*: layers.9.* matches no layer"});
  expect_refused(rule("layers.0.*.weight"), Exit::kUsage, {"matches no layer"});
  std::string many = "layers";
  for (int i = 0; i < 60; ++i) many += "{.,*}";
  expect_refused(rule(many), Exit::kUsage, {"more than 1024 patterns"});
  const std::string steps = "--train.steps=2";
  EXPECT_EQ(run_verb({"train",
                      write_config(config() + "precision: {rules: [{match: 'layers.{0,-1}.*', recipe: mxfp8}, "
                                              "{match: head, recipe: mxfp8}]}\n"),
                      steps})
                .code,
            0);
}

TEST_F(Refusals, RowsLongerThanTheModelsPositions) {
  for (const char* arch : {"llama", "qwen3"})
    refused({std::string("--model.arch=") + arch, "--model.max_position_embeddings=63"}, Exit::kUsage,
            {"data.sequence_length: 64", "63 positions", "model.max_position_embeddings"});
}

// What cannot be read is the user's, in the program's own words.
TEST_F(Refusals, OddFilesAndNames) {
  const std::string loop = folder / "loop", odd = "--run.name=a\xff";
  std::filesystem::create_symlink("loop", loop);
  expect_refused(run_verb({"train", loop}), Exit::kUsage, {"loop: cannot open: Too many levels of symbolic links"});
  refused({"--model.init=" + loop}, Exit::kInput, {"loop"});
  refused({"--model.init=" + std::string(5000, 'x')}, Exit::kInput, {"xxx"});
  refused({"--model.init=" + (folder / std::string(300, 'x'))}, Exit::kInput, {"File name too long"});
  refused({"--data.train=" + (folder / std::string(300, 'x'))}, Exit::kInput, {"xxx"});
  refused({odd}, Exit::kUsage, {"is not UTF-8"});
  for (const char* verb : {"sample", "eval", "verify", "inspect"})
    for (const std::string& path : {loop, folder / std::string(300, 'x'), folder / "a\xff"}) {
      std::vector<std::string> args = {verb, path};
      if (args[0] == "sample") args.push_back("--prompt=x");
      const VerbResult r = run_verb(args);
      EXPECT_EQ(r.code, static_cast<int>(Exit::kInput)) << verb << ": " << r.err;
      EXPECT_EQ(r.err.find("exception"), std::string::npos) << r.err;
    }
}

TEST_F(Refusals, PathsBesideTheConfigAreNotTaken) {
  std::filesystem::create_directory(folder / "configs");
  write_atomic(folder / "configs/near.txt", "x");
  std::string text = config();
  text.replace(text.find(folder / "text.txt"), (folder / "text.txt").size(), "near.txt");
  write_atomic(folder / "configs/c.yaml", text);
  expect_refused(run_verb({"train", folder / "configs/c.yaml"}), Exit::kInput,
                 {"c.yaml:13: data.train: near.txt is not there, but ", "configs/near.txt is",
                  "relative to the working directory"});
  // "bytes" is the built-in tokenizer, whatever lies there.
  write_atomic(folder / "configs/bytes", "x");
  write_atomic(folder / "configs/c.yaml", config());
  EXPECT_EQ(run_verb({"train", folder / "configs/c.yaml", "--print-config"}).code, 0);
}

TEST_F(Refusals, TooFewValidationDocumentsNameTheRemedy) {
  refused({"--data.validation_fraction=0.001", "--data.sequence_length=1024", "--batch.tokens=1024"}, Exit::kInput,
          {"validation (data.validation_fraction)", "a larger fraction", "0 goes without"});
}

TEST_F(Refusals, NativeWhereThereIsNone) {
  refused({"--precision.path=native", "--precision.recipe=mxfp8", "--precision.recipes=[mxfp8]"}, Exit::kUnavailable,
          {"precision.path", "native", "mxfp8"});
  // BF16 itself is native; a rule or a row that is not is refused all the same.
  expect_refused(run("compare", {"--precision.path=native"}), Exit::kUnavailable, {"native", "fp8-delayed"});
  refused({"--precision.path=native", "--precision.recipe=fp8-delayed", "--device.name=cpu"}, Exit::kUnavailable,
          {"precision.path", "a CPU has no fp8-delayed"});
  // A GPU does not emulate what it multiplies.
  expect_refused(run("plan", {"--device=h100", "--precision.path=emulated", "--precision.recipe=fp8-delayed"}),
                 Exit::kUnavailable, {"precision.path: emulated", "fp8-delayed natively"});
  EXPECT_EQ(run("plan", {"--device=h100", "--precision.path=native", "--precision.recipe=fp8-delayed"}).code, 0);
  const std::string rules = "precision: {path: native, rules: [{match: 'layers.0.*', recipe: nvfp4}]}\n";
  expect_refused(run_verb({"train", write_config(config() + rules)}), Exit::kUnavailable, {"native", "nvfp4"});
}

TEST_F(Refusals, OptionsThatNobodyReads) {
  expect_refused(run("train", {"--precision.margin=1"}), Exit::kUsage,
                 {"margin", "bf16 does not read it", "fp8-delayed"});
  expect_refused(run("train", {"--precision.recipe=mxfp8", "--precision.disable_rht=true"}), Exit::kUsage,
                 {"disable_rht", "mxfp8 does not read it", "nvfp4"});
  expect_refused(run("compare", {"--precision.recipes=[mxfp8]", "--precision.margin=1"}), Exit::kUsage,
                 {"margin", "mxfp8"});
  // A rule's recipe reads its options.
  const std::string ruled = "precision: {margin: 1, rules: [{match: 'layers.0.*', recipe: fp8-delayed}]}\n";
  const std::string steps = "--train.steps=2";
  EXPECT_EQ(run_verb({"train", write_config(config() + ruled), steps}).code, 0);
  const std::string model = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/qwen3";
  expect_refused(run_verb({"probe", model, "--input=a", "--output=b", "--margin=1"}), Exit::kUsage, {"margin", "fp32"});
}

TEST_F(Refusals, NonFiniteLossNamesATensor) {
  // Weights of 1e30 after the first step: squares overflow.
  const VerbResult r = run("train", {"--optimizer.lr=1e38", "--schedule.warmup_steps=0", "--schedule.name=constant"});
  expect_refused(r, Exit::kNonFinite, {"step 2", "was not applied", "is not finite"});
  EXPECT_FALSE(exists(folder / "run/result.json"));
  // Only steps that ended stand in the metrics.
  EXPECT_EQ(read_text(folder / "run/metrics.jsonl").find("\"step\":2"), std::string::npos);
}

TEST_F(Refusals, NonFiniteWeightOfAModelFolder) {
  const std::string golden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/qwen3";
  std::filesystem::create_directory(folder / "model");
  std::filesystem::copy(golden + "/config.json", folder / "model/config.json");
  const auto file = safetensors::Reader::open(golden + "/model.safetensors");
  std::vector<safetensors::Entry> entries;
  std::vector<float> bad;
  for (const auto& [name, view] : file.tensors()) {
    entries.push_back({name, view.dtype, view.shape, view.bytes});
    if (name != "model.layers.1.mlp.up_proj.weight") continue;
    bad.resize(static_cast<size_t>(view.elements()));
    std::memcpy(bad.data(), view.bytes.data(), view.bytes.size());
    bad[7] = std::numeric_limits<float>::quiet_NaN();
    entries.back().bytes = std::as_bytes(std::span(bad));
  }
  ASSERT_FALSE(bad.empty());
  safetensors::write(folder / "model/model.safetensors", entries);
  const std::string yaml = "run: {dir: " + (folder / "run") + "}\nmodel: {init: " + (folder / "model") +
                           "}\ndata: {train: " + (folder / "text.txt") +
                           ", sequence_length: 64}\nbatch: {tokens: 128}\ntrain: {steps: 2}\nlog: {console: false}\n"
                           "precision: {recipes: [mxfp8]}\n";
  for (const char* verb : {"train", "compare"}) {
    expect_refused(run_verb({verb, write_config(yaml)}), Exit::kNonFinite, {"step 1", "layers.1.mlp.", "not finite"});
    EXPECT_FALSE(exists(folder / "run/result.json"));
    EXPECT_FALSE(exists(folder / "run/compare.json"));
    std::filesystem::remove_all(folder / "run");
  }
}

TEST_F(Refusals, AFolderOfSomethingElse) {
  const std::string steps = "--train.steps=2";
  ASSERT_EQ(run("train", {steps}).code, 0);
  const std::string before = read_text(folder / "run/result.json");
  const VerbResult again = run("train", {steps});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(read_text(folder / "run/result.json"), before) << "a finished run trained again";
  expect_refused(run("train", {steps, "--optimizer.lr=3e-3"}), Exit::kUsage,
                 {"another config: optimizer.lr is 0.01 there, 0.003 here", "--restart"});
  EXPECT_EQ(run("train", {steps, "--optimizer.lr=3e-3", "--restart"}).code, 0);
  for (const char* more : {"--log.console=false", "--restart"})
    expect_refused(run("compare", {steps, more}), Exit::kUsage, {"holds a single run"});
}

}  // namespace
}  // namespace mantissa
