// Facts of the machine that the program runs on.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa {

struct Machine {
  std::string cpu;           // model name, "" where the system does not say
  std::string features;      // of avx2, avx512f, avx512_bf16, amx_bf16 those that the CPU has, separated by spaces
  int cores = 0;             // that this process may run on
  int64_t memory_bytes = 0;  // physical memory, or the control group's limit where that is lower
  std::string system;        // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
};

Machine machine();

// "GCC 12.2.0, optimised"
std::string compiler();

}  // namespace mantissa
