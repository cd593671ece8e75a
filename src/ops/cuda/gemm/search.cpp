#include "ops/cuda/gemm/search.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "tensor/cuda/check.h"

namespace mantissa::cuda {
namespace {

// Measured on an H200 in BF16: clocks settle after about a second of GEMMs; times of 30 ms then repeat within 0.5%.
constexpr std::chrono::milliseconds kFirstLoad{1500}, kLaterLoad{300}, kStaysHot{500};
constexpr double kSortingUs = 12e3, kRoundUs = 30e3;
constexpr int kRounds = 2;            // beside the sorting one
constexpr double kStaysIn = 1.06;     // of the best time while sorting, to be timed further
constexpr double kMustReach = 0.995;  // of the time of the library's first choice, to replace it

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
  double us = 0;  // of one product
  Event begin, end;
};
using Candidates = std::vector<std::unique_ptr<Candidate>>;

int runs_in(double us, double each) { return static_cast<int>(std::clamp(us / each, 3.0, 4000.0)); }

}  // namespace

double GemmSearch::warm_up(Product& product, const GemmAddresses& at, const cublasLtMatmulAlgo_t& algorithm) {
  double each = 1;
  const auto time = [&](int runs) {
    each = device_.time_us([&] {
      for (int i = 0; i < runs; ++i) check_cublas(product.enqueue(algorithm, at, device_.stream()), "cublasLtMatmul");
    }) / runs;
  };
  time(3);
  const Clock::time_point begin = Clock::now();
  const bool first = last_load_ == Clock::time_point{}, hot = !first && begin - last_load_ < kStaysHot;
  const auto load = first ? kFirstLoad : hot ? std::chrono::milliseconds{0} : kLaterLoad;
  while (Clock::now() - begin < load) time(runs_in(kRoundUs, each));
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
  const double each = warm_up(product, at, algorithms[static_cast<size_t>(left[0]->index)]);

  // In turn and without a pause, there and back, so that a drift of the clocks meets all alike.
  const auto round = [&](double us) {
    const int runs = runs_in(us, each);
    for (const auto& candidate : left) {
      candidate->begin.record(device_.stream());
      for (int i = 0; i < runs; ++i)
        check_cublas(product.enqueue(algorithms[static_cast<size_t>(candidate->index)], at, device_.stream()),
                     "cublasLtMatmul");
      candidate->end.record(device_.stream());
    }
    device_.synchronize();
    for (const auto& candidate : left) candidate->us += candidate->end.us_since(candidate->begin) / runs;
    std::reverse(left.begin(), left.end());
  };
  const auto faster = [](const auto& x, const auto& y) { return x->us < y->us; };

  round(kSortingUs);
  const double limit = kStaysIn * (*std::min_element(left.begin(), left.end(), faster))->us;
  std::erase_if(left, [&](const auto& candidate) { return candidate->index != 0 && candidate->us > limit; });
  for (const auto& candidate : left) candidate->us = 0;
  for (int i = 0; i < kRounds; ++i) round(kRoundUs);
  last_load_ = Clock::now();

  const Candidate& best = **std::min_element(left.begin(), left.end(), faster);
  for (const auto& candidate : left)
    if (candidate->index == 0 && best.us > kMustReach * candidate->us) return 0;
  return best.index;
}

}  // namespace mantissa::cuda
