#include "base/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/display.h"
#include "base/error.h"
#include "base/text.h"

namespace mantissa {
namespace {

bool continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

bool dumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || std::string_view(term) == "dumb";
}

}  // namespace

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  int64_t width = 0;
  if (columns != nullptr && parse_int(columns, width) && width > 0 && width < 10000) return static_cast<int>(width);
  return 80;
}

bool color_allowed(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && is_terminal(stream) && !dumb();
}

int text_columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return !continuation(c); }));
}

std::string fit(std::string_view text, int columns) {
  if (text_columns(text) <= columns) return std::string(text);
  if (columns <= 0) return "";
  size_t end = 0;
  for (int kept = 0; end < text.size(); ++end)
    if (!continuation(text[end]) && kept++ == columns - 1) break;
  return std::string(text.substr(0, end)) + "…";
}

std::string progress_bar(double share, int columns) {
  const int full = std::isfinite(share) ? static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * columns)) : 0;
  std::string bar;
  for (int i = 0; i < columns; ++i) bar += i < full ? "█" : "░";
  return bar;
}

Console::Console(bool quiet, std::FILE* out, std::FILE* error)
    : out_(out), error_(error), quiet_(quiet), interactive_(is_terminal(out) && !dumb()), color_(color_allowed(out)) {}

Console::~Console() { end_status(); }

void Console::line(std::string_view text) { block(displayed(text)); }

void Console::block(std::string_view text) {
  if (quiet_) return;
  clear_status();
  std::fwrite(text.data(), 1, text.size(), out_);
  std::fputc('\n', out_);
  draw_status();
  std::fflush(out_);
}

void Console::warn(std::string_view text) {
  clear_status();
  std::fflush(out_);
  const std::string message = fmt::format("warning: {}\n", displayed(text));
  std::fwrite(message.data(), 1, message.size(), error_);
  std::fflush(error_);
  draw_status();
}

void Console::status(std::string_view text) {
  if (quiet_) return;
  if (!interactive_) return line(text);
  clear_status();
  status_ = displayed(text);
  draw_status();
}

void Console::end_status() {
  if (status_.empty()) return;
  status_.clear();
  std::fputc('\n', out_);
  std::fflush(out_);
}

void Console::flush() {
  errno = 0;
  if (std::fflush(out_) != 0 || std::ferror(out_) != 0)
    fail(Exit::kStorage, "standard output: cannot write: {}",
         errno != 0 ? std::strerror(errno) : "an earlier write failed");
}

void Console::clear_status() {
  if (!status_.empty()) std::fputs("\r\x1b[K", out_);
}

void Console::draw_status() {
  if (status_.empty()) return;
  const std::string shown = fit(status_, width() - 1);
  std::fwrite(shown.data(), 1, shown.size(), out_);
  std::fflush(out_);
}

}  // namespace mantissa
