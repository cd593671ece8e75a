#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/parallel.h"
#include "base/version.h"
#include "ops/gemm.h"
#include "train/model_output.h"

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Fills a batch up to `rows` with rows that no loss counts.
void pad_rows(Batch& b, int64_t rows) {
  while (b.rows < rows) {
    for (int32_t i = 0; i < b.sequence_length; ++i) {
      b.ids.push_back(0);
      b.labels.push_back(kIgnoredLabel);
      b.positions.push_back(i);
    }
    b.segments.push_back(static_cast<int32_t>(b.ids.size()));
    ++b.rows;
  }
}

std::string now() {
  const std::time_t t = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&t, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

constexpr int64_t kSampledSegments = 4;

// Documents that a row holds at most. Of rows that were counted by a sample: more than any of them by far.
int64_t row_segments(const Dataset& data) {
  int64_t most = 1;
  for (const SplitReport* split : {&data.report().train, &data.report().validation})
    most = std::max(most, split->sampled ? kSampledSegments * (split->most_segments + 1) : split->most_segments);
  return most;
}

// The machine as run.json tells it.
Json machine_json(const Exec& exec, const MachineRates& rates, const Device* device, bool graphs) {
  const Machine m = machine();
  Json json = {{"cpu", m.cpu},           {"cores", m.cores},   {"threads", device ? max_threads() : exec.threads()},
               {"features", m.features}, {"system", m.system}, {"memory_bytes", m.memory_bytes}};
  if (device) {
    json["gpu"] = device_json(*device, graphs);
    return json;
  }
  json["isa"] = name_of(exec.isa());
  json["gemm_gflops"] = {{"bf16", rates.bf16_gflops}, {"f32", rates.f32_gflops}};
  return json;
}

}  // namespace

MachineRates measure_rates(Device* device) {
  if (device) {
    const GpuPeak peak = gpu_peak(*device);
    return {.bf16_gflops = peak.gflops, .method = peak.method};
  }
  Exec exec;
  constexpr int64_t kSize = 1536;  // M = N = K: large enough for the steady rate, small enough to start at once
  return {.bf16_gflops = measure_gemm_rate(exec, DType::kBF16, kSize, kSize, kSize, 0.4),
          .f32_gflops = measure_gemm_rate(exec, DType::kF32, kSize, kSize, kSize, 0.4)};
}

Trainer::Trainer(const TrainConfig& config, const Dataset& data, const MachineRates& rates, Device* device)
    : config_(config),
      data_(data),
      rates_(rates),
      device_(device),
      steps_(config.steps(data.tokens(Split::kTrain))),
      sampler_(config, data) {
  if (config.model.vocab_size < data.vocab_size())
    fail(Exit::kUsage, "model.vocab_size: {} is smaller than the tokenizer's {}", config.model.vocab_size,
         data.vocab_size());
  config_.precision.validate();
  config_.schedule.validate(steps_);
  const PlanTarget target = device ? target_of(*device, row_segments(data)) : PlanTarget{machine().memory_bytes};
  memory_ = plan_memory(config_, target);
  flops_ = flops_per_token(config_.model, config_.data.sequence_length, data.report().train.segment_length,
                           parse_recompute(config_.train.recompute));
  const EngineOptions options = engine_options(config_, memory_.micro_rows, target);
  if (device) most_segments_ = options.max_segments;
  engine_ = std::make_unique<Engine>(config_.model, config_.precision, options);
  eval_batch_.reserve(memory_.micro_rows, config_.data.sequence_length);
}

Path Trainer::path_of(const Linear& linear) const {
  return find_recipe(linear.recipe().info().name).path({.gpu = device_ != nullptr}).path;
}

std::string Trainer::path() {
  for (const Linear* linear : engine_->decoder().linears())
    if (path_of(*linear) != Path::kNative) return name_of(path_of(*linear));
  return name_of(Path::kNative);
}

std::string Trainer::rules_note() const {
  const PrecisionConfig& p = config_.precision;
  const std::string note = p.rules_note(config_.model.num_hidden_layers);
  const bool plain = find_recipe(p.recipe).bits >= 16;
  return note.empty() && plain ? p.mixed_note(config_.model.num_hidden_layers) : note;
}

double Trainer::low_precision_share() {
  double low = 0, all = 0;
  for (const Linear* linear : engine_->decoder().linears()) {
    const double flops = static_cast<double>(linear->in_features()) * static_cast<double>(linear->out_features());
    all += flops;
    if (find_recipe(linear->recipe().info().name).quantizes()) low += flops;
  }
  return low / all;
}

