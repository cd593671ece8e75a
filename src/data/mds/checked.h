// Checksums of shards, computed once for a file and its change time. What was found right is noted in a file of the
// user's cache folder, $XDG_CACHE_HOME/mantissa/shards or ~/.cache/mantissa/shards, named by the SHA-256 of the
// folder's path; it may be removed at any time (docs/shards.md).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/mds/reader.h"

namespace mantissa::mds {

// What tells that a file is the one that was checked.
struct FileState {
  uint64_t bytes = 0, device = 0, inode = 0;
  int64_t changed_ns = 0;  // st_ctim, which no one can set
  bool operator==(const FileState&) const = default;
};
FileState state_of(const std::string& path);  // Exit::kInput when it is not there

class CheckedFiles {
 public:
  // What is noted of the folder's files, as its index.json gives their hashes. A note that cannot be read is none.
  explicit CheckedFiles(const Folder& folder);

  bool holds(const std::string& basename, const FileState& state) const;
  // `state` is that from before the file was read. Not taken when the file was changed within the last two seconds: a
  // change that follows could have the same time.
  void add(const std::string& basename, const FileState& state);
  // Writes the note if it has grown; "" or why that was not possible.
  std::string save() const;

 private:
  std::string path_, folder_, index_sha256_;
  std::map<std::string, FileState> files_;
  bool grown_ = false;
};

struct CheckOptions {
  // Bytes of shards not checked yet, above which they are left to `mantissa verify`, and a note says so.
  uint64_t most_bytes = uint64_t{16} << 30;
  std::function<void(double share)> progress;  // in the calling thread
};

// Holds the files that rows are read from to the hashes of index.json, on all threads, those that were found right
// before by their note alone. Exit::kInput for one that differs, Exit::kInterrupted for a stop signal. Gives what a
// user should be told: what was not checked and why.
std::vector<std::string> check_shards(const Folder& folder, const CheckOptions& options = {});

}  // namespace mantissa::mds
