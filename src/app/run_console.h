// What train and compare print: the head of a run, progress.
#pragma once

#include <string>

#include "base/console.h"
#include "data/dataset.h"
#include "train/trainer.h"

namespace mantissa {

// Seconds since this process began, as the system counts them.
double process_seconds();

// `device`: what choose_device() took.
void print_machine(Console& console, const MachineRates& rates, const ChosenDevice& device);
void print_data(Console& console, const Dataset& data, const TrainConfig& config);
void print_run(Console& console, Trainer& trainer, const TrainConfig& config);

// What `train` says of its run's course: the start on a GPU, steps, evaluations, samples, warnings. `console` and
// `device`, which is chosen before the first event, must outlive it.
Sink console_sink(Console& console, const TrainConfig& config, const ChosenDevice& device);

// "step   120/694 17.3% | loss 1.5342 | ..."
std::string step_line(const StepReport& report);
// "sample at step 120 | "ROMEO:" -> " I am ...", control characters escaped as in JSON.
std::string sample_line(const SampleReport& report);
// "mfu 52.1% of 989.5 TFLOP/s (...)", or of a CPU "mfu 52.1% of the measured GEMM rate".
std::string mfu_text(double mfu, const MachineRates& rates, const ChosenDevice& device);

}  // namespace mantissa
