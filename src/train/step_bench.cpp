#include "train/step_bench.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/machine.h"
#include "data/loader.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Polls a device's state until it is destroyed.
class StateSampler {
 public:
  explicit StateSampler(Device& device)
      : thread_([this, &device] {
          for (int tick = 0; !stop_; ++tick) {
            if (tick % kTicks == 0) add(device.state());
            std::this_thread::sleep_for(std::chrono::milliseconds(500 / kTicks));
          }
        }) {}
  ~StateSampler() { end(); }
  StateSampler(const StateSampler&) = delete;
  StateSampler& operator=(const StateSampler&) = delete;

  StateRange end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    StateRange range = range_;
    if (range.samples > 0) range.power_mean /= static_cast<double>(range.samples);
    return range;
  }

 private:
  static constexpr int kTicks = 10;  // in half a second: how fast end() is

  void add(const DeviceState& s) {
    if (!s.absence.empty()) {
      range_.absence = s.absence;
      return;
    }
    StateRange& r = range_;
    r.sm_clock_min = r.samples == 0 ? s.sm_clock_mhz : std::min(r.sm_clock_min, s.sm_clock_mhz);
    r.sm_clock_max = std::max(r.sm_clock_max, s.sm_clock_mhz);
    r.memory_clock_mhz = s.memory_clock_mhz;
    r.temperature_max = std::max(r.temperature_max, s.temperature_c);
    r.power_mean += s.power_w;
    r.power_max = std::max(r.power_max, s.power_w);
    r.power_limit_w = s.power_limit_w;
    if (!s.throttle.empty()) ++r.throttle[s.throttle];
    ++r.samples;
  }

  StateRange range_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// One micro-batch of random tokens, one document a row; the label of a token is the next one.
Batch random_batch(int64_t rows, int64_t length, int64_t vocab, std::mt19937_64& generator) {
  Batch b;
  b.reserve(rows, length);
  b.rows = rows;
  b.sequence_length = length;
  b.segments.push_back(0);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t t = 0; t < length; ++t) {
      b.ids.push_back(static_cast<int32_t>(generator() % static_cast<uint64_t>(vocab)));
      b.positions.push_back(static_cast<int32_t>(t));
    }
    for (int64_t t = 0; t + 1 < length; ++t) b.labels.push_back(b.ids[static_cast<size_t>(row * length + t + 1)]);
    b.labels.push_back(kIgnoredLabel);
    b.segments.push_back(static_cast<int32_t>((row + 1) * length));
  }
  b.valid_tokens = rows * (length - 1);
  return b;
}

// The batches of step after step: the data's, or a few random ones in turn.
class Feed {
 public:
  Feed(const TrainConfig& config, const MemoryPlan& plan, const Dataset* data) {
    if (data) {
      loader_.emplace(
          *data,
          LoaderOptions{.steps = int64_t{1} << 40, .accumulation = plan.accumulation, .micro_rows = plan.micro_rows});
      return;
    }
    std::mt19937_64 generator(static_cast<uint64_t>(config.run.seed));
    for (StepBatches& step : random_)
      for (int64_t i = 0; i < plan.accumulation; ++i) {
        step.micro.push_back(
            random_batch(plan.micro_rows, config.data.sequence_length, config.model.vocab_size, generator));
        step.valid_tokens += step.micro.back().valid_tokens;
      }
  }
  const StepBatches& next() { return loader_ ? loader_->next() : random_[static_cast<size_t>(turn_++ % kSteps)]; }

 private:
  static constexpr int64_t kSteps = 4;
  std::optional<Loader> loader_;
  StepBatches random_[kSteps];
  int64_t turn_ = 0;
};

// An engine of the config with new weights, and its steps.
class Runner {
 public:
  Runner(const TrainConfig& config, const EngineOptions& options, Device* device, Feed& feed)
      : config_(config), device_(device), feed_(feed), engine_(config.model, config.precision, options) {
    engine_.build();
    engine_.exec().state.seed = static_cast<uint64_t>(config.run.seed);
    engine_.initialize(static_cast<uint64_t>(config.run.seed));
  }
  void warm_up() {
    if (device_) engine_.warm_up(view(feed_.next().micro.front()));
  }
  // Seconds of a whole step; the loss and the gradient norm are read back in it.
  double step() {
    const StepBatches& batches = feed_.next();
    const Clock::time_point begin = Clock::now();
    engine_.begin_step(step_++);
    for (const Batch& batch : batches.micro) engine_.micro_step(view(batch), batches.valid_tokens, config_.loss.z_loss);
    norm_ = engine_.update(config_.optimizer.adamw).grad_norm;
    loss_ = engine_.sums().loss / static_cast<double>(std::max<int64_t>(1, batches.valid_tokens));
    const double seconds = seconds_since(begin);
    if (device_) least_free_ = std::min(least_free_, device_->free_bytes());
    return seconds;
  }
  double loss() const { return loss_; }
  double grad_norm() const { return norm_; }
  int64_t least_free() const { return least_free_; }
  Engine& engine() { return engine_; }

 private:
  const TrainConfig& config_;
  Device* device_;
  Feed& feed_;
  Engine engine_;
  uint32_t step_ = 1;
  double loss_ = 0, norm_ = 0;
  int64_t least_free_ = INT64_MAX;
};

void verify(const StepBench& result, int64_t vocab) {
  if (!std::isfinite(result.first_loss)) fail(Exit::kNonFinite, "bench step: the first loss is {}", result.first_loss);
  if (!std::isfinite(result.grad_norm) || result.grad_norm == 0)
    fail(Exit::kNonFinite, "bench step: the gradient norm of the first step is {}", result.grad_norm);
  // Untrained weights know no token from another. A head of N(0, 0.02²) adds about 0.02² H / 2 nats.
  const double uniform = std::log(static_cast<double>(vocab));
  if (std::abs(result.first_loss - uniform) > 0.15 * uniform)
    fail(Exit::kInternal, "bench step: the first loss is {:.4f}, expected about ln(vocabulary) = {:.4f}",
         result.first_loss, uniform);
}

