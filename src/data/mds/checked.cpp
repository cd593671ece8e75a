#include "data/mds/checked.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/sha256.h"
#include "base/signal.h"
#include "base/text.h"
#include "base/units.h"
#include "data/mds/hashes.h"

namespace mantissa::mds {
namespace {

constexpr const char* kCheckedFormat = "mantissa checked shards";
constexpr int64_t kSettledNs = 2'000'000'000;  // FAT and some network file systems keep times of two seconds
constexpr uint64_t kMaxNoteBytes = uint64_t{64} << 20;

// "" when neither variable is set.
std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/mantissa/shards";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/mantissa/shards" : "";
}

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// A file of the folder that rows are read from.
struct Part {
  const FileEntry* file = nullptr;
  std::string path, algorithm;  // the strongest hash that is known; "": none is given
  FileState state;
};

std::vector<Part> parts_of(const Folder& folder) {
  std::vector<Part> parts;
  for (const ShardEntry& shard : folder.shards()) {
    const bool raw = shard.compression.empty() || exists(join_path(folder.path(), shard.raw.basename));
    Part part{.file = raw ? &shard.raw : &shard.zip, .path = {}, .algorithm = {}, .state = {}};
    part.path = folder.path_of(*part.file);
    part.state = state_of(part.path);
    for (const char* algorithm : {"xxh32", "xxh3_64", "xxh64", "xxh128", "sha1", "sha256"})
      if (part.file->hashes.contains(algorithm)) part.algorithm = algorithm;
    parts.push_back(std::move(part));
  }
  return parts;
}

// What is wrong with the part, "" when its hash is that of the index.
std::string problem_of(const Part& part) {
  try {
    const MappedFile mapped = MappedFile::open(part.path, Links::kRefuse);
    const std::string found = read_mapped(
        mapped, [&] { return hash_hex(part.algorithm, mapped.text()); }, [] { return "its hash"; });
    const std::string& expected = part.file->hashes.at(part.algorithm);
    if (found == lower(expected)) return "";
    return fmt::format("{}: {} is {}, index.json says {}: the file is damaged, or not the one that was written",
                       part.path, part.algorithm, found, printable(expected, 80));
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

FileState state_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail(Exit::kInput, "{}: cannot open: {}", path, std::strerror(errno));
  return {static_cast<uint64_t>(info.st_size), info.st_dev, info.st_ino,
          int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
}

CheckedFiles::CheckedFiles(const Folder& folder) : index_sha256_(folder.index().sha256) {
  std::error_code error;
  folder_ = std::filesystem::canonical(folder.path(), error).string();
  if (error) fail(Exit::kInput, "{}: cannot be looked at: {}", folder.path(), error.message());
  const std::string cache = cache_folder();
  if (cache.empty()) return;
  path_ = join_path(cache, sha256(folder_) + ".json");
  if (!exists(path_)) return;
  try {
    const Json note = read_json(path_, kMaxNoteBytes);
    if (note.at("format") != kCheckedFormat || note.at("version") != 1 || note.at("index_sha256") != index_sha256_)
      return;
    for (const auto& [name, file] : note.at("files").items())
      files_[name] = {file.at("bytes").get<uint64_t>(), file.at("device").get<uint64_t>(),
                      file.at("inode").get<uint64_t>(), file.at("changed_ns").get<int64_t>()};
  } catch (const std::exception&) {
    files_.clear();  // everything is checked once more, and the note written anew
  }
}

bool CheckedFiles::holds(const std::string& basename, const FileState& state) const {
  const auto at = files_.find(basename);
  return at != files_.end() && at->second == state;
}

void CheckedFiles::add(const std::string& basename, const FileState& state) {
  if (holds(basename, state) || now_ns() - state.changed_ns < kSettledNs) return;
  files_[basename] = state;
  grown_ = true;
}

std::string CheckedFiles::save() const {
  if (!grown_) return "";
  if (path_.empty()) return "neither XDG_CACHE_HOME nor HOME names a folder";
  nlohmann::ordered_json note;
  note["format"] = kCheckedFormat;
  note["version"] = 1;
  note["folder"] = folder_;
  note["index_sha256"] = index_sha256_;
  note["files"] = nlohmann::ordered_json::object();
  for (const auto& [name, state] : files_)
    note["files"][name] = {
        {"bytes", state.bytes}, {"device", state.device}, {"inode", state.inode}, {"changed_ns", state.changed_ns}};
  try {
    make_dirs(std::filesystem::path(path_).parent_path().string());
    // Paths may be no UTF-8.
    write_atomic(path_, note.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> check_shards(const Folder& folder, const CheckOptions& options) {
  CheckedFiles checked(folder);
  std::vector<std::string> notes;
  const std::vector<Part> parts = parts_of(folder);
  std::vector<const Part*> due;
  uint64_t due_bytes = 0;
  int64_t without = 0;
  for (const Part& part : parts) {
    if (part.algorithm.empty()) {
      ++without;
    } else if (!checked.holds(part.file->basename, part.state)) {
      due.push_back(&part);
      due_bytes += part.state.bytes;
    }
  }
  if (without > 0)
    notes.push_back(fmt::format("{}: gives no checksum that is known ({}) of {} of {} shards: they are not checked",
                                folder.index().path, kKnownHashes, grouped(without),
                                grouped(static_cast<int64_t>(parts.size()))));
  if (due_bytes > options.most_bytes) {
    notes.push_back(
        fmt::format("{}: the checksums of {} of shards were not computed, more than {} at a start; "
                    "`mantissa verify {}` computes them once",
                    folder.path(), bytes_text(static_cast<double>(due_bytes)),
                    bytes_text(static_cast<double>(options.most_bytes)), folder.path()));
    return notes;
  }
  std::vector<std::string> problems(due.size());
  std::atomic<size_t> taken{0};
  std::atomic<uint64_t> done{0};
  // Threads take shards as they come: only the messages, in the order of the shards, are kept.
  parallel_for(max_threads(), 1, [&](int64_t, int64_t) {
    for (size_t i = 0; (i = taken++) < due.size() && !stop_requested();) {
      problems[i] = problem_of(*due[i]);
      done += due[i]->state.bytes;
      if (options.progress && thread_id() == 0)
        options.progress(static_cast<double>(done.load()) / static_cast<double>(due_bytes));
    }
  });
  throw_if_stopped("computing the checksums of " + folder.path());
  for (size_t i = 0; i < due.size(); ++i)
    if (problems[i].empty()) checked.add(due[i]->file->basename, due[i]->state);
  const std::string unsaved = checked.save();
  for (const std::string& problem : problems)
    if (!problem.empty()) fail(Exit::kInput, "{}", problem);
  if (!unsaved.empty())
    notes.push_back(
        fmt::format("{}: checksums are right, but that cannot be noted, so the next start computes them "
                    "again: {}",
                    folder.path(), unsaved));
  return notes;
}

}  // namespace mantissa::mds
