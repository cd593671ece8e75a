// mantissa bench on the CPU: its figures are there, its answers to bad input, the table's ops agree with themselves.
#include "tests/app/verb_run.h"

namespace mantissa {
namespace {

using testing::run_verb;
using testing::VerbResult;
using testing::VerbTest;

using BenchVerb = VerbTest;

TEST_F(BenchVerb, OpsVerifiesThenTimes) {
  const std::string file = folder / "ops.json";
  const VerbResult r = run_verb({"bench", "ops", "--device", "cpu", "--tokens", "256", "--seconds", "0.01", "--only",
                                 "rms_norm_fwd GPT-2", "--json", file});
  expect_refused(r, Exit::kUsage, {"--only"});
  const VerbResult norm = run_verb({"bench", "ops", "--device", "cpu", "--tokens", "256", "--seconds", "0.01", "--only",
                                    "layer_norm", "--json", file});
  ASSERT_EQ(norm.code, 0) << norm.err;
  const Json figures = read_json(file);
  ASSERT_EQ(figures["rows"].size(), 3u) << norm.out;  // add and norm, norm, backward
  EXPECT_GT(figures["copy_gb_per_s"], 0.1);
  for (const Json& row : figures["rows"]) {
    EXPECT_EQ(row["error"], 0) << row;  // the CPU's op against itself
    EXPECT_GT(row["us"], 0) << row;
    EXPECT_GT(row["gb_per_s"], 0) << row;
    EXPECT_NE(norm.out.find(row["op"].get<std::string>()), std::string::npos);
  }
}

TEST_F(BenchVerb, GemmChecksAllThreePasses) {
  const std::string file = folder / "gemm.json";
  for (const std::string dtype : {"bf16", "fp32"}) {
    const VerbResult r = run_verb({"bench", "gemm", "--device", "cpu", "--shapes", "96x160x64,33x48x72", "--seconds",
                                   "0.01", "--dtype", dtype, "--json", file});
    ASSERT_EQ(r.code, 0) << r.err;
    const Json figures = read_json(file);
    ASSERT_EQ(figures["rows"].size(), 6u) << r.out;
    for (const Json& row : figures["rows"]) {
      // Nonzero: sums in another order than double's; within the format's rounding.
      EXPECT_LT(row["error"], dtype == "bf16" ? 4e-3 : 1e-6) << row;
      EXPECT_GT(row["error"], 0) << row;
      EXPECT_GT(row["tflops"], 0) << row;
      EXPECT_FALSE(row["algorithm"].get<std::string>().empty()) << row;
    }
  }
}

TEST_F(BenchVerb, StepSaysSpeedFloorAndMemory) {
  const std::string file = folder / "step.json";
  const auto step = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {"bench",  "step", write_config(config()), "--device.name=cpu", "--seconds", "0.05",
                                     "--json", file};
    args.insert(args.end(), more.begin(), more.end());
    return run_verb(args);
  };
  const VerbResult text = step({});
  ASSERT_EQ(text.code, 0) << text.err;
  const Json packed = read_json(file);
  EXPECT_TRUE(packed["packed"]);
  EXPECT_GE(packed["steps"], 3);
  EXPECT_NEAR(packed["first_loss"].get<double>(), std::log(256.0), 0.15 * std::log(256.0));
  EXPECT_GT(packed["tokens_per_s"], 0);
  EXPECT_GT(packed["mfu"], 0);
  EXPECT_GT(packed["floor_share"], 0);
  EXPECT_LT(packed["floor_share"], 1.5);
  EXPECT_GT(packed["planned_bytes"], 0);
  const double per_step = packed["tokens"].get<double>() / packed["step_ms"].get<double>() * 1e3;
  EXPECT_NEAR(packed["tokens_per_s"].get<double>() / per_step, 1, 1e-9);
  for (const char* line : {"speed", "floor", "of floor", "mfu", "memory", "verified"})
    EXPECT_NE(text.out.find(line), std::string::npos) << line << "\n" << text.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));  // a benchmark leaves no run

  const VerbResult random = step({"--random", "--batch.tokens=256", "--batch.micro_batch=2"});
  ASSERT_EQ(random.code, 0) << random.err;
  const Json drawn = read_json(file);
  EXPECT_FALSE(drawn["packed"]);
  EXPECT_EQ(drawn["segment_length"], 64);
  EXPECT_EQ(drawn["accumulation"], 2);
}

TEST_F(BenchVerb, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run_verb({"bench"}).code, 2);
  EXPECT_EQ(run_verb({"bench", "--help"}).code, 0);
  expect_refused(run_verb({"bench", "steps"}), Exit::kUsage, {"steps", "ops, gemm or step"});
  expect_refused(run_verb({"bench", "ops", "--device", "cpu", "--tokens", "1000"}), Exit::kUsage, {"1000", "256"});
  expect_refused(run_verb({"bench", "gemm", "--device", "cpu", "--shapes", "16x16"}), Exit::kUsage, {"16x16", "MxNxK"});
  expect_refused(run_verb({"bench", "gemm", "--device", "cpu", "--shapes", "16x0x16"}), Exit::kUsage, {"16x0x16"});
  expect_refused(run_verb({"bench", "gemm", "--device", "cpu", "--only", "nothing"}), Exit::kUsage, {"nothing"});
  expect_refused(run_verb({"bench", "ops", "--seconds", "0"}), Exit::kUsage, {"--seconds"});
  expect_refused(run_verb({"bench", "step"}), Exit::kUsage, {"config"});
}

}  // namespace
}  // namespace mantissa
