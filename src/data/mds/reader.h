// MosaicML MDS v2 folders: index.json and its shards. Nothing in them is trusted (docs/shards.md lists the rules).
//
//   const mds::Folder folder = mds::Folder::open("/data/fineweb/train");
//   const int text = folder.require("text");
//   for (size_t s = 0; s < folder.shards().size(); ++s) {
//     const mds::Shard shard = folder.open_shard(s);
//     for (int64_t i = 0; i < shard.samples(); ++i) use(shard.text(i, text));
//   }
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/mapped_range.h"
#include "data/mds/encoding.h"
#include "data/record.h"

namespace mantissa::mds {

// A file as index.json names it: a relative path of plain names below the folder.
struct FileEntry {
  std::string basename;
  uint64_t bytes = 0;
  std::map<std::string, std::string> hashes;  // algorithm -> hex digits
};

struct ShardEntry {
  FileEntry raw;
  std::string compression;          // "", "zstd", "zstd:7", "gz", ...
  FileEntry zip;                    // where compression is not ""
  std::vector<std::string> hashes;  // algorithms that the files were written with
  int64_t samples = 0;
};

// One shard, mapped, or unpacked into memory. Header and offsets are checked when it is opened, a sample when it is
// read. Views live as long as the shard. Reading is thread-safe and allocates nothing but for a message.
class Shard {
 public:
  int64_t samples() const { return samples_; }
  const std::vector<Column>& columns() const { return *columns_; }
  const std::string& name() const { return name_; }  // the file's path, for messages
  // "FILE: sample 3, column \"text\""
  std::string where(int64_t sample, int column) const;
  // Gives body(), which reads values; a shard that is no longer whole counts instead (read_mapped).
  template <class Body, class Place>
  auto read(Body&& body, Place&& place) const {
    return read_mapped(file_, std::forward<Body>(body), std::forward<Place>(place));
  }

  // The stored bytes of a value, of any column. The typed ones refuse a column of another kind and malformed bytes
  // (Exit::kInput).
  std::span<const std::byte> bytes(int64_t sample, int column) const;
  std::string_view text(int64_t sample, int column) const;  // str, json, str_*; not checked to be UTF-8
  int64_t integer(int64_t sample, int column) const;        // int, whole scalars, str_int
  Array array(int64_t sample, int column) const;            // ndarray, raw arrays

 private:
  friend class Folder;
  friend Shard open_shard_image(std::string_view image, const std::string& name, const std::vector<Column>& columns,
                                int64_t samples);
  void check_header(int64_t samples_expected);

  MappedFile file_;
  std::shared_ptr<const std::string> unpacked_;
  std::string_view image_;
  std::string name_;
  std::shared_ptr<const std::vector<Column>> columns_;
  int64_t samples_ = 0;
  size_t variable_ = 0;  // columns with a size word
};

// A shard of an image in memory, which must outlive it; for tests and fuzzing.
Shard open_shard_image(std::string_view image, const std::string& name, const std::vector<Column>& columns,
                       int64_t samples);

class Folder {
 public:
  // Reads and checks index.json (version 2, at most 64 MiB, all shards with the same columns). Exit::kInput names the
  // shard and what is wrong.
  static Folder open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Column>& columns() const { return *columns_; }
  const std::vector<ShardEntry>& shards() const { return shards_; }
  int64_t samples() const { return samples_; }
  uint64_t raw_bytes() const { return raw_bytes_; }   // of all shards, unpacked
  const SourceFile& index() const { return index_; }  // index.json itself

  int find(std::string_view column) const;       // -1 when there is none
  int require(const std::string& column) const;  // none: Exit::kInput with the columns that there are

  // The uncompressed file where it is there, else the compressed one, unpacked into memory. A file whose size is not
  // the index's, that is a link or lies behind one, and any malformed header are Exit::kInput.
  Shard open_shard(size_t shard) const;
  // Path of a file of the index, refused when it leaves the folder, also through a link.
  std::string path_of(const FileEntry& file) const;

 private:
  std::string path_;
  std::shared_ptr<const std::vector<Column>> columns_;
  std::vector<ShardEntry> shards_;
  int64_t samples_ = 0;
  uint64_t raw_bytes_ = 0;
  SourceFile index_;
};

}  // namespace mantissa::mds
