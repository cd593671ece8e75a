// Which files a path of the config means, and what they hold: by their names, .bin by its first bytes.
#include <fnmatch.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/foreign.h"
#include "base/text.h"
#include "data/mds/rows.h"
#include "data/readers/readers.h"
#include "data/token_files/token_files.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;

struct NameRule {
  const char* ending;
  const char* format;
};
constexpr NameRule kNames[] = {
    {".txt", "text"},        {".text", "text"},      {".md", "text"},     {".jsonl", "jsonl"}, {".ndjson", "jsonl"},
    {".json.gz", "jsonl"},   {".json.zst", "jsonl"}, {".index", "dictd"}, {".dict", "dictd"},  {".dict.dz", "dictd"},
    {".parquet", "parquet"}, {".bin", "tokens"},     {".idx", "tokens"},
};
// Names of files that hold no data which this program reads, and what to do.
constexpr NameRule kOthers[] = {
    {".arrow", "Arrow IPC files are not read; save them as Parquet (datasets: Dataset.to_parquet)"},
    {".feather", "Feather files are not read; save them as Parquet"},
    {".csv", "CSV files are not read; save them as JSON lines or Parquet"},
    {".tsv", "TSV files are not read; save them as JSON lines or Parquet"},
    {".npy", "NumPy files are not read; write the ids without a header (array.tofile) as NAME.bin"},
    {".pt", "PyTorch files can run code when loaded and are not read; write text as JSON lines, ids as NAME.bin"},
    {".pkl", "pickles can run code when loaded and are not read; write text as JSON lines, ids as NAME.bin"},
    {".xz", "xz files are not unpacked; pack them with gzip or zstd"},
    {".bz2", "bzip2 files are not unpacked; pack them with gzip or zstd"},
    {".zip", "zip archives are not unpacked; unpack them first"},
    {".tar", "tar archives are not unpacked; unpack them first"},
    {".tar.gz", "tar archives are not unpacked; unpack them first"},
};

std::string name_of(const std::string& path) { return fs::path(path).filename().string(); }

// text, jsonl, dictd, parquet, tokens by the name of a file, "" when it does not tell.
std::string format_by_name(const std::string& path) {
  const std::string low = lower(name_of(path));
  for (const NameRule& rule : kOthers)
    if (low.ends_with(rule.ending)) return "";
  std::string_view plain = low;
  for (const char* packed : {".gz", ".zst"})
    if (plain.ends_with(packed)) plain.remove_suffix(std::strlen(packed));
  for (const NameRule& rule : kNames) {
    const bool packed_counts = std::strcmp(rule.format, "text") == 0 || std::strcmp(rule.format, "jsonl") == 0;
    if ((packed_counts ? plain : std::string_view(low)).ends_with(rule.ending) || low.ends_with(rule.ending))
      return rule.format;
  }
  return "";
}

std::string head_of(const std::string& path) {
  FileStream file(path);
  std::string head(64, '\0');
  head.resize(file.read(head));
  return head;
}

// The format of one file whose config says "auto".
std::string format_of_file(const std::string& path) {
  std::string format = format_by_name(path);
  if (format.empty()) {
    const std::string low = lower(name_of(path));
    for (const NameRule& rule : kOthers)
      if (low.ends_with(rule.ending)) fail(Exit::kInput, "data: {}: {}", path, rule.format);
    if (low.ends_with(".json")) return "jsonl";
    fail(Exit::kUsage,
         "data: {}: its name does not tell the format; set data.format to text, jsonl, dictd, parquet, nanogpt, llmc "
         "or megatron",
         path);
  }
  if (format != "tokens") return format;
  const Foreign kind = recognise_foreign(head_of(path));
  if (kind != Foreign::kNone)
    fail(
        Exit::kInput, "data: {}: expected token ids, found {}{}", path, foreign_name(kind),
        kind == Foreign::kZip || kind == Foreign::kPickle ? "; write the ids as uint16 or int32 without a header" : "");
  return token_file_format(path);
}

// Neither data nor a reason to refuse a folder: hidden files, records about the set, and read-me files.
bool beside_the_data(const std::string& name) {
  const std::string low = lower(name);
  for (const char* start : {".", "_", "readme", "license", "licence", "notice", "copyright"})
    if (low.starts_with(start)) return true;
  return low.ends_with(".json") || low.ends_with(".crc") || low.ends_with(".lock");
}

struct Listing {
  std::vector<std::string> files, folders;  // paths, sorted
};

Listing list(const std::string& folder) {
  Listing listing;
  for (const FolderEntry& entry : in_context("data", [&] { return list_folder(folder); })) {
    if (entry.kind == FolderEntry::Kind::kFolder) listing.folders.push_back(join_path(folder, entry.name));
    if (entry.kind == FolderEntry::Kind::kFile) listing.files.push_back(join_path(folder, entry.name));
  }
  return listing;
}

bool is_mds(const std::string& folder) { return exists(join_path(folder, "index.json")); }

bool of_split(const std::string& name, const std::string& split) {
  return name.starts_with(split) && name.size() > split.size() &&
         (name[split.size()] == '.' || name[split.size()] == '-');
}

// The data files among `files`: those whose names tell a format; with a given format those that tell it or none.
std::vector<std::string> data_files(const std::vector<std::string>& files, const std::string& format) {
  const std::string wanted = format == "nanogpt" || format == "llmc" || format == "megatron" ? "tokens" : format;
  std::vector<std::string> known, unnamed;
  for (const std::string& path : files) {
    const std::string here = format_by_name(path);
    const bool plain_json = lower(path).ends_with(".json") && format == "jsonl" && name_of(path) != "SOURCE.json";
    if (beside_the_data(name_of(path)) && !plain_json) continue;
    if (here.empty())
      unnamed.push_back(path);
    else if (format == "auto" || here == wanted)
      known.push_back(path);
  }
  if (!known.empty()) return known;
  return format == "auto" ? std::vector<std::string>() : unnamed;
}

