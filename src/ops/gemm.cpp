#include "ops/gemm.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "ops/cpu_gemm/candidates.h"
#include "ops/cuda/table.h"
#include "ops/gemm_problem.h"

namespace mantissa {

namespace {

using Clock = std::chrono::steady_clock;

// What a GPU takes.
void check_for_gpu(const GemmDesc& desc) {
  for (const GemmSide* side : {&desc.a, &desc.b}) {
    if (!side->scale || side->scale->format.values) continue;
    const GemmScale scale = scale_of(*side);
    const bool blocks = scale == GemmScale::kRow128 || scale == GemmScale::kTile128;
    if (side->transposed || (scale != GemmScale::kTensor && !blocks) ||
        (blocks && side->scale->format.layout != ScaleLayout::kLibrary))
      fail(
          Exit::kUnavailable,
          "gemm: {} is {}{} with scales {}, and the GPU multiplies f32, bf16 and, along rows, FP8 codes with one scale "
          "or with blocks of 128 in the library's layout",
          side == &desc.a ? "a" : "b", side->data, side->transposed ? " transposed" : "", name_of(scale));
  }
  const bool codes = desc.a.scale && !desc.a.scale->format.values;
  if (codes != (desc.b.scale && !desc.b.scale->format.values) || (!codes && desc.a.data.dtype != desc.b.data.dtype))
    fail(Exit::kUnavailable, "gemm: a is {} and b is {}, and the GPU multiplies sides of one dtype or two of codes",
         desc.a.data, desc.b.data);
  describe(desc);
}

// Values in [1, 2): their bits vary as real data's do.
std::vector<std::byte> varied_values(DType dtype, int64_t count) {
  std::vector<std::byte> values(static_cast<size_t>(bytes_of(dtype, count)));
  uint32_t state = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const size_t byte = i % (dtype == DType::kF32 ? 4 : 2), top = dtype == DType::kF32 ? 3 : 1;
    values[i] = static_cast<std::byte>(byte == top ? 0x3f : byte == top - 1 ? 0x80 | (state >> 25) : state >> 24);
  }
  return values;
}

double gflops(int64_t m, int64_t n, int64_t k, double runs, double seconds) {
  return 2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * runs / seconds;
}

double measure_on_gpu(Exec& exec, DType dtype, int64_t m, int64_t n, int64_t k, double seconds) {
  Device& device = *exec.device();
  if (exec.shared_scratch_bytes() < kGemmScratchBytes) exec.reserve_scratch(kGemmScratchBytes);
  const auto release = [&device](void* p) { device.release(p); };
  const auto allocate = [&](int64_t count) {
    return std::unique_ptr<void, decltype(release)>(device.allocate(bytes_of(dtype, count)), release);
  };
  const auto a = allocate(m * k), b = allocate(n * k), c = allocate(m * n);
  const std::vector<std::byte> values = varied_values(dtype, std::max(m, n) * k);
  device.copy_in(a.get(), values.data(), bytes_of(dtype, m * k));
  device.copy_in(b.get(), values.data(), bytes_of(dtype, n * k));
  const GemmDesc desc{.a = GemmSide::plain({a.get(), dtype, {m, k}}),
                      .b = GemmSide::plain({b.get(), dtype, {n, k}}),
                      .c = {c.get(), dtype, {m, n}},
                      .bias = {}};
  gemm(exec, desc);
  // Between two waits lies a tenth of the time, at least one product.
  double runs = 1, total_runs = 0, total_us = 0;
  do {
    const double us = device.time_us([&] {
      for (double i = 0; i < runs; ++i) gemm(exec, desc);
    });
    total_runs += runs, total_us += us;
    runs = std::clamp(seconds * 1e5 * runs / us, 1.0, 1e4);
  } while (total_us < seconds * 1e6);
  return gflops(m, n, k, total_runs, total_us * 1e-6);
}

}  // namespace

void gemm(Exec& exec, const GemmDesc& desc) {
  if (exec.device()) {
    check_for_gpu(desc);
    return exec.gpu().gemm(exec, desc);
  }
  const GemmProblem problem = normalise(desc);
  const GemmCandidate& candidate = choose_gemm(exec, problem);
  candidate.run(exec, candidate.engine, problem);
}

GemmChoice explain_gemm(const Exec& exec, const GemmDesc& desc) {
  if (exec.device()) {
    check_for_gpu(desc);
    return exec.gpu().explain_gemm(exec, desc);
  }
  GemmChoice choice;
  choice.taken = choose_gemm(exec, normalise(desc), &choice.refused).name;
  return choice;
}

double measure_gemm_rate(Exec& exec, DType dtype, int64_t m, int64_t n, int64_t k, double seconds) {
  check(dtype == DType::kF32 || dtype == DType::kBF16, "measure_gemm_rate: dtype is {}, expected f32 or bf16",
        name_of(dtype));
  if (exec.device()) return measure_on_gpu(exec, dtype, m, n, k, seconds);
  const std::vector<std::byte> a = varied_values(dtype, m * k), b = varied_values(dtype, n * k);
  std::vector<std::byte> c(static_cast<size_t>(bytes_of(dtype, m * n)));
  const GemmDesc desc{.a = GemmSide::plain({a.data(), dtype, {m, k}}),
                      .b = GemmSide::plain({b.data(), dtype, {n, k}}),
                      .c = {c.data(), dtype, {m, n}},
                      .bias = {}};
  gemm(exec, desc);
  const Clock::time_point start = Clock::now();
  double runs = 0, elapsed = 0;
  do {
    gemm(exec, desc);
    ++runs;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return gflops(m, n, k, runs, elapsed);
}

}  // namespace mantissa
