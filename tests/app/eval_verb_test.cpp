// mantissa eval against sums over the decoder's logits on tests/golden/<model>.
#include <cmath>

#include "tests/app/verb_run.h"
#include "train/engine.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

const std::string kGolden = std::string(MANTISSA_SOURCE_DIR) + "/tests/golden/";

// -log p of the last byte behind the others, in FP32.
double loss_of(const std::string& model, const std::string& text) {
  const auto n = static_cast<int64_t>(text.size()) - 1;
  PrecisionConfig precision;
  precision.recipe = "fp32";
  Engine engine(read_hf_config(model), precision, {.tokens = n, .sequence_length = n, .training = false});
  engine.build();
  engine.load(model);
  std::vector<int32_t> ids, positions, segments = {0, static_cast<int32_t>(n)};
  for (int32_t i = 0; i < n; ++i) ids.push_back(static_cast<unsigned char>(text[i])), positions.push_back(i);
  std::vector<float> logits(static_cast<size_t>(n * 256));
  engine.logits({.ids = {ids.data(), DType::kI32, {n}},
                 .labels = {},
                 .positions = {positions.data(), DType::kI32, {n}},
                 .segments = {segments.data(), DType::kI32, {2}}},
                {logits.data(), DType::kF32, {n, 256}});
  const float* row = logits.data() + (n - 1) * 256;
  double sum = 0;
  for (int v = 0; v < 256; ++v) sum += std::exp(double{row[v]});
  return std::log(sum) - double{row[static_cast<unsigned char>(text[static_cast<size_t>(n)])]};
}

class Eval : public testing::VerbTest {
 protected:
  VerbResult eval(const std::string& model, const std::string& file, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"eval", model, file, "--device=cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return run_verb(args);
  }
  Json figures(const std::string& model, const std::string& file, std::vector<std::string> more = {}) const {
    more.push_back("--json");
    const VerbResult r = eval(model, file, more);
    EXPECT_EQ(r.code, 0) << r.err;
    return r.code == 0 ? Json::parse(r.out) : Json();
  }
};

TEST_F(Eval, IsTheSumOverEveryWindow) {
  const std::vector<std::string> documents = {"The scale of a block.", "Codes round to even", "x"};
  write_atomic(folder / "t.txt", documents[0] + "\n\n" + documents[1] + "\n\n" + documents[2] + "\n");
  for (const char* arch : {"gpt2", "qwen3"}) {
    const std::string model = kGolden + arch;
    double want = 0;
    int64_t tokens = 0;
    for (const std::string& d : documents)
      for (size_t t = 1; t < d.size(); ++t) {
        size_t begin = 0;
        while (t - 1 >= begin + 8) begin += 3;
        want += loss_of(model, d.substr(begin, t + 1 - begin));
        ++tokens;
      }
    const Json got = figures(model, folder / "t.txt", {"--context=8", "--stride=3", "--dtype=fp32"});
    EXPECT_EQ(got["tokens"], tokens);
    EXPECT_EQ(got["bytes"], tokens);
    EXPECT_EQ(got["documents"], 3);
    EXPECT_EQ(got["bos"], "none");
    EXPECT_EQ(got["eos"], false);
    EXPECT_EQ(got["dtype"], "fp32");
    const double loss = got["loss"];
    EXPECT_NEAR(loss, want / static_cast<double>(tokens), 1e-5 * loss) << arch;
    EXPECT_NEAR(got["perplexity"].get<double>(), std::exp(loss), 1e-9 * std::exp(loss));
    EXPECT_NEAR(got["bits_per_byte"].get<double>(), loss / std::log(2.0), 1e-9 * loss);
  }
}

TEST_F(Eval, BosGivesTheFirstTokenAPredictionAndEosOneMore) {
  write_atomic(folder / "t.txt", "abcd\n\nefg\n");
  const std::string model = kGolden + "llama";
  EXPECT_EQ(figures(model, folder / "t.txt")["tokens"], 3 + 2);
  const Json bos = figures(model, folder / "t.txt", {"--bos=#", "--dtype=fp32"});
  EXPECT_EQ(bos["tokens"], 4 + 3);
  EXPECT_EQ(bos["bos"], "#");
  double want = 0;
  for (const char* text : {"#a", "#ab", "#abc", "#abcd", "#e", "#ef", "#efg"}) want += loss_of(model, text);
  EXPECT_NEAR(bos["loss"].get<double>(), want / 7, 1e-5 * want);
  const Json eos = figures(model, folder / "t.txt", {"--eos"});
  EXPECT_EQ(eos["tokens"], 4 + 3);
}

