#include "base/config_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace mantissa::config {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 32;
constexpr size_t kMaxNodes = 100'000;
// Of all values together, with what the environment and aliases put into them.
constexpr size_t kMaxTextBytes = size_t{4} << 20;
// ${VAR} stands between these while the text is parsed, since a brace ends a value in flow style. Unicode keeps both
// code points for a program's own use.
constexpr std::string_view kOpen = "\xef\xb7\x90", kClose = "\xef\xb7\x91";  // U+FDD0, U+FDD1

bool word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Length of the character at the front, 0 where it is no UTF-8 (Unicode 16.0, table 3-7).
size_t character_length(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto follows = [&byte](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return follows(1) ? 2 : 0;
  if ((first & 0xf0) == 0xe0) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second >= 0xa0;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first < 0xf0 || first > 0xf4 || (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90)) return 0;
  return follows(1) && follows(2) && follows(3) ? 4 : 0;
}

void require_utf8(std::string_view text, const std::string& where) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) {
      // For people: what stands around it.
      const size_t begin = at < 20 ? 0 : at - 20;
      fail(Exit::kUsage, "{}: \"{}\" is not UTF-8; a config and what it names are", where,
           printable(text.substr(begin, 40), 40));
    }
    at += length;
  }
}

// ${...} up to the next brace on the line, marked so that the YAML parser takes it for text.
std::string mark_variables(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const size_t end = rest.starts_with("${") ? text.find_first_of("{}\n", i + 2) : std::string_view::npos;
    if (rest.starts_with("$${")) {
      out += rest.substr(0, 3);
      i += 3;
    } else if (end != std::string_view::npos && text[end] == '}') {
      out += kOpen;
      out += text.substr(i + 2, end - i - 2);
      out += kClose;
      i = end + 1;
    } else {
      out += text[i++];
    }
  }
  return out;
}

// The text as it was given.
std::string unmark_variables(std::string_view text) {
  std::string out(text);
  for (size_t at = 0; (at = out.find(kOpen, at)) != std::string::npos;) out.replace(at, kOpen.size(), "${");
  for (size_t at = 0; (at = out.find(kClose, at)) != std::string::npos;) out.replace(at, kClose.size(), "}");
  return out;
}

// Replaces ${VAR} from the environment; $${ stands for a literal ${. `room` bounds what it gives.
std::string interpolate(std::string_view text, const std::string& where, size_t room = kMaxTextBytes) {
  std::string out;
  while (!text.empty()) {
    if (text.starts_with("$${")) {
      out += "${";
      text.remove_prefix(3);
    } else if (text.starts_with("${")) {
      const size_t end = text.find('}');
      const std::string name(text.substr(2, end == std::string_view::npos ? end : end - 2));
      bool good = end != std::string_view::npos && !name.empty() && !(name[0] >= '0' && name[0] <= '9');
      for (const char c : name) good = good && word_character(c);
      if (!good)
        fail(Exit::kUsage, "{}: \"{}\" is no ${{VAR}}; write $${{ for a literal ${{", where, printable(text, 40));
      const char* value = std::getenv(name.c_str());
      if (value == nullptr) fail(Exit::kUsage, "{}: ${{{}}}: the environment has no {}", where, name, name);
      const std::string_view found(value);
      require_utf8(found, fmt::format("{}: ${{{}}}", where, name));
      if (found.size() > room || out.size() > room - found.size())
        fail(Exit::kUsage, "{}: ${{{}}}: the values of a config have more than {} bytes with it", where, name,
             kMaxTextBytes);
      out += found;
      text.remove_prefix(end + 1);
    } else {
      out += text[0];
      text.remove_prefix(1);
    }
  }
  return out;
}

size_t count_text(const Node& node) {
  size_t total = node.text.size();
  for (const Node& item : node.items) total += count_text(item);
  for (const auto& [key, member] : node.members) total += key.size() + count_text(member);
  return total;
}

size_t count_nodes(const Node& node) {
  size_t total = 1;
  for (const Node& item : node.items) total += count_nodes(item);
  for (const auto& [key, member] : node.members) total += count_nodes(member);
  return total;
}

size_t depth_of(const Node& node) {
  size_t deepest = 0;
  for (const Node& item : node.items) deepest = std::max(deepest, depth_of(item));
  for (const auto& [key, member] : node.members) deepest = std::max(deepest, depth_of(member));
  return deepest + 1;
}

