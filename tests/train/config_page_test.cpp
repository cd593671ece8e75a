// docs/config.md against the code: every key stands in the table of its section with its default and meaning, and no
// other.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "base/file.h"
#include "train/config.h"

namespace mantissa {
namespace {

// Key -> the row's text, of all sections.
std::map<std::string, std::string> rows_of_page() {
  std::istringstream page(read_text(std::string(MANTISSA_SOURCE_DIR) + "/docs/config.md"));
  std::map<std::string, std::string> rows;
  std::string section, line;
  while (std::getline(page, line)) {
    if (line.starts_with("## ")) section = line.substr(3);
    if (!line.starts_with("| `")) continue;
    EXPECT_TRUE(rows.emplace(section + "." + line.substr(3, line.find('`', 3) - 3), line).second) << line;
  }
  return rows;
}

TEST(ConfigPage, ListsEveryKey) {
  std::map<std::string, std::string> rows = rows_of_page();
  TrainConfig config;
  std::istringstream help(config::help([&config](config::Fields& f) { config.describe(f); }));
  std::string line;
  int keys = 0;
  while (std::getline(help, line)) {
    const std::string key = line.substr(0, line.find(' '));
    // "key  meaning (type, default)": the meaning may hold parentheses itself, a type holds none.
    const size_t begin = line.find_first_not_of(' ', key.size()), end = line.rfind(" (");
    ASSERT_TRUE(begin < end && end != std::string::npos) << line;
    const auto row = rows.find(key);
    if (row == rows.end()) {
      ADD_FAILURE() << key << " is not on the page";
      continue;
    }
    const std::string meaning = line.substr(begin, end - begin);
    const std::string value = line.substr(line.find(", ", end) + 2, line.size() - line.find(", ", end) - 3);
    const std::string cell = value == "\"\"" ? "–" : "`" + value + "`";
    EXPECT_NE(row->second.find("| " + cell + " | " + meaning + " |"), std::string::npos) << line << "\n" << row->second;
    rows.erase(row);
    ++keys;
  }
  EXPECT_GT(keys, 50);
  rows.erase("precision.rules");  // a list; its elements' keys are rows of their own
  for (const auto& [key, row] : rows) ADD_FAILURE() << key << " is on the page and not in the code";
}

}  // namespace
}  // namespace mantissa
