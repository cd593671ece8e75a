// dump() and help() of base/config.h.
#include <algorithm>
#include <deque>

#include "base/config.h"
#include "base/error.h"
#include "base/text.h"

namespace mantissa::config {
namespace {

// A text as a YAML scalar that reads back as the same text.
std::string quoted(const std::string& text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '/' || c == '-' || c == '+';
  };
  const std::string low = lower(text);
  const bool starts_well = !text.empty() && text[0] != '-' && text[0] != '.';
  if (starts_well && low != "null" && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') out += '\\';
    if (c == '$' && i + 1 < text.size() && text[i + 1] == '{') out += '$';
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

template <class T, class Print>
std::string flow_list(const std::vector<T>& values, Print&& print) {
  std::vector<std::string> parts;
  for (const T& value : values) parts.push_back(print(value));
  return fmt::format("[{}]", join(parts, ", "));
}

std::string number_text(double value) { return fmt::format("{}", value); }

// What one describe() names, kept in order; a section described in two places is one section.
struct Entry {
  std::string key;
  std::string value{};  // of a leaf
  std::string type{}, help{};
  bool leaf = true, list = false;
  std::deque<Entry> inner{};  // a deque: collectors keep references
};

class Collector final : public Fields {
 public:
  Collector(std::deque<Entry>& entries, bool grow_lists) : entries_(entries), grow_lists_(grow_lists) {}

  void text(std::string_view key, std::string& value, std::string_view help) override {
    leaf(key, quoted(value), "text", help);
  }
  void choice(std::string_view key, std::string& value, std::vector<std::string> allowed, std::string_view help,
              std::string_view) override {
    leaf(key, quoted(value), join(allowed, "|"), help);
  }
  void number(std::string_view key, double& value, std::string_view help, Range) override {
    leaf(key, number_text(value), "number", help);
  }
  void integer(std::string_view key, int64_t& value, std::string_view help, Range) override {
    leaf(key, std::to_string(value), "integer", help);
  }
  void boolean(std::string_view key, bool& value, std::string_view help) override {
    leaf(key, value ? "true" : "false", "true|false", help);
  }
  void numbers(std::string_view key, std::vector<double>& value, std::string_view help) override {
    leaf(key, flow_list(value, number_text), "numbers", help);
  }
  void integers(std::string_view key, std::vector<int64_t>& value, std::string_view help) override {
    leaf(key, flow_list(value, [](int64_t v) { return std::to_string(v); }), "integers", help);
  }
  void texts(std::string_view key, std::vector<std::string>& value, std::string_view help) override {
    leaf(key, flow_list(value, quoted), "texts", help);
  }
  void unavailable(std::string_view, std::string_view) override {}

  void section(std::string_view key, const std::function<void(Fields&)>& body) override {
    auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key && !e.leaf; });
    Entry& entry = at != entries_.end() ? *at : entries_.emplace_back(Entry{.key = std::string(key), .leaf = false});
    Collector collector(entry.inner, grow_lists_);
    body(collector);
  }

  void list(std::string_view key, size_t& size, const std::function<void(Fields&, size_t)>& item,
            std::string_view help) override {
    Entry& entry =
        entries_.emplace_back(Entry{.key = std::string(key), .help = std::string(help), .leaf = false, .list = true});
    const size_t count = grow_lists_ ? 1 : size;
    for (size_t i = 0; i < count; ++i) {
      Entry& element = entry.inner.emplace_back(Entry{.key = fmt::format("[{}]", i), .leaf = false});
      Collector collector(element.inner, grow_lists_);
      item(collector, i);
    }
  }

 private:
  void leaf(std::string_view key, std::string value, std::string type, std::string_view help) {
    entries_.push_back(
        {.key = std::string(key), .value = std::move(value), .type = std::move(type), .help = std::string(help)});
  }

  std::deque<Entry>& entries_;
  bool grow_lists_;
};

struct Line {
  std::string text, note;
};

void print(const std::deque<Entry>& entries, const std::string& indent, const std::string& path, const Source* source,
           std::vector<Line>& lines) {
  for (const Entry& entry : entries) {
    const std::string here = path + entry.key;
    const std::string origin = source == nullptr ? "" : source->origin(here);
    const std::string note = source == nullptr ? "" : origin.empty() ? "default" : origin;
    if (entry.leaf) {
      lines.push_back({indent + entry.key + ": " + entry.value, note});
    } else if (entry.inner.empty()) {
      lines.push_back({indent + entry.key + (entry.list ? ": []" : ": {}"), note});
    } else if (!entry.list) {
      lines.push_back({indent + entry.key + ":", ""});
      print(entry.inner, indent + "  ", here + ".", source, lines);
    } else {
      lines.push_back({indent + entry.key + ":", ""});
      for (const Entry& element : entry.inner) {
        const size_t first = lines.size();
        print(element.inner, indent + "    ", here + element.key + ".", source, lines);
        if (first == lines.size())
          lines.push_back({indent + "  - {}", ""});
        else
          lines[first].text[indent.size() + 2] = '-';
      }
    }
  }
}

void print_help(const std::deque<Entry>& entries, const std::string& path, std::vector<Line>& lines) {
  for (const Entry& entry : entries) {
    if (entry.leaf) {
      lines.push_back({path + entry.key, fmt::format("{} ({}, {})", entry.help, entry.type, entry.value)});
    } else if (entry.list) {
      for (const Entry& element : entry.inner) print_help(element.inner, path + entry.key + "[].", lines);
    } else {
      print_help(entry.inner, path + entry.key + ".", lines);
    }
  }
}

std::string align(const std::vector<Line>& lines, size_t most, std::string_view between) {
  size_t width = 0;
  for (const Line& line : lines)
    if (line.text.size() <= most) width = std::max(width, line.text.size());
  std::string out;
  for (const Line& line : lines)
    out += line.note.empty() ? line.text + "\n" : fmt::format("{:<{}}{}{}\n", line.text, width, between, line.note);
  return out;
}

}  // namespace

std::string dump(const std::function<void(Fields&)>& describe, const Source* source) {
  std::deque<Entry> entries;
  Collector collector(entries, false);
  describe(collector);
  std::vector<Line> lines;
  print(entries, "", "", source, lines);
  return align(lines, 60, "  # ");
}

std::string help(const std::function<void(Fields&)>& describe) {
  std::deque<Entry> entries;
  Collector collector(entries, true);
  describe(collector);
  std::vector<Line> lines;
  print_help(entries, "", lines);
  return align(lines, 40, "  ");
}

}  // namespace mantissa::config