// Builds the tree from the parser's events, so that limits hold before anything is expanded.
class Builder : public YAML::EventHandler {
 public:
  Builder(std::string name, bool lines) : name_(std::move(name)), lines_(lines) {}

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (key_expected()) fail(Exit::kUsage, "{}: a key is empty", where(mark));
    add(Node{.where = where(mark)}, mark, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor, const std::string& value) override {
    if (key_expected()) return add_key(value, mark);
    Node node{.kind = Node::Kind::kScalar,
              .text = interpolate(unmark_variables(value), where(mark), kMaxTextBytes - text_bytes_),
              .where = where(mark)};
    take_text(node.text.size(), mark);
    add(std::move(node), mark, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (key_expected() || known == anchors_.end()) fail(Exit::kUsage, "{}: an alias cannot stand here", where(mark));
    nodes_ += count_nodes(known->second) - 1;
    take_text(count_text(known->second), mark);
    if (open_.size() + depth_of(known->second) > kMaxDepth) too_deep(mark);
    add(known->second, mark, 0);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    start(Node::Kind::kList, mark, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    start(Node::Kind::kMap, mark, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor;
    bool has_key = false;
    std::map<std::string, std::string> first{};  // key -> where it stands
  };

  std::string where(const YAML::Mark& mark) const {
    return lines_ && mark.line >= 0 ? fmt::format("{}:{}", name_, mark.line + 1) : name_;
  }
  [[noreturn]] void too_deep(const YAML::Mark& mark) const {
    fail(Exit::kUsage, "{}: nested more than {} deep", where(mark), kMaxDepth);
  }
  void take_text(size_t bytes, const YAML::Mark& mark) {
    if (bytes > kMaxTextBytes - text_bytes_)
      fail(Exit::kUsage, "{}: the values of a config have more than {} bytes", where(mark), kMaxTextBytes);
    text_bytes_ += bytes;
  }
  bool key_expected() const {
    return !open_.empty() && open_.back().node.kind == Node::Kind::kMap && !open_.back().has_key;
  }

  void add_key(const std::string& key, const YAML::Mark& mark) {
    Open& map = open_.back();
    for (const char c : key)
      if (!word_character(c) && c != '-')
        fail(Exit::kUsage, "{}: \"{}\" is no key; keys are words of letters, digits, _ and -", where(mark),
             printable(unmark_variables(key), 60));
    const auto [at, fresh] = map.first.emplace(key, where(mark));
    if (!fresh) fail(Exit::kUsage, "{}: {}{}: given twice, first at {}", where(mark), path(), key, at->second);
    map.node.members.emplace_back(key, Node{});
    map.has_key = true;
  }

  // "a.b." for the maps open now.
  std::string path() const {
    std::string out;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      const Node& node = open_[i].node;
      if (node.kind == Node::Kind::kMap)
        out += node.members.back().first + ".";
      else if (!out.empty())
        out.back() = '[', out += fmt::format("{}].", node.items.size());
    }
    return out;
  }

  void start(Node::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (key_expected()) fail(Exit::kUsage, "{}: a key is a list or a section, expected a word", where(mark));
    if (open_.size() >= kMaxDepth) too_deep(mark);
    open_.push_back({.node = Node{.kind = kind, .where = where(mark)}, .anchor = anchor});
  }

  void end() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), YAML::Mark::null_mark(), done.anchor);
  }

  void add(Node node, const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (++nodes_ > kMaxNodes) fail(Exit::kUsage, "{}: more than {} values", where(mark), kMaxNodes);
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
    } else if (open_.back().node.kind == Node::Kind::kList) {
      open_.back().node.items.push_back(std::move(node));
    } else {
      open_.back().node.members.back().second = std::move(node);
      open_.back().has_key = false;
    }
  }

  std::string name_;
  bool lines_;
  Node root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Node> anchors_;
  size_t nodes_ = 0, text_bytes_ = 0;
};

