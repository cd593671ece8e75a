#include "train/memory_plan.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "data/loader.h"
#include "train/run_sampler.h"

namespace mantissa {
namespace {

// Ids, labels, positions and at most one segment a token, I32 each: of the steps that the loader holds and of a
// micro-batch to evaluate.
constexpr int64_t kBatchBytes = 16;

MemoryLedger ledger_of(const TrainConfig& config, int64_t micro_rows, const PlanTarget& target) {
  MemoryLedger ledger = Engine(config.model, config.precision, engine_options(config, micro_rows, target)).plan();
  if (const int64_t bytes = RunSampler::planned_bytes(config); bytes > 0) ledger.add("samples", bytes);
  if (target.gpu)
    ledger.add("context and libraries", kGpuContextBytes);
  else
    ledger.add("batches",
               kBatchBytes * (Loader::kHeld * config.batch.tokens + micro_rows * config.data.sequence_length));
  return ledger;
}

// Bytes of a device that a run may take.
int64_t usable(const PlanTarget& target) {
  return static_cast<int64_t>((target.gpu ? kPlannedGpuShare : kPlannedShare) * static_cast<double>(target.bytes));
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

// Changes that make the run fit, least first; the first two that do are told.
class Ways {
 public:
  Ways(const TrainConfig& config, int64_t rows, const PlanTarget& target)
      : config_(config), rows_(rows), target_(target) {}

  std::vector<std::string> find() {
    TrainConfig block = config_, c = config_;
    block.train.recompute = "block";
    const bool recomputes = config_.train.recompute == "block";
    fewer_rows(config_, "", 1);
    const int64_t least = 2 * found_rows_;
    if (!recomputes) try_one("train.recompute: block", block, rows_);
    if (find_recipe(config_.precision.recipe).bits < 32 && config_.precision.weights == "fp32") {
      c.precision.weights = "bf16";
      try_one("precision.weights: bf16", c, rows_);
    }
    if (!recomputes) fewer_rows(block, "train.recompute: block with ", std::max<int64_t>(1, least));
    if (find_recipe(config_.precision.recipe).bits < 32 && config_.optimizer.state != "8bit") {
      TrainConfig small = block;
      small.optimizer.state = "8bit";
      try_one(recomputes ? "optimizer.state: 8bit" : "train.recompute: block with optimizer.state: 8bit", small, rows_);
    }
    if (ways_.size() < 2) fewer_layers();
    if (ways_.empty()) ways_.push_back("a smaller model.hidden_size or model.vocab_size");
    if (ways_.size() < 2) ways_.push_back("a device with that much");
    return ways_;
  }

 private:
  bool try_one(const std::string& what, const TrainConfig& config, int64_t rows) {
    if (ways_.size() == 2) return true;
    const int64_t bytes = ledger_of(config, rows, target_).total();
    if (bytes > usable(target_)) return false;
    ways_.push_back(fmt::format("{} fits ({})", what, size_text(bytes)));
    return true;
  }
  void fewer_rows(const TrainConfig& config, const std::string& before, int64_t least) {
    for (int64_t rows = rows_ / 2; rows >= least; rows /= 2)
      if (config.rows_per_step() % rows == 0 &&
          try_one(fmt::format("{}batch.micro_batch {} -> {}", before, rows_, rows), config, rows)) {
        found_rows_ = rows;
        return;
      }
  }
  void fewer_layers() {
    TrainConfig c = config_;
    const int64_t layers = config_.model.num_hidden_layers;
    for (c.model.num_hidden_layers = layers / 2; c.model.num_hidden_layers >= 1; c.model.num_hidden_layers /= 2)
      if (try_one(fmt::format("model.num_hidden_layers {} -> {}", layers, c.model.num_hidden_layers), c, rows_)) return;
  }

  const TrainConfig& config_;
  int64_t rows_;
  const PlanTarget& target_;
  int64_t found_rows_ = 0;
  std::vector<std::string> ways_;
};

[[noreturn]] void refuse(const TrainConfig& config, int64_t rows, int64_t needed, const PlanTarget& target) {
  const std::vector<std::string> ways = Ways(config, rows, target).find();
  fail(Exit::kMemory, "memory: needs {}, device has {}, of which a run may take {}: {}", size_text(needed),
       size_text(target.bytes), size_text(usable(target)), join(ways, ", or "));
}

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

MemoryPlan plan_memory(const TrainConfig& config, const PlanTarget& target) {
  const bool automatic = config.batch.micro_batch == "auto";
  int64_t rows = automatic ? config.rows_per_step() : parse_rows(config);
  const auto halves = [&] { return automatic && rows % 2 == 0; };
  while (target.gpu && halves() && rows * config.data.sequence_length > kGpuMicroTokens) rows /= 2;
  MemoryPlan plan{.device_bytes = target.bytes, .gpu = target.gpu};
  plan.ledger = ledger_of(config, rows, target);
  while (plan.ledger.total() > usable(target) && halves()) {
    rows /= 2;
    plan.ledger = ledger_of(config, rows, target);
  }
  if (plan.ledger.total() > usable(target)) refuse(config, rows, plan.ledger.total(), target);
  plan.micro_rows = rows;
  plan.accumulation = config.rows_per_step() / rows;
  return plan;
}

}  // namespace mantissa
