// Text that arrives as the bytes of tokens and leaves as whole characters, cut at a stop text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa {

class TextStream {
 public:
  // Empty stop texts are left out.
  explicit TextStream(std::vector<std::string> stops = {});

  // Adds bytes and returns what is certain by now: no incomplete UTF-8 sequence, nothing that may begin a stop text.
  // Pieces end to end are text(). Ill-formed parts become U+FFFD, as Tokenizer::decode has it.
  std::string_view add(std::string_view bytes);
  // No more bytes come: returns what was held back.
  std::string_view finish();

  // A stop text came; what follows is dropped.
  bool stopped() const { return stopped_; }
  const std::string& stop() const { return stop_; }  // the one that came
  // Everything handed out.
  std::string_view text() const { return std::string_view(text_).substr(0, given_); }

 private:
  std::string_view hand_out(size_t end);

  std::vector<std::string> stops_;
  std::string bytes_;  // an incomplete sequence
  std::string text_;   // well-formed; handed out up to given_
  size_t given_ = 0;
  bool stopped_ = false;
  std::string stop_;
};

}  // namespace mantissa
