// What train and compare print: the head of a run, progress, the config they read.
#pragma once

#include <string>
#include <vector>

#include "base/console.h"
#include "data/dataset.h"
#include "train/trainer.h"

namespace mantissa {

// Reads CONFIG with overrides and resolves it. With `print` the config goes to stdout with the origin of each value.
TrainConfig read_train_config(const std::string& path, const std::vector<std::string>& overrides, bool print = false);

void print_machine(Console& console, const MachineRates& rates);
void print_data(Console& console, const Dataset& data, const TrainConfig& config);
void print_run(Console& console, Trainer& trainer, const TrainConfig& config);

// "step   120/694 17.3% | loss 1.5342 | ..."
std::string step_line(const StepReport& report);

}  // namespace mantissa
