// The prepare verb: what it prints, previews, refuses and leaves.
#include "base/text.h"
#include "tests/app/verb_run.h"
#include "train/run_train.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class PrepareVerb : public testing::VerbTest {
 protected:
  std::vector<std::string> args(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"prepare", "--train", folder / "text.txt", "--sequence-length", "128"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
};

TEST_F(PrepareVerb, WritesRowsThatTrain) {
  const VerbResult r = run_verb(args({"--out", folder / "out", "--packing=best_fit", "--validation-fraction", "0.05"}));
  ASSERT_EQ(r.code, 0) << r.err;
  expect_parts(r.out, {"read       text · ", "of text", "bytes a token",
                       "tokenizer  bytes · vocabulary 256 · EOS 0 (bytes)", "train      ", "rows of 128", "validation ",
                       "filled", "wrote      " + (folder / "out"), "MB of text a second"});
  for (const char* file : {"train/index.json", "train/mantissa.json", "validation/index.json"})
    EXPECT_TRUE(exists(join_path(folder / "out", file))) << file;

  const std::vector<std::string> mapped = {"--data.train=" + (folder / "out/train"),
                                           "--data.validation=" + (folder / "out/validation"),
                                           "--data.sequence_length=128"};
  const VerbResult trained = run("train", mapped);
  EXPECT_EQ(trained.code, 0) << trained.err;
  const Json info = read_json(folder / "run/run.json");
  EXPECT_EQ(info["data"]["format"], "mds");
  EXPECT_EQ(info["data"]["tokenizer"], "bytes");
  EXPECT_EQ(read_json(folder / "run/result.json")["steps"], 6);
  for (const std::string& line : split(read_text(folder / "run/metrics.jsonl"), '\n'))
    if (line.find("\"loss\"") != std::string::npos && line.find("eval_loss") == std::string::npos) {
      EXPECT_NE(line.find("\"data_wait_s\""), std::string::npos) << line;
    }
  // The flags that it names.
  const size_t flags = r.out.find("to train ");
  ASSERT_NE(flags, std::string::npos) << r.out;
  std::vector<std::string> named;
  for (const std::string& flag : split(r.out.substr(flags + 9, r.out.find('\n', flags) - flags - 9), ' '))
    if (!flag.empty()) named.push_back(flag);
  named.push_back("--run.dir=" + (folder / "named"));
  const VerbResult as_named = run("train", named);
  EXPECT_EQ(as_named.code, 0) << as_named.err;
  EXPECT_EQ(finished_loss(folder / "named"), finished_loss(folder / "run"));
  // Rows of another length are refused with the key.
  expect_refused(run("train", {mapped[0], mapped[1], "--run.dir=" + (folder / "other")}), Exit::kUsage,
                 {"data.sequence_length", "128", "64"});
}

// The same losses, bit for bit, whether the text is read or its prepared rows.
TEST_F(PrepareVerb, TrainingOnRowsEqualsTrainingOnText) {
  ASSERT_EQ(run("train").code, 0);
  const std::string text = read_text(folder / "run/result.json");
  const double loss = Json::parse(text)["loss"].get<double>(), held = Json::parse(text)["eval_loss"].get<double>();
  const VerbResult r = run_verb({"prepare", write_config(config()), "--out", folder / "out"});
  ASSERT_EQ(r.code, 0) << r.err;
  ASSERT_EQ(run("train", {"--data.train=" + (folder / "out"), "--data.split=train",
                          "--data.validation_split=validation", "--run.dir=" + (folder / "mapped")})
                .code,
            0);
  const Json mapped = read_json(folder / "mapped/result.json");
  EXPECT_EQ(mapped["loss"].get<double>(), loss);
  EXPECT_EQ(mapped["eval_loss"].get<double>(), held);
}

TEST_F(PrepareVerb, TakesAConfigAndFlagsOverIt) {
  const VerbResult r = run_verb({"prepare", write_config(config()), "--data.validation_fraction=0",
                                 "--sequence-length=32", "--append-eos=false", "--out", folder / "out"});
  ASSERT_EQ(r.code, 0) << r.err;
  expect_parts(r.out, {"rows of 32", "EOS none"});
  EXPECT_FALSE(exists(folder / "out/validation"));
}

TEST_F(PrepareVerb, PreviewsAndWritesNothing) {
  write_atomic(
      folder / "pairs.jsonl",
      "{\"q\": \"2 + 2?\", \"a\": \"4\"}\n{\"q\": \"a\\ttab\", \"a\": \"long answer with many bytes in it\"}\n");
  const VerbResult r = run_verb({"prepare", "--train", folder / "pairs.jsonl", "--prompt-key=q", "--response-key=a",
                                 "--packing=none", "--sequence-length=48", "--preview=5"});
  ASSERT_EQ(r.code, 0) << r.err;
  expect_parts(r.out, {"of the first 2 documents, 2 rows of 48 tokens (none packing)", "row 0 · 48 tokens · 2 segments",
                       "row 1 · 48 tokens", "segment 1 · tokens 0 to 8 · 2 with a label", "\"2\"", "\"\\t\"", "..."});
  // The position before the response predicts it: byte 10 is the line break behind the prompt, 52 the answer.
  expect_parts(r.out, {"       6       10       52  \"\\n\"\n", "       7       52        0  \"4\"\n"});
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) entries += !entry.path().empty();
  EXPECT_EQ(entries, 2u);
}

TEST_F(PrepareVerb, Refusals) {
  expect_refused(run_verb(args({})), Exit::kUsage, {"--out", "--preview"});
  expect_refused(run_verb({"prepare", "--out", folder / "out"}), Exit::kUsage, {"data.train"});
  expect_refused(run_verb(args({"--out", folder / "out", "--paking=none"})), Exit::kUsage, {"--paking", "--packing"});
  expect_refused(run_verb(args({"--out", folder / "out", "--packing=best"})), Exit::kUsage, {"--packing", "best"});
  expect_refused(run_verb(args({"--out", folder / "out", "--data.packing=none"})), Exit::kUsage,
                 {"--data.packing=none"});
  expect_refused(run_verb(args({"--out", folder.path()})), Exit::kUsage, {"stands there already"});
  expect_refused(run_verb(args({"--out", folder / "text.txt/out"})), Exit::kStorage, {"text.txt"});
  expect_refused(run_verb(args({"--out", folder / "out", "--tokenizer", folder / "none"})), Exit::kInput, {"none"});
  expect_refused(run_verb({"prepare", "--train", folder / "none.txt", "--out", folder / "out"}), Exit::kInput,
                 {"none.txt"});
  expect_refused(run_verb(args({"--preview=0"})), Exit::kUsage, {"--preview"});
  EXPECT_FALSE(exists(folder / "out"));
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) entries += !entry.path().empty();
  EXPECT_EQ(entries, 1u) << "a refusal left something";
}

}  // namespace
}  // namespace mantissa
