// What a run computes: one step, one evaluation, and the search for what is not finite.
#include <algorithm>
#include <chrono>

#include "train/forensics.h"
#include "train/trainer.h"

namespace mantissa {
namespace {

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

}  // namespace

MicroBatch Trainer::checked(const Batch& batch) const {
  const auto segments = static_cast<int64_t>(batch.segments.size()) - 1;
  if (segments > most_segments_)
    fail(Exit::kInput,
         "a micro-batch holds {} documents, the graph of a step {}: the rows were counted by a sample; `mantissa "
         "prepare` writes shards that say it exactly",
         segments, most_segments_);
  return view(batch);
}

std::optional<StepReport> Trainer::train_step(Loader& loader, std::vector<TensorError>& errors, const Sink& tell,
                                              const TrainHooks& hooks) {
  const auto begin = std::chrono::steady_clock::now();
  const TrainConfig& config = setup_.config;
  const int64_t step = progress_.step + 1, steps = setup_.steps;
  const StepBatches* const next = loader.next(hooks.stop);
  if (next == nullptr) return std::nullopt;
  const StepBatches& batches = *next;
  const int64_t valid = batches.valid_tokens;
  const int64_t every = config.log.quantization_every;
  const bool measured = every > 0 && (step == 1 || step == steps || step % every == 0);
  errors.clear();
  engine_->begin_step(static_cast<uint32_t>(step));
  for (size_t i = 0; i < batches.micro.size(); ++i)
    engine_->micro_step(checked(batches.micro[i]), valid, config.loss.z_loss, measured && i == 0 ? &errors : nullptr);
  const double loss = valid > 0 ? engine_->sums().loss / static_cast<double>(valid) : NAN;
  AdamwSettings settings = config.optimizer.adamw;
  settings.lr *= config.schedule.factor(step, steps);
  UpdateResult update;
  bool skipped = false;
  try {
    if (valid > 0 && !std::isfinite(loss)) diagnose(step, loss, batches);
    if (const std::string trouble = engine_->amax_trouble(); !trouble.empty() && progress_.amax_steps++ == 0)
      tell(Warning{fmt::format("step {}: {}; the scale before it is kept", step, trouble)});
    update =
        in_context(fmt::format("step {}: the update was not applied", step), [&] { return engine_->update(settings); });
  } catch (const Error& error) {
    if (error.code() != Exit::kNonFinite) throw;
    skip_or_stop(error, step, loss, batches, tell);
    skipped = true;
    update.grad_norm = NAN;
  }
  progress_.skipped_in_a_row = skipped ? progress_.skipped_in_a_row + 1 : 0;

  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double tokens_per_s = static_cast<double>(config.batch.tokens) / seconds;
  progress_.step = step;
  progress_.tokens += config.batch.tokens;
  progress_.rows += config.rows_per_step();
  progress_.unmoved += update.unmoved_share;
  // The first step touches memory for the first time, a measured one does more than train.
  if (step > 1 && !measured) progress_.steady_seconds += seconds, ++progress_.steady_steps;
  if (valid == 0)
    ++progress_.idle_steps;
  else if (!skipped && step > tail_begin(steps))
    progress_.tail_loss += loss, ++progress_.tail_steps;
  return StepReport{.step = step,
                    .steps = steps,
                    .tokens = progress_.tokens,
                    .loss = skipped ? NAN : loss,
                    .grad_norm = update.grad_norm,
                    .lr = settings.lr,
                    .tokens_per_s = tokens_per_s,
                    .mfu = tokens_per_s * setup_.flops.mfu / (setup_.rates.bf16_gflops * 1e9),
                    .data_wait_s = loader.waited(),
                    .skipped = skipped};
}

// Comes back where the step may be left out.
void Trainer::skip_or_stop(const Error& error, int64_t step, double loss, const StepBatches& batches,
                           const Sink& tell) {
  const TrainSection& train = setup_.config.train;
  std::string what = error.what();
  try {
    tell(NonFinite{
        step, std::make_shared<Json>(nonfinite_record(*engine_, batches, step, progress_.rows, loss, error.what()))});
    what += "; nonfinite.json in the run's folder says more";
  } catch (const Error& second) {
    what += fmt::format("; what was to be kept of it could not be written: {}", second.what());
  }
  if (train.on_nonfinite == "stop") fail(Exit::kNonFinite, "{}", what);
  // Without finite weights there is nothing to go on with.
  in_context(what, [&] { engine_->expect_finite_parameters(); });
  if (progress_.skipped_in_a_row >= train.nonfinite_limit)
    fail(Exit::kNonFinite, "{}; the {} steps before it were left out too (train.nonfinite_limit)", what,
         progress_.skipped_in_a_row);
  ++progress_.skipped;
  tell(Warning{fmt::format("{}; the step is left out", what)});
}

bool Trainer::evaluation_due() const {
  const int64_t every = setup_.config.train.eval_every;
  return setup_.data.rows(Split::kValidation) > 0 &&
         ((every > 0 && progress_.step % every == 0) || progress_.step == setup_.steps);
}

std::optional<double> Trainer::evaluate(const TrainHooks& hooks) {
  const int64_t validation = setup_.data.rows(Split::kValidation), wanted = setup_.config.train.eval_rows;
  const int64_t rows = wanted > 0 ? std::min(wanted, validation) : validation, micro_rows = setup_.memory.micro_rows;
  LossSums sums;
  for (int64_t first = 0; first < rows; first += micro_rows) {
    setup_.data.batch(Split::kValidation, first, std::min(micro_rows, rows - first), eval_batch_);
    pad_rows(eval_batch_, micro_rows);
    engine_->evaluate(checked(eval_batch_), sums);
    if (hooks.stop && hooks.stop()) return std::nullopt;
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

}  // namespace mantissa
