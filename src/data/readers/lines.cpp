#include "data/readers/lines.h"

#include "base/error.h"

namespace mantissa {

LineReader::LineReader(const std::string& path, size_t most, std::string hint)
    : input_(path), most_(most), hint_(std::move(hint)) {
  // The mark may come in parts when it is unpacked.
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  while (begun_.size() < kMark.size() && !(rest_ = input_.next()).empty()) {
    begun_ += rest_;
    rest_ = {};
  }
  if (begun_.starts_with(kMark)) {
    begun_.erase(0, kMark.size());
    behind_ = kMark.size();
  }
  // What was read to see the mark is a piece of its own.
  head_ = std::move(begun_);
  begun_.clear();
  rest_ = head_;
}

bool LineReader::next(std::string_view& line) {
  if (ended_) return false;
  begun_.clear();
  for (;;) {
    const size_t end = rest_.find('\n');
    const std::string_view part = rest_.substr(0, end);
    if (part.size() > most_ - begun_.size())
      fail(Exit::kInput, "{}:{}: a line of more than {} MiB{}", input_.path(), number_ + 1, most_ >> 20, hint_);
    if (end != std::string_view::npos) {
      rest_.remove_prefix(end + 1);
      if (begun_.empty()) {
        line = part;
      } else {
        begun_ += part;
        line = begun_;
      }
      offset_ = behind_;
      behind_ += line.size() + 1;
      ++number_;
      return true;
    }
    begun_ += part;
    rest_ = input_.next();
    if (!rest_.empty()) continue;
    ended_ = true;
    if (begun_.empty()) return false;
    line = begun_;
    offset_ = behind_;
    ++number_;
    return true;
  }
}

}  // namespace mantissa
