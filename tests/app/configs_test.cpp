// Every config that the repository ships is accepted by `mantissa plan`, without its model folder and data.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "app/read_config.h"
#include "base/text.h"
#include "tests/app/verb_run.h"
#include "train/compare.h"

namespace mantissa::testing {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> shipped_configs() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MANTISSA_SOURCE_DIR) / "configs"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Configs : public ::testing::TestWithParam<fs::path> {};

TEST_P(Configs, PlanSaysTokensStepsFlopsAndMemory) {
  const fs::path path = GetParam();
  std::vector<std::string> args = {"plan", path.string(), "--memory-gib", "180"};
  if (path.stem() == "quickstart") args.insert(args.end(), {"--data.train=none", "--data.tokens=4000000"});
  const VerbResult r = run_verb(args);
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part : {"model ", "tokens a pass", "steps ", "FLOPs per token", "total ", "micro-batch"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  EXPECT_EQ(r.out.find("does not fit"), std::string::npos) << r.out;
}

TEST_P(Configs, HeadNamesMachineTimeAndOrigin) {
  const std::string text = text_of(GetParam());
  const std::string head = text.substr(0, text.find("\nrun:"));
  for (const char* part : {"Machine:", "Planned:"}) EXPECT_NE(head.find(part), std::string::npos) << part;
  // Figures of others are told from the project's own.
  if (GetParam().stem() != "quickstart") {
    EXPECT_NE(head.find("Reported elsewhere"), std::string::npos);
  }
}

std::string test_name(const ::testing::TestParamInfo<fs::path>& config) {
  const fs::path relative = fs::relative(config.param, fs::path(MANTISSA_SOURCE_DIR) / "configs");
  return std::regex_replace(fs::path(relative).replace_extension().string(), std::regex("[^A-Za-z0-9]"), "_");
}

INSTANTIATE_TEST_SUITE_P(Shipped, Configs, ::testing::ValuesIn(shipped_configs()), test_name);

std::string planned(const std::string& config, const std::string& line) {
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / config).string();
  const VerbResult r = run_verb({"plan", path, "--memory-gib", "180"});
  const size_t begin = r.out.find(line);
  return begin == std::string::npos ? r.out + r.err : r.out.substr(begin, r.out.find('\n', begin) - begin);
}

// Counts that follow from the reference systems' own figures: 22,206 rows of 4096 tokens, 2,776 steps of 131,072.
TEST(ConfigFigures, AgreeWithTheReferenceSystems) {
  EXPECT_NE(planned("malay/compare.yaml", "data ").find("90,955,776 tokens a pass"), std::string::npos);
  EXPECT_NE(planned("malay/compare.yaml", "steps ").find("2,776 of 131,072 tokens = 363,855,872"), std::string::npos);
  EXPECT_NE(planned("malay/compare.yaml", "model ").find("1,720,574,976"), std::string::npos);
  EXPECT_NE(planned("qwen3-1.8b/phase1.yaml", "model ").find("1,830,395,904"), std::string::npos);
  EXPECT_NE(planned("llama3-8b/bf16.yaml", "model ").find("8,030,261,248"), std::string::npos);
  EXPECT_NE(planned("gpt2/fineweb_edu_fp8.yaml", "model ").find("124,439,808"), std::string::npos);
}

// A GPU that is planned for need not be there.
TEST(ConfigFigures, AGpuThatIsNotThere) {
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "gpu" / "qwen3-1.7b-4096.yaml").string();
  const VerbResult r = run_verb({"plan", path, "--device=h200", "--mfu=0.5"});
  ASSERT_EQ(r.code, 0) << r.err;
  for (const char* part : {"device    NVIDIA H200, assumed: 139.0 GiB free, dense BF16 peak 989.5 TFLOP/s",
                           "micro-batch 8 rows x 2 accumulation", "context and libraries", "50.0% of 1 x 989.5"})
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  // The memory of another board.
  EXPECT_NE(run_verb({"plan", path, "--device=h100"}).out.find("of 79.0 GiB"), std::string::npos);
  EXPECT_NE(run_verb({"plan", path, "--device=h100", "--memory-gib=60"}).out.find("of 60.0 GiB"), std::string::npos);
  EXPECT_NE(run_verb({"plan", path, "--device=h300"}).err.find("h200"), std::string::npos);
}

// What the targets say: full fine-tuning at 1024 with block recompute.
TEST(ConfigFigures, FineTunesFitOneGpu) {
  const auto total = [](const std::string& config, const char* device, const std::string& more) {
    const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "gpu" / config).string();
    return run_verb({"plan", path, std::string("--device=") + device, more});
  };
  for (const char* state : {"8bit", "bf16"})
    for (const char* config : {"llama3.1-8b-finetune.yaml", "qwen2.5-14b-finetune.yaml"}) {
      const bool small = std::string(config).starts_with("llama");
      const VerbResult r = total(config, small ? "h100" : "h200", std::string("--optimizer.state=") + state);
      EXPECT_EQ(r.code, 0) << config << " " << state << "\n" << r.err;
    }
  EXPECT_EQ(total("qwen2.5-14b-finetune.yaml", "h100", "--optimizer.state=8bit").code, static_cast<int>(Exit::kMemory));
}

// `./run demo --quick` says how much of the demo it leaves out.
TEST(ConfigFigures, TheQuickDemoIsThePartOfTheDemoThatItSays) {
  const std::string run = text_of(fs::path(MANTISSA_SOURCE_DIR) / "run");
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "quickstart.yaml").string();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(run, found, std::regex(R"(quick=\('--([^']*)' --([^) ]*)\))")));
  const TrainConfig whole = read_train_config(path, {}, {}),
                    quick = read_train_config(path, {found[1].str(), found[2].str()}, {});
  const auto shares =
      fmt::format("quick: {} of the demo's {} rows (scope {} alone), {} of its {} steps", compare_rows(quick).size(),
                  compare_rows(whole).size(), join(quick.compare.scopes, ", "), quick.steps(0), whole.steps(0));
  EXPECT_NE(run.find(shares), std::string::npos) << shares;
}

// The reference's own example warms up for 2,000 of 1,760 steps.
TEST(ConfigFigures, AScheduleThatCannotFitIsRefusedByName) {
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "gpt2" / "fineweb_edu_fp8.yaml").string();
  const VerbResult r = run_verb({"plan", path, "--train.steps=1760"});
  EXPECT_EQ(r.code, static_cast<int>(Exit::kUsage));
  EXPECT_NE(r.err.find("schedule.warmup_steps: 2000 is longer than the run of 1760 steps"), std::string::npos) << r.err;
}

TEST(ConfigFigures, RanksShareTheRowsOfAStep) {
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "qwen3-1.8b" / "phase1.yaml").string();
  const VerbResult r = run_verb({"plan", path, "--memory-gib", "180", "--ranks", "8"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("micro-batch 64 rows x 4 accumulation on each of 8 devices"), std::string::npos) << r.out;
}

// Sizes beside a model.init must be the folder's.
TEST(ConfigModel, SizesThatDifferFromTheFolderAreRefused) {
  const std::string folder = (fs::path(MANTISSA_SOURCE_DIR) / "tests" / "golden" / "qwen3").string();
  const std::string path = (fs::path(MANTISSA_SOURCE_DIR) / "configs" / "quickstart.yaml").string();
  const VerbResult r = run_verb({"plan", path, "--model.init=" + folder, "--data.train=none", "--data.tokens=4000000"});
  EXPECT_EQ(r.code, static_cast<int>(Exit::kUsage));
  EXPECT_NE(r.err.find("config.json has"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace mantissa::testing