// What a folder holds of `split`: paths of files, or of MDS folders.
std::vector<std::string> found_in(const std::string& folder, const std::string& split, const std::string& format) {
  const bool may_be_mds = format == "auto" || format == "mds";
  if (may_be_mds && split.empty() && is_mds(folder)) return {folder};
  const Listing listing = list(folder);
  std::vector<std::string> found;
  if (format != "mds") {
    std::vector<std::string> files;
    for (const std::string& path : listing.files)
      if (split.empty() || of_split(name_of(path), split)) files.push_back(path);
    found = data_files(files, format);
  }
  if (found.empty() && split.empty() && may_be_mds)
    for (const std::string& path : listing.folders)
      if (is_mds(path)) found.push_back(path);
  if (!split.empty()) {
    const std::string inner = join_path(folder, split);
    if (is_directory(inner))
      for (std::string& path : found_in(inner, "", format)) found.push_back(std::move(path));
  }
  if (found.empty() && is_directory(join_path(folder, "data")) && name_of(folder) != "data")
    return found_in(join_path(folder, "data"), split, format);
  std::sort(found.begin(), found.end());
  return found;
}

// Paths that a pattern in the last part names.
std::vector<std::string> matching(const std::string& pattern) {
  const fs::path path(pattern);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  std::vector<std::string> found;
  for (const std::string& file : list(folder).files)
    if (fnmatch(path.filename().c_str(), name_of(file).c_str(), FNM_PERIOD) == 0)
      found.push_back(path.has_parent_path() ? file : name_of(file));
  if (found.empty()) fail(Exit::kInput, "data: {}: no file has such a name", pattern);
  return found;
}

// One path of each database: the three names of one are the same.
std::vector<std::string> databases(const std::vector<std::string>& files) {
  std::vector<std::string> unique;
  for (const std::string& path : files) {
    const std::string index = dictd_files(path)[0];
    if (files.size() == 1) return files;
    if (std::find(unique.begin(), unique.end(), index) == unique.end()) unique.push_back(index);
  }
  return unique;
}

// The .bin of each set: .bin and .idx of one name are the same.
std::vector<std::string> binaries(const std::vector<std::string>& files) {
  std::vector<std::string> unique;
  for (const std::string& path : files) {
    const std::string bin = path.ends_with(".idx") ? path.substr(0, path.size() - 4) + ".bin" : path;
    if (std::find(unique.begin(), unique.end(), bin) == unique.end()) unique.push_back(bin);
  }
  return unique;
}

[[noreturn]] void nothing(const std::string& path, const std::string& split, const DataConfig& config) {
  const Listing listing = list(path);
  std::vector<std::string> names;
  for (const std::vector<std::string>* part : {&listing.folders, &listing.files})
    for (const std::string& entry : *part) {
      if (names.size() == 8) break;
      names.push_back(printable(name_of(entry), 60) + (part == &listing.folders ? "/" : ""));
    }
  const std::string wanted = config.format == "auto" ? "data files" : config.format + " files";
  fail(Exit::kInput, "data: {}: no {}{}; the folder holds {}", path, wanted,
       split.empty() ? "" : fmt::format(" named {0}.* or {0}-*, nor a folder {0}/ with them", split),
       names.empty() ? "nothing" : join(names, ", "));
}

}  // namespace

Source find_source(const std::string& path, const std::string& split, const DataConfig& config) {
  Source source;
  const bool folder = is_directory(path);
  if (!folder && !split.empty())
    fail(Exit::kUsage, "data: {} is no folder, so it has no split \"{}\"; leave data.split and validation_split empty",
         path, split);
  if (folder) {
    source.files = found_in(path, split, config.format);
    if (source.files.empty()) nothing(path, split, config);
  } else if (!exists(path) && name_of(path).find_first_of("*?") != std::string::npos) {
    source.files = matching(path);
  } else if (!exists(path) && exists(path + ".idx") && (config.format == "auto" || config.format == "megatron")) {
    source.files = {path + ".bin"};
  } else {
    // Of a DICT database any of its names will do.
    if (!exists(path) && format_by_name(path) != "dictd") fail(Exit::kInput, "data: {}: no such file or folder", path);
    source.files = {path};
  }

  if (folder && is_directory(source.files.front()))
    source.format = "mds";
  else
    source.format = config.format;
  if (source.format == "auto") {
    source.format = format_of_file(source.files.front());
    for (const std::string& file : source.files)
      if (const std::string here = format_of_file(file); here != source.format)
        fail(Exit::kInput, "data: {}: holds files of several formats: {} is {}, {} is {}; set data.format", path,
             name_of(source.files.front()), source.format, name_of(file), here);
  }
  if (source.format == "mds" && !is_directory(source.files.front()))
    fail(Exit::kInput, "data: {}: MDS is a folder with an index.json", path);
  if (source.format == "dictd") source.files = databases(source.files);
  source.tokens = source.format == "nanogpt" || source.format == "llmc" || source.format == "megatron";
  if (source.tokens) source.files = binaries(source.files);
  if (source.format == "mds") source.tokens = mds::has_tokens(source.files.front());
  return source;
}

}  // namespace mantissa
