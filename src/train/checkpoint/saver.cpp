#include "train/checkpoint/saver.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mantissa {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int64_t kAlignment = 64;
int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::vector<double> retry_seconds(double patience) {
  std::vector<double> waits;
  for (double wait = 1; patience > 0; wait *= 2) {
    waits.push_back(std::min(wait, patience));
    patience -= wait;
  }
  return waits;
}

CheckpointSaver::CheckpointSaver(CheckpointStore store, SaverOptions options)
    : store_(std::move(store)),
      options_(std::move(options)),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

CheckpointSaver::~CheckpointSaver() {
  thread_.request_stop();
  thread_.join();
  for (const std::string& warning : warnings_) fmt::print(stderr, "warning: {}\n", warning);
  try {
    rethrow();
  } catch (const std::exception& error) {
    fmt::print(stderr, "warning: the checkpoint of step {} was not saved: {}\n", step_, error.what());
  }
}

int64_t CheckpointSaver::copy_bytes(const Visit& visit) {
  int64_t bytes = 0;
  visit([&](const StateTensor& state) { bytes += padded(state.tensor.bytes()); });
  return bytes;
}

void CheckpointSaver::reserve(int64_t bytes) {
  if (!options_.beside || bytes <= room_) return;
  {
    const std::lock_guard lock(mutex_);
    check(!busy_, "CheckpointSaver: memory is reserved while a save is being written");
    wanted_ = bytes, busy_ = true;
  }
  changed_.notify_all();
}

void CheckpointSaver::make_room() {
  constexpr int64_t kPage = 4096;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(wanted_));
  for (int64_t at = 0; at < wanted_; at += kPage) copy_[static_cast<size_t>(at)] = std::byte{};
  room_ = std::exchange(wanted_, 0);
}

void CheckpointSaver::save(int64_t step, Json run, const Visit& visit, std::optional<int64_t> best) {
  wait();
  const auto begin = Clock::now();
  step_ = step, run_ = std::move(run), best_ = best;
  tensors_.clear();
  if (!options_.beside) {
    visit([&](const StateTensor& state) {
      tensors_.push_back({state.name, state.tensor.dtype, state.tensor.shape, {}, state});
    });
    report_ = {.step = step};
    write({});
    return;
  }
  if (const int64_t bytes = copy_bytes(visit); bytes > room_) {
    copy_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
    room_ = bytes;
  }
  std::byte* to = copy_.get();
  visit([&](const StateTensor& state) {
    const int64_t bytes = state.tensor.bytes();
    read_state(state, to);
    tensors_.push_back({state.name, state.tensor.dtype, state.tensor.shape, {to, static_cast<size_t>(bytes)}, {}});
    to += padded(bytes);
  });
  report_ = {.step = step, .copy_seconds = since(begin)};
  {
    const std::lock_guard lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
}

void CheckpointSaver::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  rethrow();
}

void CheckpointSaver::poll() {
  const std::lock_guard lock(mutex_);
  rethrow();
}

void CheckpointSaver::rethrow() {
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

std::vector<SaveReport> CheckpointSaver::finished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

std::vector<std::string> CheckpointSaver::warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

void CheckpointSaver::run(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return busy_; })) return;
    }
    std::exception_ptr failure;
    try {
      wanted_ > 0 ? make_room() : write(stop);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
      failure_ = failure;
    }
    changed_.notify_all();
  }
}

// A disk may be full for a while; damage and mistakes do not pass.
void CheckpointSaver::write(const std::stop_token& stop) {
  const auto begin = Clock::now();
  for (size_t tries = 0;; ++tries) {
    try {
      write_checkpoint(store_.place(step_), step_, run_, tensors_, options_.file_bytes);
      break;
    } catch (const Error& error) {
      if (error.code() != Exit::kStorage || tries == options_.retry_seconds.size() || stop.stop_requested()) throw;
      const double seconds = options_.retry_seconds[tries];
      std::unique_lock lock(mutex_);
      warnings_.push_back(
          fmt::format("checkpoint of step {}: {}; tried again in {:g} s", step_, error.what(), seconds));
      changed_.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
    }
  }
  (options_.beside ? report_.write_seconds : report_.copy_seconds) = since(begin);
  report_.bytes = Checkpoint::open(store_.place(step_)).bytes();
  std::string trouble;
  try {
    store_.prune(step_, options_.keep, best_);
  } catch (const Error& error) {
    if (error.code() != Exit::kStorage && error.code() != Exit::kInput) throw;
    trouble = fmt::format("old checkpoints stay: {}", error.what());
  }
  const std::lock_guard lock(mutex_);
  finished_.push_back(report_);
  if (!trouble.empty()) warnings_.push_back(std::move(trouble));
}

}  // namespace mantissa
