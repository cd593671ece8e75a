// What train and prepare say of their data: shards that were damaged, runs without validation rows, what is left over.
#include <fstream>

#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class TrainData : public testing::VerbTest {
 protected:
  static bool says(const VerbResult& r, const std::string& part) {
    return r.out.find(part) != std::string::npos || r.err.find(part) != std::string::npos;
  }
};

TEST_F(TrainData, ARunWithoutValidationRowsHasNoEvaluation) {
  const VerbResult none = run("train", {"--data.validation_fraction=0", "--log.console=true"});
  ASSERT_EQ(none.code, 0) << none.err;
  EXPECT_TRUE(says(none, " · no evaluation · ")) << none.out;
  EXPECT_FALSE(says(none, "nan")) << none.out;
  const VerbResult one =
      run("train", {"--data.document_separator=none", "--log.console=true", "--run.dir=" + (folder / "one")});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_TRUE(
      says(one, "no validation rows, so no evaluation: a share (data.validation_fraction 0.05) of one document"))
      << one.out;
  EXPECT_FALSE(says(one, "nan")) << one.out;
}

// The ids of bytes are other tokens' in a model that has its own tokenizer.
TEST_F(TrainData, BytesForAModelOfTokensAreRefused) {
  const std::string model = folder / "first/model", vocabulary = "--model.vocab_size=320";
  ASSERT_EQ(run("train", {vocabulary, "--train.steps=2", "--run.dir=" + (folder / "first")}).code, 0);
  ASSERT_TRUE(exists(model + "/tokenizer.json"));
  const std::vector<std::string> on = {vocabulary, "--train.steps=2", "--model.init=" + model};
  expect_refused(run("train", on), Exit::kUsage,
                 {"data.tokenizer: bytes", "has 320 tokens", "give data.tokenizer: " + model});
  const VerbResult r = run("train", {on[0], on[1], on[2], "--data.tokenizer=" + model, "--data.append_eos=false"});
  EXPECT_EQ(r.code, 0) << r.err;
}

TEST_F(TrainData, AFlippedBitOfAShardIsRefused) {
  ASSERT_EQ(run_verb({"prepare", "--train", folder / "text.txt", "--sequence-length=64", "--out", folder / "out"}).code,
            0);
  const std::string shard = folder / "out/train/shard.00000.mds";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-200, std::ios::end);
  const int byte = file.get();
  file.seekp(-200, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
  file.close();
  expect_refused(run("train", {"--data.train=" + (folder / "out/train"), "--data.validation_fraction=0.1"}),
                 Exit::kInput, {"shard.00000.mds: sha256 is ", "index.json says "});
}

TEST_F(TrainData, PrepareNamesWhatAKilledOneLeft) {
  std::filesystem::create_directories(folder / "out.tmp-1");
  write_atomic(folder / "out.tmp-1/.mantissa-prepare", "");
  const VerbResult r =
      run_verb({"prepare", "--train", folder / "text.txt", "--sequence-length=64", "--out", folder / "out"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(says(r, "leftover   " + (folder / "out.tmp-1") + ": removed")) << r.out;
  EXPECT_FALSE(exists(folder / "out.tmp-1"));
}

}  // namespace
}  // namespace mantissa
