#include "train/memory_plan.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/machine.h"
#include "base/text.h"
#include "base/units.h"
#include "data/loader.h"
#include "train/checkpoint/interval.h"
#include "train/checkpoint/saver.h"
#include "train/run_sampler.h"

namespace mantissa {
namespace {

// Ids, labels, positions and at most one segment a token, I32 each: of the steps that the loader holds and of a
// micro-batch to evaluate.
constexpr int64_t kBatchBytes = 16;

// Fills the ledger and the bytes of a checkpoint for `micro_rows`.
void count(MemoryPlan& plan, const TrainConfig& config, int64_t micro_rows, const PlanTarget& target) {
  Engine engine(config.model, config.precision, engine_options(config, micro_rows, target));
  plan.ledger = engine.plan();
  plan.micro_rows = micro_rows;
  MemoryLedger& ledger = plan.ledger;
  const bool saves = !parse_checkpoint_interval(config.train.checkpoint_every, "train.checkpoint_every").off();
  plan.checkpoint_bytes =
      saves ? CheckpointSaver::copy_bytes([&engine](const StateVisitor& f) { engine.visit_state(f); }) : 0;
  if (const int64_t bytes = RunSampler::planned_bytes(config); bytes > 0) ledger.add("samples", bytes);
  if (target.gpu)
    ledger.add("context and libraries", kGpuContextBytes);
  else
    ledger.add("batches",
               kBatchBytes * (Loader::kHeld * config.batch.tokens + micro_rows * config.data.sequence_length));
}

// Bytes of a device that a run may take; all there are where its size is not known.
int64_t usable(const PlanTarget& target) {
  if (target.bytes == 0) return INT64_MAX;
  return static_cast<int64_t>((target.gpu ? kPlannedGpuShare : kPlannedShare) * static_cast<double>(target.bytes));
}

// Room for the copy of a checkpoint: on a CPU beside the run, else in the host's memory.
bool has_room_for_copy(const MemoryPlan& plan, const PlanTarget& target) {
  if (plan.checkpoint_bytes == 0) return false;
  if (!target.gpu) return plan.ledger.total() + plan.checkpoint_bytes <= usable(target);
  return target.device == nullptr || plan.checkpoint_bytes <= usable({.bytes = machine().memory_bytes});
}

std::string size_text(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

int64_t parse_rows(const TrainConfig& config) {
  const std::string& text = config.batch.micro_batch;
  int64_t rows = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rows);
  if (error != std::errc{} || end != text.data() + text.size() || rows < 1)
    fail(Exit::kUsage, "batch.micro_batch: {}: expected auto or a number of rows", text);
  if (config.rows_per_step() % rows != 0)
    fail(Exit::kUsage, "batch.micro_batch: {} rows do not divide the {} rows of a step", rows, config.rows_per_step());
  return rows;
}

// Changes that make the run fit, least first; the first two that do are told. Each is planned as a run with these keys
// is.
class Ways {
 public:
  Ways(const TrainConfig& config, const PlanTarget& target, int64_t rows)
      : config_(config), target_(target), rows_(rows) {}

  std::vector<std::string> find() {
    TrainConfig block = config_, c = config_;
    block.train.recompute = "block";
    const bool recomputes = config_.train.recompute == "block";
    const bool low = !find_recipe(config_.precision.recipe).full_precision();
    fewer_rows(config_, "");
    if (!recomputes) try_one("train.recompute: block", block);
    if (low && config_.precision.weights == "fp32") {
      c.precision.weights = "bf16";
      try_one("precision.weights: bf16", c);
    }
    if (!recomputes) fewer_rows(block, "train.recompute: block with ");
    if (low && config_.optimizer.state != "8bit") {
      TrainConfig small = block;
      small.optimizer.state = "8bit";
      try_one(recomputes ? "optimizer.state: 8bit" : "train.recompute: block with optimizer.state: 8bit", small);
    }
    const bool given = !config_.model_init.empty();  // sizes are the folder's
    if (!given && ways_.size() < 2) fewer_layers();
    if (ways_.empty()) ways_.push_back(given ? "a smaller model" : "a smaller model.hidden_size or model.vocab_size");
    if (ways_.size() < 2) ways_.push_back("a device with that much");
    return ways_;
  }

