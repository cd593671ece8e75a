#include "data/loader.h"

#include <fmt/core.h>

#include <chrono>

#include "base/error.h"

namespace mantissa {

Loader::Loader(const Dataset& data, const LoaderOptions& options)
    : data_(data),
      options_(options),
      slots_(static_cast<size_t>(kHeld)),
      taken_(options.first_step - 1),
      ready_(options.first_step - 1) {
  check(options.first_step >= 1 && options.accumulation >= 1 && options.micro_rows >= 1,
        "Loader: from step {}, {} x {} rows", options.first_step, options.accumulation, options.micro_rows);
  for (StepBatches& slot : slots_) {
    slot.micro.resize(static_cast<size_t>(options.accumulation));
    for (Batch& batch : slot.micro) batch.reserve(options.micro_rows, data.sequence_length());
  }
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  freed_.notify_one();
  thread_.join();
}

void Loader::work() {
  for (int64_t step = options_.first_step; step <= options_.steps; ++step) {
    {
      // The slot of step - kHeld must not be in use any more.
      std::unique_lock lock(mutex_);
      freed_.wait(lock, [&] { return stop_ || step - taken_ < kHeld; });
      if (stop_) return;
    }
    std::exception_ptr error;
    try {
      in_context(fmt::format("step {}", step), [&] {
        StepBatches& batches = slot(step);
        batches.valid_tokens = 0;
        int64_t first = (step - 1) * options_.accumulation * options_.micro_rows;
        for (Batch& batch : batches.micro) {
          data_.batch(Split::kTrain, first, options_.micro_rows, batch);
          first += options_.micro_rows;
          batches.valid_tokens += batch.valid_tokens;
        }
      });
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error)
        error_ = error;
      else
        ready_ = step;
    }
    filled_.notify_one();
    if (error) return;
  }
}

const StepBatches* Loader::next(const std::function<bool()>& stop) {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  const int64_t step = taken_ + 1;
  check(step <= options_.steps, "Loader: step {} of {}", step, options_.steps);
  taken_ = step;
  freed_.notify_one();
  const auto there = [&] { return ready_ >= step || error_; };
  while (!filled_.wait_for(lock, std::chrono::milliseconds(100), there))
    if (stop && stop()) return nullptr;
  waited_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (ready_ < step) std::rethrow_exception(error_);
  return &slot(step);
}

}  // namespace mantissa
