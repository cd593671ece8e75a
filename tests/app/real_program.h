// The program itself as a child process, for what a verb in the test's own process cannot show: its descriptors, its
// signals, its limits.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/base/support.h"

namespace mantissa::testing {

struct ProgramResult {
  int code = -1;  // exit code, or minus the signal
  std::string out, err;
};

// Starts `mantissa args`; `prepare` runs in the child before, with stdout and stderr leading to files in `folder`.
inline pid_t start_program(
    const TempFolder& folder, const std::vector<std::string>& args, const std::function<void()>& prepare = [] {}) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (const auto& [fd, name] : {std::pair(STDOUT_FILENO, "stdout"), std::pair(STDERR_FILENO, "stderr")})
    ::dup2(::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), fd);
  prepare();
  std::vector<char*> words = {const_cast<char*>("mantissa")};
  for (const std::string& arg : args) words.push_back(const_cast<char*>(arg.c_str()));
  words.push_back(nullptr);
  ::execv(MANTISSA_PROGRAM, words.data());
  ::_exit(127);
}

inline ProgramResult wait_for(const TempFolder& folder, pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          .out = read_text(folder / "stdout"),
          .err = read_text(folder / "stderr")};
}

inline ProgramResult run_program(
    const TempFolder& folder, const std::vector<std::string>& args, const std::function<void()>& prepare = [] {}) {
  return wait_for(folder, start_program(folder, args, prepare));
}

}  // namespace mantissa::testing
