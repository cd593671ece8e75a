#include "train/run_setup.h"

#include <algorithm>
#include <cmath>

namespace mantissa {

RunResult result_of(const RunSetup& setup, const Progress& p) {
  const bool steady = p.steady_steps > 0;
  const auto steps = static_cast<double>(steady ? p.steady_steps : setup.steps);
  const auto tokens = static_cast<double>(setup.config.batch.tokens);
  RunResult result{.loss = p.tail_steps > 0 ? p.tail_loss / static_cast<double>(p.tail_steps) : NAN,
                   .eval_loss = p.eval_loss,
                   .tokens_per_s = steps * tokens / (steady ? p.steady_seconds : p.seconds),
                   .memory_pct = setup.memory.percent(),
                   .first_step_seconds = p.first_step_seconds,
                   .memory_planned_bytes = setup.memory.ledger.total(),
                   .steps = p.step,
                   .tokens = p.tokens,
                   .skipped = p.skipped};
  const double per_flop = result.tokens_per_s / (setup.rates.bf16_gflops * 1e9);
  result.mfu = per_flop * setup.flops.mfu;
  result.nanogpt_legacy_v1 = per_flop * setup.flops.nanogpt_legacy_v1;
  result.combined_formula_v2 = per_flop * setup.flops.combined_formula_v2;
  result.component_summation_v2025 = per_flop * setup.flops.component_summation_v2025;
  return result;
}

std::vector<Warning> warnings_of(const RunSetup& setup, const Progress& p) {
  std::vector<Warning> warnings;
  if (p.idle_steps > 0)
    warnings.push_back(
        {fmt::format("{} steps had no token with a label and moved nothing but the decay", p.idle_steps)});
  if (p.skipped > 0)
    warnings.push_back({fmt::format("{} steps were not finite and left out (train.on_nonfinite: skip)", p.skipped)});
  if (p.amax_steps > 1)
    warnings.push_back(
        {fmt::format("{} steps had an amax that is not finite; the first one is named above", p.amax_steps)});
  // Stochastic rounding keeps the mean of an update that moves few of the elements.
  const double unmoved = p.unmoved / static_cast<double>(setup.steps);
  if (unmoved > 0.5 && setup.config.precision.weight_mode() == WeightMode::kBF16)
    warnings.push_back(
        {fmt::format("{:.0f}% of the BF16 weights did not move in an average step: their updates round away; "
                     "precision.weights fp32 or bf16-sr keeps them",
                     100 * unmoved)});
  return warnings;
}

}  // namespace mantissa
