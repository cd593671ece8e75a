#include "ops/cuda/gemm/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "tensor/cuda/check.h"

namespace mantissa::cuda {
namespace {

// Measured on an H200 in BF16. Clocks fall for a second under a load of GEMMs and rise within milliseconds of a pause;
// they follow the power that each algorithm draws on these values, so each is led in before it is timed.
constexpr std::chrono::milliseconds kFirstLoad{1500}, kLaterLoad{200};
struct Phase {
  int rounds;  // even: there and back, so that what is left of a drift meets all alike
  double lead_in_us, timed_us;
};
constexpr Phase kSorting{2, 0, 12e3}, kFinal{4, 15e3, 30e3};
constexpr double kStaysIn = 1.05;     // of the best time while sorting, to enter the final phase
constexpr double kMustReach = 0.995;  // of the time of the library's first choice, to replace it

using Clock = std::chrono::steady_clock;

class Event {
 public:
  Event() { MANTISSA_CUDA(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { MANTISSA_CUDA(cudaEventRecord(event_, stream)); }
  double us_since(const Event& begin) const {
    float ms = 0;
    MANTISSA_CUDA(cudaEventElapsedTime(&ms, begin.event_, event_));
    return ms * 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Candidate {
  int index = 0;
  double us = 0, worst_us = 0;  // of one product: summed over rounds but for the worst one, which a stall may have hit
  Event begin, end;
};
using Candidates = std::vector<std::unique_ptr<Candidate>>;

// Products that fill `us`.
int runs_in(double us, double each) { return static_cast<int>(std::clamp(std::ceil(us / each), 1.0, 4000.0)); }

}  // namespace

double GemmSearch::warm_up(Product& product, const GemmAddresses& at, const cublasLtMatmulAlgo_t& algorithm) {
  double each = 1;
  const auto time = [&](int runs) {
    each = device_.time_us([&] {
      for (int i = 0; i < runs; ++i)
        check_cublas(product.enqueue(algorithm, at, device_.stream()), "cublasLtMatmul", device_.last_op());
    }) / runs;
  };
  time(3);
  const Clock::time_point begin = Clock::now();
  const auto load = loaded_ ? kLaterLoad : kFirstLoad;
  while (Clock::now() - begin < load) time(runs_in(30e3, each));
  loaded_ = true;
  return each;
}

int GemmSearch::fastest(Product& product, const GemmAddresses& at, std::span<const cublasLtMatmulAlgo_t> algorithms) {
  // The first run of each loads its kernel.
  Candidates left;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    if (product.enqueue(algorithms[i], at, device_.stream()) != CUBLAS_STATUS_SUCCESS) continue;
    left.push_back(std::make_unique<Candidate>());
    left.back()->index = static_cast<int>(i);
  }
  device_.synchronize();
  if (left.empty()) return -1;
  if (left.size() == 1) return left[0]->index;
  const double each = warm_up(product, at, algorithms[static_cast<size_t>(left[0]->index)]);

  const auto enqueue = [&](const Candidate& candidate, int runs) {
    for (int i = 0; i < runs; ++i)
      check_cublas(product.enqueue(algorithms[static_cast<size_t>(candidate.index)], at, device_.stream()),
                   "cublasLtMatmul", device_.last_op());
  };
  const auto time = [&](const Phase& phase) {
    for (const auto& candidate : left) candidate->us = candidate->worst_us = 0;
    const int runs = std::max(2, runs_in(phase.timed_us, each));
    for (int round = 0; round < phase.rounds; ++round) {
      for (const auto& candidate : left) {
        if (phase.lead_in_us > 0) enqueue(*candidate, runs_in(phase.lead_in_us, each));
        candidate->begin.record(device_.stream());
        enqueue(*candidate, runs);
        candidate->end.record(device_.stream());
      }
      device_.synchronize();
      for (const auto& candidate : left) {
        const double us = candidate->end.us_since(candidate->begin) / runs;
        candidate->us += std::min(us, candidate->worst_us);
        candidate->worst_us = std::max(us, candidate->worst_us);
      }
      std::reverse(left.begin(), left.end());
    }
  };
  const auto best = [&]() -> const Candidate& {
    return **std::min_element(left.begin(), left.end(), [](const auto& x, const auto& y) { return x->us < y->us; });
  };

  time(kSorting);
  const double limit = kStaysIn * best().us;
  std::erase_if(left, [&](const auto& candidate) { return candidate->index != 0 && candidate->us > limit; });
  time(kFinal);
  for (const auto& candidate : left)
    if (candidate->index == 0 && best().us > kMustReach * candidate->us) return 0;
  return best().index;
}

}  // namespace mantissa::cuda
