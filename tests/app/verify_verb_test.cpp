// mantissa verify: what holds is listed, the first broken rule is named, exit 3.
#include <limits>

#include "tests/app/verb_run.h"
#include "tests/model/model_folder.h"

namespace mantissa {
namespace {

using testing::golden;
using testing::ModelFolder;
using testing::run_verb;
using testing::VerbResult;

class VerifyVerb : public testing::VerbTest {
 protected:
  static void expect_ok(const std::string& path, const std::vector<std::string>& parts) {
    const VerbResult r = run_verb({"verify", path});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_TRUE(r.out.ends_with("ok        " + path + "\n")) << r.out;
    for (const std::string& part : parts) EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
  }
  static void expect_broken(const std::string& path, const std::vector<std::string>& parts) {
    expect_refused(run_verb({"verify", path}), Exit::kInput, parts);
  }
};

TEST_F(VerifyVerb, ModelFolders) {
  for (const std::string model : {"gpt2", "llama", "qwen2", "qwen3"})
    expect_ok(golden(model),
              {"config    " + model, "one safetensors file", "none missing, none too many", "all finite"});
  const ModelFolder sharded("llama");
  sharded.write_shards(3);
  expect_ok(sharded.path(), {"3 shards"});
  expect_ok(golden("llama") + "/model.safetensors", {"structure", "all finite"});
}

TEST_F(VerifyVerb, CountsWhatIsNotFinite) {
  ModelFolder model("qwen3");
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = -std::numeric_limits<float>::infinity();
  const auto put = [&](const char* name, size_t i, float x) {
    std::memcpy(&model.tensors.at(name).bytes[4 * i], &x, 4);
  };
  put("model.layers.0.mlp.up_proj.weight", 3, nan);
  put("model.layers.0.mlp.up_proj.weight", 4, nan);
  put("model.layers.0.mlp.up_proj.weight", 9, inf);
  put("model.norm.weight", 0, inf);
  model.write();
  const VerbResult r = run_verb({"verify", model.path()});
  expect_refused(r, Exit::kInput, {"2 tensors hold values that are not finite", "model.layers.0.mlp.up_proj.weight"});
  EXPECT_NE(r.out.find("model.layers.0.mlp.up_proj.weight: 2 NaN, 1 Inf of 8,192 values"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("model.norm.weight: 0 NaN, 1 Inf of 64 values"), std::string::npos) << r.out;
  expect_broken(model / "model.safetensors", {"not finite"});
}

TEST_F(VerifyVerb, TokenizerAndIds) {
  ModelFolder model("llama");
  model.config["eos_token_id"] = 256;
  model.write();
  expect_broken(model.path(), {"config.json: eos_token_id: 256 is outside the vocabulary of 256"});
  model.config["eos_token_id"] = 255;
  model.write();
  write_atomic(model / "generation_config.json", R"({"eos_token_id":[1,999]})");
  expect_broken(model.path(), {"generation_config.json: eos_token_id: 999"});
  write_atomic(model / "generation_config.json", R"({"eos_token_id":[1,255]})");
  expect_ok(model.path(), {"tokenizer none in the folder"});
  // The byte tokenizer that a run writes: 256 ids.
  ASSERT_EQ(run("train", {"--train.steps=1", "--schedule.warmup_steps=0"}).code, 0);
  std::filesystem::copy(folder / "run/model/tokenizer.json", model / "tokenizer.json");
  expect_ok(model.path(), {"ids below 256, vocabulary 256"});
  expect_ok(model / "tokenizer.json", {"byte-level BPE"});
  ModelFolder small("llama");
  small.config["vocab_size"] = 255;
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    small.tensors.at(name).shape[0] = 255;
    small.tensors.at(name).bytes.resize(size_t{255} * 64 * 4);
  }
  small.write();
  std::filesystem::copy(folder / "run/model/tokenizer.json", small / "tokenizer.json");
  expect_broken(small.path(), {"has ids up to 255, the model's vocabulary 255"});
}

TEST_F(VerifyVerb, Runs) {
  ASSERT_EQ(run("train").code, 0);
  expect_ok(folder / "run", {"config.yaml reads back", "6 steps", "result.json", "all finite"});
  const std::string weights = folder / "run/model/model.safetensors";
  const std::string good = read_text(weights);
  write_atomic(weights, good.substr(0, good.size() - 1));
  expect_broken(folder / "run", {"model/model.safetensors", "pass the end of the data"});
  write_atomic(weights, good);
  std::filesystem::rename(folder / "run/model", folder / "elsewhere");
  expect_broken(folder / "run", {"run/model: not there", "config.yaml says", "train.save_weights"});
  std::filesystem::remove(folder / "run/result.json");
  expect_ok(folder / "run", {"weights   none: a run keeps them at its end"});
  write_atomic(folder / "run/config.yaml", "run: {nane: x}\n");
  expect_broken(folder / "run", {"config.yaml:1", "run.nane"});
}

// What stands beside the result of a finished run agrees with it, or is named.
TEST_F(VerifyVerb, RunsWhoseFilesDoNotAgree) {
  ASSERT_EQ(run("train", {"--train.save_weights=false"}).code, 0);
  expect_ok(folder / "run", {"weights   none kept (train.save_weights: false)"});
  const std::string result = folder / "run/result.json", metrics = folder / "run/metrics.jsonl";
  const std::string info = folder / "run/run.json", good_metrics = read_text(metrics), good_info = read_text(info);
  const Json good = read_json(result);
  const auto broken = [&](const std::string& path, const std::string& text, const std::vector<std::string>& parts) {
    const std::string before = read_text(path);
    write_atomic(path, text);
    expect_broken(folder / "run", parts);
    write_atomic(path, before);
  };
  broken(result, "{}", {"result.json: loss: missing, expected a number or null"});
  broken(info, "{}", {"run.json: version: missing"});
  Json changed = good;
  changed["loss"] = good["loss"].get<double>() + 1e-6;
  broken(result, changed.dump(), {"result.json: loss: ", "the mean over the last tenth of the steps in metrics.jsonl"});
  changed = good, changed["loss"] = nullptr;
  broken(result, changed.dump(), {"result.json: loss: null found"});
  changed = good, changed["eval_loss"] = 1.0;
  broken(result, changed.dump(), {"result.json: eval_loss: 1 found", "the last evaluation"});
  changed = good, changed["steps"] = 5;
  broken(result, changed.dump(), {"result.json: steps: 5 found, run.json says 6"});
  changed = Json::parse(good_info), changed.erase("memory");
  broken(info, changed.dump(), {"run.json: memory: missing, expected an object"});
  broken(metrics, "", {"metrics.jsonl: 0 steps found, result.json says 6"});
  broken(metrics, good_metrics.substr(0, good_metrics.size() - 9), {"metrics.jsonl: the last line has no end"});
  broken(metrics, good_metrics.substr(good_metrics.find('\n') + 1), {"metrics.jsonl: step 2 follows step 0"});
  std::filesystem::remove(metrics);
  expect_broken(folder / "run", {"metrics.jsonl: not there, although result.json is"});
  write_atomic(metrics, good_metrics.substr(0, good_metrics.size() / 2));
  std::filesystem::remove(result);  // a run that was cut: no fault, but said
  const VerbResult cut = run_verb({"verify", folder / "run"});
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_NE(cut.out.find("it has not finished"), std::string::npos) << cut.out;
  EXPECT_NE(cut.out.find("note: the last line of metrics.jsonl has no end"), std::string::npos) << cut.out;
}

TEST_F(VerifyVerb, ComparisonsWhoseRowsAreGoneOrOthers) {
  ASSERT_EQ(run("compare", {"--precision.recipes=[mxfp8]", "--compare.weights=[fp32]", "--compare.seeds=2",
                            "--train.steps=2", "--train.eval_rows=0", "--schedule.warmup_steps=0"})
                .code,
            0);
  expect_ok(folder / "run", {"4 of 4 in compare.json", "rows/02-fp32-mxfp8-linear-seed6\n"});
  const std::string path = folder / "run/compare.json";
  const Json good = read_json(path);
  const auto broken = [&](const auto& change, const std::vector<std::string>& parts) {
    Json changed = good;
    change(changed);
    write_atomic(path, changed.dump());
    expect_broken(folder / "run", parts);
    write_atomic(path, good.dump());
  };
  broken([](Json& c) { c["rows"].clear(); }, {"compare.json: rows: none found"});
  broken([](Json& c) { c["rows"][1]["losses"][1] = 1.0; }, {"compare.json: rows[1]: loss: ", "the mean of losses"});
  broken([](Json& c) { c["rows"][1]["delta_loss"] = 0.5; }, {"rows[1]: delta_loss: 0.5 found"});
  broken([](Json& c) { c["rows"][1]["dir"] = ""; }, {"rows[1]: dir: missing"});
  broken([](Json& c) { c["rows"][1]["path"] = "native"; }, {"rows[1]: path: native found", "emulated"});
  broken([](Json& c) { std::swap(c["rows"][1]["losses"][0], c["rows"][1]["losses"][1]); },
         {"rows[1]: losses[0]: ", "result.json"});
  std::filesystem::rename(folder / "run/rows/02-fp32-mxfp8-linear-seed6", folder / "away");
  expect_broken(folder / "run", {"compare.json: rows[1]: dir: ", "02-fp32-mxfp8-linear-seed6 is not there"});
  std::filesystem::rename(folder / "away", folder / "run/rows/02-fp32-mxfp8-linear-seed6");
  std::filesystem::remove(folder / "run/rows/01-fp32-bf16/result.json");
  expect_broken(folder / "run", {"compare.json: rows[0]: ", "01-fp32-bf16 has no result.json"});
}

TEST_F(VerifyVerb, NothingKnown) {
  expect_broken(folder / "none", {"not there"});
  expect_broken(folder.path(), {"no model.safetensors"});
  expect_broken(folder / "text.txt", {"text.txt"});
  write_atomic(folder / "x.json", "{}");
  expect_broken(folder / "x.json", {"x.json"});
}

TEST_F(VerifyVerb, InspectKnowsTheSame) {
  const ModelFolder sharded("qwen2");
  sharded.write_shards(2);
  const VerbResult r = run_verb({"inspect", sharded.path()});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"part-0.safetensors: ", "part-1.safetensors: ", "model.layers.1.self_attn.q_proj.bias",
                           "every tensor that the config names is there"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
  ASSERT_EQ(run("train", {"--train.steps=1", "--schedule.warmup_steps=0"}).code, 0);
  const VerbResult tokenizer = run_verb({"inspect", folder / "run/model"});
  EXPECT_NE(tokenizer.out.find("tokenizer 256 tokens, ids below 256"), std::string::npos)
      << tokenizer.out << tokenizer.err;
}

}  // namespace
}  // namespace mantissa
