#include "ops/gemm.h"

#include <chrono>

#include "ops/gemm_candidates.h"
#include "ops/gemm_problem.h"

namespace mantissa {

void gemm(Exec& exec, const GemmDesc& desc) {
  const GemmProblem problem = normalise(desc);
  const GemmCandidate& candidate = choose_gemm(exec, problem);
  candidate.run(exec, candidate.engine, problem);
}

GemmChoice explain_gemm(const Exec& exec, const GemmDesc& desc) {
  GemmChoice choice;
  choice.taken = choose_gemm(exec, normalise(desc), &choice.refused).name;
  return choice;
}

double measure_gemm_rate(Exec& exec, DType dtype, int64_t m, int64_t n, int64_t k, double seconds) {
  using Clock = std::chrono::steady_clock;
  check(dtype == DType::kF32 || dtype == DType::kBF16, "measure_gemm_rate: dtype is {}, expected f32 or bf16", name_of(dtype));
  // Values in [1, 2): their bits vary as real data's do.
  std::vector<std::byte> a(bytes_of(dtype, m * k)), b(bytes_of(dtype, n * k)), c(bytes_of(dtype, m * n));
  uint32_t state = 1;
  for (auto* side : {&a, &b})
    for (size_t i = 0; i < side->size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const size_t byte = i % (dtype == DType::kF32 ? 4 : 2), top = dtype == DType::kF32 ? 3 : 1;
      (*side)[i] = static_cast<std::byte>(byte == top ? 0x3f : byte == top - 1 ? 0x80 | (state >> 25) : state >> 24);
    }
  const GemmDesc desc{.a = GemmSide::plain({a.data(), dtype, {m, k}}),
                      .b = GemmSide::plain({b.data(), dtype, {n, k}}),
                      .c = {c.data(), dtype, {m, n}},
                      .bias = {}};
  gemm(exec, desc);
  const Clock::time_point start = Clock::now();
  int64_t runs = 0;
  double elapsed = 0;
  do {
    gemm(exec, desc);
    ++runs;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return 2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(runs) / elapsed;
}

}  // namespace mantissa
