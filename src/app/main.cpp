#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "app/verbs.h"
#include "base/descriptor.h"
#include "base/error.h"

namespace {

// libgomp reads how long an idle thread spins before main() begins, and its default of milliseconds makes threads that
// wait hold the core which the thread they wait for needs: on a shared machine a step took six times as long. A few
// microseconds cost an idle machine nothing. What the user has set stays.
void start_with_short_spins(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;  // no /proc: the program runs on with the default
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv(self.c_str(), argv);
}

}  // namespace

int main(int argc, char** argv) {
  if (!mantissa::open_standard_descriptors()) return static_cast<int>(mantissa::Exit::kStorage);
  start_with_short_spins(argv);
  return mantissa::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
}
