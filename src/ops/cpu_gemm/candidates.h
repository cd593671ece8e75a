// The ordered table of CPU GEMM candidates, best first.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/cpu_gemm/engine.h"

namespace mantissa {

struct GemmCandidate {
  const char* name;
  // "" if the machine (instruction set of exec, CPU, operating system, loaded module) has it, else why not.
  const char* (*missing)(const Exec& exec);
  // "" if it takes the problem, else why not.
  const char* (*refuses)(const GemmProblem& problem);
  const GemmEngine* engine;  // null for a library
  void (*run)(Exec& exec, const GemmEngine* engine, const GemmProblem& problem);
};

std::span<const GemmCandidate> gemm_candidates();

// The first candidate that MANTISSA_GEMM does not exclude and that has and takes the problem; why better ones did not
// is added to `refused`. Throws Exit::kUnavailable if MANTISSA_GEMM names what the machine lacks, Exit::kUsage if it
// names nothing.
const GemmCandidate& choose_gemm(const Exec& exec, const GemmProblem& problem,
                                 std::vector<std::string>* refused = nullptr);

}  // namespace mantissa
