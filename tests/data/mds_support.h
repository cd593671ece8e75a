// Shards and indices of any content, as bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

namespace mantissa::mds::testing {

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

struct ColumnText {
  std::string name, encoding;
  Json size;  // null: variable
};

// A shard of `samples`, each the values of the columns in order.
inline std::string shard_of(const std::vector<ColumnText>& columns,
                            const std::vector<std::vector<std::string>>& samples) {
  Json config = {{"column_names", Json::array()}, {"column_encodings", Json::array()}, {"column_sizes", Json::array()}};
  for (const ColumnText& column : columns) {
    config["column_names"].push_back(column.name);
    config["column_encodings"].push_back(column.encoding);
    config["column_sizes"].push_back(column.size);
  }
  const std::string text = config.dump();
  std::vector<uint32_t> table = {static_cast<uint32_t>(samples.size()),
                                 static_cast<uint32_t>(4 * (samples.size() + 2) + text.size())};
  std::string body;
  for (const auto& sample : samples) {
    for (size_t i = 0; i < columns.size(); ++i)
      if (columns[i].size.is_null()) body += raw<uint32_t>({static_cast<uint32_t>(sample[i].size())});
    for (const std::string& value : sample) body += value;
    table.push_back(table[1] + static_cast<uint32_t>(body.size()));
  }
  return raw(table) + text + body;
}

inline Json index_of(const std::vector<ColumnText>& columns, int64_t samples, const std::string& shard) {
  Json entry = {{"version", 2},       {"format", "mds"},    {"compression", nullptr}, {"hashes", Json::array()},
                {"samples", samples}, {"zip_data", nullptr}};
  entry["raw_data"] = {{"basename", "shard.00000.mds"}, {"bytes", shard.size()}, {"hashes", Json::object()}};
  for (const char* key : {"column_names", "column_encodings", "column_sizes"}) entry[key] = Json::array();
  for (const ColumnText& column : columns) {
    entry["column_names"].push_back(column.name);
    entry["column_encodings"].push_back(column.encoding);
    entry["column_sizes"].push_back(column.size);
  }
  return {{"version", 2}, {"shards", {entry}}};
}

// Not write_atomic: thousands of durable writes would take minutes.
inline void write_plain(const std::string& path, const std::string& content) {
  std::remove(path.c_str());
  std::FILE* out = std::fopen(path.c_str(), "wb");
  ASSERT_NE(out, nullptr) << path;
  ASSERT_EQ(std::fwrite(content.data(), 1, content.size(), out), content.size());
  std::fclose(out);
}

}  // namespace mantissa::mds::testing
