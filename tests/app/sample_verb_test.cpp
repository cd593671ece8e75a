// mantissa sample, and the generations of a training run.
#include <cstring>

#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

class Sample : public testing::VerbTest {
 protected:
  static VerbResult sample(const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> args = {"sample", model, "--device=cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return run_verb(args);
  }
  // stdout without the newline that closes a text.
  static std::string text_of(const std::string& model, std::vector<std::string> more) {
    more.push_back("--ignore-eos");
    const VerbResult r = sample(model, more);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out.substr(0, r.out.size() - 1);
  }
  // A copy of a golden model whose generation_config.json holds `stops`.
  std::string model_stopping_at(const Json& stops) const {
    const std::string copy = folder / "model";
    std::filesystem::remove_all(copy);
    std::filesystem::create_directory(copy);
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(kGolden + "llama/" + name, join_path(copy, name));
    write_atomic(join_path(copy, "generation_config.json"), Json{{"eos_token_id", stops}}.dump());
    return copy;
  }
};

TEST_F(Sample, TheSameSeedGivesTheSameText) {
  for (const char* arch : {"gpt2", "llama", "qwen2", "qwen3"}) {
    const std::string model = kGolden + arch;
    const std::vector<std::string> flags = {"--prompt=It was", "--max-new-tokens=24", "--seed=3", "--temperature=0.9"};
    const std::string text = text_of(model, flags);
    EXPECT_EQ(text_of(model, flags), text) << arch;
    EXPECT_NE(text_of(model, {"--prompt=It was", "--max-new-tokens=24", "--seed=4", "--temperature=0.9"}), text);
    // Several samples: the prompt is kept, the seeds count up.
    const std::string both =
        text_of(model, {"--prompt=It was", "--max-new-tokens=24", "--seed=2", "--temperature=0.9", "--num-samples=2"});
    const std::string head = "--- sample 2 of 2, seed 3\n";
    ASSERT_NE(both.find(head), std::string::npos) << both;
    EXPECT_EQ(both.substr(both.find(head) + head.size()), text) << arch;
  }
}

TEST_F(Sample, PromptsComeFromFlagFileAndNowhereElse) {
  const std::string model = kGolden + "qwen3";
  write_atomic(folder / "prompt.txt", "It was\n");
  EXPECT_EQ(text_of(model, {"--prompt-file", folder / "prompt.txt", "--temperature=0"}),
            text_of(model, {"--prompt=It was\n", "--temperature=0"}));
  expect_refused(sample(model, {"--prompt=a", "--prompt-file=b"}), Exit::kUsage, {"--prompt-file", "exclude"});
  expect_refused(sample(model, {"--prompt-file", folder / "none.txt"}), Exit::kInput, {"none.txt"});
  // An empty prompt begins a document: byte 0.
  EXPECT_EQ(text_of(model, {"--prompt=", "--temperature=0"}),
            text_of(model, {"--prompt", std::string(1, '\0'), "--temperature=0"}));
}

TEST_F(Sample, StopsAtTokensAndTexts) {
  // The first bytes that the greedy model writes, from one long text.
  const std::string model = model_stopping_at(Json::array({7}));
  const std::vector<std::string> flags = {"--prompt=It was", "--temperature=0", "--max-new-tokens=40"};
  const std::string text = text_of(model, flags);
  ASSERT_GT(text.size(), 10u);
  // A text of its own as a stop: what comes before it is all there is.
  size_t at = 4;
  while (static_cast<unsigned char>(text[at]) >= 0x80 || text.find(text[at]) != at) ++at;
  std::vector<std::string> stopping = flags;
  stopping.insert(stopping.end(), {"--ignore-eos", "--stop", std::string(1, text[at]), "--stop=never so"});
  VerbResult r = sample(model, stopping);
  EXPECT_EQ(r.out, text.substr(0, at) + "\n");
  EXPECT_NE(r.err.find("ended by text"), std::string::npos) << r.err;

  // The same byte as a stop token of the model, alone and in a list.
  const int id = static_cast<unsigned char>(text[at]);
  for (const Json& stops : {Json(id), Json::array({255, id})}) {
    r = sample(model_stopping_at(stops), flags);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.err.find("ended by token"), std::string::npos) << r.err;
    EXPECT_TRUE(text.starts_with(r.out.substr(0, r.out.size() - 1))) << r.out;
    EXPECT_LT(r.out.size(), text.size());
  }
  expect_refused(sample(model_stopping_at("</s>"), flags), Exit::kInput, {"eos_token_id is \"</s>\""});
  expect_refused(sample(model_stopping_at(Json::array({-1})), flags), Exit::kInput, {"eos_token_id is -1"});
}

TEST_F(Sample, SaysWhatItDid) {
  const VerbResult r = sample(kGolden + "llama", {"--prompt=It was", "--max-new-tokens=9", "--ignore-eos"});
  EXPECT_EQ(r.code, 0);
  for (const char* part : {"prompt 6 tokens", "9 new tokens", "ended by length", "FP32 weights", "tokenizer bytes"})
    EXPECT_NE(r.err.find(part), std::string::npos) << part << " in: " << r.err;
  const VerbResult half = sample(kGolden + "llama", {"--prompt=It was", "--dtype=bf16"});
  EXPECT_NE(half.err.find("BF16 weights"), std::string::npos) << half.err;
}

