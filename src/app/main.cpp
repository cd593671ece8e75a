#include <unistd.h>

#include <cstdlib>

#include "app/verbs.h"

namespace {

// libgomp reads how long an idle thread spins before main() begins, and its default of milliseconds makes threads that wait
// hold the core which the thread they wait for needs: on a shared machine a step took six times as long. A few
// microseconds cost an idle machine nothing. What the user has set stays.
void start_with_short_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "5000", 1);
  execv("/proc/self/exe", argv);
  // Where /proc is not mounted the program runs on with the default.
}

}  // namespace

int main(int argc, char** argv) {
  start_with_short_spins(argv);
  return mantissa::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
}
