#include "data/documents.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "data/readers/readers.h"

namespace mantissa {
namespace {

std::string format_of(const std::string& path) {
  const std::string low = lower(path);
  std::string_view name = low;
  if (name.ends_with(".index") || name.ends_with(".dict") || name.ends_with(".dict.dz")) return "dictd";
  for (const char* packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.remove_suffix(std::strlen(packed));
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return "jsonl";
  if (name.ends_with(".txt") || name.ends_with(".text") || name.ends_with(".md")) return "text";
  for (const char* later : {".parquet", ".mds", ".bin", ".arrow"})
    if (name.ends_with(later))
      fail(Exit::kUsage, "data: {}: {} files are not available in this version; give text, JSONL or a DICT database",
           path, later);
  fail(Exit::kUsage, "data: {}: its name does not tell the format; set data.format to text, jsonl or dictd", path);
}

// SOURCE.json beside the data: {"name", "version", "<file name>": "<sha256>", ...}. A file that differs is refused.
void read_source_record(const std::string& path, Documents& documents) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string record = (folder.empty() ? "SOURCE.json" : folder / "SOURCE.json").string();
  if (!exists(record)) return;
  const Json root = read_json(record, uint64_t{1} << 20);
  if (!root.is_object()) fail(Exit::kInput, "{}: is {}, expected an object", record, root.type_name());
  const auto field = [&](const std::string& key) {
    const auto at = root.find(key);
    return at != root.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  documents.name = field("name");
  documents.version = field("version");
  for (const SourceFile& file : documents.files) {
    const std::string expected = field(std::filesystem::path(file.path).filename().string());
    if (!expected.empty() && expected != file.sha256)
      fail(Exit::kInput, "{}: has SHA-256 {}, expected {} ({})", file.path, file.sha256, expected, record);
  }
}

}  // namespace

void Documents::add(std::string_view document, const DataConfig& config, const std::string& where) {
  if (document.empty()) {
    ++empty;
    return;
  }
  if (document.size() < static_cast<size_t>(config.min_document_bytes)) {
    ++short_ones;
    return;
  }
  if (const size_t at = document.find('\0'); at != std::string_view::npos)
    fail(Exit::kInput,
         "{}: holds a byte 0 (byte {} of the document), which separates documents; is this UTF-16 or no text?", where,
         at);
  text += document;
  ends.push_back(text.size());
}

Documents read_documents(const std::string& path, const DataConfig& config) {
  const std::string format = config.format == "auto" ? format_of(path) : config.format;
  Documents documents;
  documents.format = format;
  if (format == "dictd")
    read_dictd(path, config, documents);
  else if (format == "jsonl")
    read_jsonl(path, config, documents);
  else
    read_text_file(path, config, documents);
  read_source_record(path, documents);
  return documents;
}

}  // namespace mantissa
