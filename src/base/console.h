// What a run says while it works: lines, warnings and one status line that redraws on a terminal.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace mantissa {

bool is_terminal(std::FILE* stream);
// Columns of the terminal behind `stream`, else COLUMNS, else 80.
int terminal_width(std::FILE* stream);
// Colour may be used: a terminal that is not TERM=dumb, and no NO_COLOR (https://no-color.org).
bool color_allowed(std::FILE* stream);

// Columns of a UTF-8 text whose characters are one column wide each.
int text_columns(std::string_view text);
// The text cut to `columns`; a cut one ends in "…".
std::string fit(std::string_view text, int columns);
// "█████░░░" of `columns` characters for a share of 0 to 1.
std::string progress_bar(double share, int columns);

class Console {
 public:
  // Lines and status go to `out`, warnings to `error`; a quiet console says warnings alone.
  explicit Console(bool quiet = false, std::FILE* out = stdout, std::FILE* error = stderr);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Text as displayed() shows it (base/display.h): names and texts from files reach no terminal otherwise.
  void line(std::string_view text);
  void warn(std::string_view text);  // "warning: text"
  // Lines as they are, ANSI attributes included: for a table whose cells displayed() has been through.
  void block(std::string_view text);
  // On a terminal: replaces the last status, cut to the width. Elsewhere: one line a call.
  void status(std::string_view text);
  // Leaves the status line standing; what follows begins a new line.
  void end_status();
  // Fails with Exit::kStorage when `out` could not take everything (a full disk).
  void flush();

  bool interactive() const { return interactive_; }
  bool color() const { return color_; }
  int width() const { return terminal_width(out_); }

 private:
  void clear_status();
  void draw_status();

  std::FILE* out_;
  std::FILE* error_;
  bool quiet_, interactive_, color_;
  std::string status_;  // on the screen now
};

}  // namespace mantissa