Json Trainer::info() {
  const DataReport& d = data_.report();
  const ModelConfig& c = config_.model;
  Json layers = Json::array(), memory = Json::array(), files = Json::array();
  for (const Linear* linear : engine_->decoder().linears()) {
    const RecipeInfo i = linear->recipe().info();
    layers.push_back({{"name", linear->name()},
                      {"recipe", i.name},
                      {"path", name_of(path_of(*linear))},
                      {"input", i.input},
                      {"weight", i.weight},
                      {"grad", i.grad}});
  }
  for (const auto& [purpose, bytes] : memory_.ledger.rows()) memory.push_back({{"purpose", purpose}, {"bytes", bytes}});
  for (const SourceFile& f : d.files) files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"sha256", f.sha256}});
  return {
      {"version", kVersion},
      {"commit", commit()},
      {"started", now()},
      {"name", config_.run.name},
      {"seed", config_.run.seed},
      {"machine", machine_json(engine_->exec(), rates_, device_, config_.device.graphs)},
      {"model",
       {{"arch", c.arch},
        {"init", config_.model_init},
        {"layers", c.num_hidden_layers},
        {"hidden", c.hidden_size},
        {"intermediate", c.intermediate_size},
        {"heads", c.num_attention_heads},
        {"kv_heads", c.num_key_value_heads},
        {"head_dim", c.head_dim},
        {"vocab", c.vocab_size},
        {"parameters", engine_->params().count()},
        {"tied", c.tie_word_embeddings}}},
      {"precision",
       {{"weights", config_.precision.weights},
        {"recipe", config_.precision.recipe},
        {"scope", config_.precision.scope},
        {"path", path()},
        {"low_precision_share", low_precision_share()},
        {"note", rules_note()},
        {"layers", std::move(layers)}}},
      {"data",
       {{"name", d.name},
        {"version", d.version},
        {"sha256", d.files.empty() ? "" : d.files.front().sha256},
        {"files", std::move(files)},
        {"format", d.format},
        {"tokenizer", d.tokenizer},
        {"tokenizer_sha256", d.tokenizer_sha256},
        {"eos", data_.eos()},
        {"eos_origin", d.eos_origin},
        {"documents", d.train.documents},
        {"tokens", d.train.tokens},
        {"rows", d.train.rows},
        {"validation_rows", d.validation.rows},
        {"sequence_length", config_.data.sequence_length},
        {"segment_length", d.train.segment_length},
        {"padding", d.train.padding},
        {"labels", d.train.labels},
        {"unigram_entropy_nats", d.unigram_entropy}}},
      {"batch",
       {{"tokens", config_.batch.tokens}, {"micro_batch", memory_.micro_rows}, {"accumulation", memory_.accumulation}}},
      {"steps", steps_},
      {"flops_per_token",
       {{"mfu", flops_.mfu},
        {"nanogpt_legacy_v1", flops_.nanogpt_legacy_v1},
        {"combined_formula_v2", flops_.combined_formula_v2},
        {"component_summation_v2025", flops_.component_summation_v2025},
        {"hfu", flops_.hfu},
        {"attention_to_ffn_ratio", flops_.attention_to_ffn_ratio}}},
      {"peak", {{"flops", rates_.bf16_gflops * 1e9}, {"method", rates_.method}}},
      {"memory",
       {{"rows", std::move(memory)}, {"total_bytes", memory_.ledger.total()}, {"device_bytes", memory_.device_bytes}}},
  };
}

double Trainer::evaluate(int64_t rows, const TrainHooks& hooks) {
  LossSums sums;
  for (int64_t first = 0; first < rows; first += memory_.micro_rows) {
    data_.batch(Split::kValidation, first, std::min(memory_.micro_rows, rows - first), eval_batch_);
    pad_rows(eval_batch_, memory_.micro_rows);
    engine_->evaluate(checked(eval_batch_), sums);
    if (hooks.stop && hooks.stop())
      fail(Exit::kInterrupted,
           "stopped during an evaluation; the weights are not kept, the same command begins at step 1");
  }
  return sums.valid > 0 ? sums.loss / static_cast<double>(sums.valid) : NAN;
}

void Trainer::diagnose(int64_t step, double loss, const StepBatches& batches) {
  in_context(fmt::format("step {}: loss is {}; the update was not applied", step, loss), [&] {
    for (const Batch& b : batches.micro) engine_->find_nonfinite(view(b));
  });
  fail(Exit::kNonFinite,
       "step {}: loss is {}; the update was not applied: every tensor of the forward is finite, the loss "
       "itself overflowed",
       step, loss);
}

