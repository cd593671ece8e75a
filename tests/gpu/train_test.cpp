// Whole runs on the GPU beside the same runs on the CPU: losses, files, bits, memory.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/gpu/on_device.h"
#include "tests/train/small_run.h"
#include "train/compare.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

TrainConfig run_config(const TempFolder& folder, const std::string& name) {
  write_atomic(folder / "text.txt", testing::letters(40'000));
  TrainConfig c;
  c.run.dir = folder / name;
  c.model = testing::small_qwen3(128, 256, 2);
  c.data.train = folder / "text.txt";
  c.data.sequence_length = 128;
  c.batch.tokens = 1024;
  c.batch.micro_batch = "4";
  c.optimizer.adamw.lr = 3e-3;
  c.train.steps = 12;
  c.train.eval_rows = 3;
  c.train.save_weights = false;
  c.resolve();
  return c;
}

struct Course {
  std::vector<double> losses, norms;
  RunResult result;
};

Course train(const TrainConfig& c, Device* device) {
  const Dataset data = Dataset::load(c.data, static_cast<uint64_t>(c.run.seed));
  const MachineRates rates = device ? measure_rates(device) : MachineRates{1, 1};
  Course course;
  TrainHooks hooks;
  hooks.events = [&](const Event& event) {
    if (const auto* r = std::get_if<StepReport>(&event))
      course.losses.push_back(r->loss), course.norms.push_back(r->grad_norm);
  };
  course.result = Trainer(c, data, rates, device).run(c.run.dir, hooks);
  return course;
}

using GpuRun = GpuTest;
using DeterministicGpuRun = DeterministicGpuTest;

// The bounds are the goldens': 2e-4 in FP32, 2e-2 in BF16, whose course drifts from step to step.
TEST_F(GpuRun, LossesAreTheCpus) {
  const TempFolder folder;
  for (const char* recipe : {"fp32", "bf16"}) {
    SCOPED_TRACE(recipe);
    TrainConfig c = run_config(folder, std::string("cpu-") + recipe);
    c.precision.recipe = recipe;
    const Course cpu = train(c, nullptr);
    c.run.dir = folder / (std::string("gpu-") + recipe);
    const Course gpu = train(c, &device());
    ASSERT_EQ(gpu.losses.size(), 12u);
    const double bound = std::string(recipe) == "fp32" ? 2e-4 : 2e-2;
    for (size_t i = 0; i < gpu.losses.size(); ++i) {
      EXPECT_NEAR(gpu.losses[i], cpu.losses[i], bound * cpu.losses[i]) << i;
      EXPECT_NEAR(gpu.norms[i], cpu.norms[i], 5 * bound * cpu.norms[i]) << i;
    }
    EXPECT_NEAR(gpu.result.eval_loss, cpu.result.eval_loss, bound * cpu.result.eval_loss);
    EXPECT_LT(gpu.losses.back(), 0.9 * gpu.losses.front()) << "nothing was learned";
  }
}

TEST_F(GpuRun, FilesSayWhatRanAndWhatItTook) {
  const TempFolder folder;
  const TrainConfig c = run_config(folder, "run");
  const Course course = train(c, &device());
  const Json run = read_json(join_path(c.run.dir, "run.json")), result = read_json(join_path(c.run.dir, "result.json"));
  const Json gpu = run["machine"]["gpu"];
  EXPECT_EQ(gpu["name"], device().info().name);
  EXPECT_EQ(gpu["sm"], device().info().sm);
  EXPECT_EQ(gpu["graphs"], true);
  EXPECT_EQ(gpu["deterministic"], false);
  EXPECT_FALSE(run["machine"].contains("gemm_gflops")) << "a rate of the CPU";
  EXPECT_GT(run["peak"]["flops"].get<double>(), 1e13);
  EXPECT_NE(run["peak"]["method"].get<std::string>().find(device().info().name), std::string::npos);
  EXPECT_GE(run["gemm"].size(), 5u) << run["gemm"].dump();
  EXPECT_EQ(run["precision"]["path"], "native");
  EXPECT_GT(result["first_step_seconds"].get<double>(), 0);
  const auto planned = result["memory_planned_bytes"].get<int64_t>();
  const auto measured = result["memory_measured_bytes"].get<int64_t>();
  EXPECT_GT(measured, int64_t{100} << 20);
  EXPECT_EQ(planned, course.result.memory_planned_bytes);
  // The test program holds other memory of this device, so that the measured bytes are no less than the run's.
  EXPECT_GT(planned, int64_t{100} << 20);
}

TEST_F(GpuRun, ALossThatIsNotFiniteStopsTheRun) {
  const TempFolder folder;
  TrainConfig c = run_config(folder, "nan");
  c.optimizer.adamw.lr = 1e30;
  const std::string message = error_of(Exit::kNonFinite, [&] { train(c, &device()); });
  EXPECT_NE(message.find("step "), std::string::npos) << message;
  EXPECT_NE(message.find("the update was not applied"), std::string::npos) << message;
}

TEST_F(GpuRun, SamplesAndEvaluationsChangeNothing) {
  const TempFolder folder;
  TrainConfig c = run_config(folder, "plain");
  const Course plain = train(c, &device());
  c.run.dir = folder / "sampled";
  c.train.eval_every = 3;
  c.train.sample_every = 4;
  c.sample.prompts = {"abc"};
  c.sample.max_new_tokens = 8;
  const Course sampled = train(c, &device());
  // Attention's backward may add in another order in the fast mode.
  for (size_t i = 0; i < plain.losses.size(); ++i) EXPECT_NEAR(sampled.losses[i], plain.losses[i], 1e-2) << i;
  EXPECT_TRUE(exists(join_path(c.run.dir, "samples.jsonl")));
}

TEST_F(DeterministicGpuRun, TwoRunsGraphsAndRecomputeAgreeInEveryBit) {
  const TempFolder folder;
  TrainConfig c = run_config(folder, "first");
  c.device.deterministic = true;
  for (const char* weights : {"fp32", "bf16-sr"}) {
    c.precision.weights = weights;
    c.device.graphs = true;
    c.train.recompute = "none";
    const Course first = train(c, &device());
    for (const char* recompute : {"none", "norm+act", "block"})
      for (const bool graphs : {true, false}) {
        SCOPED_TRACE(std::string(weights) + " " + recompute + (graphs ? " graphs" : " eager"));
        c.train.recompute = recompute;
        c.device.graphs = graphs;
        const Course again = train(c, &device());
        EXPECT_EQ(again.losses, first.losses);
        EXPECT_EQ(again.norms, first.norms);
        EXPECT_EQ(again.result.eval_loss, first.result.eval_loss);
      }
  }
}

// 8-bit moments train as FP32 ones do.
TEST_F(GpuRun, EightBitMoments) {
  const TempFolder folder;
  TrainConfig c = run_config(folder, "fp32");
  c.precision.weights = "bf16-sr";
  c.optimizer.state = "fp32";
  c.train.steps = 60;
  const Course full = train(c, &device());
  c.run.dir = folder / "8bit";
  c.optimizer.state = "8bit";
  const Course small = train(c, &device());
  EXPECT_NEAR(small.result.loss, full.result.loss, 0.01 * full.result.loss);
  EXPECT_LT(small.result.memory_planned_bytes, full.result.memory_planned_bytes);
}

TEST_F(GpuRun, AComparisonGoesOnOnTheSameDeviceAlone) {
  const TempFolder folder;
  TrainConfig c = run_config(folder, "compare");
  c.train.steps = 3;
  c.precision.recipes = {"bf16"};
  c.compare.weights = {"fp32", "bf16"};
  CompareHooks hooks;
  hooks.device = [this] { return &device(); };
  size_t begun = 0;
  hooks.row_begins = [&](size_t, size_t, const CompareRowSpec&, bool) { ++begun; };
  hooks.train.stop = [&] { return begun == 2; };
  error_of(Exit::kInterrupted, [&] { run_compare(c, false, hooks); });
  const std::string message = error_of(Exit::kUsage, [&] { run_compare(c, false, {}); });
  EXPECT_NE(message.find("trained on " + device().info().name), std::string::npos) << message;
  hooks.train.stop = {};
  EXPECT_TRUE(run_compare(c, false, hooks));
  const Json json = read_json(join_path(c.run.dir, "compare.json"));
  EXPECT_EQ(json["rows"].size(), 8u);
  EXPECT_EQ(json["machine"]["gpu"]["name"], device().info().name);
  EXPECT_GE(json["gemm"].size(), 5u);
}

}  // namespace
}  // namespace mantissa
