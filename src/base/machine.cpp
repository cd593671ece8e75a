#include "base/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include <fmt/core.h>

namespace mantissa {
namespace {

// The value of the first line "key<spaces><separator> value" of a file, "" if there is none.
std::string value_of(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t\"", at + 1);
    const size_t end = line.find_last_not_of(" \t\"");
    return begin == std::string::npos || end < begin ? "" : line.substr(begin, end - begin + 1);
  }
  return {};
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

int64_t usable_memory() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream file(path); file >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

// Words of /proc/cpuinfo's flags that kernels ask for.
std::string cpu_features() {
  const std::string flags = fmt::format(" {} ", value_of("/proc/cpuinfo", "flags", ':'));
  std::string found;
  for (const char* name : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    if (flags.find(fmt::format(" {} ", name)) != std::string::npos)
      found += fmt::format("{}{}", found.empty() ? "" : " ", name);
  return found;
}

}  // namespace

Machine machine() {
  Machine m;
  m.cpu = value_of("/proc/cpuinfo", "model name", ':');
  m.features = cpu_features();
  m.cores = usable_cores();
  m.memory_bytes = usable_memory();
  utsname name{};
  const std::string kernel = uname(&name) == 0 ? fmt::format("{} {}", name.sysname, name.release) : "";
  const std::string pretty = value_of("/etc/os-release", "PRETTY_NAME", '=');
  m.system = pretty.empty() ? kernel : fmt::format("{}, {}", pretty, kernel);
  return m;
}

std::string compiler() {
#if defined(__clang__)
  const std::string name = fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#elif defined(__GNUC__)
  const std::string name = fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#else
  const std::string name = "unknown compiler";
#endif
#if defined(__SANITIZE_ADDRESS__)
  return name + ", AddressSanitizer";
#elif defined(NDEBUG)
  return name + ", optimised";
#else
  return name + ", assertions on";
#endif
}

}  // namespace mantissa
