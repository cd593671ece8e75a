// One line that says how far reading and writing data is: redrawn on a terminal, elsewhere one every ten seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/console.h"
#include "data/ingest.h"

namespace mantissa {

class ReadProgress {
 public:
  explicit ReadProgress(Console& console) : console_(console) {}

  void reading(const IngestProgress& progress);
  void writing(int64_t rows, int64_t of);
  // What Dataset::load calls; the progress must outlive it.
  ProgressHook hook() {
    return [this](const IngestProgress& progress) { reading(progress); };
  }

 private:
  using Clock = std::chrono::steady_clock;

  void show(double share, const std::string& text, const char* what);

  Console& console_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace mantissa
