// What a piece of work costs in a process of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/error.h"

namespace mantissa::testing {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;  // times and memory are not the program's own
#else
inline constexpr bool kSanitized = false;
#endif

struct Cost {
  int code = -1;  // 0, or the exit code of the Error that left
  std::string message;
  double cpu_seconds = 0;
  double megabytes = 0;  // peak resident memory, of the test program's own too
};

template <class Body>
Cost cost_of(Body&& body) {
  int ends[2];
  Cost cost;
  if (pipe(ends) != 0) return cost;
  const pid_t child = fork();
  if (child == 0) {
    int code = 0;
    std::string text;
    try {
      body();
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
      text = error.what();
    }
    if (write(ends[1], text.data(), std::min<size_t>(text.size(), 4000)) < 0) code = 99;
    _exit(code);
  }
  close(ends[1]);
  char buffer[4096];
  for (ssize_t n = 0; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    cost.message.append(buffer, static_cast<size_t>(n));
  close(ends[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  cost.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  cost.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  cost.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  return cost;
}

}  // namespace mantissa::testing
