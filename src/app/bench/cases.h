// The ops that `bench ops` verifies and times, at the shapes of four models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/bench/stage.h"

namespace mantissa {

// One op on one set of buffers.
struct BenchRun {
  std::function<void(Exec&)> run;
  double bytes = 0;  // each input read once, each output written once
  double flops = 0;  // attention: counted causal; else 0
  int64_t scratch = 0;
  std::vector<Tensor> outputs;
  std::shared_ptr<double> scalar;  // what the op returned to the host, if it does
};

struct BenchCase {
  std::string op, shape;
  double bound = 0;  // of the relative error ‖a - b‖ / ‖b‖ against the CPU's op, worst output
  // `tokens` rows; a multiple of 256. Ops on parameters take 16,384 elements a token.
  std::function<BenchRun(BenchStage& stage, int64_t tokens, uint64_t seed)> make;
};

std::vector<BenchCase> bench_cases();

}  // namespace mantissa
