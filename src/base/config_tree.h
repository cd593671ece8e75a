// The tree a config file and its overrides become before anything is read from it. Internal to base/config*.cpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mantissa::config {

struct Node {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text{};                                   // of a scalar, ${VAR} replaced
  std::string where{};                                  // "configs/a.yaml:7" or "command line"
  std::vector<Node> items{};                            // of a list
  std::vector<std::pair<std::string, Node>> members{};  // of a map, in the order given

  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  std::string found() const;  // for messages: `"fp9"`, `a list`, `a section`, `nothing`
};

// Parses one YAML document in UTF-8 of at most 1 MiB, 32 levels, 100,000 nodes and 4 MiB of values (aliases and what
// the environment gives counted in full). A key twice in one section, a second document, a key that is no plain word
// and an unset ${VAR} are errors, all Exit::kUsage.
Node parse_yaml(std::string_view yaml, const std::string& name);

// Applies "--a.b=c" or "a.b=c"; c may be a flow list or section. A number steps into a list: rules.0.recipe.
void apply_override(Node& root, const std::string& assignment);

// The node at "a.b[0].c", or nullptr.
const Node* at_path(const Node& root, std::string_view path);

}  // namespace mantissa::config
