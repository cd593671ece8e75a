#include "base/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <set>

#include "base/config_tree.h"
#include "base/error.h"
#include "base/text.h"

namespace mantissa::config {
namespace {

// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

// What describe() has named so far.
struct Described {
  std::set<const Node*> nodes;
  std::set<std::string> keys;  // full paths, list places as [0]
};

std::string range_text(const Range& range) {
  const Range open;
  const bool low = range.min > open.min, high = range.max < open.max;
  if (low && high) return fmt::format("{} to {}", range.min, range.max);
  return low ? fmt::format("at least {}", range.min) : fmt::format("at most {}", range.max);
}

class Reader final : public Fields {
 public:
  // `node` is null where the file has no such section: every field keeps its value.
  Reader(const Node* node, std::string prefix, Described& described)
      : node_(node), prefix_(std::move(prefix)), described_(described) {}

  void text(std::string_view key, std::string& value, std::string_view) override {
    if (const Node* given = take(key)) value = scalar(*given, key, "text");
  }

  void choice(std::string_view key, std::string& value, std::vector<std::string> allowed, std::string_view,
              std::string_view note) override {
    const Node* given = take(key);
    if (given == nullptr) return;
    const std::string found = scalar(*given, key, "one of " + join(allowed, ", "));
    if (std::find(allowed.begin(), allowed.end(), found) == allowed.end()) {
      const std::string near = nearest(found, allowed);
      std::string hint = near.empty() ? "" : "; did you mean " + near + "?";
      if (near.empty() && !note.empty()) hint = fmt::format("; {}", note);
      refuse(*given, key,
             fmt::format("found {}, expected {}{}{}", given->found(), allowed.size() > 1 ? "one of " : "",
                         join(allowed, ", "), hint));
    }
    value = found;
  }

  void number(std::string_view key, double& value, std::string_view, Range range) override {
    if (const Node* given = take(key)) value = number_of(*given, key, range);
  }

  void integer(std::string_view key, int64_t& value, std::string_view, Range range) override {
    if (const Node* given = take(key)) value = integer_of(*given, key, range);
  }

  void boolean(std::string_view key, bool& value, std::string_view) override {
    const Node* given = take(key);
    if (given == nullptr) return;
    const std::string word = lower(scalar(*given, key, "true or false"));
    if (word != "true" && word != "false")
      refuse(*given, key, fmt::format("found {}, expected true or false", given->found()));
    value = word == "true";
  }

  void numbers(std::string_view key, std::vector<double>& value, std::string_view) override {
    read_list(key, value, "numbers",
              [&](const Node& item, const std::string& name) { return number_of(item, name, {}); });
  }

  void integers(std::string_view key, std::vector<int64_t>& value, std::string_view) override {
    read_list(key, value, "whole numbers",
              [&](const Node& item, const std::string& name) { return integer_of(item, name, {}); });
  }

  void texts(std::string_view key, std::vector<std::string>& value, std::string_view) override {
    read_list(key, value, "texts",
              [&](const Node& item, const std::string& name) { return scalar(item, name, "text"); });
  }

  void unavailable(std::string_view key, std::string_view message) override {
    if (const Node* given = take(key, false)) refuse(*given, key, std::string(message));
  }

  void section(std::string_view key, const std::function<void(Fields&)>& body) override {
    const Node* given = take(key);
    if (given != nullptr && given->kind == Node::Kind::kNull) given = nullptr;  // "key:" with nothing below it
    if (given != nullptr && given->kind != Node::Kind::kMap)
      refuse(*given, key, fmt::format("found {}, expected a section of keys", given->found()));
    Reader inner(given, prefix_ + std::string(key) + ".", described_);
    body(inner);
  }

