// Batches of the steps to come, filled on a thread of their own, so that a step does not wait for its data. What it
// hands out depends on the step alone, never on timing.
//
//   Loader loader(data, {.steps = n, .accumulation = a, .micro_rows = r});
//   for (int64_t step = 1; step <= n; ++step) train(loader.next());
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace mantissa {

// The micro-batches of one step.
struct StepBatches {
  std::vector<Batch> micro;
  int64_t valid_tokens = 0;  // of all of them
};

struct LoaderOptions {
  int64_t first_step = 1, steps = 0;  // first_step to steps are handed out
  int64_t accumulation = 1;           // micro-batches of a step
  int64_t micro_rows = 1;
};

class Loader {
 public:
  static constexpr int64_t kHeld = 3;  // steps in memory: the one in use and two ahead

  // Step s, from 1, takes the training samples from (s - 1) * accumulation * micro_rows on. `data` must outlive the
  // loader. All memory is taken here.
  Loader(const Dataset& data, const LoaderOptions& options);
  // Ends the thread, whatever it does.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's batches, which stay until the next call. What filling them threw is thrown here, with "step N" in
  // front.
  const StepBatches& next() { return *next(nullptr); }
  // The same; null as soon as `stop` says so while they are waited for. It is asked every tenth of a second.
  const StepBatches* next(const std::function<bool()>& stop);
  // Seconds that the last next() waited.
  double waited() const { return waited_; }

 private:
  void work();
  StepBatches& slot(int64_t step) { return slots_[static_cast<size_t>(step % kHeld)]; }

  const Dataset& data_;
  LoaderOptions options_;
  std::vector<StepBatches> slots_;
  std::mutex mutex_;
  std::condition_variable filled_, freed_;
  int64_t taken_, ready_;  // last step handed out; last step filled
  bool stop_ = false;
  std::exception_ptr error_;  // of step ready_ + 1
  double waited_ = 0;
  std::thread thread_;
};

}  // namespace mantissa
