#include "base/config_difference.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/config_tree.h"
#include "base/text.h"

namespace mantissa::config {
namespace {

// Values by full path, and the paths in their order.
struct Leaves {
  std::vector<std::string> order;
  std::map<std::string, std::string> values;

  void visit(const Node& node, const std::string& path) {
    if (node.kind == Node::Kind::kScalar || (node.kind == Node::Kind::kList && node.items.empty())) {
      order.push_back(path);
      values.emplace(path, node.kind == Node::Kind::kScalar ? node.text : "[]");
    }
    for (const auto& [key, member] : node.members) visit(member, path.empty() ? key : path + "." + key);
    for (size_t i = 0; i < node.items.size(); ++i) visit(node.items[i], fmt::format("{}[{}]", path, i));
  }
  const std::string* find(const std::string& key) const {
    const auto at = values.find(key);
    return at == values.end() ? nullptr : &at->second;
  }
};

std::string shown(const std::string* value) {
  if (value == nullptr) return "nothing";
  return value->empty() ? "\"\"" : printable(*value, 80);
}

}  // namespace

Difference first_difference(const std::string& first, const std::string& second,
                            const std::vector<std::string>& passed_over) {
  Leaves a, b;
  a.visit(parse_yaml(first, "config"), "");
  b.visit(parse_yaml(second, "config"), "");
  for (const Leaves* leaves : {&a, &b})
    for (const std::string& key : leaves->order) {
      const std::string *x = a.find(key), *y = b.find(key);
      if (std::find(passed_over.begin(), passed_over.end(), key) != passed_over.end()) continue;
      if (x == nullptr || y == nullptr || *x != *y) return {key, shown(x), shown(y)};
    }
  return {};
}

}  // namespace mantissa::config
