#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// GCIDE writes a letter with an accent as [=a], [^a], ["o], [.a], [a^], [ae], [aum], [a'8], ...: one or two letters and at
// most two marks, or a letter and a named mark. Gives the plain letters, or "" when the bracket is something else.
std::string accent_code(std::string_view inside) {
  if (inside.empty() || inside.size() > 5) return "";
  for (const std::string_view name : {"um", "grave", "acute", "cir", "circ"})
    if (inside.size() == 1 + name.size() && letter(inside[0]) && inside.substr(1) == name) return std::string(inside.substr(0, 1));
  if (inside == "thorn") return "th";
  if (inside == "deg") return " degrees";
  std::string letters;
  size_t marks = 0;
  for (const char c : inside) {
    if (letter(c))
      letters += c;
    else if (std::string_view("=^\".`'~-,*|_\\/0123456789").find(c) != std::string_view::npos)
      ++marks;
    else
      return "";
  }
  if (letters.empty() || letters.size() > 2 || marks > 2) return "";
  return letters;
}

// Replaces accent codes; other brackets stay.
std::string plain_letters(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const size_t end = text.find(']', i);
      if (end != std::string_view::npos && end - i <= 6) {
        const std::string letters = accent_code(text.substr(i + 1, end - i - 1));
        if (!letters.empty()) {
          out += letters;
          i = end;
          continue;
        }
      }
    }
    out += text[i];
  }
  return out;
}

// The place behind the bracket that opens at `at`, inner ones counted; npos when it never closes.
size_t behind_bracket(std::string_view text, size_t at, char open, char close) {
  int depth = 0;
  for (size_t i = at; i < text.size(); ++i) {
    if (text[i] == open) ++depth;
    if (text[i] == close && --depth == 0) return i + 1;
  }
  return std::string_view::npos;
}

// A pronunciation between backslashes has no spaces at its ends and no line of prose in it.
size_t behind_pronunciation(std::string_view text, size_t at) {
  const size_t end = text.find('\\', at + 1);
  if (end == std::string_view::npos || end - at > 80) return std::string_view::npos;
  size_t next = end + 1;
  while (next < text.size() && space(text[next])) ++next;
  // A second one in round brackets: (l[aum]rk).
  if (next < text.size() && text[next] == '(') {
    const size_t behind = behind_bracket(text, next, '(', ')');
    if (behind != std::string_view::npos && behind - next <= 80) return behind;
  }
  return end + 1;
}

}  // namespace

std::string dictd_layout(std::string_view entry) {
  std::string out;
  bool paragraph_ends = false;
  for (const std::string& line : split(entry, '\n')) {
    const std::string_view words = trim(line);
    if (words.empty()) {
      paragraph_ends = !out.empty();
      continue;
    }
    if (!out.empty()) out += paragraph_ends ? '\n' : ' ';
    paragraph_ends = false;
    bool gap = false;
    for (const char c : words) {
      if (space(c)) {
        gap = true;
        continue;
      }
      if (gap) out += ' ';
      gap = false;
      out += c;
    }
  }
  return out;
}

std::string dictd_prose(std::string_view entry) {
  const std::string text = plain_letters(entry);
  std::string kept;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t behind = std::string_view::npos;
    if (c == '[') behind = behind_bracket(text, i, '[', ']');
    if (c == '\\') behind = behind_pronunciation(text, i);
    if (behind != std::string_view::npos) {
      i = behind;
      continue;
    }
    if (c != '{' && c != '}') kept += c;
    ++i;
  }
  // What stood between the parts leaves spaces before commas and stops.
  const std::string flat = dictd_layout(kept);
  std::string out;
  for (size_t i = 0; i < flat.size(); ++i) {
    const bool stop_follows = flat[i] == ' ' && i + 1 < flat.size() && (flat[i + 1] == ',' || flat[i + 1] == '.' || flat[i + 1] == ';');
    if (!stop_follows) out += flat[i];
  }
  return out;
}

}  // namespace mantissa