  void list(std::string_view key, size_t& size, const std::function<void(Fields&, size_t)>& item,
            std::string_view) override {
    const Node* given = take(key);
    if (given == nullptr) return;
    if (given->kind != Node::Kind::kList)
      refuse(*given, key, fmt::format("found {}, expected a list of sections", given->found()));
    size = given->items.size();
    for (size_t i = 0; i < size; ++i) {
      const Node& element = given->items[i];
      const std::string name = fmt::format("{}[{}]", key, i);
      if (element.kind != Node::Kind::kMap)
        refuse(element, name, fmt::format("found {}, expected a section of keys", element.found()));
      Reader inner(&element, prefix_ + name + ".", described_);
      item(inner, i);
    }
  }

 private:
  const Node* take(std::string_view key, bool offer = true) {
    if (offer) described_.keys.insert(prefix_ + std::string(key));
    const Node* given = node_ == nullptr ? nullptr : node_->find(key);
    if (given != nullptr) described_.nodes.insert(given);
    return given;
  }

  [[noreturn]] void refuse(const Node& node, std::string_view key, const std::string& message) const {
    fail(Exit::kUsage, "{}: {}{}: {}", node.where, prefix_, key, message);
  }

  std::string scalar(const Node& node, std::string_view key, const std::string& expected) const {
    if (node.kind != Node::Kind::kScalar)
      refuse(node, key, fmt::format("found {}, expected {}", node.found(), expected));
    return node.text;
  }

  double number_of(const Node& node, std::string_view key, Range range) const {
    std::string_view digits = node.text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    double value = 0;
    if (node.kind != Node::Kind::kScalar || !parse_double(digits, value) || !std::isfinite(value))
      refuse(node, key, fmt::format("found {}, expected a number", node.found()));
    if (value < range.min || value > range.max)
      refuse(node, key, fmt::format("found {}, expected {}", node.text, range_text(range)));
    return value;
  }

  // Whole numbers may be written 1e9.
  int64_t integer_of(const Node& node, std::string_view key, Range range) const {
    constexpr double kExact = 9007199254740992.0;  // 2^53
    std::string_view digits = node.text;
    if (digits.starts_with('+')) digits.remove_prefix(1);
    int64_t value = 0;
    double real = 0;
    if (node.kind != Node::Kind::kScalar)
      refuse(node, key, fmt::format("found {}, expected a whole number", node.found()));
    if (!parse_int(digits, value)) {
      if (!parse_double(digits, real) || !(std::abs(real) <= kExact) || real != std::floor(real))
        refuse(node, key, fmt::format("found {}, expected a whole number", node.found()));
      value = static_cast<int64_t>(real);
    }
    if (static_cast<double>(value) < range.min || static_cast<double>(value) > range.max)
      refuse(node, key, fmt::format("found {}, expected {}", node.text, range_text(range)));
    return value;
  }

  template <class T, class Convert>
  void read_list(std::string_view key, std::vector<T>& value, const char* what, Convert&& convert) {
    const Node* given = take(key);
    if (given == nullptr) return;
    if (given->kind != Node::Kind::kList)
      refuse(*given, key, fmt::format("found {}, expected a list of {}, as [a, b]", given->found(), what));
    std::vector<T> read;
    for (size_t i = 0; i < given->items.size(); ++i)
      read.push_back(convert(given->items[i], fmt::format("{}[{}]", key, i)));
    value = std::move(read);
  }