TEST_F(Sample, StaysInTheContext) {
  const std::string model = kGolden + "llama";  // 512 positions
  VerbResult r = sample(model, {"--prompt", std::string(500, 'a'), "--max-new-tokens=50", "--ignore-eos"});
  EXPECT_EQ(r.code, 0);
  EXPECT_NE(r.err.find("note: 12 new tokens at most"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("12 new tokens"), std::string::npos) << r.err;
  expect_refused(sample(model, {"--prompt", std::string(512, 'a')}), Exit::kUsage, {"512 tokens", "context 512"});
}

TEST_F(Sample, Refuses) {
  const std::string model = kGolden + "llama";
  expect_refused(sample(folder / "nothing", {"--prompt=a"}), Exit::kInput, {"nothing"});
  expect_refused(sample(model, {"--prompt=a", "--chat"}), Exit::kUsage, {"chatml", "bytes"});
  expect_refused(sample(model, {"--prompt=a", "--system=b"}), Exit::kUsage, {"--chat"});
  expect_refused(sample(model, {"--prompt=a", "--top_p=1.5"}), Exit::kUsage, {"top_p"});
  expect_refused(sample(model, {"--prompt=a", "--temperature=-1"}), Exit::kUsage, {"temperature"});
  expect_refused(sample(model, {"--prompt=a", "--max-new-tokens=0"}), Exit::kUsage, {"max-new-tokens"});
  expect_refused(sample(model, {"--prompt=a", "--tokenizer", folder / "none"}), Exit::kInput, {"none"});
}

TEST_F(Sample, EndsAtLogitsThatAreNotFinite) {
  const std::string model = model_stopping_at(1);
  std::string bytes = read_text(join_path(model, "model.safetensors"));
  const uint32_t nan = 0x7fc00000u;
  for (size_t at = bytes.size() - 64; at < bytes.size(); at += 4) std::memcpy(bytes.data() + at, &nan, 4);
  write_atomic(join_path(model, "model.safetensors"), bytes);
  expect_refused(sample(model, {"--prompt=a"}), Exit::kNonFinite, {"logit"});
}

// Generations during training: where they come, what they say, and that the run is the same to the bit.
class TrainingSamples : public Sample {
 protected:
  // Loss, gradient norm and evaluation of every line.
  std::vector<std::string> losses() const {
    std::vector<std::string> out;
    std::istringstream lines(read_text(folder / "run/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json json = Json::parse(line);
      out.push_back(json.value("loss", Json()).dump() + " " + json.value("grad_norm", Json()).dump() + " " +
                    json.value("eval_loss", Json()).dump());
    }
    return out;
  }
};

TEST_F(TrainingSamples, AreLoggedAndLeaveTheRunAsItIs) {
  ASSERT_EQ(run("train").code, 0);
  const std::vector<std::string> plain = losses();
  const std::string weights = read_text(folder / "run/model/model.safetensors");
  EXPECT_FALSE(exists(folder / "run/samples.jsonl"));

  const VerbResult r =
      run("train", {"--restart", "--train.sample_every=4", "--sample.prompts=[the scale,\"\"]",
                    "--sample.max_new_tokens=16", "--sample.temperature=0.8", "--sample.seed=5", "--log.console=true"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(losses(), plain);
  EXPECT_TRUE(read_text(folder / "run/model/model.safetensors") == weights);
  EXPECT_NE(r.out.find("sample at step 4 | \"the scale\" -> "), std::string::npos) << r.out;

  std::vector<Json> samples;
  std::istringstream lines(read_text(folder / "run/samples.jsonl"));
  for (std::string line; std::getline(lines, line);) samples.push_back(Json::parse(line));
  ASSERT_EQ(samples.size(), 4u);  // steps 4 and 6, two prompts each
  EXPECT_EQ(samples[0]["step"], 4);
  EXPECT_EQ(samples[2]["step"], 6);
  EXPECT_EQ(samples[3]["prompt"], "");
  for (const Json& s : samples) EXPECT_LE(s["tokens"], 16);
  // The finished model writes the same: its weights rounded to the BF16 that the run computed in.
  VerbResult again = sample(
      folder / "run", {"--dtype=bf16", "--prompt=the scale", "--max-new-tokens=16", "--temperature=0.8", "--seed=5"});
  EXPECT_EQ(again.out, samples[2]["text"].get<std::string>() + "\n") << again.err;
  again = sample(folder / "run", {"--dtype=bf16", "--prompt=", "--max-new-tokens=16", "--temperature=0.8", "--seed=6"});
  EXPECT_EQ(again.out, samples[3]["text"].get<std::string>() + "\n") << again.err;

  const std::string page = read_text(folder / "run/report.html");
  EXPECT_NE(page.find("<section id=\"samples\""), std::string::npos);
  EXPECT_NE(page.find("Earlier steps"), std::string::npos);

  // A run without samples leaves none of before.
  ASSERT_EQ(run("train", {"--restart"}).code, 0);
  EXPECT_FALSE(exists(folder / "run/samples.jsonl"));
  EXPECT_EQ(read_text(folder / "run/report.html").find("<section id=\"samples\""), std::string::npos);
}

TEST_F(TrainingSamples, AreRefusedWithoutRoom) {
  expect_refused(run("train", {"--train.sample_every=1", "--model.max_position_embeddings=64",
                               "--sample.prompts=[" + std::string(64, 'a') + "]"}),
                 Exit::kUsage, {"sample.prompts[0]", "64 positions"});
  expect_refused(run("train", {"--train.sample_every=1", "--sample.top_p=2"}), Exit::kUsage, {"sample.top_p"});
}

}  // namespace
}  // namespace mantissa