Node parse_document(std::string_view yaml, const std::string& name, bool lines) {
  if (yaml.size() > kMaxBytes)
    fail(Exit::kUsage, "{}: has {} bytes, a config has at most {}", name, yaml.size(), kMaxBytes);
  require_utf8(yaml, name);
  if (yaml.find(kOpen) != std::string_view::npos || yaml.find(kClose) != std::string_view::npos)
    fail(Exit::kUsage, "{}: holds U+FDD0 or U+FDD1, which are no characters", name);
  Builder builder(name, lines);
  try {
    std::istringstream stream{mark_variables(yaml)};
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      Node root = builder.take();
      Builder second(name, lines);
      if (parser.HandleNextDocument(second)) fail(Exit::kUsage, "{}: holds a second document, expected one", name);
      return root;
    }
  } catch (const YAML::Exception& error) {
    const std::string line = lines && error.mark.line >= 0 ? fmt::format(":{}", error.mark.line + 1) : "";
    fail(Exit::kUsage, "{}{}: not YAML: {}", name, line, error.msg);
  }
  return Node{.where = name};
}

void merge(Node& into, Node from) {
  if (into.kind != Node::Kind::kMap || from.kind != Node::Kind::kMap) {
    into = std::move(from);
    return;
  }
  for (auto& [key, value] : from.members) {
    if (Node* present = into.find(key))
      merge(*present, std::move(value));
    else
      into.members.emplace_back(key, std::move(value));
  }
}

}  // namespace

const Node* Node::find(std::string_view key) const {
  for (const auto& [name, node] : members)
    if (name == key) return &node;
  return nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(std::as_const(*this).find(key)); }

std::string Node::found() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return '"' + printable(text, 80) + '"';
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a section";
  }
  return "";
}

Node parse_yaml(std::string_view yaml, const std::string& name) {
  Node root = parse_document(yaml, name, true);
  if (root.kind == Node::Kind::kNull) root.kind = Node::Kind::kMap;
  if (root.kind != Node::Kind::kMap)
    fail(Exit::kUsage, "{}: is {}, expected sections of keys", name,
         root.kind == Node::Kind::kList ? "a list" : "text");
  return root;
}

void apply_override(Node& root, const std::string& assignment) {
  const std::string where = "command line";
  std::string_view text = assignment;
  if (text.starts_with("--")) text.remove_prefix(2);
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    fail(Exit::kUsage, "{}: \"{}\" is no override; write --section.key=value", where, printable(assignment));
  require_utf8(text, where);
  const std::string_view value = text.substr(equals + 1);
  const bool structured = !value.empty() && (value[0] == '[' || value[0] == '{' || value[0] == '"' || value[0] == '\'');
  Node given = structured ? parse_document(value, where, false)
                          : Node{.kind = Node::Kind::kScalar, .text = interpolate(value, where), .where = where};

  Node* node = &root;
  std::string path;
  for (const std::string& part : split(text.substr(0, equals), '.')) {
    path += (path.empty() ? "" : ".") + part;
    int64_t index = 0;
    if (node->kind == Node::Kind::kList) {
      if (!parse_int(part, index) || index < 0 || static_cast<size_t>(index) >= node->items.size())
        fail(Exit::kUsage, "{}: {}: expected a place in the list, 0 to {}", where, printable(path),
             static_cast<int64_t>(node->items.size()) - 1);
      node = &node->items[static_cast<size_t>(index)];
      continue;
    }
    if (node->kind == Node::Kind::kNull) *node = Node{.kind = Node::Kind::kMap, .where = where};
    if (node->kind != Node::Kind::kMap || part.empty())
      fail(Exit::kUsage, "{}: {}: no such section", where, printable(path));
    Node* next = node->find(part);
    if (next == nullptr) next = &node->members.emplace_back(part, Node{.where = where}).second;
    node = next;
  }
  merge(*node, std::move(given));
}

const Node* at_path(const Node& root, std::string_view path) {
  const Node* node = &root;
  for (std::string part : split(path, '.')) {
    std::vector<size_t> steps;
    if (const size_t bracket = part.find('['); bracket != std::string::npos) {
      int64_t index = 0;
      parse_int(std::string_view(part).substr(bracket + 1, part.size() - bracket - 2), index);
      steps.push_back(static_cast<size_t>(index));
      part.resize(bracket);
    }
    node = node->find(part);
    if (node == nullptr) return nullptr;
    for (const size_t step : steps) {
      if (step >= node->items.size()) return nullptr;
      node = &node->items[step];
    }
  }
  return node;
}

}  // namespace mantissa::config
