#include "ops/cpu/attention.h"

#include "ops/cpu/attention_flash.h"

namespace mantissa::MANTISSA_ISA_NS {
namespace {

template <class Cell, class E>
bool forward(Exec& exec, const AttentionJob<E>& job) {
  const int64_t group = job.layout.heads / job.layout.kv_heads, depth = round_up(job.layout.head_dim, kSpan<Cell>);
  const auto each = [&](auto&& emit) {
    for (int64_t s = 0; s < job.segment_count; ++s)
      for (int64_t head = 0, heads; head < job.layout.heads; head += heads) {
        heads = min_of(kMaxLaneHeads, group - head % group);
        const int64_t length = job.segments[s + 1] - job.segments[s], chunk = chunk_queries(heads, depth);
        for (int64_t part = 0; part * chunk < length; ++part) {
          const int64_t first = part * chunk, last = min_of(first + chunk, length);
          emit(Unit{static_cast<int32_t>(s), static_cast<int32_t>(head), static_cast<int32_t>(part)},
               heads * (last - first) * (first + last + kKeyBlock));
        }
      }
  };
  return run_units(exec, *job.kernel, each,
                   [&](std::byte* scratch, const Unit& unit) { forward_unit<Cell>(scratch, job, unit); });
}

// A segment whose keys fit a panel is one unit a kv head; a longer one is cut: panels of keys for dK and dV, then
// chunks of queries for dQ, which compute the scores again.
template <class Cell, class E>
bool backward(Exec& exec, const AttentionJob<E>& job) {
  const int64_t depth = round_up(job.layout.head_dim, kSpan<Cell>), panel = Backward<Cell, E>::panel_keys(depth);
  const int64_t group = job.layout.heads / job.layout.kv_heads,
                chunk = chunk_queries(min_of(kMaxLaneHeads, group), depth);
  const auto length_of = [&](int64_t s) { return int64_t{job.segments[s + 1]} - job.segments[s]; };
  const auto panels_of = [&](int64_t length) { return (length + panel - 1) / panel; };
  const auto each = [&](auto&& emit) {
    for (int64_t s = 0; s < job.segment_count; ++s)
      for (int64_t head = 0; head < job.layout.kv_heads; ++head) {
        const int64_t length = length_of(s), panels = panels_of(length);
        const int64_t parts = panels + (panels > 1 ? (length + chunk - 1) / chunk : 0);
        for (int64_t part = 0; part < parts; ++part) {
          const int64_t first = part < panels ? part * panel : (part - panels) * chunk;
          const int64_t last = min_of(first + (part < panels ? panel : chunk), length);
          const int64_t pairs = (last - first) * (part < panels ? 2 * length - first - last : first + last);
          emit(Unit{static_cast<int32_t>(s), static_cast<int32_t>(head), static_cast<int32_t>(part)},
               group * (pairs + (last - first) * kKeyBlock));
        }
      }
  };
  return run_units(exec, *job.kernel, each, [&](std::byte* scratch, const Unit& unit) {
    const int64_t length = length_of(unit.segment), panels = panels_of(length), part = unit.part - panels;
    Backward<Cell, E> gradients(scratch, job, unit);
    if (part < 0)
      gradients.key_gradients(unit.part * panel, min_of((unit.part + 1) * panel, length));
    else
      gradients.query_gradients(part * chunk, min_of((part + 1) * chunk, length));
  });
}

}  // namespace

template <class E>
bool attention_fwd(Exec& exec, const AttentionJob<E>& job) {
  return job.kernel->math == GemmMath::kF32 ? forward<float>(exec, job) : forward<E>(exec, job);
}

template <class E>
bool attention_bwd(Exec& exec, const AttentionJob<E>& job) {
  return job.kernel->math == GemmMath::kF32 ? backward<float>(exec, job) : backward<E>(exec, job);
}

template bool attention_fwd(Exec&, const AttentionJob<bf16>&);
template bool attention_fwd(Exec&, const AttentionJob<float>&);
template bool attention_bwd(Exec&, const AttentionJob<bf16>&);
template bool attention_bwd(Exec&, const AttentionJob<float>&);

}  // namespace mantissa::MANTISSA_ISA_NS
