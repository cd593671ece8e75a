// What the section `device` takes, on machines without a GPU too; the memory plan of a GPU that is not there.
#include "device/device_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tests/base/support.h"
#include "tests/train/small_run.h"
#include "train/compare.h"
#include "train/memory_plan.h"

namespace mantissa {
namespace {

using testing::error_of;
using testing::TempFolder;

bool gpu_here() {
  std::string absence;
  return device_count(absence) > 0;
}

TEST(DeviceConfig, NamesOfAnotherFormAreRefused) {
  for (const char* name : {"auto", "cpu", "cuda", "cuda:0", "cuda:17"}) {
    const DeviceConfig config{.name = name};
    EXPECT_NO_THROW(config.validate()) << name;
  }
  EXPECT_EQ(DeviceConfig{.name = "cuda:17"}.ordinal(), 17);
  EXPECT_EQ(DeviceConfig{.name = "cuda"}.ordinal(), 0);
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "cuda:1x", "cuda:99999999999", "CPU"}) {
    const std::string message = error_of(Exit::kUsage, [&] { DeviceConfig{.name = name}.validate(); });
    EXPECT_NE(message.find("expected auto, cpu, cuda or cuda:N"), std::string::npos) << message;
  }
}

TEST(DeviceConfig, TheCpuIsTakenWhereItIsNamed) {
  const ChosenDevice chosen = choose_device({.name = "cpu"}, {"bf16"});
  EXPECT_EQ(chosen.gpu, nullptr);
  EXPECT_EQ(chosen.text, "cpu: as device.name says");
}

TEST(DeviceConfig, RecipesSayWhichGpuTheyWant) {
  for (const RecipeEntry& entry : recipe_table()) EXPECT_EQ(gpu_refusal(entry.name), "") << "on a Hopper";
  const RecipeTarget ampere{.gpu = true, .sm = 80}, blackwell{.gpu = true, .sm = 100};
  for (const char* recipe : {"fp8-delayed", "fp8-tensorwise"}) {
    EXPECT_EQ(gpu_refusal(recipe, ampere),
              std::string("recipe ") + recipe + " wants a GPU of compute capability 8.9 or later");
    EXPECT_EQ(gpu_refusal(recipe, blackwell), "");
  }
  EXPECT_EQ(gpu_refusal("fp8-blockwise", blackwell), "recipe fp8-blockwise wants a GPU of compute capability 9.0");
  for (const char* recipe : {"bf16", "fp32", "mxfp8", "nvfp4"})
    for (const RecipeTarget& target : {ampere, blackwell}) EXPECT_EQ(gpu_refusal(recipe, target), "") << recipe;
}

TEST(DeviceConfig, WithoutAGpuTheReasonIsSaid) {
  if (gpu_here()) GTEST_SKIP() << "a GPU is here";
  const ChosenDevice chosen = choose_device({}, {"bf16"});
  EXPECT_EQ(chosen.gpu, nullptr);
  EXPECT_EQ(chosen.name, "cpu");
  EXPECT_TRUE(chosen.text.starts_with("cpu: no GPU: ")) << chosen.text;
  EXPECT_GT(chosen.text.size(), std::string("cpu: no GPU: ").size());
  for (const char* name : {"cuda", "cuda:1"}) {
    const std::string message = error_of(Exit::kUnavailable, [&] { choose_device({.name = name}, {"bf16"}); });
    EXPECT_EQ(message, std::string("device.name: ") + name + ": " + chosen.text.substr(5));
  }
}

TEST(DeviceConfig, TheCacheFollowsTheEnvironment) {
  const auto read = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  const std::string xdg = read("XDG_CACHE_HOME"), home = read("HOME");
  setenv("XDG_CACHE_HOME", "/somewhere", 1);
  EXPECT_EQ(cache_folder(), "/somewhere/mantissa");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "/home/me", 1);
  EXPECT_EQ(cache_folder(), "/home/me/.cache/mantissa");
  unsetenv("HOME");
  EXPECT_EQ(cache_folder(), "");
  if (!xdg.empty()) setenv("XDG_CACHE_HOME", xdg.c_str(), 1);
  if (!home.empty()) setenv("HOME", home.c_str(), 1);
}

TEST(DeviceConfig, PeaksAreThoseOfTheBoardAlone) {
  ASSERT_NE(find_gpu("NVIDIA H200"), nullptr);
  EXPECT_EQ(find_gpu("NVIDIA H200")->bf16_peak_tflops, 989.5);
  EXPECT_EQ(find_gpu("NVIDIA H200 NVL"), nullptr) << "another clock, another peak";
  EXPECT_EQ(find_gpu("NVIDIA H100 PCIe"), nullptr);
}