struct PartRow {
  const char* piece;  // of an op's name
  const char* part;
};
// First match wins.
constexpr PartRow kParts[] = {{"fprop", "fprop"},
                              {"dgrad", "dgrad"},
                              {"wgrad", "wgrad"},
                              {"gemm", "gemm"},
                              {"attention_bwd", "attention backward"},
                              {"attention", "attention forward"},
                              {"cross_entropy", "loss"},
                              {"embedding", "embedding"},
                              {"adamw", "optimizer"},
                              {"sum_of_squares", "optimizer"},
                              {"rope", "QK-norm and RoPE"},
                              {"norm", "norm and residual"},
                              {"swiglu", "activation"},
                              {"gelu", "activation"},
                              {"bias", "bias gradients"}};

std::string part_of(const std::string& op) {
  for (const PartRow& row : kParts)
    if (op.find(row.piece) != std::string::npos) return row.part;
  return op;
}

bool is_product(const std::string& part) {
  return part == "fprop" || part == "dgrad" || part == "wgrad" || part == "gemm";
}

}  // namespace

StepProfile summarize_ops(const std::vector<OpTime>& ops) {
  StepProfile profile;
  if (ops.empty()) return profile;
  std::vector<std::string> parts;
  for (const OpTime& op : ops) parts.push_back(part_of(op.name));
  // The head's products: the one before a loss and those that follow it, or the cast of its gradient, at once.
  std::vector<char> head(ops.size(), 0);
  for (size_t i = 0; i < ops.size(); ++i) {
    if (parts[i] != "loss") continue;
    if (i > 0 && is_product(parts[i - 1])) head[i - 1] = 1;
    size_t j = i + 1;
    if (j < ops.size() && parts[j] == "quantize") ++j;
    for (; j < ops.size() && is_product(parts[j]); ++j) head[j] = 1;
  }
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string name = head[i] ? "logits" : parts[i];
    auto at =
        std::find_if(profile.parts.begin(), profile.parts.end(), [&](const StepPart& p) { return p.name == name; });
    if (at == profile.parts.end()) at = profile.parts.insert(at, {.name = name});
    at->us += ops[i].end_us - ops[i].begin_us;
    ++at->calls;
  }
  for (const StepPart& part : profile.parts) profile.ops_us += part.us;
  profile.step_us = ops.back().end_us - ops.front().begin_us;
  return profile;
}

double step_seconds(const TrainConfig& config, const Dataset& data, int64_t steps) {
  const PlanTarget target{.bytes = machine().memory_bytes};
  const MemoryPlan plan = plan_memory(config, target);
  Feed feed(config, plan, &data);
  Runner runner(config, engine_options(config, plan.micro_rows, target), nullptr, feed);
  runner.step();
  double seconds = 0;
  for (int64_t i = 0; i < steps; ++i) seconds += runner.step();
  return seconds / static_cast<double>(steps);
}

StepBench bench_steps(const TrainConfig& config, const Dataset* data, Device* device, const StepBenchOptions& options) {
  const Clock::time_point start = Clock::now();
  const auto tell = [&](const char* what) {
    if (options.progress) options.progress(what, seconds_since(start));
  };
  StepBench result;
  result.packed = data != nullptr;
  result.segment_length = data ? data->report().train.segment_length : static_cast<double>(config.data.sequence_length);
  const int64_t row_segments = data ? std::max<int64_t>(1, data->report().train.most_segments) : 1;
  const PlanTarget target = device ? target_of(*device, row_segments) : PlanTarget{.bytes = machine().memory_bytes};
  result.plan = plan_memory(config, target);
  EngineOptions engine_of = engine_options(config, result.plan.micro_rows, target);
  Feed feed(config, result.plan, data);
  {
    std::optional<StateSampler> sampler;
    Runner runner(config, engine_of, device, feed);
    result.store = runner.engine().params().options();
    tell("memory and weights");
    runner.warm_up();
    tell("plans, searches");
    result.ready_s = seconds_since(start);
    result.first_step_s = runner.step();
    result.first_loss = runner.loss();
    result.grad_norm = runner.grad_norm();
    tell("first step");
    verify(result, config.model.vocab_size);
    for (int64_t i = 0; i < options.warm_steps; ++i) runner.step();
    if (device) sampler.emplace(*device);
    for (const Clock::time_point begin = Clock::now();
         static_cast<int64_t>(result.steps_s.size()) < options.least_steps || seconds_since(begin) < options.seconds;)
      result.steps_s.push_back(runner.step());
    if (sampler) result.state = sampler->end();
    std::sort(result.steps_s.begin(), result.steps_s.end());
    if (!std::isfinite(runner.loss())) fail(Exit::kNonFinite, "bench step: the last loss is {}", runner.loss());
    if (device) {
      const DeviceInfo& info = device->info();
      result.measured_bytes =
          (info.free_before_bytes > 0 ? info.free_before_bytes : info.memory_bytes) - runner.least_free();
      result.gemm_choices = device->gemm_choices();
    }
  }
  if (device && options.profile) {
    // A graph's ops cannot be told apart: the same step once more, enqueued op by op.
    engine_of.graphs = false;
    Runner runner(config, engine_of, device, feed);
    runner.warm_up();
    for (int64_t i = 0; i < options.warm_steps; ++i) runner.step();
    device->start_profile();
    runner.step();
    result.profile = summarize_ops(device->stop_profile());
  }
  return result;
}

}  // namespace mantissa
