// Going on: which checkpoint a run begins behind, whether it is of this run, and what it says
// (docs/run_checkpoints.md).
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/store.h"
#include "train/run_setup.h"

namespace mantissa {

// What a user decides of a start.
struct StartOptions {
  bool restart = false;  // whatever stands there, begin with step 1
  std::string resume;    // the checkpoint to go on from; "": the newest of the run
};

// What a run that goes on has behind it.
struct Behind {
  Progress progress;
  Json positions;                // of the sinks; null: their files begin here
  bool own = false;              // the run's folder holds this run
  std::string source;            // folder of the run whose files were in `positions`, where it is another one
  std::string from;              // the checkpoint
  std::string started;           // of run.json: when step 1 began
  Json resumed = Json::array();  // of run.json: the steps behind which it went on
  std::vector<std::string> notes;
};

// What a checkpoint says besides its tensors.
Json save_record(const RunSetup& setup, const Progress& progress, const Json& positions, const Json& about);

class ResumePoint {
 public:
  // Opens the checkpoint; nothing where the run begins with step 1. Exit::kUsage: it is of a run with another config
  // (the first key is named), `resume` is of another run than the folder's, or given beside `restart`. Exit::kInput: it
  // cannot be read, or none of those that are there.
  static std::optional<ResumePoint> find(const TrainConfig& config, const StartOptions& options);

  // Rows of a micro-batch that the config leaves open, else 0.
  int64_t micro_rows(const TrainConfig& config) const;
  // The GEMM and attention plans that the run took.
  void set_choices(Device& device) const;
  // Exit::kUsage where the checkpoint was made on another kind of device.
  void expect_device(const Device* device) const;
  // Exit::kInput where the data changed, Exit::kUsage for another length whose schedule was another so far, or for rows
  // of a micro-batch that scales follow from.
  void expect_same(const RunSetup& setup) const;
  // The newest checkpoint of which every byte is right into the engine's state; of each newer one the notes say what is
  // wrong with it. Exit::kInput where there is none.
  Behind fill(Engine& engine, const RunSetup& setup) const;

 private:
  ResumePoint(CheckpointStore store, Checkpoint first, bool own)
      : store_(std::move(store)), first_(std::move(first)), own_(own) {}
  Behind behind(const Checkpoint& checkpoint, const RunSetup& setup) const;

  CheckpointStore store_;
  Checkpoint first_;  // the newest one whose manifest can be read, or the one that was named
  bool named_ = false, own_;
  std::string run_;  // the run's folder
};

// The lines that `behind.positions` counts, from the run where they are into `folder`. False where they are not there.
bool bring_lines(const Behind& behind, const std::string& folder);

}  // namespace mantissa
