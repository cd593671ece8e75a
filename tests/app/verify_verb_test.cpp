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
  write_atomic(folder / "run/config.yaml", "run: {nane: x}\n");
  expect_broken(folder / "run", {"config.yaml:1", "run.nane"});
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
