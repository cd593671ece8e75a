#include "data/mds/prepared.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace mantissa::mds {
namespace {

constexpr const char* kPreparedFormat = "mantissa packed rows";
constexpr uint64_t kMaxBytes = uint64_t{16} << 20;
constexpr int64_t kMaxRows = int64_t{1} << 31;  // times a row below 2^31 fits 63 bits

int64_t whole(const Json& object, const char* key, int64_t low, int64_t high, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number_integer() || value.get<int64_t>() < low || value.get<int64_t>() > high ||
      (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    fail(Exit::kInput, "{}: \"{}\" is {}, expected a whole number from {} to {}", where, key,
         printable(value.dump(), 40), low, high);
  return value.get<int64_t>();
}

double number(const Json& object, const char* key, double high, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_number() || !(value.get<double>() >= 0) || value.get<double>() > high)
    fail(Exit::kInput, "{}: \"{}\" is {}, expected a number from 0 to {}", where, key, printable(value.dump(), 40),
         high);
  return value.get<double>();
}

std::string text(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string())
    fail(Exit::kInput, "{}: \"{}\" is {}, expected a string", where, key, printable(value.dump(), 40));
  return value.get<std::string>();
}

bool boolean(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_boolean())
    fail(Exit::kInput, "{}: \"{}\" is {}, expected true or false", where, key, printable(value.dump(), 40));
  return value.get<bool>();
}

}  // namespace

std::string to_json(const Prepared& prepared) {
  nlohmann::ordered_json json;
  json["format"] = kPreparedFormat;
  json["version"] = 1;
  json["sequence_length"] = prepared.sequence_length;
  json["vocab_size"] = prepared.vocab_size;
  json["rows"] = prepared.rows;
  json["tokenizer"] = prepared.tokenizer;
  json["tokenizer_sha256"] = prepared.tokenizer_sha256;
  json["eos"] = prepared.eos;
  json["eos_origin"] = prepared.eos_origin;
  json["packing"] = prepared.packing;
  json["labels"] = prepared.labels;
  json["documents"] = prepared.documents;
  json["tokens"] = prepared.tokens;
  json["unigram_entropy"] = prepared.unigram_entropy;
  const RowStatistics& statistics = prepared.statistics;
  json["statistics"] = {{"segments", statistics.segments},
                        {"most_segments", statistics.most_segments},
                        {"squared_lengths", statistics.squared_lengths},
                        {"padding", statistics.padding},
                        {"labels", statistics.labels}};
  json["counts"] = prepared.counts;
  json["sources"] = nlohmann::ordered_json::array();
  for (const SourceFile& file : prepared.sources)
    json["sources"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  // Paths and names may be no UTF-8.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Prepared parse_prepared(std::string_view json, const std::string& name) {
  const Json root = parse_json(json, name);
  if (const std::string format = text(root, "format", name); format != kPreparedFormat)
    fail(Exit::kInput, "{}: format \"{}\", expected \"{}\"", name, printable(format), kPreparedFormat);
  whole(root, "version", 1, 1, name);
  Prepared prepared;
  prepared.sequence_length = whole(root, "sequence_length", 1, INT32_MAX, name);
  prepared.vocab_size = whole(root, "vocab_size", 1, INT32_MAX, name);
  prepared.rows = whole(root, "rows", 0, kMaxRows, name);
  const int64_t most = prepared.rows * prepared.sequence_length;
  prepared.tokenizer = text(root, "tokenizer", name);
  prepared.tokenizer_sha256 = text(root, "tokenizer_sha256", name);
  prepared.eos = static_cast<int32_t>(whole(root, "eos", -1, prepared.vocab_size - 1, name));
  prepared.eos_origin = text(root, "eos_origin", name);
  prepared.packing = text(root, "packing", name);
  prepared.labels = boolean(root, "labels", name);
  prepared.documents = whole(root, "documents", 0, most, name);
  prepared.tokens = whole(root, "tokens", 0, most, name);
  prepared.unigram_entropy = number(root, "unigram_entropy", 100, name);
  const Json& statistics = member(root, "statistics", name);
  const std::string inside = name + ": statistics";
  prepared.statistics.segments = whole(statistics, "segments", prepared.rows, most, inside);
  prepared.statistics.most_segments = whole(statistics, "most_segments", 0, prepared.sequence_length, inside);
  prepared.statistics.squared_lengths = number(
      statistics, "squared_lengths", static_cast<double>(most) * static_cast<double>(prepared.sequence_length), inside);
  prepared.statistics.padding = whole(statistics, "padding", 0, most, inside);
  prepared.statistics.labels = whole(statistics, "labels", 0, most, inside);
  const Json& counts = member(root, "counts", name);
  if (!counts.is_object()) fail(Exit::kInput, "{}: \"counts\" is no object", name);
  for (const auto& [key, value] : counts.items())
    prepared.counts[key] = whole(counts, key.c_str(), 0, INT64_MAX, name + ": counts");
  const Json& sources = member(root, "sources", name);
  if (!sources.is_array()) fail(Exit::kInput, "{}: \"sources\" is no list", name);
  for (const Json& source : sources)
    prepared.sources.push_back({text(source, "path", name + ": sources"),
                                static_cast<uint64_t>(whole(source, "bytes", 0, INT64_MAX, name + ": sources")),
                                text(source, "sha256", name + ": sources")});
  return prepared;
}

bool read_prepared(const std::string& folder, Prepared& prepared) {
  const std::string path = join_path(folder, kPreparedName);
  if (!exists(path)) return false;
  prepared = parse_prepared(read_text(path, kMaxBytes), path);
  return true;
}

}  // namespace mantissa::mds