TrainConfig plan_config() {
  TrainConfig c;
  c.model = testing::small_qwen3(128, 256, 2);
  c.model.vocab_size = 1024;
  c.model.max_position_embeddings = 4096;
  c.data.sequence_length = 4096;
  c.batch.tokens = 32 * 4096;
  c.resolve();
  return c;
}

TEST(GpuPlan, MicroBatchesStayBelowTheBound) {
  TrainConfig c = plan_config();
  const PlanTarget h200{.bytes = int64_t{139} << 30, .gpu = true, .row_segments = 4};
  const MemoryPlan plan = plan_memory(c, h200);
  EXPECT_EQ(plan.micro_rows * c.data.sequence_length, kGpuMicroTokens);
  EXPECT_EQ(plan.accumulation, 4);
  // Of an H200 544 MiB at the most were measured: less would plan too much, twice as much would waste memory.
  EXPECT_GT(plan.ledger.of("context and libraries"), int64_t{544} << 20);
  EXPECT_LE(plan.ledger.of("context and libraries"), int64_t{640} << 20);
  EXPECT_EQ(plan.ledger.of("batches"), 0) << "batches are in the host's memory";
  EXPECT_LE(static_cast<double>(plan.ledger.total()), kPlannedGpuShare * static_cast<double>(h200.bytes));
  // A given micro-batch is taken as it is.
  c.batch.micro_batch = "32";
  EXPECT_EQ(plan_memory(c, h200).accumulation, 1);
  // Rows that cannot be halved.
  c.batch.micro_batch = "auto";
  c.batch.tokens = 3 * 4096;
  EXPECT_EQ(plan_memory(c, h200).micro_rows, 3);
}

TEST(GpuPlan, MicroBatchesShrinkUntilTheyFit) {
  const TrainConfig c = plan_config();
  PlanTarget target{.bytes = int64_t{139} << 30, .gpu = true, .row_segments = 4};
  const MemoryPlan whole = plan_memory(c, target);
  target.bytes = static_cast<int64_t>(static_cast<double>(whole.ledger.total() - 256) / kPlannedGpuShare);
  const MemoryPlan less = plan_memory(c, target);
  EXPECT_LT(less.micro_rows, whole.micro_rows);
  EXPECT_LE(static_cast<double>(less.ledger.total()), kPlannedGpuShare * static_cast<double>(target.bytes));
  target.bytes = kGpuContextBytes;
  const std::string message = error_of(Exit::kMemory, [&] { plan_memory(c, target); });
  EXPECT_NE(message.find(", or "), std::string::npos) << message;
}

TEST(GpuPlan, EightBitMomentsTakeAboutAByteEach) {
  TrainConfig c = plan_config();
  const PlanTarget h200{.bytes = int64_t{139} << 30, .gpu = true};
  c.precision.weights = "bf16";
  const int64_t bf16 = plan_memory(c, h200).ledger.of("optimizer");
  c.optimizer.state = "8bit";
  const int64_t small = plan_memory(c, h200).ledger.of("optimizer");
  EXPECT_LT(small, bf16 * 6 / 10);
  EXPECT_GT(small, bf16 / 2) << "codes of a byte each and their scales";
  c.precision.recipe = "fp32";
  c.precision.weights = "fp32";
  const std::string message = error_of(Exit::kUsage, [&] { c.resolve(); });
  EXPECT_NE(message.find("optimizer.state: 8bit"), std::string::npos) << message;
}

// Rows of one comparison are trained on one kind of device.
TEST(CompareDevice, AnotherKindOfDeviceIsRefused) {
  const TempFolder folder;
  TrainConfig c = testing::small_run(folder, "c");
  c.train.steps = 1;
  CompareHooks stopped;
  size_t begun = 0;
  stopped.row_begins = [&](size_t, size_t, const CompareRowSpec&, bool) { ++begun; };
  stopped.train.stop = [&] { return begun == 2; };
  error_of(Exit::kInterrupted, [&] { run_compare(c, false, stopped); });
  const std::string path = join_path(c.run.dir, "compare.json");
  Json json = read_json(path);
  ASSERT_EQ(json["rows"].size(), 1u);
  json["machine"]["gpu"] = {{"name", "NVIDIA H200"}};
  write_atomic(path, json.dump());
  const std::string message = error_of(Exit::kUsage, [&] { run_compare(c, false, {}); });
  EXPECT_NE(message.find("trained on NVIDIA H200, device.name takes the CPU here"), std::string::npos) << message;
  EXPECT_TRUE(run_compare(c, true, {})) << "--restart trains anew";
}

}  // namespace
}  // namespace mantissa
