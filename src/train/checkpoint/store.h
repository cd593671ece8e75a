// The checkpoints of one run: RUN/checkpoints/step_N. Names, which is newest, which go.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint.h"

namespace mantissa {

// Which checkpoints stay besides the newest.
struct KeepRules {
  int64_t last = 2;   // the newest so many
  int64_t every = 0;  // those whose step is a multiple; 0: none
};

class CheckpointStore {
 public:
  static constexpr const char* kFolder = "checkpoints";

  // `folder` is RUN/checkpoints; it need not be there.
  explicit CheckpointStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string place(int64_t step) const;
  // Those that took their names, ascending. What is no checkpoint is left out.
  std::vector<int64_t> steps() const;
  // The newest that `take` accepts, which reads every byte: restore(), or verify() by default. Of each newer one that
  // is damaged (Exit::kInput) `rejected` hears the reason.
  std::optional<Checkpoint> newest(const std::function<void(const std::string& reason)>& rejected,
                                   const std::function<void(const Checkpoint&)>& take = &Checkpoint::verify) const;

  // After that of `step` was written: removes those of later steps, which the run left when it went back, and of
  // earlier ones what no rule and not `best` keeps. Exit::kStorage.
  void prune(int64_t step, const KeepRules& rules, std::optional<int64_t> best) const;
  // Every checkpoint, the newest first, and the folder where nothing else is in it. Exit::kStorage.
  void remove_all() const;
  // What a killed process left half written or half removed goes. Only for who holds the run's lock.
  void remove_leftovers() const;

 private:
  std::string folder_;
};

}  // namespace mantissa
