#include "train/memory_plan.h"

#include <charconv>

#include "base/error.h"

namespace mantissa {
namespace {

MemoryLedger ledger_of(const TrainConfig& config, int64_t micro_rows) {
  return Engine(config.model, config.precision, engine_options(config, micro_rows)).plan();
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

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

[[noreturn]] void refuse(const TrainConfig& config, int64_t rows, int64_t needed, int64_t device) {
  std::string ways;
  for (int64_t fewer = rows / 2; fewer >= 1; fewer /= 2) {
    if (config.rows_per_step() % fewer != 0) continue;
    const int64_t bytes = ledger_of(config, fewer).total();
    if (bytes > device) continue;
    ways = fmt::format("micro_batch {} -> {} fits ({:.1f} GiB)", rows, fewer, gib(bytes));
    break;
  }
  TrainConfig block = config;
  block.train.recompute = "block";
  const int64_t with_block = ledger_of(block, rows).total();
  if (config.train.recompute != "block" && with_block <= device)
    ways += fmt::format("{}train.recompute: block fits ({:.1f} GiB)", ways.empty() ? "" : ", or ", gib(with_block));
  if (ways.empty()) ways = "a smaller model, bf16 weights or more memory is needed";
  fail(Exit::kMemory, "memory: needs {:.1f} GiB, device has {:.1f}: {}", gib(needed), gib(device), ways);
}

}  // namespace

EngineOptions engine_options(const TrainConfig& config, int64_t micro_rows) {
  return {.tokens = micro_rows * config.data.sequence_length,
          .sequence_length = config.data.sequence_length,
          .recompute = parse_recompute(config.train.recompute),
          .grads = config.optimizer.grads,
          .state = config.optimizer.state};
}

MemoryPlan plan_memory(const TrainConfig& config, int64_t device_bytes) {
  const bool automatic = config.batch.micro_batch == "auto";
  int64_t rows = automatic ? config.rows_per_step() : parse_rows(config);
  MemoryPlan plan{.device_bytes = device_bytes};
  plan.ledger = ledger_of(config, rows);
  while (automatic && plan.ledger.total() > device_bytes && rows % 2 == 0) {
    rows /= 2;
    plan.ledger = ledger_of(config, rows);
  }
  if (plan.ledger.total() > device_bytes) refuse(config, rows, plan.ledger.total(), device_bytes);
  plan.micro_rows = rows;
  plan.accumulation = config.rows_per_step() / rows;
  return plan;
}

}  // namespace mantissa
