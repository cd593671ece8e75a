// mantissa plan: any recipe for any device, the ledger whether or not it fits, advice that holds when it is followed.
#include <regex>

#include "tensor/device.h"
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::VerbResult;

class Plan : public testing::VerbTest {
 protected:
  static void expect_parts(const VerbResult& r, const std::vector<std::string>& parts) {
    EXPECT_EQ(r.code, 0) << r.err;
    for (const std::string& part : parts) EXPECT_NE(r.out.find(part), std::string::npos) << part << " in: " << r.out;
  }
  static std::string total_of(const std::string& out) {
    std::smatch found;
    return std::regex_search(out, found, std::regex("\n  total +([0-9.]+ [KMGT]iB)")) ? found[1].str()
                                                                                      : "none in " + out;
  }
};

TEST_F(Plan, EveryRecipeForAGpu) {
  for (const char* recipe : {"fp8-delayed", "fp8-blockwise", "mxfp8", "nvfp4"}) {
    const std::string key = std::string("--precision.recipe=") + recipe;
    expect_parts(run("plan", {key, "--device=h100"}), {"NVIDIA H100", "quantized weights", "context and libraries"});
    expect_parts(run("plan", {key, "--device.name=cuda", "--memory-gib=80"}), {"a GPU with 80.0 GiB"});
    const std::string refused =
        std::string(recipe) + " wants a GPU of compute capability 9.0, which NVIDIA B200 is not";
    const bool told = run("plan", {key, "--device=b200"}).out.find(refused) != std::string::npos;
    EXPECT_EQ(told, std::string(recipe) == "fp8-blockwise") << recipe;
  }
}

// Machines of these tests have no GPU, or tests/gpu would be the place.
TEST_F(Plan, AGpuThatIsNotHere) {
  std::string absence;
  if (device_count(absence) > 0) GTEST_SKIP() << "a GPU is here";
  for (const char* recipe : {"bf16", "mxfp8"})
    expect_parts(run("plan", {"--device.name=cuda", std::string("--precision.recipe=") + recipe}),
                 {"a GPU that is not here (device.name: cuda: no GPU", "--device=h100, h200 or b200 plans for one",
                  "held against no GPU"});
}

TEST_F(Plan, TheLedgerWhetherItFitsOrNot) {
  const std::vector<std::string> huge = {"--model.hidden_size=16384", "--model.intermediate_size=65536",
                                         "--model.num_hidden_layers=64", "--model.num_attention_heads=256"};
  const VerbResult here = run("plan", huge);
  expect_parts(here, {"  weights ", "  optimizer ", "  total ", "does not fit this machine"});
  std::vector<std::string> stated = huge;
  stated.push_back("--device=h100");
  const VerbResult there = run("plan", stated);
  EXPECT_EQ(there.code, static_cast<int>(Exit::kMemory));
  EXPECT_NE(there.out.find("  total "), std::string::npos) << there.out;
  EXPECT_NE(there.err.find("memory: needs " + total_of(there.out)), std::string::npos) << there.err;
}

// Each key and value that the message names, given, plans the size that it named.
TEST_F(Plan, AdviceIsTrueWhenFollowed) {
  // Of a GPU, whose plan does not depend on this machine's threads: rows, layers, memory in GiB.
  const std::vector<std::vector<std::string>> cases = {
      {"1024", "4", "0.85"}, {"256", "4", "0.85"}, {"auto", "64", "0.75"}};
  for (const std::vector<std::string>& one : cases) {
    SCOPED_TRACE(one[0]);
    const std::vector<std::string> args = {"--device.name=cuda", "--batch.tokens=65536",
                                           "--batch.micro_batch=" + one[0], "--model.num_hidden_layers=" + one[1],
                                           "--memory-gib=" + one[2]};
    const VerbResult refused = run("plan", args);
    ASSERT_EQ(refused.code, static_cast<int>(Exit::kMemory)) << refused.out;
    const std::regex way(
        "(batch.micro_batch) [0-9]+ -> ([0-9]+) fits \\(([^)]+)\\)|([a-z_.]+): ([a-z0-9]+) fits \\(([^)]+)\\)|"
        "(model.num_hidden_layers) [0-9]+ -> ([0-9]+) fits \\(([^)]+)\\)");
    int followed = 0;
    for (std::sregex_iterator at(refused.err.begin(), refused.err.end(), way), end; at != end; ++at) {
      const int group = (*at)[1].matched ? 1 : (*at)[4].matched ? 4 : 7;
      const std::string prefix = at->prefix().str();
      std::vector<std::string> more = args;
      more.push_back("--" + (*at)[group].str() + "=" + (*at)[group + 1].str());
      if (prefix.ends_with("train.recompute: block with ")) more.push_back("--train.recompute=block");
      const VerbResult r = run("plan", more);
      EXPECT_EQ(r.code, 0) << r.err;
      EXPECT_EQ(total_of(r.out), (*at)[group + 2].str()) << (*at)[0].str();
      ++followed;
    }
    EXPECT_EQ(followed, 2) << refused.err;
  }
}

TEST_F(Plan, MfuAlone) {
  expect_parts(run("plan", {"--mfu=0.4", "--device=h200"}),
               {"40.0% of 1 x 989.5 TFLOP/s, dense BF16 peak of NVIDIA H200"});
  expect_parts(run("plan", {"--mfu=0.4", "--device.name=cuda", "--memory-gib=80"}),
               {"989.5 TFLOP/s", "H100", "assumed"});
  expect_parts(run("plan", {"--mfu=0.4"}), {"40.0% of 1 x ", "BF16 GEMM rate of this CPU, measured"});
}

TEST_F(Plan, SaysWhatIsAssumed) {
  const std::string none = folder / "none.txt";
  expect_parts(run("plan", {"--data.train=" + none, "--data.tokens=1000000", "--train.steps=0"}),
               {"1,000,000 tokens a pass (data.tokens of the config; data.train: " + none + " is not on this disk)"});
  expect_parts(run("plan", {"--batch.tokens=1024", "--ranks=8"}),
               {"8 devices are assumed: a run on more than one is not in this version", "on each of 8 devices"});
  expect_parts(run("plan"), {"give --tokens-per-s or --mfu"});
}

}  // namespace
}  // namespace mantissa
