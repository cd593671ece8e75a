#include <algorithm>

#include "base/text.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

struct Spelling {
  std::string_view code, plain;
};
// Bracketed names of letters and signs in GCIDE.
constexpr Spelling kNamed[] = {
    {"ae", "ae"},         {"oe", "oe"},        {"AE", "Ae"},       {"aum", "a"},       {"imac", "i"},
    {"asl", "a"},         {"udd", "u"},        {"thorn", "th"},    {"th", "th"},       {"eth", "th"},
    {"yogh", "gh"},       {"ng", "ng"},        {"dsdot", "d"},     {"lsdot", "l"},     {"zdot", "z"},
    {"mdot", "m"},        {"alpha", "alpha"},  {"beta", "beta"},   {"gamma", "gamma"}, {"delta", "delta"},
    {"Delta", "Delta"},   {"theta", "theta"},  {"phi", "phi"},     {"pi", "pi"},       {"deg", " degrees"},
    {"sect", "section "}, {"min", " minutes"}, {"times", "times"},
};

// The plain letters for what stands between [ and ]: a mark and one or two letters ([=a], ["o], [.a], [=oo]), letters
// and ^
// ([a^], [oo^]), or a name; "" for every other bracket.
std::string_view accent_code(std::string_view inside) {
  for (const Spelling& spelling : kNamed)
    if (spelling.code == inside) return spelling.plain;
  if (inside.size() < 2 || inside.size() > 3) return {};
  std::string_view letters = inside;
  if (std::string_view("=^\"'`~.,-*").find(inside[0]) != std::string_view::npos)
    letters.remove_prefix(1);
  else if (inside.back() == '^')
    letters.remove_suffix(1);
  else
    return {};
  return std::all_of(letters.begin(), letters.end(), letter) ? letters : std::string_view();
}

std::string plain_letters(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const size_t end = text.substr(0, std::min(text.size(), i + 8)).find(']', i);
      const std::string_view letters =
          end == std::string_view::npos ? std::string_view() : accent_code(text.substr(i + 1, end - i - 1));
      if (!letters.empty()) {
        out += letters;
        i = end;
        continue;
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

// A pronunciation stands between backslashes; a second one in round brackets may follow: (l[aum]rk).
size_t behind_pronunciation(std::string_view text, size_t at) {
  constexpr size_t kLongest = 80;  // no pronunciation of the dictionary is longer; a longer stretch is prose
  const size_t end = text.find('\\', at + 1);
  if (end == std::string_view::npos || end - at > kLongest) return std::string_view::npos;
  size_t next = end + 1;
  while (next < text.size() && space(text[next])) ++next;
  if (next < text.size() && text[next] == '(') {
    const size_t behind = behind_bracket(text, next, '(', ')');
    if (behind != std::string_view::npos && behind - next <= kLongest) return behind;
  }
  return end + 1;
}

// Headwords of the next entry that stand behind the last source, as in "[1913 Webster] Larvae".
std::string_view without_stray_headwords(std::string_view text) {
  const size_t close = text.rfind(']');
  const size_t open = close == std::string_view::npos ? close : text.rfind('[', close);
  if (open == std::string_view::npos || text.find('.', close) != std::string_view::npos) return text;
  const std::string_view source = text.substr(open, close - open);
  for (const char* name : {"Webster", "WordNet", "PJC"})
    if (source.find(name) != std::string_view::npos) return text.substr(0, close + 1);
  return text;
}

}  // namespace

std::string dictd_layout(std::string_view entry) {
  std::string out;
  out.reserve(entry.size());
  int line_ends = 0;
  bool gap = false;
  for (const char c : entry) {
    if (space(c)) {
      gap = true;
      line_ends += c == '\n';
      continue;
    }
    if (gap && !out.empty()) out += line_ends > 1 ? '\n' : ' ';
    gap = false;
    line_ends = 0;
    out += c;
  }
  return out;
}

std::string dictd_prose(std::string_view entry) {
  const std::string plain = plain_letters(entry);
  const std::string_view text = without_stray_headwords(plain);
  std::string kept;
  kept.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    size_t behind = std::string_view::npos;
    if (c == '[') behind = behind_bracket(text, i, '[', ']');
    if (c == '\\') behind = behind_pronunciation(text, i);
    if (behind != std::string_view::npos) {
      i = behind;
      continue;
    }
    // Stress and syllable marks inside a word: Ex*pan"sive*ly.
    const bool mark = (c == '"' || c == '*' || c == '`') && i > 0 && i + 1 < text.size() && letter(text[i - 1]) &&
                      letter(text[i + 1]);
    if (c != '{' && c != '}' && !mark) kept += c;
    ++i;
  }
  const std::string flat = dictd_layout(kept);
  // Brackets that went leave spaces before commas and stops.
  std::string out;
  out.reserve(flat.size());
  for (size_t i = 0; i < flat.size(); ++i) {
    const char next = i + 1 < flat.size() ? flat[i + 1] : ' ';
    if (flat[i] != ' ' || (next != ',' && next != '.' && next != ';')) out += flat[i];
  }
  return out;
}

}  // namespace mantissa