  const Node* node_;
  std::string prefix_;
  Described& described_;
};

[[noreturn]] void refuse_unknown(const Node& node, const std::string& prefix, const std::string& key,
                                 const Described& described) {
  // Best: a sibling; else the same key in another section.
  std::vector<std::string> siblings, others;
  for (const std::string& known : described.keys) {
    const bool below = known.starts_with(prefix);
    const std::string rest = below ? known.substr(prefix.size()) : known;
    if (below && rest.find('.') == std::string::npos)
      siblings.push_back(rest);
    else
      others.push_back(known);
  }
  std::string hint;
  if (const std::string near = nearest(key, siblings); !near.empty()) {
    hint = "; did you mean " + prefix + near + "?";
  } else {
    for (const std::string& other : others)
      if (hint.empty() && other.ends_with("." + key)) hint = "; did you mean " + other + "?";
    const std::string far = hint.empty() ? nearest(prefix + key, others) : "";
    if (!far.empty()) hint = "; did you mean " + far + "?";
    if (hint.empty() && !siblings.empty() && siblings.size() <= 16) hint = "; known here: " + join(siblings, ", ");
  }
  fail(Exit::kUsage, "{}: {}{}: unknown key{}", node.where, prefix, key, hint);
}

void refuse_undescribed(const Node& node, const std::string& prefix, const Described& described) {
  for (const auto& [key, member] : node.members) {
    if (!described.nodes.contains(&member)) refuse_unknown(member, prefix, printable(key, 60), described);
    refuse_undescribed(member, prefix + key + ".", described);
    for (size_t i = 0; i < member.items.size(); ++i)
      refuse_undescribed(member.items[i], fmt::format("{}{}[{}].", prefix, key, i), described);
  }
}

// A file, pipe or device of at most 1 MiB, up to its end.
std::string read_stream(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) fail(Exit::kUsage, "{}: no such config file", path);
  if (file < 0) fail(Exit::kUsage, "{}: cannot open: {}", path, std::strerror(errno));
  std::string text;
  char piece[1 << 14];
  ssize_t n = 0;
  while (text.size() <= kMaxBytes && ((n = ::read(file, piece, sizeof piece)) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0) text.append(piece, static_cast<size_t>(n));
  const int error = errno;
  // What a pipe holds is known at its end alone.
  struct stat info {};
  const int unseen = n == 0 && ::fstat(file, &info) != 0 ? errno : 0;
  const bool cut = n == 0 && unseen == 0 && S_ISREG(info.st_mode) && text.size() < static_cast<uint64_t>(info.st_size);
  ::close(file);
  if (unseen != 0) fail(Exit::kUsage, "{}: cannot be looked at: {}", path, std::strerror(unseen));
  if (cut) fail(Exit::kUsage, "{}: ended after {} of {} bytes", path, text.size(), info.st_size);
  if (n < 0 && error == EISDIR) fail(Exit::kUsage, "{}: is a folder, expected a file", path);
  if (n < 0) fail(Exit::kUsage, "{}: cannot read: {}", path, std::strerror(error));
  if (text.size() > kMaxBytes) fail(Exit::kUsage, "{}: has more than {} bytes", path, kMaxBytes);
  return text;
}

}  // namespace

struct Source::Impl {
  Node root;
};

Source::Source(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Source::~Source() = default;
Source::Source(Source&&) noexcept = default;

Source Source::from_text(const std::string& yaml, const std::string& name, const std::vector<std::string>& overrides) {
  auto impl = std::make_unique<Impl>();
  impl->root = parse_yaml(yaml, name);
  for (const std::string& assignment : overrides) apply_override(impl->root, assignment);
  return Source(std::move(impl));
}

Source Source::from_file(const std::string& path, const std::vector<std::string>& overrides) {
  return from_text(read_stream(path), path, overrides);
}

void Source::read(const std::function<void(Fields&)>& describe) const {
  Described described;
  Reader reader(&impl_->root, "", described);
  describe(reader);
  refuse_undescribed(impl_->root, "", described);
}

std::string Source::origin(std::string_view path) const {
  const Node* node = at_path(impl_->root, path);
  return node == nullptr ? "" : node->where;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 256;  // the distance is quadratic
  if (word.size() > kLongest) return "";
  const std::string low = lower(word);
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    const size_t distance = edit_distance(low, lower(candidate));
    if (distance < least) least = distance, best = candidate;
  }
  if (!best.empty() || low.size() < 2) return best;
  const auto begins = [&](const std::string& candidate) { return lower(candidate).starts_with(low); };
  const auto only = std::find_if(candidates.begin(), candidates.end(), begins);
  return only != candidates.end() && std::none_of(only + 1, candidates.end(), begins) ? *only : "";
}

}  // namespace mantissa::config