 private:
  bool try_one(const std::string& what, const TrainConfig& config) {
    if (ways_.size() == 2) return true;
    const MemoryPlan plan = find_plan(config, target_);
    if (!plan.fits) return false;
    ways_.push_back(fmt::format("{} fits ({})", what, size_text(plan.ledger.total())));
    return true;
  }
  // Half as many, a quarter and so on, and at last one.
  void fewer_rows(const TrainConfig& config, const std::string& before) {
    TrainConfig c = config;
    for (int64_t rows = rows_; rows > std::max<int64_t>(1, least_rows_);) {
      rows = rows % 2 == 0 ? rows / 2 : 1;
      if (rows <= least_rows_ || config.rows_per_step() % rows != 0) continue;
      c.batch.micro_batch = std::to_string(rows);
      if (try_one(fmt::format("{}batch.micro_batch {} -> {}", before, rows_, rows), c)) {
        least_rows_ = rows;
        return;
      }
    }
  }
  void fewer_layers() {
    TrainConfig c = config_;
    const int64_t layers = config_.model.num_hidden_layers;
    for (c.model.num_hidden_layers = layers / 2; c.model.num_hidden_layers >= 1; c.model.num_hidden_layers /= 2)
      if (try_one(fmt::format("model.num_hidden_layers {} -> {}", layers, c.model.num_hidden_layers), c)) return;
  }

  const TrainConfig& config_;
  const PlanTarget& target_;
  int64_t rows_, least_rows_ = 0;
  std::vector<std::string> ways_;
};

}  // namespace

PlanTarget target_of(Device& device, int64_t row_segments) {
  const DeviceInfo& info = device.info();
  return {.bytes = info.free_before_bytes > 0 ? std::min(info.free_before_bytes, info.memory_bytes) : info.memory_bytes,
          .gpu = true,
          .device = &device,
          .row_segments = row_segments};
}

EngineOptions engine_options(const TrainConfig& config, int64_t micro_rows, const PlanTarget& target) {
  const int64_t tokens = micro_rows * config.data.sequence_length;
  return {.tokens = tokens,
          .sequence_length = config.data.sequence_length,
          .recompute = parse_recompute(config.train.recompute),
          .grads = config.optimizer.grads,
          .state = config.optimizer.state,
          .device = target.device,
          .gpu = target.gpu,
          .graphs = config.device.graphs,
          .max_segments = std::min(tokens, micro_rows * target.row_segments)};
}

MemoryPlan find_plan(const TrainConfig& config, const PlanTarget& target) {
  const bool automatic = config.batch.micro_batch == "auto";
  int64_t rows = automatic ? config.rows_per_step() : parse_rows(config);
  const auto halves = [&] { return automatic && rows % 2 == 0; };
  while (target.gpu && halves() && rows * config.data.sequence_length > kGpuMicroTokens) rows /= 2;
  MemoryPlan plan{.device_bytes = target.bytes, .gpu = target.gpu};
  count(plan, config, rows, target);
  while (plan.ledger.total() > usable(target) && halves()) count(plan, config, rows /= 2, target);
  plan.fits = plan.ledger.total() <= usable(target);
  plan.copies = has_room_for_copy(plan, target);
  plan.accumulation = config.rows_per_step() / rows;
  return plan;
}

void refuse_plan(const TrainConfig& config, const MemoryPlan& plan, const PlanTarget& target) {
  const std::vector<std::string> ways = Ways(config, target, plan.micro_rows).find();
  fail(Exit::kMemory, "memory: needs {}, device has {}, of which a run may take {}: {}", size_text(plan.ledger.total()),
       size_text(target.bytes), size_text(usable(target)), join(ways, ", or "));
}

MemoryPlan plan_memory(const TrainConfig& config, const PlanTarget& target) {
  MemoryPlan plan = find_plan(config, target);
  if (!plan.fits) refuse_plan(config, plan, target);
  return plan;
}

}  // namespace mantissa