void Trainer::start(const TrainHooks& hooks) {
  engine_->build();
  engine_->exec().state.seed = static_cast<uint64_t>(config_.run.seed);
  if (config_.model_init.empty()) {
    engine_->initialize(static_cast<uint64_t>(config_.run.seed));
  } else {
    const auto begin = Clock::now();
    const int64_t bytes = engine_->load(config_.model_init);
    if (device_) device_->synchronize();
    if (hooks.loaded) hooks.loaded(bytes, since(begin));
  }
  sampler_.build(engine_->exec(), engine_->params());
  if (device_) warm_up();
}

MicroBatch Trainer::checked(const Batch& batch) const {
  const auto segments = static_cast<int64_t>(batch.segments.size()) - 1;
  if (segments > most_segments_)
    fail(Exit::kInput,
         "a micro-batch holds {} documents, the graph of a step {}: the rows were counted by a sample; `mantissa "
         "prepare` writes shards that say it exactly",
         segments, most_segments_);
  return view(batch);
}

// Plans of the libraries, GEMM searches and graphs are made on the first batch of the run, before its first step.
void Trainer::warm_up() {
  data_.batch(Split::kTrain, 0, memory_.micro_rows, eval_batch_);
  engine_->warm_up(checked(eval_batch_));
}

int64_t Trainer::measured_bytes() {
  if (!device_) return 0;
  least_free_ = std::min(least_free_, device_->free_bytes());
  const DeviceInfo& info = device_->info();
  return (info.free_before_bytes > 0 ? info.free_before_bytes : info.memory_bytes) - least_free_;
}

StepReport Trainer::train_step(int64_t step, Loader& loader, std::vector<TensorError>& errors, Tally& tally,
                               const TrainHooks& hooks) {
  const auto begin = Clock::now();
  const StepBatches& batches = loader.next();
  const int64_t valid = batches.valid_tokens;
  const int64_t every = config_.log.quantization_every;
  // No recipe that runs on a GPU quantizes.
  const bool measured = !device_ && every > 0 && (step == 1 || step == steps_ || step % every == 0);
  errors.clear();
  engine_->begin_step(static_cast<uint32_t>(step));
  for (size_t i = 0; i < batches.micro.size(); ++i)
    engine_->micro_step(checked(batches.micro[i]), valid, config_.loss.z_loss, measured && i == 0 ? &errors : nullptr);
  const double loss = valid > 0 ? engine_->sums().loss / static_cast<double>(valid) : NAN;
  if (valid > 0 && !std::isfinite(loss)) diagnose(step, loss, batches);
  if (!engine_->amax_trouble().empty() && tally.amax_steps++ == 0 && hooks.warning)
    hooks.warning(fmt::format("step {}: {}; the scale before it is kept", step, engine_->amax_trouble()));

  AdamwSettings settings = config_.optimizer.adamw;
  settings.lr *= config_.schedule.factor(step, steps_);
  const UpdateResult update =
      in_context(fmt::format("step {}: the update was not applied", step), [&] { return engine_->update(settings); });

  const double seconds = since(begin), tokens_per_s = static_cast<double>(config_.batch.tokens) / seconds;
  tally.unmoved += update.unmoved_share;
  // The first step touches memory for the first time, a measured one does more than train.
  if (step > 1 && !measured) tally.steady_seconds += seconds, ++tally.steady_steps;
  if (valid == 0)
    ++tally.idle_steps;
  else if (step > steps_ - std::max<int64_t>(1, steps_ / 10))
    tally.tail_loss += loss, ++tally.tail_steps;
  return {.step = step,
          .steps = steps_,
          .tokens = step * config_.batch.tokens,
          .loss = loss,
          .grad_norm = update.grad_norm,
          .lr = settings.lr,
          .tokens_per_s = tokens_per_s,
          .mfu = tokens_per_s * flops_.mfu / (rates_.bf16_gflops * 1e9),
          .data_wait_s = loader.waited()};
}

void Trainer::warn_of(const Tally& tally, const TrainHooks& hooks) const {
  if (!hooks.warning) return;
  if (tally.idle_steps > 0)
    hooks.warning(fmt::format("{} steps had no token with a label and moved nothing but the decay", tally.idle_steps));
  if (tally.amax_steps > 1)
    hooks.warning(
        fmt::format("{} steps had an amax that is not finite; the first one is named above", tally.amax_steps));
  // Stochastic rounding keeps the mean of an update that moves few of the elements.
  const double unmoved = tally.unmoved / static_cast<double>(steps_);
  if (unmoved > 0.5 && config_.precision.weight_mode() == WeightMode::kBF16)
    hooks.warning(
        fmt::format("{:.0f}% of the BF16 weights did not move in an average step: their updates round away; "
                    "precision.weights fp32 or bf16-sr keeps them",
                    100 * unmoved));
}