TEST_F(Eval, ResponsesAloneOfFineTuningData) {
  write_atomic(folder / "t.jsonl", "{\"q\": \"2+2\", \"a\": \"four\"}\n{\"q\": \"none\", \"a\": \"\"}\n");
  const std::string model = kGolden + "llama";
  const Json got = figures(model, folder / "t.jsonl", {"--prompt_key=q", "--response-key=a", "--dtype=fp32"});
  EXPECT_EQ(got["tokens"], 5);  // four and the EOS, byte 0
  EXPECT_EQ(got["loss_on"], "response");
  std::string text = "2+2\n";
  double want = 0;
  for (const char c : {'f', 'o', 'u', 'r', '\0'}) want += loss_of(model, text += c);
  EXPECT_NEAR(got["loss"].get<double>(), want / 5, 1e-5 * want);
}

TEST_F(Eval, SaysWhatItMeasured) {
  write_atomic(folder / "t.jsonl", "{\"body\": \"some words\"}\n{\"body\": \"\"}\n");
  const VerbResult r =
      eval(kGolden + "llama", folder / "t.jsonl", {"--text_key=body", "--context=32", "--stride=16", "--dtype=bf16"});
  EXPECT_EQ(r.code, 0) << r.err;
  for (const char* part : {"BF16 weights", "context 32 · stride 16 · BOS none · EOS left out", "1 documents · 9 tokens",
                           "1 empty", "nats a token", "bits per byte"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
}

// A run is evaluated as it was trained: the same rows give the loss of its own last evaluation.
TEST_F(Eval, ARunReadsItsOwnValidationData) {
  const std::vector<std::string> trained = {"--train.eval_rows=0", "--precision.weights=bf16"};
  ASSERT_EQ(run("train", trained).code, 0);
  const double own = read_json(folder / "run/result.json")["eval_loss"];
  const VerbResult r = run_verb({"eval", folder / "run", "--device=cpu", "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Json got = Json::parse(r.out);
  EXPECT_EQ(got["context"], 64);
  EXPECT_NEAR(got["loss"].get<double>(), own, 1e-6 * own);
  EXPECT_EQ(r.err, "");
  write_atomic(folder / "text.txt", testing::sample_text(41'000));
  EXPECT_NE(run_verb({"eval", folder / "run", "--device=cpu"}).err.find("not what the run was trained on"),
            std::string::npos);
  expect_refused(run_verb({"eval", kGolden + "llama", "--device=cpu"}), Exit::kUsage, {"no files"});
  ASSERT_EQ(run("train", {"--data.validation_fraction=0", "--restart"}).code, 0);
  expect_refused(run_verb({"eval", folder / "run", "--device=cpu"}), Exit::kUsage, {"without validation data"});
}

TEST_F(Eval, ARunReadsFilesAsItReadItsData) {
  ASSERT_EQ(run("train", {"--data.document_separator=line", "--data.min_document_bytes=3"}).code, 0);
  write_atomic(folder / "t.txt", "abcd\nefg\nhi\n");
  const Json got = figures(folder / "run", folder / "t.txt");
  EXPECT_EQ(got["documents"], 2) << "lines, and none shorter than 3 bytes";
  EXPECT_EQ(got["context"], 64);
  const Json told =
      figures(folder / "run", folder / "t.txt", {"--document_separator=none", "--context=8", "--min_document_bytes=0"});
  EXPECT_EQ(told["documents"], 1);
  EXPECT_EQ(told["context"], 8);
  const VerbResult longer = eval(folder / "run", folder / "t.txt", {"--context=100"});
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_NE(longer.err.find("--context 100 is longer than the 64 tokens of the rows"), std::string::npos) << longer.err;
  EXPECT_NE(longer.out.find("trained on rows of 64"), std::string::npos) << longer.out;
}

TEST_F(Eval, Refuses) {
  const std::string model = kGolden + "llama", text = folder / "text.txt";
  expect_refused(eval(model, text, {"--context=8", "--stride=9"}), Exit::kUsage, {"--stride 9", "8"});
  expect_refused(eval(model, text, {"--context=513"}), Exit::kUsage, {"--context 513", "512"});
  expect_refused(eval(model, folder / "none.txt"), Exit::kInput, {"none.txt"});
  expect_refused(eval(model, text, {"--bos=ab"}), Exit::kUsage, {"--bos", "'ab'"});
  expect_refused(eval(model, text, {"--prompt_key=q"}), Exit::kUsage, {"response_key"});
  expect_refused(eval(folder / "model", text), Exit::kInput, {"model"});
  write_atomic(folder / "one.txt", "a\n");
  expect_refused(eval(model, folder / "one.txt"), Exit::kInput, {"no token to predict"});
}

}  // namespace
}  // namespace mantissa
