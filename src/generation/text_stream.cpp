#include "generation/text_stream.h"

#include <algorithm>

#include "data/tokenizer/utf8.h"

namespace mantissa {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Bytes at the end of `text` that further bytes can complete to a character.
size_t incomplete(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto lead = static_cast<unsigned char>(text[text.size() - n]);
    if ((lead & 0xc0) == 0x80) continue;
    const size_t size = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    // One ill-formed part that the end of the text cuts.
    const bool cut =
        size > n && tokenizer::replace_ill_formed(std::string(text.substr(text.size() - n))) == kReplacement;
    return cut ? n : 0;
  }
  return 0;
}

// Length of the longest end of `text` that begins `stop` without being all of it.
size_t beginning_of(std::string_view stop, std::string_view text) {
  for (size_t n = std::min(stop.size() - 1, text.size()); n > 0; --n)
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string_view TextStream::hand_out(size_t end) {
  const size_t begin = given_;
  given_ = std::max(given_, end);
  return std::string_view(text_).substr(begin, given_ - begin);
}

std::string_view TextStream::add(std::string_view bytes) {
  if (stopped_) return {};
  bytes_.append(bytes);
  const size_t held = incomplete(bytes_);
  text_ += tokenizer::replace_ill_formed(bytes_.substr(0, bytes_.size() - held));
  bytes_.erase(0, bytes_.size() - held);

  size_t end = text_.size(), at = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = text_.find(stop, given_);
    if (found != std::string::npos && found < at) at = found, stop_ = stop;
    end = std::min(end, text_.size() - beginning_of(stop, std::string_view(text_).substr(given_)));
  }
  stopped_ = at != std::string::npos;
  return hand_out(stopped_ ? at : end);
}

std::string_view TextStream::finish() {
  if (stopped_) return {};
  text_ += tokenizer::replace_ill_formed(bytes_);
  bytes_.clear();
  return hand_out(text_.size());
}

}  // namespace mantissa