void Trainer::summarize(const Tally& tally, double loop_seconds, RunResult& result) const {
  const bool steady = tally.steady_steps > 0;
  const auto steps = static_cast<double>(steady ? tally.steady_steps : steps_);
  result.loss = tally.tail_steps > 0 ? tally.tail_loss / static_cast<double>(tally.tail_steps) : NAN;
  result.tokens = steps_ * config_.batch.tokens;
  result.tokens_per_s =
      steps * static_cast<double>(config_.batch.tokens) / (steady ? tally.steady_seconds : loop_seconds);
  const double per_flop = result.tokens_per_s / (rates_.bf16_gflops * 1e9);
  result.mfu = per_flop * flops_.mfu;
  result.nanogpt_legacy_v1 = per_flop * flops_.nanogpt_legacy_v1;
  result.combined_formula_v2 = per_flop * flops_.combined_formula_v2;
  result.component_summation_v2025 = per_flop * flops_.component_summation_v2025;
}

RunResult Trainer::run(const std::string& folder, const TrainHooks& hooks) {
  RunFolder own(folder, RunFolder::Kind::kRun);
  return run(own, hooks);
}

RunResult Trainer::run(RunFolder& folder, const TrainHooks& hooks) {
  const auto begin = Clock::now();
  folder.claim();
  if (hooks.warning && !folder.lock_note().empty()) hooks.warning(folder.lock_note());
  const ModelOutput output(config_, data_, folder.path());
  const auto clock = [&] { return hooks.clock ? hooks.clock() : since(begin); };
  // The first batches are filled while the weights are made.
  Loader loader(data_, {.steps = steps_, .accumulation = memory_.accumulation, .micro_rows = memory_.micro_rows});
  Json about = info();
  start(hooks);
  const std::string config = config::dump([this](config::Fields& f) { config_.describe(f); });
  folder.begin(config);
  RunLog log(folder.path());
  log.write_config(config);
  log.write_info(about);
  if (hooks.started) hooks.started(clock());
  const int64_t validation = data_.rows(Split::kValidation);
  const int64_t eval_rows = config_.train.eval_rows > 0 ? std::min(config_.train.eval_rows, validation) : validation;
  RunResult result{.eval_loss = NAN,
                   .memory_pct = memory_.percent(),
                   .memory_planned_bytes = memory_.ledger.total(),
                   .path = path(),
                   .steps = steps_};
  Tally tally;
  std::vector<TensorError> errors;
  const auto first_step = Clock::now();
  for (int64_t step = 1; step <= steps_; ++step) {
    StepReport report = train_step(step, loader, errors, tally, hooks);
    report.seconds = since(first_step);
    if (step == 1) {
      result.first_step_seconds = clock();
      result.memory_measured_bytes = measured_bytes();
      if (device_) {
        about["gemm"] = device_->gemm_choices();
        about["attention"] = device_->attention_plans();
        about["slow_paths"] = device_->slow_paths();
        log.write_info(about);
      }
      if (hooks.stepped) hooks.stepped(result.first_step_seconds);
    }
    report.memory_bytes = result.memory_measured_bytes;
    log.step(report);
    log.quantization(step, errors);
    if (hooks.step) hooks.step(report);
    const bool due = config_.train.eval_every > 0 && step % config_.train.eval_every == 0;
    if (eval_rows > 0 && (due || step == steps_)) {
      const EvalReport evaluation{step, report.tokens, since(first_step), evaluate(eval_rows, hooks)};
      log.evaluation(evaluation);
      if (hooks.evaluation) hooks.evaluation(evaluation);
      result.eval_loss = evaluation.loss;
    }
    if (sampler_.due(step, steps_))
      sampler_.run(step, [&](const SampleReport& sample) {
        log.sample(sample);
        if (hooks.sample) hooks.sample(sample);
      });
    folder.expect_held();
    if (hooks.stop && hooks.stop() && step < steps_)
      fail(Exit::kInterrupted,
           "stopped after step {} of {}; the weights are not kept, the same command begins at step 1", step, steps_);
  }
  warn_of(tally, hooks);
  summarize(tally, since(first_step), result);
  result.memory_measured_bytes = measured_bytes();
  result.model = output.write(engine_->params(), folder);
  result.seconds = since(begin);
  log.finish(result);
  return result;
}

}  // namespace mantissa
