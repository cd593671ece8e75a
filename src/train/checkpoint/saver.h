// Saving beside training: the state is copied between two steps, then written by a thread. Where there is no room for
// the copy, it is written between the steps.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "train/checkpoint/store.h"

namespace mantissa {

struct SaverOptions {
  KeepRules keep;
  // The state is copied and written beside training; else training stands still until it is written.
  bool beside = true;
  int64_t file_bytes = kCheckpointFileBytes;
  // Waits between tries of a save that the disk refused; after the last one it has failed.
  std::vector<double> retry_seconds = {1, 2, 4, 8, 16};
};

// 1, 2, 4, ... seconds that make `patience` together; a shorter one is one wait.
std::vector<double> retry_seconds(double patience);

struct SaveReport {
  int64_t step = 0;
  uint64_t bytes = 0;
  double copy_seconds = 0, write_seconds = 0;  // the run stood still; the thread was busy, 0 where there is none
};

class CheckpointSaver {
 public:
  using Visit = std::function<void(const StateVisitor&)>;

  CheckpointSaver(CheckpointStore store, SaverOptions options = {});
  // Ends the thread: a save that is being written is finished, one that waits for the disk is given up. What nobody has
  // asked for by then is said on stderr.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  // Host memory of the copy.
  static int64_t copy_bytes(const Visit& visit);

  // Takes the memory of the copy beside training, so that the first save need not wait for its pages.
  void reserve(int64_t bytes);
  // Copies the state and returns; the thread writes step_N and prunes. Waits for the save before. `best`: the step that
  // no rule removes. Exit::kStorage when that one failed for good.
  void save(int64_t step, Json run, const Visit& visit, std::optional<int64_t> best = std::nullopt);
  // Until nothing is being written. Exit::kStorage when it failed for good.
  void wait();
  // Throws as wait() does, without waiting.
  void poll();

  // Since the last call: saves that are durable, and what is to be said.
  std::vector<SaveReport> finished();
  std::vector<std::string> warnings();

 private:
  void run(const std::stop_token& stop);
  void make_room();
  void write(const std::stop_token& stop);
  void rethrow();

  CheckpointStore store_;
  SaverOptions options_;
  std::unique_ptr<std::byte[]> copy_;
  int64_t room_ = 0, wanted_ = 0;  // of the copy; wanted_: what the thread is to make room for

  // What the thread writes; the copy is its own while busy_.
  int64_t step_ = 0;
  Json run_;
  std::vector<SavedTensor> tensors_;
  std::optional<int64_t> best_;
  SaveReport report_;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool busy_ = false;
  std::exception_ptr failure_;
  std::vector<SaveReport> finished_;
  std::vector<std::string> warnings_;
  std::jthread thread_;
};

}  // namespace mantissa
