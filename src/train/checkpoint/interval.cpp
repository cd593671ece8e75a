#include "train/checkpoint/interval.h"

#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace mantissa {

CheckpointInterval parse_checkpoint_interval(const std::string& text, const char* key) {
  constexpr int64_t kMost = 1'000'000'000'000;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string unit(end, text.data() + text.size());
  if (error != std::errc{} || count < 0 || count > kMost ||
      (!unit.empty() && unit != "s" && unit != "m" && unit != "h"))
    fail(Exit::kUsage, "{}: \"{}\", expected a number of steps (500), a time (90s, 30m, 1h) or 0 for never", key,
         printable(text));
  if (unit.empty()) return {.steps = count};
  const int64_t seconds = unit == "s" ? 1 : unit == "m" ? 60 : 3600;
  return {.seconds = static_cast<double>(count) * static_cast<double>(seconds)};
}

}  // namespace mantissa
