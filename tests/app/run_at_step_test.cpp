// RUN@STEP: checkpoints of runs, finished or not, where a model folder can stand.
#include <fstream>

#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;

class RunAtStep : public testing::VerbTest {
 protected:
  // Stopped behind step 4, with checkpoints of steps 2 and 4.
  std::string stopped(const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--train.checkpoint_every=2", "--train.steps=4", "--train.save_weights=false",
                                      "--schedule.name=constant"};
    flags.insert(flags.end(), more.begin(), more.end());
    const VerbResult r = run("train", flags);
    EXPECT_EQ(r.code, 0) << r.err;
    std::filesystem::remove(folder / "run/result.json");
    return folder / "run";
  }
};

TEST_F(RunAtStep, GivesTheWeightsOfThatStep) {
  for (const char* weights : {"fp32", "bf16"}) {
    const std::string mode = std::string("--precision.weights=") + weights;
    std::filesystem::remove_all(folder / "run");
    const std::string name = stopped({mode});
    // The run of two steps that a constant schedule makes the beginning of the other, and its model.
    const std::string two = folder / (std::string("two-") + weights);
    ASSERT_EQ(run("train", {"--run.dir=" + two, "--train.steps=2", "--schedule.name=constant", mode}).code, 0);
    for (const char* step : {"2", "4", "last"}) {
      const std::string out = folder / (std::string("out-") + weights + step);
      const VerbResult r = run_verb({"export", name + "@" + step, out});
      ASSERT_EQ(r.code, 0) << r.err;
      const bool same = read_text(out + "/model.safetensors") == read_text(two + "/model/model.safetensors");
      EXPECT_EQ(same, std::string(step) == "2") << weights << " " << step;
      for (const char* file : {"tokenizer.json", "generation_config.json", "config.json"})
        EXPECT_EQ(read_text(out + "/" + file), read_text(two + "/model/" + file)) << file;
    }
    const VerbResult own = run_verb({"sample", name + "@2", "--prompt=the", "--max-new-tokens=8", "--temperature=0"});
    const VerbResult folder_of = run_verb({"sample", two, "--prompt=the", "--max-new-tokens=8", "--temperature=0"});
    ASSERT_EQ(own.code, 0) << own.err;
    EXPECT_EQ(own.out, folder_of.out);
    // Training from either is the same training.
    for (const auto& [from, into] : {std::pair(name + "@2", "from-step"), std::pair(two + "/model", "from-folder")}) {
      const VerbResult r = run("train", {"--model.init=" + from, "--run.dir=" + (folder / into), "--restart", mode});
      ASSERT_EQ(r.code, 0) << r.err;
    }
    EXPECT_EQ(read_json(folder / "from-step/result.json")["loss"],
              read_json(folder / "from-folder/result.json")["loss"]);
    EXPECT_EQ(read_json(folder / "from-step/run.json")["model"]["init"], name + "@2");
  }
}

TEST_F(RunAtStep, EvalReadsTheRunsOwnData) {
  const std::string name = stopped();
  const VerbResult last = run_verb({"eval", name + "@4", "--json"}), two = run_verb({"eval", name + "@2", "--json"});
  ASSERT_EQ(last.code, 0) << last.err;
  ASSERT_EQ(two.code, 0) << two.err;
  EXPECT_LT(parse_json(last.out, "eval")["loss"].get<double>(), parse_json(two.out, "eval")["loss"].get<double>());
}

TEST_F(RunAtStep, VerifyAndInspectTakeCheckpoints) {
  const std::string name = stopped(), place = name + "/checkpoints/step_4";
  for (const std::string& path : {name + "@4", place}) {
    const VerbResult verified = run_verb({"verify", path});
    EXPECT_EQ(verified.code, 0) << verified.err;
    EXPECT_NE(verified.out.find("checkpoint of step 4: "), std::string::npos) << verified.out;
    const VerbResult inspected = run_verb({"inspect", path});
    EXPECT_EQ(inspected.code, 0) << inspected.err;
    EXPECT_NE(inspected.out.find("step 4 of 4"), std::string::npos) << inspected.out;
    EXPECT_NE(inspected.out.find("masters/"), std::string::npos) << inspected.out;
  }
  std::fstream file(place + "/state-00001.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('\x55');
  file.close();
  expect_refused(run_verb({"verify", name + "@4"}), Exit::kInput, {"state-00001.safetensors: tensor "});
  EXPECT_EQ(run_verb({"verify", name}).code, 3) << "the run's are verified with it";
}

TEST_F(RunAtStep, WhatIsNotThereIsNamed) {
  const std::string name = stopped();
  expect_refused(run_verb({"eval", name + "@3"}), Exit::kInput,
                 {"@3: the run has no checkpoint of that step; there are ", name + "@2, " + name + "@4"});
  expect_refused(run_verb({"sample", (folder / "none") + "@3"}), Exit::kInput, {"none is not there"});
  expect_refused(run("train", {"--model.init=" + name + "@3", "--run.dir=" + (folder / "b")}), Exit::kInput,
                 {"model.init: ", "no checkpoint of that step"});
  expect_refused(run_verb({"eval", name}), Exit::kInput, {"@last names its last checkpoint"});
}

}  // namespace
}  // namespace mantissa
