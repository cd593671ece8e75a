// When a run saves its state, and that it does: RUN/checkpoints by the keys of `train`, files in the run's folder that
// ask for it, the saver beside training (docs/run_checkpoints.md).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "train/checkpoint/interval.h"
#include "train/checkpoint/saver.h"
#include "train/config.h"
#include "train/memory_plan.h"
#include "train/progress.h"
#include "train/sinks/sink.h"

namespace mantissa {

class RunCheckpoints {
 public:
  static constexpr const char *kSaveNow = "SAVE_NOW", *kStop = "STOP";

  // Of a run in `folder`, which need not be there. Exit::kStorage where its file system has no room for the checkpoints
  // that stand there at once.
  RunCheckpoints(const TrainConfig& config, std::string folder, const MemoryPlan& plan);

  bool on() const { return !every_.off(); }
  // The folder is the run's own from here on. What killed processes left goes; `behind` is saved already, if any.
  void begin(const Progress* behind);
  // Whether someone put the file STOP there, which goes then.
  bool take_stop();
  // Whether it is time: by steps, by time, for an evaluation that is the best one (keep_best), or because of the file
  // SAVE_NOW, which goes then. `tell` hears why that one is not obeyed.
  bool due(const Progress& progress, const Sink& tell);
  bool saved(const Progress& progress) const { return progress.step == saved_step_ && progress.owes == saved_owes_; }
  // Begins to save; on() holds. Exit::kStorage when the save before it failed for good.
  void save(const Progress& progress, Json run, const CheckpointSaver::Visit& visit);
  // Tells what has been saved by now. Exit::kStorage as above.
  void report(const Sink& tell);
  // Until all is durable, and reports.
  void finish(const Sink& tell);

 private:
  template <class Body>
  void in_disk_context(Body&& body);
  bool take_file(const char* name);

  CheckpointInterval every_;
  KeepRules keep_;
  bool keep_best_, beside_;
  double patience_;
  int64_t state_bytes_;
  std::string folder_;
  CheckpointStore store_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::chrono::steady_clock::time_point last_;  // when the last save began, or the run
  int64_t saved_step_ = -1, saved_owes_ = 0, durable_ = -1;
};

}  // namespace mantissa
