// A run from its config: the folder is taken, the data read, the machine measured, the model trained.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/trainer.h"

namespace mantissa {

// What whoever starts a run decides and is told.
struct RunHooks {
  // The GPU to train on, null for the CPU; asked once, where there is something to train. Empty: the CPU.
  std::function<Device*()> device;
  ProgressHook reading;  // of the data's files
  // A trainer is ready; nothing is allocated for its model yet.
  std::function<void(Trainer&, const Dataset&, const MachineRates&)> started;
  TrainHooks train;
};

// Trains into config.run.folder(), from the newest checkpoint there where one is. Empty: the folder holds this run,
// finished, and the start asks for nothing else. Throws Exit::kUsage when it holds a finished run of another config, or
// a comparison, and what ResumePoint does.
std::optional<RunResult> run_train(const TrainConfig& config, const StartOptions& start, const RunHooks& hooks);

// The same in a folder that is open and holds no finished run, with what the run needs at hand.
RunResult train_into(RunFolder& folder, const TrainConfig& config, const std::optional<ResumePoint>& point,
                     const Dataset& data, const MachineRates& rates, Device* device, const RunHooks& hooks);

// The loss of the finished run in `folder`; NaN where it was not finite, which JSON says as null.
double finished_loss(const std::string& folder);

}  // namespace mantissa
